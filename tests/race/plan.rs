//! What is raced against what.
//!
//! To add a victim, give [`Operation`] a variant, name it in the rows of [`KINDS`] where it makes sense, and say in
//! `victims.rs`, `controls.rs` and `stage.rs` how it is called, how it is called naively, and how its traces are undone.
//! What sessions do is in `session`, in the same parts.

use beneath::Resolver;

#[cfg(feature = "session")]
use crate::session::{self, Call, Exchange};

/// What the host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    Replace,
    Remove,
    EnsureDir,
    Rename,
    Walk,
    SetAccess,
    #[cfg(feature = "session")]
    Session(Call),
}

/// What the guest does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory is exchanged for a link, at this depth of `a/b/c/job`.
    DirLink(u8),
    /// As depth 1, against a control that trusts the real path of the directory itself.
    InboxLink,
    FileLink,
    FileFifo,
    /// A file is exchanged for a directory, and now and then for a link.
    FileDir,
    /// A name comes and goes, and now and then is a link.
    NameNothing,
    DanglingLink,
    /// A file is exchanged for a second name of a host file.
    HardLink,
    /// A second name of a host file comes and goes, so that one name is left by the time somebody counts.
    HardLinkRace(Ground),
    /// Directories and a link move between two parents while what they hold is exchanged too.
    RenameStorm,
    /// A directory inside a tree under removal is exchanged for a link.
    DoomedLink,
    /// Modes are toggled beside the exchange for a link.
    Chmod,
    /// Entries are created without pause in a tree under removal.
    CreateStorm,
    /// The text of a link is rewritten while links are followed.
    LinkText,
    /// Both ends of a rename and a link change places.
    Siblings,
    #[cfg(feature = "session")]
    Session(Exchange),
}

/// Where the trees are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// In memory, if that is to be had.
    Usual,
    /// Where temporary files go, which is another kind of file system mostly.
    Disk,
}

use Operation::{EnsureDir, Read, Remove, Rename, Replace, SetAccess, Walk, Write};

/// Each attack, and the operations it can be aimed at.
pub(crate) const KINDS: &[(&str, Kind, &[Operation])] = &[
    ("dir-link-1", Kind::DirLink(1), &[Read, Write, Remove, EnsureDir, Rename, Walk]),
    ("dir-link-2", Kind::DirLink(2), &[Read, Write, Remove, EnsureDir, Rename, Walk]),
    ("dir-link-3", Kind::DirLink(3), &[Read, Write, Remove, EnsureDir, Rename, Walk]),
    ("dir-link-4", Kind::DirLink(4), &[Remove, EnsureDir, Walk]),
    ("inbox-link", Kind::InboxLink, &[Read, Write, Remove]),
    ("file-link", Kind::FileLink, &[Read, Replace]),
    ("file-fifo", Kind::FileFifo, &[Read]),
    ("file-dir", Kind::FileDir, &[Read, Remove]),
    ("name-nothing", Kind::NameNothing, &[Read, Write, EnsureDir]),
    ("dangling-link", Kind::DanglingLink, &[Write]),
    ("hard-link", Kind::HardLink, &[Read, Replace]),
    ("hard-link-race", Kind::HardLinkRace(Ground::Usual), &[Read, SetAccess]),
    ("hard-link-disk", Kind::HardLinkRace(Ground::Disk), &[Read, SetAccess]),
    ("rename-storm", Kind::RenameStorm, &[Read, Write, Remove, EnsureDir, Walk]),
    ("doomed-link", Kind::DoomedLink, &[Remove]),
    ("chmod", Kind::Chmod, &[Read, Remove]),
    ("create-storm", Kind::CreateStorm, &[Remove]),
    ("link-text", Kind::LinkText, &[Read, Write]),
    ("siblings", Kind::Siblings, &[Rename]),
];

/// Who is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Beneath(Resolver),
    /// Check-then-use by path.
    Control,
}

impl Contender {
    pub(crate) const ALL: [Self; 3] =
        [Self::Beneath(Resolver::Openat2), Self::Beneath(Resolver::Walk), Self::Control];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Beneath(Resolver::Openat2) => "openat2",
            Self::Beneath(Resolver::Walk) => "walk",
            Self::Control => "control",
        }
    }
}

