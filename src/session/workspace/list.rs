//! Listing a directory of the workspace, a page at a time.
//!
//! Problem: a listing that is cut and then sorted is whatever the file system returned first. One that is sorted and then cut has
//! a million names of the guest's in memory.
//!
//! Defence: everything that the filter shows is looked at, within the limits, and only the entries of the page and those before it
//! are kept. What was not looked at is reported.
//!
//! What remains: the pages of a directory that changes may overlap or leave something out.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::path::Path;
use std::time::SystemTime;

use super::Workspace;
use super::filter::{Filter, Hidden};
use crate::error::{ErrorKind, Result};
use crate::root::{Entry, WalkLimits};
use crate::session::handle::resolve::Spelled;
use crate::session::listing::Listing;

/// How deep [`ListOptions::recursive`] goes.
const DEEPEST: u32 = 64;

/// What [`Workspace::list`] shows.
///
/// The default shows the directory's own entries, no hidden ones, the first 1,000 by path.
///
/// ```
/// use beneath::session::{ListOptions, Order};
///
/// let newest = ListOptions::default().recursive().with_order(Order::Newest).with_entries(20);
/// let next_page = newest.clone().with_offset(20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOptions {
    filter: Filter,
    depth: Depth,
    order: Order,
    offset: u64,
    entries: u64,
    looked_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// So many levels are asked for, and those below are not missing.
    Wanted(u32),
    /// All are asked for, so what is too deep is missing.
    All,
}

/// In which order [`Workspace::list`] shows entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// By path, component by component, byte by byte.
    #[default]
    Path,
    /// By the time of the last change of the content, the latest first, and then by path. A guest can set that time to anything.
    Newest,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self {
            filter: Filter::default().without_hidden(),
            depth: Depth::Wanted(1),
            order: Order::default(),
            offset: 0,
            entries: 1000,
            looked_at: 1_000_000,
        }
    }
}

impl ListOptions {
    /// Shows names that start with a dot, too.
    #[must_use]
    pub fn with_hidden(mut self) -> Self {
        self.filter.hidden = Hidden::Shown;
        self
    }

    /// Shows what the filter shows, and nothing else; also decides about hidden names.
    #[must_use]
    pub fn with_filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Shows what directories contain too, 64 levels deep.
    #[must_use]
    pub fn recursive(mut self) -> Self {
        self.depth = Depth::All;
        self
    }

    /// Shows `depth` levels; 1 is the directory's own entries.
    #[must_use]
    pub fn with_depth(mut self, depth: u32) -> Self {
        self.depth = Depth::Wanted(depth);
        self
    }

    /// Shows entries in this order.
    #[must_use]
    pub fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Leaves out the first `entries` of the order. They are kept in memory during the call.
    #[must_use]
    pub fn with_offset(mut self, entries: u64) -> Self {
        self.offset = entries;
        self
    }

    /// Shows at most `entries`.
    #[must_use]
    pub fn with_entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }

    /// Looks at no more than `entries`, shown or not; a million by default.
    #[must_use]
    pub fn with_looked_at(mut self, entries: u64) -> Self {
        self.looked_at = entries;
        self
    }
}

impl Workspace {
    /// Lists a directory; the workspace itself if `path` is `.`, empty or `/`.
    ///
    /// The entries are those of the whole directory in their order, of which a page is shown. [`Listing::total`] counts all that
    /// the filter shows; [`Listing::truncated`] says that there are more behind the page, or that a limit ended the search.
    ///
    /// # Errors
    /// Those of [`Root::walk`](crate::Root::walk) for the directory itself. What cannot be looked at further down is in
    /// [`Listing::refused`].
    ///
    /// # Races
    /// It is no snapshot.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::session::ListOptions;
    ///
    /// let workspace = session.workspace();
    /// for name in ["c", "a", "b"] {
    ///     workspace.write_exclusive(name, "")?;
    /// }
    /// let page = workspace.list(".", ListOptions::default().with_offset(1).with_entries(1))?;
    /// assert_eq!(page.entries[0].file_name(), "b");
    /// assert_eq!((page.total, page.truncated), (3, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list<'p>(&self, path: impl Into<Spelled<'p>>, options: ListOptions) -> Result<Listing<Entry>> {
        let (deepest, wanted) = match options.depth {
            Depth::Wanted(depth) => (depth, Some(depth)),
            Depth::All => (DEEPEST, None),
        };
        let limits = WalkLimits::default().with_depth(deepest).with_entries(options.looked_at);
        let walk = self.walk_with(path, limits, options.filter)?.with_levels(wanted);
        let mut page = Page::new(options.order, options.offset, options.entries);
        let mut listing = Listing::default();
        for entry in walk {
            match entry {
                Ok(entry) => page.add(entry),
                Err(error) if error.kind() == ErrorKind::TooMany && !error.is_transient() => {
                    listing.truncated = true;
                }
                Err(error) => listing.refused.add(error.subject().unwrap_or(Path::new("")).to_owned(), error),
            }
        }
        Ok(page.finish(listing))
    }
}

/// The first entries of an order, of any number that come.
struct Page {
    order: Order,
    offset: usize,
    /// How many are kept: those of the page, and those before it.
    keep: usize,
    /// The last of the order on top.
    kept: BinaryHeap<Ranked>,
    total: u64,
}

impl Page {
    fn new(order: Order, offset: u64, entries: u64) -> Self {
        let size = |number| usize::try_from(number).unwrap_or(usize::MAX);
        let keep = size(offset.saturating_add(entries));
        Self { order, offset: size(offset), keep, kept: BinaryHeap::new(), total: 0 }
    }

    fn add(&mut self, entry: Entry) {
        self.total += 1;
        let newest = match self.order {
            Order::Path => None,
            Order::Newest => Some(Reverse(entry.metadata().modified())),
        };
        self.kept.push(Ranked { newest, entry });
        if self.kept.len() > self.keep {
            self.kept.pop();
        }
    }

    fn finish(self, mut listing: Listing<Entry>) -> Listing<Entry> {
        listing.total = self.total;
        listing.truncated |= self.total > self.keep as u64;
        let sorted = self.kept.into_sorted_vec();
        listing.entries = sorted.into_iter().skip(self.offset).map(|ranked| ranked.entry).collect();
        listing
    }
}

struct Ranked {
    newest: Option<Reverse<SystemTime>>,
    entry: Entry,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_path = || self.entry.path().cmp(other.entry.path());
        self.newest.cmp(&other.newest).then_with(by_path)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}
