//! What a service does with a tree, entry by entry.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use beneath::{
    Entry, ErrorKind, GuestPath, HardLinks, MessageId, Policy, Result, Root, Session, TreeOptions, WalkLimits,
};
use beneath_kit::likeness::{EXECUTE, Likeness, hash_of};
use beneath_kit::tools::run;
use beneath_kit::{is_root, skip};

use crate::yard::Yard;

const MOST: u64 = 64 << 20;
/// Longest path that a call takes, from the guest's directory.
const PATH_BYTES: usize = 4095;
/// A name that no tree here has.
const ASIDE: &str = "~r";

/// Each entry can be listed, read, copied to another session, renamed, sent and removed there. `works` sees the copy before it is
/// taken apart.
#[track_caller]
pub(crate) fn survives(yard: &Yard, works: impl FnOnce(&Path)) {
    let original = Likeness::of(&yard.workspace(), EXECUTE);
    assert!(!original.0.is_empty());
    listed(yard, &original);
    read(yard);
    copied(yard, &original);
    works(&yard.copy());
    let copy = Likeness::of(&yard.copy(), EXECUTE);
    renamed(&yard.two);
    copy.assert_same(&Likeness::of(&yard.copy(), EXECUTE), "renamed and back");
    sent(&yard.two, &yard.copy());
    removed(&yard.two);
    assert_eq!(Likeness::of(&yard.copy(), EXECUTE).0.len(), 0);
    original.assert_same(&Likeness::of(&yard.workspace(), EXECUTE), "the original");
}

fn entries(session: &Session) -> Vec<Entry> {
    let walk = session.workspace().walk("", WalkLimits::default()).unwrap();
    walk.collect::<Result<_>>().unwrap()
}

/// The handle from which a path can be named, and the rest of the path.
fn reach(session: &Session, path: &Path) -> (Root, PathBuf) {
    let mut at = session.guest().descend("workspace").unwrap();
    let mut rest = PathBuf::new();
    for name in path {
        if rest.as_os_str().len() + name.len() + 64 > PATH_BYTES {
            at = at.descend(&rest).unwrap();
            rest = PathBuf::new();
        }
        rest.push(name);
    }
    (at, rest)
}

/// The path as the workspace takes it, if it is not too long.
fn named(path: &Path) -> Option<GuestPath> {
    let room = PATH_BYTES - "workspace/".len() - ASIDE.len();
    (path.as_os_str().len() <= room).then(|| GuestPath::new(path).unwrap())
}

fn listed(yard: &Yard, original: &Likeness) {
    let mut walked: Vec<OsString> =
        entries(&yard.one).into_iter().map(|entry| entry.into_path().into()).collect();
    walked.sort();
    assert!(walked.iter().eq(original.0.keys()), "the walk lists something else");
    // A name may have a newline in it, so one letter for each.
    let found = run(Command::new("find").arg(yard.workspace()).args(["-mindepth", "1", "-printf", "x"]));
    assert_eq!(found.len(), walked.len(), "find lists something else");
}

/// A session that reads files with several names too.
fn allowing_hard_links(session: &Session) -> Session {
    let policy = Policy::default().with_hard_links(HardLinks::Allow);
    let guest = session.guest().try_clone().unwrap().with_policy(policy);
    Session::from_roots(guest, session.host().try_clone().unwrap()).unwrap()
}

fn read(yard: &Yard) {
    let (session, allowing) = (&yard.one, allowing_hard_links(&yard.one));
    for entry in entries(session) {
        let (path, metadata) = (entry.path(), entry.metadata());
        let (at, rest) = reach(session, path);
        if metadata.is_symlink() {
            let text = match named(path) {
                Some(path) => session.workspace().read_link(&path),
                None => at.read_link(&rest),
            };
            let text = text.unwrap();
            assert_eq!(text.as_os_str().len() as u64, metadata.len(), "{path:?}");
        } else if metadata.is_file() {
            let bytes = match named(path) {
                Some(path) if metadata.nlink() > 1 => {
                    let refused = session.workspace().read_contained(&path, MOST).unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::HardLinked, "{path:?}");
                    allowing.workspace().read_contained(&path, MOST)
                }
                Some(path) => session.workspace().read_contained(&path, MOST),
                None => at.read_contained(&rest, MOST),
            };
            assert_eq!(bytes.unwrap().len() as u64, metadata.len(), "{path:?}");
        } else {
            assert!(metadata.is_dir(), "{path:?}");
            assert_eq!(at.metadata(&rest).unwrap().ino(), metadata.ino(), "{path:?}");
        }
    }
}

