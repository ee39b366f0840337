//! A report is complete, or it says what is missing.

use std::collections::HashSet;
use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use beneath::session::{Attachment, Disposition, ListOptions};
use beneath::{Error, ErrorKind, Execute, MessageId, WalkLimits};

use crate::support::{Stage, fifo, with_each_resolver};

/// What every report has to say.
struct Said {
    report: String,
    complete: bool,
    refused: Vec<ErrorKind>,
}

fn said<'r>(
    report: &impl Debug,
    complete: bool,
    refused: impl Iterator<Item = (&'r Path, &'r Error)>,
) -> Said {
    let refused = refused.map(|(_, error)| error.kind()).collect();
    Said { report: format!("{report:?}"), complete, refused }
}

/// The reports of all calls on one session.
fn all_reports(stage: &Stage) -> Vec<(&'static str, Said)> {
    let (session, id) = (&stage.session, MessageId::new("7"));
    let lock = session.try_lock().unwrap();
    let (inbox, outbox, workspace) = (session.inbox(), session.outbox(), session.workspace());
    let survey = stage.sessions.survey().unwrap();
    let layout = session.verify();
    let hardened = session.harden(Execute::Keep).unwrap();
    let usage = session.usage(WalkLimits::default()).unwrap();
    let database = session.verify_db("a.db", None).unwrap();
    let listing = workspace.list("", ListOptions::default()).unwrap();
    let messages = outbox.messages().unwrap();
    let claim = outbox.claim(&id).unwrap().unwrap();
    let collected = claim.read(["a"]).unwrap();
    let undeclared = claim.undeclared(["a"]).unwrap();
    let cleared = claim.clear();
    let collection =
        outbox.collect(&lock, &mut HashSet::new(), |_| Ok::<_, Error>(Disposition::Done)).unwrap();
    let delivery = inbox.deliver(&id, [Attachment::from_bytes("x").with_name("x")]);
    let swept = session.sweep(Duration::from_secs(3600)).unwrap();
    #[cfg(feature = "serde")]
    for json in [
        serde_json::to_value(&survey),
        serde_json::to_value(&layout),
        serde_json::to_value(&hardened),
        serde_json::to_value(&usage),
        serde_json::to_value(&database),
        serde_json::to_value(&messages),
        serde_json::to_value(&collected),
        serde_json::to_value(&cleared),
        serde_json::to_value(&collection),
        serde_json::to_value(&delivery),
        serde_json::to_value(&swept),
    ] {
        json.unwrap();
    }
    vec![
        ("survey", said(&survey, survey.is_complete(), survey.refused())),
        ("layout", said(&layout, layout.is_complete(), layout.refused())),
        ("hardened", said(&hardened, hardened.is_complete(), hardened.refused())),
        ("usage", said(&usage, usage.is_complete(), usage.refused())),
        ("database", said(&database, database.is_complete(), database.refused())),
        ("listing", said(&listing, listing.is_complete(), listing.refused())),
        ("messages", said(&messages, messages.is_complete(), messages.refused())),
        ("collected", said(&collected, collected.is_complete(), collected.refused())),
        ("undeclared", said(&undeclared, undeclared.is_complete(), undeclared.refused())),
        ("cleared", said(&cleared, cleared.is_complete(), cleared.refused())),
        ("collection", said(&collection, collection.is_complete(), collection.refused())),
        ("delivery", said(&delivery, delivery.is_complete(), delivery.refused())),
        ("swept", said(&swept, swept.is_complete(), swept.refused())),
    ]
}

fn prepare(stage: &Stage) {
    stage.send("7", &[("b", b"b")]);
    fs::write(stage.guest("workspace/a.db"), "SQLite format 3\0").unwrap();
}

#[test]
fn every_report_is_complete_where_nothing_is_refused() {
    with_each_resolver(|stage| {
        prepare(stage);
        fs::write(stage.guest("outbox/7/a"), "a").unwrap();
        for (call, said) in all_reports(stage) {
            assert!(said.complete && said.refused.is_empty(), "{call}: {}", said.report);
        }
    });
}

#[test]
fn no_report_is_complete_where_something_is_refused() {
    with_each_resolver(|stage| {
        prepare(stage);
        fs::create_dir(stage.sessions_path().join("broken")).unwrap();
        fs::write(stage.sessions_path().join("broken/.session"), "damaged").unwrap();
        fs::write(stage.guest("outbox/stray"), "no message").unwrap();
        symlink("/etc/passwd", stage.guest("outbox/7/a")).unwrap();
        fifo(&stage.guest("workspace/fifo"));
        symlink("/etc/passwd", stage.guest("workspace/a.db-wal")).unwrap();
        fs::remove_dir(stage.guest("inbox")).unwrap();
        fs::write(stage.guest("inbox"), "no directory").unwrap();

        let reports = all_reports(stage);
        for (call, said) in &reports {
            assert_eq!(said.complete, said.refused.is_empty(), "{call}: {}", said.report);
        }
        let refused = reports.iter().filter(|(_, said)| !said.complete).map(|(call, _)| *call);
        let expected = ["survey", "hardened", "database", "messages", "collected", "collection", "delivery"];
        assert_eq!(refused.collect::<Vec<_>>(), expected);
    });
}
