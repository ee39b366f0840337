//! The loop that empties a directory from the bottom up.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use rustix::fs::{AtFlags, FileType, Mode, fchmod, unlinkat};
use rustix::io::Errno;

use super::chain::Chain;
use super::frame::Frame;
use crate::error::{Error, ErrorKind};
use crate::report::{Left, Leftovers};
use crate::root::Root;
use crate::root::remove::budget::{Budget, Removed};
use crate::root::walk::scan::Scanner;
use crate::root::write::draft::{rename_new, unguessable_name};

pub(super) const OPERATION: &str = "remove";

/// How many directories are held open at a time.
const HELD: usize = 24;
/// How many directories above the one that is being emptied are remembered by name, where they cannot be moved.
const LEVELS: usize = 1 << 17;
/// How many directories that stay are remembered by name.
const REMEMBERED: usize = 4096;
/// How many directories that were moved up the top remembers.
const PENDING: usize = 1024;
/// The longest path the kernel takes, its NUL included.
const LONGEST_PATH: usize = 4096;

/// One removal.
pub(super) struct Removal<'r> {
    root: &'r Root,
    budget: Budget,
    deadline: Option<Instant>,
    spent: u64,
    passes: u32,
    /// The budget has run out.
    over: bool,
    /// More directories were moved up into the top than it can remember, so it must be read again.
    overlooked: bool,
    /// How many directories may be open at a time; fewer once the process has run out of descriptors.
    most: usize,
    /// How many directories that stay are remembered by name.
    remembered: usize,
    /// The directories around the one that is being emptied.
    above: Chain,
    report: Removed,
}

impl<'r> Removal<'r> {
    pub(super) fn new(root: &'r Root, budget: Budget) -> Self {
        Self {
            root,
            budget,
            deadline: Instant::now().checked_add(budget.time),
            spent: 0,
            passes: 0,
            over: false,
            overlooked: false,
            most: HELD,
            remembered: 0,
            above: Chain::default(),
            report: Removed::default(),
        }
    }

    pub(super) fn run(mut self, parent: BorrowedFd<'_>, top: &[u8]) -> rustix::io::Result<Removed> {
        let top = CString::new(top).map_err(|_| Errno::INVAL)?;
        let mut scanner = Scanner::new();
        let mut frame = Frame::new(self.root.enter(parent, &top)?, top);
        loop {
            if self.exhausted() {
                self.leave(&mut frame, c"", ErrorKind::Busy);
                return Ok(self.report);
            }
            if let Some(name) = frame.pending.pop() {
                if let Some(inner) = self.descend(&mut frame, name) {
                    self.above.push(std::mem::replace(&mut frame, inner));
                }
            } else if !frame.ended {
                self.sweep(&mut frame, &mut scanner);
            } else if let Some(next) = self.close(frame, parent) {
                frame = next;
            } else {
                return Ok(self.report);
            }
        }
    }

    /// Unlinks a bufferful of entries, and keeps the directories among them for later.
    fn sweep(&mut self, frame: &mut Frame, scanner: &mut Scanner) {
        if frame.again && frame.stays.more {
            // It would enter the same directories again, and never end.
            frame.ended = true;
            return self.leave(frame, c"", ErrorKind::TooMany);
        }
        let dir = Rc::clone(&frame.dir);
        let more = scanner.next_batch(dir.as_fd(), |name, hint| match hint {
            _ if frame.ended || frame.stays.names.contains(name) => {}
            FileType::Directory => frame.pending.push(name.to_owned()),
            _ if self.exhausted() => {}
            _ if self.unlink(frame, name) => {}
            // The hint was stale or missing.
            _ => frame.pending.push(name.to_owned()),
        });
        match more {
            Ok(more) => frame.ended |= !more,
            Err(errno) => {
                frame.ended = true;
                self.leave(frame, c"", ErrorKind::of(errno));
            }
        }
    }

    /// Deals with an entry that is no directory. False if it is one.
    fn unlink(&mut self, frame: &mut Frame, name: &CStr) -> bool {
        self.spend();
        match frame.permitted(|dir| unlinkat(dir, name, AtFlags::empty())) {
            Ok(()) => self.report.files += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => return false,
            Err(errno) => self.refused(frame, name, errno),
        }
        true
    }

    /// Unlinks what was a directory a moment ago. A file system that a guest serves may say both for ever.
    fn unlink_exchanged(&mut self, frame: &mut Frame, name: CString) {
        if !self.unlink(frame, &name) {
            self.try_again(frame, name);
        }
    }

    /// Goes back to a directory that has changed under the removal.
    fn try_again(&mut self, frame: &mut Frame, name: CString) {
        self.passes = self.passes.saturating_add(1);
        frame.pending.push(name);
    }

