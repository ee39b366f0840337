//! A file on its way to its name: unnamed or under a temporary name, and published through its handle.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fsync, linkat, mkdirat, openat, renameat,
    renameat_with, symlinkat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use crate::entropy::unguessable;
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "artifacts")]
use crate::root::Metadata;
use crate::root::access::{acl, times};
use crate::root::metadata::{describe, describe_at};
use crate::root::resolve::Handle;
use crate::root::resolve::proc::own_descriptors;
use crate::root::{Access, Durability};

/// A new file under its own name, and nothing else.
const NAMED: OFlags =
    OFlags::CREATE.union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::RDWR).union(OFlags::CLOEXEC);
/// The mode of a draft until it gets that of the policy.
const UNFINISHED: Mode = Mode::RUSR.union(Mode::WUSR);

/// Why a draft did not become a file.
pub(in crate::root) enum Failure {
    System(Errno),
    /// With what happened, in words.
    Said(ErrorKind, &'static str),
}

const NO_EXCLUSIVE_NAMES: Failure = Failure::Said(
    ErrorKind::Unsupported,
    "the file system has neither hard links nor a rename that does not replace",
);

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl Failure {
    pub(in crate::root) fn about(self, operation: &'static str, subject: &Path) -> Error {
        match self {
            Self::System(errno) => Error::from_errno(operation, subject, errno),
            Self::Said(kind, detail) => Error::new(operation, subject, kind).with_detail(detail),
        }
    }
}

/// A file that is not published yet, in the directory that will hold it.
#[derive(Debug)]
pub(in crate::root) struct Draft<'a> {
    dir: Handle<'a>,
    file: OwnedFd,
    /// The name it must lose, where the file system has no unnamed files or a replacement is under way.
    temporary: Option<Vec<u8>>,
    /// The directory, opened so that it can be synced. Before publishing, since a guest may forbid it later.
    sync: Option<OwnedFd>,
}

