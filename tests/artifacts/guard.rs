//! What looks like an accident is held, and stays held, until somebody approves it.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use beneath::artifacts::{Approval, Deletions, Remote, Retry, Side, SyncOptions};

use crate::bucket::{Act, Answer, Ask, Bucket};
use crate::support::{self, Home, mirrored};

fn plain() -> SyncOptions {
    SyncOptions::default()
}

fn approved(approval: Approval) -> SyncOptions {
    plain().with_deletions(Deletions::Approved(approval))
}

fn encrypt(home: &Home, files: usize) {
    for n in 0..files {
        fs::write(home.workspace(&format!("f{n}")), format!("encrypted {n}")).unwrap();
    }
}

async fn encrypt_objects(source: &beneath::artifacts::Source, files: usize) {
    for n in 0..files {
        support::put_object(source, &format!("f{n}"), b"encrypted").await;
    }
}

#[tokio::test]
async fn side_in_which_nothing_is_as_it_was_replaces_nothing_on_the_other() {
    let (home, source, artifacts) = mirrored(20).await;
    let before = home.tree();
    encrypt(&home, 20);
    let report = artifacts.mirror(&plain()).await.unwrap();
    assert_eq!((report.uploaded, report.held_back(), report.is_complete()), (0, 20, false), "{report:?}");
    assert_eq!((report.held[0].side, &support::objects(&source).await), (Side::There, &before));
    // What is new can go.
    fs::write(home.workspace("note"), "pay").unwrap();
    let report = artifacts.mirror(&plain()).await.unwrap();
    assert_eq!((report.uploaded, report.held_back()), (1, 20), "{report:?}");
    let report = artifacts.mirror(&approved(report.held[0].approval)).await.unwrap();
    assert!(report.is_complete() && report.uploaded == 20, "{report:?}");

    // The same the other way round.
    let before = home.tree();
    encrypt_objects(&source, 20).await;
    support::put_object(&source, "note", b"encrypted").await;
    let report = artifacts.pull(&plain()).await.unwrap();
    assert_eq!((report.placed, report.held_back()), (0, 21), "{report:?}");
    assert_eq!((report.held[0].side, home.tree()), (Side::Here, before));
    let report = artifacts.pull(&approved(report.held[0].approval)).await.unwrap();
    assert!(report.is_complete() && report.placed == 21, "{report:?}");
    assert_eq!(support::objects(&source).await, home.tree());
}

/// A note of who has done it is new in the next call, and as it was in the one after.
#[tokio::test]
async fn what_comes_meanwhile_does_not_end_a_hold() {
    let (home, source, artifacts) = mirrored(20).await;
    encrypt(&home, 20);
    fs::write(home.workspace("note"), "pay").unwrap();
    for uploaded in [1, 0, 0] {
        let report = artifacts.mirror(&plain()).await.unwrap();
        assert_eq!((report.uploaded, report.held_back()), (uploaded, 20), "{report:?}");
    }
    // Nor does what another host sends, nor a restore.
    support::put_object(&source, "other", b"of another host").await;
    assert_eq!(artifacts.sync(&plain()).await.unwrap().held_back(), 20);
    assert_eq!(artifacts.sync(&plain()).await.unwrap().held_back(), 20);
    assert_eq!(support::objects(&source).await["f0"], b"0");
    // Somebody has saved one of them, as it was.
    fs::write(home.workspace("f7"), "7").unwrap();
    let report = artifacts.mirror(&plain()).await.unwrap();
    assert!(report.is_complete() && report.uploaded == 19, "{report:?}");
}

