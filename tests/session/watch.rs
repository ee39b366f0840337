//! A host that waits for changes while the guest replaces, floods and removes what it watches.

use std::fs;
use std::future::Future as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use beneath::session::{Armed, Part, Wake, Watch, Watcher};
use beneath::{Error, ErrorKind, ResolverChoice};
use beneath_kit::Ends;
use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::seccomp::{Denial, denied};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::{Errno, ioctl_fionread};
use rustix::mount::{MountFlags, mount};

use crate::support::{Stage, with_each_resolver};

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(50)
}

fn late() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// The number of watches that the kernel keeps for a watcher.
fn watches(watcher: &Watcher) -> usize {
    let fd = watcher.try_clone_fd().unwrap().unwrap();
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
    info.lines().filter(|line| line.starts_with("inotify wd:")).count()
}

/// What a host would write that knows paths only.
fn naive_watch(path: &Path, flags: WatchFlags) -> rustix::fd::OwnedFd {
    let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    add_watch(&inotify, path, flags | WatchFlags::CREATE).unwrap();
    inotify
}

#[test]
fn no_change_is_lost_wherever_it_falls_between_arming_looking_and_waiting() {
    with_each_resolver(|stage| {
        let mut watch = Watcher::new().watch(&stage.session, Part::Outbox);
        let look = || stage.session.outbox().messages().unwrap().entries.len();

        stage.send("before-arming", &[]);
        assert_eq!(watch.arm().unwrap(), &Armed::Events);
        assert_eq!(look(), 1);

        stage.send("before-looking", &[]);
        assert_eq!(look(), 2);
        assert_eq!(watch.wait(late()), Wake::Changed, "for nothing, which does no harm");

        watch.arm().unwrap();
        assert_eq!(look(), 2);
        stage.send("before-waiting", &[]);
        assert_eq!(watch.wait(late()), Wake::Changed);
        assert_eq!(look(), 3);

        watch.arm().unwrap();
        assert_eq!(watch.wait(soon()), Wake::Deadline, "the host's own looking is no change");
    });
}

#[test]
fn no_change_is_lost_that_comes_at_any_moment() {
    const ROUNDS: u32 = 200;
    let stage = Stage::new(ResolverChoice::Auto);
    let watcher = Watcher::new();
    let (made, turn, stop) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                while turn.load(Ordering::SeqCst) <= round {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    thread::yield_now();
                }
                // The first change ends the watch, maybe before the host knows its number; the second must be noticed too.
                for name in [format!("outbox/{round}-first"), format!("outbox/{round}")] {
                    (0..round % 64 * 16).for_each(|_| std::hint::spin_loop());
                    fs::create_dir(stage.guest(&name)).unwrap();
                }
                made.store(round + 1, Ordering::SeqCst);
            }
        });
        // Somebody else reads the events, at any moment too.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                watcher.dispatch();
            }
        });
        let _ends = Ends(&stop);
        let mut watch = watcher.watch(&stage.session, Part::Outbox);
        for round in 0..ROUNDS {
            let path = stage.guest(&format!("outbox/{round}"));
            turn.store(round + 1, Ordering::SeqCst);
            loop {
                watch.arm().unwrap();
                if path.exists() {
                    break;
                }
                // It is made after the look. On a busy machine its event comes late; one that was lost never comes.
                let mut is_late =
                    || watch.wait(late()) != Wake::Changed && made.load(Ordering::SeqCst) > round;
                assert!(!(0..20).all(|_| is_late()), "round {round} was lost");
            }
        }
    });
}

#[test]
fn wait_for_finds_what_comes_and_ends_at_its_deadline() {
    with_each_resolver(|stage| {
        let outbox = stage.session.outbox();
        let mut watch = Watcher::new().watch(&stage.session, Part::Outbox);
        let look = || {
            let messages = outbox.messages()?.entries;
            Ok::<_, Error>((!messages.is_empty()).then_some(messages))
        };
        assert_eq!(watch.wait_for(soon(), look).unwrap(), None);
        thread::scope(|scope| {
            scope.spawn(|| stage.send("42", &[]));
            let found = watch.wait_for(late(), look).unwrap().unwrap();
            assert_eq!(found[0].as_str(), "42");
        });
    });
}

