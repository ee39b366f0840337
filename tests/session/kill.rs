//! The host dies before each system call of a delivery and of the collecting loop, and the next host finds order.
//!
//! A child does the work between two marks; `strace` counts its calls once, then kills it at one after the other.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use beneath::session::{Attachment, Collection, Disposition, Ledger, SessionsConfig, Ticket};
use beneath::{
    Durability, Error, ErrorKind, MessageId, Policy, ResolverChoice, Root, Session, SessionId, Sessions,
    ambient_authority,
};

use crate::kit::seccomp::{Denial, denied};
use crate::naive::NaiveSession;
use crate::support::{RESOLVERS, names};

/// Nothing else in the child makes this call.
const MARK: &str = "getppid";
/// Calls that change nothing a second host could see: dying before one of them leaves what dying before the next one leaves.
const EFFECTLESS: [&str; 12] = [
    "mmap",
    "munmap",
    "mremap",
    "brk",
    "madvise",
    "futex",
    "getrandom",
    "mprotect",
    "close",
    "statx",
    "fstat",
    "getdents64",
];
/// The loop where `RENAME_NOREPLACE` is missing, and where messages cannot be moved to the host's side.
const UNRESERVED: &str = "collect without reserving names";
const IN_PLACE: &str = "collect in place";
/// The loop with every move made durable.
const DURABLE: &str = "collect durably";
const FILES: [(&str, u8, usize); 2] = [("one.bin", 1, 150_000), ("two.bin", 2, 70_000)];

fn mark() {
    // Its answer is of no use, and may be none where the parent is in another pid namespace.
    let _ = rustix::process::getppid();
}

fn content(byte: u8, length: usize) -> Vec<u8> {
    vec![byte; length]
}

/// Runs this executable on one test only, in one thread.
fn child(work: &str, dir: &Path, resolver: ResolverChoice) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null"]);
    command.env("BENEATH_KILL_WORK", work).env("BENEATH_KILL_DIR", dir);
    command.env("BENEATH_KILL_RESOLVER", if resolver == ResolverChoice::Walk { "walk" } else { "openat2" });
    // Cargo's search path makes the loader ask for each library in each directory.
    command.env_remove("LD_LIBRARY_PATH");
    command
}

fn run(mut command: Command) -> Output {
    let exe = std::env::current_exe().unwrap();
    command.arg(exe).args(["--exact", "kill::child_work", "--test-threads=1"]);
    command.output().unwrap()
}

/// The calls between the marks: name, and how many of that name the child had made by then.
fn calls(work: &str, resolver: ResolverChoice, prepare: &dyn Fn(&Path)) -> Vec<(String, usize)> {
    let dir = prepared(prepare);
    let log = dir.path().join("log");
    let mut command = child(work, dir.path(), resolver);
    command.args(["-o".into(), log.clone().into_os_string()]);
    let undisturbed = run(command);
    let printed = String::from_utf8_lossy(&undisturbed.stdout);
    assert!(undisturbed.status.success(), "{work} fails undisturbed: {printed}");
    let mut made: HashMap<(String, String), usize> = HashMap::new();
    let mut marks = 0;
    let mut worker = String::new();
    let mut calls = Vec::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((name, _)) = call.trim_start().split_once('(') else { continue };
        let count = made.entry((thread.to_owned(), name.to_owned())).or_default();
        *count += 1;
        match name {
            MARK => {
                marks += 1;
                worker = thread.to_owned();
            }
            _ if marks == 1 && thread == worker && !EFFECTLESS.contains(&name) => {
                calls.push((name.to_owned(), *count));
            }
            _ => {}
        }
    }
    // Only where the host's side is elsewhere is there anything.
    let _ = fs::remove_dir_all(elsewhere(dir.path()));
    assert_eq!(marks, 2, "both marks are seen");
    for (name, first) in &calls {
        // strace counts in each thread, so no other one may get there before.
        let others = made.iter().filter(|((thread, other), _)| *thread != worker && other == name);
        let most = others.map(|(_, count)| *count).max().unwrap_or(0);
        assert!(most < *first, "{name}: {most} in another thread, {first} in this");
    }
    calls
}

/// A fresh place in which nothing has changed lately.
fn prepared(prepare: &dyn Fn(&Path)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path());
    std::thread::sleep(std::time::Duration::from_millis(120));
    dir
}

/// Makes this thread's count of every common call larger than any other thread's.
fn get_ahead() {
    for _ in 0..64 {
        fs::read("/dev/null").unwrap();
        fs::write("/dev/null", "x").unwrap();
        drop(fs::File::open("/dev/null").unwrap().try_clone());
        assert!(fs::read_dir("/proc/self/fd").unwrap().count() > 0);
    }
}

