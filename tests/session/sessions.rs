use std::fs;
use std::time::{Duration, SystemTime};

use beneath::session::{Part, PartState, Quota, SessionsConfig, Usage};
use beneath::{
    Budget, Ensured, ErrorKind, FileType, Root, SessionId, WalkLimits, ambient_authority, safe_name,
};

use crate::support::{Stage, fifo, mode, names, with_each_resolver};

#[test]
fn creates_the_layout_once_and_says_so() {
    with_each_resolver(|stage| {
        let id = SessionId::new("second");
        assert_eq!(stage.sessions.create(&id).unwrap().1, Ensured::Created);
        assert_eq!(stage.sessions.create(&id).unwrap().1, Ensured::Existed);
        let taken = stage.sessions.create_new(&id).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);

        let dir = stage.sessions_path().join("second");
        assert_eq!(names(&dir), [".session", "guest", "host"]);
        assert_eq!(names(&dir.join("guest")), ["inbox", "outbox", "workspace"]);
        assert_eq!(names(&dir.join("host")), ["claimed", "staging", "state", "trash"]);
        assert_eq!(mode(&dir.join("host")), 0o700);
        assert_eq!(mode(&dir.join("guest/inbox")), 0o770);
    });
}

#[test]
fn of_many_concurrent_creators_one_gets_created() {
    with_each_resolver(|stage| {
        let id = SessionId::new("contested");
        let created = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| stage.sessions.create(&id).unwrap().1 == Ensured::Created))
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(created, 1);
        assert_eq!(stage.all(), ["contested", "s"], "no draft is left");
    });
}

#[test]
fn a_session_that_comes_or_goes_meanwhile_is_never_taken_for_something_else() {
    with_each_resolver(|stage| {
        let id = SessionId::new("contested");
        let turn = |step: usize| {
            let busy = match step % 4 {
                0 => stage.sessions.remove(&id).err(),
                1 => stage.sessions.open(&id).err(),
                _ => stage.sessions.create(&id).err(),
            };
            let Some(error) = busy else { return };
            let text = error.to_string();
            let gone = step % 4 == 1 && error.kind() == ErrorKind::NotFound;
            assert!(error.kind() == ErrorKind::Busy || gone && !text.contains("is not a session"), "{text}");
        };
        std::thread::scope(|scope| {
            for worker in 0..4 {
                scope.spawn(move || (worker..worker + 100).for_each(turn));
            }
        });
    });
}