#[test]
fn a_link_in_place_of_the_directory_shows_nothing_of_what_it_leads_to() {
    let mut stage = Stage::new(ResolverChoice::Auto);
    stage.replace_by_link("outbox", stage.home.path());
    let naive = naive_watch(&stage.guest("outbox"), WatchFlags::empty());
    let mut watch = Watcher::new().watch(&stage.session, Part::Outbox);
    assert_eq!(watch.arm().unwrap(), &Armed::Events);

    fs::write(stage.home.path().join("letter"), "the host's own business").unwrap();
    assert_eq!(watch.wait(soon()), Wake::Deadline);
    assert!(ioctl_fionread(&naive).unwrap() > 0, "the control was to see the letter");
    stage.home.seal();

    fs::remove_file(stage.guest("outbox")).unwrap();
    fs::create_dir(stage.guest("outbox")).unwrap();
    assert_eq!(watch.wait(late()), Wake::Changed, "the guest has made it good");
    watch.arm().unwrap();
    stage.send("42", &[]);
    assert_eq!(watch.wait(late()), Wake::Changed);
    assert!(stage.home.is_untouched());
}

#[test]
fn a_directory_that_is_exchanged_for_a_link_stays_the_one_that_is_watched() {
    let mut stage = Stage::new(ResolverChoice::Auto);
    symlink(stage.home.path(), stage.guest("link")).unwrap();
    let mut watch = Watcher::new().watch(&stage.session, Part::Outbox);
    let exchange = || {
        renameat_with(CWD, stage.guest("link"), CWD, stage.guest("outbox"), RenameFlags::EXCHANGE).unwrap();
    };
    for round in 0..100 {
        watch.arm().unwrap();
        exchange();
        assert_eq!(watch.wait(late()), Wake::Changed, "the directory has moved");
        assert_eq!(stage.session.outbox().messages().unwrap_err().kind(), ErrorKind::Symlink);

        watch.arm().unwrap();
        fs::write(stage.home.path().join("letter"), round.to_string()).unwrap();
        assert_eq!(watch.wait(Instant::now()), Wake::Deadline, "that was outside");
        exchange();
        assert_eq!(watch.wait(late()), Wake::Changed, "the guest's directory has changed");
    }
    stage.home.seal();
}

#[test]
fn a_flood_queues_as_many_events_as_one_change() {
    const FLOOD: u32 = 100_000;
    let stage = Stage::new(ResolverChoice::Auto);
    let watcher = Watcher::new();
    let mut watch = watcher.watch(&stage.session, Part::Outbox);
    let naive = naive_watch(&stage.guest("outbox"), WatchFlags::empty());
    watch.arm().unwrap();
    for name in 0..FLOOD {
        fs::File::create(stage.guest("outbox").join(format!("file-{name}"))).unwrap();
    }
    let queued = ioctl_fionread(watcher.try_clone_fd().unwrap().unwrap()).unwrap();
    assert!(queued < 1024, "{queued} bytes are queued");
    assert_eq!(watch.wait(late()), Wake::Changed);

    let mut buffer = vec![std::mem::MaybeUninit::uninit(); 65_536];
    let mut reader = Reader::new(&naive, &mut buffer);
    let overflowed = std::iter::from_fn(|| reader.next().ok().map(|event| event.events()))
        .any(|events| events.contains(ReadFlags::QUEUE_OVERFLOW));
    let most: u32 =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    assert!(overflowed || most > FLOOD, "the control's queue was to overflow");
}

#[test]
fn a_guest_that_never_stops_causes_no_more_than_a_look_each_pause() {
    let stage = Stage::new(ResolverChoice::Auto);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::create_dir(stage.guest("outbox/x"));
                let _ = fs::remove_dir(stage.guest("outbox/x"));
            }
        });
        let mut watch = Watcher::new().watch(&stage.session, Part::Outbox);
        let (start, mut looks) = (Instant::now(), 0);
        let found = watch.wait_for(start + Duration::from_millis(500), || {
            looks += 1;
            Ok::<_, Error>(None::<()>)
        });
        let most = start.elapsed().div_duration_f64(Watch::PAUSE) + 3.0;
        stop.store(true, Ordering::Relaxed);
        assert_eq!(found.unwrap(), None);
        assert!(f64::from(looks) <= most, "{looks} looks, at most {most}");
    });
}

