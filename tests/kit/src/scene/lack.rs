//! Kernels and file systems that can do less than this one.

use nix::errno::Errno;
use nix::libc;

use crate::trace::Stop;

/// What the kernel or file system is made to lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    Nothing,
    UnnamedFiles,
    EmptyPath,
    /// Nor unnamed files.
    HardLinks,
    NoReplace,
    Exchange,
    /// Directories cannot be moved.
    Moves,
    /// The kernel copies nothing by itself.
    CopyRange,
}

impl Lack {
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::UnnamedFiles => "no O_TMPFILE",
            Self::EmptyPath => "no AT_EMPTY_PATH",
            Self::HardLinks => "no links",
            Self::NoReplace => "no NOREPLACE",
            Self::Exchange => "no EXCHANGE",
            Self::Moves => "no moves",
            Self::CopyRange => "no copy_file_range",
        }
    }

    pub fn denies(self, stop: &Stop) -> Option<Errno> {
        let call = stop.call;
        match self {
            Self::Nothing => None,
            Self::UnnamedFiles => call.makes_unnamed_file().then_some(Errno::EOPNOTSUPP),
            Self::HardLinks if call.is(libc::SYS_linkat) => Some(Errno::EPERM),
            Self::HardLinks => call.makes_unnamed_file().then_some(Errno::EOPNOTSUPP),
            Self::EmptyPath => {
                let empty = libc::AT_EMPTY_PATH as u64;
                (call.is(libc::SYS_linkat) && call.arguments[4] & empty != 0).then_some(Errno::ENOENT)
            }
            Self::CopyRange => call.is(libc::SYS_copy_file_range).then_some(Errno::EXDEV),
            Self::Moves => call.is(libc::SYS_renameat2).then_some(Errno::EXDEV),
            Self::NoReplace => renames(stop, libc::RENAME_NOREPLACE).then_some(Errno::EINVAL),
            Self::Exchange => renames(stop, libc::RENAME_EXCHANGE).then_some(Errno::EINVAL),
        }
    }
}

/// Whether this is a rename with that flag.
fn renames(stop: &Stop, flag: u32) -> bool {
    stop.call.is(libc::SYS_renameat2) && stop.call.arguments[4] & u64::from(flag) != 0
}
