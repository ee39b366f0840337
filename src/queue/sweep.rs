//! Removing what nobody needs any more.
//!
//! Problem: a guest gives up and never fetches its answers, leaves names that are no request, and fills both directories. What a crash
//! has left on the host's side stays for ever.
//!
//! Defence: answers beyond a number, a size or an age go, the oldest first; of any number of entries only as many are remembered as may
//! stay. Other names go by their age. All of it ends when the time of the config's budget is over.
//!
//! What remains: directories that the guest makes there are reported and left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use super::disk::{BODY, JSON, OPERATION, REQUESTS, RESPONSES, Step};
use super::id::RequestId;
use super::shared::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::root::{Entries, Entry, Root};
use crate::session::{Swept, age};

pub(super) fn sweep(shared: &Shared) -> Result<Swept> {
    shared.disk.session.alive()?;
    let mut sweep = Sweep { shared, start: Instant::now(), swept: Swept::default() };
    sweep.host()?;
    // Last, since the guest can make them as long as it likes.
    sweep.responses();
    sweep.requests();
    Ok(sweep.swept)
}

struct Sweep<'s> {
    shared: &'s Shared,
    start: Instant,
    swept: Swept,
}

/// What an answer on the guest's side takes.
struct Response {
    path: PathBuf,
    bytes: u64,
}

impl Sweep<'_> {
    fn is_over(&mut self) -> bool {
        let most = self.shared.disk.session.config().budget().time();
        self.swept.out_of_time |= self.start.elapsed() >= most;
        self.swept.out_of_time
    }

    /// What interrupted calls have left on the host's side.
    fn host(&mut self) -> Result<()> {
        let (disk, config) = (&self.shared.disk, &self.shared.config);
        let states: Vec<_> = disk.states()?.collect::<Result<_>>()?;
        let in_use = |id: &RequestId, steps: &[Step]| {
            states.iter().any(|(other, step, _)| other == id && steps.contains(step))
        };
        for (id, step, metadata) in &states {
            let old = age(metadata);
            let removed = match step {
                Step::Done => disk.exhume(id),
                // An answer that cannot be published, for as long as one that nobody fetches.
                Step::Answer | Step::Out if old >= config.response_age() => {
                    disk.forget(id, *step).map(|()| {
                        self.shared.drop_saved(id);
                        true
                    })
                }
                Step::Body
                    if old >= config.junk_age()
                        && !in_use(id, &[Step::Claimed, Step::Started, Step::Refused, Step::Copy]) =>
                {
                    disk.forget(id, *step).map(|()| true)
                }
                _ => Ok(false),
            };
            self.note(Path::new(&step.of(id)), removed);
        }
        Ok(())
    }

    fn note(&mut self, path: &Path, removed: Result<bool>) {
        match removed {
            Ok(true) => self.swept.removed += 1,
            Ok(false) => self.swept.kept += 1,
            Err(error) => self.swept.left.add(path, error),
        }
    }

    /// Answers that nobody has fetched.
    fn responses(&mut self) {
        let config = self.shared.config;
        let Some(mut entries) = self.list(RESPONSES) else { return };
        // The newest so far; as many as may stay.
        let mut newest: BTreeMap<(SystemTime, PathBuf), Response> = BTreeMap::new();
        let mut bytes = 0_u128;
        while let Some(entry) = entries.next() {
            if self.is_over() {
                return;
            }
            let Some(entry) = self.described(RESPONSES, entry) else { continue };
            let (name, metadata) = (entry.file_name(), entry.metadata());
            let is_answer = [JSON, BODY].iter().any(|end| RequestId::of_file(name, end).is_some());
            let most = if is_answer { config.response_age() } else { config.junk_age() };
            if age(metadata) >= most {
                self.remove(entries.directory(), RESPONSES, &entry);
            } else if is_answer && !metadata.is_dir() {
                // Sparse files have any length, so a sum of them needs more bits.
                bytes += u128::from(metadata.len());
                let key = (metadata.changed(), entry.path().to_owned());
                let response = Response { path: entry.path().to_owned(), bytes: metadata.len() };
                newest.insert(key, response);
                while newest.len() > config.responses() || bytes > u128::from(config.responses_bytes()) {
                    let Some((_, oldest)) = newest.pop_first() else { break };
                    bytes -= u128::from(oldest.bytes);
                    self.unlink(entries.directory(), RESPONSES, &oldest.path);
                }
            } else {
                self.swept.kept += 1;
            }
        }
        self.swept.kept += newest.len() as u64;
    }

    /// Names that are no request's, and bodies whose request is gone.
    fn requests(&mut self) {
        let junk_age = self.shared.config.junk_age();
        let Some(mut entries) = self.list(REQUESTS) else { return };
        while let Some(entry) = entries.next() {
            if self.is_over() {
                return;
            }
            let Some(entry) = self.described(REQUESTS, entry) else { continue };
            let (name, old) = (entry.file_name(), age(entry.metadata()) >= junk_age);
            let belongs = match RequestId::of_file(name, BODY) {
                // Whether its request is there is asked only of what is old.
                Some(id) => old && entries.directory().try_exists(id.file(JSON)).unwrap_or(true),
                None => RequestId::of_file(name, JSON).is_some() && entry.metadata().is_file(),
            };
            match old && !belongs {
                true => self.remove(entries.directory(), REQUESTS, &entry),
                false => self.swept.kept += 1,
            }
        }
    }

    /// What a directory of the guest's side contains.
    fn list(&mut self, part: &str) -> Option<Entries<Root>> {
        self.shared.disk.list(part).map_err(|error| self.swept.left.add(part, error)).ok()
    }

    fn described(&mut self, part: &str, entry: Result<Entry>) -> Option<Entry> {
        entry.map_err(|error| self.swept.left.add(part, error)).ok()
    }

    fn remove(&mut self, dir: &Root, part: &str, entry: &Entry) {
        match entry.metadata().is_dir() {
            true => {
                let path = Path::new(part).join(entry.path());
                self.swept.left.add(&path, Error::new(OPERATION, &path, ErrorKind::NotRegular));
            }
            false => self.unlink(dir, part, entry.path()),
        }
    }

    fn unlink(&mut self, dir: &Root, part: &str, name: &Path) {
        match dir.remove_file(name) {
            Ok(()) => self.swept.removed += 1,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.swept.left.add(Path::new(part).join(name), error),
        }
    }
}
