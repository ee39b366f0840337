//! The times at which the kernel says that a file has changed, and the clock it takes them from.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, fchmod, fstatfs, openat};
use rustix::time::{ClockId, clock_gettime};

use crate::root::metadata::{Stamp, describe_fresh};

/// The longest tick of the coarse clock that a kernel is built with.
pub(in crate::root) const TICK: Duration = Duration::from_millis(10);
/// The clock that the kernel stamps changes with, read before a lookup.
#[derive(Clone, Copy, Debug)]
pub(in crate::root) struct Before((i64, u64));

impl Before {
    pub(in crate::root) fn now() -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self((now.tv_sec, u64::try_from(now.tv_nsec).unwrap_or(0)))
    }

    /// Whether a change at that time was over by more than `margin`.
    #[inline]
    pub(in crate::root) fn is_past(self, (seconds, nanos): Stamp, margin: Duration) -> bool {
        // No fraction: it may have been cut off, as by file systems that keep whole seconds.
        let whole = i64::try_from(margin.as_secs()).unwrap_or(i64::MAX).saturating_add(i64::from(nanos == 0));
        let seconds = seconds.saturating_add(whole);
        let nanos = u64::from(nanos) + u64::from(margin.subsec_nanos());
        let carried = i64::from(nanos >= 1_000_000_000);
        (seconds.saturating_add(carried), nanos % 1_000_000_000) < self.0
    }
}

/// Has the clock looked up before the first call that needs it.
pub(in crate::root) fn prepare() {
    let _ = Before::now();
}

/// Whether changes on this file system are stamped with this kernel's clock, under its own locks.
pub(in crate::root) fn stamps_changes(fd: BorrowedFd<'_>) -> bool {
    // It is 32 bits long, whatever the type of the field.
    fstatfs(fd).is_ok_and(|fs| {
        matches!(
            fs.f_type as u32,
            0xef53 // ext2, ext3, ext4
            | 0x5846_5342 // XFS
            | 0x9123_683e // btrfs
            | 0x0102_1994 // tmpfs
            | 0x8584_58f6 // ramfs
            | 0xf2f5_2010 // F2FS
            | 0xca45_1a4e // bcachefs
        )
    })
}

/// Whether every change of a file has another time than the one before, if somebody asks in between. Tried out on a file
/// without a name, of which nothing stays.
pub(in crate::root) fn stamps_exactly(dir: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    const CHANGES: usize = 4;
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(dir, c".", flags, Mode::RUSR | Mode::WUSR)?;
    let mut last = describe_fresh(file.as_fd(), c"")?.stamps().0;
    for _ in 0..CHANGES {
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        let now = describe_fresh(file.as_fd(), c"")?.stamps().0;
        if now == std::mem::replace(&mut last, now) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use crate::root::*;

    #[test]
    fn a_change_is_past_after_more_than_a_tick() {
        let clock = Before((100, 5_000_000));
        for (changed, past) in [
            ((99, 994_999_999), true),
            ((99, 995_000_000), false),
            ((99, 999_999_999), false),
            ((100, 5_000_000), false),
            ((99, 0), false),
            ((98, 0), true),
            ((98, 999_999_999), true),
            ((101, 0), false),
            ((i64::MAX, 999_999_999), false),
            ((i64::MIN, 0), true),
        ] {
            assert_eq!(clock.is_past(changed, TICK), past, "{changed:?}");
        }
    }
}
