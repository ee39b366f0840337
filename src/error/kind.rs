//! What a caller would do differently.

use std::fmt;
use std::io;

/// What went wrong, in terms of what a caller would do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ErrorKind {
    /// The path leads out of the root, or would: it is absolute or has a `..`.
    Escape,
    /// A symbolic link is where the policy allows none.
    Symlink,
    /// The entry is a directory, FIFO, socket or device where a regular file is meant.
    NotRegular,
    /// The entry is something else where a symbolic link is meant.
    NotSymlink,
    /// The file has more than one name, so it may also live outside the root.
    HardLinked,
    /// A component that must be a directory is something else.
    NotDirectory,
    /// The name is taken.
    AlreadyExists,
    /// The directory contains something, where an empty one is meant.
    NotEmpty,
    /// There is no such entry.
    NotFound,
    /// More bytes than the limit allows.
    TooLarge,
    /// More entries, levels or attempts than the limit allows, or more descriptors or memory than the system gives.
    TooMany,
    /// The text breaks a name rule.
    InvalidName,
    /// The path has a form that is never resolved, and does not try to leave.
    InvalidPath,
    /// The content is not what it was said to be: not base64, not of the size, not of the form.
    InvalidData,
    /// The path crosses a mount, or the two ends are on different file systems.
    CrossDevice,
    /// The kernel denies permission, or a rule that the host has set does.
    Denied,
    /// No space, quota, or inodes are left.
    NoSpace,
    /// The file system is mounted read-only, or has become so after an error of its device.
    ReadOnly,
    /// Somebody holds the entry right now, or keeps changing it: try again later.
    Busy,
    /// The kernel or file system lacks what this needs.
    Unsupported,
    /// Anything else the system reports.
    Io,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Escape => "leads out of the root",
            Self::Symlink => "is a symbolic link",
            Self::NotRegular => "is not a regular file",
            Self::NotSymlink => "is not a symbolic link",
            Self::HardLinked => "has more than one name",
            Self::NotDirectory => "is not a directory",
            Self::AlreadyExists => "name is already taken",
            Self::NotEmpty => "is not empty",
            Self::NotFound => "not found",
            Self::TooLarge => "is larger than the limit",
            Self::TooMany => "more than the limit",
            Self::InvalidName => "invalid name",
            Self::InvalidPath => "invalid path",
            Self::InvalidData => "invalid content",
            Self::CrossDevice => "is on another mount",
            Self::Denied => "permission denied",
            Self::NoSpace => "no space left",
            Self::ReadOnly => "the file system is read-only",
            Self::Busy => "is busy",
            Self::Unsupported => "is not supported here",
            Self::Io => "input/output error",
        })
    }
}

impl From<ErrorKind> for io::ErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
            ErrorKind::NotEmpty => io::ErrorKind::DirectoryNotEmpty,
            ErrorKind::Escape | ErrorKind::Symlink | ErrorKind::HardLinked | ErrorKind::Denied => {
                io::ErrorKind::PermissionDenied
            }
            ErrorKind::NotDirectory => io::ErrorKind::NotADirectory,
            ErrorKind::InvalidName
            | ErrorKind::InvalidPath
            | ErrorKind::NotRegular
            | ErrorKind::NotSymlink => io::ErrorKind::InvalidInput,
            ErrorKind::InvalidData => io::ErrorKind::InvalidData,
            ErrorKind::TooLarge => io::ErrorKind::FileTooLarge,
            ErrorKind::CrossDevice => io::ErrorKind::CrossesDevices,
            ErrorKind::NoSpace => io::ErrorKind::StorageFull,
            ErrorKind::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            ErrorKind::Busy => io::ErrorKind::ResourceBusy,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::TooMany | ErrorKind::Io => io::ErrorKind::Other,
        }
    }
}
