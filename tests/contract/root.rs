//! Opening a root, what it converts from and to, and what its descriptors are worth to others.

use std::fs::{self, File};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use beneath::{
    ErrorKind, HardLinks, Links, Mounts, Policy, Resolver, ResolverChoice, Root, WalkLimits,
    ambient_authority,
};
use cap_std::fs::Dir;

use beneath_kit::{Arena, child, for_each_resolver, has_openat2, kind, resolvers};

#[test]
fn opens_a_directory_and_nothing_else() {
    let arena = Arena::new();
    arena.file("f", "x").fifo("p").dir("d");
    let open = |path: &Path| Root::open_ambient(path, ambient_authority());
    assert!(open(&arena.root()).is_ok());
    assert!(open(&arena.at("d")).is_ok());
    assert_eq!(kind(open(&arena.at("f"))), ErrorKind::NotDirectory);
    assert_eq!(kind(open(&arena.at("p"))), ErrorKind::NotDirectory);
    assert_eq!(kind(open(&arena.at("none"))), ErrorKind::NotFound);
}

#[test]
fn odd_places_are_errors_and_not_panics() {
    let open = |path: &str| Root::open_ambient(path, ambient_authority());
    assert_eq!(kind(open("")), ErrorKind::NotFound);
    assert_eq!(kind(open("a\0b")), ErrorKind::InvalidPath);
    assert_eq!(kind(open(&"n".repeat(5000))), ErrorKind::InvalidPath);
    let arena = Arena::new();
    arena.file("f", "x");
    for choice in resolvers() {
        let fd = OwnedFd::from(File::open(arena.at("f")).unwrap());
        let root = Root::from(fd).with_policy(Policy::default().with_resolver(choice));
        for op in beneath_kit::OPERATIONS {
            assert!(op.run_on(&root, "x").is_err(), "{op:?} on a file");
        }
        assert!(root.list(".").is_err());
    }
}

#[test]
fn error_of_opening_shows_no_host_path() {
    let arena = Arena::new();
    let error = Root::open_ambient(arena.at("none"), ambient_authority()).unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(arena.base().to_str().unwrap()), "{shown}");
}

#[test]
fn chooses_openat2_where_the_kernel_has_it() {
    let arena = Arena::new();
    let expected = if has_openat2() { Resolver::Openat2 } else { Resolver::Walk };
    assert_eq!(arena.open(Policy::default()).resolver(), expected);
    let walk = Policy::default().with_resolver(ResolverChoice::Walk);
    assert_eq!(arena.open(walk).resolver(), Resolver::Walk);
}

#[test]
fn refuses_to_work_when_the_forced_resolver_is_missing() {
    if has_openat2() {
        return beneath_kit::skip("openat2 is not missing; the filtered run shows this");
    }
    let arena = Arena::new();
    arena.file("f", "x");
    let root = arena.open(Policy::default().with_resolver(ResolverChoice::Openat2));
    assert_eq!(kind(root.read_contained("f", 9)), ErrorKind::Unsupported);
}

#[test]
fn converts_from_and_to_other_handles() {
    let arena = Arena::new();
    arena.file("f", "x");
    let dir = Dir::open_ambient_dir(arena.root(), ambient_authority()).unwrap();
    let root = Root::from(dir);
    assert_eq!(root.read_contained("f", 9).unwrap(), b"x");
    let fd: OwnedFd = File::open(arena.root()).unwrap().into();
    let root = Root::from(fd);
    assert_eq!(root.read_contained("f", 9).unwrap(), b"x");
    assert!(rustix::fs::fstat(root.as_fd()).is_ok());
    let dir = Dir::from(root);
    assert_eq!(dir.read("f").unwrap(), b"x");
    let dir = Dir::from(arena.open(Policy::default()));
    assert_eq!(dir.entries().unwrap().count(), 1);
    dir.write("g", "y").unwrap();
    let fd = OwnedFd::from(arena.open(Policy::default()));
    assert_eq!(Root::from(fd).read_contained("f", 9).unwrap(), b"x");
}

