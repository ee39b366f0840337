//! Exchanges that a guest makes in an instant: an entry of its tree for something that leads elsewhere, and back.
//!
//! The stepper makes one between two system calls of the host, the race makes it without end. A guest works by handles and
//! single names: it must lead the *host* out of the root, never go there itself.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, linkat, mkdirat, mknodat, openat, renameat_with,
    symlinkat,
};

use crate::scene::CANARY;

/// What takes the place of an entry; paths are relative to the canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bait<'a> {
    Link(&'a str),
    /// Of a file of the host.
    SecondName(&'a str),
    Fifo,
    Directory,
    File,
}

impl Bait<'_> {
    pub fn plant(
        self,
        outside: &Path,
        at: impl AsFd,
        name: impl rustix::path::Arg,
    ) -> rustix::io::Result<()> {
        let private = Mode::RUSR | Mode::WUSR;
        match self {
            Self::Link(to) => symlinkat(outside.join(to), at, name),
            Self::SecondName(of) => linkat(CWD, outside.join(of), at, name, AtFlags::empty()),
            Self::Fifo => mknodat(at, name, FileType::Fifo, private, 0),
            Self::Directory => mkdirat(at, name, Mode::RWXU),
            Self::File => openat(at, name, NEW, private).map(drop),
        }
    }
}

/// Makes a file that must not be there yet.
pub const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::WRONLY).union(OFlags::CLOEXEC);

/// An entry of a scene, and what it is exchanged for.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Relative to the root.
    pub dir: &'static str,
    pub entry: &'static str,
    pub bait: Bait<'static>,
}

const fn of(dir: &'static str, entry: &'static str, bait: Bait<'static>) -> Exchange {
    Exchange { dir, entry, bait }
}

pub const GRANDPARENT_LINK: Exchange = of(".", "g", Bait::Link("top"));
pub const PARENT_LINK: Exchange = of("g", "p", Bait::Link("dir"));
/// At the fourth level, where a race moves the parent to.
pub const DEEP_LINK: Exchange = of("g/sib/deep", "p", Bait::Link("dir"));
pub const LEAF_LINK: Exchange = of("g/p", "leaf", Bait::Link("file"));
pub const LEAF_DIRECTORY_LINK: Exchange = of("g/p", "leaf", Bait::Link("dir"));
pub const LEAF_FIFO: Exchange = of("g/p", "leaf", Bait::Fifo);
pub const LEAF_SECOND_NAME: Exchange = of("g/p", "leaf", Bait::SecondName("hard"));
pub const LEAF_DIRECTORY: Exchange = of("g/p", "leaf", Bait::Directory);
pub const LEAF_FILE: Exchange = of("g/p", "leaf", Bait::File);
pub const INNER_LINK: Exchange = of("g/p/leaf", "sub", Bait::Link("dir"));

impl Exchange {
    /// Plants the bait in the spare room under this name, and holds what the exchange is made with.
    pub fn hold(&self, base: &Path, name: &'static str) -> rustix::io::Result<Held> {
        let (root, outside) = (open_dir(CWD, base.join("root"))?, base.join("outside"));
        Held::new(reach(&root, self.dir)?, self.entry, reach(&root, "spare")?, name, self.bait, &outside)
    }
}

/// An exchange that can be made.
#[derive(Debug)]
pub struct Held {
    at: OwnedFd,
    entry: &'static str,
    spare: OwnedFd,
    name: &'static str,
    /// Held open for both, so that a naive reader gets an answer instead of waiting for ever.
    fifo: Option<OwnedFd>,
}

impl Held {
    pub fn new(
        at: OwnedFd,
        entry: &'static str,
        spare: OwnedFd,
        name: &'static str,
        bait: Bait<'_>,
        outside: &Path,
    ) -> rustix::io::Result<Self> {
        bait.plant(outside, &spare, name)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fifo = (bait == Bait::Fifo).then(|| openat(&spare, name, flags, Mode::empty())).transpose()?;
        Ok(Self { at, entry, spare, name, fifo })
    }

    /// Fails where the host has just taken one of the two, or has not made it yet.
    pub fn flip(&self) -> rustix::io::Result<()> {
        if let Some(fifo) = &self.fifo {
            // Full, after a while, of what nobody read.
            let _ = rustix::io::write(fifo, CANARY.as_bytes());
        }
        exchange(&self.at, self.entry, &self.spare, self.name)
    }
}

pub fn exchange(
    from: impl AsFd,
    left: impl rustix::path::Arg,
    to: impl AsFd,
    right: impl rustix::path::Arg,
) -> rustix::io::Result<()> {
    renameat_with(from, left, to, right, RenameFlags::EXCHANGE)
}

pub fn move_new(from: impl AsFd, old: &str, to: impl AsFd, new: &str) -> rustix::io::Result<()> {
    renameat_with(from, old, to, new, RenameFlags::NOREPLACE)
}

/// Opens a real directory for everything, never a link to one.
pub fn open_dir(at: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    openat(at, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a directory further down, all of whose parents are real directories.
pub fn reach(top: &OwnedFd, path: &str) -> rustix::io::Result<OwnedFd> {
    path.split('/').try_fold(open_dir(top, ".")?, open_dir)
}