#[test]
fn opening_makes_nothing() {
    with_each_resolver(|stage| {
        let id = SessionId::new("absent");
        assert!(!stage.sessions.exists(&id).unwrap());
        assert_eq!(stage.sessions.open(&id).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(stage.all(), ["s"]);
    });
}

#[test]
fn completes_a_session_whose_parts_were_deleted() {
    with_each_resolver(|stage| {
        fs::remove_dir_all(stage.guest("")).unwrap();
        fs::remove_dir_all(stage.host("claimed")).unwrap();
        let (session, how) = stage.sessions.create(&SessionId::new("s")).unwrap();
        assert_eq!(how, Ensured::Existed);
        assert!(session.verify().is_sound());
        assert!(stage.host("claimed").is_dir());
    });
}

#[test]
fn groups_keep_their_sessions_apart() {
    with_each_resolver(|stage| {
        let (red, blue) = (safe_name("red").unwrap(), safe_name("blue").unwrap());
        let team = stage.sessions.group(&red).unwrap();
        team.create(&SessionId::new("guest")).unwrap();
        team.create(&SessionId::new("host")).unwrap();
        stage.sessions.group(&blue).unwrap();

        assert_eq!(stage.sessions.groups().unwrap(), [blue, red]);
        assert_eq!(stage.sessions.list().unwrap(), [SessionId::new("s")]);
        assert_eq!(team.list().unwrap(), [SessionId::new("guest"), SessionId::new("host")]);
        let error = stage.sessions.group(&safe_name("s").unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    });
}

#[test]
fn generated_ids_carry_at_least_96_random_bits_and_sort_by_time() {
    let ids: std::collections::HashSet<String> =
        (0..1000).map(|_| SessionId::generate().unwrap().as_str().to_owned()).collect();
    assert_eq!(ids.len(), 1000);
    assert!(ids.iter().all(|id| id.len() >= 24 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
    let early = SessionId::generate_at(SystemTime::UNIX_EPOCH).unwrap();
    let late = SessionId::generate_at(SystemTime::now()).unwrap();
    assert!(early < late);
}

#[test]
fn removes_a_session_whatever_the_guest_left_in_it() {
    with_each_resolver(|stage| {
        std::os::unix::fs::symlink(stage.home.path(), stage.guest("workspace/home")).unwrap();
        fifo(&stage.guest("workspace/fifo"));
        let mut deep = stage.guest("workspace");
        for _ in 0..100 {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        fs::set_permissions(stage.guest("outbox"), std::os::unix::fs::PermissionsExt::from_mode(0o000))
            .unwrap();

        let removed = stage.sessions.remove(&SessionId::new("s")).unwrap();
        assert!(removed.is_complete(), "{removed:?}");
        assert!(removed.directories > 100);
        assert_eq!(stage.all(), [""; 0]);
    });
}

#[test]
fn removing_what_is_gone_succeeds_and_says_that_there_was_nothing() {
    with_each_resolver(|stage| {
        assert!(stage.sessions.remove(&SessionId::new("s")).unwrap().directories > 0);
        for id in ["s", "never-made"] {
            let again = stage.sessions.remove(&SessionId::new(id)).unwrap();
            assert!(again.is_complete(), "{again:?}");
            assert_eq!((again.files, again.directories), (0, 0));
        }
        assert_eq!(stage.all(), [""; 0]);
    });
}

/// Of many workers that end one session, none has to know whether it was the one.
#[test]
fn a_session_is_removed_by_many_at_once_without_an_error() {
    with_each_resolver(|stage| {
        for round in 0..20 {
            let id = SessionId::new(format!("r{round}"));
            stage.sessions.create_new(&id).unwrap();
            let outcomes: Vec<_> = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..4).map(|_| scope.spawn(|| stage.sessions.remove(&id))).collect();
                workers.into_iter().map(|worker| worker.join().unwrap()).collect()
            });
            for outcome in outcomes {
                // Whoever comes while another removes it finds the lock held.
                match outcome {
                    Ok(removed) => assert!(removed.is_complete(), "{removed:?}"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                }
            }
            assert!(!stage.sessions.exists(&id).unwrap());
        }
    });
}

#[test]
fn a_removal_out_of_budget_frees_the_id_and_is_finished_by_a_sweep() {
    let budget = Budget::default().with_entries(10);
    let stage = Stage::with_config(SessionsConfig::default().with_budget(budget));
    for number in 0..100 {
        fs::write(stage.guest(&format!("workspace/{number}")), "x").unwrap();
    }
    let id = SessionId::new("s");
    assert!(!stage.sessions.remove(&id).unwrap().is_complete());
    assert!(!stage.sessions.exists(&id).unwrap());
    assert_eq!(stage.sessions.create(&id).unwrap().1, Ensured::Created);

    let root = Root::open_ambient(stage.sessions_path(), ambient_authority()).unwrap();
    let sessions = beneath::Sessions::new(root, SessionsConfig::default());
    let swept = sessions.sweep(Duration::from_secs(3600)).unwrap();
    assert_eq!((swept.removed, swept.kept, swept.left.total), (1, 1, 0));
    assert_eq!(stage.all(), ["s"]);
}

#[test]
fn sweeps_idle_sessions_and_leaves_locked_ones() {
    with_each_resolver(|stage| {
        stage.sessions.create(&SessionId::new("busy")).unwrap();
        let busy = stage.sessions.open(&SessionId::new("busy")).unwrap();
        let lock = busy.try_lock().unwrap();
        assert_eq!(stage.sessions.sweep(Duration::from_secs(3600)).unwrap().kept, 2);

        let swept = stage.sessions.sweep(Duration::ZERO).unwrap();
        assert_eq!((swept.removed, swept.left.total), (1, 1));
        assert_eq!(swept.left.first[0].error.kind(), ErrorKind::Busy);
        assert_eq!(stage.all(), ["busy"]);
        drop(lock);
        assert_eq!(stage.sessions.sweep(Duration::ZERO).unwrap().removed, 1);
    });
}

#[test]
fn the_lock_is_one_across_handles_threads_and_processes() {
    with_each_resolver(|stage| {
        let other = stage.sessions.open(&SessionId::new("s")).unwrap();
        let lock = stage.session.try_lock().unwrap();
        assert_eq!(other.try_lock().unwrap_err().kind(), ErrorKind::Busy);
        let waited = other.lock_within(Duration::from_millis(20)).unwrap_err();
        assert_eq!(waited.kind(), ErrorKind::Busy);
        let taken = std::process::Command::new("flock")
            .args(["-n".into(), stage.host("state/lock").into_os_string(), "true".into()])
            .status();
        match taken {
            Ok(status) => assert!(!status.success(), "another process took the lock"),
            Err(error) => beneath_kit::skip(&format!("the other process: {error}")),
        }
        assert_eq!(stage.sessions.remove(&SessionId::new("s")).unwrap_err().kind(), ErrorKind::Busy);
        drop(lock);
        assert!(other.try_lock().is_ok());
    });
}

#[test]
fn reports_and_repairs_what_the_guest_replaced() {
    with_each_resolver(|stage| {
        stage.replace_by_link("inbox", stage.home.path());
        fs::remove_dir(stage.guest("outbox")).unwrap();
        fs::remove_dir(stage.guest("workspace")).unwrap();
        fifo(&stage.guest("workspace"));

        let expected = [
            (Part::Inbox, PartState::Replaced(FileType::Symlink)),
            (Part::Outbox, PartState::Missing),
            (Part::Workspace, PartState::Replaced(FileType::Fifo)),
        ];
        assert_eq!(stage.session.verify().parts, expected);
        assert_eq!(stage.session.repair().unwrap().parts, expected);
        assert!(stage.session.verify().is_sound());
        assert_eq!(mode(&stage.guest("inbox")), 0o770);
    });
}

#[test]
fn opens_and_creates_although_the_guest_replaced_a_part() {
    with_each_resolver(|stage| {
        stage.replace_by_link("inbox", stage.home.path());
        let (session, how) = stage.sessions.create(&SessionId::new("s")).unwrap();
        assert_eq!(how, Ensured::Existed);
        assert!(!session.verify().is_sound());
    });
}

#[test]
fn counts_usage_and_judges_a_quota() {
    with_each_resolver(|stage| {
        fs::write(stage.guest("workspace/a"), [7; 5000]).unwrap();
        fs::hard_link(stage.guest("workspace/a"), stage.guest("workspace/b")).unwrap();
        let sparse = fs::File::create(stage.guest("workspace/sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();

        let usage = stage.session.usage(WalkLimits::default()).unwrap();
        assert_eq!(usage.entries, 6);
        assert_eq!(usage.bytes, 5000 + (1 << 40));
        assert!((5000..1 << 20).contains(&usage.allocated), "{usage:?}");
        let quota = Quota::unlimited();
        assert!(quota.check(&usage).is_ok());
        assert_eq!(quota.with_bytes(1000).check(&usage).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(quota.with_entries(5).check(&usage).unwrap_err().kind(), ErrorKind::TooMany);

        let cut = stage.session.usage(WalkLimits::default().with_entries(2)).unwrap();
        assert!(cut.truncated);
        assert_eq!(quota.check(&cut).unwrap_err().kind(), ErrorKind::TooMany);
    });
}

#[test]
fn heartbeat_trusts_neither_links_nor_the_future() {
    with_each_resolver(|stage| {
        let age = || stage.session.heartbeat_age("/session/.heartbeat");
        let path = stage.guest(".heartbeat");
        assert_eq!(age().unwrap(), None);
        fs::write(&path, "").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(1 << 20)).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert!(age().unwrap().unwrap() >= Duration::from_millis(20), "the future makes nobody alive");
        file.set_modified(SystemTime::now() - Duration::from_secs(1000)).unwrap();
        assert!(age().unwrap().unwrap() >= Duration::from_secs(999));

        fs::hard_link(&path, stage.guest("second")).unwrap();
        assert_eq!(age().unwrap_err().kind(), ErrorKind::HardLinked);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(stage.home.path().join("diary.txt"), &path).unwrap();
        assert_eq!(age().unwrap_err().kind(), ErrorKind::Symlink);
        fs::remove_file(&path).unwrap();
        fifo(&path);
        assert_eq!(age().unwrap_err().kind(), ErrorKind::NotRegular);
    });
}

#[test]
fn neither_removes_a_group_nor_makes_it_a_session() {
    with_each_resolver(|stage| {
        let (red, empty) = (safe_name("red").unwrap(), safe_name("empty").unwrap());
        let team = stage.sessions.group(&red).unwrap();
        // The names that a session's own parts have.
        team.create(&SessionId::new("guest")).unwrap();
        team.create(&SessionId::new("host")).unwrap();
        stage.sessions.group(&empty).unwrap();
        for name in ["red", "empty"] {
            let id = SessionId::new(name);
            assert_eq!(stage.sessions.remove(&id).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
            let error = stage.sessions.create(&id).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{name}");
            assert!(error.to_string().ends_with("is a group"), "{error}");
        }
        assert_eq!(names(&stage.sessions_path().join("red")), [".clock", ".group", "guest", "host"]);
        assert_eq!(names(&stage.sessions_path().join("red/host")), [".session", "guest", "host"]);
        assert_eq!(names(&stage.sessions_path().join("empty")), [".group"]);
        assert_eq!(stage.sessions.groups().unwrap(), [empty, red]);
    });
}

#[test]
fn a_session_that_lost_its_host_side_is_still_one() {
    with_each_resolver(|stage| {
        let id = SessionId::new("s");
        fs::remove_dir_all(stage.host("")).unwrap();
        assert_eq!(stage.sessions.list().unwrap(), std::slice::from_ref(&id));
        assert!(stage.sessions.groups().unwrap().is_empty());
        assert!(stage.sessions.remove(&id).unwrap().is_complete());
        assert_eq!(stage.all(), [""; 0]);
    });
}

#[test]
fn a_quota_refuses_what_could_not_be_looked_at() {
    let mut usage = Usage::default();
    usage.left.total = 1;
    let error = Quota::unlimited().check(&usage).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooMany);
}

/// In a process of its own, since the limit holds for all its threads.
#[test]
fn want_of_descriptors_does_not_break_a_lock() {
    let exe = std::env::current_exe().unwrap();
    let output = std::process::Command::new(exe)
        .args(["--exact", "sessions::few_descriptors_child", "--nocapture"])
        .env("BENEATH_TEST_FEW_DESCRIPTORS", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn few_descriptors_child() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::AsRawFd;

    if std::env::var_os("BENEATH_TEST_FEW_DESCRIPTORS").is_none() {
        return;
    }
    let id = SessionId::new("s");
    for resolver in crate::support::RESOLVERS {
        let stage = Stage::new(resolver);
        let _lock = stage.session.try_lock().unwrap();
        let before = getrlimit(Resource::Nofile);
        for free in 0..12 {
            let next = fs::File::open(stage.host("state/lock")).unwrap().as_raw_fd();
            let current = Some(u64::try_from(next).unwrap() + free);
            setrlimit(Resource::Nofile, Rlimit { current, maximum: before.maximum }).unwrap();
            let removed = stage.sessions.remove(&id);
            setrlimit(Resource::Nofile, before).unwrap();
            assert!(removed.is_err(), "removed although it is locked, with {free} descriptors: {removed:?}");
            assert!(stage.sessions.exists(&id).unwrap());
        }
    }
}

#[test]
fn a_session_that_vanishes_does_not_end_a_sweep() {
    let stage = Stage::new(beneath::ResolverChoice::Auto);
    let ids: Vec<SessionId> = (0..40).map(|number| SessionId::new(format!("v{number:02}"))).collect();
    for _ in 0..10 {
        for id in &ids {
            stage.sessions.create(id).unwrap();
        }
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| {
                for id in ids.iter().rev() {
                    // The sweep helps, so neither may see all of it go.
                    let _ = stage.sessions.remove(id).unwrap();
                }
            });
            while !remover.is_finished() {
                let swept = stage.sessions.sweep(Duration::from_secs(3600));
                assert!(swept.is_ok(), "{swept:?}");
            }
        });
    }
    assert_eq!(stage.sessions.list().unwrap(), [SessionId::new("s")]);
}

#[test]
fn work_deep_in_the_workspace_keeps_a_session() {
    with_each_resolver(|stage| {
        let deep = stage.guest("workspace/a/b/c");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("log"), "x").unwrap();
        std::thread::sleep(Duration::from_millis(1100));
        // Only the file changes, none of the directories above it.
        fs::write(deep.join("log"), "y").unwrap();
        assert_eq!(stage.sessions.sweep(Duration::from_secs(1)).unwrap().kept, 1);
        assert!(deep.join("log").exists());
        assert_eq!(stage.sessions.sweep(Duration::ZERO).unwrap().removed, 1);
    });
}

#[test]
fn a_session_stays_while_somebody_objects() {
    with_each_resolver(|stage| {
        let id = SessionId::new("s");
        fs::write(stage.guest("workspace/only"), "copy").unwrap();
        assert!(stage.sessions.remove_if(&id, || Ok(false)).unwrap().is_none());
        for (path, kind) in [("none", ErrorKind::NotFound), ("../up", ErrorKind::Escape)] {
            let fails = || stage.session.workspace().metadata(path).map(|_| true);
            assert_eq!(stage.sessions.remove_if(&id, fails).unwrap_err().kind(), kind);
        }
        // The lock is held while it is asked.
        let held = |kind| move |outcome: beneath::Result<_>| assert_eq!(outcome.unwrap_err().kind(), kind);
        let asks = || {
            held(ErrorKind::Busy)(stage.sessions.open(&id)?.try_lock().map(drop));
            Ok(false)
        };
        assert!(stage.sessions.remove_if(&id, asks).unwrap().is_none());
        assert_eq!(fs::read(stage.guest("workspace/only")).unwrap(), b"copy");
        assert!(stage.sessions.remove_if(&id, || Ok(true)).unwrap().unwrap().is_complete());
        let again = stage.sessions.remove_if(&id, || panic!("there is nothing to ask about"));
        assert_eq!(again.unwrap().unwrap().directories, 0);
    });
}

#[test]
fn a_sweep_keeps_what_somebody_objects_to_and_reports_whom_it_could_not_ask() {
    with_each_resolver(|stage| {
        for id in ["goes", "stays", "lost"] {
            stage.sessions.create(&SessionId::new(id)).unwrap();
        }
        let young = |_: &SessionId| -> beneath::Result<bool> { panic!("a young session is not asked about") };
        assert_eq!(stage.sessions.sweep_if(Duration::from_secs(3600), young).unwrap().kept, 4);
        let may = |id: &SessionId| match id.as_str() {
            "lost" => stage.session.workspace().metadata("none").map(|_| true),
            id => Ok(id != "stays"),
        };
        let swept = stage.sessions.sweep_if(Duration::ZERO, may).unwrap();
        assert_eq!((swept.removed, swept.kept, swept.left.total), (2, 1, 1), "{swept:?}");
        assert_eq!(swept.left.first[0].subject.as_os_str(), "lost");
        assert_eq!(swept.left.first[0].error.kind(), ErrorKind::NotFound);
        assert_eq!(stage.all(), ["lost", "stays"]);
    });
}
