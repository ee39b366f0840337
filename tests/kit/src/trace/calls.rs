//! The system calls that the rig knows.

use nix::libc;

use super::registers::Registers;

/// A call and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub number: i64,
    pub arguments: [u64; 6],
}

/// Numbers with their names.
macro_rules! calls {
    ($($number:ident)*) => { &[$((libc::$number, stringify!($number))),*] };
}

type Calls = &'static [(libc::c_long, &'static str)];

/// The calls by which of their arguments are paths.
const KNOWN: &[(&[usize], Calls)] = &[
    (
        &[],
        calls! {
            SYS_close SYS_copy_file_range SYS_dup SYS_fadvise64 SYS_fallocate SYS_fchmod SYS_fchown SYS_fcntl
            SYS_fdatasync SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_getdents64 SYS_getrandom SYS_lseek
            SYS_pread64 SYS_pwrite64 SYS_read SYS_write SYS_writev
        },
    ),
    (
        &[0],
        calls! {
            SYS_getxattr SYS_listxattr SYS_lstat SYS_mkdir SYS_open SYS_readlink SYS_removexattr SYS_rmdir SYS_stat
            SYS_unlink
        },
    ),
    (&[0, 1], calls! { SYS_rename SYS_symlink }),
    (&[0, 2], calls! { SYS_symlinkat }),
    (
        &[1],
        calls! {
            SYS_faccessat SYS_faccessat2 SYS_fchmodat SYS_fchmodat2 SYS_fchownat SYS_mkdirat SYS_newfstatat
            SYS_openat SYS_openat2 SYS_readlinkat SYS_statx SYS_unlinkat SYS_utimensat
        },
    ),
    (&[1, 3], calls! { SYS_linkat SYS_renameat SYS_renameat2 }),
];

/// Memory, threads, time and signals: a guest cannot get between these and anything that matters.
const UNRELATED: Calls = calls! {
    SYS_brk SYS_clock_gettime SYS_clock_nanosleep SYS_exit SYS_exit_group SYS_futex SYS_getpid SYS_gettid SYS_madvise
    SYS_mmap SYS_mprotect SYS_mremap SYS_munmap SYS_restart_syscall SYS_rt_sigaction SYS_rt_sigprocmask
    SYS_rt_sigreturn SYS_sched_yield SYS_sigaltstack SYS_tgkill
};

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
        !asks_flags && !UNRELATED.iter().any(|(number, _)| self.is(*number))
    }

    /// Whether this makes an unnamed file.
    pub fn makes_unnamed_file(&self) -> bool {
        let unnamed = libc::O_TMPFILE as u64;
        self.is(libc::SYS_openat) && self.arguments[2] & unnamed == unnamed
    }

    /// The name, and which arguments are paths.
    fn known(&self) -> Option<(&'static str, &'static [usize])> {
        KNOWN.iter().find_map(|(paths, calls)| {
            let (_, name) = calls.iter().find(|(number, _)| self.is(*number))?;
            Some((name.trim_start_matches("SYS_"), *paths))
        })
    }

    pub fn name(&self) -> String {
        self.known().map_or_else(|| format!("syscall {}", self.number), |(name, _)| name.to_owned())
    }

    pub(super) fn describe(&self, peek: impl Fn(u64) -> String) -> String {
        let paths = self.known().map_or(&[][..], |(_, paths)| paths);
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
