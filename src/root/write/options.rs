//! Options of one write that override the policy.
//!
//! Problem: a script needs its execute bits, a file in a new directory needs that first, and a file that somebody made read-only
//! should not be replaced by accident. A mode by path after the write would be a second lookup.
//!
//! Defence: mode and parents are options of the write itself, and the mode is set through the handle before the file has a name.
//! Set-id and sticky bits are refused.
//!
//! What remains: the mode of what is replaced is looked up before the replacement, so a guest can exchange it in between. Keeping
//! it is a courtesy to whoever set it, and no protection.

use std::fmt;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::root::metadata::{Octal, describe_at};
use crate::root::resolve::Handle;
use crate::root::resolve::path::{Checked, subject};
use crate::root::write::draft::Failure;
use crate::root::{Access, Durability, Policy, Root};

/// Permission bits without set-id and sticky bits.
pub(in crate::root) const PERMISSIONS: u32 = 0o777;
/// The write bits of owner, group and others.
const WRITABLE: u32 = 0o222;

/// What a single write does otherwise than the [`Policy`] says.
///
/// ```
/// use beneath::WriteOptions;
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// let script = WriteOptions::default().with_mode(0o755).with_parents();
/// root.write_exclusive_with("bin/tools/run", "#!/bin/sh\n", script)?;
/// assert_eq!(root.metadata("bin/tools/run")?.mode(), 0o755);
///
/// root.replace("bin/tools/run", "#!/bin/sh\nexit\n")?;
/// assert_eq!(root.metadata("bin/tools/run")?.mode(), 0o755, "kept");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct WriteOptions {
    mode: Option<u32>,
    parents: bool,
    over_read_only: bool,
}

impl fmt::Debug for WriteOptions {
    /// The mode in octal, as people read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteOptions")
            .field("mode", &self.mode.map(Octal))
            .field("parents", &self.parents)
            .field("over_read_only", &self.over_read_only)
            .finish()
    }
}

impl WriteOptions {
    /// Gives the file exactly these permission bits, whatever the policy, the umask or a replaced file has.
    ///
    /// A mode with set-id, sticky or unknown bits makes the write fail with [`ErrorKind::Denied`].
    #[must_use]
    pub const fn with_mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Makes the directories above the file that are missing, as [`Root::ensure_dir`] does.
    ///
    /// Which were made is not reported, and they stay if the write fails.
    #[must_use]
    pub const fn with_parents(mut self) -> Self {
        self.parents = true;
        self
    }

    /// Lets a replacement take the place of a read-only file too, one that nobody may write by its mode.
    #[must_use]
    pub const fn over_read_only(mut self) -> Self {
        self.over_read_only = true;
        self
    }

    /// What the file is to get, by these options and the policy.
    pub(super) fn finish(
        self,
        operation: &'static str,
        path: Checked<'_>,
        policy: &Policy,
    ) -> Result<Finish> {
        match self.mode {
            Some(mode) if mode & !PERMISSIONS != 0 => {
                Err(Error::new(operation, subject(path), ErrorKind::Denied)
                    .with_detail("set-id and sticky bits are given to no file"))
            }
            _ => Ok(Finish { options: self, access: policy.access(), durability: policy.durability() }),
        }
    }
}

/// What a draft gets before it has its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish {
    options: WriteOptions,
    pub(super) access: Access,
    pub(super) durability: Durability,
}

impl Finish {
    /// The mode of a file where none was.
    pub(super) fn mode(self) -> u32 {
        self.options.mode.unwrap_or(self.access.file_mode())
    }

    /// The mode of a file that takes the place of what is at the name now. Anything but a regular file has no mode to keep.
    pub(super) fn mode_over(self, dir: BorrowedFd<'_>, leaf: &[u8]) -> Result<u32, Failure> {
        match describe_at(dir, leaf) {
            Ok(old) if old.is_file() => match old.mode() & WRITABLE {
                // What the policy itself makes so is no sign that somebody protects it.
                0 if !self.options.over_read_only && self.mode() & WRITABLE != 0 => {
                    Err(Failure::Said(ErrorKind::Denied, "is read-only, and was not to be replaced"))
                }
                _ => Ok(self.options.mode.unwrap_or(old.mode() & PERMISSIONS)),
            },
            Ok(_) | Err(Errno::NOENT) => Ok(self.mode()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Root {
    /// Opens the directory that is to hold the file, and makes it first if the options say so.
    pub(super) fn parent_for_write<'p>(
        &self,
        operation: &'static str,
        path: Checked<'p>,
        options: WriteOptions,
    ) -> Result<(Handle<'_>, &'p [u8])> {
        self.writable(operation, path)?;
        match (self.parent(operation, path), path.split()) {
            (Err(error), (Some(above), _)) if options.parents && error.kind() == ErrorKind::NotFound => {
                self.ensure_dir(subject(above))
                    .map_err(|error| error.again(operation).about(subject(path)))?;
                self.parent(operation, path)
            }
            (found, _) => found,
        }
    }
}