impl<'a> Draft<'a> {
    pub(in crate::root) fn create(dir: Handle<'a>) -> rustix::io::Result<Self> {
        // To read as well, since a name that is taken may hold the same.
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match retry_on_intr(|| openat(dir.as_fd(), c".", flags, UNFINISHED)) {
            Ok(file) => Ok(Self { dir, file, temporary: None, sync: None }),
            // How file systems and kernels say that they have no unnamed files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                Self::create_named(dir)
            }
            // What ext4 says of a directory that was removed.
            Err(Errno::PERM) if is_gone(dir.as_fd()) => Err(Errno::NOENT),
            Err(errno) => Err(errno),
        }
    }

    fn create_named(dir: Handle<'a>) -> rustix::io::Result<Self> {
        let name = unguessable_name()?;
        let file = retry_on_intr(|| openat(dir.as_fd(), &*name, NAMED, UNFINISHED))?;
        Ok(Self { dir, file, temporary: Some(name.into_bytes()), sync: None })
    }

    /// Makes a symbolic link under a temporary name, which is returned too, and pins what has that name: the guest may have
    /// exchanged it already.
    pub(in crate::root) fn create_link(dir: Handle<'a>, text: &[u8]) -> rustix::io::Result<(Self, String)> {
        let name = unguessable_name()?;
        retry_on_intr(|| symlinkat(text, dir.as_fd(), &*name))?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match retry_on_intr(|| openat(dir.as_fd(), &*name, flags, Mode::empty())) {
            Ok(file) => {
                Ok((Self { dir, file, temporary: Some(name.clone().into_bytes()), sync: None }, name))
            }
            Err(errno) => {
                // The first failure is the one to report.
                let _ = unlinkat(dir.as_fd(), name, AtFlags::empty());
                Err(errno)
            }
        }
    }

    /// Makes the file under its own name and with its mode, where nobody watches; dropped, it is removed.
    #[cfg(feature = "artifacts")]
    pub(in crate::root) fn create_visible(
        dir: Handle<'a>,
        leaf: &[u8],
        mode: u32,
    ) -> rustix::io::Result<Self> {
        let mode = Mode::from_raw_mode(mode);
        let file = retry_on_intr(|| openat(dir.as_fd(), leaf, NAMED, mode))?;
        Ok(Self { dir, file, temporary: Some(leaf.to_vec()), sync: None })
    }

    /// Ends what [`create_visible`](Self::create_visible) began.
    #[cfg(feature = "artifacts")]
    pub(in crate::root) fn keep(
        mut self,
        access: Access,
        mode: u32,
        durability: Durability,
    ) -> rustix::io::Result<Metadata> {
        let written = describe(self.file.as_fd())?;
        // The umask or a default of the directory may have taken from the mode.
        if written.mode() != mode || access.owner().is_some() || access.group().is_some() {
            give_access(self.file.as_fd(), access, mode)?;
        }
        self.make_durable(durability)?;
        self.temporary = None;
        if let Some(dir) = &self.sync {
            retry_on_intr(|| fsync(dir))?;
        }
        Ok(written)
    }

    /// Lets the file be last modified at `time`. A write after it changes that.
    pub(in crate::root) fn set_modified(&self, time: SystemTime) -> rustix::io::Result<()> {
        times::set_modified(self.file.as_fd(), time)
    }

    pub(in crate::root) fn write_all(&self, mut bytes: &[u8]) -> rustix::io::Result<()> {
        while !bytes.is_empty() {
            let written = self.write(bytes)?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    pub(in crate::root) fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match retry_on_intr(|| rustix::io::write(&self.file, bytes)) {
            // A regular file that takes nothing would be asked without end.
            Ok(0) => Err(Errno::IO),
            result => result,
        }
    }

    pub(in crate::root) fn finish(
        &mut self,
        access: Access,
        mode: u32,
        durability: Durability,
    ) -> rustix::io::Result<()> {
        // The bits of the group limit what a list grants, so a private file need not be asked for one.
        if mode & 0o070 != 0 {
            acl::strip_file(self.file.as_fd())?;
        }
        give_access(self.file.as_fd(), access, mode)?;
        self.make_durable(durability)
    }

    fn make_durable(&mut self, durability: Durability) -> rustix::io::Result<()> {
        if durability == Durability::Full && self.sync.is_none() {
            self.sync = Some(open_to_sync(self.dir.as_fd())?);
        }
        match durability {
            Durability::None => Ok(()),
            Durability::File | Durability::Full => retry_on_intr(|| fsync(&self.file)),
        }
    }

    pub(in crate::root) fn publish_new(&mut self, leaf: &[u8]) -> Result<(), Failure> {
        match &self.temporary {
            None => self.link(leaf).map_err(|errno| self.explain(errno))?,
            Some(temporary) => {
                let dir = self.dir.as_fd();
                match renameat_with(dir, &**temporary, dir, leaf, RenameFlags::NOREPLACE) {
                    Ok(()) => {
                        self.temporary = None;
                        self.verify(leaf)?;
                    }
                    // The file system cannot rename without replacing, but a link never replaces.
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        let by_name = |_| linkat(dir, &**temporary, dir, leaf, AtFlags::empty());
                        let linked = self.link(leaf).or_else(by_name);
                        linked.map_err(|errno| match errno {
                            // What the kernel says for a file system that has no hard links.
                            Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS => NO_EXCLUSIVE_NAMES,
                            _ => self.explain(errno),
                        })?;
                        // First, since a daemon that works with paths loses a file that is held as soon as its first name goes.
                        self.verify(leaf)?;
                        self.discard_temporary();
                    }
                    Err(errno) => return Err(self.explain(errno)),
                }
            }
        }
        self.settle()
    }

    pub(in crate::root) fn publish_over(&mut self, leaf: &[u8]) -> Result<(), Failure> {
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => match self.link(leaf) {
                Ok(()) => return self.settle(),
                Err(Errno::EXIST) => self.link_temporary()?,
                Err(errno) => return Err(self.explain(errno)),
            },
        };
        let renamed = renameat(self.dir.as_fd(), &*temporary, self.dir.as_fd(), leaf);
        // Renaming over another name of the same file does nothing, and a guest can arrange that.
        self.temporary = Some(temporary);
        renamed.map_err(|errno| self.explain(errno))?;
        self.discard_temporary();
        self.verify(leaf)?;
        self.settle()
    }

    /// The directory that will hold the file.
    pub(in crate::root) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Gives this very file the name, however many swaps the guest has made. Never replaces anything.
    fn link(&self, name: &[u8]) -> rustix::io::Result<()> {
        match linkat(&self.file, c"", self.dir.as_fd(), name, AtFlags::EMPTY_PATH) {
            // Before Linux 6.10 this takes a privilege, and its lack is reported as ENOENT.
            Err(Errno::NOENT) => {}
            result => return result,
        }
        let (descriptors, number) = own_descriptors(self.file.as_fd())?;
        linkat(descriptors, number, self.dir.as_fd(), name, AtFlags::SYMLINK_FOLLOW)
    }

    fn link_temporary(&self) -> Result<Vec<u8>, Failure> {
        let name = unguessable_name()?.into_bytes();
        self.link(&name)?;
        Ok(name)
    }

    /// ENOENT from publishing: the directory is gone, the guest took the temporary file away, or there is no way to link.
    fn explain(&self, errno: Errno) -> Failure {
        if errno != Errno::NOENT || is_gone(self.dir.as_fd()) {
            errno.into()
        } else if self.temporary.is_some() {
            Failure::Said(ErrorKind::Busy, "the temporary file was moved by somebody else")
        } else {
            Failure::Said(ErrorKind::Unsupported, "publishing needs /proc or Linux 6.10")
        }
    }

    /// Whether the name holds this file, after a rename that went by name.
    fn verify(&self, leaf: &[u8]) -> Result<(), Failure> {
        let ours = describe(self.file.as_fd())?;
        match describe_at(self.dir.as_fd(), leaf) {
            Ok(entry) if (entry.dev(), entry.ino()) == (ours.dev(), ours.ino()) => Ok(()),
            _ => Err(Failure::Said(ErrorKind::Busy, "the file was exchanged by somebody else")),
        }
    }

    fn settle(&self) -> Result<(), Failure> {
        match &self.sync {
            Some(dir) => Ok(retry_on_intr(|| fsync(dir))?),
            None => Ok(()),
        }
    }

    fn discard_temporary(&mut self) {
        if let Some(name) = self.temporary.take() {
            // The guest may have moved it already; then it is the guest's own file.
            let _ = unlinkat(self.dir.as_fd(), name, AtFlags::empty());
        }
    }
}

