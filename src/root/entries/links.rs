//! Links as entries: their text is read and made, and never followed.
//!
//! Problem: `readlink` by path follows links in the middle, and what is at the name may be exchanged between a look at its type
//! and the call. A new link that is given to an owner by its name may by then be a second name of a host's file.
//!
//! Defence: a link is pinned with `O_PATH | O_NOFOLLOW`, and its text is asked of that handle. A new link is made in one step in
//! a parent handle. If it is to have another owner it is made under an unguessable name, pinned, compared with what was
//! asked for, proven to have no other name, given away through its handle, and then renamed without replacing.
//!
//! What remains: the text says whatever its maker wrote, and is resolved by whoever follows it. From the moment it is published
//! the link is the guest's to replace.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Uid, chownat, fsync, readlinkat, symlinkat};
use rustix::io::retry_on_intr;

use crate::error::{Error, ErrorKind, Result};
use crate::root::metadata::describe;
use crate::root::read::single::{self, Proof, Purpose};
use crate::root::resolve::Handle;
use crate::root::resolve::path::{Checked, Meant, subject};
use crate::root::write::draft::{Draft, Failure, open_to_sync};
use crate::root::{Access, Durability, Root};

/// Longest text the kernel takes, without its NUL.
const TEXT_BYTES: usize = 4095;
const CREATE: &str = "create link";

impl Root {
    /// Returns the text of the link at `path`, which is not followed under any policy.
    ///
    /// The text is the guest's: use it as a name only after a check, and never as a path of the host.
    ///
    /// # Errors
    /// [`NotSymlink`](ErrorKind::NotSymlink) for anything but a link, [`Symlink`](ErrorKind::Symlink) for a link in the middle
    /// of the path, [`NotFound`](ErrorKind::NotFound) and the kinds of every resolution.
    ///
    /// # Races
    /// The text is that of one link that was an entry beneath the root during the call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.symlink("../lib/cli.js", "cli")?;
    /// assert_eq!(root.read_link("cli")?.to_str(), Some("../lib/cli.js"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        const OPERATION: &str = "read link";
        let path = Checked::new(OPERATION, path.as_ref(), Meant::Entry)?;
        let failed = |errno| Error::from_errno(OPERATION, subject(path), errno);
        let pin = self.pin_entry(OPERATION, path)?;
        if !describe(pin.as_fd()).map_err(failed)?.is_symlink() {
            return Err(Error::new(OPERATION, subject(path), ErrorKind::NotSymlink));
        }
        text_of(pin.as_fd()).map(PathBuf::from).map_err(failed)
    }

    /// Makes a symbolic link at `path`, which must be free.
    ///
    /// `text` is kept byte for byte, and may be anything from 1 to 4095 bytes without a NUL: a path that is absolute, leads out
    /// of the root or nowhere. No call of this crate follows it out of the root. The owner is the policy's; a link has no mode.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) if the name is taken, even by a dangling link;
    /// [`InvalidData`](ErrorKind::InvalidData) for a text that no link can have; [`InvalidPath`](ErrorKind::InvalidPath) for one
    /// that this file system finds too long; [`Busy`](ErrorKind::Busy) or [`HardLinked`](ErrorKind::HardLinked) if the guest interferes while the link is given to its
    /// owner; [`NoSpace`](ErrorKind::NoSpace), [`ReadOnly`](ErrorKind::ReadOnly), [`Denied`](ErrorKind::Denied) (also from a file
    /// system without links) and the kinds of every resolution.
    ///
    /// # Races
    /// Of two concurrent callers exactly one succeeds. With an owner in the policy the link first has a name `.beneath-…`, which
    /// a host that dies leaves behind; nothing but the new link is given away, whatever the guest puts at that name.
    /// [`Durability::Full`] syncs the directory; a link cannot be synced by itself.
    ///
    /// ```
    /// use beneath::ErrorKind;
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.symlink("/etc/passwd", "out")?;
    /// assert_eq!(root.read_contained("out", 1024).unwrap_err().kind(), ErrorKind::Symlink);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn symlink(&self, text: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let text = text.as_ref().as_os_str().as_bytes();
        let path = Checked::new(CREATE, path.as_ref(), Meant::Entry)?;
        if let Some(why) = refused_text(text) {
            return Err(Error::new(CREATE, subject(path), ErrorKind::InvalidData).with_detail(why));
        }
        self.writable(CREATE, path)?;
        let failed = |errno| Error::from_errno(CREATE, subject(path), errno);
        let (dir, leaf) = self.parent(CREATE, path)?;
        // Before the link is there, since a guest may forbid it later.
        let sync = match self.policy.durability() {
            Durability::Full => Some(open_to_sync(dir.as_fd()).map_err(failed)?),
            Durability::None | Durability::File => None,
        };
        let access = self.policy.access();
        if access.owner().is_none() && access.group().is_none() {
            retry_on_intr(|| symlinkat(text, dir.as_fd(), leaf)).map_err(failed)?;
        } else {
            self.symlink_owned(text, path, (dir, leaf), access)?;
        }
        sync.map_or(Ok(()), |dir| retry_on_intr(|| fsync(&dir))).map_err(failed)
    }

    fn symlink_owned(
        &self,
        text: &[u8],
        path: Checked<'_>,
        (dir, leaf): (Handle<'_>, &[u8]),
        access: Access,
    ) -> Result<()> {
        let failed = |failure: Failure| failure.about(CREATE, subject(path));
        let (mut draft, name) = Draft::create_link(dir, text).map_err(|errno| failed(errno.into()))?;
        let temporary = subject(path).with_file_name(name);
        let place = Checked::new(CREATE, &temporary, Meant::Entry)?;
        let pin = draft.as_fd();
        // The guest sees the directory change, and may have put another link at the name before it was pinned.
        let is_ours = describe(pin).is_ok_and(|entry| entry.is_symlink())
            && text_of(pin).is_ok_and(|found| found.as_bytes() == text);
        let single = || self.prove_single(CREATE, place, pin, Purpose::Change, single::patience());
        if !is_ours || single().map_err(|error| error.about(subject(path)))? != Proof::Single {
            return Err(failed(Failure::Said(
                ErrorKind::Busy,
                "the new link was exchanged by somebody else",
            )));
        }
        let (owner, group) = (access.owner().map(Uid::from_raw), access.group().map(Gid::from_raw));
        chownat(pin, c"", owner, group, AtFlags::EMPTY_PATH).map_err(|errno| failed(errno.into()))?;
        draft.publish_new(leaf).map_err(failed)
    }
}

/// The text of the very link that is held.
fn text_of(link: BorrowedFd<'_>) -> rustix::io::Result<OsString> {
    readlinkat(link, c"", Vec::new()).map(|text| OsString::from_vec(text.into_bytes()))
}

fn refused_text(text: &[u8]) -> Option<&'static str> {
    match text {
        [] => Some("the text of a link cannot be empty"),
        long if long.len() > TEXT_BYTES => Some("the text of a link cannot be longer than 4095 bytes"),
        text if text.contains(&0) => Some("the text of a link cannot contain a NUL byte"),
        _ => None,
    }
}
