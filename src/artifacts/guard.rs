//! What looks like an accident, seen before anything comes that could hide it.
//!
//! Problem: a bucket is emptied, and a mirror puts new files there; a workspace is encrypted, and a pull brings new ones. The next
//! call sees a loss that is smaller in proportion.
//!
//! Defence: each call looks at both sides when it begins, also at the one that it does not change, and what there was then is in
//! the base before anything else is done.
//!
//! What remains: see [`Guard`](crate::tree::Guard).

use super::local::Local;
use super::options::SyncOptions;
use super::remote::Remote;
use super::report::Side;
use super::state::Base;
use crate::tree::{Measure, reference};

/// Notes what the guards must measure by. Returns whether it is more than is on disk.
pub(super) fn watch(base: &mut Base, local: &Local, remote: &Remote, options: &SyncOptions) -> bool {
    let is_here = base.iter().all(|(path, known)| local.tree.get(path) == Some(&known.leaf));
    if is_here && base.notes.lost.is_empty() && base.notes.references.is_empty() {
        return false;
    }
    let there = remote.tree(base, &remote.guesses(base));
    let mut begins = false;
    for side in [Side::Here, Side::There] {
        let (ours, theirs, fewest) = match side {
            Side::Here => (&local.tree, &there, remote.fewest()),
            Side::There => (&there, &local.tree, 2),
        };
        let measure = Measure { fewest, ..options.measure() };
        match reference(&base.tree(side), (ours, theirs), measure) {
            Some(leaves) => begins |= base.notes.references.insert(side, leaves).is_none(),
            None => drop(base.notes.references.remove(&side)),
        }
    }
    begins
}
