//! Removing a tree that a guest is still working in.
//!
//! Problem: a recursive remover follows a directory that was exchanged for a link, runs out of stack or descriptors on
//! a deep tree and out of memory on a wide one, hangs on a FIFO, stops at the first directory it may not enter, and
//! never ends while a guest keeps creating.
//!
//! Defence: a loop over at most [`HELD`] open directories, each opened from the handle of the one above without
//! following links or crossing mounts. What lies deeper is first moved up into the doomed top. Names are
//! read a bufferful at a time; directories are tried again until they are gone; a [`Budget`] ends it all.
//!
//! Left: `unlinkat` goes by name, so an entry that the guest swaps in at the last moment is the one that goes. It was
//! in the doomed tree as well.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, chmodat, fchmod, openat, unlinkat};
use rustix::io::Errno;

use super::path::{Checked, Meant};
use super::resolve::{describe_at, own_descriptors, subject};
use super::scan::Scanner;
use super::write::{rename_new, unguessable_name};
use super::{Mounts, Root};
use crate::error::{Error, ErrorKind, Result};

/// How many directories are held open at a time.
const HELD: usize = 24;
/// How many leftovers a report tells by name.
const TOLD: usize = 32;

const OPERATION: &str = "remove";
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK);

impl Root {
    /// Removes the directory at `path` and everything in it, within the default [`Budget`].
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) or [`NotDirectory`](ErrorKind::NotDirectory) if `path` is not a real directory,
    /// [`NotFound`](ErrorKind::NotFound) and the kinds of every resolution. What could not be removed further down is
    /// no error but told in [`Removed`].
    ///
    /// # Races
    /// Nothing outside the tree is touched, whatever the guest does. A guest that keeps creating makes it end with
    /// [`complete`](Removed::complete) false.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.ensure_dir("job/out")?;
    /// root.write_exclusive("job/out/log", "done")?;
    /// let removed = root.remove_tree_contained("job")?;
    /// assert!(removed.complete);
    /// assert_eq!((removed.files, removed.directories), (1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_tree_contained(&self, path: impl AsRef<Path>) -> Result<Removed> {
        self.remove_tree_contained_within(path, Budget::default())
    }

    /// Removes the directory at `path` within the given budget.
    ///
    /// # Errors
    /// As [`remove_tree_contained`](Self::remove_tree_contained).
    pub fn remove_tree_contained_within(&self, path: impl AsRef<Path>, budget: Budget) -> Result<Removed> {
        let path = Checked::new(OPERATION, path.as_ref(), Meant::Directory)?;
        let (dir, leaf) = self.parent(OPERATION, path)?;
        Removal::new(self, budget)
            .run(dir.as_fd(), leaf)
            .map_err(|errno| Error::from_errno(OPERATION, subject(path), errno))
    }

    /// Moves the directory at `path` into `quarantine`, where no guest can name it, and removes it there.
    ///
    /// If it cannot be moved (another mount, a directory the host may not move) it is removed in place. What is left
    /// of it stays in `quarantine` under a name that begins with `.beneath-`.
    ///
    /// # Errors
    /// As [`remove_tree_contained`](Self::remove_tree_contained).
    ///
    /// # Races
    /// A guest that holds a descriptor or working directory inside can still create there until the removal has passed.
    pub fn remove_tree_quarantined(
        &self,
        path: impl AsRef<Path>,
        quarantine: &Self,
        budget: Budget,
    ) -> Result<Removed> {
        let path = Checked::new(OPERATION, path.as_ref(), Meant::Directory)?;
        let (dir, leaf) = self.parent(OPERATION, path)?;
        let failed = |errno| Error::from_errno(OPERATION, subject(path), errno);
        let name = unguessable_name().map_err(failed)?;
        let doomed = real_directory(dir.as_fd(), leaf).map_err(failed)?;
        match rename_new(dir.as_fd(), doomed, quarantine.as_fd(), name.as_bytes()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(failed(Errno::NOENT)),
            Err(_) => return Removal::new(self, budget).run(dir.as_fd(), leaf).map_err(failed),
        }
        // The guest may have exchanged it just before the move; here it can no longer.
        if let Err(errno) = real_directory(quarantine.as_fd(), name.as_bytes()) {
            let back = rename_new(quarantine.as_fd(), name.as_bytes(), dir.as_fd(), leaf);
            if back.is_err() {
                // Its name is taken again, so there is no place to put it back to.
                let _ = unlinkat(quarantine.as_fd(), &*name, AtFlags::empty());
            }
            return Err(failed(errno));
        }
        Removal::new(quarantine, budget).run(quarantine.as_fd(), name.as_bytes()).map_err(failed)
    }
}

