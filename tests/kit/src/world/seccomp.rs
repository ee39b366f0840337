//! Threads and children from which the kernel takes calls away.

use std::collections::BTreeMap;

use nix::libc;
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

const TMPFILE_BIT: u64 = 0o20_000_000;
const AT_EMPTY_PATH: u64 = 0x1000;
const AT_SYMLINK_FOLLOW: u64 = 0x400;
const AT_REMOVEDIR: u64 = 0x200;
const RENAME_NOREPLACE: u64 = 1;

/// One call that fails, always with the same errno.
#[derive(Clone, Copy, Debug)]
pub enum Denial {
    /// `openat2`, as an old kernel (ENOSYS) or a strict profile (EPERM) answers it.
    Openat2(Errno),
    /// `openat2` from any directory but the one with this number.
    Openat2Below(u32, Errno),
    /// `openat` with `O_TMPFILE`.
    Tmpfile(Errno),
    /// `linkat` with `AT_EMPTY_PATH`.
    LinkEmptyPath(Errno),
    /// `linkat` through a link to a descriptor.
    LinkFollow(Errno),
    /// `renameat2` with `RENAME_NOREPLACE`.
    RenameNoReplace(Errno),
    /// Every `renameat2`, as where directories cannot be moved.
    Rename(Errno),
    /// `unlinkat` of anything but a directory.
    Unlink(Errno),
    /// `unlinkat` of a directory.
    RemoveDir(Errno),
    /// `statx`.
    Statx(Errno),
    /// `open_tree`, as an old kernel (ENOSYS) or a strict profile (EPERM) answers it.
    OpenTree(Errno),
    /// `mount`, as a strict profile answers it.
    Mount(Errno),
    /// `flock`.
    Flock(Errno),
    /// `copy_file_range`.
    CopyRange(Errno),
    /// `utimensat` with `AT_EMPTY_PATH`.
    TimesEmptyPath(Errno),
    /// `inotify_init1`, as where the user has no instance left.
    Inotify(Errno),
    /// `inotify_add_watch`, as where the user has no watch left.
    AddWatch(Errno),
}

impl Denial {
    /// The call, what one of its arguments must be like, and the answer.
    fn parts(self) -> (i64, Option<(u8, SeccompCmpOp, u64)>, Errno) {
        let set = |argument, bit| Some((argument, SeccompCmpOp::MaskedEq(bit), bit));
        match self {
            Self::Openat2(errno) => (libc::SYS_openat2, None, errno),
            Self::Openat2Below(fd, errno) => {
                (libc::SYS_openat2, Some((0, SeccompCmpOp::Ne, fd.into())), errno)
            }
            Self::Tmpfile(errno) => (libc::SYS_openat, set(2, TMPFILE_BIT), errno),
            Self::LinkEmptyPath(errno) => (libc::SYS_linkat, set(4, AT_EMPTY_PATH), errno),
            Self::LinkFollow(errno) => (libc::SYS_linkat, set(4, AT_SYMLINK_FOLLOW), errno),
            Self::RenameNoReplace(errno) => (libc::SYS_renameat2, set(4, RENAME_NOREPLACE), errno),
            Self::Rename(errno) => (libc::SYS_renameat2, None, errno),
            Self::Unlink(errno) => {
                (libc::SYS_unlinkat, Some((2, SeccompCmpOp::MaskedEq(AT_REMOVEDIR), 0)), errno)
            }
            Self::RemoveDir(errno) => (libc::SYS_unlinkat, set(2, AT_REMOVEDIR), errno),
            Self::Statx(errno) => (libc::SYS_statx, None, errno),
            Self::OpenTree(errno) => (libc::SYS_open_tree, None, errno),
            Self::Mount(errno) => (libc::SYS_mount, None, errno),
            Self::Flock(errno) => (libc::SYS_flock, None, errno),
            Self::CopyRange(errno) => (libc::SYS_copy_file_range, None, errno),
            Self::TimesEmptyPath(errno) => (libc::SYS_utimensat, set(3, AT_EMPTY_PATH), errno),
            Self::Inotify(errno) => (libc::SYS_inotify_init1, None, errno),
            Self::AddWatch(errno) => (libc::SYS_inotify_add_watch, None, errno),
        }
    }

    fn apply(self) {
        let (call, argument, errno) = self.parts();
        let condition = argument.map(|(argument, like, value)| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, like, value).unwrap()
        });
        let rules =
            condition.into_iter().map(|condition| SeccompRule::new(vec![condition]).unwrap()).collect();
        let denial = SeccompAction::Errno(u32::try_from(errno.raw_os_error()).unwrap());
        let (calls, arch) = (BTreeMap::from([(call, rules)]), std::env::consts::ARCH.try_into().unwrap());
        let filter = SeccompFilter::new(calls, SeccompAction::Allow, denial, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
    }
}

/// Runs `body` on a thread, and in the children it starts, where each of `denials` holds.
pub fn denied<T: Send>(denials: &[Denial], body: impl FnOnce() -> T + Send) -> T {
    crate::on_a_thread(|| {
        denials.iter().for_each(|denial| denial.apply());
        body()
    })
}

/// Runs this whole test binary again, but for tests whose name contains one of `except`, in a child from which
/// `openat2` was taken with `errno`.
#[track_caller]
pub fn rerun_without_openat2(errno: Errno, except: &[&str]) {
    let label = format!("without openat2 ({errno})");
    denied(&[Denial::Openat2(errno)], || {
        crate::child::rerun(&label, except, |_| {});
    });
}
