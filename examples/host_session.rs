//! A host shares a session with a hostile guest: it delivers, collects, forwards, clears and removes, and prints what was
//! saved, what was refused and why.
//!
//! ```text
//! cargo run --example host_session --features json
//! ```
//!
//! The guest is a second process of this program. It replaces its inbox by a link to the host's home directory as fast
//! as it can, and leaves a link, a hard link, a FIFO and a giant where the host expects files. The program exits with a
//! failure if anything in that home directory was touched.
mod out;

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use beneath::session::{
    Attachment, Delivery, Disposition, MessageLimits, Outcome, SessionsConfig, Ticket, rewrite_message,
};
use beneath::{Budget, MessageId, Root, Session, SessionId, Sessions, ambient_authority};
use out::{is_closed_pipe, out};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const KEY: &str = "-----BEGIN PRIVATE KEY----- do not share";
const LEGEND: &str = "\
saved    the host wrote the file into the session; its size and path
read     the host read the file that the guest had made
refused  nothing was read or written, and why
others   files in the guest's message that it did not declare
removed  how much of a session is gone at once; left: what is not
swept    removed sessions that were cleaned up later
now      the sessions that exist";
const MESSAGE: &str = r#"{
  "text": "four files for you",
  "sent": 1763251200.50,
  "attachments": [
    {"name": "../../../home/.bashrc", "data": "cm0gLXJmIH4K"},
    {"type": "photo", "data": "b25lIHBob3Rv"},
    {"type": "photo", "data": "YW5vdGhlciBwaG90bw=="},
    {"name": "broken.pdf", "mimeType": "application/pdf", "data": "JVBERi0xLjQ*"}
  ]
}"#;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let done = match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (Some("guest"), Some(shared), Some(home)) => guest(Path::new(&shared), Path::new(&home)),
        _ => host(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn host() -> Result<()> {
    let place = tempfile::tempdir()?;
    let home = Home::new(place.path().join("home"))?;
    let sessions_path = place.path().join("sessions");
    fs::create_dir(&sessions_path)?;
    let config = SessionsConfig::default()
        .with_outbox(MessageLimits::default().with_file_bytes(1 << 20))
        .with_budget(Budget::default().with_time(Duration::from_secs(2)));
    let sessions = Sessions::new(Root::open_ambient(&sessions_path, ambient_authority())?, config);
    let (agent, colleague) = (SessionId::new("agent"), SessionId::new("colleague"));
    let session = sessions.create_new(&agent)?;
    let other = sessions.create_new(&colleague)?;
    let shared = sessions_path.join("agent/guest");
    out(LEGEND)?;

    out("\nA message arrives for the agent, with four attachments:")?;
    let id = MessageId::new("m-42");
    let (rewritten, delivery) = rewrite_message(&session.inbox(), &id, MESSAGE);
    report(&delivery)?;
    out(format!("\nThe message as the agent gets it:\n{rewritten}"))?;

    let mut guest = Guest::start(&shared, home.path())?;
    out("\nThe guest starts. Without pause it exchanges its inbox for a link to the host's home directory:")?;
    deliver_under_attack(&session)?;

    out("\nThe guest has sent message 7 and declares six files, one of them twice:")?;
    collect_and_forward(&session, &other)?;

    out("\nThe session is removed while the guest is still running in it:")?;
    drop(session);
    let removed = sessions.remove(&agent)?;
    out(format!("  removed  {} files and {} directories", removed.files, removed.directories))?;
    if !removed.is_complete() {
        out("  left     what the guest has created meanwhile; the next sweep removes it")?;
    }
    guest.end();
    let swept = sessions.sweep(Duration::from_secs(3600))?;
    out(format!(
        "  swept    {} removed sessions after the guest was stopped, {} left",
        swept.removed, swept.left.total
    ))?;
    let left = sessions.list()?;
    out(format!("  now      {}", left.iter().map(SessionId::as_str).collect::<Vec<_>>().join(", ")))?;

    home.check(&sessions_path)?;
    out("\nThe host's home directory is unchanged, and its key is in no session.")?;
    Ok(())
}

fn report(delivery: &Delivery) -> std::io::Result<()> {
    lines(delivery).iter().try_for_each(out)
}

fn lines(delivery: &Delivery) -> Vec<String> {
    let line = |outcome: &Outcome| match outcome {
        Outcome::Saved(file) | Outcome::AlreadySaved(file) => {
            format!("  saved    {:>3} B  {}", file.bytes, file.guest_path)
        }
        Outcome::Refused(error) => format!("  refused  {error}"),
        other => format!("  {other:?}"),
    };
    delivery.outcomes().iter().map(line).collect()
}

fn deliver_under_attack(session: &Session) -> Result<()> {
    let (mut saved, mut refused, mut reason) = (0, 0, String::new());
    let start = Instant::now();
    for number in 0.. {
        // Until both have happened often enough to be seen.
        if (saved >= 1000 && refused >= 1000) || start.elapsed() > Duration::from_secs(3) {
            break;
        }
        let attachment = Attachment::from_bytes("for your eyes").with_name("note.txt");
        let delivery = session.inbox().deliver(&MessageId::new(format!("m{number}")), [attachment]);
        match delivery.refused().next() {
            None => saved += 1,
            Some((_, error)) => {
                refused += 1;
                reason = error.to_string();
            }
        }
    }
    out(format!("  saved    {saved} of {} deliveries", saved + refused))?;
    out(format!("  refused  {refused}, the last one: {reason}"))?;
    Ok(())
}

fn collect_and_forward(session: &Session, other: &Session) -> Result<()> {
    let declared = ["report.txt", "key", "key2", "pipe", "giant", "../../host/state/lock", "report.txt"];
    let lock = session.try_lock()?;
    // A service keeps this in its database, so that no crash makes it send a message twice.
    let mut ledger: HashSet<Ticket> = HashSet::new();
    let mut seen = Vec::new();
    let report = session.outbox().collect(&lock, &mut ledger, |claim| {
        for file in claim.read(declared)?.files {
            seen.push(match file.content {
                Ok(bytes) => {
                    format!("  read     {:>3} B  {}", bytes.len(), file.name.to_string_lossy().escape_debug())
                }
                Err(error) => format!("  refused  {error}"),
            });
        }
        for entry in claim.undeclared(declared)?.entries {
            seen.push(format!("  others   {}", entry.name.to_string_lossy().escape_debug()));
        }
        seen.push("\nThe host forwards two of the files to a colleague's session:".into());
        seen.extend(lines(&claim.forward(
            ["report.txt", "key"],
            &other.inbox(),
            &MessageId::new("from-agent-7"),
        )?));
        Ok::<_, Box<dyn Error>>(Disposition::Done)
    })?;
    if report.done != 1 {
        return Err(format!("the guest's message is not there: {report:?}").into());
    }
    seen.iter().try_for_each(out)?;
    out(format!(
        "\nMessages collected: {}, still pending: {}.",
        report.done,
        session.outbox().pending()?.total
    ))?;
    Ok(())
}

/// What must not be touched.
struct Home {
    path: PathBuf,
    before: Vec<Seen>,
}

type Seen = (PathBuf, u64, u32, i64, i64, Vec<u8>);

impl Home {
    fn new(path: PathBuf) -> Result<Self> {
        fs::create_dir_all(path.join(".ssh"))?;
        fs::write(path.join(".ssh/id_rsa"), KEY)?;
        fs::write(path.join("notes.txt"), "buy milk")?;
        // The guest links to it, which changes its count of names: done here, so that it is part of the picture.
        fs::hard_link(path.join(".ssh/id_rsa"), path.join("linked"))?;
        let before = look(&path)?;
        Ok(Self { path, before })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn check(&self, sessions: &Path) -> Result<()> {
        if look(&self.path)? != self.before {
            return Err("the host's home directory was touched".into());
        }
        if look(sessions)?.iter().any(|(.., content)| content == KEY.as_bytes()) {
            return Err("the host's key was copied into a session".into());
        }
        Ok(())
    }
}

/// Every entry with inode, mode, times and content.
fn look(path: &Path) -> Result<Vec<Seen>> {
    let entry = fs::symlink_metadata(path)?;
    let content = if entry.is_file() { fs::read(path)? } else { Vec::new() };
    // The time of the last change of the inode is left out for files: giving one a second name, as the guest may where
    // the kernel lets it, changes that and nothing else.
    let changed = if entry.is_file() { (0, 0) } else { (entry.ctime(), entry.ctime_nsec()) };
    let mut seen = vec![(path.to_path_buf(), entry.ino(), entry.mode(), changed.0, changed.1, content)];
    if entry.is_dir() {
        for child in fs::read_dir(path)? {
            seen.extend(look(&child?.path())?);
        }
    }
    seen.sort();
    Ok(seen)
}

/// The guest's process, ended with this.
struct Guest(Child);

impl Guest {
    fn start(shared: &Path, home: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("guest").arg(shared).arg(home).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("the guest has no output")?;
        let guest = Self(child);
        BufReader::new(output).read_line(&mut String::new())?;
        Ok(guest)
    }

    fn end(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the guest does, until it is killed.
fn guest(shared: &Path, home: &Path) -> Result<()> {
    use rustix::fs::{Mode, OFlags, RenameFlags, openat, renameat_with};
    let message = shared.join("outbox/7");
    fs::create_dir(&message)?;
    fs::write(message.join("report.txt"), "all is well")?;
    symlink(home.join(".ssh/id_rsa"), message.join("key"))?;
    fs::hard_link(home.join("linked"), message.join("key2"))?;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, message.join("pipe"), fifo, Mode::from_raw_mode(0o666), 0)?;
    fs::File::create(message.join("giant"))?.set_len(1 << 40)?;
    fs::write(message.join("hidden\u{202e}fdp.exe"), "")?;
    symlink(home, shared.join("decoy"))?;
    let open = |path| rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty());
    let (dir, workspace) = (open(shared.to_path_buf())?, open(shared.join("workspace"))?);
    out("ready")?;
    for number in 0_u64.. {
        // Whatever fails, the next round may not.
        let _ = renameat_with(&dir, "inbox", &dir, "decoy", RenameFlags::EXCHANGE);
        if number.is_multiple_of(16) {
            let _ = openat(&workspace, format!("f{number}"), OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
        }
        (0..number % 65_536).for_each(|_| std::hint::spin_loop());
    }
    Ok(())
}
