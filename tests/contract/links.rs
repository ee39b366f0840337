//! Links as entries: the text is read and made byte for byte, the link is never followed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use beneath::{Access, Durability, ErrorKind, HardLinks, Links, Policy, Resolver};

use beneath_kit::{Ends, for_each_policy, for_each_resolver, is_root, kind, skip};

fn texts() -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> =
        ["x", "/etc/passwd", "..", "../../x", ".", "/", "a//b/", " ", "a\nb", "loop"].map(Vec::from).into();
    texts.extend([b"\xff\xfe not UTF-8".to_vec(), b"a".repeat(255), b"long/".repeat(204)]);
    texts
}

#[test]
fn a_link_keeps_its_text_byte_for_byte() {
    for_each_resolver(|root, arena| {
        arena.dir("d");
        for (n, text) in texts().into_iter().enumerate() {
            let (text, path) = (PathBuf::from(OsStr::from_bytes(&text)), format!("d/l{n}"));
            root.symlink(&text, &path).unwrap();
            assert_eq!(fs::read_link(arena.at(&path)).unwrap(), text);
            assert_eq!(root.read_link(&path).unwrap(), text);
        }
        assert_eq!(arena.names("d").len(), texts().len(), "something was left beside the links");
    });
}

/// xfs takes 1,024 bytes, others 4,095.
#[test]
fn the_longest_text_is_kept_or_refused_and_never_cut() {
    for_each_resolver(|root, arena| {
        let text = PathBuf::from("long/".repeat(819));
        match root.symlink(&text, "l") {
            Ok(()) => assert_eq!(root.read_link("l").unwrap(), text),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidPath, "{error}");
                assert!(arena.names(".").is_empty());
            }
        }
    });
}

#[test]
fn a_text_that_no_link_can_have_is_refused_before_anything_is_made() {
    for_each_resolver(|root, arena| {
        for text in [&b""[..], b"a\0b", &[b'a'; 4096]] {
            assert_eq!(kind(root.symlink(OsStr::from_bytes(text), "l")), ErrorKind::InvalidData);
        }
        assert!(arena.names(".").is_empty());
    });
}

#[test]
fn only_a_link_at_the_end_has_a_text() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").dir("d").fifo("p").socket("s");
        arena.link("in", "d").link("out", arena.outside()).link("loop", "loop");
        for path in ["f", "d", "p", "s"] {
            assert_eq!(kind(root.read_link(path)), ErrorKind::NotSymlink, "{path}");
        }
        for path in ["in/x", "out/sub", "out/secret", "loop/x"] {
            assert_eq!(kind(root.read_link(path)), ErrorKind::Symlink, "{path}");
            assert_eq!(kind(root.symlink("x", path)), ErrorKind::Symlink, "{path}");
        }
        assert_eq!(kind(root.read_link("none")), ErrorKind::NotFound);
        assert_eq!(kind(root.read_link("f/x")), ErrorKind::NotDirectory);
        for path in ["in/", ".", "", "a//b"] {
            assert_eq!(kind(root.read_link(path)), ErrorKind::InvalidPath, "{path:?}");
        }
        for path in ["..", "in/../out", "/etc/mtab"] {
            assert_eq!(kind(root.read_link(path)), ErrorKind::Escape, "{path:?}");
        }
    });
}

#[test]
fn the_last_link_is_not_followed_even_where_links_are() {
    for_each_policy(&Policy::default().with_links(Links::FollowBeneath), |root, arena| {
        if root.resolver() == Resolver::Walk {
            assert_eq!(kind(root.read_link("top")), ErrorKind::Unsupported);
            return;
        }
        arena.file("d/f", "x").link("d/l", "f").link("in", "d").link("top", "in/l");
        assert_eq!(root.read_link("top").unwrap(), Path::new("in/l"));
        assert_eq!(root.read_link("in/l").unwrap(), Path::new("f"));
        root.symlink("f", "in/new").unwrap();
        assert_eq!(fs::read_link(arena.at("d/new")).unwrap(), Path::new("f"));
        assert!(root.try_exists("top").unwrap());
    });
}

#[test]
fn a_link_never_takes_a_name_that_is_taken() {
    for_each_resolver(|root, arena| {
        arena.file("file", "old").dir("dir").fifo("fifo").link("link", "file").link("dangling", "none");
        arena.link("out-new", arena.outside().join("new"));
        let before = arena.snapshot();
        for name in ["file", "dir", "fifo", "link", "dangling", "out-new"] {
            assert_eq!(kind(root.symlink("other", name)), ErrorKind::AlreadyExists, "{name}");
        }
        before.assert_same(&arena.snapshot(), "a refused link");
    });
}