    /// Opens a directory of this one to empty it, or deals with it otherwise.
    fn descend(&mut self, frame: &mut Frame, name: CString) -> Option<Frame> {
        self.spend();
        // Two are open besides those above: this one and the one to be opened.
        if self.above.held() + 2 > self.most {
            if self.hoist(frame, &name) {
                return None;
            }
            // Half of them, so that moving up is tried once for as many levels, and not at each.
            self.close_above(self.most / 2);
        }
        if self.above.len() >= LEVELS {
            self.forget_above(frame);
        }
        match frame.permitted(|dir| self.root.enter(dir, &*name)) {
            Ok(dir) => return Some(Frame::new(dir, name)),
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => self.unlink_exchanged(frame, name),
            // It was moved away just then, and another is there now.
            Err(Errno::AGAIN) => self.try_again(frame, name),
            // The process has few descriptors left: go no deeper, or with fewer.
            Err(Errno::MFILE | Errno::NFILE) if self.hoist(frame, &name) => {}
            Err(Errno::MFILE | Errno::NFILE) if self.above.held() > 1 => {
                self.most = self.above.held() + 1;
                self.close_above(self.above.held() - 1);
                frame.pending.push(name);
            }
            // A directory that cannot be opened may still be empty.
            Err(cause) => match frame.permitted(|dir| unlinkat(dir, &*name, AtFlags::REMOVEDIR)) {
                Ok(()) => self.report.directories += 1,
                Err(_) => self.leave(frame, &name, ErrorKind::of(cause)),
            },
        }
        None
    }

    /// Closes directories above until no more than `held` are open.
    fn close_above(&mut self, held: usize) {
        while self.above.held() > held.max(1) {
            let Some(left) = self.above.close_one() else { return };
            self.found_again(left);
        }
    }

    /// Even names take memory. The lower half of them goes, and this directory takes the place of the uppermost of those:
    /// that one is found not to be empty once this one is, and is gone through again.
    fn forget_above(&mut self, frame: &mut Frame) {
        let (name, left) = self.above.forget(LEVELS / 2);
        self.found_again(left);
        if let Some(name) = name {
            frame.name = name;
        }
    }

    /// Leftovers of a directory that was closed are counted when it is read again.
    fn found_again(&mut self, left: u64) {
        let total = &mut self.report.left.total;
        *total = total.saturating_sub(left);
    }

