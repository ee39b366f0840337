//! One way of doing a work.

use std::fmt;
use std::time::{Duration, Instant};

use super::Ground;
use crate::trace::marked;

/// The bare syscalls, without this crate and with the same guarantees.
pub const RAW: &str = "raw";
/// This crate, which is held against them.
pub const OURS: &str = "beneath";

/// Calls of one short work in a row.
const MANY: usize = 500;

/// Who watches the part of a line that counts. What comes before and after prepares and cleans up.
#[derive(Clone, Copy, Debug)]
pub enum Watch {
    Clock,
    Tracer,
}

impl Watch {
    /// Does the part, and returns how long it took.
    pub fn over(self, part: impl FnOnce()) -> Duration {
        let start = Instant::now();
        match self {
            Self::Clock => part(),
            Self::Tracer => marked(part),
        }
        start.elapsed()
    }
}

/// A way: its name, and how to do the work once.
pub struct Line {
    pub name: &'static str,
    run: Box<dyn FnMut(Watch) -> Duration>,
    /// Calls of which it makes more or fewer than [`RAW`], each with the reason.
    pub besides: &'static [(&'static str, &'static str)],
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Line").field(&self.name).finish()
    }
}

impl Line {
    /// `run` does the work once, and returns how long the part took that it had watched.
    pub fn new(name: &'static str, run: impl FnMut(Watch) -> Duration + 'static) -> Self {
        Self { name, run: Box::new(run), besides: &[] }
    }

    /// A work that is nothing but the part that counts.
    pub fn once(name: &'static str, mut call: impl FnMut() + 'static) -> Self {
        Self::new(name, move |watch| watch.over(&mut call))
    }

    /// A work of about a microsecond, done many times; the time is that of one.
    pub fn many(name: &'static str, ground: &Ground, mut call: impl FnMut() + 'static) -> Self {
        Self::many_after(name, ground, || {}, move |_| call(), || {})
    }

    /// The same, with what is done before and after all of them, and is not measured. A call gets its number.
    pub fn many_after(
        name: &'static str,
        ground: &Ground,
        mut before: impl FnMut() + 'static,
        mut call: impl FnMut(usize) + 'static,
        mut after: impl FnMut() + 'static,
    ) -> Self {
        let count = ground.size(MANY);
        Self::new(name, move |watch| {
            before();
            let taken = watch.over(|| (0..count).for_each(&mut call));
            after();
            taken / u32::try_from(count).expect("a small number")
        })
    }

    pub fn besides(mut self, besides: &'static [(&'static str, &'static str)]) -> Self {
        self.besides = besides;
        self
    }

    pub fn run(&mut self, watch: Watch) -> Duration {
        (self.run)(watch)
    }
}
