//! What every report has in common.
//!
//! A call that works on many things does not stop at the first one that is refused. It goes on, and its report lists what was
//! left, refused or failed, each with its reason: the first thousand by name, and all of them by number, since a guest can
//! make any number.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// Something that a call did not do, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// What it is: a path relative to what the call worked on, or a name. Empty for the whole of it.
    pub subject: PathBuf,
    /// Why.
    pub error: Error,
}

/// What a call left, refused or failed to do.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// root.ensure_dir("job/a")?;
/// root.ensure_dir("job/b")?;
/// let removed = root.remove_tree_contained_within("job", beneath::Budget::default().with_entries(1))?;
/// assert!(!removed.is_complete());
/// for (path, error) in &removed.left {
///     println!("{}: {error}", path.display());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "something may have been refused"]
#[non_exhaustive]
pub struct Leftovers {
    /// The first of them, at most [`Leftovers::FIRST`].
    pub first: Vec<Left>,
    /// How many there are.
    pub total: u64,
}

impl Leftovers {
    /// How many are reported by name.
    pub const FIRST: usize = 1000;

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The first of them, with the reasons.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.into_iter()
    }

    /// One thing, and nothing else.
    pub(crate) fn one(subject: impl Into<PathBuf>, error: Error) -> Self {
        let mut leftovers = Self::default();
        leftovers.add(subject, error);
        leftovers
    }

    pub(crate) fn add(&mut self, subject: impl Into<PathBuf>, error: Error) {
        self.total += 1;
        if self.first.len() < Self::FIRST {
            self.first.push(Left { subject: subject.into(), error });
        }
    }

    #[cfg(any(feature = "session", feature = "artifacts"))]
    pub(crate) fn absorb(&mut self, other: Self) {
        self.total += other.total;
        let room = Self::FIRST.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
    }
}

impl<'a> IntoIterator for &'a Leftovers {
    type Item = (&'a Path, &'a Error);
    type IntoIter = std::iter::Map<std::slice::Iter<'a, Left>, fn(&'a Left) -> Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.iter().map(|left| (&left.subject, &left.error))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Left {
    /// Bytes of the subject that are not UTF-8 are replaced.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;

        let mut fields = serializer.serialize_struct("Left", 2)?;
        fields.serialize_field("subject", &self.subject.to_string_lossy())?;
        fields.serialize_field("error", &self.error)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn counts_all_and_names_the_first_thousand() {
        let mut leftovers = Leftovers::default();
        assert!(leftovers.is_empty());
        for number in 0..1500 {
            leftovers.add(format!("{number}"), Error::new("read", "x", ErrorKind::Symlink));
        }
        assert_eq!((leftovers.total, leftovers.first.len()), (1500, Leftovers::FIRST));
        let (subject, error) = leftovers.iter().next().unwrap();
        assert_eq!((subject, error.kind()), (Path::new("0"), ErrorKind::Symlink));
    }

    #[cfg(feature = "session")]
    #[test]
    fn absorbing_stays_within_the_bound() {
        let error = || Error::new("read", "x", ErrorKind::Symlink);
        let mut sum = Leftovers::one("a", error());
        for _ in 0..1200 {
            sum.absorb(Leftovers::one("b", error()));
        }
        assert_eq!((sum.total, sum.first.len()), (1201, Leftovers::FIRST));
    }
}
