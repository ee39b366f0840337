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

use beneath_kit::canary::Canary;
use beneath_kit::race::{Bout, Contender, Flip, Ground, Host, Outcome, Script, elsewhere};
use control::Control;
use stage::Books;
use victim::Victim;

/// The directory of the guest, beneath the root.
const GUEST: &str = "s/guest";
const SESSION: &str = "s";
const MESSAGE: &str = "c";
/// What the guest's own files hold.
const INSIDE: &[u8] = b"work of the guest";

/// Calls per kind and resolver when nothing else is asked for; each is several operations.
const QUICK: u64 = 2_000;

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
    /// The inbox for a link.
    Inbox,
    /// The outbox for a link.
    Outbox,
    /// The workspace for a link.
    Workspace,
    /// The directory of a message for a link.
    Message,
    /// A file for a link, by a descriptor of its directory that the guest goes on holding.
    FileLink,
    /// A file for a FIFO, likewise.
    FileFifo,
    /// A file for a second name of a host file, likewise.
    HardLink,
    /// As [`HardLink`](Self::HardLink), but the second name comes and goes at once.
    HardLinkRace,
    /// A directory for a link, inside a tree that is worked on or removed, likewise.
    DirLink,
}

use Call::{Clear, Collect, Deliver, Harden, InPlace, Remove};

const KINDS: &[(&str, Exchange, &[Call])] = &[
    ("session-inbox", Exchange::Inbox, &[Deliver]),
    ("session-msg", Exchange::Message, &[Deliver, Collect, InPlace]),
    ("session-outbox", Exchange::Outbox, &[Collect, Clear, InPlace]),
    ("session-work", Exchange::Workspace, &[Harden]),
    ("session-file", Exchange::FileLink, &[Collect, InPlace, Harden]),
    ("session-fifo", Exchange::FileFifo, &[Collect, InPlace]),
    ("session-hard", Exchange::HardLink, &[Collect, InPlace, Harden]),
    ("session-hard-race", Exchange::HardLinkRace, &[Collect, InPlace, Harden]),
    ("session-dir", Exchange::DirLink, &[Clear, InPlace, Remove, Harden]),
];

pub(crate) fn bouts() -> Vec<Bout> {
    let bouts = KINDS.iter().flat_map(|&(kind, exchange, calls)| {
        calls.iter().map(move |&call| Bout {
            kind,
            verb: call.verb(),
            shares: match exchange {
                Exchange::HardLinkRace => 1,
                _ => calls.len() as u64,
            },
            quick: QUICK,
            never_refused: exchange.never_refused(call),
            without_walk: None,
            obstacle: (call == InPlace && !matches!(elsewhere(&Ground::Usual.path()), Ok(Some(_))))
                .then_some("there is no second file system for the host's side"),
            ground: Ground::Usual,
            needs_plain_user: false,
            shared: matches!(exchange, Exchange::HardLink | Exchange::HardLinkRace).then_some(stage::FILE),
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
        let caller = match contender {
            Contender::Control => Caller::Control(Control::new(*self, base)?),
            Contender::Beneath(_) => Caller::Victim(Victim::new(*self, contender.choice(), base)?),
        };
        Ok(Box::new(Hosting { books: Books::open(*self, base)?, caller }))
    }

    fn guest(&self, base: &Path) -> io::Result<Flip> {
        Ok(attack::plan(*self, base)?)
    }
}

struct Hosting {
    books: Books,
    caller: Caller,
}

enum Caller {
    Victim(Victim),
    Control(Control),
}

impl Host for Hosting {
    fn prepare(&mut self) {
        // Fails where the last call was refused and has left everything.
        let _ = self.books.prepare();
    }

    fn call(&mut self, turn: u64, canary: &Canary) -> Outcome {
        match &self.caller {
            Caller::Victim(victim) => victim.call(turn, canary),
            Caller::Control(control) => control.call(turn),
        }
    }

    fn settle(&mut self) -> Option<bool> {
        self.books.settle()
    }
}

impl Call {
    fn verb(self) -> &'static str {
        match self {
            Deliver => "deliver",
            Collect => "collect",
            Clear => "clear",
            InPlace => "in_place",
            Remove => "remove",
            Harden => "harden",
        }
    }

    /// The path the host uses.
    fn target(self) -> &'static str {
        match self {
            Deliver => "s/guest/inbox/c",
            Collect | Clear | InPlace => "s/guest/outbox/c",
            Remove => SESSION,
            Harden => "s/guest/workspace",
        }
    }

    /// The directory in which the guest exchanges a file or a directory.
    fn scene(self) -> &'static str {
        match self {
            Remove | Harden => "s/guest/workspace",
            other => other.target(),
        }
    }
}

impl Exchange {
    /// Whether the guest goes on holding the message's directory, which must not go then.
    fn keeps_message(self) -> bool {
        matches!(self, Self::FileLink | Self::FileFifo | Self::HardLink | Self::HardLinkRace)
    }

    /// Why the exchange cannot make the call refuse, where it cannot.
    fn never_refused(self, call: Call) -> Option<&'static str> {
        match (self, call) {
            (Self::DirLink, Clear | InPlace | Remove) => {
                Some("a link inside a doomed tree is unlinked, which is no refusal")
            }
            (Self::DirLink | Self::FileLink | Self::HardLink | Self::HardLinkRace, Harden) => {
                Some("links are skipped, and files with several names are left and counted apart")
            }
            _ => None,
        }
    }
}
