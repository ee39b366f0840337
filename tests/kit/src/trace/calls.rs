//! The system calls that the rig knows.

use nix::libc;

use super::registers::Registers;

/// A call and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub number: i64,
    pub arguments: [u64; 6],
}

macro_rules! names {
    ($($name:ident $number:ident $paths:expr;)*) => {
        &[$((libc::$number, stringify!($name), $paths)),*]
    };
}

/// Number, name, and which arguments are paths.
type Known = (libc::c_long, &'static str, &'static [usize]);

const KNOWN: &[Known] = names! {
    close SYS_close &[];
    copy_file_range SYS_copy_file_range &[];
    dup SYS_dup &[];
    faccessat SYS_faccessat &[1];
    faccessat2 SYS_faccessat2 &[1];
    fadvise64 SYS_fadvise64 &[];
    fallocate SYS_fallocate &[];
    fchmod SYS_fchmod &[];
    fchmodat SYS_fchmodat &[1];
    fchmodat2 SYS_fchmodat2 &[1];
    fchown SYS_fchown &[];
    fchownat SYS_fchownat &[1];
    fcntl SYS_fcntl &[];
    fdatasync SYS_fdatasync &[];
    fstat SYS_fstat &[];
    fstatfs SYS_fstatfs &[];
    fsync SYS_fsync &[];
    ftruncate SYS_ftruncate &[];
    getdents64 SYS_getdents64 &[];
    getrandom SYS_getrandom &[];
    linkat SYS_linkat &[1, 3];
    lseek SYS_lseek &[];
    mkdirat SYS_mkdirat &[1];
    newfstatat SYS_newfstatat &[1];
    openat SYS_openat &[1];
    openat2 SYS_openat2 &[1];
    pread64 SYS_pread64 &[];
    pwrite64 SYS_pwrite64 &[];
    read SYS_read &[];
    readlinkat SYS_readlinkat &[1];
    renameat2 SYS_renameat2 &[1, 3];
    renameat SYS_renameat &[1, 3];
    statx SYS_statx &[1];
    symlinkat SYS_symlinkat &[0, 2];
    unlinkat SYS_unlinkat &[1];
    utimensat SYS_utimensat &[1];
    write SYS_write &[];
    writev SYS_writev &[];
    lstat SYS_lstat &[0];
    mkdir SYS_mkdir &[0];
    open SYS_open &[0];
    readlink SYS_readlink &[0];
    rename SYS_rename &[0, 1];
    rmdir SYS_rmdir &[0];
    stat SYS_stat &[0];
    unlink SYS_unlink &[0];
};

/// Memory, threads, time and signals: a guest cannot get between these and anything that matters.
const UNRELATED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
];

impl Call {
    pub(super) fn of(registers: &Registers) -> Self {
        Self { number: registers.number(), arguments: registers.arguments() }
    }

    pub fn is(&self, number: libc::c_long) -> bool {
        self.number == number
    }

    pub fn is_any(&self, numbers: &[libc::c_long]) -> bool {
        numbers.contains(&self.number)
    }

    pub fn touches_files(&self) -> bool {
        // std asks for a descriptor's flags before it closes it, in debug builds only.
        let asks_flags = self.is(libc::SYS_fcntl) && self.arguments[1] == libc::F_GETFD as u64;
        !asks_flags && !self.is_any(UNRELATED)
    }

    /// Whether this makes an unnamed file.
    pub fn makes_unnamed_file(&self) -> bool {
        let unnamed = libc::O_TMPFILE as u64;
        self.is(libc::SYS_openat) && self.arguments[2] & unnamed == unnamed
    }

    pub fn name(&self) -> String {
        match KNOWN.iter().find(|known| known.0 == self.number) {
            Some(known) => known.1.to_owned(),
            None => format!("syscall {}", self.number),
        }
    }

    pub(super) fn describe(&self, peek: impl Fn(u64) -> String) -> String {
        let paths = KNOWN.iter().find(|known| known.0 == self.number).map_or(&[][..], |known| known.2);
        let shown: Vec<String> = (0..3)
            .chain(paths.iter().copied().filter(|&path| path > 2))
            .map(|position| match self.arguments[position] {
                address if paths.contains(&position) => format!("{:?}", peek(address)),
                number if number as i32 == libc::AT_FDCWD => "CWD".to_owned(),
                number if number > 0xffff_ffff => "*".to_owned(),
                number => format!("{number:#x}"),
            })
            .collect();
        format!("{}({})", self.name(), shown.join(", "))
    }
}
