//! Test bodies that need a process of their own: a limit, another user, a count of descriptors.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};

const VARIABLE: &str = "BENEATH_TEST_CHILD";
const NOBODY: u32 = 65534;

/// Whether this process is the child that `run` started for `test`.
pub fn is(test: &str) -> bool {
    std::env::var_os(VARIABLE).is_some_and(|name| name == test)
}

/// This test binary, set to run one test as a child.
pub fn command(test: &str) -> Command {
    command_of(&std::env::current_exe().unwrap(), test)
}

fn command_of(binary: &std::path::Path, test: &str) -> Command {
    let mut command = Command::new(binary);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(VARIABLE, test);
    command
}

/// Runs `body` in a child process; `test` is the full name of the calling test.
#[track_caller]
pub fn run(test: &str, body: impl FnOnce()) {
    if is(test) {
        return body();
    }
    finish(command(test), test);
}

/// Runs `body` in a child process as a user without privileges. A body may change what belongs to the whole process, such
/// as the umask, so it is a child's even if this process has no privileges itself.
#[track_caller]
pub fn run_unprivileged(test: &str, body: impl FnOnce()) {
    if is(test) {
        return body();
    }
    if !crate::is_root() {
        return finish(command(test), test);
    }
    if !has_nobody() {
        return crate::skip("this user namespace has no other user");
    }
    let place = within_reach();
    let mut command = command_of(&place.path().join("test"), test);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    finish(command, test);
}

/// Whether the user without privileges exists in this user namespace.
fn has_nobody() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    map.lines().any(|line| {
        let fields: Vec<u64> = line.split_whitespace().map(|field| field.parse().unwrap()).collect();
        (fields[0]..fields[0] + fields[2]).contains(&u64::from(NOBODY))
    })
}

/// Runs the test in a child as `setpriv` makes it.
#[track_caller]
pub fn run_as(test: &str, privileges: &[&str]) {
    let place = within_reach();
    if !Command::new("setpriv").args(privileges).arg("true").status().is_ok_and(|status| status.success()) {
        return crate::skip("setpriv is missing, or may not do it");
    }
    let inner = command_of(&place.path().join("test"), test);
    let mut command = Command::new("setpriv");
    command
        .args(privileges)
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(VARIABLE, test)
        .current_dir("/");
    finish(command, test);
}

/// A copy of this program that any user can run: the build directory may be out of reach.
fn within_reach() -> tempfile::TempDir {
    let place = tempfile::Builder::new().prefix("beneath-test-").tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // Not by this process: a child that another thread starts meanwhile would hold the copy open for writing, and what is
    // open for writing cannot be run.
    let binary: PathBuf = place.path().join("test");
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&binary).status().unwrap();
    assert!(copied.success(), "copying the test failed: {copied}");
    place
}

/// Waits for the child and shows what it said if it failed.
#[track_caller]
pub fn finish(command: Command, test: &str) {
    let said = succeeds(command, &format!("child of {test}"), "1 passed");
    // The harness has begun the line with the name of the test, and a thread of its own may have none.
    for (_, skipped) in said.lines().filter_map(|line| line.split_once("skipped ")) {
        crate::skip(skipped.split_once(": ").map_or(skipped, |(_, reason)| reason));
    }
}

/// What a command says on stdout; panics with all of it unless it succeeds and says `sign`.
#[track_caller]
fn succeeds(mut command: Command, what: &str, sign: &str) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let [said, complained] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let good = output.status.success() && said.contains(sign);
    assert!(good, "{what}: {}\n{said}\n{complained}", output.status);
    said
}

/// Sets the limit for descriptors of this process, which it may raise again.
pub fn limit_descriptors(count: u64) {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum }).unwrap();
}

/// The number of descriptors this process has open; only meaningful in a child with one thread at work.
pub fn open_descriptors() -> usize {
    // The listing itself holds one.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// The most memory this process has had resident, in bytes.
pub fn peak_memory() -> u64 {
    peak_memory_of(std::process::id()).unwrap()
}

/// The same of another process, if it is there and has begun.
pub fn peak_memory_of(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(peak.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Polls until `done` or panics after `patience`.
#[track_caller]
pub fn wait_until(what: &str, patience: Duration, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < patience, "{what} did not happen within {patience:?}");
        std::thread::yield_now();
    }
}

const RERUN: &str = "BENEATH_TEST_RERUN";

/// Runs this whole test binary again in a child that `prepare` may change, but for tests whose name contains one of
/// `except`. Does nothing in such a child.
#[track_caller]
pub fn rerun(label: &str, except: &[&str], prepare: impl FnOnce(&mut Command)) {
    if std::env::var_os(RERUN).is_some() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(RERUN, "1");
    for name in except {
        command.args(["--skip", name]);
    }
    prepare(&mut command);
    succeeds(command, label, "test result: ok");
}

/// [`rerun`] by a user without privileges who is root in namespaces of its own, with mounts of its own.
#[track_caller]
pub fn rerun_as_root_of_a_namespace(label: &str, except: &[&str], prepare: impl FnOnce(&mut Command)) {
    if std::env::var_os(RERUN).is_some() {
        return;
    }
    let mut enter = vec!["unshare", "-Urm"];
    let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    if crate::is_root() {
        enter = [&user, &*enter].concat();
    }
    let runs = |program: &str| {
        let mut command = Command::new(enter[0]);
        command.args(&enter[1..]).arg(program).current_dir("/");
        command
    };
    if !runs("true").output().is_ok_and(|output| output.status.success()) {
        return crate::skip("no user namespace can be made here, or setpriv or unshare is missing");
    }
    let place = within_reach();
    let mut command = runs(place.path().join("test").to_str().unwrap());
    command.env(RERUN, "1");
    for name in except {
        command.args(["--skip", name]);
    }
    prepare(&mut command);
    succeeds(command, label, "test result: ok");
}
