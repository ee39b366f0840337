//! The calls of a session, as a host makes them.

use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use beneath::session::{Attachment, Claim, Hardening, LimitedFile, Place, harden_tree};
use beneath::{
    Access, Error, ErrorKind, MessageId, ResolverChoice, Root, Session, SessionId, Sessions,
    ambient_authority,
};
use beneath_kit::canary::Canary;
use beneath_kit::race::{Outcome, elsewhere};
use beneath_kit::scene::CANARY;
use tempfile::TempDir;

use super::stage::sessions;
use super::{Call, Exchange, INSIDE, MESSAGE, Play, SESSION};

pub(super) struct Victim {
    play: Play,
    sessions: Sessions,
    session: SessionId,
    message: MessageId,
    /// Where the host's side is if it is not to be on the guest's file system.
    elsewhere: Option<TempDir>,
}

impl Victim {
    pub(super) fn new(play: Play, resolver: ResolverChoice, base: &Path) -> io::Result<Self> {
        Ok(Self {
            play,
            elsewhere: if play.call == Call::InPlace { elsewhere(base)? } else { None },
            sessions: sessions(base, resolver)?,
            session: SessionId::new(SESSION),
            message: MessageId::new(MESSAGE),
        })
    }

    pub(super) fn call(&self, turn: u64, canary: &Canary) -> Outcome {
        self.run(turn, canary).unwrap_or_else(|error| refusal(&error))
    }

    fn run(&self, turn: u64, canary: &Canary) -> beneath::Result<Outcome> {
        if self.play.call == Call::Remove {
            let removed = self.sessions.remove(&self.session)?;
            return Ok(whole(removed.is_complete(), &removed));
        }
        let session = self.sessions.open(&self.session)?;
        match self.play.call {
            Call::Deliver => Ok(self.deliver(&session, turn)),
            Call::Harden => harden(&session, turn),
            Call::InPlace => {
                // The message was made a moment ago, and the guest has its turn before it is claimed.
                std::thread::sleep(Duration::from_micros(1));
                let outcome = self.collect_in_place(&session, turn, canary);
                if !matches!(outcome, Ok(Outcome::Ok)) {
                    // A refusal takes a fraction of what a success takes, and would be most of the calls: look a while
                    // whether the guest puts the message back.
                    let path = format!("outbox/{}", self.message);
                    let _ = (0..50).find(|_| session.guest().metadata(&path).is_ok());
                }
                outcome
            }
            call => {
                let Some(claim) = session.outbox().claim(&self.message)? else {
                    return Ok(Outcome::Wrong("the message was not there".into()));
                };
                let outcome = match call {
                    Call::Collect => collect(&claim, turn, canary)?,
                    _ => Outcome::Ok,
                };
                let done = match (self.play.exchange.keeps_message(), call, turn % 2) {
                    (true, ..) => claim.release().map(|()| Outcome::Ok)?,
                    // Gives it back through the outbox that the guest exchanges, and takes it out again.
                    (false, Call::Collect, 1) => release(claim, &session)?,
                    _ => clear(claim),
                };
                Ok(outcome.then(done))
            }
        }
    }

    fn deliver(&self, session: &Session, turn: u64) -> Outcome {
        let attachment = match turn % 2 {
            0 => Attachment::from_bytes(INSIDE),
            _ => Attachment::from_reader(INSIDE),
        };
        let delivery = session.inbox().deliver(&self.message, [attachment.with_name("w")]);
        match delivery.outcomes() {
            [beneath::session::Outcome::Saved(file)] if file.path == "inbox/c/w" => Outcome::Ok,
            [beneath::session::Outcome::Refused(error)] => refusal(error),
            other => Outcome::Wrong(format!("{other:?}")),
        }
    }

    fn collect_in_place(&self, session: &Session, turn: u64, canary: &Canary) -> beneath::Result<Outcome> {
        let Some(elsewhere) = &self.elsewhere else {
            return Ok(Outcome::Wrong("there is no other file system".into()));
        };
        let policy = session.host().policy().clone();
        let host = Root::open_ambient(elsewhere.path(), ambient_authority())?.with_policy(policy);
        let session = Session::from_roots(session.guest().try_clone()?, host)?;
        let Some(claim) = session.outbox().claim(&self.message)? else {
            // It was cleared while the guest kept it from being removed, and is not given out again.
            return Ok(Outcome::Refused);
        };
        if claim.place() != Place::InPlace(ErrorKind::CrossDevice) {
            return Ok(Outcome::Wrong(format!("the message was {:?}", claim.place())));
        }
        let exchange = self.play.exchange;
        let outcome = match exchange {
            Exchange::DirLink => Outcome::Ok,
            _ => match collect(&claim, turn, canary)? {
                // The guest has kept the directory while it was cleared, and shows it again.
                Outcome::Wrong(_) if exchange == Exchange::Message && is_empty(&claim)? => Outcome::Refused,
                outcome => outcome,
            },
        };
        if exchange.keeps_message() {
            claim.release()?;
            return Ok(outcome);
        }
        let removed = claim.clear();
        let explained = |kind| is_exchange(kind) || is_back(kind);
        Ok(outcome.then(match removed.left.first.iter().all(|left| explained(left.error.kind())) {
            true if !removed.is_complete() => Outcome::Refused,
            _ => whole(removed.is_complete(), &removed),
        }))
    }
}

