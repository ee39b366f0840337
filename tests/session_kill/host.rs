//! The host that dies, and the one that takes over.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use beneath::session::{Attachment, Collection, Disposition, Ledger, SessionsConfig, Ticket};
use beneath::{
    Durability, Error, ErrorKind, MessageId, Policy, ResolverChoice, Root, Session, SessionId, Sessions,
    ambient_authority,
};
pub(crate) use beneath_kit::namespace::another_file_system;
pub(crate) use beneath_kit::snapshot::names;

pub(crate) const FILES: [(&str, u8, usize); 2] = [("one.bin", 1, 150_000), ("two.bin", 2, 70_000)];

pub(crate) fn id(name: &str) -> SessionId {
    SessionId::new(name)
}

pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}

/// What a directory holds where a host may have died before it was made.
pub(crate) fn names_if_any(path: &Path) -> Vec<String> {
    if path.exists() { names(path) } else { Vec::new() }
}

pub(crate) fn sessions(dir: &Path, resolver: ResolverChoice) -> Sessions {
    let root = Root::open_ambient(dir, ambient_authority()).unwrap();
    Sessions::new(root, SessionsConfig::default().with_resolver(resolver))
}

pub(crate) fn sessions_work(dir: &Path, resolver: ResolverChoice, work: fn(&Sessions)) -> Box<dyn FnOnce()> {
    let sessions = sessions(dir, resolver);
    Box::new(move || work(&sessions))
}

pub(crate) fn session(dir: &Path, resolver: ResolverChoice) -> Session {
    sessions(dir, resolver).create(&id("s")).unwrap().0
}

pub(crate) fn durable_session(dir: &Path) -> Session {
    let root = Root::open_ambient(dir, ambient_authority()).unwrap();
    let sessions = Sessions::new(root, SessionsConfig::default().with_durability(Durability::Full));
    sessions.open(&id("s")).unwrap()
}

pub(crate) fn has_sent(dir: &Path) -> bool {
    !names_if_any(&dir.join("s/host/sent")).is_empty()
}

/// Where the host's side is if messages cannot be moved to it.
pub(crate) fn elsewhere(dir: &Path) -> PathBuf {
    let place = another_file_system(dir).expect("looked for before");
    place.join(format!("beneath-kill-{}", dir.file_name().unwrap().display()))
}

pub(crate) fn session_in_place(dir: &Path, resolver: ResolverChoice) -> Session {
    let open = |path: &Path| {
        fs::create_dir_all(path).unwrap();
        let root = Root::open_ambient(path, ambient_authority()).unwrap();
        root.with_policy(Policy::default().with_resolver(resolver))
    };
    let session = Session::from_roots(open(&dir.join("s/guest")), open(&elsewhere(dir))).unwrap();
    let _ = session.repair().unwrap();
    session
}

pub(crate) fn attachments() -> impl Iterator<Item = Attachment<'static>> {
    static ONE: [u8; 150_000] = [1; 150_000];
    static TWO: [u8; 70_000] = [2; 70_000];
    [
        Attachment::from_bytes(&ONE).with_name("one.bin"),
        Attachment::from_reader(TWO.as_slice()).with_name("two.bin"),
    ]
    .into_iter()
}

pub(crate) fn send_message(dir: &Path) {
    fs::create_dir(dir.join("s/guest/outbox/42")).unwrap();
    for (name, byte, length) in FILES {
        fs::write(dir.join("s/guest/outbox/42").join(name), vec![byte; length]).unwrap();
    }
}

pub(crate) fn prepare_message(dir: &Path) {
    session(dir, ResolverChoice::Auto);
    send_message(dir);
}

/// A message that another host has claimed before it died.
pub(crate) fn prepare_pending(dir: &Path) {
    prepare_message(dir);
    let claim = session(dir, ResolverChoice::Auto).outbox().claim(&MessageId::new("42")).unwrap();
    assert_eq!(claim.unwrap().attempts(), 1);
}

/// A ledger in which sending and recording are one step: the file is there whole or not at all. It is made when the loop
/// records, so that a loop which has removed the message by then loses it to whoever kills it in between.
struct Sent<'s> {
    host: &'s Root,
    read: &'s RefCell<Vec<u8>>,
}

fn sent(ticket: &Ticket) -> PathBuf {
    Path::new("sent").join(ticket.as_str())
}

impl Ledger<Error> for Sent<'_> {
    fn contains(&mut self, ticket: &Ticket) -> beneath::Result<bool> {
        match self.host.metadata(sent(ticket)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn record(&mut self, ticket: &Ticket) -> beneath::Result<()> {
        self.host.write_exclusive(sent(ticket), self.read.take())
    }
}

pub(crate) fn collect_all(session: &Session) -> Collection<Error> {
    session.host().ensure_dir("sent").unwrap();
    // A victim that another thread starts meanwhile has the lock of the turn before until it runs its program.
    let lock = session.lock_within(Duration::from_secs(60)).unwrap();
    let read = RefCell::default();
    let mut ledger = Sent { host: session.host(), read: &read };
    let collected = session.outbox().collect(&lock, &mut ledger, |claim| {
        let collected = claim.read(FILES.map(|(name, ..)| name))?;
        read.replace(collected.found().flat_map(|(_, bytes)| bytes.clone()).collect());
        Ok(Disposition::Done)
    });
    collected.unwrap()
}
