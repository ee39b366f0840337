//! Listing a directory of the workspace, with a bound on what is looked at.

use std::path::Path;

use super::Workspace;
use crate::error::{ErrorKind, Result};
use crate::root::{Entry, WalkLimits};
use crate::session::listing::Listing;

/// What [`Workspace::list`] shows.
///
/// The default shows the directory's own entries, no hidden ones, and at most 1,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    hidden: bool,
    depth: u32,
    entries: u64,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { hidden: false, depth: 1, entries: 1000 }
    }
}

impl ListOptions {
    /// Shows names that start with a dot, too.
    #[must_use]
    pub fn with_hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Shows what directories hold, 64 levels deep.
    #[must_use]
    pub fn recursive(self) -> Self {
        self.with_depth(64)
    }

    /// Shows `depth` levels.
    #[must_use]
    pub fn with_depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// Shows at most `entries`.
    #[must_use]
    pub fn with_entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }
}

impl Workspace {
    /// Lists a directory; the workspace itself if `raw` is empty, `.`, `/` or the mount point.
    ///
    /// # Errors
    /// Those of [`Root::list`](crate::Root::list). What cannot be looked at further down is in
    /// [`Listing::refused`].
    ///
    /// # Races
    /// It is no snapshot.
    pub fn list(&self, raw: &str, options: ListOptions) -> Result<Listing<Entry>> {
        let path = self.directory_path(raw)?;
        // Hidden entries are not shown, but the guest must not make the host look at them without end.
        let bound = if options.hidden { options.entries } else { options.entries.saturating_mul(16) };
        let guest = self.guest()?;
        let mut listing = Listing::default();
        if options.depth > 1 {
            let limits = WalkLimits::default().with_depth(options.depth).with_entries(bound);
            fill(&mut listing, guest.walk(path, limits)?, options);
        } else {
            let mut entries = guest.list(path)?;
            let most = usize::try_from(bound).unwrap_or(usize::MAX);
            fill(&mut listing, entries.by_ref().take(most), options);
            listing.truncated |= entries.next().is_some();
        }
        listing.entries.sort_by(|one, other| one.path().cmp(other.path()));
        Ok(listing)
    }
}

fn fill(listing: &mut Listing<Entry>, entries: impl Iterator<Item = Result<Entry>>, options: ListOptions) {
    for entry in entries {
        match entry {
            Ok(entry) if !options.hidden && is_hidden(entry.path()) => {}
            Ok(_) if listing.entries.len() as u64 >= options.entries => {
                listing.truncated = true;
                break;
            }
            Ok(entry) => listing.entries.push(entry),
            Err(error) if error.kind() == ErrorKind::TooMany => listing.truncated = true,
            Err(error) => listing.refused.add(error.subject().unwrap_or(Path::new("")).to_owned(), error),
        }
    }
}

fn is_hidden(path: &Path) -> bool {
    path.components().any(|component| component.as_os_str().as_encoded_bytes().starts_with(b"."))
}
