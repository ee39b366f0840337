//! Handles and locks when sessions end: by removal, by a dropped lock, where there are no locks.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use beneath::session::{Attachment, Filter, ListOptions, SessionsConfig, Sibling};
use beneath::{
    Budget, Ensured, ErrorKind, Execute, MessageId, ResolverChoice, Session, SessionId, WalkLimits,
    ambient_authority,
};
use rustix::io::Errno;

use crate::support::{RESOLVERS, Stage, kinds, names, with_each_resolver};
use beneath_kit::child;
use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::skip;

fn id() -> SessionId {
    SessionId::new("s")
}

/// A handle of a session that is gone works on nothing.
fn assert_dead(session: &Session) {
    assert_eq!(session.try_lock().unwrap_err().kind(), ErrorKind::NotFound);
    let waited = session.lock_within(Duration::from_secs(60)).unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::NotFound, "it does not wait for what never comes");
    let delivery =
        session.inbox().deliver(&MessageId::new("42"), [Attachment::from_bytes(b"x").with_name("late")]);
    assert_eq!(kinds(delivery.refused()), [ErrorKind::NotFound]);
    let claimed = session.outbox().claim(&MessageId::new("7")).map(|claim| claim.is_some());
    assert_eq!(claimed.unwrap_err().kind(), ErrorKind::NotFound);
    assert_everything_refused(session);
}

/// Every other call that fails, and why.
fn assert_everything_refused(session: &Session) {
    let (inbox, outbox, workspace) = (session.inbox(), session.outbox(), session.workspace());
    let (second, message, id) = (Duration::from_secs(1), MessageId::new("42"), "late");
    let calls = [
        ("clear", inbox.clear(&message).err()),
        ("resolve_guest_path", inbox.resolve_guest_path("/session/inbox/42/late").err()),
        ("sweep inbox", inbox.sweep(second).err()),
        ("messages", outbox.messages().err()),
        ("pending", outbox.pending().err()),
        ("sweep outbox", outbox.sweep(second).err()),
        ("write_exclusive", workspace.write_exclusive(id, "x").err()),
        ("replace", workspace.replace(id, "x").err()),
        ("new_file", workspace.new_file(id).err()),
        ("read_contained", workspace.read_contained("0", 9).err()),
        ("read_range", workspace.read_range("0", 0, 9).err()),
        ("open_contained", workspace.open_contained("0").err()),
        ("ensure_dir", workspace.ensure_dir(id).err()),
        ("metadata", workspace.metadata("0").err()),
        ("exists", workspace.exists("0").err()),
        ("list", workspace.list("", ListOptions::default()).err()),
        ("walk", workspace.walk("", WalkLimits::default()).err()),
        ("walk_with", workspace.walk_with("", WalkLimits::default(), Filter::default()).err()),
        ("try_exists", workspace.try_exists("0").err()),
        ("read_link", workspace.read_link("0").err()),
        ("symlink", workspace.symlink("0", id).err()),
        ("copy", workspace.copy("0", id, 9).err()),
        ("set_times", workspace.set_times("0", None, None).err()),
        ("detect", workspace.detect("0").err()),
        ("rename", workspace.rename("0", id).err()),
        ("move_to", workspace.move_to("0", &workspace, id, 9).err()),
        ("remove_file", workspace.remove_file("0").err()),
        ("remove_tree_contained", workspace.remove_tree_contained("0").err()),
        ("tail", workspace.tail("0").unwrap().next_chunk(9).err()),
        ("harden", session.harden(Execute::Keep).err()),
        ("repair", session.repair().err()),
        ("usage", session.usage(WalkLimits::default()).err()),
        ("heartbeat_age", session.heartbeat_age("0").err()),
        ("verify_db", session.verify_db("0", None).err()),
        ("copy_db", session.copy_db("0", 9).err()),
        ("quarantine_sibling", session.quarantine_sibling("0", Sibling::Wal).err()),
        ("sweep", session.sweep(second).err()),
        ("empty", session.empty().err()),
        ("to_mount", session.to_mount(ambient_authority()).err()),
    ];
    for (call, error) in calls {
        let error = error.unwrap_or_else(|| panic!("{call} works on a session that is gone"));
        assert_eq!(error.to_string(), r#"use session "s": was removed"#, "{call}");
    }
    let layout = session.verify();
    assert!(!layout.is_sound() && !layout.is_complete());
    assert_eq!(kinds(layout.refused()), [ErrorKind::NotFound; 3]);
}

/// Whether any file beneath has this name.
fn holds(dir: &Path, name: &str) -> bool {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).any(|entry| {
        entry.file_name() == name || entry.file_type().unwrap().is_dir() && holds(&entry.path(), name)
    })
}

#[test]
fn a_handle_of_a_removed_session_works_on_nothing() {
    with_each_resolver(|stage| {
        assert!(stage.sessions.remove(&id()).unwrap().is_complete());
        assert_dead(&stage.session);
        assert!(!names(&stage.sessions_path()).contains(&"s".to_owned()));
    });
}

