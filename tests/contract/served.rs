//! A root on a file system that the guest serves itself. It can lie in every answer and never come to an end; the calls
//! must.

use std::collections::BTreeSet;
use std::time::Duration;

use beneath::{Budget, ErrorKind, Policy, Root, WalkLimits, ambient_authority};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::support::fuse::{FILE, Script, Served, Shown};
use crate::support::namespace::with_private_mounts;
use crate::support::watchdog::{PATIENCE, finishes};
use crate::support::{child, kind, resolvers, skip};

/// Runs `body` with each resolver on a root that `script` serves. The server is stopped before a body that hangs is reported,
/// so that it ends as well.
#[track_caller]
fn on_served<S: Script>(script: fn() -> S, body: fn(&Root)) {
    with_private_mounts(|| {
        for choice in resolvers() {
            let Some(served) = Served::mount(script()) else { return skip("FUSE cannot be mounted here") };
            let root = Root::open_ambient(served.path(), ambient_authority()).unwrap();
            let root = root.with_policy(Policy::default().with_resolver(choice));
            let finished = finishes(PATIENCE, move || body(&root));
            let answers = served.answers();
            drop(served);
            assert!(finished.is_some(), "{choice:?}: still running after {PATIENCE:?} and {answers} answers");
        }
    });
}

fn shown(names: &[&str], kind: FileType) -> Vec<Shown> {
    names.iter().map(|name| (name.as_bytes().to_vec(), kind)).collect()
}

/// `t` is a directory that lists nothing but itself, without end.
struct Dots;

impl Script for Dots {
    fn lookup(&mut self, _: u64, name: &[u8]) -> Result<u64, Errno> {
        if name == b"t" { Ok(2) } else { Err(Errno::NOENT) }
    }
    fn list(&mut self, _: u64, _: u64) -> Vec<Shown> {
        shown(&[".", ".."].repeat(100), FileType::Directory)
    }
    fn remove_dir(&mut self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOTEMPTY)
    }
}

#[test]
fn endless_dots_end_a_listing_a_walk_and_a_removal() {
    on_served(
        || Dots,
        |root| {
            let kinds = |items: Vec<beneath::Result<beneath::Entry>>| {
                items.into_iter().map(|item| item.unwrap_err().kind()).collect::<Vec<_>>()
            };
            assert_eq!(kinds(root.list("t").unwrap().collect()), [ErrorKind::Io]);
            assert_eq!(kinds(root.walk("t", WalkLimits::default()).unwrap().collect()), [ErrorKind::Io]);
            let removed = root.remove_tree_contained_within("t", Budget::unlimited()).unwrap();
            assert_eq!((removed.is_complete(), removed.left.total), (false, 1), "{removed:?}");
            assert_eq!(removed.left.first[0].error.kind(), ErrorKind::Io);
        },
    );
}

/// `t` holds a file that is a directory to `unlink` alone.
struct TwoFaced;

impl Script for TwoFaced {
    fn lookup(&mut self, _: u64, name: &[u8]) -> Result<u64, Errno> {
        Ok(if name == b"t" { 2 } else { FILE })
    }
    fn list(&mut self, _: u64, offset: u64) -> Vec<Shown> {
        shown(if offset == 0 { &["f"] } else { &[] }, FileType::RegularFile)
    }
    fn unlink(&mut self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::ISDIR)
    }
}

#[test]
fn an_entry_that_is_a_directory_to_one_call_alone_ends_with_the_passes_or_the_time() {
    on_served(
        || TwoFaced,
        |root| {
            for budget in [Budget::default(), Budget::unlimited().with_time(Duration::from_millis(100))] {
                let removed = root.remove_tree_contained_within("t", budget).unwrap();
                assert_eq!(
                    (removed.is_complete(), removed.files, removed.left.total),
                    (false, 0, 1),
                    "{removed:?}"
                );
                assert_eq!(removed.left.first[0].error.kind(), ErrorKind::Busy);
            }
        },
    );
}

/// `t` holds ever new files, and whatever is unlinked was there.
struct Endless;

impl Script for Endless {
    fn lookup(&mut self, _: u64, name: &[u8]) -> Result<u64, Errno> {
        Ok(if name == b"t" { 2 } else { FILE })
    }
    fn list(&mut self, _: u64, offset: u64) -> Vec<Shown> {
        (offset..offset + 50).map(|n| (format!("f{n}").into_bytes(), FileType::RegularFile)).collect()
    }
    fn unlink(&mut self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Ok(())
    }
}

#[test]
fn a_directory_without_end_is_bounded_by_every_limit() {
    on_served(
        || Endless,
        |root| {
            assert_eq!(root.list("t").unwrap().take(1_000).flatten().count(), 1_000);
            let mut walk = root.walk("t", WalkLimits::default().with_entries(1_000)).unwrap();
            assert_eq!(walk.by_ref().flatten().count(), 1_000);
            assert!(walk.truncated());
            for budget in [
                Budget::unlimited().with_entries(1_000),
                Budget::unlimited().with_time(Duration::from_millis(200)),
            ] {
                let removed = root.remove_tree_contained_within("t", budget).unwrap();
                assert!(!removed.is_complete() && removed.files > 0, "{removed:?}");
                assert_eq!(removed.left.first[0].error.kind(), ErrorKind::Busy);
            }
        },
    );
}

/// Every directory holds a directory, and none can be moved.
struct Bottomless(u64);