/// Another thread reads the events, so that there is one at each wait, also at those after the deadline.
#[test]
fn a_guest_that_never_stops_keeps_nobody_beyond_the_deadline() {
    const MOST: u32 = 20;
    let stage = Stage::new(ResolverChoice::Auto);
    let (stop, watcher) = (AtomicBool::new(false), Watcher::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::create_dir(stage.guest("outbox/x"));
                let _ = fs::remove_dir(stage.guest("outbox/x"));
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                watcher.dispatch_within(Duration::from_millis(10));
            }
        });
        let mut watch = watcher.watch(&stage.session, Part::Outbox);
        let (deadline, mut late) = (Instant::now() + Duration::from_millis(50), 0);
        let found = watch.wait_for(deadline, || {
            late += u32::from(Instant::now() >= deadline);
            // Long enough for an event.
            thread::sleep(Duration::from_millis(20));
            Ok::<_, Error>((late >= MOST).then_some(()))
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(found.unwrap(), None, "{late} looks after the deadline");
    });
}

#[test]
fn a_directory_that_goes_and_comes_back_is_watched_again() {
    with_each_resolver(|stage| {
        let watcher = Watcher::new();
        let mut outbox = watcher.watch(&stage.session, Part::Outbox);
        let mut logs = watcher.watch_path(&stage.session, "build/logs").unwrap();
        for watch in [&mut outbox, &mut logs] {
            assert_eq!(watch.arm().unwrap(), &Armed::Events);
        }
        fs::remove_dir(stage.guest("outbox")).unwrap();
        assert_eq!(outbox.wait(late()), Wake::Changed);
        outbox.arm().unwrap();
        fs::create_dir(stage.guest("outbox")).unwrap();
        assert_eq!(outbox.wait(late()), Wake::Changed);

        for path in ["workspace/build", "workspace/build/logs", "workspace/build/logs/1.log"] {
            assert_eq!(logs.wait(Instant::now()), Wake::Deadline, "before {path}");
            fs::create_dir(stage.guest(path)).unwrap();
            assert_eq!(logs.wait(late()), Wake::Changed, "{path}");
            logs.arm().unwrap();
        }
    });
}

#[test]
fn the_end_of_a_session_ends_the_wait_for_it() {
    with_each_resolver(|stage| {
        let mut watch = Watcher::new().watch(&stage.session, Part::Outbox);
        let ended = thread::scope(|scope| {
            let waits = scope.spawn(|| watch.wait_for(late(), || Ok::<_, Error>(None::<()>)));
            assert!(stage.sessions.remove(&beneath::SessionId::new("s")).unwrap().is_complete());
            waits.join().unwrap()
        });
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn one_watcher_serves_a_thousand_directories_and_keeps_none_of_them() {
    const MANY: usize = 1000;
    let stage = Stage::new(ResolverChoice::Auto);
    let watcher = Watcher::new();
    let mut all: Vec<Watch> = (0..MANY)
        .map(|number| {
            fs::create_dir(stage.guest(&format!("workspace/{number}"))).unwrap();
            let mut watch = watcher.watch_path(&stage.session, &number.to_string()).unwrap();
            assert_eq!(watch.arm().unwrap(), &Armed::Events);
            watch
        })
        .collect();
    let mut twin = watcher.watch_path(&stage.session, "500").unwrap();
    twin.arm().unwrap();
    assert_eq!(watches(&watcher), MANY);

    fs::write(stage.guest("workspace/500/x"), "").unwrap();
    let woken = |watch: &mut Watch| watch.wait(Instant::now()) == Wake::Changed;
    watcher.dispatch();
    assert!(woken(&mut twin));
    let woken: Vec<usize> = (0..MANY).filter(|number| woken(&mut all[*number])).collect();
    assert_eq!(woken, [500]);

    twin.arm().unwrap();
    all[500].arm().unwrap();
    drop(all);
    assert_eq!(watches(&watcher), 1, "the twin's");
    drop(twin);
    assert_eq!(watches(&watcher), 0);
}

#[test]
fn threads_that_wait_with_one_watcher_wake_each_other() {
    const THREADS: usize = 8;
    let stage = Stage::new(ResolverChoice::Auto);
    let watcher = Watcher::new();
    (0..THREADS).for_each(|number| fs::create_dir(stage.guest(&format!("workspace/{number}"))).unwrap());
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (stage, watcher) = (&stage, &watcher);
            scope.spawn(move || {
                let mut watch = watcher.watch_path(&stage.session, &number.to_string()).unwrap();
                for turn in 0..50 {
                    let (mine, next) = (format!("{number}/{turn}"), (number + 1) % THREADS);
                    let path = |path: &str| stage.guest("workspace").join(path);
                    if turn > 0 || number > 0 {
                        let found =
                            watch.wait_for(late(), || Ok::<_, Error>(path(&mine).exists().then_some(())));
                        assert!(found.unwrap().is_some(), "{mine}");
                    }
                    // The round ends where it has begun, one turn later.
                    let turn = if next == 0 { turn + 1 } else { turn };
                    fs::write(path(&format!("{next}/{turn}")), "").unwrap();
                }
            });
        }
    });
}

