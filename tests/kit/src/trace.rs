//! Stops a child at each of its system calls, so that a test can act between any two of them.
//!
//! The controller starts its own executable as the victim. The victim asks to be traced, then serves one request
//! per line on its standard input and answers each with one line, both in JSON. It brackets the part under test with two
//! signals to itself; between them every call that touches the file system is numbered, and the controller may let
//! it run, replace it by an errno, shorten it, or kill the victim there. Outside them it runs at full speed.
//!
//! One preemption at a chosen call is repeatable: it needs no second CPU, no luck and no sleeping.

pub mod calls;
mod registers;

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use calls::Call;
use registers::Registers;

/// The argument that makes the executable a victim.
pub const VICTIM: &str = "--victim";

/// Raised by the victim for the tracer to see; never delivered.
const BEGIN: Signal = Signal::SIGUSR1;
const END: Signal = Signal::SIGUSR2;
const IDLE: Signal = Signal::SIGSTOP;

/// A round that makes more calls than this is taken for a loop without end.
const MOST_CALLS: usize = 20_000;

/// What happens to the call the victim is about to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Go,
    /// Run to the end of the round without another stop.
    Release,
    Fail(Errno),
    /// Lower the byte count in the third argument.
    Shorten(u64),
    Kill,
}

/// A call of the part under test, before the kernel has seen it.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    pub index: usize,
    pub call: Call,
    nth: usize,
    pid: Pid,
}

/// A call by its number, and how often it was made before. Unlike the index it stays the same where a host that waits for
/// a file to rest looks at it more often than in another round.
pub type Which = (i64, usize);

impl Stop {
    pub fn which(&self) -> Which {
        (self.call.number, self.nth)
    }

    /// The call with its path arguments spelled out.
    pub fn describe(&self) -> String {
        self.call.describe(|address| peek(self.pid, address))
    }

    /// Whether it renames a name to itself, which changes nothing and waits for whoever changes the name.
    pub fn is_barrier(&self) -> bool {
        let [from, _, to, ..] = self.call.arguments;
        self.call.is_any(&[libc::SYS_renameat, libc::SYS_renameat2])
            && from == to
            && self.text(1) == self.text(3)
    }

    /// An argument that is a string.
    pub fn text(&self, position: usize) -> String {
        peek(self.pid, self.call.arguments[position])
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.call.name(), self.nth + 1)
    }
}

/// How a round ended.
#[derive(Debug)]
pub enum End<A> {
    /// The victim answered.
    Answered(A),
    /// The hook killed it.
    Killed,
    /// It did not come back in time, or made calls without end.
    Hung,
    /// It ended by itself.
    Died(String),
}

impl<A> End<A> {
    /// The answer, or what is wrong with a victim that gave none without having been killed.
    pub fn answer(self) -> (Option<A>, Option<String>) {
        match self {
            Self::Answered(answer) => (Some(answer), None),
            Self::Killed => (None, None),
            Self::Hung => (None, Some("hang".into())),
            Self::Died(how) => (None, Some(format!("the victim died: {how}"))),
        }
    }
}

/// What is asked before every call of the part under test.
pub type Hook<'a> = dyn FnMut(&Stop) -> Act + 'a;

/// Starts victims and steps them.
#[derive(Debug)]
pub struct Tracer {
    victim: Option<Victim>,
    watch: Arc<Mutex<Option<(Pid, Instant)>>>,
}

#[derive(Debug)]
struct Victim {
    pid: Pid,
    // Kept only so that nobody else waits for the process; `waitpid` reaps it.
    _child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Tracer {
    /// Starts a first victim.
    ///
    /// The error says why tracing is impossible here; a test then skips.
    pub fn start() -> Result<Self, String> {
        let watch = Arc::new(Mutex::new(None));
        thread::spawn({
            let watch = Arc::downgrade(&watch);
            move || keep_time(&watch)
        });
        let victim = Victim::start()?;
        Ok(Self { victim: Some(victim), watch })
    }

    /// Has the next round start with a victim that has done nothing yet.
    pub fn renew(&mut self) {
        self.victim = None;
    }

    /// Starts a victim, if there is none.
    pub fn prepare(&mut self) {
        if self.victim.is_none() {
            self.victim = Some(Victim::start().expect("a second victim starts like the first"));
        }
    }

    /// Has the victim serve one request, asking `hook` before every call of the part under test.
    pub fn round<A: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        patience: Duration,
        hook: &mut Hook<'_>,
    ) -> End<A> {
        self.prepare();
        let victim = self.victim.as_mut().expect("prepared above");
        *self.watch.lock().expect("never poisoned") = Some((victim.pid, Instant::now() + patience));
        let end = victim.round(request, hook);
        let late = self.watch.lock().expect("never poisoned").take().is_none();
        match end {
            End::Answered(_) if !late => end,
            _ => {
                self.victim = None;
                if late { End::Hung } else { end }
            }
        }
    }
}

