//! What the kernel says about an entry.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp, statx};
use rustix::path::Arg;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// Something this crate does not know.
    Unknown,
}

/// What the kernel says about one entry at one moment.
#[derive(Clone)]
pub struct Metadata {
    mode: u16,
    nlink: u32,
    uid: u32,
    gid: u32,
    ino: u64,
    size: u64,
    blocks: u64,
    mount: MountId,
    accessed: Stamp,
    modified: Stamp,
    changed: Stamp,
    created: Option<Stamp>,
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("file_type", &self.file_type())
            .field("mode", &Octal(self.mode()))
            .field("nlink", &self.nlink)
            .field("uid", &self.uid)
            .field("gid", &self.gid)
            .field("ino", &self.ino)
            .field("size", &self.size)
            .field("modified", &self.modified)
            .field("changed", &self.changed)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        let what = |of: &Self| (of.mode, of.nlink, of.uid, of.gid, of.ino, of.size, of.blocks);
        let when = |of: &Self| (of.accessed, of.modified, of.changed, of.created);
        // Not by `MountId::is`, by which an unknown mount is not even itself.
        let mount = |of: &Self| (of.mount.id, of.mount.device);
        (what(self), when(self), mount(self)) == (what(other), when(other), mount(other))
    }
}

impl Eq for Metadata {}

/// A mode, as people read it.
pub(super) struct Octal(pub(super) u32);

impl fmt::Debug for Octal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#o}", self.0)
    }
}

/// Seconds and nanoseconds since the epoch.
pub(super) type Stamp = (i64, u32);

impl Metadata {
    pub(super) const WANTED: StatxFlags =
        StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

    pub(super) fn from_statx(statx: &Statx) -> Self {
        let stamp = |stamp: StatxTimestamp| (stamp.tv_sec, stamp.tv_nsec);
        let known = |field: StatxFlags| statx.stx_mask & field.bits() != 0;
        Self {
            mode: statx.stx_mode,
            nlink: statx.stx_nlink,
            uid: statx.stx_uid,
            gid: statx.stx_gid,
            ino: statx.stx_ino,
            size: statx.stx_size,
            blocks: statx.stx_blocks,
            mount: MountId {
                id: known(StatxFlags::MNT_ID).then_some(statx.stx_mnt_id),
                device: rustix::fs::makedev(statx.stx_dev_major, statx.stx_dev_minor),
            },
            accessed: stamp(statx.stx_atime),
            modified: stamp(statx.stx_mtime),
            changed: stamp(statx.stx_ctime),
            created: known(StatxFlags::BTIME).then(|| stamp(statx.stx_btime)),
        }
    }

    /// The last changes of the inode and of the content, exactly as the kernel says them.
    pub(super) fn stamps(&self) -> (Stamp, Stamp) {
        (self.changed, self.modified)
    }

    /// The mount the entry is on, so far as the kernel reports it.
    pub(super) fn mount(&self) -> MountId {
        self.mount
    }

    /// The kind of the entry.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        match rustix::fs::FileType::from_raw_mode(self.mode.into()) {
            rustix::fs::FileType::RegularFile => FileType::File,
            rustix::fs::FileType::Directory => FileType::Directory,
            rustix::fs::FileType::Symlink => FileType::Symlink,
            rustix::fs::FileType::Fifo => FileType::Fifo,
            rustix::fs::FileType::Socket => FileType::Socket,
            rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
            rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
            _ => FileType::Unknown,
        }
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::File
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type() == FileType::Symlink
    }

    /// Size in bytes; a hint, since a guest may change the file at any moment.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.size
    }

    /// Whether the size is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes really allocated.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.blocks.saturating_mul(512)
    }

    /// Permission bits, set-id and sticky bits included.
    #[must_use]
    pub fn mode(&self) -> u32 {
        u32::from(self.mode) & 0o7777
    }

    /// Inode number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Device number of the file system.
    #[must_use]
    pub fn dev(&self) -> u64 {
        self.mount.device
    }

    /// How many names the inode has.
    #[must_use]
    pub fn nlink(&self) -> u64 {
        self.nlink.into()
    }

    /// User id of the owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Group id.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Last change of the content; a guest can set it to anything.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        time(self.modified)
    }

    /// Last access; a guest can set it to anything.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        time(self.accessed)
    }

    /// Last change of the inode; only the kernel's clock sets it.
    #[must_use]
    pub fn changed(&self) -> SystemTime {
        time(self.changed)
    }

    /// Creation, where the file system records it.
    #[must_use]
    pub fn created(&self) -> Option<SystemTime> {
        self.created.map(time)
    }
}

/// Describes the entry behind a descriptor.
pub(super) fn describe(fd: BorrowedFd<'_>) -> rustix::io::Result<Metadata> {
    statx(fd, c"", AtFlags::EMPTY_PATH, Metadata::WANTED).map(|found| Metadata::from_statx(&found))
}

/// Describes one entry of a directory, a link itself included.
pub(super) fn describe_at(dir: BorrowedFd<'_>, name: impl Arg) -> rustix::io::Result<Metadata> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(dir, name, flags, Metadata::WANTED).map(|found| Metadata::from_statx(&found))
}

/// Describes an entry, or with an empty name the descriptor itself, by asking the file system: FUSE and network file
/// systems let the kernel cache the link count.
pub(super) fn describe_fresh(dir: BorrowedFd<'_>, name: impl Arg) -> rustix::io::Result<Metadata> {
    let flags =
        AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC;
    statx(dir, name, flags, Metadata::WANTED).map(|found| Metadata::from_statx(&found))
}

/// Identifies a mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct MountId {
    id: Option<u64>,
    device: u64,
}

impl MountId {
    /// Equal to no mount, not even to itself.
    pub(super) const UNKNOWN: Self = Self { id: None, device: u64::MAX };

    /// The number of the mount, if the kernel reports it.
    pub(super) fn known(self) -> Option<u64> {
        self.id
    }

    pub(super) fn is(self, other: Self) -> bool {
        match (self.id, other.id) {
            (Some(this), Some(that)) => this == that,
            // Before 5.8 the kernel does not report it. The device misses a bind mount of the same file system.
            _ => self.device == other.device,
        }
    }
}

fn time((seconds, nanos): Stamp) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanos.into()))).unwrap_or(UNIX_EPOCH)
}