#[test]
fn async_code_is_woken_by_what_is_dispatched() {
    let stage = Stage::new(ResolverChoice::Auto);
    let watcher = Watcher::new();
    let mut watch = watcher.watch(&stage.session, Part::Outbox);
    watch.arm().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut changed = pin!(watch.changed());
        assert_eq!(changed.as_mut().poll(&mut context), Poll::Pending);
        stage.send("42", &[]);
        assert_eq!(changed.as_mut().poll(&mut context), Poll::Pending);
    }
    watcher.dispatch();
    assert_eq!(
        pin!(watch.changed()).poll(&mut context),
        Poll::Ready(()),
        "a future that is dropped loses nothing"
    );
    assert_eq!(watch.rest(), Duration::ZERO, "the first change is looked at without delay");
}

#[test]
fn a_thread_that_dispatches_wakes_async_code_and_threads_alike() {
    let stage = Stage::new(ResolverChoice::Auto);
    let watcher = Watcher::new();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                watcher.dispatch_within(Duration::from_millis(20));
            }
        });
        let _ends = Ends(&stop);
        for round in 0..100 {
            let [mut one, mut other] = [(); 2].map(|()| watcher.watch(&stage.session, Part::Outbox));
            one.arm().unwrap();
            other.arm().unwrap();
            stage.send(&round.to_string(), &[]);
            assert_eq!(one.wait(late()), Wake::Changed);
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(pin!(other.changed()).poll(&mut context), Poll::Ready(()), "they share the event");
        }
    });
}

/// The wait works without events, and says why.
fn works_by_the_timer(stage: &Stage, watcher: &Watcher, kind: ErrorKind) {
    let mut watch = watcher.watch(&stage.session, Part::Outbox);
    let Armed::Timer(reason) = watch.arm().unwrap().clone() else { panic!("{:?}", watch.armed()) };
    assert_eq!(reason.kind(), kind, "{reason}");
    assert_eq!(watch.wait(late()), Wake::Timer);
    stage.send("42", &[]);
    let found =
        watch.wait_for(late(), || stage.session.outbox().messages().map(|mut list| list.entries.pop()));
    assert_eq!(found.unwrap().unwrap().as_str(), "42");
}

#[test]
fn without_inotify_the_timer_does_it() {
    for (errno, kind) in [(Errno::NOSYS, ErrorKind::Unsupported), (Errno::MFILE, ErrorKind::TooMany)] {
        denied(&[Denial::Inotify(errno)], || {
            let (stage, watcher) = (Stage::new(ResolverChoice::Auto), Watcher::new());
            assert_eq!(watcher.failure().map(Error::kind), Some(kind));
            assert!(watcher.try_clone_fd().unwrap().is_none());
            works_by_the_timer(&stage, &watcher, kind);
        });
    }
}

#[test]
fn without_a_watch_left_the_timer_does_it() {
    denied(&[Denial::AddWatch(Errno::NOSPC)], || {
        works_by_the_timer(&Stage::new(ResolverChoice::Auto), &Watcher::new(), ErrorKind::TooMany);
    });
}

#[test]
fn without_proc_the_timer_does_it() {
    with_private_mounts(|| {
        let stage = Stage::new(ResolverChoice::Auto);
        mount("none", "/proc", "tmpfs", MountFlags::empty(), None).unwrap();
        let _mounted = Mounted(["/proc".into()]);
        works_by_the_timer(&stage, &Watcher::new(), ErrorKind::Unsupported);
    });
}