#[tokio::test]
async fn files_that_come_encrypted_under_other_names_do_not_end_a_hold() {
    let (home, source, artifacts) = mirrored(100).await;
    for n in 0..100 {
        fs::remove_file(home.workspace(&format!("f{n}"))).unwrap();
        fs::write(home.workspace(&format!("f{n}.enc")), format!("encrypted {n}")).unwrap();
    }
    for uploaded in [100, 0] {
        let report = artifacts.mirror(&plain()).await.unwrap();
        assert_eq!((report.uploaded, report.deleted, report.held_back()), (uploaded, 0, 100), "{report:?}");
    }
    assert_eq!(support::objects(&source).await.len(), 200);
    let report = artifacts.mirror(&plain()).await.unwrap();
    let report = artifacts.mirror(&approved(report.held[0].approval)).await.unwrap();
    assert!(report.is_complete() && report.deleted == 100, "{report:?}");
    // What came since is guarded from now on.
    for n in 0..100 {
        fs::remove_file(home.workspace(&format!("f{n}.enc"))).unwrap();
    }
    assert_eq!(artifacts.mirror(&plain()).await.unwrap().held_back(), 100);
}

#[tokio::test]
async fn object_that_comes_meanwhile_does_not_end_a_hold() {
    let (home, source, artifacts) = mirrored(20).await;
    encrypt_objects(&source, 20).await;
    support::put_object(&source, "note", b"pay").await;
    for placed in [1, 0] {
        let report = artifacts.pull(&plain()).await.unwrap();
        assert_eq!((report.placed, report.held_back()), (placed, 20), "{report:?}");
    }
    // Nor does what goes the other way.
    fs::write(home.workspace("mine"), "mine").unwrap();
    assert_eq!(artifacts.mirror(&plain()).await.unwrap().uploaded, 1);
    assert_eq!(artifacts.pull(&plain()).await.unwrap().held_back(), 20);
    assert_eq!(home.tree()["f0"], b"0");
}

#[tokio::test]
async fn sync_measures_the_workspace_by_what_was_before_it() {
    let (home, source, artifacts) = mirrored(20).await;
    encrypt(&home, 20);
    support::put_object(&source, "new", b"of another host").await;
    let plan = artifacts.plan(&plain()).await.unwrap();
    let report = artifacts.sync(&plain()).await.unwrap();
    assert_eq!((plan.held.len(), report.held_back()), (20, 20), "{report:?}");
    assert_eq!((report.placed, &support::objects(&source).await["f0"][..]), (1, &b"0"[..]));
}

#[tokio::test]
async fn sync_holds_a_loss_of_the_store_whatever_comes_meanwhile() {
    let (home, source, artifacts) = mirrored(60).await;
    for n in 0..31 {
        support::delete_key(&source, &format!("{}f{n}", support::prefix())).await;
    }
    for round in 0..3 {
        for n in 0..20 {
            support::put_object(&source, &format!("theirs-{round}-{n}"), b"new").await;
            fs::write(home.workspace(&format!("ours-{round}-{n}")), "new").unwrap();
        }
        let report = artifacts.sync(&plain()).await.unwrap();
        let held: Vec<_> = report.held.iter().map(|held| (held.side, held.paths.len())).collect();
        assert_eq!((held, report.removed), (vec![(Side::Here, 31)], 0));
        assert_eq!((report.placed, report.uploaded), (20, 20));
    }
}

/// A link is never encrypted, and what nobody can read is not as it was.
#[tokio::test]
async fn links_and_what_cannot_be_read_end_no_hold() {
    let (home, _source, artifacts) = mirrored(25).await;
    symlink("f0", home.workspace("latest")).unwrap();
    assert!(artifacts.mirror(&plain()).await.unwrap().is_complete());
    encrypt(&home, 19);
    for n in 19..25 {
        fs::remove_file(home.workspace(&format!("f{n}"))).unwrap();
        drop(UnixListener::bind(home.workspace(&format!("f{n}"))).unwrap());
    }
    let report = artifacts.mirror(&plain()).await.unwrap();
    assert_eq!((report.uploaded, report.held_back()), (0, 19), "{report:?}");
}