#[test]
fn every_conversion_makes_a_root_that_can_do_everything() {
    let arena = Arena::new();
    let roots = [
        Root::from(Dir::open_ambient_dir(arena.root(), ambient_authority()).unwrap()),
        Root::from(OwnedFd::from(File::open(arena.root()).unwrap())),
        arena.open(Policy::default()),
        arena.open(Policy::default()).try_clone().unwrap(),
        arena.open(Policy::default()).descend(".").unwrap(),
    ];
    for root in roots {
        root.ensure_dir("d/e").unwrap();
        root.write_exclusive("d/e/f", "x").unwrap();
        assert_eq!(root.list("d/e").unwrap().count(), 1);
        assert_eq!(root.walk(".", WalkLimits::default()).unwrap().count(), 3);
        assert!(root.remove_tree_contained("d").unwrap().is_complete());
    }
}

#[test]
fn is_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Root>();
    shared::<Policy>();
    shared::<beneath::Error>();
    sent::<beneath::NewFile>();
    sent::<beneath::ContainedFile>();
    sent::<beneath::List>();
    sent::<beneath::Walk>();
}

#[test]
fn one_root_serves_many_threads() {
    for_each_resolver(|root, arena| {
        std::thread::scope(|scope| {
            for worker in 0..4 {
                scope.spawn(move || {
                    for round in 0..50 {
                        let path = format!("w{worker}/f{round}");
                        root.ensure_dir(format!("w{worker}")).unwrap();
                        root.write_exclusive(&path, &path).unwrap();
                        assert_eq!(root.read_contained(&path, 99).unwrap(), path.as_bytes());
                    }
                });
            }
        });
        assert_eq!(arena.names(".").len(), 4);
    });
}

#[test]
fn policy_travels_with_clones_and_descents() {
    for_each_resolver(|root, arena| {
        arena.dir("d");
        let policy = root.policy().clone().with_hard_links(HardLinks::Allow);
        for policy in [policy.clone(), policy.with_mounts(Mounts::Cross)] {
            let root = root.try_clone().unwrap().with_policy(policy.clone());
            assert_eq!(root.policy(), &policy);
            assert_eq!(root.try_clone().unwrap().policy(), &policy);
            assert_eq!(root.descend("d").unwrap().policy(), &policy);
            assert_eq!(root.descend("d").unwrap().resolver(), root.resolver());
            assert_eq!(root.policy().links(), Links::Refuse);
        }
    });
}

#[test]
fn descends_into_real_directories_only() {
    for_each_resolver(|root, arena| {
        arena.file("d/f", "x").file("f", "x").link("l", "d").link("out", arena.outside()).fifo("p");
        let narrow = root.descend("d").unwrap();
        assert_eq!(narrow.read_contained("f", 9).unwrap(), b"x");
        assert_eq!(kind(narrow.read_contained("../f", 9)), ErrorKind::Escape);
        assert_eq!(kind(root.descend("l")), ErrorKind::Symlink);
        assert_eq!(kind(root.descend("out")), ErrorKind::Symlink);
        assert_eq!(kind(root.descend("f")), ErrorKind::NotDirectory);
        assert_eq!(kind(root.descend("p")), ErrorKind::NotDirectory);
        assert_eq!(kind(root.descend("none")), ErrorKind::NotFound);
    });
}

#[test]
fn a_handle_outlives_its_name() {
    for choice in resolvers() {
        let arena = Arena::new();
        arena.file("f", "mine");
        let root = arena.open(Policy::default().with_resolver(choice));
        // Whoever may rename the root's own directory can put a link there; the handle does not look.
        fs::rename(arena.root(), arena.beside("moved")).unwrap();
        std::os::unix::fs::symlink(arena.outside(), arena.root()).unwrap();
        assert_eq!(root.read_contained("f", 9).unwrap(), b"mine");
        assert_eq!(kind(root.read_contained("secret", 9)), ErrorKind::NotFound);
        root.write_exclusive("new", "x").unwrap();
        assert!(arena.beside("moved").join("new").exists());
        fs::remove_file(arena.root()).unwrap();
        fs::rename(arena.beside("moved"), arena.root()).unwrap();
    }
}

