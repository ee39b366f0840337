//! Removing old messages, claims and remains.

use std::path::Path;
use std::time::Duration;

use super::Outbox;
use crate::error::Result;
use crate::session::handle::parts::{Part, TRASH};
use crate::session::sweep::{Sweep, Swept};

impl Outbox {
    /// Removes what nobody has touched for `older_than`: messages in the outbox, pending claims, and the remains of
    /// interrupted removals. Messages that failed for good, or were never asked for, end here. What a merge has displaced
    /// stays for a day at least.
    ///
    /// All of it together takes no longer than the config's [budget](crate::SessionsConfig::with_budget) and the removal
    /// of one entry; what was not looked at by then is [reported](Swept::out_of_time).
    ///
    /// # Errors
    /// [`Symlink`](crate::ErrorKind::Symlink) if `outbox` itself was replaced, and the kinds of every resolution.
    ///
    /// # Races
    /// A message that the guest is still writing is young.
    pub fn sweep(&self, older_than: Duration) -> Result<Swept> {
        let mut sweep = Sweep::new(&self.session, older_than)?;
        sweep.host_directory(Path::new(TRASH))?;
        sweep.claims()?;
        // Last, since the guest can make it as long as it likes.
        sweep.part(Part::Outbox)?;
        Ok(sweep.finish())
    }
}