/// Kills the victim that outlives its deadline; the tracer, asleep in `waitpid`, then sees it die.
fn keep_time(watch: &Weak<Mutex<Option<(Pid, Instant)>>>) {
    while let Some(watch) = watch.upgrade() {
        {
            let mut watched = watch.lock().expect("never poisoned");
            if let Some((pid, deadline)) = *watched
                && Instant::now() > deadline
            {
                *watched = None;
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
        drop(watch);
        thread::sleep(Duration::from_millis(5));
    }
}

impl Victim {
    fn start() -> Result<Self, String> {
        let exe = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(exe)
            .arg(VICTIM)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start a victim: {error}"))?;
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        let requests = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => {}
            other => return Err(format!("ptrace is not allowed here: {other:?}")),
        }
        ptrace::setoptions(pid, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL)
            .map_err(|error| format!("ptrace is not allowed here: {error}"))?;
        Ok(Self { pid, _child: child, requests, answers })
    }

    fn round<A: DeserializeOwned>(&mut self, request: &impl Serialize, hook: &mut Hook<'_>) -> End<A> {
        let request = serde_json::to_string(request).expect("a request is text");
        if writeln!(self.requests, "{request}").is_err() {
            return End::Died("before the request".into());
        }
        if let Some(end) = self.run(hook) {
            return end;
        }
        let mut answer = String::new();
        let _ = self.answers.read_line(&mut answer);
        match serde_json::from_str(&answer) {
            Ok(answer) => End::Answered(answer),
            Err(error) => End::Died(format!("with the answer {answer:?}: {error}")),
        }
    }

    /// Lets the victim run until it waits for the next request, or until its end.
    fn run<A>(&mut self, hook: &mut Hook<'_>) -> Option<End<A>> {
        let mut inside = false;
        let mut index = 0;
        let mut made: HashMap<i64, usize> = HashMap::new();
        let mut entering = true;
        let mut signal = None;
        let mut amend: Option<Amend> = None;
        loop {
            // An error means that it was killed from outside: it is collected below.
            let _ = match inside {
                true => ptrace::syscall(self.pid, signal.take()),
                false => ptrace::cont(self.pid, signal.take()),
            };
            match waitpid(self.pid, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::PtraceSyscall(_)) if entering => {
                    entering = false;
                    let Ok(mut regs) = Registers::of(self.pid) else { continue };
                    let call = Call::of(&regs);
                    if !call.touches_files() {
                        continue;
                    }
                    let before = made.entry(call.number).or_default();
                    let act = hook(&Stop { index, call, nth: *before, pid: self.pid });
                    index += 1;
                    *before += 1;
                    match act {
                        Act::Kill => return Some(self.kill(End::Killed)),
                        _ if index > MOST_CALLS => return Some(self.kill(End::Hung)),
                        Act::Go => {}
                        Act::Release => inside = false,
                        Act::Fail(errno) => {
                            regs.skip_call();
                            let _ = regs.store(self.pid);
                            amend = Some(Amend::Answer(errno));
                        }
                        Act::Shorten(count) => {
                            let asked = regs.count();
                            regs.set_count(count.min(asked));
                            let _ = regs.store(self.pid);
                            amend = Some(Amend::Count(asked));
                        }
                    }
                }
                Ok(WaitStatus::PtraceSyscall(_)) => {
                    entering = true;
                    if let Some(amend) = amend.take()
                        && let Ok(mut regs) = Registers::of(self.pid)
                    {
                        match amend {
                            Amend::Answer(errno) => regs.answer(errno),
                            // The caller expects its registers back as they were.
                            Amend::Count(count) => regs.set_count(count),
                        }
                        let _ = regs.store(self.pid);
                    }
                }
                Ok(WaitStatus::Stopped(_, BEGIN)) => {
                    inside = true;
                    entering = true;
                }
                Ok(WaitStatus::Stopped(_, END)) => inside = false,
                Ok(WaitStatus::Stopped(_, IDLE)) => return None,
                Ok(WaitStatus::Stopped(_, caught)) => signal = Some(caught),
                Ok(WaitStatus::Exited(_, code)) => return Some(End::Died(format!("exit code {code}"))),
                Ok(WaitStatus::Signaled(_, caught, _)) => return Some(End::Died(caught.to_string())),
                Ok(_) => {}
                Err(error) => return Some(End::Died(error.to_string())),
            }
        }
    }

    fn kill<A>(&self, end: End<A>) -> End<A> {
        let _ = kill(self.pid, Signal::SIGKILL);
        self.reap();
        end
    }

    fn reap(&self) {
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Not yet reaped, so the id is still ours; after a reap the kernel answers ESRCH or ECHILD.
        if let Ok(WaitStatus::StillAlive) = waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            let _ = kill(self.pid, Signal::SIGKILL);
            self.reap();
        }
    }
}

enum Amend {
    Answer(Errno),
    Count(u64),
}

/// Reads a NUL-terminated string out of a stopped victim.
fn peek(pid: Pid, address: u64) -> String {
    let mut bytes = Vec::new();
    for word in 0..32 {
        let Ok(value) = ptrace::read(pid, (address + word * 8) as ptrace::AddressType) else { break };
        for byte in value.to_ne_bytes() {
            if byte == 0 {
                return String::from_utf8_lossy(&bytes).into_owned();
            }
            bytes.push(byte);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs the part under test between the two signals.
pub fn marked<T>(part: impl FnOnce() -> T) -> T {
    // Raising a signal to oneself does not fail, and where nobody traces there is nothing to mark.
    let _ = raise(BEGIN);
    let result = part();
    let _ = raise(END);
    result
}

/// Plays the victim of a rig, the role for [`VICTIM`]: serves requests until the controller hangs up.
pub fn be_victim<R: DeserializeOwned, A: Serialize>(answer: impl Fn(&R) -> A) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    if ptrace::traceme().is_err() {
        return ExitCode::FAILURE;
    }
    let mut request = String::new();
    let mut input = std::io::stdin().lock();
    while raise(IDLE).is_ok() {
        request.clear();
        let Ok(1..) = input.read_line(&mut request) else { break };
        let request = serde_json::from_str(&request).expect("the controller's own words");
        println!("{}", serde_json::to_string(&answer(&request)).expect("an answer is text"));
    }
    ExitCode::SUCCESS
}
