//! Flaws that were found in this layer after it was made.

use std::fs;
use std::path::Path;
use std::time::Duration;

use beneath::session::{Claim, SessionsConfig, Sibling};
use beneath::{Budget, ErrorKind, GuestPath, MessageId, ResolverChoice};
use beneath_kit::seccomp::{Denial, denied};
use rustix::io::Errno;

use crate::support::{RESOLVERS, Stage, names, with_each_resolver};

const DATABASE: &[u8] = b"SQLite format 3\0 and pages";

#[test]
fn a_session_that_is_emptied_in_part_has_no_half_of_a_message_pending() {
    let files: [(&str, &[u8]); 6] =
        [("a", b"1"), ("b", b"2"), ("c", b"3"), ("d", b"4"), ("e", b"5"), ("f", b"6")];
    for resolver in RESOLVERS {
        for entries in 0..10 {
            let budget = Budget::default().with_entries(entries);
            let config = SessionsConfig::default().with_resolver(resolver).with_budget(budget);
            let stage = Stage::with_config(config);
            for id in ["1", "2"] {
                stage.send(id, &files);
                drop(stage.session.outbox().claim(&MessageId::new(id)).unwrap().unwrap());
            }
            let _ = stage.session.empty().unwrap();
            for claim in stage.session.outbox().pending().unwrap().entries {
                let read = claim.read(files.map(|(name, _)| name)).unwrap();
                assert_eq!(read.found().count(), files.len(), "{} with a budget of {entries}", claim.id());
            }
        }
    }
}

#[test]
fn without_its_trash_a_session_is_emptied_all_the_same() {
    with_each_resolver(|stage| {
        fs::create_dir_all(stage.guest("workspace/dir/deeper")).unwrap();
        stage.send("42", &[("f", b"x")]);
        drop(stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap());
        fs::remove_dir(stage.host("trash")).unwrap();
        let emptied = stage.session.empty().unwrap();
        assert!(emptied.is_complete() && emptied.removed > 0, "{emptied:?}");
        assert_eq!(names(&stage.guest("")), [""; 0]);
        assert_eq!(names(&stage.host("claimed")), [""; 0]);
    });
}

#[test]
fn without_the_trash_every_removal_that_moves_there_does_its_work() {
    with_each_resolver(|stage| {
        for dir in ["inbox/1", "outbox/2", "workspace/3"] {
            fs::create_dir_all(stage.guest(dir)).unwrap();
        }
        let without_trash = || fs::remove_dir(stage.host("trash")).unwrap();
        let session = &stage.session;

        without_trash();
        let swept = session.inbox().sweep(Duration::ZERO).unwrap();
        assert!(swept.is_complete() && swept.removed == 1, "{swept:?}");
        without_trash();
        let swept = session.outbox().sweep(Duration::ZERO).unwrap();
        assert!(swept.is_complete() && swept.removed == 1, "{swept:?}");
        without_trash();
        assert!(session.workspace().remove_tree_contained("3").unwrap().is_complete());
        for part in ["inbox", "outbox", "workspace"] {
            assert_eq!(names(&stage.guest(part)), [""; 0], "{part}");
        }
    });
}

#[test]
fn a_claim_that_cannot_be_looked_at_keeps_no_other_from_being_given_out() {
    with_each_resolver(|stage| {
        let (outbox, ids) = (stage.session.outbox(), ["1", "2"].map(MessageId::new));
        let mut tickets = Vec::new();
        for id in &ids {
            stage.send(id.as_str(), &[("f", b"x")]);
            tickets.push(outbox.claim(id).unwrap().unwrap().ticket().to_string());
        }
        // The first claim is one in place, with a note that is too long.
        let slot = stage.host("claimed").join(&tickets[0]);
        fs::rename(slot.join("1"), stage.guest("outbox").join(format!(".beneath-{}", tickets[0]))).unwrap();
        fs::write(slot.join("1"), [b'x'; 100]).unwrap();

        let lock = stage.session.try_lock().unwrap();
        let second = outbox.claim_pending(&lock, &ids[1]).unwrap().unwrap();
        assert_eq!((second.ticket().to_string(), second.attempts()), (tickets[1].clone(), 2));
        assert_eq!(outbox.claim_pending(&lock, &ids[0]).unwrap_err().kind(), ErrorKind::TooLarge);
        assert!(outbox.claim_pending(&lock, &MessageId::new("3")).unwrap().is_none(), "no claim has this id");
        let pending = outbox.pending().unwrap();
        assert_eq!(pending.entries.iter().map(Claim::ticket).collect::<Vec<_>>(), [second.ticket()]);
        let refused: Vec<_> = pending.refused().map(|(ticket, error)| (ticket, error.kind())).collect();
        assert_eq!(refused, [(Path::new(&tickets[0]), ErrorKind::TooLarge)]);
        assert_eq!((pending.total, pending.is_complete()), (2, false));
    });
}

