//! The directories around the one that is being emptied, few of them open however many there are.
//!
//! Those that are closed keep their name alone, and are entered again from the nearest open one above. The farther up, the
//! fewer stay open: the gaps grow in proportion to the distance, so that coming back up through `n` levels costs some
//! `n log n` openings, and not the square of `n`.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use super::frame::{Closed, Frame};

enum Level {
    Open(Frame),
    Closed(Closed),
}

impl Level {
    fn name(&self) -> &CStr {
        match self {
            Self::Open(frame) => &frame.name,
            Self::Closed(closed) => &closed.name,
        }
    }

    fn reopen(&mut self, dir: OwnedFd) {
        if let Self::Closed(closed) = self {
            *self = Self::Open(Frame::reopened(dir, std::mem::take(closed)));
        }
    }

    /// Returns how many leftovers will be found again when it is read again.
    fn close(&mut self) -> u64 {
        let Self::Open(frame) = self else { return 0 };
        let left = frame.left;
        *self = Self::Closed(frame.closed());
        left
    }
}

/// From the top downwards. The top is always open.
#[derive(Default)]
pub(super) struct Chain {
    levels: Vec<Level>,
    /// Where in `levels` the open ones are.
    open: Vec<usize>,
}

impl Chain {
    pub(super) fn len(&self) -> usize {
        self.levels.len()
    }

    /// How many are open.
    pub(super) fn held(&self) -> usize {
        self.open.len()
    }

    pub(super) fn push(&mut self, frame: Frame) {
        self.open.push(self.levels.len());
        self.levels.push(Level::Open(frame));
    }

    /// Takes the lowest if it is open.
    pub(super) fn pop(&mut self) -> Option<Frame> {
        match self.levels.pop()? {
            Level::Open(frame) => {
                self.open.pop();
                Some(frame)
            }
            closed => {
                self.levels.push(closed);
                None
            }
        }
    }

    /// One of the open ones, the top being the first.
    pub(super) fn open_frame(&mut self, index: usize) -> Option<&mut Frame> {
        match self.levels.get_mut(*self.open.get(index)?)? {
            Level::Open(frame) => Some(frame),
            Level::Closed(_) => None,
        }
    }

    /// The lowest open one, and the name of the closed one in it.
    pub(super) fn gap(&self) -> Option<(&Frame, &CStr)> {
        let at = *self.open.last()?;
        match (self.levels.get(at)?, self.levels.get(at + 1)?) {
            (Level::Open(frame), below) => Some((frame, below.name())),
            _ => None,
        }
    }

    /// Opens the closed one of the [`gap`](Self::gap).
    pub(super) fn reopen(&mut self, dir: OwnedFd) {
        let at = self.open.last().map_or(0, |at| at + 1);
        if let Some(level) = self.levels.get_mut(at) {
            level.reopen(dir);
            self.open.push(at);
        }
    }

    /// Forgets everything below the lowest open one, which is to enter it anew.
    pub(super) fn forget_gap(&mut self) {
        let below = self.open.last().map_or(0, |at| at + 1);
        let (name, _) = self.forget(below);
        if let Some(frame) = self.open.len().checked_sub(1).and_then(|last| self.open_frame(last)) {
            frame.pending.extend(name);
        }
    }

    /// Forgets the levels from `at` on. Returns the name of the first of them, and how many leftovers will be found again.
    pub(super) fn forget(&mut self, at: usize) -> (Option<CString>, u64) {
        let (mut first, mut left) = (None, 0);
        for mut level in self.levels.drain(at.min(self.levels.len())..) {
            first = first.or_else(|| Some(level.name().to_owned()));
            left += level.close();
        }
        self.open.retain(|index| *index < at);
        (first, left)
    }

    /// Closes the open one that is missed least, never the top, and the lowest only if there is no other. Returns how many
    /// leftovers will be found again when it is read again.
    pub(super) fn close_one(&mut self) -> Option<u64> {
        if self.open.len() < 2 {
            return None;
        }
        let bottom = self.levels.len();
        let below = self.open.iter().skip(2).copied().chain([bottom]);
        // The gap that closing it would make, in proportion to how far down from its upper end the work is.
        let gaps = self.open.iter().zip(below).map(|(above, below)| (below - above, bottom - above));
        let (index, _) = (1..).zip(gaps).min_by(|(_, (gap, far)), (_, (other_gap, other_far))| {
            (gap.saturating_mul(*other_far)).cmp(&other_gap.saturating_mul(*far))
        })?;
        let at = self.open.remove(index);
        self.levels.get_mut(at).map(Level::close)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &CStr> {
        self.levels.iter().map(Level::name)
    }
}
