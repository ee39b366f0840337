//! After all faults have healed: both hosts come to one state, and stay there.

use std::sync::Arc;

use beneath::artifacts::{Approval, Deletions, Hashing, SyncOptions};
use futures_util::future::FutureExt as _;

use crate::disk::Folder;
use crate::history::{PATHS, Which};
use crate::report::Report;
use crate::world::{Rules, World, ask, note};

impl World<'_> {
    /// After all faults have healed both hosts come to one state, and stay there.
    pub(crate) fn settle(&mut self) {
        for round in 0..4 * PATHS.len() {
            let (before, mut quiet, mut refused) = (self.picture(), true, 0);
            for host in 0..2 {
                let mut approved = None;
                for _ in 0..3 {
                    let Some(report) = self.sync(host, approved) else {
                        return self.books().accuse(format!("round {round}: a call of host {host} fails"));
                    };
                    refused += report.refused;
                    quiet &= report.done == 0;
                    // Somebody looks at what is held, and lets it through.
                    approved = report.held.first().copied();
                    if approved.is_none() {
                        break;
                    }
                }
            }
            if !self.books().wrong.is_empty() {
                return;
            }
            // A directory that was removed is in no count.
            let now = self.picture();
            if quiet && before == now {
                self.tally.settled += 1;
                let [one, two, there] = &now;
                let message = match () {
                    // What was put while a listing lacked something may be a file and a directory of one name. It is reported.
                    () if (equal(one, there, self.rules) && equal(two, there, self.rules)) || refused > 0 => {
                        return;
                    }
                    () => "at rest, but not equal",
                };
                let shown: Vec<String> = now.iter().map(show).collect();
                return self.books().accuse(format!("{message}:\n  {}", shown.join("\n  ")));
            }
        }
        self.books().accuse("it does not come to rest".to_owned());
    }

    fn sync(&mut self, host: usize, approved: Option<Approval>) -> Option<Report> {
        let hashing = match self.books().hosts[host].blind.is_empty() {
            true => Hashing::Never,
            false => Hashing::Always,
        };
        let deletions = approved.map_or(Deletions::Guarded, Deletions::Approved);
        let options = SyncOptions::default().with_hashing(hashing).with_deletions(deletions);
        self.tally.calls += 1;
        self.books().begin(host);
        let (artifacts, stage) = (self.artifacts(host).with_concurrency(1), Arc::clone(&self.stage));
        let call = async move { note(&stage, host, ask(&artifacts, Which::Sync, options).await) };
        let report = self.machine.play(call.boxed()).flatten();
        let mut books = self.books();
        books.end(host);
        books.judge_base(host);
        report
    }

    /// Both workspaces and the store.
    fn picture(&self) -> [Folder; 3] {
        let mut books = self.books();
        books.look(0);
        books.look(1);
        [books.hosts[0].folder.clone(), books.hosts[1].folder.clone(), books.stored()]
    }
}

/// Whether two sides hold the same, as far as it is kept.
pub(crate) fn equal(here: &Folder, there: &Folder, rules: Rules) -> bool {
    here.leaves == there.leaves && (rules != Rules::Product || here.empty().eq(there.empty()))
}

pub(crate) fn show(folder: &Folder) -> String {
    let leaves =
        folder.leaves.iter().map(|(name, entry)| format!("{}={}", name.escape_ascii(), entry.show()));
    let empty = folder.empty().map(|name| format!("{}/", name.escape_ascii()));
    leaves.chain(empty).collect::<Vec<_>>().join(" ")
}
