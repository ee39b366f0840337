//! What the policy changes, and that it changes nothing else.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use beneath::{
    Access, Durability, ErrorKind, Execute, HardLinks, Links, Mounts, Policy, ResolverChoice, WalkLimits,
};
use rustix::mount::{MountFlags, mount, mount_bind};

use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::operations::{OPERATIONS, operations};
use beneath_kit::{Arena, child, for_each_policy, has_openat2, is_root, kind, resolvers, skip};

#[test]
fn defaults_are_the_strict_ones() {
    let policy = Policy::default();
    assert_eq!(policy.links(), Links::Refuse);
    assert_eq!(policy.hard_links(), HardLinks::Refuse);
    assert_eq!(policy.mounts(), Mounts::Refuse);
    assert_eq!(policy.durability(), Durability::None);
    assert_eq!(policy.resolver(), ResolverChoice::Auto);
    assert_eq!(policy.access(), Access::private());
    assert_eq!((Access::private().file_mode(), Access::private().dir_mode()), (0o600, 0o700));
    assert_eq!((Access::shared().file_mode(), Access::shared().dir_mode()), (0o660, 0o770));
    assert_eq!((Access::shared().owner(), Access::shared().group()), (None, None));
}

#[test]
fn a_policy_holds_what_it_was_given() {
    let access = Access::custom(0o170_644, 0o42_755).with_owner(7).with_group(8);
    assert_eq!((access.file_mode(), access.dir_mode()), (0o644, 0o2755), "only permission bits count");
    assert_eq!((access.owner(), access.group()), (Some(7), Some(8)));
    let nobody = access.with_owner(u32::MAX).with_group(u32::MAX);
    assert_eq!((nobody.owner(), nobody.group()), (None, None));
    let policy = Policy::default()
        .with_links(Links::FollowBeneath)
        .with_hard_links(HardLinks::Allow)
        .with_mounts(Mounts::Cross)
        .with_access(access)
        .with_durability(Durability::Full)
        .with_resolver(ResolverChoice::Walk);
    assert_eq!((policy.links(), policy.hard_links()), (Links::FollowBeneath, HardLinks::Allow));
    assert_eq!((policy.mounts(), policy.access()), (Mounts::Cross, access));
    assert_eq!((policy.durability(), policy.resolver()), (Durability::Full, ResolverChoice::Walk));
}

fn following(choice: ResolverChoice) -> (Arena, beneath::Root) {
    let arena = Arena::new();
    let policy = Policy::default().with_links(Links::FollowBeneath).with_resolver(choice);
    let root = arena.open(policy);
    (arena, root)
}

#[test]
fn following_needs_openat2() {
    let (arena, root) = following(ResolverChoice::Walk);
    arena.file("f", "x").file(beneath_kit::operations::RENAME_SOURCE, "x").dir("d");
    for op in OPERATIONS {
        assert_eq!(kind(op.run_on(&root, "f")), ErrorKind::Unsupported, "{op:?}");
        assert_eq!(kind(op.run_on(&root, "d/x")), ErrorKind::Unsupported, "{op:?}");
    }
}

#[test]
fn following_stays_beneath() {
    if !has_openat2() {
        return skip("following links needs openat2");
    }
    let (arena, root) = following(ResolverChoice::Openat2);
    arena.file("d/f", "x").link("l", "d/f").link("dir", "d").link("d/up", "../d/f").link("chain", "dir/up");
    for path in ["l", "dir/f", "d/up", "chain", "dir/up"] {
        assert_eq!(root.read_contained(path, 9).unwrap(), b"x", "{path}");
    }
    root.write_exclusive("dir/new", "y").unwrap();
    assert_eq!(arena.content("d/new"), b"y");
    assert_eq!(root.metadata("l").unwrap().len(), 1);
    assert_eq!(root.list("dir").unwrap().count(), 3);
}