    /// Removes a directory if it is empty, and else moves it up into the top, to be found there with fewer directories
    /// held open. False where it cannot be moved, as a lower directory of an overlay: then it must be entered here.
    fn hoist(&mut self, frame: &mut Frame, name: &CStr) -> bool {
        match frame.permitted(|dir| unlinkat(dir, name, AtFlags::REMOVEDIR)) {
            Ok(()) => self.report.directories += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR) => self.unlink_exchanged(frame, name.to_owned()),
            Err(_) => match self.move_up(frame, name) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) => return false,
            },
        }
        true
    }

    /// Tries the top first. On a full disk it may have no room for another name, but then one below it has.
    fn move_up(&mut self, frame: &mut Frame, name: &CStr) -> rustix::io::Result<()> {
        let fresh = CString::new(unguessable_name()?).map_err(|_| Errno::INVAL)?;
        let mut outcome = Err(Errno::MFILE);
        for index in 0..self.above.held() {
            let Some(holder) = self.above.open_frame(index) else { continue };
            let rename =
                |dir: BorrowedFd<'_>| rename_new(dir, name.to_bytes(), holder.dir.as_fd(), fresh.to_bytes());
            outcome = match frame.permitted(rename) {
                // A directory that moves must be writable itself, since its `..` changes.
                Err(Errno::ACCESS) => self
                    .root
                    .enter(frame.dir.as_fd(), name)
                    .and_then(|dir| fchmod(dir, Mode::RWXU))
                    .and_then(|()| rename(frame.dir.as_fd())),
                result => result,
            };
            match outcome {
                Ok(()) if holder.pending.len() < PENDING => holder.pending.push(fresh),
                // The others are read again for what is left in them; the top only if this asks for it.
                Ok(()) => self.overlooked |= index == 0,
                Err(Errno::NOENT) => {}
                Err(_) => continue,
            }
            break;
        }
        outcome
    }

    /// Removes a directory that was gone through, and returns the one to go on with: the one that held it, itself once more
    /// if it has filled again, or none at the end.
    fn close(&mut self, done: Frame, parent: BorrowedFd<'_>) -> Option<Frame> {
        self.spend();
        if self.above.len() == 0 {
            return self.close_top(done, parent);
        }
        let (stuck, name) = (done.stuck(), done.name);
        // One more to open the way back with.
        drop(done.dir);
        let reached = self.reach_holder();
        let mut holder = self.above.pop()?;
        if !reached {
            return Some(holder);
        }
        match holder.permitted(|dir| unlinkat(dir, &*name, AtFlags::REMOVEDIR)) {
            Ok(()) => self.report.directories += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if stuck => self.remember(&mut holder, name),
            // It has filled again, or was exchanged for another: open what is there now.
            Err(Errno::NOTEMPTY | Errno::EXIST) => self.try_again(&mut holder, name),
            Err(Errno::NOTDIR) => self.unlink_exchanged(&mut holder, name),
            Err(errno) => self.refused(&mut holder, &name, errno),
        }
        Some(holder)
    }

    /// Opens the lowest directory above again if it was closed, by its name and those above it, each from the handle of
    /// the one before. Which directory of that name the guest has put there since does not matter: all of them must go.
    /// False if the way has gone; what is left of it is then gone through anew.
    fn reach_holder(&mut self) -> bool {
        loop {
            self.close_above(self.most - 1);
            let over = self.exhausted();
            let Some((above, name)) = self.above.gap() else { return true };
            match above.permitted(|dir| self.root.enter(dir, name)) {
                Ok(dir) if !over => self.above.reopen(dir),
                Err(Errno::MFILE | Errno::NFILE) if self.above.held() > 2 => self.most = self.above.held(),
                _ => {
                    self.passes = self.passes.saturating_add(1);
                    self.above.forget_gap();
                    return false;
                }
            }
        }
    }

    /// Notes a directory that was gone through and stays, so that its holder does not enter it again.
    fn remember(&mut self, holder: &mut Frame, name: CString) {
        if self.remembered < REMEMBERED {
            self.remembered += 1;
            holder.stays.names.insert(name);
        } else {
            holder.stays.more = true;
        }
    }

    fn close_top(&mut self, mut done: Frame, parent: BorrowedFd<'_>) -> Option<Frame> {
        match unlinkat(parent, &*done.name, AtFlags::REMOVEDIR) {
            Ok(()) => self.report.directories += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if done.stuck() && !self.overlooked => return None,
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                if !std::mem::take(&mut self.overlooked) {
                    self.passes = self.passes.saturating_add(1);
                }
                match self.root.enter(parent, &done.name) {
                    Ok(dir) => {
                        self.found_again(done.left);
                        let unknown = done.stays.more;
                        let closed = done.closed();
                        // With more that stay than are remembered, it would not be read again.
                        return Some(match unknown {
                            true => Frame::new(dir, closed.name),
                            false => Frame::reopened(dir, closed),
                        });
                    }
                    Err(Errno::NOENT) => {}
                    Err(errno) => {
                        self.leave(&mut done, c"", ErrorKind::of(errno));
                        return None;
                    }
                }
            }
            Err(errno) => {
                self.leave(&mut done, c"", ErrorKind::of(errno));
                return None;
            }
        }
        self.report.complete = true;
        None
    }

    /// Notes that the kernel refuses to remove an entry.
    fn refused(&mut self, frame: &mut Frame, name: &CStr, errno: Errno) {
        self.leave(frame, name, ErrorKind::of(errno));
        if errno == Errno::ROFS {
            // So is all the rest of it. A guest can make read-only snapshots of any size, and trying each entry of one would
            // use up the budget before the rest of the tree is reached.
            frame.pending.clear();
            frame.ended = true;
        }
    }

    /// Notes that an entry of `frame` stays; an empty name is the directory itself.
    fn leave(&mut self, frame: &mut Frame, name: &CStr, kind: ErrorKind) {
        frame.left += 1;
        self.report.left.total += 1;
        if self.report.left.first.len() >= Leftovers::FIRST {
            return;
        }
        let mut room = LONGEST_PATH;
        let around = self.above.names().chain([&*frame.name, name]).skip(1).take_while(|name| {
            room = room.saturating_sub(name.count_bytes() + 1);
            room > 0
        });
        let subject: PathBuf = around.map(|name| OsStr::from_bytes(name.to_bytes())).collect();
        let left = Left { error: Error::new(OPERATION, &subject, kind), subject };
        // A directory that was closed and is read again has its leftovers found again.
        if !self.report.left.first.contains(&left) {
            self.report.left.first.push(left);
        }
    }

    fn spend(&mut self) {
        self.spent = self.spent.saturating_add(1);
    }

    fn exhausted(&mut self) -> bool {
        self.over = self.over
            || self.spent >= self.budget.entries
            || self.passes > self.budget.passes
            // Each time, since a file system that a guest serves may make any call slow. The clock takes no syscall.
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.over
    }
}