/// As on NFS, ZFS and some FUSE file systems.
#[test]
fn where_names_cannot_be_reserved_an_attempt_is_counted_by_one_rename() {
    denied(&[Denial::RenameNoReplace(Errno::INVAL)], || {
        let (stage, id) = (Stage::new(ResolverChoice::Auto), MessageId::new("1"));
        stage.send("1", &[("f", b"x")]);
        let ticket = stage.session.outbox().claim(&id).unwrap().unwrap().ticket().clone();
        // A name that is reserved by a directory first is found taken; one rename takes the place of the empty directory.
        fs::create_dir(stage.host(&format!("claimed/{ticket}.2"))).unwrap();
        let lock = stage.session.try_lock().unwrap();
        let claim = stage.session.outbox().claim_pending(&lock, &id).unwrap().unwrap();
        assert_eq!(claim.attempts(), 2);
        assert_eq!(names(&stage.host("claimed")), [format!("{ticket}.2")]);
        assert!(claim.read(["f"]).unwrap().is_complete());
    });
}

fn guarded(config: SessionsConfig) -> Stage {
    let stage = Stage::with_config(config);
    for path in ["skills/a.db", "own/a.db", "keys/a.db"] {
        let path = stage.guest("workspace").join(path);
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, DATABASE).unwrap();
        fs::write(path.with_extension("db-journal"), "planted").unwrap();
    }
    stage
}

#[test]
fn a_sibling_under_a_read_only_path_is_not_taken_away() {
    let stage = guarded(SessionsConfig::default().with_read_only([GuestPath::new("skills").unwrap()]));
    for path in ["skills/a.db", "/session/workspace/skills/a.db", "./own/../skills//a.db"] {
        let error = stage.session.quarantine_sibling(path, Sibling::Journal).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{path}");
        assert!(stage.guest("workspace/skills/a.db-journal").exists());
        assert_eq!(stage.session.verify_db(path, None).unwrap().siblings.len(), 1, "it can be read");
        stage.session.copy_db(path, 99).unwrap();
    }
    assert!(stage.session.quarantine_sibling("own/a.db", Sibling::Journal).unwrap().is_some());
}

#[test]
#[cfg(feature = "patterns")]
fn a_database_that_is_blocked_is_neither_checked_nor_copied() {
    let blocked = beneath::Patterns::new(["keys/"]).unwrap();
    let stage = guarded(SessionsConfig::default().with_blocked(blocked));
    let session = &stage.session;
    let refused = [
        session.verify_db("keys/a.db", None).err(),
        session.copy_db("keys/a.db", 99).err(),
        session.quarantine_sibling("keys/a.db", Sibling::Journal).err(),
    ];
    assert_eq!(refused.map(|error| error.unwrap().kind()), [ErrorKind::Denied; 3]);
    session.copy_db("own/a.db", 99).unwrap();
}

#[test]
fn a_part_of_a_session_is_no_database() {
    with_each_resolver(|stage| {
        let session = &stage.session;
        // What would be beside the workspace, in the guest's directory and in the one above it.
        fs::write(stage.guest("workspace-journal"), "x").unwrap();
        for path in [".", "/session/workspace", "/session/inbox", "/session", "/session/outbox/"] {
            let refused = [
                session.verify_db(path, None).err(),
                session.copy_db(path, 99).err(),
                session.quarantine_sibling(path, Sibling::Journal).err(),
            ];
            assert_eq!(refused.map(|error| error.unwrap().kind()), [ErrorKind::InvalidPath; 3], "{path}");
        }
        assert!(stage.guest("workspace-journal").exists());
    });
}

#[test]
fn a_move_of_a_file_that_is_not_there_makes_nothing() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        let missing = workspace.move_to("a/b", &workspace, "a/b", 9).unwrap_err();
        assert_eq!((missing.operation(), missing.kind()), ("move", ErrorKind::NotFound));
        assert!(!stage.guest("workspace/a").exists(), "nothing is made for a file that is not there");
    });
}

#[test]
fn a_new_file_gets_no_other_name_that_the_rules_refuse() {
    let stage = guarded(SessionsConfig::default().with_read_only([GuestPath::new("own/config").unwrap()]));
    let mut file = stage.session.workspace().new_file("own/notes").unwrap();
    assert_eq!(file.commit_as("config").unwrap_err().kind(), ErrorKind::Denied);
    assert!(!stage.guest("workspace/own/config").exists());
    file.commit_as("notes-2").unwrap();
}
