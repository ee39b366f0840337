//! Whether a file has no name but the one it was found by.
//!
//! Problem: a guest links a host's file into the tree, the host opens it, the guest unlinks it, and the host asks for
//! the link count. It is one, and that one name is the host's. The count alone says nothing about whose name is left.
//!
//! What the kernel orders: `link` sets the inode's change time and raises the count, and only then the name exists.
//! `unlink`, and a rename over the name, hold the directory's lock from before the count is lowered until the name is gone;
//! in between, ext4 lowers the count first and sets the change time after it, tmpfs, XFS and btrfs the other way round.
//! The change time is the kernel's clock and nobody can set it.
//!
//! Defence, in two strengths:
//! * *A look.* Let `C` be the coarse clock before the lookup. A file that has one name and last changed well before `C` has
//!   neither gained nor lost a name since, so its one name is the one that was looked up after `C`. It costs no call, and is
//!   repeated after the content was read.
//! * *A proof.* Ask the handle: one name, change time `c`. Ask by name: this inode, one name, `c`. Rename the name to itself
//!   without replacing, which changes nothing but waits for the directory's lock. Ask by name again: the same. As `c` was read
//!   first, a `link` whose time is not later than `c` was over when the name was found, or had not yet made it. So had the
//!   file had another name when the name was found, an `unlink` must have been under way that had lowered the count and not
//!   yet removed this name. It held the directory's lock, so by the last answer the name was gone, and only a `link` or a
//!   rename of the file can have brought it back, both of which set the change time.
//!
//!   Two changes within one tick of the clock have different times where the kernel gives every change that somebody asked
//!   about a time of its own (Linux 6.13 on ext4, XFS, btrfs and tmpfs), which is measured. Elsewhere the proof waits until
//!   `c` is older than a tick, unless the file is only to be read and its last change was a write.
//!
//! What remains: for the look, an `unlink` that takes longer than [`RECENT`] from lowering the count to removing the name. A
//! guest can try for that, by `chattr +D` and a busy disk; [`HardLinks::RefuseStrict`] always takes the proof. Where
//! change times are coarse, a host's file that is written to in the very tick in which the guest links and unlinks it. A clock
//! that is set back during the call. On file systems that are served from elsewhere (NFS, FUSE) count and time are the server's
//! word; every read there takes the proof.

pub(in crate::root) mod family;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, RenameFlags, Stat, mkdirat, readlinkat, renameat, renameat_with};
use rustix::io::Errno;

use super::stamps::{Before, TICK, stamps_exactly};
use crate::error::{Error, ErrorKind, Result};
use crate::root::metadata::{Metadata, Stamp, describe_fresh};
use crate::root::resolve::path::subject;
use crate::root::resolve::path::{Checked, Meant};
use crate::root::resolve::proc::own_descriptors;
use crate::root::{HardLinks, Links, Mounts, Root};

/// A change that is younger than this may still be under way: an `unlink` is long where it waits for the disk.
const RECENT: Duration = Duration::from_secs(2);
/// How often a proof is tried at once while the file changes. After that it is tried now and then, as long as the call may wait.
const TRIES: u32 = 512;
const NOW_AND_THEN: Duration = Duration::from_micros(100);
/// How often a file is opened anew because the name led to another one meanwhile.
pub(in crate::root) const REOPENED: u32 = 16;

/// What distinguishes one file from another, and shows whether its names have changed.
#[derive(Clone, Copy, Debug)]
pub(in crate::root) struct Seen {
    inode: (u64, u64),
    nlink: u64,
    changed: Stamp,
}

impl Seen {
    pub(in crate::root) fn is(self, other: Self) -> bool {
        self.inode == other.inode
    }
}

impl From<&Stat> for Seen {
    // The types of the fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    fn from(file: &Stat) -> Self {
        Self {
            inode: (file.st_dev as u64, file.st_ino as u64),
            nlink: file.st_nlink as u64,
            changed: (file.st_ctime as i64, file.st_ctime_nsec as u32),
        }
    }
}

impl From<&Metadata> for Seen {
    fn from(file: &Metadata) -> Self {
        Self { inode: (file.dev(), file.ino()), nlink: file.nlink(), changed: file.stamps().0 }
    }
}

/// What a look at the link count says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::root) enum Names {
    /// One name, and it is the one that was looked up; or none, so that nobody else has one either.
    Single,
    /// Several, or whose name it is is not certain.
    Unproven,
}

/// What a proof has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::root) enum Proof {
    /// The name is the file's only one.
    Single,
    /// The file has no name any more, so nobody else has one either.
    Nameless,
    /// The name leads to something else by now.
    Elsewhere,
}

/// What the proof is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::root) enum Purpose {
    Read,
    /// To change mode and owner, which must not happen even to a foreign file that the guest may write to.
    Change,
}

/// How long one call may wait for a file to rest.
pub(in crate::root) fn patience() -> Instant {
    let now = Instant::now();
    now.checked_add(TICK * 10).unwrap_or(now)
}

impl Root {
    /// Judges the link count of a file that was looked up after `before`.
    #[inline]
    pub(in crate::root) fn look(&self, before: Before, file: Seen) -> Names {
        match (self.policy.hard_links(), file.nlink) {
            (HardLinks::Allow, _) | (_, 0) => Names::Single,
            (HardLinks::Refuse, 1)
                if self.stamps
                    && self.policy.mounts() == Mounts::Refuse
                    && before.is_past(file.changed, RECENT) =>
            {
                Names::Single
            }
            _ => Names::Unproven,
        }
    }