#[test]
fn following_out_is_an_escape() {
    if !has_openat2() {
        return skip("following links needs openat2");
    }
    let (arena, root) = following(ResolverChoice::Openat2);
    arena
        .link("rel", "../outside")
        .link("abs", arena.outside())
        .link("slash", arena.base())
        .link("inside", arena.root());
    arena.link("secret", "../outside/secret").link("d/up", "../../outside").link("proc", "/proc/self/root");
    let before = arena.snapshot();
    for path in
        ["rel/secret", "abs/secret", "slash/outside/secret", "secret", "d/up/secret", "inside/x", "proc/x"]
    {
        for op in operations(&["read_contained", "open_contained", "metadata", "set_access"]) {
            assert_eq!(kind(op.run_on(&root, path)), ErrorKind::Escape, "{op:?} {path}");
        }
    }
    for path in ["rel/new", "abs/new", "slash/new", "d/up/new"] {
        for op in operations(&[
            "write_exclusive",
            "new_file, commit",
            "replace",
            "remove_file",
            "remove_tree_contained",
        ]) {
            assert_eq!(kind(op.run_on(&root, path)), ErrorKind::Escape, "{op:?} {path}");
        }
    }
    before.assert_same(&arena.snapshot(), "an escape");
}

#[test]
fn following_ends_in_loops_and_nothing() {
    if !has_openat2() {
        return skip("following links needs openat2");
    }
    let (arena, root) = following(ResolverChoice::Openat2);
    arena.link("loop", "loop").link("a", "b").link("b", "a").link("none", "nowhere");
    assert_eq!(kind(root.read_contained("loop", 9)), ErrorKind::Symlink);
    assert_eq!(kind(root.read_contained("a/x", 9)), ErrorKind::Symlink);
    assert_eq!(kind(root.read_contained("none", 9)), ErrorKind::NotFound);
    // Even where links are followed, a name taken by a dangling one is taken.
    assert_eq!(kind(root.write_exclusive("none", "x")), ErrorKind::AlreadyExists);
    assert!(!arena.has("nowhere"));
}

#[test]
fn following_a_loop_ends_every_operation() {
    if !has_openat2() {
        return skip("following links needs openat2");
    }
    let (arena, root) = following(ResolverChoice::Openat2);
    arena
        .file(beneath_kit::operations::RENAME_SOURCE, "x")
        .link("loop", "loop")
        .link("a", "b")
        .link("b", "a");
    arena.link("deep0", "x");
    for n in 1..60 {
        arena.link(format!("deep{n}"), format!("deep{}", n - 1));
    }
    let before = arena.snapshot();
    for op in OPERATIONS {
        for path in ["loop/x", "a/x", "b/x/y", "deep59/x"] {
            assert_eq!(kind(op.run_on(&root, path)), ErrorKind::Symlink, "{op:?} {path}");
        }
    }
    before.assert_same(&arena.snapshot(), "a loop");
}

#[test]
fn following_does_not_relax_the_kind_of_file() {
    if !has_openat2() {
        return skip("following links needs openat2");
    }
    let (arena, root) = following(ResolverChoice::Openat2);
    arena
        .fifo("p")
        .link("l", "p")
        .file("a", "x")
        .hard_link("b", arena.at("a"))
        .link("h", "a")
        .link("dl", "d");
    arena.dir("d");
    assert_eq!(kind(root.read_contained("l", 9)), ErrorKind::NotRegular);
    assert_eq!(kind(root.read_contained("dl", 9)), ErrorKind::NotRegular);
    assert_eq!(kind(root.read_contained("h", 9)), ErrorKind::HardLinked);
}