impl AsFd for Draft<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.discard_temporary();
    }
}

/// Whether the last name of a file or directory is gone.
fn is_gone(fd: BorrowedFd<'_>) -> bool {
    describe(fd).is_ok_and(|entry| entry.nlink() == 0)
}

/// Renames without replacing, on file systems that can and on those that cannot.
pub(in crate::root) fn rename_new(
    from_dir: BorrowedFd<'_>,
    from: &[u8],
    to_dir: BorrowedFd<'_>,
    to: &[u8],
) -> rustix::io::Result<()> {
    match renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE) {
        Err(errno) if lacks_noreplace(errno) => {}
        result => return result,
    }
    if describe_at(from_dir, from)?.is_dir() {
        // An empty directory reserves the name, and rename may replace exactly that.
        mkdirat(to_dir, to, Mode::RWXU)?;
        return renameat(from_dir, from, to_dir, to).inspect_err(|_| {
            // It stays only if the guest has filled it.
            let _ = unlinkat(to_dir, to, AtFlags::REMOVEDIR);
        });
    }
    match linkat(from_dir, from, to_dir, to, AtFlags::empty()) {
        // What the kernel says for a file system that has no hard links.
        Err(Errno::PERM) => return Err(Errno::OPNOTSUPP),
        linked => linked?,
    }
    unlinkat(from_dir, from, AtFlags::empty())
}

/// NFS, ZFS and some FUSE file systems lack NOREPLACE. It is also the answer to a move into oneself.
fn lacks_noreplace(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS)
}

/// Renames to a name that nobody else uses: an unguessable one, or one in a directory that only the host reaches. Unlike
/// [`rename_new`] it is one step on every file system, so a host that dies leaves no empty directory at either name. Where
/// NOREPLACE is missing it replaces an empty directory.
#[cfg(feature = "session")]
pub(in crate::root) fn rename_fresh(
    from_dir: BorrowedFd<'_>,
    from: &[u8],
    to_dir: BorrowedFd<'_>,
    to: &[u8],
) -> rustix::io::Result<()> {
    match renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE) {
        Err(errno) if lacks_noreplace(errno) => renameat(from_dir, from, to_dir, to),
        result => result,
    }
}

/// Sets owner and mode through a handle. The owner comes first, since changing it clears the set-id bits.
pub(in crate::root) fn give_access(fd: BorrowedFd<'_>, access: Access, mode: u32) -> rustix::io::Result<()> {
    if access.owner().is_some() || access.group().is_some() {
        fchown(fd, access.owner().map(Uid::from_raw), access.group().map(Gid::from_raw))?;
    }
    fchmod(fd, Mode::from_raw_mode(mode))
}

/// Opens a directory so that its entries can be made durable.
pub(in crate::root) fn open_to_sync(dir: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    openat(dir, c".", OFlags::CLOEXEC, Mode::empty())
}

/// A name that no guest can guess, and that shows a person whose it is.
pub(in crate::root) fn unguessable_name() -> rustix::io::Result<String> {
    unguessable().map(|digits| format!(".beneath-{digits}"))
}
