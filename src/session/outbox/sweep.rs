//! What nobody has asked for, sent or finished.

use std::path::Path;
use std::time::Duration;

use super::Outbox;
use crate::error::Result;
use crate::root::Removed;
use crate::session::handle::parts::{CLAIMED, Part, TRASH};
use crate::session::sweep::{Deadline, Swept, age, sweep_until};

impl Outbox {
    /// Removes what nobody has touched for `older_than`: messages in the outbox, pending claims, and the remains of
    /// interrupted removals. Messages that failed for good, or were never asked for, end here.
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
        let deadline = Deadline::new(self.session.config().budget());
        let mut swept = Swept::default();
        let host = self.session.host();
        let trash = host.descend(TRASH)?;
        // The guest's part comes last: it can make that as long as it likes.
        for place in [TRASH, CLAIMED] {
            for entry in host.list(place)? {
                let Some(budget) = deadline.left() else {
                    swept.out_of_time = true;
                    return Ok(swept);
                };
                let entry = entry?;
                if age(entry.metadata()) < older_than {
                    swept.kept += 1;
                    continue;
                }
                let path = Path::new(place).join(entry.path());
                let removed = match (entry.metadata().is_dir(), place) {
                    (true, CLAIMED) => host.remove_tree_quarantined(&path, &trash, budget),
                    (true, _) => host.remove_tree_contained_within(&path, budget),
                    (false, _) => host.remove_file(&path).map(|()| Removed::all()),
                };
                swept.record(entry.path(), removed);
            }
        }
        sweep_until(&self.session, Part::Outbox, older_than, deadline, &mut swept)?;
        Ok(swept)
    }
}
