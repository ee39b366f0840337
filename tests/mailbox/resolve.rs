//! Whichever conversation, one session, without a lock.

use std::collections::BTreeSet;
use std::fs;

use beneath::mailbox::{SessionKey, SessionMode, resolve};
use beneath::{Ensured, Root, Sessions, ambient_authority};
use beneath_kit::snapshot::names;

use crate::support::sharing;

const THREADS: usize = 64;

#[test]
fn sixty_four_callers_get_one_session() {
    let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
    let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
    let sessions = Sessions::new(root, sharing());
    let key = SessionKey::new("agents").in_group("room").with_thread("t");
    for mode in [SessionMode::Shared, SessionMode::PerThread, SessionMode::AgentShared] {
        let start = std::sync::Barrier::new(THREADS);
        let created = std::thread::scope(|scope| {
            let call = || {
                start.wait();
                let (session, how) = resolve(&sessions, &key, mode).unwrap();
                assert!(session.verify().is_sound() && session.share().is_some());
                how
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(call)).collect();
            threads
                .into_iter()
                .filter_map(|thread| (thread.join().unwrap() == Ensured::Created).then_some(()))
                .count()
        });
        assert_eq!(created, 1, "{mode:?}");
    }
    let made: Vec<String> =
        names(&dir.path().join("agents")).into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(made.len(), 3, "{made:?}");
}

/// What the system does: look, and make one if there is none.
#[test]
fn the_control_makes_two() {
    let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
    let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
    let sessions = Sessions::new(root, sharing());
    let table = std::sync::Mutex::new(None);
    let both_looked = std::sync::Barrier::new(2);
    let made: BTreeSet<String> = std::thread::scope(|scope| {
        let call = || {
            let found = table.lock().unwrap().clone();
            both_looked.wait();
            let id = found.unwrap_or_else(|| sessions.create_generated().unwrap().0.to_string());
            table.lock().unwrap().replace(id.clone());
            id
        };
        let threads = [scope.spawn(call), scope.spawn(call)];
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made.len(), 2);
}

#[test]
fn the_modes_tell_conversations_apart_as_they_say() {
    let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
    let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
    let sessions = Sessions::new(root, sharing());
    let key = |agents, group: &'static str, thread: &'static str| {
        let key: SessionKey<'static> = SessionKey::new(agents);
        let key = if group.is_empty() { key } else { key.in_group(group) };
        if thread.is_empty() { key } else { key.with_thread(thread) }
    };
    use SessionMode::{AgentShared, PerThread, Shared};
    // Two conversations, and whether they share a session.
    let cases = [
        ("the thread does not count", Shared, key("a", "g", "t1"), key("a", "g", "t2"), true),
        ("the group counts", Shared, key("a", "g", ""), key("a", "h", ""), false),
        ("the agents count", Shared, key("a", "g", ""), key("b", "g", ""), false),
        ("the same thread", PerThread, key("a", "g", "t"), key("a", "g", "t"), true),
        ("another thread", PerThread, key("a", "g", "t1"), key("a", "g", "t2"), false),
        ("no thread", PerThread, key("a", "g", ""), key("a", "g", ""), true),
        ("no thread and one", PerThread, key("a", "g", ""), key("a", "g", "t"), false),
        ("the same thread of another group", PerThread, key("a", "g", "t"), key("a", "h", "t"), false),
        ("all of an agent's", AgentShared, key("a", "g", "t1"), key("a", "h", "t2"), true),
        ("an agent's without a group", AgentShared, key("a", "", ""), key("a", "g", ""), true),
        ("another agent's", AgentShared, key("a", "", ""), key("b", "", ""), false),
        ("in no group each is new", Shared, key("a", "", ""), key("a", "", ""), false),
        ("in no group each is new, threads or not", PerThread, key("a", "", "t"), key("a", "", "t"), false),
    ];
    for (what, mode, one, two, shared) in cases {
        let (first, _) = resolve(&sessions, &one, mode).unwrap();
        first.workspace().write_exclusive("mark", what).unwrap_or_default();
        let content = first.workspace().read_contained("mark", 100).unwrap();
        let (second, how) = resolve(&sessions, &two, mode).unwrap();
        let met = second.workspace().read_contained("mark", 100).ok() == Some(content);
        assert_eq!(met, shared, "{what}");
        assert!(!shared || how == Ensured::Existed, "{what}");
        fs::remove_dir_all(dir.path().join("a")).unwrap();
        // Made by some cases only.
        let _ = fs::remove_dir_all(dir.path().join("b"));
    }
}

#[test]
fn names_that_others_chose_stay_beneath() {
    let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
    fs::create_dir(dir.path().join("sessions")).unwrap();
    let root = Root::open_ambient(dir.path().join("sessions"), ambient_authority()).unwrap();
    let sessions = Sessions::new(root, sharing());
    for raw in ["../x", "/etc", "", ".", "..", "a\0b", "con", "-1001234567890:42", "spaces/AAA/messages/B.B"]
    {
        let key = SessionKey::new(raw).in_group(raw).with_thread(raw);
        assert!(resolve(&sessions, &key, SessionMode::PerThread).unwrap().0.verify().is_sound(), "{raw:?}");
    }
    assert_eq!(names(dir.path()), ["sessions"]);
    assert_eq!(sessions.groups().unwrap().len(), 9);
}