fn copied(yard: &Yard, original: &Likeness) {
    let options = TreeOptions::default().into_existing();
    let copied = yard.one.workspace().copy_tree_to("", &yard.two.workspace(), "", options).unwrap();
    assert!(copied.is_complete(), "{:#?}", copied.left);
    assert_eq!(copied.files + copied.directories + copied.links, original.0.len() as u64);
    original.assert_same(&Likeness::of(&yard.copy(), EXECUTE), "the copy");
    // It stops at a path that is too long.
    let diff = Command::new("diff")
        .args(["-r", "--no-dereference", "--exclude=deep"])
        .args([yard.workspace(), yard.copy()])
        .output();
    match diff {
        Ok(diff) => assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout)),
        Err(error) => skip(&format!("diff: {error}")),
    }
}

/// Whether this user may change the directory that holds the entry.
fn may_change(at: &Root, path: &Path) -> bool {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    is_root() || at.metadata(parent).unwrap().mode() & 0o300 == 0o300
}

/// Each entry gets another name, and its own back.
fn renamed(session: &Session) {
    for entry in entries(session) {
        let path = entry.path();
        let (at, rest) = reach(session, path);
        if !may_change(&at, &rest) {
            continue;
        }
        match named(path) {
            Some(path) => {
                let aside = path.parent().unwrap().join(ASIDE).unwrap();
                let workspace = session.workspace();
                workspace.rename(&path, &aside).unwrap();
                assert!(!workspace.try_exists(&path).unwrap(), "{path:?}");
                workspace.rename(&aside, &path).unwrap();
            }
            None => {
                let aside = rest.with_file_name(ASIDE);
                at.rename(&rest, &aside).unwrap();
                at.rename(&aside, &rest).unwrap();
            }
        }
    }
}

/// The files of each directory become a message, which the host reads.
fn sent(session: &Session, copy: &Path) {
    let before = Likeness::of(copy, EXECUTE);
    let mut messages: BTreeMap<PathBuf, Vec<OsString>> = BTreeMap::new();
    for entry in entries(session).iter().filter(|entry| entry.metadata().is_file()) {
        let (at, rest) = reach(session, entry.path());
        if may_change(&at, &rest) {
            let directory = entry.path().parent().unwrap().to_path_buf();
            messages.entry(directory).or_default().push(entry.file_name().to_owned());
        }
    }
    for (number, (directory, names)) in messages.iter().enumerate() {
        let id = format!("message-{number}");
        let outbox = session.guest().descend("outbox").unwrap();
        outbox.ensure_dir(&id).unwrap();
        let message = outbox.descend(&id).unwrap();
        for name in names {
            let (at, rest) = reach(session, &directory.join(name));
            at.rename_to(rest, &message, name).unwrap();
        }
        let claim = session.outbox().claim(&MessageId::new(&id)).unwrap().unwrap();
        let read = claim.read(names).unwrap();
        assert!(read.is_complete(), "{:?}", read.refused().next());
        assert_eq!(read.files.len(), names.len());
        for (name, bytes) in read.found() {
            let was = &before.0[directory.join(name).as_os_str()];
            assert!(
                was.ends_with(&format!("{} bytes, {:x}", bytes.len(), hash_of(bytes))),
                "{name:?}: {was}"
            );
        }
        assert!(claim.clear().is_complete());
    }
}

fn removed(session: &Session) {
    let workspace = session.workspace();
    for entry in entries(session).iter().rev().filter(|entry| !entry.metadata().is_dir()) {
        let (at, rest) = reach(session, entry.path());
        match named(entry.path()) {
            _ if !may_change(&at, &rest) => {}
            Some(path) => workspace.remove_file(&path).unwrap(),
            None => at.remove_file(&rest).unwrap(),
        }
    }
    for entry in session.guest().list("workspace").unwrap() {
        let name = GuestPath::new(entry.unwrap().file_name()).unwrap();
        let removed = workspace.remove_tree_contained(&name).unwrap();
        assert!(removed.is_complete(), "{name}: {:?}", removed.left);
    }
}
