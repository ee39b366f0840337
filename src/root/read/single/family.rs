//! Whether all names of a file are known.
//!
//! Problem: build tools give one file several names in their own tree. Such a file looks like a host's file that the guest has
//! linked, and a guest can move its one name about so that it is found twice.
//!
//! Defence: the proof of a single name, for all names at once. Each of them leads to the file, from a directory of its own, and
//! there are as many as the file has. All directories are held, so that no two of them are one that was moved meanwhile. Of one
//! directory only one name counts: where case is folded, two spellings are one name. A name that is moved from one directory to the
//! other leaves the count as it is, so the times of the last change must show it, on every file system: that of the file, and that of
//! each directory, since XFS exchanges two files without touching the times of either.
//!
//! What remains: as for a single name. Where somebody else serves the file system, the times are what they say.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Instant;

use rustix::io::Errno;

use super::{Purpose, Seen, TRIES, barrier};
use crate::error::{Error, Result};
use crate::root::Root;
use crate::root::metadata::{Metadata, describe, describe_fresh};
use crate::root::read::stamps::{Before, TICK};
use crate::root::resolve::Handle;
use crate::root::resolve::path::{Checked, Meant, subject};

/// How many names are held at a time.
pub(in crate::root) const MOST_NAMES: usize = 64;

/// A directory that is held, and a name in it.
type Place<'r, 'p> = (Handle<'r>, &'p [u8]);

impl Root {
    /// Proves that the file behind `held` has these names and no other; false if that cannot be shown before `until`.
    pub(in crate::root) fn prove_family(
        &self,
        operation: &'static str,
        held: BorrowedFd<'_>,
        names: &[impl AsRef<Path>],
        until: Instant,
    ) -> Result<bool> {
        if names.len() > MOST_NAMES {
            return Ok(false);
        }
        for _ in 0..TRIES {
            let before = Before::now();
            let found = describe_fresh(held, c"").map_err(|errno| about(operation, names, errno))?;
            let seen = Seen::from(&found);
            if seen.nlink != names.len() as u64 {
                return Ok(false);
            }
            let Some(places) = self.places(operation, names)? else { return Ok(false) };
            match self.all_lead_to(&places, seen, before) {
                // The directories' last change is not that of a write, so neither may the file's be.
                Ok(Some(true)) if self.is_at_rest(before, &found, Purpose::Change) => return Ok(true),
                // Only the last change is too young.
                Ok(Some(_)) if Instant::now() < until => std::thread::sleep(TICK),
                Ok(None) if Instant::now() < until => {}
                Ok(_) | Err(Errno::NOENT) => return Ok(false),
                Err(errno) => return Err(about(operation, names, errno)),
            }
        }
        Ok(false)
    }

    /// The directory of each name, all of them held; none if two are the same.
    fn places<'p>(
        &self,
        operation: &'static str,
        names: &'p [impl AsRef<Path>],
    ) -> Result<Option<Vec<Place<'_, 'p>>>> {
        let (mut places, mut directories) = (Vec::new(), Vec::new());
        for name in names {
            let path = Checked::new(operation, name.as_ref(), Meant::Entry)?;
            let (dir, leaf) = self.parent(operation, path)?;
            let directory =
                describe(dir.as_fd()).map_err(|errno| Error::from_errno(operation, subject(path), errno))?;
            directories.push((directory.dev(), directory.ino()));
            places.push((dir, leaf));
        }
        directories.sort_unstable();
        directories.dedup();
        Ok((directories.len() == places.len()).then_some(places))
    }

    /// Whether each name leads to the file, and still does once all that was changing the names is done, and no name of any of the
    /// directories has changed meanwhile; none if not. False if an equal time later on does not show that yet.
    fn all_lead_to(
        &self,
        places: &[Place<'_, '_>],
        file: Seen,
        before: Before,
    ) -> rustix::io::Result<Option<bool>> {
        let leads = |(dir, leaf): &Place<'_, '_>| {
            let found = Seen::from(&describe_fresh(dir.as_fd(), *leaf)?);
            Ok::<_, Errno>(found.is(file) && (found.nlink, found.changed) == (file.nlink, file.changed))
        };
        let all = || places.iter().try_fold(true, |so_far, place| Ok::<_, Errno>(so_far && leads(place)?));
        let directories = || -> rustix::io::Result<Vec<Metadata>> {
            places.iter().map(|(dir, _)| describe_fresh(dir.as_fd(), c"")).collect()
        };
        let first = directories()?;
        if !all()? {
            return Ok(None);
        }
        places.iter().try_for_each(|(dir, leaf)| barrier(dir.as_fd(), leaf))?;
        if !all()? {
            return Ok(None);
        }
        let last = directories()?;
        let unchanged = first.iter().zip(&last).all(|(first, last)| first.stamps().0 == last.stamps().0);
        let rests = |dir: &Metadata| self.is_at_rest(before, dir, Purpose::Change);
        Ok(unchanged.then(|| first.iter().all(rests)))
    }
}

fn about(operation: &'static str, names: &[impl AsRef<Path>], errno: Errno) -> Error {
    let first = names.first().map_or(Path::new(""), AsRef::as_ref);
    Error::from_errno(operation, first, errno)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::{self, File};

    use super::*;
    use crate::root::read::single::patience;

    #[test]
    fn as_many_names_as_the_file_has_must_be_found_each_in_its_own_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open_ambient(dir.path(), cap_std::ambient_authority()).unwrap();
        for name in ["a", "b", "c", "c/d"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("a/f"), "x").unwrap();
        for name in ["b/g", "c/d/h"] {
            fs::hard_link(dir.path().join("a/f"), dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("b/other"), "x").unwrap();
        let held = File::open(dir.path().join("a/f")).unwrap();
        let proven = |names: &[&str]| root.prove_family("test", held.as_fd(), names, patience()).unwrap();
        assert!(proven(&["a/f", "b/g", "c/d/h"]));
        assert!(!proven(&["a/f", "b/g"]), "one is elsewhere");
        // What a walk meets whose directory is moved on before it.
        assert!(!proven(&["a/f", "b/g", "b/g"]), "one was found twice");
        assert!(!proven(&["a/f", "b/g", "c/none"]), "one is gone");
        assert!(!proven(&["a/f", "b/other", "c/d/h"]), "one is another file");
        assert!(!proven(&[]));
    }

    #[test]
    fn a_name_that_may_just_have_been_moved_is_proven_only_after_a_tick_on_every_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let mut root = Root::open_ambient(dir.path(), cap_std::ambient_authority()).unwrap();
        // As for overlayfs on a kernel whose change times are no finer than its clock.
        root.stamps = false;
        root.exact.set(false).unwrap();
        fs::create_dir(path("a")).unwrap();
        fs::create_dir(path("b")).unwrap();
        fs::write(path("a/f"), "x").unwrap();
        fs::hard_link(path("a/f"), path("b/f")).unwrap();
        let held = File::options().write(true).open(path("a/f")).unwrap();
        let proven = |until| root.prove_family("test", held.as_fd(), &["a/f", "b/f"], until).unwrap();
        // A busy machine may take longer than a tick for a single try.
        let waited_for = (0..1000).any(|_| {
            held.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            !proven(Instant::now())
        });
        assert!(waited_for);
        assert!(proven(patience()));
    }
}
