//! Writing where a guest watches.
//!
//! Problem: a guest plants a link at the name, reads or changes a half-written file, swaps a temporary file before it
//! is renamed, or lets the host die in the middle.
//!
//! Defence: the file is made without a name (`O_TMPFILE`), filled, given mode and owner through its handle, and then
//! linked to its name in one step that never replaces anything. Where the file system has no unnamed files, it gets
//! an unguessable temporary name and is still published through its handle, so whatever the guest has put at the
//! temporary name by then is not what appears.
//!
//! Left: from the moment it is published the file is the guest's. [`Root::replace`] over an existing entry needs a
//! temporary name for one step; a guest that swaps it makes the call fail with `Busy`.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fsync, linkat, openat, renameat,
    renameat_with, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::rand::{GetRandomFlags, getrandom};

use super::path::{Checked, Meant};
use super::resolve::{Handle, describe, describe_at, own_descriptors, subject};
use super::{Access, Durability, Root};
use crate::error::{Error, ErrorKind, Result};

/// How many unguessable names are tried before something is plainly wrong.
const NAME_TRIES: u32 = 16;

impl Root {
    /// Writes `bytes` to a new file at `path`.
    ///
    /// The name appears with the whole content or not at all, and nothing is left behind by a failure or a crash.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) if the name is taken, even by a dangling link;
    /// [`NoSpace`](ErrorKind::NoSpace), [`Denied`](ErrorKind::Denied) and the kinds of every resolution.
    ///
    /// # Races
    /// Of two concurrent writers exactly one succeeds. A reader sees the whole file or none. Once published, the file
    /// is the guest's to change.
    ///
    /// ```
    /// use beneath::ErrorKind;
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive("photo.png", b"\x89PNG")?;
    /// let again = root.write_exclusive("photo.png", b"other").unwrap_err();
    /// assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_exclusive(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = Checked::new("write", path.as_ref(), Meant::Entry)?;
        let (dir, leaf) = self.parent("write", path)?;
        self.draft(dir, bytes.as_ref())
            .and_then(|mut draft| draft.publish_new(leaf, self.policy.durability()))
            .map_err(|failure| failure.about("write", subject(path)))
    }

    /// Puts `bytes` at `path` in place of whatever non-directory is there.
    ///
    /// A link at the name is replaced, never followed. A reader sees the old content or the new, never a mixture.
    ///
    /// # Errors
    /// [`NotRegular`](ErrorKind::NotRegular) if a directory is there, [`Busy`](ErrorKind::Busy) if the guest
    /// interfered with the exchange, and those of [`write_exclusive`](Self::write_exclusive).
    ///
    /// # Races
    /// The guest may put something else at the name as soon as it is published. A host that dies between the last two
    /// steps leaves a file named `.beneath-…` beside the old content.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = Checked::new("replace", path.as_ref(), Meant::Entry)?;
        let (dir, leaf) = self.parent("replace", path)?;
        self.draft(dir, bytes.as_ref())
            .and_then(|mut draft| draft.publish_over(leaf, self.policy.durability()))
            .map_err(|failure| failure.about("replace", subject(path)))
    }

    /// Starts a new file that appears at `path` when it is [committed](NewFile::commit).
    ///
    /// # Errors
    /// Those of every resolution, and [`NoSpace`](ErrorKind::NoSpace) or [`Denied`](ErrorKind::Denied).
    ///
    /// ```
    /// use std::io::Write;
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// let mut file = root.new_file("log.txt")?.with_limit(1 << 20);
    /// writeln!(file, "first line")?;
    /// assert!(root.metadata("log.txt").is_err(), "not there yet");
    /// file.commit()?;
    /// assert_eq!(root.read_contained("log.txt", 64)?, b"first line\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new_file(&self, path: impl AsRef<Path>) -> Result<NewFile> {
        let path = Checked::new("write", path.as_ref(), Meant::Entry)?;
        let (dir, leaf) = self.parent("write", path)?;
        let failed = |failure: Failure| failure.about("write", subject(path));
        let dir = Handle::Opened(dir.into_owned().map_err(|errno| failed(errno.into()))?);
        Ok(NewFile {
            draft: Draft::create(dir).map_err(|errno| failed(errno.into()))?,
            leaf: leaf.to_vec(),
            subject: subject(path).to_path_buf(),
            access: self.policy.access(),
            durability: self.policy.durability(),
            limit: u64::MAX,
            written: 0,
            failed: None,
        })
    }

    fn draft<'a>(&self, dir: Handle<'a>, bytes: &[u8]) -> Result<Draft<'a>, Failure> {
        let draft = Draft::create(dir)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = draft.write(rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        draft.finish(self.policy.access(), self.policy.durability())?;
        Ok(draft)
    }
}