#[tokio::test]
async fn file_that_goes_on_growing_does_not_make_an_approval_worthless() {
    let (home, source, artifacts) = mirrored(20).await;
    encrypt(&home, 20);
    let held = artifacts.mirror(&plain()).await.unwrap().held;
    fs::write(home.workspace("f0"), "one more line").unwrap();
    // What would be lost is what somebody has seen.
    let report = artifacts.mirror(&approved(held[0].approval)).await.unwrap();
    assert!(report.is_complete() && report.uploaded == 20, "{report:?}");
    assert_eq!(support::objects(&source).await, home.tree());
    // Other content would be lost now.
    for n in 0..20 {
        fs::write(home.workspace(&format!("f{n}")), format!("twice {n}")).unwrap();
    }
    assert_eq!(artifacts.mirror(&approved(held[0].approval)).await.unwrap().held_back(), 20);
}

#[tokio::test]
async fn trust_lists_after_every_call_that_was_not_complete() {
    let trust = plain().with_remote(Remote::Trust);
    let (home, _source, artifacts) = mirrored(20).await;
    assert_eq!(artifacts.mirror(&trust).await.unwrap().listed, 0);
    encrypt(&home, 20);
    assert_eq!(artifacts.mirror(&trust).await.unwrap().held_back(), 20);
    assert_eq!(artifacts.mirror(&trust).await.unwrap().listed, 20);

    let (_home, source, artifacts) = mirrored(20).await;
    encrypt_objects(&source, 20).await;
    assert_eq!(artifacts.pull(&plain()).await.unwrap().held_back(), 20);
    let report = artifacts.mirror(&trust).await.unwrap();
    assert!(!report.is_complete() && report.listed == 20, "{report:?}");

    let bucket = Bucket::new(|request, _| match request.ask {
        Ask::Get if request.key.ends_with("new") => Act::Refuse(Answer::closed()),
        _ => Act::Serve,
    });
    let retry = Retry::default().with_attempts(1).with_silence(Duration::from_millis(500));
    let home = Home::new();
    let artifacts = home.artifacts(&bucket.source()).with_retry(retry);
    fs::write(home.workspace("a"), "a").unwrap();
    assert!(artifacts.mirror(&plain()).await.unwrap().is_complete());
    bucket.plant(&format!("{}new", support::prefix()));
    assert_eq!(artifacts.pull(&plain()).await.unwrap().failed.total, 1);
    assert!(artifacts.mirror(&trust).await.unwrap().listed > 0);
}

/// Whatever the workspace was filled by: a guest encrypts it and leaves a note.
#[tokio::test]
async fn hold_lasts_whatever_the_workspace_was_filled_by() {
    for filled_by in ["restore", "pull", "sync", "put"] {
        let (source, home) = (support::memory(), Home::new());
        let artifacts = home.artifacts(&source);
        for n in 0..30 {
            let name = format!("f{n}");
            match filled_by {
                "put" => {
                    let path = beneath::GuestPath::new(&name).unwrap();
                    assert!(artifacts.put(&path, format!("{n}")).await.unwrap().is_complete());
                }
                _ => support::put_object(&source, &name, format!("{n}").as_bytes()).await,
            }
        }
        let filled = match filled_by {
            "restore" => artifacts.restore().await,
            "pull" => artifacts.pull(&plain()).await,
            _ => artifacts.sync(&plain()).await,
        };
        assert!(filled.unwrap().is_complete(), "{filled_by}");
        encrypt(&home, 30);
        fs::write(home.workspace("note"), "pay").unwrap();
        for uploaded in [1, 0, 0] {
            let report = artifacts.mirror(&plain()).await.unwrap();
            assert_eq!((report.uploaded, report.held_back()), (uploaded, 30), "{filled_by}: {report:?}");
        }
    }
}

/// A mirror sees what the store has lost, and what it puts does not hide that from the next pull.
#[tokio::test]
async fn mirror_does_not_hide_a_loss_of_the_store() {
    let (home, source, artifacts) = mirrored(20).await;
    encrypt_objects(&source, 20).await;
    fs::write(home.workspace("mine"), "mine").unwrap();
    assert_eq!(artifacts.mirror(&plain()).await.unwrap().uploaded, 1);
    assert_eq!(artifacts.pull(&plain()).await.unwrap().held_back(), 20);

    for (files, gone, new) in [(60, 31, 20), (5, 5, 1), (1, 1, 1)] {
        let (home, source, artifacts) = mirrored(files).await;
        for n in 0..gone {
            support::delete_key(&source, &format!("{}f{n}", support::prefix())).await;
        }
        for n in 0..new {
            fs::write(home.workspace(&format!("mine-{n}")), "mine").unwrap();
        }
        assert_eq!(artifacts.mirror(&plain()).await.unwrap().uploaded, new);
        for _ in 0..2 {
            let report = artifacts.pull(&plain()).await.unwrap();
            assert_eq!((report.removed, report.held_back()), (0, gone), "{files}: {report:?}");
        }
    }
}

