//! What a [`Root`](super::Root) allows, and how the files it makes look.

use std::fmt;

use super::metadata::Octal;

/// What a [`Root`](super::Root) does about links, mounts, modes and durability.
///
/// The default refuses symbolic links, hard links on read and mount crossings, makes files `0600` and
/// directories `0700`, and does not call fsync.
///
/// ```
/// use beneath::{Access, Durability, Links, Policy};
///
/// let policy = Policy::default()
///     .with_links(Links::FollowBeneath)
///     .with_access(Access::shared())
///     .with_durability(Durability::Full);
/// assert_eq!(policy.access().file_mode(), 0o660);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    links: Links,
    hard_links: HardLinks,
    mounts: Mounts,
    access: Access,
    durability: Durability,
    resolver: ResolverChoice,
}

impl Policy {
    /// Sets what happens at a symbolic link.
    #[must_use]
    pub fn with_links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// Sets what happens when a file to be read has several names.
    #[must_use]
    pub fn with_hard_links(mut self, hard_links: HardLinks) -> Self {
        self.hard_links = hard_links;
        self
    }

    /// Sets what happens at a mount point.
    #[must_use]
    pub fn with_mounts(mut self, mounts: Mounts) -> Self {
        self.mounts = mounts;
        self
    }

    /// Sets mode and owner of what is created.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets what is on disk when a write returns.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets how paths are resolved.
    #[must_use]
    pub fn with_resolver(mut self, resolver: ResolverChoice) -> Self {
        self.resolver = resolver;
        self
    }

    /// What happens at a symbolic link.
    #[must_use]
    pub fn links(&self) -> Links {
        self.links
    }

    /// What happens when a file to be read has several names.
    #[must_use]
    pub fn hard_links(&self) -> HardLinks {
        self.hard_links
    }

    /// What happens at a mount point.
    #[must_use]
    pub fn mounts(&self) -> Mounts {
        self.mounts
    }

    /// Mode and owner of what is created.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// What is on disk when a write returns.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// How paths are resolved.
    #[must_use]
    pub fn resolver(&self) -> ResolverChoice {
        self.resolver
    }
}

/// What happens at a symbolic link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Links {
    /// A link anywhere in the path is [`ErrorKind::Symlink`](crate::ErrorKind::Symlink).
    #[default]
    Refuse,
    /// A link is followed as long as every step stays beneath the root; needs openat2.
    ///
    /// A guest can then choose *which* of its own files a path means, and can make a call fail with
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) by renaming without pause.
    FollowBeneath,
}

/// What happens when a file to be read has more than one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HardLinks {
    /// It is [`ErrorKind::HardLinked`](crate::ErrorKind::HardLinked): the other name may be a host file.
    ///
    /// A file that has one name and last changed two seconds ago or earlier is known by its link count and its change time.
    /// For any other it is proven, by waiting for the directory's lock, so that no link that comes and goes during the call is
    /// missed. What is left: a guest whose `unlink` takes longer than two seconds, while the host reads that very name.
    #[default]
    Refuse,
    /// As [`Refuse`](Self::Refuse), but each read takes the proof. Sessions use this.
    ///
    /// A read then costs two to three times as much. Before Linux 6.13, one of a file whose last change was no write waits until
    /// that is 10 ms old, and is [`ErrorKind::Busy`](crate::ErrorKind::Busy) if it never rests. [`Root::set_access`](crate::Root::set_access)
    /// takes the proof under every policy.
    RefuseStrict,
    /// It is read. Right where the session has a mount of its own, since hard links cannot cross mounts.
    Allow,
}

/// What happens at a mount point inside the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mounts {
    /// It is [`ErrorKind::CrossDevice`](crate::ErrorKind::CrossDevice).
    #[default]
    Refuse,
    /// It is entered; removal still never enters one.
    Cross,
}

