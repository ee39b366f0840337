//! Which entries of a tree are shown, decided before a directory is entered.
//!
//! Problem: a filter that is applied to a finished listing has paid for everything it removes. A `.git` of 16,000 objects then uses
//! up the limit, and the files beside it are missing.
//!
//! Defence: each directory is judged when it is seen, and one that is left out is not opened.
//!
//! What remains: names that are left out one by one are still read from their directory, and count towards the limits.

use std::path::PathBuf;

use super::Workspace;
use crate::error::Result;
use crate::name::GuestPath;
#[cfg(feature = "patterns")]
use crate::name::Patterns;
use crate::root::{Entry, FileType, Walk, WalkLimits};
use crate::session::handle::resolve::Spelled;
use crate::session::handle::rules::Lists;

/// Which entries a listing or a walk shows; all of them by default.
///
/// ```
/// use beneath::FileType;
/// use beneath::session::Filter;
///
/// let filter = Filter::default().without_hidden().with_kinds([FileType::File, FileType::Symlink]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub(super) hidden: Hidden,
    kinds: Vec<FileType>,
    lists: Lists,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hidden {
    #[default]
    Shown,
    LeftOut,
}

/// What becomes of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Show,
    /// It is not shown, and what it contains may be.
    Pass,
    /// Neither it nor what it contains.
    LeaveOut,
}

impl Filter {
    /// Leaves out names that start with a dot, and all that is beneath them.
    #[must_use]
    pub fn without_hidden(mut self) -> Self {
        self.hidden = Hidden::LeftOut;
        self
    }

    /// Shows entries of these kinds only. Directories are entered nevertheless.
    #[must_use]
    pub fn with_kinds(mut self, kinds: impl IntoIterator<Item = FileType>) -> Self {
        self.kinds = kinds.into_iter().collect();
        self
    }

    /// Leaves out what these patterns match, and all that is beneath it. Paths are those from the workspace, also if
    /// another directory is listed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::session::Filter;
    /// use beneath::{Patterns, WalkLimits};
    ///
    /// let workspace = session.workspace();
    /// workspace.write_exclusive("node_modules/left-pad/index.js", "")?;
    /// workspace.write_exclusive("src/main.js", "")?;
    /// let filter = Filter::default().without(Patterns::new(["node_modules/"])?);
    /// assert_eq!(workspace.walk_with(".", WalkLimits::default(), filter)?.count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "patterns")]
    #[must_use]
    pub fn without(mut self, patterns: Patterns) -> Self {
        self.lists.blocked = Some(patterns);
        self
    }

    /// Shows only what these patterns match, itself or by a directory above it. Directories are entered and shown nevertheless.
    #[cfg(feature = "patterns")]
    #[must_use]
    pub fn only(mut self, patterns: Patterns) -> Self {
        self.lists.allowed = Some(patterns);
        self
    }

    fn judge(&self, entry: &Entry) -> Verdict {
        let kind = entry.metadata().file_type();
        if self.hidden == Hidden::LeftOut && is_hidden(entry) {
            return Verdict::LeaveOut;
        }
        match self.kinds.is_empty() || self.kinds.contains(&kind) {
            true => Verdict::Show,
            false => Verdict::Pass,
        }
    }
}

/// Those above were judged before it.
fn is_hidden(entry: &Entry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

impl Workspace {
    /// Visits what a filter shows beneath a directory, within `limits`; otherwise as [`walk`](Self::walk).
    ///
    /// A directory that is left out is not entered, so what it contains costs nothing.
    ///
    /// # Errors
    /// As [`walk`](Self::walk).
    ///
    /// # Races
    /// As [`walk`](Self::walk).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::session::Filter;
    /// use beneath::{FileType, WalkLimits};
    ///
    /// let workspace = session.workspace();
    /// workspace.write_exclusive(".git/config", "")?;
    /// workspace.write_exclusive("src/main.rs", "")?;
    /// let filter = Filter::default().without_hidden().with_kinds([FileType::File]);
    /// let walk = workspace.walk_with(".", WalkLimits::default(), filter)?;
    /// let paths: Vec<_> = walk.map(|entry| Ok(entry?.into_path())).collect::<beneath::Result<_>>()?;
    /// assert_eq!(paths, [std::path::Path::new("src/main.rs")]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn walk_with<'p>(
        &self,
        path: impl Into<Spelled<'p>>,
        limits: WalkLimits,
        filter: Filter,
    ) -> Result<FilteredWalk> {
        let base = self.directory(path)?;
        let walk = self.reading(&base, |root, path| root.walk(path, limits))?;
        let rules = self.session.config().rules().lists.clone();
        let is_left_out = filter.lists.blocks(&base);
        Ok(FilteredWalk { walk, base, filter, rules, is_left_out, levels: None })
    }
}

/// The entries of a tree that a [`Filter`] and the config's rules show; see [`Workspace::walk`].
#[derive(Debug)]
pub struct FilteredWalk {
    walk: Walk,
    /// From the workspace.
    base: GuestPath,
    filter: Filter,
    rules: Lists,
    /// Whether the filter leaves out the directory that the walk begins in.
    is_left_out: bool,
    /// How many levels are asked for, so that those below are not missing.
    levels: Option<u32>,
}

impl FilteredWalk {
    pub(super) fn with_levels(mut self, levels: Option<u32>) -> Self {
        self.levels = levels;
        self
    }

    /// Whether a limit has cut something off so far.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.walk.truncated()
    }

    /// Does not enter the directory that was shown last.
    pub fn skip_dir(&mut self) {
        self.walk.skip_dir();
    }

    fn judge(&self, entry: &Entry) -> Verdict {
        let verdict = self.filter.judge(entry);
        let lists = [&self.filter.lists, &self.rules];
        if verdict == Verdict::LeaveOut || lists.iter().all(|list| list.is_empty()) {
            return verdict;
        }
        let kind = entry.metadata().file_type();
        // Not a `GuestPath`: a tree may be deeper than the longest path that a call takes.
        let path: PathBuf = match self.base.is_top() {
            true => entry.path().into(),
            false => self.base.as_path().join(entry.path()),
        };
        match verdict {
            _ if lists.iter().any(|list| list.blocks_entry(&path, kind)) => Verdict::LeaveOut,
            Verdict::Show if !lists.iter().all(|list| list.allows_entry(&path, kind)) => Verdict::Pass,
            verdict => verdict,
        }
    }
}

impl Iterator for FilteredWalk {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_left_out {
            return None;
        }
        loop {
            let entry = match self.walk.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            if self.levels.is_some_and(|levels| level(&entry) >= levels as usize) {
                self.walk.skip_dir();
            }
            match self.judge(&entry) {
                Verdict::Show => return Some(Ok(entry)),
                Verdict::Pass => {}
                Verdict::LeaveOut => self.walk.skip_dir(),
            }
        }
    }
}

/// How many components a path from the listed directory has.
fn level(entry: &Entry) -> usize {
    entry.path().components().count()
}