#[tokio::test]
async fn restore_ends_no_hold() {
    let (home, source, artifacts) = mirrored(20).await;
    encrypt(&home, 20);
    fs::write(home.workspace("note"), "pay").unwrap();
    assert_eq!(artifacts.mirror(&plain()).await.unwrap().held_back(), 20);
    assert_eq!(artifacts.restore().await.unwrap().conflicts.len(), 20);
    for path in home.tree().keys().filter(|path| path.contains("theirs")) {
        fs::remove_file(home.workspace(path)).unwrap();
    }
    assert_eq!(artifacts.mirror(&plain()).await.unwrap().held_back(), 20);
    assert_eq!(support::objects(&source).await["f0"], b"0");
}

/// What is kept anyway is no loss: whoever rotates files can go on working.
#[tokio::test]
async fn deletions_that_are_kept_hold_no_work() {
    let keep = plain().with_deletions(Deletions::Keep);
    let (home, source, artifacts) = mirrored(20).await;
    for n in 0..20 {
        fs::remove_file(home.workspace(&format!("f{n}"))).unwrap();
        fs::write(home.workspace(&format!("g{n}")), format!("new {n}")).unwrap();
    }
    let report = artifacts.mirror(&keep).await.unwrap();
    assert_eq!((report.uploaded, report.held_back()), (20, 20), "{report:?}");
    fs::write(home.workspace("g0"), "edited").unwrap();
    let report = artifacts.mirror(&keep).await.unwrap();
    assert_eq!((report.uploaded, report.held_back()), (1, 20), "{report:?}");
    assert_eq!(support::objects(&source).await["g0"], b"edited");
    // Nor does what is kept make the change of the few that are left look like one of everything.
    for n in 2..20 {
        fs::remove_file(home.workspace(&format!("g{n}"))).unwrap();
    }
    fs::write(home.workspace("g0"), "again").unwrap();
    fs::write(home.workspace("g1"), "too").unwrap();
    let report = artifacts.mirror(&keep).await.unwrap();
    assert_eq!((report.uploaded, report.held_back()), (2, 38), "{report:?}");
}

#[tokio::test]
async fn approval_ends_a_hold_also_where_something_cannot_be_seen() {
    let (home, _source, artifacts) = mirrored(26).await;
    encrypt(&home, 25);
    fs::remove_file(home.workspace("f25")).unwrap();
    drop(UnixListener::bind(home.workspace("f25")).unwrap());
    let held = artifacts.mirror(&plain()).await.unwrap().held;
    assert_eq!(artifacts.mirror(&approved(held[0].approval)).await.unwrap().uploaded, 25);
    for text in ["one", "two"] {
        fs::write(home.workspace("f0"), text).unwrap();
        let report = artifacts.mirror(&plain()).await.unwrap();
        assert_eq!((report.uploaded, report.held_back()), (1, 0), "{report:?}");
    }
}

#[tokio::test]
async fn work_of_another_host_is_no_loss_of_this_one() {
    let (home, source, artifacts) = mirrored(25).await;
    for n in 0..24 {
        support::put_object(&source, &format!("f{n}"), format!("theirs {n}").as_bytes()).await;
    }
    assert_eq!(artifacts.pull(&plain()).await.unwrap().placed, 24);
    fs::write(home.workspace("f24"), "mine").unwrap();
    let report = artifacts.mirror(&plain()).await.unwrap();
    assert!(report.is_complete() && report.uploaded == 1, "{report:?}");
}
