//! From staging to where the guest sees it, by renames that replace nothing.
//!
//! Problem: the guest may be running. It plants links and files where the restore wants to put directories, removes
//! what was just published, and changes it.
//!
//! Defence: both ends of each rename are held beneath their roots. A whole directory moves in one step where its name is
//! free. What the policy replaces is moved aside, never opened and never followed.
//!
//! What remains: once a file is published it is the guest's. An empty directory of an earlier, abandoned attempt may
//! come along.

use crate::artifacts::policy::OnLocal;
use crate::artifacts::state::{Places, Record};
use crate::error::{Error, ErrorKind, Result};

/// The staged tree, and the directory for what it replaces.
pub(super) const TREE: &str = "restore/tree";
pub(super) const TRASH: &str = "restore/trash";

/// How often a guest may put something back in the way.
const TRIES: u32 = 8;

/// What became of one staged file.
#[derive(Debug)]
pub(super) enum Published {
    /// It is in the workspace, or was until the guest took it away.
    Moved,
    /// The guest's own file stays, by policy.
    Kept,
    /// The guest is in the way.
    Refused(Error),
    /// The system is in the way; the next call tries again.
    Failed(Error),
}

/// Publishes `records`, which are in the order of their paths' bytes, and returns the fate of each.
pub(super) fn publish(places: &Places, policy: OnLocal, records: &[Record]) -> Result<Vec<Published>> {
    places.staging.ensure_dir(TRASH)?;
    let mut publisher = Publisher { places, policy, fates: Vec::with_capacity(records.len()), asides: 0 };
    publisher.group(records, 0);
    Ok(publisher.fates)
}

struct Publisher<'a> {
    places: &'a Places,
    policy: OnLocal,
    fates: Vec<Published>,
    asides: u64,
}

impl Publisher<'_> {
    /// Publishes records that share the first `offset` bytes of their paths.
    fn group(&mut self, mut records: &[Record], offset: usize) {
        while let Some(first) = records.first() {
            let path = first.path.as_str();
            let rest = path.get(offset..).unwrap_or_default();
            let (within, end) = match rest.find('/') {
                None => (1, offset),
                Some(slash) => {
                    let end = offset + slash + 1;
                    let directory = path.get(..end).unwrap_or_default();
                    (records.partition_point(|record| record.path.as_str().starts_with(directory)), end)
                }
            };
            let (group, others) = records.split_at(within.max(1));
            match path.get(..end.saturating_sub(1)) {
                Some(directory) if end > offset => self.directory(directory, group, end),
                _ => self.file(first),
            }
            records = others;
        }
    }

    /// Moves a whole directory if its name is free, else what is in it.
    fn directory(&mut self, path: &str, group: &[Record], end: usize) {
        match self.transfer(path) {
            Ok(Transfer::Done) => self.fates.extend(group.iter().map(|_| Published::Moved)),
            Ok(Transfer::Occupied) => self.group(group, end),
            Err(error) => {
                let fates =
                    group.iter().map(|record| fate(Error::new("publish", &record.path, error.kind())));
                self.fates.extend(fates);
            }
        }
    }

    fn file(&mut self, record: &Record) {
        let path = record.path.as_str();
        let fate = match self.transfer(path) {
            Ok(Transfer::Done) => Published::Moved,
            Ok(Transfer::Occupied) => match self.policy {
                OnLocal::ColdStart | OnLocal::LocalWins => Published::Kept,
                OnLocal::Fail | OnLocal::RemoteWins => {
                    Published::Refused(Error::new("publish", path, ErrorKind::AlreadyExists))
                }
            },
            Err(error) => fate(error),
        };
        self.fates.push(fate);
    }

    /// Takes one entry across. `Occupied` means that something has its name: for a directory, a real directory.
    fn transfer(&mut self, path: &str) -> Result<Transfer> {
        let Places { workspace, staging, .. } = self.places;
        let staged = format!("{TREE}/{path}");
        let mut tries = 0;
        loop {
            let Err(error) = staging.rename_to(&staged, workspace, path) else { return Ok(Transfer::Done) };
            tries += 1;
            match error.kind() {
                ErrorKind::AlreadyExists => {
                    let is_directory = staging.metadata(&staged)?.is_dir();
                    let local = workspace.metadata(path);
                    if is_directory && local.as_ref().is_ok_and(|entry| entry.is_dir()) {
                        return Ok(Transfer::Occupied);
                    }
                    if self.policy == OnLocal::RemoteWins && tries <= TRIES {
                        self.set_aside(path)?;
                    } else if is_directory {
                        let kind = local.err().map_or(ErrorKind::NotDirectory, |error| error.kind());
                        return Err(Error::new("publish", path, kind));
                    } else {
                        return Ok(Transfer::Occupied);
                    }
                }
                ErrorKind::NotFound => match staging.metadata(&staged) {
                    // An earlier call has taken it across.
                    Err(gone) if gone.kind() == ErrorKind::NotFound => return Ok(Transfer::Done),
                    Err(other) => return Err(other),
                    Ok(_) if tries > TRIES => return Err(error),
                    // The guest has removed the directory that should receive it.
                    Ok(_) => match path.rsplit_once('/') {
                        Some((parent, _)) => drop(workspace.ensure_dir(parent)?),
                        None => return Err(error),
                    },
                },
                _ => return Err(error),
            }
        }
    }

    /// Moves whatever the guest has at `path` out of its reach.
    fn set_aside(&mut self, path: &str) -> Result<()> {
        let Places { workspace, staging, .. } = self.places;
        loop {
            let aside = format!("{TRASH}/{}", self.asides);
            self.asides += 1;
            match workspace.rename_to(path, staging, &aside) {
                // Left by a call that was interrupted.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                done => return done,
            }
        }
    }
}

enum Transfer {
    Done,
    Occupied,
}

/// Whether the guest or the system is the reason.
fn fate(error: Error) -> Published {
    match error.kind() {
        ErrorKind::Symlink | ErrorKind::NotDirectory | ErrorKind::AlreadyExists | ErrorKind::Busy => {
            Published::Refused(error)
        }
        // Only the host mounts.
        _ => Published::Failed(error),
    }
}
