//! A host, a guest in bubblewrap that shares the queue with it and nothing else, and `curl`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use beneath_kit::child::wait_until;
use beneath_kit::env;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where the guest has the queue.
const QUEUE: &str = "/queue";

/// A process that is killed when the test ends.
pub(crate) struct Process {
    child: Child,
    /// What it says on stderr.
    said: NamedTempFile,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let said = NamedTempFile::new().unwrap();
        let child = command.stdout(Stdio::piped()).stderr(said.reopen().unwrap()).spawn().unwrap();
        Self { child, said }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether it has said that on stderr.
    pub(crate) fn has_said(&self, words: &str) -> bool {
        fs::read_to_string(self.said.path()).unwrap().contains(words)
    }

    /// SIGKILL, and its end.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// How it ended, and what it had to say.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        (status, fs::read_to_string(self.said.path()).unwrap())
    }

    /// The first line that it prints.
    fn first_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer that `curl` got.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) outcome: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// Says why, or fails if nothing may skip.
fn skip(why: &str) -> Option<World> {
    assert!(!env::BRIDGE.is_set(), "{why}");
    println!("skipped: {why}");
    None
}

/// A session, the data of the host, and what no guest may reach.
pub(crate) struct World {
    dir: TempDir,
    token: String,
    guest: Option<(Process, String)>,
}

impl World {
    /// None, with the reason on stdout, where a tool is missing.
    pub(crate) fn new() -> Option<Self> {
        for (tool, argument) in [("curl", "--version"), ("bwrap", "--version")] {
            if Command::new(tool).arg(argument).stdout(Stdio::null()).status().is_err() {
                return skip(&format!("there is no {tool}"));
            }
        }
        let dir = tempfile::tempdir().unwrap();
        for place in ["sessions", "data", "outside"] {
            fs::create_dir(dir.path().join(place)).unwrap();
        }
        fs::write(dir.path().join("outside/canary.json"), "canary").unwrap();
        let token = Command::new(env!("CARGO_BIN_EXE_bridge_host")).arg("token").output().unwrap();
        let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
        let world = Self { dir, token, guest: None };
        fs::create_dir_all(world.queue()).unwrap();
        let tried = world.sandbox().args(["sh", "-c", "true"]).output().unwrap();
        if !tried.status.success() {
            let said = String::from_utf8_lossy(&tried.stderr);
            return skip(&format!("bwrap does not work here: {}", said.trim()));
        }
        // The host makes it.
        fs::remove_dir_all(world.path("sessions/s")).unwrap();
        Some(world)
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// The queue as the host sees it.
    pub(crate) fn queue(&self) -> PathBuf {
        self.path("sessions/s/guest/queue")
    }

    /// How many files are in a directory of the queue.
    pub(crate) fn waiting(&self, directory: &str) -> usize {
        fs::read_dir(self.queue().join(directory)).unwrap().count()
    }

    /// What handlers have begun, one line each.
    pub(crate) fn journal(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("data/journal")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn wait_for_journal(&self, lines: usize) {
        wait_until("a handler begins", PATIENCE, || self.journal().len() >= lines);
    }

    /// Starts a host, and returns once it serves.
    pub(crate) fn host(&self, options: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bridge_host"));
        command.arg(self.path("sessions")).arg("s").arg(self.path("data")).args(options);
        let mut host = Process::start(&mut command);
        assert_eq!(host.first_line().trim(), "serving");
        host
    }

    /// A command in the guest: the system's programs, the queue, and the loopback address.
    fn sandbox(&self) -> Command {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-all", "--share-net", "--die-with-parent", "--new-session"]);
        command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        for place in ["/usr", "/bin", "/lib", "/lib64"] {
            match fs::read_link(place) {
                Ok(target) => command.arg("--symlink").arg(target).arg(place),
                Err(_) if Path::new(place).exists() => command.args(["--ro-bind", place, place]),
                Err(_) => &mut command,
            };
        }
        command.arg("--ro-bind").arg(env!("CARGO_BIN_EXE_bridge_guest")).arg("/tmp/bridge_guest");
        command.arg("--bind").arg(self.queue()).arg(QUEUE).args(["--chdir", QUEUE]);
        command.env("BRIDGE_TOKEN", &self.token);
        command
    }

    /// Starts the server in the guest, after the host has made the queue.
    pub(crate) fn guest(&mut self, options: &[&str]) {
        let mut command = self.sandbox();
        command.args(["/tmp/bridge_guest", QUEUE, "127.0.0.1:0"]).args(options);
        let mut server = Process::start(&mut command);
        let line = server.first_line();
        let address = line.trim().strip_prefix("listening on ").expect("the server says where it listens");
        self.guest = Some((server, address.to_owned()));
    }

    /// Runs a script in the guest, in the queue's directory.
    pub(crate) fn in_guest(&self, script: &str) -> Output {
        let output = self.sandbox().args(["sh", "-euc", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Puts a link to `target` in the place of a directory of the queue.
    pub(crate) fn plant_link(&self, directory: &str, target: &Path) {
        let target = target.display();
        // The host may make the directory again in between.
        self.in_guest(&format!(
            "n=0; until ln -sT '{target}' {directory} 2>/dev/null; do n=$((n + 1)); mv -T {directory} aside$n; done"
        ));
    }

    /// Asks with the token.
    pub(crate) fn curl(&self, path: &str, options: &[&str]) -> Answer {
        let token = format!("authorization: Bearer {}", self.token);
        self.curl_as(Some(&token), path, options)
    }

    /// Asks with JSON as the body.
    pub(crate) fn post(&self, path: &str, json: &str) -> Answer {
        self.curl(path, &["-H", "content-type: application/json", "-d", json])
    }

    /// Asks with that header in place of the token's.
    pub(crate) fn curl_as(&self, token: Option<&str>, path: &str, options: &[&str]) -> Answer {
        let mut command = self.curl_command(path, options);
        if let Some(token) = token {
            command.args(["-H", token]);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "curl: {}: {said}", output.status);
        let end = output.stdout.iter().rposition(|byte| *byte == b'\n').unwrap();
        let (body, written) = output.stdout.split_at(end);
        let written = String::from_utf8_lossy(written);
        let (status, outcome) = written.trim().split_once(' ').unwrap_or((written.trim(), ""));
        Answer { status: status.parse().unwrap(), outcome: outcome.to_owned(), body: body.to_vec() }
    }

    fn curl_command(&self, path: &str, options: &[&str]) -> Command {
        let (_, address) = self.guest.as_ref().expect("the guest's server runs");
        let mut command = Command::new("curl");
        command.args(["-sS", "--noproxy", "*", "--path-as-is", "--max-time", "50"]);
        command.args(["-w", "\n%{http_code} %header{x-bridge-outcome}"]).args(options);
        // Braces would be patterns of curl's own.
        command.args(["--globoff", &format!("{address}{path}")]);
        command
    }

    /// A client that is killed before it is answered.
    pub(crate) fn curl_that_goes(&self, path: &str, options: &[&str]) -> Process {
        let mut command = self.curl_command(path, options);
        command.args(["-H", &format!("authorization: Bearer {}", self.token)]);
        Process::start(&mut command)
    }

    /// Nothing outside of the session has changed.
    pub(crate) fn check_outside(&self) {
        let outside = self.path("outside");
        let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["canary.json"]);
        assert_eq!(fs::read_to_string(outside.join("canary.json")).unwrap(), "canary");
    }
}