/// What is on disk when a write returns, and so what a power cut or a crash of the kernel can do to it.
///
/// It makes no difference to other processes, nor to a crash of this one: they see a file whole or not at all, whatever is
/// synced.
///
/// | after a power cut | a new name | its content | what [`replace`](super::Root::replace) replaced |
/// |---|---|---|---|
/// | [`None`](Self::None) | may be there or not | whole, partial or empty | the old file, the new one, or a torn one |
/// | [`File`](Self::File) | may be there or not | whole, if the name is there | the old file or the new one |
/// | [`Full`](Self::Full) | is there | whole | the new one |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Whatever the kernel has written so far. A reader never sees a partial file; after a power cut there may be one.
    #[default]
    None,
    /// The file's content, synced before its name appears.
    File,
    /// The content, and then the directory that holds the name.
    Full,
}

/// Which resolver a [`Root`](super::Root) should use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResolverChoice {
    /// openat2 where the kernel has it, else the walk.
    #[default]
    Auto,
    /// openat2, and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where it is missing.
    Openat2,
    /// One component at a time.
    Walk,
}

/// Mode and owner of the files and directories a [`Root`](super::Root) creates.
///
/// Both are set through the handle of the new entry, so the umask has no say.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    file_mode: u32,
    dir_mode: u32,
    owner: Option<u32>,
    group: Option<u32>,
}

impl fmt::Debug for Access {
    /// Modes in octal, as people read them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("file_mode", &Octal(self.file_mode))
            .field("dir_mode", &Octal(self.dir_mode))
            .field("owner", &self.owner)
            .field("group", &self.group)
            .finish()
    }
}

impl Default for Access {
    fn default() -> Self {
        Self::private()
    }
}

impl Access {
    /// Files `0600`, directories `0700`.
    #[must_use]
    pub const fn private() -> Self {
        Self::custom(0o600, 0o700)
    }

    /// Files `0660`, directories `0770`, for a host and a guest that share a group.
    #[must_use]
    pub const fn shared() -> Self {
        Self::custom(0o660, 0o770)
    }

    /// The given permission bits; only the low twelve count.
    #[must_use]
    pub const fn custom(file_mode: u32, dir_mode: u32) -> Self {
        Self { file_mode: file_mode & 0o7777, dir_mode: dir_mode & 0o7777, owner: None, group: None }
    }

    /// Gives new entries to `uid`; needs the privilege to do so.
    ///
    /// [`u32::MAX`] is nobody's id, and means no change, as it does to the kernel.
    #[must_use]
    pub const fn with_owner(mut self, uid: u32) -> Self {
        self.owner = some_id(uid);
        self
    }

    /// Gives new entries to `gid`; needs membership or privilege. [`u32::MAX`] means no change.
    ///
    /// Directories that the group may use get the set-group-id bit, so that what a guest makes in them is the group's too,
    /// whatever group the guest itself runs with.
    ///
    /// ```
    /// use beneath::Access;
    ///
    /// assert_eq!(Access::shared().with_group(100).dir_mode(), 0o2770);
    /// assert_eq!(Access::private().with_group(100).dir_mode(), 0o700);
    /// ```
    #[must_use]
    pub const fn with_group(mut self, gid: u32) -> Self {
        self.group = some_id(gid);
        if self.group.is_some() && self.dir_mode & 0o070 != 0 {
            self.dir_mode |= 0o2000;
        }
        self
    }

    /// The mode of a file that had `mode` elsewhere. What its owner could do there, the group and others can do here as far as they
    /// can with new files: the owner may be another one.
    #[cfg(feature = "artifacts")]
    pub(crate) const fn widen(self, mode: u32) -> u32 {
        let (owner, new) = (mode >> 6 & 0o7, self.file_mode);
        // Whoever may read a program may execute it.
        let new = new | (new >> 2) & 0o011;
        (mode | ((owner << 3 | owner) & new & 0o077)) & 0o777
    }

    /// Permission bits of new files.
    #[must_use]
    pub const fn file_mode(self) -> u32 {
        self.file_mode
    }

    /// Permission bits of new directories.
    #[must_use]
    pub const fn dir_mode(self) -> u32 {
        self.dir_mode
    }

    /// Owner of new entries, if not the process's own.
    #[must_use]
    pub const fn owner(self) -> Option<u32> {
        self.owner
    }

    /// Group of new entries, if not the one the kernel gives.
    #[must_use]
    pub const fn group(self) -> Option<u32> {
        self.group
    }
}

const fn some_id(id: u32) -> Option<u32> {
    match id {
        u32::MAX => None,
        _ => Some(id),
    }
}
