//! What a guest does to one entry of its tree between two calls of the host.
//!
//! Nothing here names a place outside the scene, and nothing acts through a link: a rig must spare the host even if the
//! crate, or an earlier strike, does not do what is expected of it.

pub mod exchange;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::libc;
use rustix::fs::{CWD, FileType, Mode, OFlags, fchmod, mknodat, openat};

use exchange::{Bait, exchange};

use crate::operations::Leaf;

/// One thing a guest can do in an instant.
pub struct Strike {
    pub name: &'static str,
    pub aims: &'static [Aim],
    act: fn(&At<'_>) -> io::Result<()>,
}

/// What a strike is worth trying on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// What the call is about.
    Leaf,
    /// The same, unless it is a directory.
    FileLeaf,
    /// A file in it, if it is a directory.
    FileInLeaf,
    /// A directory in it, if it is a directory.
    DirectoryInLeaf,
    Parent,
    Grandparent,
    /// The other end of a rename: the directory, the name in it, what is renamed.
    RenameDirectory,
    RenameName,
    RenameSource,
    /// Every temporary name of the host.
    Temporary,
    /// Any entry of a session.
    Session,
}

/// Where a strike lands.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub entry: &'a Path,
    /// What the guest can reach: every directory between here and the entry must be real.
    pub guest: &'a Path,
    /// A name nobody has used, in the guest's reach.
    pub spare: &'a Path,
    /// The same, out of the host's sight.
    pub exile: &'a Path,
    /// The canary, with `file`, `hard` and directories that have the names of the scene.
    pub outside: &'a Path,
    /// The directory outside that has the names beneath the entry.
    pub twin: &'a str,
    /// A directory beside the entry.
    pub sibling: &'a Path,
    /// The entry that the call is about, and what it was.
    pub leaf: (&'a Path, Leaf),
}

impl Strike {
    /// Strikes, unless an earlier strike has left nothing to act on.
    ///
    /// A guest cannot follow its own links out of its mount, so neither must this.
    pub fn apply(&self, at: &At<'_>) -> io::Result<()> {
        at.reaches(at.entry.parent().unwrap_or(at.guest))?;
        (self.act)(at)
    }

    pub fn is_aimed_at(&self, aim: Aim) -> bool {
        self.aims.contains(&aim)
    }
}

impl At<'_> {
    /// Whether a directory and every one above it are real.
    fn reaches(&self, dir: &Path) -> io::Result<()> {
        for dir in dir.ancestors().take_while(|dir| dir.starts_with(self.guest)) {
            if !fs::symlink_metadata(dir)?.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Ok(())
    }

    /// The entry as a directory to act in.
    fn inside(&self) -> io::Result<&Path> {
        self.reaches(self.entry).map(|()| self.entry)
    }

    /// The leaf, for a strike that is aimed elsewhere.
    fn leaf(&self) -> io::Result<&Path> {
        let leaf = self.leaf.0;
        self.reaches(leaf.parent().unwrap_or(leaf)).map(|()| leaf)
    }

    /// Takes away whatever is there.
    fn vacate(&self) -> io::Result<&Path> {
        let names = (0..).map(|number| self.spare.with_file_name(format!("old-{number}")));
        let mut free = names.skip_while(|name| fs::symlink_metadata(name).is_ok());
        match fs::rename(self.entry, free.next().unwrap_or_default()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(self.entry),
        }
    }

    fn link(&self, to: impl AsRef<Path>) -> io::Result<()> {
        symlink(to, self.vacate()?)
    }

    fn node(&self, kind: FileType, device: u64) -> io::Result<()> {
        Ok(mknodat(CWD, self.vacate()?, kind, Mode::RUSR | Mode::WUSR, device)?)
    }

    /// Puts the bait in the place of whatever is there.
    fn plant(&self, bait: Bait<'_>) -> io::Result<()> {
        Ok(bait.plant(self.outside, CWD, self.vacate()?)?)
    }

    fn exchange(&self, other: &Path) -> io::Result<()> {
        Ok(exchange(CWD, self.entry, CWD, other)?)
    }

    fn exchange_for(&self, bait: Bait<'_>) -> io::Result<()> {
        bait.plant(self.outside, CWD, self.spare)?;
        self.exchange(self.spare)
    }

    fn directory_outside(&self) -> PathBuf {
        self.outside.join(self.twin)
    }

    /// Up from the entry to the canary, in dots.
    fn relative(&self, to: &str) -> PathBuf {
        let parent = self.entry.parent().unwrap_or(self.entry);
        let top = self.outside.parent().unwrap_or(self.outside);
        let depth = parent.strip_prefix(top).map_or(0, |way| way.components().count());
        Path::new(&"../".repeat(depth)).join("outside").join(to)
    }
}

/// By handle and without following: struck second, this may meet a link.
fn close_up(path: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    // Another name of an outside file is not the guest's to close.
    if meta.is_symlink() || (meta.is_file() && meta.nlink() > 1) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let entry = openat(CWD, path, flags, Mode::empty())?;
    Ok(fchmod(entry, Mode::empty())?)
}