#[test]
fn following_never_removes_the_target() {
    if !has_openat2() {
        return skip("following links needs openat2");
    }
    let (arena, root) = following(ResolverChoice::Openat2);
    arena
        .file("d/f", "x")
        .link("t/l", "../d")
        .link("t/out", arena.outside())
        .link("top", "d")
        .link("file", "d/f");
    assert!(root.remove_tree_contained("t").unwrap().is_complete());
    root.remove_file("file").unwrap();
    assert_eq!(arena.content("d/f"), b"x");
    assert_eq!(kind(root.remove_tree_contained("top")), ErrorKind::Symlink);
    assert_eq!(arena.content("d/f"), b"x");
}

#[test]
fn owner_and_group_are_set_by_handle() {
    if !is_root() {
        return skip("giving files away needs privileges");
    }
    let access = Access::shared().with_owner(1234).with_group(4321);
    for_each_policy(&Policy::default().with_access(access), |root, arena| {
        root.ensure_dir("a/b").unwrap();
        root.write_exclusive("a/f", "x").unwrap();
        root.replace("a/r", "x").unwrap();
        root.new_file("a/n").unwrap().commit().unwrap();
        for path in ["a", "a/b", "a/f", "a/r", "a/n"] {
            let meta = fs::metadata(arena.at(path)).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (1234, 4321), "{path}");
        }
        assert_eq!((arena.mode_of("a"), arena.mode_of("a/f")), (0o2770, 0o660));
    });
}

#[test]
fn giving_away_without_privilege_leaves_nothing() {
    child::run_unprivileged("policy::giving_away_without_privilege_leaves_nothing", || {
        for_each_policy(&Policy::default().with_access(Access::private().with_owner(0)), |root, arena| {
            assert_eq!(kind(root.write_exclusive("f", "x")), ErrorKind::Denied);
            assert_eq!(kind(root.replace("f", "x")), ErrorKind::Denied);
            assert!(root.new_file("f").and_then(|file| file.commit()).is_err());
            assert!(arena.names(".").is_empty());
        });
    });
}

#[test]
fn set_id_bits_can_be_asked_for() {
    for_each_policy(&Policy::default().with_access(Access::custom(0o640, 0o2770)), |root, arena| {
        root.ensure_dir("d").unwrap();
        assert_eq!(arena.mode_of("d"), 0o2770);
    });
}