#[test]
fn a_root_that_was_removed_is_an_error_and_not_a_panic() {
    for_each_resolver(|root, arena| {
        arena.dir("d");
        let gone = root.descend("d").unwrap();
        fs::remove_dir(arena.at("d")).unwrap();
        assert_eq!(kind(gone.write_exclusive("f", "x")), ErrorKind::NotFound);
        assert_eq!(kind(gone.ensure_dir("e")), ErrorKind::NotFound);
        assert_eq!(kind(gone.read_contained("f", 9)), ErrorKind::NotFound);
        assert_eq!(gone.list(".").unwrap().count(), 0);
    });
}

fn inherited() -> Vec<String> {
    let output = child::command("root::names_what_it_inherited").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().filter_map(|line| Some(line.strip_prefix("inherited ")?.to_owned())).collect()
}

/// Not a test of its own: the child of the one below.
#[test]
fn names_what_it_inherited() {
    if child::is("root::names_what_it_inherited") {
        // The listing itself holds one, of this process. One of the parent's would be inherited.
        let own = Path::new("/proc").join(std::process::id().to_string());
        for entry in fs::read_dir("/proc/self/fd").unwrap() {
            let entry = entry.unwrap();
            let target = fs::read_link(entry.path()).unwrap_or_default();
            if !target.starts_with(&own) {
                println!("inherited {}", entry.file_name().to_str().unwrap());
            }
        }
    }
}

#[test]
fn descriptors_it_opens_do_not_survive_exec() {
    child::run("root::descriptors_it_opens_do_not_survive_exec", || {
        let before = inherited();
        assert!(before.len() >= 2, "{before:?}");
        for_each_resolver(|root, arena| {
            arena.file("d/f", "x").file("d/g", "x");
            let clone = root.try_clone().unwrap();
            let narrow = root.descend("d").unwrap();
            let file = root.open_contained("d/f").unwrap();
            let new = root.new_file("new").unwrap();
            let mut list = root.list("d").unwrap();
            let mut walk = root.walk(".", WalkLimits::default()).unwrap();
            let _ = (list.next(), walk.next(), walk.next());
            assert_eq!(inherited(), before);
            // A root that a caller made of a descriptor without the flag.
            let bare = rustix::fs::open(arena.root(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
            let bare = Root::from(bare.unwrap());
            assert_eq!(inherited(), before);
            drop(bare);
            drop((clone, narrow, file, new, list, walk));
        });
        // The control: a descriptor without the flag is seen.
        let arena = Arena::new();
        let leak = rustix::fs::open(arena.root(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
        assert_eq!(inherited().len(), before.len() + 1);
        drop(leak);
    });
}

/// The process's own `/proc/self/fd` then shows the table of another thread, in which the number is another file.
#[test]
#[allow(deprecated)] // what the safe function is deprecated for is what is tested
fn a_thread_with_its_own_descriptors_changes_only_its_own_files() {
    child::run("root::a_thread_with_its_own_descriptors_changes_only_its_own_files", || {
        for_each_resolver(|root, arena| {
            let victim = arena.base().join("throwaway/victim");
            std::fs::write(&victim, "host").unwrap();
            let mode = || std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&victim).unwrap());
            let before = mode();
            arena.file("f", "guest");
            let (ready, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    rustix::thread::unshare(rustix::thread::UnshareFlags::FILES).unwrap();
                    ready.wait();
                    go.wait();
                    let access = beneath::Access::custom(0o646, 0o757);
                    root.set_access("f", access, beneath::Execute::Clear).unwrap();
                    assert_eq!(root.read_contained("f", 9).unwrap(), b"guest");
                });
                ready.wait();
                // The numbers that the other thread will get, in the table it no longer shares.
                let held: Vec<_> = (0..8).map(|_| std::fs::File::open(&victim).unwrap()).collect();
                go.wait();
                drop(held);
            });
            assert_eq!(mode(), before, "a file outside was changed");
            assert_eq!(arena.mode_of("f"), 0o646);
        });
    });
}
