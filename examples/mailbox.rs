//! A host and two guests exchange messages through SQLite: one is honest, the other plants a journal, a FIFO, a link and a
//! hostile schema where the host reads. Prints what has arrived and what was refused.
//!
//! ```text
//! cargo run --example mailbox --features mailbox
//! ```
//!
//! Each guest is a second process of this program, which opens the databases with its own SQLite. The program exits with a failure
//! if the file of the host that the journal names is gone, or if a message has come into another session.
mod out;

use std::error::Error;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::SystemTime;

use beneath::mailbox::{Delivered, Inbound, Mailbox, Post, Routing, SessionKey, SessionMode, resolve};
use beneath::session::Attachment;
use beneath::{MessageId, MountPoint, Root, Session, Sessions, SessionsConfig, ambient_authority};
use out::{is_closed_pipe, out};
use rusqlite::{Connection, OpenFlags};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LEGEND: &str = "\
first    whether the session was made, and what the next one gets
put      the host has given the guest a message; its number and files
guest    what the guest has seen or done, in a process of its own
settled  messages that the guest has done, which no other guest gets
sent     the host has taken a message of the guest's, sent and marked it
refused  nothing was read, written or deleted, and why
checked  what the attack was aimed at, afterwards";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let done = match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (Some("honest"), Some(session), _) => honest(Path::new(&session)),
        (Some(attack), Some(session), Some(target)) => {
            hostile(attack, Path::new(&session), Path::new(&target))
        }
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
    let important = place.path().canonicalize()?.join("important.txt");
    fs::write(&important, "dear to the host")?;
    fs::create_dir(place.path().join("sessions"))?;
    let config = SessionsConfig::default().with_share(MountPoint::new("/share")?);
    let root = Root::open_ambient(place.path().join("sessions"), ambient_authority())?;
    let sessions = Sessions::new(root, config);
    out(LEGEND)?;

    out("\nA conversation gets its session. Who asks at the same time gets the same one:")?;
    let key = SessionKey::new("agents").in_group("room-7").with_thread("t-1");
    let (session, how) = resolve(&sessions, &key, SessionMode::PerThread)?;
    let (again, existed) = resolve(&sessions, &key, SessionMode::PerThread)?;
    out(format!("  first    {how:?}; then {existed:?}"))?;
    drop(again);
    let mailbox = Mailbox::open(&session)?;
    mailbox.set_routing(&Routing::default().with_channel("chat").with_platform("room-7"))?;

    out("\nTwo messages arrive for the guest, one with files:")?;
    let files = [
        Attachment::from_bytes("\u{89}PNG").with_name("../../photo.png"),
        Attachment::from_bytes("cut").with_name("cut.pdf").with_declared_size(4096),
    ];
    let photo = Inbound::new(&MessageId::new("m-1"), "chat", "What is in the photo?").with_attachments(files);
    for message in [photo, Inbound::new(&MessageId::new("m-2"), "chat", "Good night!")] {
        let put = mailbox.put(message)?;
        out(format!("  put      number {}", put.seq))?;
        for file in put.delivery.iter().flat_map(|delivery| delivery.files()) {
            out(format!("  put      {}", file.guest_path))?;
        }
        for (_, error) in put.refused() {
            out(format!("  refused  {error}"))?;
        }
    }

    let dir = directory_of(&session)?;
    out("\nThe honest guest reads them and answers:")?;
    guest(&["honest".as_ref(), dir.as_ref()])?;
    let settled = mailbox.settle()?;
    out(format!(
        "  settled  {} of its messages; {} wait for a guest",
        settled.completed,
        mailbox.due(SystemTime::now())?
    ))?;
    send_all(&mailbox)?;
    mailbox.post(&Post::new(&MessageId::new("bye"), "chat", "The agent was ended."))?;
    send_all(&mailbox)?;
    guest(&["honest".as_ref(), dir.as_ref()])?;

    let (other, _) = resolve(&sessions, &key.with_thread("t-2"), SessionMode::PerThread)?;
    let others = Mailbox::open(&other)?;
    let victim = directory_of(&other)?.join("guest/outbound.db");
    for (attack, what, target) in [
        ("journal", "a journal that has SQLite delete the host's important.txt", &important),
        ("fifo", "a FIFO in place of the journal, which SQLite waits for without end", &important),
        ("link", "a link to the database of another session", &victim),
        ("schema", "a view in place of the table, which computes without end", &important),
    ] {
        out(format!("\nA guest plants {what}:"))?;
        guest(&[attack.as_ref(), dir.as_ref(), target.as_ref()])?;
        send_all(&mailbox)?;
        if !important.exists() {
            return Err("important.txt is gone".into());
        }
        out("  checked  important.txt is there")?;
    }
    let lock = other.try_lock()?;
    let taken = others.take(&lock, 10)?;
    if !taken.messages.is_empty() || !taken.is_complete() {
        return Err(format!("the other session was reached: {taken:?}").into());
    }
    out("  checked  nothing has come into the other session")?;
    Ok(())
}

