//! A host that calls an operation again and again while a guest, a process of its own, changes the tree.
//!
//! A [`Bout`] is one attack aimed at one operation. [`bouts`] makes those of the operations table; other layers add their
//! own. The same rig runs a naive host, which must be caught, or the zeros of the others mean nothing.

mod attacks;
mod guest;
mod host;
mod kinds;
mod rig;
mod stage;
mod tally;

use std::io;
use std::path::{Path, PathBuf};

use crate::canary::Canary;
use crate::env;

pub use crate::contender::Contender;
pub use attacks::{Flip, link_and_unlink};
pub use host::every_second;
pub use kinds::bouts;
pub use rig::{Volume, obstacle, play_part, race};
pub use stage::elsewhere;
pub use tally::{COLUMNS, Tally, notes, row};

/// One attack aimed at one operation.
pub struct Bout {
    /// The attack.
    pub kind: &'static str,
    /// The operation.
    pub verb: &'static str,
    /// How many operations share the volume of this kind.
    pub shares: u64,
    /// Calls per kind and resolver when nothing else is asked for.
    pub quick: u64,
    /// Why this attack cannot make the operation refuse, where it cannot.
    pub never_refused: Option<&'static str>,
    /// Why the walk cannot take part, where it cannot.
    pub without_walk: Option<&'static str>,
    /// Why the bout cannot be run here, where it cannot.
    pub obstacle: Option<&'static str>,
    pub ground: Ground,
    /// Whether the mode bits are part of the attack, which mean nothing to root.
    pub needs_plain_user: bool,
    /// The file of the canary of which the guest holds a second name.
    pub shared: Option<&'static str>,
    pub script: Box<dyn Script>,
}

impl std::fmt::Debug for Bout {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.kind, self.verb)
    }
}

/// What the two do.
pub trait Script {
    /// Builds `root` and `outside` in an empty directory.
    fn build(&self, base: &Path) -> io::Result<()>;
    /// Called before the guest starts, so that what is opened here is what was built.
    fn host(&self, contender: Contender, base: &Path) -> io::Result<Box<dyn Host>>;
    fn guest(&self, base: &Path) -> io::Result<Flip>;
}

/// The host in a bout.
///
/// Its bookkeeping (making what a removal took, taking what a write made) goes by handles that were opened before the
/// guest started, and by single names that are not followed. So it cannot be raced itself.
pub trait Host {
    /// Makes what the next call needs. What the guest has in the way just now is left there.
    fn prepare(&mut self);
    fn call(&mut self, turn: u64, canary: &Canary) -> Outcome;
    /// Undoes what the call did inside. Reports whether it had done anything there, where that can be seen.
    fn settle(&mut self) -> Option<bool>;
}

/// What came of one call.
#[derive(Debug)]
pub enum Outcome {
    Ok,
    Refused,
    /// The call touched what it must not.
    Escaped(String),
    /// The call broke another promise: content that nobody wrote, an error that the attack cannot explain.
    Wrong(String),
}

impl Outcome {
    /// This one, or the next if this is no refusal and no fault.
    pub fn then(self, next: Self) -> Self {
        if matches!(self, Self::Ok) { next } else { self }
    }
}

impl Bout {
    /// The resolvers that take part.
    pub fn contenders(&self) -> impl Iterator<Item = Contender> {
        let openat2 = crate::has_openat2().then_some(Contender::Openat2);
        let walk = self.without_walk.is_none().then_some(Contender::Walk);
        openat2.into_iter().chain(walk)
    }
}

/// Where the trees are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// In memory, if that is to be had; or where `BENEATH_RACE_DIR` says.
    Usual,
    /// Where temporary files go, which is another kind of file system mostly.
    Disk,
}

impl Ground {
    pub fn path(self) -> PathBuf {
        match (self, env::RACE_DIR.value()) {
            (Self::Usual, Some(chosen)) => chosen.into(),
            (Self::Usual, None) if Path::new("/dev/shm").is_dir() => "/dev/shm".into(),
            _ => std::env::temp_dir(),
        }
    }
}
