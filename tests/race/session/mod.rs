//! Sessions as victims: what a host does for a guest, while the guest exchanges what it is done to.
//!
//! The session is `s`, its message `c`. A link of the guest's leads to the part of the canary that looks the same:
//! `inbox` and `outbox` to `outside/a/b`, the message and `workspace` to `outside/a/b/c`, what is in them further down.

pub(crate) mod attack;
pub(crate) mod control;
pub(crate) mod stage;
pub(crate) mod victim;

use crate::plan::{Kind, Operation, Scenario};

/// The directory of the guest, beneath the root.
pub(crate) const GUEST: &str = "s/guest";
pub(crate) const SESSION: &str = "s";
pub(crate) const MESSAGE: &str = "c";

/// What the host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
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
pub(crate) enum Exchange {
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

pub(crate) fn scenarios() -> impl Iterator<Item = Scenario> {
    KINDS.iter().flat_map(|&(name, exchange, calls)| {
        calls.iter().map(move |&call| Scenario {
            name,
            kind: Kind::Session(exchange),
            operation: Operation::Session(call),
            shares: match exchange {
                Exchange::HardLinkRace => 1,
                _ => calls.len() as u64,
            },
        })
    })
}

impl Call {
    pub(crate) fn verb(self) -> &'static str {
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
    pub(crate) fn target(self) -> &'static str {
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
    pub(crate) fn never_refused(self, call: Call) -> Option<&'static str> {
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