#[test]
fn a_link_gets_the_owner_of_the_policy_and_what_it_points_to_does_not() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x");
        let own = fs::metadata(arena.at("f")).unwrap();
        let (uid, gid) = if is_root() { (1234, 4321) } else { (own.uid(), own.gid()) };
        for links in [Links::Refuse, Links::FollowBeneath] {
            let policy = root.policy().clone().with_links(links).with_durability(Durability::Full);
            let giving = policy.with_access(Access::shared().with_owner(uid).with_group(gid));
            let root = root.try_clone().unwrap().with_policy(giving);
            match root.symlink("f", "l") {
                Err(error) if links == Links::FollowBeneath && error.kind() == ErrorKind::Unsupported => {
                    continue;
                }
                made => made.unwrap(),
            }
            let (link, target) =
                (fs::symlink_metadata(arena.at("l")).unwrap(), fs::metadata(arena.at("f")).unwrap());
            assert_eq!((link.uid(), link.gid(), link.nlink()), (uid, gid, 1));
            assert_eq!((target.uid(), target.gid()), (own.uid(), own.gid()));
            assert_eq!(arena.names(".").len(), 2, "a temporary name was left");
            assert_eq!(kind(root.symlink("f", "l")), ErrorKind::AlreadyExists);
            assert_eq!(arena.names(".").len(), 2, "a temporary name was left by a failure");
            fs::remove_file(arena.at("l")).unwrap();
        }
        if !is_root() {
            skip("giving links to others needs privileges");
        }
    });
}

/// The guest watches the directory, and puts second names of host entries at every temporary name it sees.
#[test]
fn nothing_but_the_new_link_is_given_away() {
    if !is_root() {
        return skip("giving links away needs privileges");
    }
    for_each_policy(&Policy::default().with_access(Access::shared().with_owner(1234)), |root, arena| {
        let canary = arena.throwaway();
        std::os::unix::fs::symlink("f", canary.join("link")).unwrap();
        let (over, plants) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for name in arena.names(".").into_iter().filter(|name| name != "l") {
                        let _ = fs::remove_file(arena.at(&name));
                        let planted = fs::hard_link(canary.join("link"), arena.at(&name)).is_ok();
                        plants.fetch_add(planted.into(), Ordering::Relaxed);
                        let _ = fs::remove_file(arena.at(&name));
                        let _ = fs::hard_link(canary.join("canary"), arena.at(&name));
                    }
                }
            });
            let _ends = Ends(&over);
            let mut rounds = 0;
            while rounds < 200 || plants.load(Ordering::Relaxed) < 20 {
                assert!(rounds < 200_000, "the guest has met no temporary name");
                let _ = root.symlink("f", "l");
                let _ = fs::remove_file(arena.at("l"));
                rounds += 1;
            }
        });
        for name in ["link", "canary"] {
            assert_eq!(fs::symlink_metadata(canary.join(name)).unwrap().uid(), 0, "{name} was given away");
        }
    });
}

#[test]
fn whatever_has_a_name_exists_and_a_link_in_the_middle_is_no_answer() {
    for_each_resolver(|root, arena| {
        arena.file("d/f", "x").fifo("p").socket("s");
        arena.link("in", "d").link("out", arena.outside()).link("none", "nowhere").link("loop", "loop");
        for path in ["d", "d/", "d/f", "p", "s", "in", "out", "none", "loop", "."] {
            assert!(root.try_exists(path).unwrap(), "{path}");
        }
        for path in ["x", "d/x", "x/y", "nowhere"] {
            assert!(!root.try_exists(path).unwrap(), "{path}");
        }
        for path in ["in/f", "out/secret", "none/x", "loop/x", "in/", "none/"] {
            assert_eq!(kind(root.try_exists(path)), ErrorKind::Symlink, "{path}");
        }
        for path in ["d/f/x", "d/f/", "p/x"] {
            assert_eq!(kind(root.try_exists(path)), ErrorKind::NotDirectory, "{path}");
        }
        assert_eq!(kind(root.try_exists("..")), ErrorKind::Escape);
    });
}

#[test]
fn a_second_name_of_a_file_or_link_exists_and_has_its_text() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").hard_link("g", arena.at("f")).link("l", "f");
        rustix::fs::link(arena.at("l"), arena.at("l2")).unwrap();
        assert_eq!(root.policy().hard_links(), HardLinks::Refuse);
        assert!(root.try_exists("g").unwrap());
        assert_eq!(root.read_link("l2").unwrap(), Path::new("f"));
    });
}