/// The name again, if it is a directory and no link.
fn real_directory<'n>(dir: BorrowedFd<'_>, name: &'n [u8]) -> rustix::io::Result<&'n [u8]> {
    match describe_at(dir, name)? {
        entry if entry.is_dir() => Ok(name),
        entry if entry.is_symlink() => Err(Errno::LOOP),
        _ => Err(Errno::NOTDIR),
    }
}

/// Bounds on a removal, so that a guest that keeps creating cannot keep the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    entries: u64,
    passes: u32,
    time: Duration,
}

impl Default for Budget {
    /// Any number of entries, 1,024 further passes, five minutes.
    fn default() -> Self {
        Self::unlimited().with_passes(1024).with_time(Duration::from_secs(300))
    }
}

impl Budget {
    /// No bound at all. A guest that creates faster than this removes keeps it going for ever.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { entries: u64::MAX, passes: u32::MAX, time: Duration::MAX }
    }

    /// Stops after `entries` entries were dealt with.
    #[must_use]
    pub fn with_entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }

    /// Stops after `passes` directories had to be gone through once more because they had filled again.
    #[must_use]
    pub fn with_passes(mut self, passes: u32) -> Self {
        self.passes = passes;
        self
    }

    /// Stops after `time`.
    #[must_use]
    pub fn with_time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }
}

/// What a removal did.
#[derive(Clone, Debug, Default)]
#[must_use = "a removal may be incomplete"]
#[non_exhaustive]
pub struct Removed {
    /// How many entries other than directories are gone.
    pub files: u64,
    /// How many directories are gone, the top included.
    pub directories: u64,
    /// Whether the top itself is gone.
    pub complete: bool,
    /// What stayed and why; no more than the first few.
    pub left: Vec<Left>,
    /// How many entries are known to have stayed.
    pub left_total: u64,
}

/// Something a removal could not remove.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Where it is, relative to the top; empty for the top itself.
    pub path: PathBuf,
    /// Why it is still there; [`Busy`](ErrorKind::Busy) if the budget ran out.
    pub kind: ErrorKind,
}

/// A directory that is being emptied.
struct Frame {
    dir: OwnedFd,
    /// Its name in the frame below.
    name: OsString,
    /// Directories seen in it but not entered yet, at most a bufferful.
    pending: Vec<OsString>,
    ended: bool,
    /// Something in it stays, so going through it again is no use.
    stuck: bool,
    /// Its own mode was widened already.
    opened_up: bool,
}

impl Frame {
    fn new(dir: OwnedFd, name: OsString) -> Self {
        Self { dir, name, pending: Vec::new(), ended: false, stuck: false, opened_up: false }
    }

    /// Runs a call on this directory, and once more after widening the directory's mode if that was in the way.
    fn permitted<T>(
        &mut self,
        call: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        match call(self.dir.as_fd()) {
            Err(Errno::ACCESS) if !self.opened_up => {
                self.opened_up = true;
                // Through the handle. Should it fail, the second call tells why.
                let _ = fchmod(&self.dir, Mode::RWXU);
                call(self.dir.as_fd())
            }
            result => result,
        }
    }
}

struct Removal<'r> {
    root: &'r Root,
    budget: Budget,
    deadline: Option<Instant>,
    spent: u64,
    passes: u32,
    /// The budget has run out.
    over: bool,
    /// Whether directories were moved up into the top since it was opened.
    hoisted: bool,
    frames: Vec<Frame>,
    report: Removed,
}