#[test]
fn a_handle_of_a_half_removed_session_puts_nothing_into_the_doomed_tree() {
    for resolver in RESOLVERS {
        let budget = Budget::default().with_entries(10);
        let config = SessionsConfig::default().with_resolver(resolver).with_budget(budget);
        let stage = Stage::with_config(config);
        for number in 0..100 {
            fs::write(stage.guest(&format!("workspace/{number}")), "x").unwrap();
        }
        stage.send("7", &[("a", b"a")]);
        // Held from before, as by a worker in the middle of its loop.
        let claim = stage.session.outbox().claim(&MessageId::new("7")).unwrap().unwrap();
        assert!(!stage.sessions.remove(&id()).unwrap().is_complete());
        assert_dead(&stage.session);
        assert_eq!(claim.read(["a"]).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(claim.undeclared([""; 0]).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(claim.release().unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!holds(&stage.sessions_path(), "late"));
    }
}

#[test]
fn a_handle_of_a_removed_session_does_not_reach_its_successor() {
    with_each_resolver(|stage| {
        for _ in 0..5 {
            let old = stage.sessions.open(&id()).unwrap();
            assert!(stage.sessions.remove(&id()).unwrap().is_complete());
            let (new, how) = stage.sessions.create(&id()).unwrap();
            assert_eq!(how, Ensured::Created);
            stage.send("7", &[("a", b"a")]);
            assert_dead(&old);
            assert!(new.try_lock().is_ok());
            assert!(new.outbox().claim(&MessageId::new("7")).unwrap().is_some());
        }
    });
}

/// Another descriptor of this process for the same open file, as a forked child has it.
fn shared(path: &Path) -> Result<OwnedFd, String> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let own = fs::read_dir("/proc/self/fd").map_err(|error| error.to_string())?;
    let number = own
        .filter_map(|entry| entry.ok())
        .find(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == path))
        .and_then(|entry| entry.file_name().to_str()?.parse().ok())
        .ok_or("the lock's descriptor is not in /proc")?;
    let this = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|errno| errno.to_string())?;
    pidfd_getfd(this, number, PidfdGetfdFlags::empty()).map_err(|errno| errno.to_string())
}

struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_dropped_lock_is_free_although_a_child_still_holds_its_descriptor() {
    with_each_resolver(|stage| {
        let lock = stage.session.try_lock().unwrap();
        let inherited = match shared(&stage.host("state/lock").canonicalize().unwrap()) {
            Ok(inherited) => inherited,
            Err(reason) => return skip(&reason),
        };
        let child = Command::new("sleep").arg("600").stdin(inherited).spawn().map(Reaped).unwrap();
        assert_eq!(stage.session.try_lock().unwrap_err().kind(), ErrorKind::Busy);
        drop(lock);
        assert!(stage.session.try_lock().is_ok());
        assert!(stage.sessions.remove(&id()).unwrap().is_complete());
        drop(child);
    });
}

#[test]
fn without_flock_nothing_is_locked_and_sessions_can_be_removed() {
    for errno in [Errno::NOSYS, Errno::OPNOTSUPP] {
        let stage = Stage::new(ResolverChoice::Auto);
        denied(&[Denial::Flock(errno)], || {
            assert_eq!(stage.session.try_lock().unwrap_err().kind(), ErrorKind::Unsupported);
            assert!(stage.sessions.remove(&id()).unwrap().is_complete());
            assert!(!names(&stage.sessions_path()).contains(&"s".to_owned()));
            stage.sessions.create(&id()).unwrap();
            assert_eq!(stage.sessions.sweep(Duration::ZERO).unwrap().removed, 1);
        });
    }
}

/// A lock that cannot be asked for, for want of something else, may be held.
#[test]
fn a_lock_that_could_not_be_asked_for_is_not_taken_for_free() {
    let stage = Stage::new(ResolverChoice::Auto);
    denied(&[Denial::Flock(Errno::NOLCK)], || {
        assert!(stage.sessions.remove(&id()).is_err());
        assert!(stage.sessions.exists(&id()).unwrap());
    });
}

/// A forked child has the lock's descriptor, and what it does with it must not end the parent's lock.
#[test]
fn a_child_that_drops_its_copy_does_not_unlock_the_parent() {
    const TEST: &str = "lifetime::a_child_that_drops_its_copy_does_not_unlock_the_parent";
    child::run(TEST, || {
        let stage = Stage::new(ResolverChoice::Auto);
        let lock = stage.session.try_lock().unwrap();
        match fork::fork().unwrap() {
            fork::Fork::Child => {
                drop(lock);
                // Neither the stage nor the harness is this process's to end.
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
            }
            fork::Fork::Parent(pid) => {
                let _ = fork::waitpid(pid);
                assert_eq!(stage.session.try_lock().unwrap_err().kind(), ErrorKind::Busy);
                assert_eq!(stage.sessions.remove(&id()).unwrap_err().kind(), ErrorKind::Busy);
                drop(lock);
                assert!(stage.session.try_lock().is_ok());
            }
        }
    });
}

/// A host that cannot look has not seen that nobody works there.
#[test]
fn a_host_without_descriptors_sweeps_no_session_in_use() {
    child::run("lifetime::a_host_without_descriptors_sweeps_no_session_in_use", || {
        let stage = Stage::new(ResolverChoice::Auto);
        let deep = stage.guest("workspace").join("1/2/3/4/5/6/7/8/9/10");
        fs::create_dir_all(&deep).unwrap();
        std::thread::sleep(Duration::from_millis(1200));
        fs::write(deep.join("work"), "").unwrap();
        let (sessions, idle) = (stage.by_wall_clock(), Duration::from_secs(1));
        for free in 3..24 {
            let held: Vec<_> = (0..200).filter_map(|_| fs::File::open("/dev/null").ok()).collect();
            let used = child::open_descriptors() as u64;
            child::limit_descriptors(used + free);
            let swept = sessions.sweep(idle);
            child::limit_descriptors(1024);
            drop(held);
            assert!(stage.sessions.exists(&id()).unwrap(), "{free} free: {swept:?}");
            fs::write(deep.join("work"), "").unwrap();
        }
    });
}