/// Sets owner and mode through a handle. The owner comes first, since changing it clears the set-id bits.
pub(super) fn give_access(fd: BorrowedFd<'_>, access: Access, mode: u32) -> rustix::io::Result<()> {
    if access.owner().is_some() || access.group().is_some() {
        fchown(fd, access.owner().map(Uid::from_raw), access.group().map(Gid::from_raw))?;
    }
    fchmod(fd, Mode::from_raw_mode(mode))
}

/// Makes the entries of a directory durable.
pub(super) fn sync_directory(dir: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fsync(openat(dir, c".", flags, Mode::empty())?)
}

/// A name that no guest can guess, and that tells a person whose it is.
pub(super) fn unguessable_name() -> rustix::io::Result<String> {
    let mut random = [0_u8; 16];
    let mut filled = 0;
    while let Some(rest) = random.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += retry_on_intr(|| getrandom(&mut *rest, GetRandomFlags::empty()))?;
    }
    let mut name = String::from(".beneath-");
    for byte in random {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    Ok(name)
}

/// Why a draft did not become a file.
enum Failure {
    System(Errno),
    /// With what happened, in words.
    Told(ErrorKind, &'static str),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl Failure {
    fn about(self, operation: &'static str, subject: &Path) -> Error {
        match self {
            Self::System(errno) => Error::from_errno(operation, subject, errno),
            Self::Told(kind, detail) => Error::new(operation, subject, kind).with_detail(detail),
        }
    }
}

/// A file that is not published yet, in the directory that will hold it.
#[derive(Debug)]
struct Draft<'a> {
    dir: Handle<'a>,
    file: OwnedFd,
    /// The name it must lose, where the file system has no unnamed files or a replacement is under way.
    temporary: Option<String>,
}

