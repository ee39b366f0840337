//! The operations of the crate, as a host calls them.

use std::io;

use beneath::{
    Access, Budget, ErrorKind, Execute, Links, Mounts, Policy, Resolver, ResolverChoice, Root, WalkLimits,
    ambient_authority,
};

use crate::canary::{Canary, MARKER};
use crate::plan::{Kind, Operation, Scenario};
#[cfg(feature = "session")]
use crate::session;
use crate::stage::{INSIDE, Stage};

/// What came of one call.
#[derive(Debug)]
pub(crate) enum Outcome {
    Ok,
    Refused,
    /// The call touched what it must not, told in words.
    Escaped(String),
    /// The call broke another promise: content that nobody wrote, an error that the attack cannot explain.
    Wrong(String),
}

pub(crate) struct Victim {
    scenario: Scenario,
    root: Root,
    /// May cross mounts, so that it reads through a pinned handle even where devices are dead.
    crossing: Root,
    #[cfg(feature = "session")]
    session: session::victim::Victim,
}

impl Victim {
    pub(crate) fn new(scenario: Scenario, resolver: Resolver, stage: &Stage) -> io::Result<Self> {
        let links = match scenario.kind {
            Kind::LinkText => Links::FollowBeneath,
            _ => Links::Refuse,
        };
        let resolver = match resolver {
            Resolver::Openat2 => ResolverChoice::Openat2,
            Resolver::Walk => ResolverChoice::Walk,
        };
        let policy = Policy::default().with_links(links).with_resolver(resolver);
        let root = Root::open_ambient(stage.root(), ambient_authority())?.with_policy(policy.clone());
        let crossing = root.try_clone()?.with_policy(policy.with_mounts(Mounts::Cross));
        Ok(Self {
            scenario,
            root,
            crossing,
            #[cfg(feature = "session")]
            session: session::victim::Victim::new(scenario, resolver, stage)?,
        })
    }

    pub(crate) fn call(&self, turn: u64, canary: &Canary) -> Outcome {
        let (root, target) = (&self.root, self.scenario.target());
        let outcome = match self.scenario.operation {
            Operation::Read => self.read(turn, canary),
            Operation::Write => match turn % 2 {
                0 => root.write_exclusive(target, INSIDE).map(|()| Outcome::Ok),
                _ => root.new_file(target).and_then(|file| file.commit()).map(|()| Outcome::Ok),
            },
            Operation::Replace => root.replace(target, INSIDE).map(|()| Outcome::Ok),
            Operation::Remove => {
                let budget = match self.scenario.kind {
                    // Every other call stops in the middle, and the next one meets what the guest has added.
                    Kind::CreateStorm if turn.is_multiple_of(2) => Budget::default().with_entries(4),
                    _ => Budget::default(),
                };
                root.remove_tree_contained_within(target, budget).map(|removed| match removed.is_complete() {
                    true => Outcome::Ok,
                    false => Outcome::Refused,
                })
            }
            Operation::EnsureDir => root.ensure_dir(target).map(|_| Outcome::Ok),
            Operation::Rename => root.rename(target, self.scenario.destination()).map(|()| Outcome::Ok),
            Operation::Walk => self.walk(turn, canary),
            Operation::SetAccess => {
                // In turns, so that there is something to change.
                let access = if turn.is_multiple_of(2) { Access::shared() } else { Access::private() };
                root.set_access(target, access, Execute::Clear).map(|_| Outcome::Ok)
            }
            #[cfg(feature = "session")]
            Operation::Session(call) => match self.scenario.kind {
                Kind::Session(exchange) => return self.session.call(call, exchange, turn, canary),
                other => return Outcome::Wrong(format!("{other:?} is no attack on a session")),
            },
        };
        outcome.unwrap_or_else(|error| self.refusal(error))
    }

    fn read(&self, turn: u64, canary: &Canary) -> beneath::Result<Outcome> {
        let target = self.scenario.target();
        let content = match turn % 4 {
            0 | 1 => self.root.read_contained(target, 64)?,
            2 => self.crossing.read_contained(target, 64)?,
            _ => {
                let mut file = self.root.open_contained(target)?;
                if canary.holds(file.metadata().dev(), file.metadata().ino()) {
                    return Ok(Outcome::Escaped("opened an inode outside".into()));
                }
                file.read_to_limit(64)?
            }
        };
        Ok(match content {
            content if content == INSIDE => Outcome::Ok,
            content if content.starts_with(MARKER) => Outcome::Escaped("read the marker".into()),
            content => Outcome::Wrong(format!("read {content:?}, which nobody wrote")),
        })
    }

    /// Walks the target, and every other time the whole root: there the exchange happens under way.
    fn walk(&self, turn: u64, canary: &Canary) -> beneath::Result<Outcome> {
        let top = if turn.is_multiple_of(2) { self.scenario.target() } else { "." };
        let mut outcome = Outcome::Ok;
        for entry in self.root.walk(top, WalkLimits::default())? {
            match entry {
                Ok(entry) if canary.holds(entry.metadata().dev(), entry.metadata().ino()) => {
                    return Ok(Outcome::Escaped(format!("walked to {:?} outside", entry.path())));
                }
                Ok(_) => {}
                Err(error) => outcome = self.refusal(error),
            }
        }
        Ok(outcome)
    }

    fn refusal(&self, error: beneath::Error) -> Outcome {
        match error.kind() {
            ErrorKind::Symlink
            | ErrorKind::Escape
            | ErrorKind::NotRegular
            | ErrorKind::NotDirectory
            | ErrorKind::HardLinked
            | ErrorKind::AlreadyExists
            | ErrorKind::NotFound
            | ErrorKind::Denied
            | ErrorKind::Busy => Outcome::Refused,
            kind => Outcome::Wrong(format!("{error} ({kind:?})")),
        }
    }
}
