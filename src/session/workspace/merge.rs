//! Taking the changes of another tree into the workspace.

use super::Workspace;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::root::Root;
use crate::session::handle::parts::{Part, STATE, TRASH};
use crate::session::handle::rules::Act;
use crate::tree::{MergeOptions, Merged, Tree, TreeLimits, merge_where};

impl Workspace {
    /// The directory as it is now, held for as long as the root is. The config's rules do not bind what is done with it.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink) or [`NotDirectory`](ErrorKind::NotDirectory) if the guest has put something else in its
    /// place, and the kinds of every resolution.
    pub fn open(&self) -> Result<Root> {
        self.session.open_part(Part::Workspace)
    }

    /// Everything that the workspace contains, by content: the base of a later merge, taken when a copy is made.
    ///
    /// # Errors
    /// Those of [`Tree::take`].
    ///
    /// # Races
    /// As [`Tree::take`].
    pub fn tree(&self, limits: TreeLimits) -> Result<Tree> {
        Tree::take(&self.open()?, limits)
    }

    /// Brings to the workspace what `source` has changed since `base`, while the guest works on.
    ///
    /// What both have changed stays in both versions, what is replaced or removed goes to the trash on the host's side until it
    /// is swept. A merge that was cut off is settled by the next one. What the config's rules protect is refused by name.
    ///
    /// # Errors
    /// Those of [`merge`](crate::tree::merge). The workspace and the host's side must be on one mount.
    ///
    /// # Races
    /// As [`merge`](crate::tree::merge). If the guest replaces the directory of the workspace meanwhile, the merge ends in the
    /// directory that it began with.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// use beneath::tree::{MergeOptions, TreeLimits};
    /// use beneath::{SessionId, TreeOptions};
    ///
    /// let (parent, _) = sessions.create(&SessionId::new("parent"))?;
    /// let (child, _) = sessions.create(&SessionId::new("child"))?;
    /// parent.workspace().write_exclusive("a", "1")?;
    /// let options = TreeOptions::default().into_existing();
    /// let _copied = parent.workspace().copy_tree_to("", &child.workspace(), "", options)?;
    /// let base = child.workspace().tree(TreeLimits::default())?;
    ///
    /// child.workspace().replace("a", "2")?;
    /// let merged = parent.workspace().merge_from(&child.workspace().open()?, &base, &MergeOptions::default())?;
    /// assert!(merged.is_complete());
    /// assert_eq!(parent.workspace().read_contained("a", 8)?, b"2");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn merge_from(&self, source: &Root, base: &Tree, options: &MergeOptions) -> Result<Merged> {
        let host = self.session.host();
        let (work, trash) = (host.ensure_and_descend(STATE)?.0, host.ensure_and_descend(TRASH)?.0);
        let rules = self.session.config().rules();
        merge_where(base, source, &self.open()?, (&work, &trash), options, &|path| {
            rules.check(path, Act::Replace)
        })
    }
}
