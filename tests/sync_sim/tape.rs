//! Numbers that are the same for the same seed.

#[derive(Clone, Debug)]
pub(crate) struct Tape(u64);

impl Tape {
    /// A tape for one purpose. Two purposes of one seed have nothing to do with each other.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut tape = Self(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        tape.0 ^= tape.next();
        tape
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Whether one of `times` comes up.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}