impl<'r> Removal<'r> {
    fn new(root: &'r Root, budget: Budget) -> Self {
        Self {
            root,
            budget,
            deadline: Instant::now().checked_add(budget.time),
            spent: 0,
            passes: 0,
            over: false,
            hoisted: false,
            frames: Vec::with_capacity(HELD),
            report: Removed::default(),
        }
    }

    fn run(mut self, parent: BorrowedFd<'_>, top: &[u8]) -> rustix::io::Result<Removed> {
        let mut scanner = Scanner::new();
        let dir = self.enter(parent, top)?;
        self.frames.push(Frame::new(dir, OsString::from_vec(top.to_vec())));
        while !self.frames.is_empty() {
            if self.exhausted() {
                self.leave(Path::new(""), ErrorKind::Busy);
                return Ok(self.report);
            }
            self.advance(&mut scanner, parent);
        }
        Ok(self.report)
    }

    /// Does the next thing in the innermost directory.
    fn advance(&mut self, scanner: &mut Scanner, parent: BorrowedFd<'_>) {
        let Some(frame) = self.frames.last_mut() else { return };
        if let Some(name) = frame.pending.pop() {
            self.descend(name);
        } else if frame.ended {
            self.close(parent);
        } else {
            let mut entries = Vec::new();
            let dir = frame.dir.as_fd();
            let more = scanner.next_batch(dir, |name, hint| {
                entries.push((OsString::from_vec(name.to_vec()), hint));
            });
            match more {
                Ok(more) => frame.ended = !more,
                Err(errno) => {
                    frame.ended = true;
                    self.leave(Path::new(""), ErrorKind::of(errno));
                }
            }
            for (name, hint) in entries {
                if self.exhausted() {
                    break;
                }
                match hint {
                    FileType::Directory => self.postpone(name),
                    _ => self.unlink(name),
                }
            }
        }
    }

    fn unlink(&mut self, name: OsString) {
        self.spent += 1;
        let Some(frame) = self.frames.last_mut() else { return };
        match frame.permitted(|dir| unlinkat(dir, &*name, AtFlags::empty())) {
            Ok(()) => self.report.files += 1,
            Err(Errno::NOENT) => {}
            // The hint was stale or missing.
            Err(Errno::ISDIR) => self.postpone(name),
            Err(errno) => self.leave(Path::new(&name), ErrorKind::of(errno)),
        }
    }

    fn postpone(&mut self, name: OsString) {
        if let Some(frame) = self.frames.last_mut() {
            frame.pending.push(name);
        }
    }

    fn descend(&mut self, name: OsString) {
        self.spent += 1;
        if self.frames.len() >= HELD {
            return self.hoist(name);
        }
        let Some(mut frame) = self.frames.pop() else { return };
        let entered = frame.permitted(|dir| self.enter(dir, name.as_bytes()));
        self.frames.push(frame);
        match entered {
            Ok(dir) => self.frames.push(Frame::new(dir, name)),
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => self.unlink(name),
            // The process has few descriptors left: go no deeper.
            Err(Errno::MFILE | Errno::NFILE) if self.frames.len() > 1 => self.hoist(name),
            Err(errno) => self.remove_unentered(name, errno),
        }
    }

    /// A directory that cannot be opened may still be empty.
    fn remove_unentered(&mut self, name: OsString, cause: Errno) {
        let Some(frame) = self.frames.last_mut() else { return };
        match frame.permitted(|dir| unlinkat(dir, &*name, AtFlags::REMOVEDIR)) {
            Ok(()) => self.report.directories += 1,
            Err(_) => self.leave(Path::new(&name), ErrorKind::of(cause)),
        }
    }