/// Mounts a tmpfs at `mnt`, a bind of what lies outside at `d/bind` and of one file at `file`.
fn plant_mounts(arena: &Arena) -> Mounted<3> {
    arena.dir("mnt").dir("d/bind").file("file", "").file("plain", "x");
    mount("tmpfs", arena.at("mnt"), "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(arena.at("mnt/f"), "on tmpfs").unwrap();
    let canary = arena.throwaway();
    mount_bind(&canary, arena.at("d/bind")).unwrap();
    mount_bind(canary.join("canary"), arena.at("file")).unwrap();
    Mounted(["mnt", "d/bind", "file"].map(|path| arena.at(path)))
}

#[test]
fn mounts_are_refused() {
    with_private_mounts(|| {
        for choice in resolvers() {
            let arena = Arena::new();
            let root = arena.open(Policy::default().with_resolver(choice));
            arena.file(beneath_kit::operations::RENAME_SOURCE, "x");
            let _mounted = plant_mounts(&arena);
            for path in ["mnt/f", "d/bind/canary"] {
                for op in operations(&[
                    "read_contained",
                    "open_contained",
                    "metadata",
                    "remove_file",
                    "rename, from",
                ]) {
                    assert_eq!(kind(op.run_on(&root, path)), ErrorKind::CrossDevice, "{op:?} {path}");
                }
            }
            for path in ["mnt/new", "d/bind/new"] {
                for op in operations(&[
                    "write_exclusive",
                    "new_file, commit",
                    "replace",
                    "ensure_dir",
                    "rename, to",
                ]) {
                    assert_eq!(kind(op.run_on(&root, path)), ErrorKind::CrossDevice, "{op:?} {path}");
                }
            }
            for path in ["mnt", "d/bind"] {
                for op in operations(&["list", "walk", "descend", "remove_tree_contained", "metadata"]) {
                    assert_eq!(kind(op.run_on(&root, path)), ErrorKind::CrossDevice, "{op:?} {path}");
                }
            }
            assert_eq!(kind(root.read_contained("file", 99)), ErrorKind::CrossDevice);
            assert_eq!(root.read_contained("plain", 9).unwrap(), b"x");
        }
    });
}

#[test]
fn following_into_a_mount_is_no_escape_but_refused_all_the_same() {
    if !has_openat2() {
        return skip("following links needs openat2");
    }
    with_private_mounts(|| {
        let (arena, root) = following(ResolverChoice::Openat2);
        let _mounted = plant_mounts(&arena);
        arena.link("l", "mnt/f").link("b", "d/bind").link("out", "../outside");
        for path in ["mnt/f", "l", "b/canary", "d/bind/canary"] {
            assert_eq!(kind(root.read_contained(path, 99)), ErrorKind::CrossDevice, "{path}");
        }
        assert_eq!(kind(root.read_contained("out/secret", 99)), ErrorKind::Escape);
        let crossing = Policy::default().with_links(Links::FollowBeneath).with_mounts(Mounts::Cross);
        assert_eq!(arena.open(crossing).read_contained("b/canary", 99).unwrap(), b"CANARY");
    });
}

#[test]
fn listing_and_walking_show_a_mount_without_entering_it() {
    with_private_mounts(|| {
        for choice in resolvers() {
            let arena = Arena::new();
            let root = arena.open(Policy::default().with_resolver(choice));
            let _mounted = plant_mounts(&arena);
            let names: Vec<_> = root.list(".").unwrap().filter_map(Result::ok).collect();
            assert!(names.iter().any(|entry| entry.file_name() == "mnt"));
            let mut refused = 0;
            for item in root.walk(".", WalkLimits::default()).unwrap() {
                match item {
                    Ok(entry) => assert!(
                        !entry.path().ends_with("canary") && !entry.path().ends_with("mnt/f"),
                        "entered a mount: {}",
                        entry.path().display()
                    ),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::CrossDevice);
                        refused += 1;
                    }
                }
            }
            assert!(refused >= 2, "mounts must not vanish in silence");
        }
    });
}

#[test]
fn removal_stops_at_mounts_and_says_so() {
    with_private_mounts(|| {
        for choice in resolvers() {
            let arena = Arena::new();
            let root = arena.open(Policy::default().with_resolver(choice));
            arena.file("d/a", "x").file("d/z/y", "x");
            let _mounted = plant_mounts(&arena);
            let removed = root.remove_tree_contained("d").unwrap();
            assert!(!removed.is_complete());
            assert!(removed.left.first.iter().any(|left| left.subject.ends_with("bind")), "{removed:?}");
            assert!(arena.has("d/bind/canary"), "removed through a mount");
            assert!(!arena.has("d/a") && !arena.has("d/z"), "the rest goes");
        }
    });
}

#[test]
fn mounts_can_be_crossed_when_asked() {
    with_private_mounts(|| {
        for choice in resolvers() {
            let arena = Arena::new();
            let root = arena.open(Policy::default().with_mounts(Mounts::Cross).with_resolver(choice));
            let _mounted = plant_mounts(&arena);
            assert_eq!(root.read_contained("mnt/f", 99).unwrap(), b"on tmpfs");
            assert_eq!(root.read_contained("d/bind/canary", 99).unwrap(), b"CANARY");
            root.write_exclusive("mnt/new", "x").unwrap();
            assert_eq!(kind(root.rename("mnt/new", "plain2")), ErrorKind::CrossDevice);
            assert_eq!(root.list("mnt").unwrap().count(), 2);
        }
    });
}