fn release(claim: Claim, session: &Session) -> beneath::Result<Outcome> {
    let Err(error) = claim.release() else { return Ok(Outcome::Ok) };
    // A claim that could not be given back is pending, and nothing is lost.
    let pending = session.outbox().pending()?;
    if (pending.entries.len(), pending.total) != (1, 1) {
        return Ok(Outcome::Wrong(format!("not one claim is pending: {pending:?}")));
    }
    match pending.entries.into_iter().map(clear).find(|cleared| !matches!(cleared, Outcome::Ok)) {
        Some(wrong) => Ok(wrong),
        None => Err(error),
    }
}

fn clear(claim: Claim) -> Outcome {
    let cleared = claim.clear();
    whole(cleared.is_complete(), &cleared)
}

fn whole(complete: bool, report: &dyn std::fmt::Debug) -> Outcome {
    if complete { Outcome::Ok } else { Outcome::Wrong(format!("{report:?}")) }
}

fn collect(claim: &Claim, turn: u64, canary: &Canary) -> beneath::Result<Outcome> {
    let content = match turn % 4 {
        0 | 1 => claim.read(["f"])?.files.pop().map(|file| file.content),
        _ => claim.open(["f"])?.files.pop().map(|file| file.content.map(|file| drain(file, canary))),
    };
    Ok(match content {
        Some(Ok(content)) if content == INSIDE => Outcome::Ok,
        Some(Ok(content)) if content.starts_with(CANARY.as_bytes()) => {
            Outcome::Escaped("collected the canary".into())
        }
        Some(Err(error)) => refusal(&error),
        other => Outcome::Wrong(format!("collected {other:?}, which nobody sent")),
    })
}

/// The content, or the canary's if the inode is outside.
fn drain(mut file: LimitedFile, canary: &Canary) -> Vec<u8> {
    let mut content = Vec::new();
    let read = file.read_to_end(&mut content);
    let file = file.into_contained();
    match (canary.holds(file.metadata().dev(), file.metadata().ino()), read) {
        (true, _) => CANARY.as_bytes().to_vec(),
        (false, Ok(_)) => content,
        (false, Err(error)) => error.to_string().into_bytes(),
    }
}

fn harden(session: &Session, turn: u64) -> beneath::Result<Outcome> {
    // In turns, so that there is something to change.
    let access = if turn.is_multiple_of(2) { Access::shared() } else { Access::private() };
    let report = harden_tree(session.guest(), "workspace", Hardening::new(access))?;
    // An entry that was exchanged twice under way is a directory to one look and a file to the next; one that comes and goes
    // without pause is given up.
    // What the guest swaps in is left alone, and said so.
    let swapped = |kind| matches!(kind, ErrorKind::HardLinked | ErrorKind::NotRegular);
    let mut failed = report.refused().map(|(_, error)| error.kind()).filter(|kind| !swapped(*kind));
    let explained = failed.all(|kind| matches!(kind, ErrorKind::NotDirectory | ErrorKind::Busy));
    Ok(match (report.left.total - report.hard_links - report.special, explained && !report.truncated) {
        // Never complete, since the guest works in the tree meanwhile.
        (0, true) => Outcome::Ok,
        (_, true) => Outcome::Refused,
        (_, false) => Outcome::Wrong(format!("{report:?}")),
    })
}

/// A link, which may be a directory again by the time somebody asks what was in the way.
fn is_exchange(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Symlink | ErrorKind::NotDirectory)
}

/// A directory again, in the way of unlinking a link.
fn is_back(kind: ErrorKind) -> bool {
    kind == ErrorKind::NotRegular
}

fn is_empty(claim: &Claim) -> beneath::Result<bool> {
    const NOTHING: [&str; 0] = [];
    Ok(claim.undeclared(NOTHING)?.entries.is_empty())
}

/// Links, FIFOs and second names are all that the guest puts in the way.
fn refusal(error: &Error) -> Outcome {
    match error.kind() {
        kind if is_exchange(kind) => Outcome::Refused,
        ErrorKind::NotRegular | ErrorKind::HardLinked => Outcome::Refused,
        // The file is away for an instant, or comes and goes without pause.
        ErrorKind::NotFound | ErrorKind::Busy => Outcome::Refused,
        kind => Outcome::Wrong(format!("{error} ({kind:?})")),
    }
}