/// Kills the work at each of its calls, in a fresh place each time, and has `judge` look at what is left.
pub(crate) fn kill_everywhere(
    work: &str,
    resolver: ResolverChoice,
    prepare: &(dyn Fn(&Path) + Sync),
    judge: &(dyn Fn(&Path) -> Result<(), String> + Sync),
) -> (usize, Vec<String>) {
    let calls = calls(work, resolver, prepare);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let violations = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, count)) =
                    calls.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    // What has changed lately takes more calls to read, so that a busy machine may make fewer.
                    let killed = (0..5).find_map(|_| {
                        let dir = prepared(prepare);
                        let mut command = child(work, dir.path(), resolver);
                        command.arg("-e").arg(format!("inject={name}:signal=KILL:when={count}"));
                        (!run(command).status.success()).then_some(dir)
                    });
                    let Some(dir) = killed else { panic!("{work} is never killed at {name} {count}") };
                    if let Err(why) = judge(dir.path()) {
                        violations.lock().unwrap().push(format!("at {name} {count}: {why}"));
                    }
                }
            });
        }
    });
    (calls.len(), violations.into_inner().unwrap())
}

pub(crate) fn strace_works() -> bool {
    let works = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        crate::support::skip("needs strace");
    }
    works
}

fn session(dir: &Path, resolver: ResolverChoice) -> Session {
    let root = Root::open_ambient(dir, ambient_authority()).unwrap();
    let sessions = Sessions::new(root, SessionsConfig::default().with_resolver(resolver));
    sessions.create(&SessionId::new("s")).unwrap().0
}

fn durable_session(dir: &Path) -> Session {
    let root = Root::open_ambient(dir, ambient_authority()).unwrap();
    let sessions = Sessions::new(root, SessionsConfig::default().with_durability(Durability::Full));
    sessions.open(&SessionId::new("s")).unwrap()
}

fn attachments() -> impl Iterator<Item = Attachment<'static>> {
    static ONE: [u8; 150_000] = [1; 150_000];
    static TWO: [u8; 70_000] = [2; 70_000];
    [
        Attachment::from_bytes(&ONE).with_name("one.bin"),
        Attachment::from_reader(TWO.as_slice()).with_name("two.bin"),
    ]
    .into_iter()
}

/// A ledger in which sending and recording are one step: the file is there whole or not at all.
struct Sent<'s>(&'s Session);

impl Sent<'_> {
    fn path(ticket: &Ticket) -> PathBuf {
        Path::new("sent").join(ticket.as_str())
    }
}