#[test]
fn crossing_mounts_follows_no_links() {
    for_each_policy(&Policy::default().with_mounts(Mounts::Cross), |root, arena| {
        arena
            .file("f", "x")
            .link("l", "f")
            .link("out", arena.outside().join("secret"))
            .link("none", "nowhere");
        for link in ["l", "out", "none"] {
            for op in operations(&[
                "read_contained",
                "open_contained",
                "metadata",
                "list",
                "descend",
                "remove_tree_contained",
            ]) {
                assert_eq!(kind(op.run_on(root, link)), ErrorKind::Symlink, "{op:?} {link}");
            }
            let changed = root.set_access(link, Access::shared(), Execute::Clear);
            assert_eq!(kind(changed), ErrorKind::Symlink, "{link}");
        }
        assert_eq!(root.read_contained("f", 9).unwrap(), b"x");
    });
}

#[test]
fn crossing_mounts_does_not_let_removal_cross() {
    with_private_mounts(|| {
        for choice in resolvers() {
            let arena = Arena::new();
            let root = arena.open(Policy::default().with_mounts(Mounts::Cross).with_resolver(choice));
            let _mounted = plant_mounts(&arena);
            let removed = root.remove_tree_contained("d").unwrap();
            assert!(!removed.is_complete());
            assert!(arena.has("d/bind/canary"));
        }
    });
}

/// Covers `/proc` before this process has looked at it once, and uncovers it when dropped.
fn cover_proc(with: impl FnOnce()) -> Mounted<1> {
    with();
    Mounted(["/proc".into()])
}

#[test]
fn reads_and_writes_without_a_usable_proc() {
    child::run("policy::reads_and_writes_without_a_usable_proc", || {
        with_private_mounts(|| {
            for choice in resolvers() {
                let arena = Arena::new();
                arena.file("f", "x").fifo("p").link("l", "f");
                // What is there now is not procfs and must not be believed.
                let covered =
                    cover_proc(|| mount("tmpfs", "/proc", "tmpfs", MountFlags::empty(), None).unwrap());
                let root = arena.open(Policy::default().with_resolver(choice));
                assert_eq!(root.read_contained("f", 9).unwrap(), b"x");
                assert_eq!(kind(root.read_contained("p", 9)), ErrorKind::NotRegular);
                assert_eq!(kind(root.read_contained("l", 9)), ErrorKind::Symlink);
                root.write_exclusive("new", "y").unwrap();
                root.replace("new", "z").unwrap();
                root.ensure_dir("a/b").unwrap();
                assert!(root.remove_tree_contained("a").unwrap().is_complete());
                drop(covered);
                assert_eq!(arena.names(".").len(), 4);
                assert_eq!(arena.content("new"), b"z");
            }
        });
    });
}

#[test]
fn a_lying_proc_is_not_believed() {
    child::run("policy::a_lying_proc_is_not_believed", || {
        with_private_mounts(|| {
            for choice in resolvers() {
                let arena = Arena::new();
                arena.file("f", "x");
                // Every number is a link to the secret.
                let lie = arena.beside("proc");
                for dir in ["self/fd", "thread-self/fd"] {
                    fs::create_dir_all(lie.join(dir)).unwrap();
                    for number in 0..100 {
                        let path = lie.join(dir).join(number.to_string());
                        std::os::unix::fs::symlink(arena.outside().join("secret"), path).unwrap();
                    }
                }
                let covered = cover_proc(|| mount_bind(&lie, "/proc").unwrap());
                let root = arena.open(Policy::default().with_resolver(choice));
                let read = root.read_contained("f", 9);
                drop(covered);
                assert_eq!(read.unwrap(), b"x");
                fs::remove_dir_all(lie).unwrap();
            }
        });
    });
}

#[test]
fn an_owner_that_no_user_can_be_is_an_error_and_not_a_panic() {
    // The number that chown takes to mean "leave it".
    for_each_policy(&Policy::default().with_access(Access::private().with_owner(u32::MAX)), |root, arena| {
        let _ = root.write_exclusive("f", "x");
        let _ = root.ensure_dir("d");
        assert!(arena.names(".").len() <= 2);
    });
}
