//! What is a session and what a group: only what the host has marked, whatever directories and names there are.

use std::fs;
use std::path::Path;
use std::time::Duration;

use beneath::{Ensured, ErrorKind, SessionId, safe_name};

use crate::support::{names, with_each_resolver};

const MARK: &str = ".session";

fn id(raw: &str) -> SessionId {
    SessionId::new(raw)
}

/// Everything beneath, by path.
fn tree(path: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for name in names(path) {
        let below = path.join(&name);
        if below.is_dir() {
            all.extend(tree(&below).into_iter().map(|inner| format!("{name}/{inner}")));
        }
        all.push(name);
    }
    all
}

#[test]
fn groups_nest_whatever_their_names() {
    with_each_resolver(|stage| {
        let tenant = stage.sessions.group(&safe_name("a").unwrap()).unwrap();
        let inner = tenant.group(&safe_name("host").unwrap()).unwrap();
        inner.create(&id("state")).unwrap();
        inner.create(&id("trash")).unwrap();
        let deepest = inner.group(&safe_name("guest").unwrap()).unwrap();
        deepest.create(&id("inbox")).unwrap();

        assert_eq!(stage.sessions.list().unwrap(), [id("s")], "a group never becomes a session");
        assert_eq!(stage.sessions.groups().unwrap(), [safe_name("a").unwrap()]);
        assert_eq!(tenant.groups().unwrap(), [safe_name("host").unwrap()]);
        assert_eq!(inner.list().unwrap(), [id("state"), id("trash")]);
        assert_eq!(deepest.list().unwrap(), [id("inbox")]);

        assert_eq!(stage.sessions.sweep(Duration::ZERO).unwrap().removed, 1);
        assert_eq!(
            inner.list().unwrap(),
            [id("state"), id("trash")],
            "a sweep of the top leaves the tenants"
        );
        assert!(inner.open(&id("state")).unwrap().verify().is_sound());
        assert_eq!(stage.sessions.remove(&id("a")).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(inner.exists(&id("state")).unwrap());
    });
}

#[test]
fn a_session_holds_no_group_and_no_session() {
    with_each_resolver(|stage| {
        let error = stage.sessions.group(&safe_name("s").unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        stage.sessions.group(&safe_name("team").unwrap()).unwrap();
        let error = stage.sessions.create(&id("team")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(error.to_string().ends_with("is a group"), "{error}");
        assert!(!tree(&stage.sessions_path().join("team")).contains(&"guest".to_owned()));
    });
}

#[test]
fn a_directory_without_a_marker_is_neither_and_is_left_alone() {
    with_each_resolver(|stage| {
        let foreign = stage.sessions_path().join("backup");
        // As like a session as a directory can be.
        for part in
            ["guest/inbox", "guest/outbox", "guest/workspace", "host/state", "host/trash", "host/claimed"]
        {
            fs::create_dir_all(foreign.join(part)).unwrap();
        }
        fs::write(foreign.join("guest/workspace/thesis"), "years of work").unwrap();
        let before = tree(&foreign);

        assert!(!stage.sessions.exists(&id("backup")).unwrap());
        assert_eq!(stage.sessions.list().unwrap(), [id("s")]);
        assert!(stage.sessions.groups().unwrap().is_empty());
        assert_eq!(stage.sessions.open(&id("backup")).unwrap_err().kind(), ErrorKind::NotFound);
        let error = stage.sessions.remove(&id("backup")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().ends_with("is not a session"), "{error}");
        for taken in [
            stage.sessions.create(&id("backup")).unwrap_err(),
            stage.sessions.group(&safe_name("backup").unwrap()).unwrap_err(),
        ] {
            assert_eq!(taken.kind(), ErrorKind::AlreadyExists, "{taken}");
        }
        let swept = stage.sessions.sweep(Duration::ZERO).unwrap();
        assert_eq!((swept.removed, swept.left.total), (1, 0));
        assert_eq!(tree(&foreign), before);
    });
}

#[test]
fn an_empty_directory_made_by_hand_becomes_a_group_and_never_a_session() {
    with_each_resolver(|stage| {
        fs::create_dir(stage.sessions_path().join("tenant")).unwrap();
        assert_eq!(stage.sessions.create(&id("tenant")).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let tenant = stage.sessions.group(&safe_name("tenant").unwrap()).unwrap();
        tenant.create(&id("x")).unwrap();
        assert_eq!(stage.sessions.groups().unwrap(), [safe_name("tenant").unwrap()]);
        assert_eq!(tenant.list().unwrap(), [id("x")]);
    });
}

/// What a file system that folds case does, played by a directory that answers to another name than its own.
#[test]
fn an_id_that_differs_from_the_marker_reaches_no_session() {
    with_each_resolver(|stage| {
        let (mine, other) = (stage.sessions_path().join("s"), stage.sessions_path().join("S"));
        fs::rename(mine, &other).unwrap();
        let before = tree(&other);
        assert!(!stage.sessions.exists(&id("S")).unwrap());
        assert_eq!(stage.sessions.open(&id("S")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(stage.sessions.remove(&id("S")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(stage.sessions.create(&id("S")).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let swept = stage.sessions.sweep(Duration::ZERO).unwrap();
        assert_eq!((swept.removed, swept.left.total), (0, 1));
        assert_eq!(tree(&other), before);

        stage.sessions.group(&safe_name("team").unwrap()).unwrap();
        fs::rename(stage.sessions_path().join("team"), stage.sessions_path().join("Team")).unwrap();
        let error = stage.sessions.group(&safe_name("Team").unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    });
}

#[test]
fn a_marker_that_a_power_cut_has_emptied_still_marks() {
    with_each_resolver(|stage| {
        for torn in [&b""[..], &[0; 40]] {
            fs::write(stage.sessions_path().join("s").join(MARK), torn).unwrap();
            assert_eq!(stage.sessions.list().unwrap(), [id("s")]);
            assert!(stage.sessions.open(&id("s")).is_ok());
            assert_eq!(stage.sessions.create(&id("s")).unwrap().1, Ensured::Existed);
        }
        assert!(stage.sessions.remove(&id("s")).unwrap().is_complete());
    });
}

#[test]
fn a_marker_of_a_later_format_is_left_alone() {
    with_each_resolver(|stage| {
        let marker = stage.sessions_path().join("s").join(MARK);
        for (content, kind) in
            [("beneath session 2\ns\n", ErrorKind::Unsupported), ("something else\n", ErrorKind::InvalidData)]
        {
            fs::write(&marker, content).unwrap();
            assert_eq!(stage.sessions.open(&id("s")).unwrap_err().kind(), kind);
            assert_eq!(stage.sessions.remove(&id("s")).unwrap_err().kind(), kind);
            assert_eq!(stage.sessions.create(&id("s")).unwrap_err().kind(), kind);
            let survey = stage.sessions.survey().unwrap();
            assert_eq!((survey.sessions.len(), survey.refused.total), (0, 1), "{survey:?}");
            assert_eq!(survey.refused.first[0].error.kind(), kind);
            assert_eq!(stage.sessions.sweep(Duration::ZERO).unwrap().removed, 0);
            assert!(stage.guest("workspace").exists());
        }
    });
}

#[test]
fn a_guest_that_writes_a_marker_makes_no_session() {
    with_each_resolver(|stage| {
        fs::write(stage.guest(MARK), "beneath session 1\nguest\n").unwrap();
        fs::create_dir(stage.guest("workspace/x")).unwrap();
        fs::write(stage.guest("workspace/x").join(MARK), "beneath session 1\nx\n").unwrap();
        assert_eq!(stage.sessions.list().unwrap(), [id("s")]);
        assert_eq!(stage.sessions.remove(&id("guest")).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(stage.sessions.remove(&id("s")).unwrap().is_complete());
    });
}