/// One attack aimed at one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) operation: Operation,
    /// How many operations share the volume of this kind.
    pub(crate) shares: u64,
}

impl Scenario {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let scenarios = KINDS.iter().flat_map(|&(name, kind, operations)| {
            let shares = match kind {
                // What is left to chance here is so rare that each gets the whole volume.
                Kind::HardLinkRace(_) => 1,
                _ => operations.len() as u64,
            };
            operations.iter().map(move |&operation| Self { name, kind, operation, shares })
        });
        #[cfg(feature = "session")]
        let scenarios = scenarios.chain(session::scenarios());
        scenarios
    }

    /// Finds one by what [`Scenario::name`] and [`Scenario::verb`] say; processes pass it on this way.
    pub(crate) fn find(name: &str, verb: &str) -> Option<Self> {
        Self::all().find(|scenario| scenario.name == name && scenario.verb() == verb)
    }

    pub(crate) fn verb(&self) -> &'static str {
        match self.operation {
            Read => "read",
            Write => "write",
            Replace => "replace",
            Remove => "remove",
            EnsureDir => "ensure_dir",
            Rename => "rename",
            Walk => "walk",
            SetAccess => "set_access",
            #[cfg(feature = "session")]
            Operation::Session(call) => call.verb(),
        }
    }

    /// The path the host uses.
    pub(crate) fn target(&self) -> &'static str {
        match (self.operation, self.kind) {
            (Read, Kind::LinkText) => "a/b/c/l",
            (Write, Kind::LinkText) => "a/b/c/l/w",
            (Read | Replace | SetAccess, _) => "a/b/c/f",
            (Write, _) => "a/b/c/w",
            (EnsureDir, Kind::DirLink(4)) => "a/b/c/job/e/e",
            (EnsureDir, _) => "a/b/c/e/e",
            (Rename, Kind::Siblings) => "a/b/c/in/r",
            (Rename, _) => "a/b/c/r",
            (Remove, _) | (Walk, Kind::DirLink(4)) => "a/b/c/job",
            (Walk, _) => "a/b/c",
            #[cfg(feature = "session")]
            (Operation::Session(call), _) => call.target(),
        }
    }

    /// Where a rename leads.
    pub(crate) fn destination(&self) -> &'static str {
        match self.kind {
            Kind::Siblings => "a/b/c/to/t",
            _ => "a/b/c/t",
        }
    }

    /// Why this attack cannot make the operation refuse, where it cannot.
    pub(crate) fn never_refused(&self) -> Option<&'static str> {
        match (self.kind, self.operation) {
            (_, Replace) => Some("replace takes the place of whatever entry has the name, a link included"),
            #[cfg(feature = "session")]
            (Kind::Session(exchange), Operation::Session(call)) => exchange.never_refused(call),
            (Kind::DoomedLink, _) => Some("a link inside a doomed tree is unlinked, which is no refusal"),
            _ => None,
        }
    }

    /// Whether the guest holds a second name of a file of the canary.
    pub(crate) fn shares_a_file(&self) -> bool {
        match self.kind {
            Kind::HardLink | Kind::HardLinkRace(_) => true,
            #[cfg(feature = "session")]
            Kind::Session(exchange) => matches!(exchange, Exchange::HardLink | Exchange::HardLinkRace),
            _ => false,
        }
    }

    /// Why a contender cannot take part.
    pub(crate) fn excludes(&self, contender: Contender) -> Option<&'static str> {
        match (self.kind, contender) {
            (Kind::LinkText, Contender::Beneath(Resolver::Walk)) => {
                Some("following links needs openat2; the walk answers Unsupported to every call")
            }
            _ => None,
        }
    }

    /// Where its trees are made.
    pub(crate) fn ground(&self) -> Ground {
        match self.kind {
            Kind::HardLinkRace(ground) => ground,
            _ => Ground::Usual,
        }
    }

    /// Whether the mode bits are part of the attack, which mean nothing to root.
    pub(crate) fn needs_plain_user(&self) -> bool {
        self.kind == Kind::Chmod
    }
}