    /// Proves that the file behind `held` has no name but `path`. Where change times are not exact, waits for the last change
    /// to be older than a tick, but no longer than `until`.
    pub(in crate::root) fn prove_single(
        &self,
        operation: &'static str,
        path: Checked<'_>,
        held: BorrowedFd<'_>,
        purpose: Purpose,
        until: Instant,
    ) -> Result<Proof> {
        let failed = |errno| Error::from_errno(operation, subject(path), errno);
        let real = match self.policy.links() {
            Links::FollowBeneath => self.place_of(held),
            Links::Refuse => None,
        };
        let place = real.as_deref().and_then(|real| Checked::new(operation, real, Meant::Entry).ok());
        let place = place.unwrap_or(path);
        let mut tries = 0;
        while tries < TRIES || Instant::now() < until {
            if tries >= TRIES {
                // Somebody writes without pause. Between two writes there is time for a proof, but not in each gap.
                std::thread::sleep(NOW_AND_THEN);
            }
            tries += 1;
            let before = Before::now();
            let found = describe_fresh(held, c"").map_err(failed)?;
            let held = Seen::from(&found);
            match held.nlink {
                0 => return Ok(Proof::Nameless),
                1 => {}
                _ => return Err(Error::new(operation, subject(path), ErrorKind::HardLinked)),
            }
            let (dir, leaf) = self.parent(operation, place).map_err(|error| error.about(subject(path)))?;
            let named = || describe_fresh(dir.as_fd(), leaf);
            let looks =
                named().and_then(|first| barrier(dir.as_fd(), leaf).and_then(|()| Ok((first, named()?))));
            let (first, last) = match looks {
                Ok((link, _))
                    if link.is_symlink()
                        && !found.is_symlink()
                        && self.policy.links() == Links::FollowBeneath =>
                {
                    return Err(
                        failed(Errno::OPNOTSUPP).with_detail("is a link, and only /proc says where it leads")
                    );
                }
                Ok((first, last)) => (Seen::from(&first), Seen::from(&last)),
                Err(Errno::NOENT) => return Ok(Proof::Elsewhere),
                Err(errno) => return Err(failed(errno)),
            };
            if !first.is(held) || !last.is(held) {
                return Ok(Proof::Elsewhere);
            }
            let same = |seen: Seen| (seen.nlink, seen.changed) == (1, held.changed);
            if !same(first) || !same(last) {
                continue;
            }
            if self.is_decisive(before, &found, purpose) {
                return Ok(Proof::Single);
            }
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(TICK);
        }
        Err(Error::new(operation, subject(path), ErrorKind::Busy)
            .with_detail("gains and loses names, or changes, without pause"))
    }

    /// Whether an equal change time later on means that nothing has changed. Where the kernel does not set the times there
    /// is nothing to wait for.
    pub(in crate::root) fn is_decisive(&self, before: Before, file: &Metadata, purpose: Purpose) -> bool {
        !self.stamps || self.is_at_rest(before, file, purpose)
    }

    /// The same, whoever sets the times.
    fn is_at_rest(&self, before: Before, file: &Metadata, purpose: Purpose) -> bool {
        let (changed, modified) = file.stamps();
        let exact = || *self.exact.get_or_init(|| stamps_exactly(self.as_fd()).unwrap_or(false));
        before.is_past(changed, TICK)
            // Measured on this mount, and another one may have been entered.
            || (self.mount.is(file.mount()) && exact())
            // The last change was a write: a log must be readable while it grows, and whoever writes to a file knows it.
            || (purpose == Purpose::Read && changed == modified)
    }

    /// Where the kernel says the file is, beneath this root. A hint, since the guest may move it meanwhile: a path with links
    /// in it does not say in which directory the file has its name.
    fn place_of(&self, held: BorrowedFd<'_>) -> Option<PathBuf> {
        let shown = |fd: BorrowedFd<'_>| {
            let (descriptors, number) = own_descriptors(fd).ok()?;
            let text = readlinkat(&descriptors, number.as_c_str(), Vec::new()).ok()?;
            Some(PathBuf::from(OsString::from_vec(text.into_bytes())))
        };
        shown(held)?.strip_prefix(shown(self.as_fd())?).ok().map(Path::to_path_buf)
    }
}

/// Whether the file system itself says so at this moment.
pub(in crate::root) fn has_several_names(file: BorrowedFd<'_>) -> bool {
    describe_fresh(file, c"").map_or(true, |file| file.nlink() > 1)
}

/// Waits until whatever changes the name is done, and changes nothing itself. ENOENT if there is no such name.
fn barrier(dir: BorrowedFd<'_>, leaf: &[u8]) -> rustix::io::Result<()> {
    // The kernel takes the directory's lock and finds the name before it asks the file system, so it needs no support.
    match renameat_with(dir, leaf, dir, leaf, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => Ok(()),
        // A seccomp profile that does not know the call. Renaming a name to itself does nothing either.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::ACCESS) => renameat(dir, leaf, dir, leaf),
        // Not a mount that can be written: nothing changes names through it, and elsewhere this takes the same lock.
        Err(Errno::ROFS) => match mkdirat(dir, leaf, Mode::empty()) {
            Err(Errno::EXIST) => Ok(()),
            Err(Errno::ROFS) => Err(Errno::NOENT),
            other => other,
        },
        other => other,
    }
}