/// A file open for writing; never through a link, never waiting for a reader.
fn writable(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() && meta.nlink() == 1 { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

const fn strike(name: &'static str, aims: &'static [Aim], act: fn(&At<'_>) -> io::Result<()>) -> Strike {
    Strike { name, aims, act }
}

/// A host's file gets a second name, and loses it again.
pub const LINKED: &str = "hard link to an outside file";
pub const UNLINKED: &str = "removed";
/// What leads a host that trusts a path furthest out.
pub const TO_A_FILE: &str = "exchanged with a link to a file";
pub const TO_A_DIRECTORY: &str = "exchanged with a link to a directory";
/// What a naive reader waits for.
pub const FIFO: &str = "FIFO";
/// What the host itself cannot open any more.
pub const CLOSED: &str = "mode 000";

use Aim::{
    DirectoryInLeaf, FileInLeaf, FileLeaf, Grandparent, Leaf as TheLeaf, Parent, RenameDirectory, RenameName,
    RenameSource, Session, Temporary,
};

pub const STRIKES: &[Strike] = &[
    strike("link to an outside file", &[TheLeaf, RenameSource, Temporary, Session], |at| {
        at.plant(Bait::Link("file"))
    }),
    strike("link to an outside directory", &[TheLeaf, Parent, Grandparent, RenameDirectory, Session], |at| {
        at.plant(Bait::Link(at.twin))
    }),
    strike("dangling link to the outside", &[TheLeaf], |at| at.plant(Bait::Link("nothing"))),
    strike("relative link to the outside", &[TheLeaf], |at| at.link(at.relative("file"))),
    strike("relative link to an outside directory", &[Parent], |at| at.link(at.relative(at.twin))),
    strike("link to its neighbour", &[TheLeaf], |at| at.link("other")),
    strike("link to itself", &[TheLeaf, Parent, Session], |at| {
        at.link(at.entry.file_name().unwrap_or_default())
    }),
    strike("link to .", &[Parent], |at| at.link(".")),
    strike("link to ..", &[TheLeaf, Parent, Session], |at| at.link("..")),
    // An ancestor of the root, as `/` would be.
    strike("link to an ancestor", &[TheLeaf, Parent], |at| {
        at.link(at.outside.parent().unwrap_or(at.outside))
    }),
    // A magic link that leads nowhere: one that leads somewhere could lead to the host.
    strike("link through /proc", &[TheLeaf], |at| at.link("/proc/self/fd/99")),
    strike(FIFO, &[TheLeaf, Session], |at| at.plant(Bait::Fifo)),
    strike("socket", &[TheLeaf], |at| at.node(FileType::Socket, 0)),
    strike("device", &[TheLeaf], |at| at.node(FileType::CharacterDevice, rustix::fs::makedev(1, 3))),
    strike("empty directory", &[TheLeaf, Temporary, Session], |at| at.plant(Bait::Directory)),
    strike("full directory", &[TheLeaf], |at| {
        let leaf = at.vacate()?;
        fs::create_dir(leaf)?;
        fs::write(leaf.join("a"), "planted\n")?;
        symlink(at.directory_outside(), leaf.join("sub"))
    }),
    strike(UNLINKED, &[TheLeaf, Parent, Temporary], |at| match fs::remove_file(at.entry) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => fs::remove_dir_all(at.entry),
        result => result,
    }),
    strike(LINKED, &[TheLeaf, Temporary, Session], |at| at.plant(Bait::SecondName("hard"))),
    strike("removed, another file there", &[TheLeaf], |at| {
        fs::remove_file(at.entry)?;
        fs::write(at.entry, "another\n")
    }),
    strike("grown", &[FileLeaf], |at| writable(at.entry)?.write_all(&[b'+'; 10_000])),
    strike("truncated", &[FileLeaf], |at| writable(at.entry)?.set_len(100)),
    strike("another file", &[TheLeaf, Parent, Grandparent, RenameName, Temporary, Session], |at| {
        fs::write(at.vacate()?, "another\n")
    }),
    strike(TO_A_FILE, &[TheLeaf, Session], |at| at.exchange_for(Bait::Link("file"))),
    strike(TO_A_DIRECTORY, &[TheLeaf, DirectoryInLeaf, Parent, Grandparent, Session], |at| {
        at.exchange_for(Bait::Link(at.twin))
    }),
    strike("exchanged with a directory", &[FileInLeaf], |at| {
        fs::create_dir(at.spare)?;
        fs::write(at.spare.join("inner"), "inner\n")?;
        at.exchange(at.spare)
    }),
    strike("exchanged with the sibling", &[TheLeaf, Parent], |at| at.exchange(at.sibling)),
    strike("exchanged with its child", &[DirectoryInLeaf], |at| {
        fs::rename(at.inside()?.join("deeper"), at.spare)?;
        at.exchange(at.spare)
    }),
    strike(CLOSED, &[TheLeaf, DirectoryInLeaf, Parent, Grandparent, Session], |at| close_up(at.entry)),
    strike("second name beside it", &[FileLeaf], |at| {
        fs::hard_link(at.entry, at.entry.with_file_name("second"))
    }),
    strike("moved up", &[DirectoryInLeaf, Parent], |at| {
        let up = at.entry.parent().and_then(Path::parent).unwrap_or(at.guest);
        fs::rename(at.entry, up.join("away"))
    }),
    strike("moved away", &[Grandparent], |at| fs::rename(at.entry, at.entry.with_file_name("away"))),
    strike("moved to exile", &[TheLeaf, Parent, Grandparent, Session], |at| fs::rename(at.entry, at.exile)),
    strike("made anew", &[Parent], |at| {
        fs::create_dir(at.vacate()?)?;
        let (leaf, kind) = at.leaf;
        kind.build(leaf, "made anew\n")
    }),
    strike("new entry", &[Parent], |at| fs::write(at.inside()?.join("new"), "new\n")),
    strike("many new entries", &[Parent], |at| {
        let dir = at.inside()?;
        (0..40).try_for_each(|n| fs::write(dir.join(format!("new-{n}")), "new\n"))
    }),
    strike("moved to the leaf", &[Temporary], |at| fs::rename(at.entry, at.leaf()?)),
    strike("second name at the leaf", &[Temporary], |at| {
        let leaf = At { entry: at.leaf()?, ..*at };
        fs::hard_link(at.entry, leaf.vacate()?)
    }),
];