    /// Opens a directory for reading, even one whose mode forbids it.
    fn enter(&self, dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
        match self.root.open_child(dir, name, DIRECTORY, Mounts::Refuse) {
            Err(Errno::ACCESS) => {}
            result => return result,
        }
        // Pinned as a directory, so what is widened and then opened is that directory and nothing else.
        let pin = self.root.open_child(dir, name, OFlags::PATH | OFlags::DIRECTORY, Mounts::Refuse)?;
        let (descriptors, number) = own_descriptors(pin.as_fd()).map_err(|_| Errno::ACCESS)?;
        chmodat(&descriptors, number.as_c_str(), Mode::RWXU, AtFlags::empty())?;
        openat(&descriptors, number.as_c_str(), DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Moves a directory up into the top, where it is found again with fewer directories held open.
    fn hoist(&mut self, name: OsString) {
        let Some(mut frame) = self.frames.pop() else { return };
        let emptied = frame.permitted(|dir| unlinkat(dir, &*name, AtFlags::REMOVEDIR));
        let moved = match (&emptied, self.frames.first()) {
            (Err(Errno::NOTEMPTY | Errno::EXIST), Some(top)) => {
                self.move_up(&mut frame, &name, top.dir.as_fd())
            }
            _ => Ok(()),
        };
        self.frames.push(frame);
        match (emptied, moved) {
            (Ok(()), _) => self.report.directories += 1,
            (Err(Errno::NOENT), _) | (_, Err(Errno::NOENT)) => {}
            (Err(Errno::NOTDIR), _) => self.unlink(name),
            (Err(Errno::NOTEMPTY | Errno::EXIST), Ok(())) => self.hoisted = true,
            (Err(Errno::NOTEMPTY | Errno::EXIST), Err(errno)) | (Err(errno), _) => {
                self.leave(Path::new(&name), ErrorKind::of(errno));
            }
        }
    }

    fn move_up(&self, frame: &mut Frame, name: &OsString, top: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let fresh = unguessable_name()?;
        let rename = |dir: BorrowedFd<'_>| rename_new(dir, name.as_bytes(), top, fresh.as_bytes());
        match frame.permitted(rename) {
            // A directory that moves must be writable itself, since its `..` changes.
            Err(Errno::ACCESS) => self
                .enter(frame.dir.as_fd(), name.as_bytes())
                .and_then(|dir| fchmod(dir, Mode::RWXU))
                .and_then(|()| rename(frame.dir.as_fd())),
            result => result,
        }
    }

    /// The innermost directory was gone through: remove it from the one that holds it.
    fn close(&mut self, parent: BorrowedFd<'_>) {
        self.spent += 1;
        let Some(done) = self.frames.pop() else { return };
        let removed = match self.frames.last_mut() {
            Some(holder) => holder.permitted(|dir| unlinkat(dir, &*done.name, AtFlags::REMOVEDIR)),
            None => unlinkat(parent, &*done.name, AtFlags::REMOVEDIR),
        };
        let is_top = self.frames.is_empty();
        match removed {
            Ok(()) => self.report.directories += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if done.stuck => {
                if let Some(holder) = self.frames.last_mut() {
                    holder.stuck = true;
                }
                return;
            }
            // It has filled again, or was exchanged for another: open what is there now.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                if !(is_top && std::mem::take(&mut self.hoisted)) {
                    self.passes += 1;
                }
                if !is_top {
                    self.postpone(done.name);
                    return;
                }
                match self.enter(parent, done.name.as_bytes()) {
                    Ok(dir) => {
                        self.frames.push(Frame::new(dir, done.name));
                        return;
                    }
                    Err(Errno::NOENT) => {}
                    Err(errno) => {
                        self.leave(Path::new(""), ErrorKind::of(errno));
                        return;
                    }
                }
            }
            Err(Errno::NOTDIR) if !is_top => {
                self.unlink(done.name);
                return;
            }
            Err(errno) => {
                let name = if is_top { PathBuf::new() } else { PathBuf::from(done.name) };
                self.leave(&name, ErrorKind::of(errno));
                return;
            }
        }
        self.report.complete = is_top;
    }

    fn leave(&mut self, name: &Path, kind: ErrorKind) {
        self.report.left_total += 1;
        if self.report.left.len() < TOLD {
            let mut path: PathBuf = self.frames.iter().skip(1).map(|frame| &frame.name).collect();
            path.push(name);
            self.report.left.push(Left { path, kind });
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.stuck = true;
        }
    }

    fn exhausted(&mut self) -> bool {
        self.over = self.over
            || self.spent >= self.budget.entries
            || self.passes > self.budget.passes
            // The clock is read without a syscall, but still not for every entry.
            || (self.spent.is_multiple_of(32) && self.deadline.is_some_and(|deadline| Instant::now() >= deadline));
        self.over
    }
}
