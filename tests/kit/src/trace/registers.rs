//! What a stopped victim is about to ask, and what it gets for an answer.

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

/// The registers of a victim in a system call, on x86_64: the kit knows the calls of no other machine.
pub(super) struct Registers(nix::libc::user_regs_struct);

impl Registers {
    pub(super) fn of(pid: Pid) -> nix::Result<Self> {
        ptrace::getregs(pid).map(Self)
    }

    pub(super) fn store(&self, pid: Pid) -> nix::Result<()> {
        ptrace::setregs(pid, self.0)
    }

    pub(super) fn number(&self) -> i64 {
        self.0.orig_rax.cast_signed()
    }

    pub(super) fn arguments(&self) -> [u64; 6] {
        [self.0.rdi, self.0.rsi, self.0.rdx, self.0.r10, self.0.r8, self.0.r9]
    }

    pub(super) fn count(&self) -> u64 {
        self.0.rdx
    }

    pub(super) fn set_count(&mut self, count: u64) {
        self.0.rdx = count;
    }

    pub(super) fn skip_call(&mut self) {
        self.0.orig_rax = u64::MAX;
    }

    pub(super) fn answer(&mut self, errno: Errno) {
        self.0.rax = (-i64::from(errno as i32)).cast_unsigned();
    }
}
