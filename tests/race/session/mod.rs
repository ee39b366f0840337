//! Sessions as victims: what a host does for a guest, while the guest exchanges what it is done to.
//!
//! The session is `s`, its message `c`. A link of the guest's leads to the part of the canary that looks the same:
//! `inbox` and `outbox` to `outside/box`, the message and `workspace` to `outside/box/c`, what is in them further down.

mod attack;
mod control;
mod stage;
mod victim;

use std::io;
use std::path::Path;

use beneath_kit::race::{Bout, Contender, Flip, Ground, Host, Script, elsewhere};
use beneath_kit::strikes::exchange::Bait;
use control::Control;
use stage::{BOX, Books, Calling, FILE, MESSAGE_BOX};
use victim::Victim;

/// The directory of the guest, beneath the root.
const GUEST: &str = "s/guest";
const SESSION: &str = "s";
const MESSAGE: &str = "c";
/// What the guest's own files hold.
const INSIDE: &[u8] = b"work of the guest";

/// Calls per kind and resolver when nothing else is asked for; each is several operations.
const QUICK: u64 = 1_000;

/// What the host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// One attachment into the inbox.
    Deliver,
    /// Claim, read, and clear; or release, where the guest goes on holding the message's directory.
    Collect,
    /// Claim and clear.
    Clear,
    /// Collect where the host's side is on another file system, so that the message stays within the guest's reach.
    InPlace,
    /// The whole session goes.
    Remove,
    /// The workspace gets its modes back.
    Harden,
}

/// What the guest exchanges, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    /// A directory that the host made for it.
    Part(&'static str, Bait<'static>),
    /// The directory of a message for a link.
    Message,
    /// A file, by a descriptor of its directory that the guest goes on holding.
    File(Bait<'static>),
    /// A file for a second name of a host file that comes and goes at once, likewise.
    SecondNameRace,
    /// A directory for a link, inside a tree that is worked on or removed, likewise.
    DirLink,
}

use Call::{Clear, Collect, Deliver, Harden, InPlace, Remove};
use Exchange::{DirLink, File, Message, Part, SecondNameRace};

const KINDS: &[(&str, Exchange, &[Call])] = &[
    ("session-inbox", Part("inbox", Bait::Link(BOX)), &[Deliver]),
    ("session-msg", Message, &[Deliver, Collect, InPlace]),
    ("session-outbox", Part("outbox", Bait::Link(BOX)), &[Collect, Clear, InPlace]),
    ("session-work", Part("workspace", Bait::Link(MESSAGE_BOX)), &[Harden]),
    ("session-file", File(Bait::Link(FILE)), &[Collect, InPlace, Harden]),
    ("session-fifo", File(Bait::Fifo), &[Collect, InPlace]),
    ("session-hard", File(SECOND_NAME), &[Collect, InPlace, Harden]),
    ("session-hard-race", SecondNameRace, &[Collect, InPlace, Harden]),
    ("session-dir", DirLink, &[Clear, InPlace, Remove, Harden]),
];

const SECOND_NAME: Bait<'_> = Bait::SecondName(FILE);

pub(crate) fn bouts() -> Vec<Bout> {
    let bouts = KINDS.iter().flat_map(|&(kind, exchange, calls)| {
        calls.iter().map(move |&call| Bout {
            kind,
            verb: call.places().verb,
            shares: if exchange == SecondNameRace { 1 } else { calls.len() as u64 },
            // On two file systems, one of which is a disk.
            quick: if call == InPlace { QUICK / 2 } else { QUICK },
            never_refused: exchange.never_refused(call),
            without_walk: None,
            obstacle: (call == InPlace && !matches!(elsewhere(&Ground::Usual.path()), Ok(Some(_))))
                .then_some("there is no second file system for the host's side"),
            ground: Ground::Usual,
            needs_plain_user: false,
            shared: [File(SECOND_NAME), SecondNameRace].contains(&exchange).then_some(FILE),
            script: Box::new(Play { call, exchange }),
        })
    });
    bouts.collect()
}

/// A call and the exchange it is made under.
#[derive(Clone, Copy, Debug)]
struct Play {
    call: Call,
    exchange: Exchange,
}

impl Script for Play {
    fn build(&self, base: &Path) -> io::Result<()> {
        stage::build(base, self.call)
    }

    fn host(&self, contender: Contender, base: &Path) -> io::Result<Box<dyn Host>> {
        let call: Calling = match contender {
            Contender::Control => {
                let control = Control::new(*self, base)?;
                Box::new(move |turn, _| control.call(turn))
            }
            _ => {
                let victim = Victim::new(*self, contender.choice(), base)?;
                Box::new(move |turn, canary| victim.call(turn, canary))
            }
        };
        Ok(Box::new(Books::open(*self, call, base)?))
    }

    fn guest(&self, base: &Path) -> io::Result<Flip> {
        Ok(attack::plan(*self, base)?)
    }
}

/// Where a call is made, beneath the root.
struct Places {
    verb: &'static str,
    /// The path the host uses.
    target: &'static str,
    /// The directory in which the guest exchanges a file or a directory.
    scene: &'static str,
    /// The directory in which the host makes what the next call needs.
    home: &'static str,
}

impl Call {
    fn places(self) -> Places {
        let (verb, target, scene, home) = match self {
            Deliver => ("deliver", "s/guest/inbox/c", "s/guest/inbox/c", "s/guest/inbox/c"),
            Collect => ("collect", "s/guest/outbox/c", "s/guest/outbox/c", "s/guest/outbox"),
            Clear => ("clear", "s/guest/outbox/c", "s/guest/outbox/c", "s/guest/outbox"),
            InPlace => ("in_place", "s/guest/outbox/c", "s/guest/outbox/c", "s/guest/outbox"),
            Remove => ("remove", SESSION, "s/guest/workspace", "."),
            Harden => ("harden", "s/guest/workspace", "s/guest/workspace", "s/guest/workspace"),
        };
        Places { verb, target, scene, home }
    }
}

impl Exchange {
    /// Whether the guest goes on holding the message's directory, which must not go then.
    fn keeps_message(self) -> bool {
        matches!(self, File(_) | SecondNameRace)
    }

    /// Why the exchange cannot make the call refuse, where it cannot.
    fn never_refused(self, call: Call) -> Option<&'static str> {
        match (self, call) {
            (DirLink, Clear | InPlace | Remove) => {
                Some("a link inside a doomed tree is unlinked, which is no refusal")
            }
            (DirLink | File(_) | SecondNameRace, Harden) => {
                Some("links are skipped, and files with several names are left and counted apart")
            }
            _ => None,
        }
    }
}