impl Script for Bottomless {
    fn lookup(&mut self, _: u64, _: &[u8]) -> Result<u64, Errno> {
        self.0 += 1;
        Ok(self.0)
    }
    fn list(&mut self, _: u64, offset: u64) -> Vec<Shown> {
        shown(if offset == 0 { &["d"] } else { &[] }, FileType::Directory)
    }
    fn remove_dir(&mut self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOTEMPTY)
    }
}

#[test]
fn a_tree_without_bottom_ends_with_the_budget_at_few_descriptors() {
    child::run("served::a_tree_without_bottom_ends_with_the_budget_at_few_descriptors", || {
        child::limit_descriptors(64);
        on_served(
            || Bottomless(2),
            |root| {
                let budget = Budget::unlimited().with_time(Duration::from_secs(1));
                let removed = root.remove_tree_contained_within("t", budget).unwrap();
                assert_eq!((removed.is_complete(), removed.left.total), (false, 1), "{removed:?}");
                assert_eq!(removed.left.first[0].error.kind(), ErrorKind::Busy);
                let walked: Vec<_> = root.walk("t", WalkLimits::default().with_depth(20)).unwrap().collect();
                assert_eq!(walked.len(), 21);
                assert_eq!(walked[20].as_ref().unwrap_err().kind(), ErrorKind::TooMany);
            },
        );
    });
}

/// `t` lists one name that no path may have as a component.
struct Named(&'static str);

impl Script for Named {
    fn lookup(&mut self, _: u64, name: &[u8]) -> Result<u64, Errno> {
        if name == b"t" { Ok(2) } else { Err(Errno::NOENT) }
    }
    fn list(&mut self, _: u64, offset: u64) -> Vec<Shown> {
        shown(if offset == 0 { std::slice::from_ref(&self.0) } else { &[] }, FileType::RegularFile)
    }
    fn remove_dir(&mut self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOTEMPTY)
    }
}

#[test]
fn a_name_that_is_a_path_is_an_error_and_never_used() {
    let body: fn(&Root) = |root| {
        let listed: Vec<_> = root.list("t").unwrap().map(kind).collect();
        assert_eq!(listed, [ErrorKind::Io]);
        let removed = root.remove_tree_contained("t").unwrap();
        assert_eq!((removed.is_complete(), removed.files), (false, 0), "{removed:?}");
        assert_eq!(removed.left.first[0].error.kind(), ErrorKind::Io);
    };
    on_served(|| Named("../outside"), body);
    on_served(|| Named("/etc/passwd"), body);
    on_served(|| Named(""), body);
}

/// An honest small tree (`t/d` with 5 files, and 5 files) whose types are lies and whose inodes change at each lookup.
struct Liar {
    names: BTreeSet<(u64, Vec<u8>)>,
    fresh: u64,
    describes: bool,
}

impl Liar {
    fn new(describes: bool) -> Self {
        let files = (0..5).flat_map(|n| [(2, format!("f{n}")), (3, format!("f{n}"))]);
        let names = files.chain([(1, "t".into()), (2, "d".into())]);
        Self { names: names.map(|(dir, name)| (dir, name.into_bytes())).collect(), fresh: 0, describes }
    }

    /// The low bits of a directory say which of the three it is.
    fn which(node: u64) -> u64 {
        node & 3
    }
}

impl Script for Liar {
    fn lookup(&mut self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        if !self.names.contains(&(Self::which(parent), name.to_vec())) {
            return Err(Errno::NOENT);
        }
        self.fresh += 4;
        Ok(self.fresh
            + match name {
                b"t" => 2,
                b"d" => 3,
                _ => FILE,
            })
    }
    fn list(&mut self, dir: u64, offset: u64) -> Vec<Shown> {
        let lie = |name: &[u8]| if name == b"d" { FileType::RegularFile } else { FileType::Directory };
        let of = self.names.iter().filter(|(holder, _)| *holder == Self::which(dir));
        let all: Vec<_> = of.map(|(_, name)| (name.clone(), lie(name))).collect();
        if offset == 0 { all } else { Vec::new() }
    }
    fn describe(&mut self, node: u64) -> Result<(), Errno> {
        if self.describes || node == 1 { Ok(()) } else { Err(Errno::IO) }
    }
    fn unlink(&mut self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let known = self.names.remove(&(Self::which(parent), name.to_vec()));
        if known { Ok(()) } else { Err(Errno::NOENT) }
    }
    fn remove_dir(&mut self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let inside = if name == b"t" { 2 } else { 3 };
        if self.names.iter().any(|(holder, _)| *holder == inside) {
            return Err(Errno::NOTEMPTY);
        }
        self.unlink(parent, name)
    }
}

#[test]
fn types_that_are_lies_and_inodes_that_change_do_not_stop_a_removal() {
    on_served(
        || Liar::new(true),
        |root| {
            let removed = root.remove_tree_contained("t").unwrap();
            assert!(removed.is_complete(), "{removed:?}");
            assert_eq!((removed.files, removed.directories), (10, 2));
        },
    );
}

#[test]
fn entries_that_cannot_be_described_are_errors_of_their_own() {
    on_served(
        || Liar::new(false),
        |root| {
            let listed: Vec<_> = root.list("t").into_iter().flatten().map(kind).collect();
            assert!(listed.iter().all(|kind| *kind == ErrorKind::Io), "{listed:?}");
            if let Ok(removed) = root.remove_tree_contained("t") {
                assert_eq!(removed.is_complete(), removed.left.total == 0, "{removed:?}");
            }
        },
    );
}