/// The documented loop, with a receiver that takes everything.
fn send_all(mailbox: &Mailbox) -> Result<()> {
    let lock = mailbox.session().try_lock()?;
    let taken = mailbox.take(&lock, 16)?;
    for message in &taken.messages {
        mailbox.mark(message, Delivered::Trying)?;
        out(format!("  sent     number {}: {}", message.seq, message.content.escape_debug()))?;
        mailbox.mark(message, Delivered::Done)?;
    }
    for (_, error) in taken.refused() {
        out(format!("  refused  {error}"))?;
    }
    Ok(())
}

/// Where a session is, for the guest of this example. A real one is given mounts: see `Session::to_mount`.
fn directory_of(session: &Session) -> Result<std::path::PathBuf> {
    let mounts = session.to_mount(ambient_authority())?;
    let guest = mounts.first().ok_or("a session has a guest's directory")?;
    Ok(guest.source.parent().ok_or("it is in that of the session")?.to_path_buf())
}

/// Runs a guest to its end, and prints what it says.
fn guest(arguments: &[&std::ffi::OsStr]) -> Result<()> {
    let output = Command::new(std::env::current_exe()?).args(arguments).output()?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        out(format!("  guest    {line}"))?;
    }
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(())
}

/// Reads what is new, answers each, and forgets its own messages that have arrived.
fn honest(session: &Path) -> Result<()> {
    let inbound =
        Connection::open_with_flags(session.join("share/inbound.db"), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let outbound = Connection::open(session.join("guest/outbound.db"))?;
    outbound.execute_batch(beneath::mailbox::OUTBOUND_SCHEMA)?;
    let mut delivered = inbound.prepare("SELECT id, outcome FROM delivered ORDER BY id")?;
    let mut rows = delivered.query(())?;
    while let Some(row) = rows.next()? {
        let (id, outcome): (String, String) = (row.get(0)?, row.get(1)?);
        outbound.execute("DELETE FROM messages_out WHERE id = ?1", [&id])?;
        out(format!("{id}: {outcome}"))?;
    }
    let mut pending =
        inbound.prepare("SELECT id, seq, content FROM messages_in WHERE status = 'pending' ORDER BY seq")?;
    let mut rows = pending.query(())?;
    while let Some(row) = rows.next()? {
        let (id, seq, content): (String, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        out(format!("reads number {seq}: {content}"))?;
        let answer =
            "INSERT INTO messages_out (id, seq, kind, content, in_reply_to) VALUES (?1, ?2, 'chat', ?3, ?4)";
        outbound
            .execute(answer, (format!("re-{id}"), 1000 + seq + 1, format!("You said: {content}"), &id))?;
        outbound.execute("INSERT OR REPLACE INTO acks VALUES (?1, 'completed', 0)", [&id])?;
    }
    Ok(())
}

/// Plants one thing, and takes away what an earlier guest has planted.
fn hostile(attack: &str, session: &Path, target: &Path) -> Result<()> {
    let (database, journal) = (session.join("guest/outbound.db"), session.join("guest/outbound.db-journal"));
    for path in [&database, &journal] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    match attack {
        "link" => return Ok(symlink(target, &database)?),
        "schema" => {
            let view =
                "CREATE VIEW messages_out AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                        SELECT 'x' AS id, i AS seq, 'chat' AS kind, 'x' AS content FROM n WHERE i < 0";
            return Ok(Connection::open(&database)?.execute_batch(view)?);
        }
        _ => {}
    }
    let guest = Connection::open(&database)?;
    guest.execute_batch(beneath::mailbox::OUTBOUND_SCHEMA)?;
    drop(guest);
    if attack == "fifo" {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        return Ok(rustix::fs::mkfifoat(rustix::fs::CWD, &journal, mode)?);
    }
    // The end of a journal names the journal of a transaction over several databases, which SQLite deletes in the end.
    let name = target.as_os_str().as_bytes();
    let sum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
    let mut bytes = vec![b'X'; 512];
    bytes.extend(1_u32.to_be_bytes());
    bytes.extend(name);
    bytes.extend(u32::try_from(name.len())?.to_be_bytes());
    bytes.extend(sum.to_be_bytes());
    bytes.extend([0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    Ok(fs::write(&journal, bytes)?)
}
