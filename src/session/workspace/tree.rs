//! Copying a directory of the workspace to another session.

use super::Workspace;
use crate::error::Result;
use crate::name::GuestPath;
use crate::root::{CopiedTree, Entry, FileType, TreeOptions};
use crate::session::handle::resolve::Spelled;
use crate::session::handle::rules::Act;

impl Workspace {
    /// Copies a directory, with everything in it, to another session's workspace, or to this one, and makes the directories
    /// above its new place.
    ///
    /// Both paths may be the workspace itself, `""`; for `to` that takes [`TreeOptions::into_existing`]. Content is copied and
    /// never moved, so the guest that had it has no descriptor into the copy. What the rules of either session's config deny is
    /// refused by name, and the rest is copied.
    ///
    /// # Errors
    /// Those of [`Root::copy_tree`](crate::Root::copy_tree).
    ///
    /// # Races
    /// As [`Root::copy_tree`](crate::Root::copy_tree); both guests may be at work.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// use beneath::{SessionId, TreeOptions};
    ///
    /// let (one, _) = sessions.create(&SessionId::new("one"))?;
    /// let (two, _) = sessions.create(&SessionId::new("two"))?;
    /// one.workspace().write_exclusive("src/main.rs", "fn main() {}")?;
    /// let options = TreeOptions::default().into_existing();
    /// let copied = one.workspace().copy_tree_to("", &two.workspace(), "", options)?;
    /// assert!(copied.is_complete());
    /// assert_eq!(two.workspace().read_contained("src/main.rs", 64)?, b"fn main() {}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copy_tree_to<'p, 'q>(
        &self,
        from: impl Into<Spelled<'p>>,
        other: &Workspace,
        to: impl Into<Spelled<'q>>,
        options: TreeOptions,
    ) -> Result<CopiedTree> {
        let (from, to) = (self.directory(from)?, other.within(to.into(), Act::Make)?);
        let admit = |entry: &Entry| {
            let is_dir = entry.metadata().file_type() == FileType::Directory;
            self.allows_beneath(&from, entry, if is_dir { Act::Look } else { Act::Read })?;
            other.allows_beneath(&to, entry, if is_dir { Act::Make } else { Act::Replace })
        };
        self.changing(&from, |source, from| {
            other.changing(&to, |copy, to| {
                if let Some(parent) = to.parent().filter(|parent| !parent.is_top()) {
                    copy.ensure_dir(parent)?;
                }
                source.copy_tree_where(from, copy, to, options, &admit)
            })
        })
    }

    /// Whether the rules let `act` be done with an entry of the tree at `top`. Where there are none, it may be deeper than the
    /// longest path.
    fn allows_beneath(&self, top: &GuestPath, entry: &Entry, act: Act) -> Result<()> {
        match self.session.config().rules() {
            rules if rules.is_empty() => Ok(()),
            rules => rules.check(&top.join(entry.path())?, act),
        }
    }
}