impl Ledger<Error> for Sent<'_> {
    fn contains(&mut self, ticket: &Ticket) -> beneath::Result<bool> {
        match self.0.host().metadata(Self::path(ticket)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn record(&mut self, _: &Ticket) -> beneath::Result<()> {
        Ok(())
    }
}

fn collect_all(session: &Session) -> Collection<Error> {
    session.host().ensure_dir("sent").unwrap();
    // A process that another thread starts meanwhile has the lock of the turn before until it runs its program.
    let lock = session.lock_within(std::time::Duration::from_secs(60)).unwrap();
    let collected = session.outbox().collect(&lock, &mut Sent(session), |claim| {
        let collected = claim.read(FILES.map(|(name, ..)| name))?;
        let whole: Vec<u8> = collected.found().flat_map(|(_, bytes)| bytes.clone()).collect();
        session.host().write_exclusive(Sent::path(claim.ticket()), whole)?;
        Ok(Disposition::Done)
    });
    collected.unwrap()
}

/// What was sent, by ticket.
fn sent(session: &Session, host: &Path) -> Vec<Vec<u8>> {
    assert!(session.host().metadata("sent").is_ok());
    names(&host.join("sent")).iter().map(|name| fs::read(host.join("sent").join(name)).unwrap()).collect()
}

fn send_message(dir: &Path) {
    fs::create_dir(dir.join("s/guest/outbox/42")).unwrap();
    for (name, byte, length) in FILES {
        fs::write(dir.join("s/guest/outbox/42").join(name), content(byte, length)).unwrap();
    }
}

fn prepare_message(dir: &Path) {
    session(dir, ResolverChoice::Auto);
    send_message(dir);
}

/// Where the host's side is if messages cannot be moved to it.
fn elsewhere(dir: &Path) -> PathBuf {
    Path::new("/dev/shm").join(format!("beneath-kill-{}", dir.file_name().unwrap().display()))
}

fn session_in_place(dir: &Path, resolver: ResolverChoice) -> Session {
    let open = |path: &Path| {
        fs::create_dir_all(path).unwrap();
        let root = Root::open_ambient(path, ambient_authority()).unwrap();
        root.with_policy(Policy::default().with_resolver(resolver))
    };
    let session = Session::from_roots(open(&dir.join("s/guest")), open(&elsewhere(dir))).unwrap();
    session.repair().unwrap();
    session
}

/// What the child does, when this executable is one.
#[test]
fn child_work() {
    let Some(dir) = std::env::var_os("BENEATH_KILL_DIR").map(PathBuf::from) else { return };
    let resolver = match std::env::var("BENEATH_KILL_RESOLVER").unwrap().as_str() {
        "walk" => ResolverChoice::Walk,
        _ => ResolverChoice::Openat2,
    };
    let work = std::env::var("BENEATH_KILL_WORK").unwrap();
    match work.as_str() {
        UNRESERVED => {
            let denial = Denial::RenameNoReplace(rustix::io::Errno::INVAL);
            denied(&[denial], || do_work("collect", &session(&dir, resolver), &dir));
        }
        IN_PLACE => do_work("collect", &session_in_place(&dir, resolver), &dir),
        DURABLE => do_work("collect", &durable_session(&dir), &dir),
        work => do_work_with(work, &session(&dir, resolver), &dir, resolver),
    }
}

fn do_work(work: &str, session: &Session, dir: &Path) {
    do_work_with(work, session, dir, ResolverChoice::Auto);
}

fn do_work_with(work: &str, session: &Session, dir: &Path, resolver: ResolverChoice) {
    let naive = NaiveSession { dir: dir.join("s/guest") };
    get_ahead();
    mark();
    match work {
        "deliver" => assert!(session.inbox().deliver(&MessageId::new("42"), attachments()).is_complete()),
        "collect" => assert!(collect_all(session).is_complete()),
        "naive deliver" => {
            for (name, byte, length) in FILES {
                naive.deliver("42", name, &content(byte, length), || {}).unwrap();
            }
        }
        "naive collect" => {
            let files = naive.collect("42", &FILES.map(|(name, ..)| name), || {});
            assert_eq!(files.len(), 2);
            naive.clear("42");
        }
        work => crate::kill_sessions::work(work, dir, resolver),
    }
    mark();
}

/// Whole files only, under the names they were meant to have.
fn no_torn_file(directory: &Path) -> Result<(), String> {
    for name in if directory.exists() { names(directory) } else { Vec::new() } {
        let mut bytes = Vec::new();
        fs::File::open(directory.join(&name)).unwrap().read_to_end(&mut bytes).unwrap();
        let whole =
            FILES.iter().any(|(wanted, byte, length)| *wanted == name && bytes == content(*byte, *length));
        if !whole {
            return Err(format!("{name} holds {} bytes", bytes.len()));
        }
    }
    Ok(())
}

#[test]
fn killed_anywhere_in_a_delivery_leaves_whole_files_and_a_retry_completes_it() {
    if !strace_works() {
        return;
    }
    for resolver in RESOLVERS {
        let prepare = |dir: &Path| drop(session(dir, ResolverChoice::Auto));
        let judge = |dir: &Path| {
            no_torn_file(&dir.join("s/guest/inbox/42"))?;
            let session = session(dir, resolver);
            let retry = session.inbox().deliver(&MessageId::new("42"), attachments());
            let renamed = retry.files().any(|file| file.taken.is_some());
            match (retry.is_complete(), renamed, names(&dir.join("s/guest/inbox/42")).len()) {
                (true, false, 2) => Ok(()),
                _ => Err(format!("the retry gave {retry:?}")),
            }
        };
        let (calls, violations) = kill_everywhere("deliver", resolver, &prepare, &judge);
        println!("deliver, {resolver:?}: killed at each of {calls} calls");
        assert!(calls > 10 && violations.is_empty(), "{violations:#?}");
    }
    let prepare = |dir: &Path| drop(session(dir, ResolverChoice::Auto));
    let judge = |dir: &Path| no_torn_file(&dir.join("s/guest/inbox/42"));
    let (_, caught) = kill_everywhere("naive deliver", ResolverChoice::Auto, &prepare, &judge);
    assert!(!caught.is_empty(), "the control must be caught");
}

#[test]
fn killed_anywhere_in_the_loop_loses_nothing_and_sends_nothing_twice() {
    if !strace_works() {
        return;
    }
    for (work, resolver) in [
        ("collect", ResolverChoice::Openat2),
        ("collect", ResolverChoice::Walk),
        (UNRESERVED, ResolverChoice::Openat2),
    ] {
        let judge = |dir: &Path| {
            let judge = || judge_loop(dir, &session(dir, resolver), &dir.join("s/host"));
            if work == UNRESERVED {
                denied(&[Denial::RenameNoReplace(rustix::io::Errno::INVAL)], judge)
            } else {
                judge()
            }
        };
        let (calls, violations) = kill_everywhere(work, resolver, &prepare_message, &judge);
        println!("{work}, {resolver:?}: killed at each of {calls} calls");
        assert!(calls > 20 && violations.is_empty(), "{violations:#?}");
    }
    let judge = |dir: &Path| visible_messages_are_whole(dir, &dir.join("s/host"));
    let (_, caught) = kill_everywhere("naive collect", ResolverChoice::Auto, &prepare_message, &judge);
    assert!(!caught.is_empty(), "the control must be caught");
}

#[test]
fn killed_anywhere_in_the_loop_in_place_loses_nothing_and_sends_nothing_twice() {
    let same = |one: &Path, other: &Path| {
        let device = |path| fs::metadata(path).map(|entry| std::os::unix::fs::MetadataExt::dev(&entry)).ok();
        device(one) == device(other)
    };
    if !Path::new("/dev/shm").is_dir() || same(&std::env::temp_dir(), Path::new("/dev/shm")) {
        crate::support::skip("needs a second file system at /dev/shm");
        return;
    }
    if !strace_works() {
        return;
    }
    let prepare = |dir: &Path| {
        session_in_place(dir, ResolverChoice::Auto);
        send_message(dir);
    };
    let judge = |dir: &Path| {
        let session = session_in_place(dir, ResolverChoice::Auto);
        let verdict = judge_loop(dir, &session, &elsewhere(dir));
        fs::remove_dir_all(elsewhere(dir)).unwrap();
        verdict
    };
    let (calls, violations) = kill_everywhere(IN_PLACE, ResolverChoice::Openat2, &prepare, &judge);
    println!("{IN_PLACE}: killed at each of {calls} calls");
    assert!(calls > 20 && violations.is_empty(), "{violations:#?}");
}

/// A move may be done although its sync has failed. Then the message is claimed, and is sent only once it is durable.
#[test]
fn a_sync_that_fails_anywhere_in_the_loop_loses_nothing_and_sends_nothing_twice() {
    if !strace_works() {
        return;
    }
    let calls = calls(DURABLE, ResolverChoice::Auto, &prepare_message);
    let syncs: Vec<usize> =
        calls.into_iter().filter(|(name, _)| name == "fsync").map(|(_, count)| count).collect();
    let mut unsent = 0;
    for count in &syncs {
        let dir = tempfile::tempdir().unwrap();
        prepare_message(dir.path());
        let mut command = child(DURABLE, dir.path(), ResolverChoice::Auto);
        command.arg("-e").arg(format!("inject=fsync:error=EIO:when={count}"));
        let _ = run(command);
        let host = dir.path().join("s/host");
        let claims = names(&host.join("claimed")).len();
        let sent = if host.join("sent").exists() { names(&host.join("sent")).len() } else { 0 };
        unsent += usize::from(claims == 1 && sent == 0);
        judge_loop(dir.path(), &durable_session(dir.path()), &host).unwrap();
    }
    println!(
        "the loop has {} syncs; after {unsent} of them the message was claimed and not sent",
        syncs.len()
    );
    assert!(syncs.len() > 3 && unsent > 1);
}

/// The next host takes over, while the guest uses the id again as soon as it can.
fn judge_loop(dir: &Path, session: &Session, host: &Path) -> Result<(), String> {
    let whole: Vec<u8> = FILES.iter().flat_map(|(_, byte, length)| content(*byte, *length)).collect();
    visible_messages_are_whole(dir, host)?;
    let mut messages = 1;
    if !dir.join("s/guest/outbox/42").exists() {
        send_message(dir);
        messages += 1;
    }
    for _ in 0..2 {
        let report = collect_all(session);
        let sent = sent(session, host);
        if !report.is_complete() || sent.len() != messages || sent.iter().any(|sent| *sent != whole) {
            return Err(format!("{report:?}, and {} of {messages} messages were sent", sent.len()));
        }
    }
    let pending = session.outbox().pending().map_err(|error| error.to_string())?;
    let messages = session.outbox().messages().map_err(|error| error.to_string())?;
    if !pending.is_empty() || !messages.ids.is_empty() {
        return Err(format!("left {pending:?} and {messages:?}"));
    }
    let swept = session.outbox().sweep(std::time::Duration::ZERO).map_err(|error| error.to_string())?;
    let places = [host.join("trash"), host.join("claimed"), dir.join("s/guest/outbox")];
    if swept.left.total > 0 || places.iter().any(|place| !names(place).is_empty()) {
        return Err(format!("unswept {swept:?}"));
    }
    Ok(())
}

/// A message that the next host would find has all its files.
fn visible_messages_are_whole(dir: &Path, host: &Path) -> Result<(), String> {
    let claims =
        names(&host.join("claimed")).into_iter().map(|slot| host.join("claimed").join(slot).join("42"));
    for place in claims.chain([dir.join("s/guest/outbox/42")]).filter(|place| place.is_dir()) {
        if names(&place) != FILES.map(|(name, ..)| name) {
            return Err(format!("{} holds {:?}", place.display(), names(&place)));
        }
    }
    Ok(())
}