impl<'a> Draft<'a> {
    fn create(dir: Handle<'a>) -> rustix::io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match retry_on_intr(|| openat(dir.as_fd(), c".", flags, Mode::RUSR | Mode::WUSR)) {
            Ok(file) => Ok(Self { dir, file, temporary: None }),
            // How file systems and kernels say that they have no unnamed files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                Self::create_named(dir)
            }
            Err(errno) => Err(errno),
        }
    }

    fn create_named(dir: Handle<'a>) -> rustix::io::Result<Self> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut tries = 0;
        loop {
            let name = unguessable_name()?;
            match retry_on_intr(|| openat(dir.as_fd(), &*name, flags, Mode::RUSR | Mode::WUSR)) {
                Ok(file) => return Ok(Self { dir, file, temporary: Some(name) }),
                Err(Errno::EXIST) if tries < NAME_TRIES => tries += 1,
                Err(errno) => return Err(errno),
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match retry_on_intr(|| rustix::io::write(&self.file, bytes)) {
            // A regular file that takes nothing would be asked for ever.
            Ok(0) => Err(Errno::IO),
            result => result,
        }
    }

    fn finish(&self, access: Access, durability: Durability) -> rustix::io::Result<()> {
        give_access(self.file.as_fd(), access, access.file_mode())?;
        match durability {
            Durability::None => Ok(()),
            Durability::File | Durability::Full => retry_on_intr(|| fsync(&self.file)),
        }
    }

    fn publish_new(&mut self, leaf: &[u8], durability: Durability) -> Result<(), Failure> {
        match (self.link(leaf), &self.temporary) {
            (Ok(()), _) => {}
            // The file system has no hard links either.
            (Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK), Some(temporary)) => {
                rename_new(self.dir.as_fd(), temporary.as_bytes(), self.dir.as_fd(), leaf)?;
                self.temporary = None;
                self.verify(leaf)?;
            }
            (Err(Errno::NOENT), _) => return Err(self.explain_missing()),
            (Err(errno), _) => return Err(errno.into()),
        }
        self.discard_temporary();
        self.settle(durability)
    }

    fn publish_over(&mut self, leaf: &[u8], durability: Durability) -> Result<(), Failure> {
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => match self.link(leaf) {
                Ok(()) => return self.settle(durability),
                Err(Errno::EXIST) => self.link_temporary()?,
                Err(Errno::NOENT) => return Err(self.explain_missing()),
                Err(errno) => return Err(errno.into()),
            },
        };
        let renamed = renameat(self.dir.as_fd(), &*temporary, self.dir.as_fd(), leaf);
        // Renaming over another name of the same file does nothing, and a guest can arrange that.
        let gone = renamed.is_ok() && describe(self.file.as_fd()).is_ok_and(|file| file.nlink() < 2);
        if !gone {
            self.temporary = Some(temporary);
        }
        renamed?;
        self.discard_temporary();
        self.verify(leaf)?;
        self.settle(durability)
    }

    /// Gives this very file the name, however many swaps the guest has made. Never replaces anything.
    fn link(&self, name: &[u8]) -> rustix::io::Result<()> {
        match linkat(&self.file, c"", self.dir.as_fd(), name, AtFlags::EMPTY_PATH) {
            // Before Linux 6.10 this takes a privilege, and its lack is told as ENOENT.
            Err(Errno::NOENT) => {}
            result => return result,
        }
        let (descriptors, number) = own_descriptors(self.file.as_fd())?;
        linkat(descriptors, number, self.dir.as_fd(), name, AtFlags::SYMLINK_FOLLOW)
    }

    fn link_temporary(&self) -> Result<String, Failure> {
        let mut tries = 0;
        loop {
            let name = unguessable_name()?;
            match self.link(name.as_bytes()) {
                Ok(()) => return Ok(name),
                Err(Errno::EXIST) if tries < NAME_TRIES => tries += 1,
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// ENOENT from linking: the directory is gone, the guest took the temporary file away, or there is no way to link.
    fn explain_missing(&self) -> Failure {
        let gone = |fd: BorrowedFd<'_>| describe(fd).is_ok_and(|entry| entry.nlink() == 0);
        if gone(self.dir.as_fd()) {
            Errno::NOENT.into()
        } else if self.temporary.is_some() && gone(self.file.as_fd()) {
            Failure::Told(ErrorKind::Busy, "the temporary file was removed by somebody else")
        } else {
            Failure::Told(ErrorKind::Unsupported, "publishing needs /proc or Linux 6.10")
        }
    }

    /// Whether the name holds this file, after a rename that went by name.
    fn verify(&self, leaf: &[u8]) -> Result<(), Failure> {
        let ours = describe(self.file.as_fd())?;
        match describe_at(self.dir.as_fd(), leaf) {
            Ok(entry) if (entry.dev(), entry.ino()) == (ours.dev(), ours.ino()) => Ok(()),
            _ => Err(Failure::Told(ErrorKind::Busy, "the file was exchanged by somebody else")),
        }
    }

    fn settle(&self, durability: Durability) -> Result<(), Failure> {
        match durability {
            Durability::None | Durability::File => Ok(()),
            Durability::Full => Ok(retry_on_intr(|| sync_directory(self.dir.as_fd()))?),
        }
    }

    fn discard_temporary(&mut self) {
        if let Some(name) = self.temporary.take() {
            // The guest may have moved it already; then it is the guest's own litter.
            let _ = unlinkat(self.dir.as_fd(), name, AtFlags::empty());
        }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.discard_temporary();
    }
}

/// Renames without replacing, on file systems that can and on those that cannot.
pub(super) fn rename_new(
    from_dir: BorrowedFd<'_>,
    from: &[u8],
    to_dir: BorrowedFd<'_>,
    to: &[u8],
) -> rustix::io::Result<()> {
    match renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE) {
        // NFS, ZFS and some FUSE file systems lack NOREPLACE. It is also the answer to a move into oneself.
        Err(Errno::INVAL | Errno::NOSYS) => {}
        result => return result,
    }
    if describe_at(from_dir, from)?.is_dir() {
        // An empty directory reserves the name, and rename may replace exactly that.
        rustix::fs::mkdirat(to_dir, to, Mode::RWXU)?;
        return renameat(from_dir, from, to_dir, to).inspect_err(|_| {
            // It stays only if the guest has filled it.
            let _ = unlinkat(to_dir, to, AtFlags::REMOVEDIR);
        });
    }
    linkat(from_dir, from, to_dir, to, AtFlags::empty())?;
    unlinkat(from_dir, from, AtFlags::empty())
}

/// A new file that nobody sees until it is committed.
///
/// Dropping it leaves nothing. After a failed write it cannot be committed any more.
#[derive(Debug)]
pub struct NewFile {
    draft: Draft<'static>,
    leaf: Vec<u8>,
    subject: PathBuf,
    access: Access,
    durability: Durability,
    limit: u64,
    written: u64,
    failed: Option<ErrorKind>,
}

impl NewFile {
    /// Refuses to grow beyond `max_bytes`.
    #[must_use]
    pub fn with_limit(mut self, max_bytes: u64) -> Self {
        self.limit = max_bytes;
        self
    }

    /// How many bytes were written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Publishes the file under its name, which must be free.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists), [`TooLarge`](ErrorKind::TooLarge) if the limit was hit, or the kind
    /// of an earlier failed write.
    ///
    /// # Races
    /// As [`Root::write_exclusive`].
    pub fn commit(mut self) -> Result<()> {
        let leaf = std::mem::take(&mut self.leaf);
        self.publish(|draft, durability| draft.publish_new(&leaf, durability))
    }

    /// Publishes the file under `name` in the same directory instead, and can be called again if that name is taken.
    ///
    /// # Errors
    /// As [`commit`](Self::commit), and [`InvalidPath`](ErrorKind::InvalidPath) if `name` is not one component.
    pub fn commit_as(&mut self, name: impl AsRef<Path>) -> Result<()> {
        let checked = Checked::new("write", name.as_ref(), Meant::Entry)?;
        let (None, leaf) = checked.split() else {
            return Err(Error::new("write", name, ErrorKind::InvalidPath).with_detail("name has a slash"));
        };
        self.subject.set_file_name(name.as_ref());
        self.publish(|draft, durability| draft.publish_new(leaf, durability))?;
        // A second name would make it a hard link.
        self.failed = Some(ErrorKind::AlreadyExists);
        Ok(())
    }

    /// Publishes the file in place of whatever non-directory has its name.
    ///
    /// # Errors
    /// As [`Root::replace`], or the kind of an earlier failed write.
    ///
    /// # Races
    /// As [`Root::replace`].
    pub fn commit_replace(mut self) -> Result<()> {
        let leaf = std::mem::take(&mut self.leaf);
        self.publish(|draft, durability| draft.publish_over(&leaf, durability))
    }

    fn publish(
        &mut self,
        publish: impl FnOnce(&mut Draft<'static>, Durability) -> Result<(), Failure>,
    ) -> Result<()> {
        if let Some(kind) = self.failed {
            return Err(Error::new("write", &self.subject, kind));
        }
        let published = match self.draft.finish(self.access, self.durability) {
            Ok(()) => publish(&mut self.draft, self.durability),
            Err(errno) => Err(errno.into()),
        };
        published.map_err(|failure| failure.about("write", &self.subject))
    }

    fn fail(&mut self, error: Error) -> io::Error {
        self.failed = Some(error.kind());
        error.into()
    }
}

impl io::Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if let Some(kind) = self.failed {
            return Err(Error::new("write", &self.subject, kind).into());
        }
        if self.limit - self.written < bytes.len() as u64 {
            let error = Error::new("write", &self.subject, ErrorKind::TooLarge);
            return Err(self.fail(error));
        }
        match self.draft.write(bytes) {
            Ok(written) => {
                self.written += written as u64;
                Ok(written)
            }
            Err(errno) => {
                let error = Error::from_errno("write", &self.subject, errno);
                Err(self.fail(error))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
