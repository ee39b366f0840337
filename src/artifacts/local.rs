//! What is in the workspace, compared with what the base knows.
//!
//! Problem: to hash every file at each call takes long, and stamps lie: a guest sets times, and may change a file within one
//! tick of the clock. A file that was renamed to a name that cannot be mirrored looks deleted.
//!
//! Defence: a file is taken for unchanged only if inode, size and both times are those of the base, and it was old enough by
//! the clock of its own file system. All others are hashed from an open handle. What is refused is remembered by inode and birth.
//!
//! What remains: a write through a mapping changes content without a new stamp on some file systems;
//! [`Hashing::Always`] finds it.

use std::collections::{BTreeMap, HashSet};
use std::time::SystemTime;

use super::client::Client;
use super::state::{Base, FileId, Known, Places};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, SafeName};
use crate::root::{Entry, FileType, Root};
use crate::tree::{Hashing, Leaf, Stamp, Tree, TreeLimits, is_fresh, is_reserved};

const OPERATION: &str = "mirror";
/// A file that the host writes to see what time it is.
const CLOCK: &str = "clock";

/// What is looked at, and what is left out.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) client: Client,
    pub(crate) reserved: Vec<SafeName>,
    pub(crate) hashing: Hashing,
}

/// The workspace at some time.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) tree: Tree,
    /// What each file looked like when it had this content, whether no later change can leave it the same, and which file it was.
    stamps: BTreeMap<GuestPath, (Stamp, bool, FileId)>,
    /// What is there and not part of the tree.
    hidden: HashSet<FileId>,
    /// Whether there may be more that nobody has seen.
    unread: bool,
}

impl Local {
    /// Looks at the whole workspace.
    pub(crate) fn scan(places: &Places, base: &Base, scope: &Scope) -> Result<Self> {
        let now = clock(&places.state)?;
        let limits = scope.client.limits;
        let bounds = TreeLimits::default()
            .with_entries(limits.objects.saturating_mul(2))
            .with_depth(u32::try_from(limits.depth).unwrap_or(u32::MAX))
            .with_file_bytes(limits.file_bytes)
            .with_bytes(limits.bytes);
        let mut local = Self::default();
        let mut refused = 0;
        let tree = Tree::take_by(&places.workspace, bounds, |path, entry, max_bytes| {
            let looked = local.look(&places.workspace, (path, entry, max_bytes), (base, scope), now);
            if let Err(error) = &looked
                && error.kind() != ErrorKind::NotFound
            {
                refused += 1;
                local.hidden.insert(FileId::of(entry.metadata()));
            }
            looked
        })?;
        // What the walk itself could not enter may contain anything.
        local.unread = tree.is_cut_off() || tree.left().total > refused;
        local.tree = tree;
        Ok(local)
    }

    /// Looks at one path only: of all others nothing is known.
    pub(crate) fn one(places: &Places, path: &GuestPath, max_bytes: u64) -> Result<Self> {
        let mut local = Self { unread: true, ..Self::default() };
        match Leaf::at(&places.workspace, path.as_path(), max_bytes) {
            Ok(Some(leaf)) if leaf != Leaf::Directory => local.tree.add(path.clone(), leaf),
            // What it contains is not looked at.
            Ok(Some(_)) | Err(_) => local.tree.add_unknown(path.clone()),
            Ok(None) => {}
        }
        Ok(local)
    }

    fn look(
        &mut self,
        root: &Root,
        (path, entry, max_bytes): (&GuestPath, &Entry, u64),
        (base, scope): (&Base, &Scope),
        now: SystemTime,
    ) -> Result<Option<Leaf>> {
        let refuse = |kind| Error::new(OPERATION, path, kind);
        let metadata = entry.metadata();
        if is_reserved(path, &scope.reserved) {
            if path.depth() == 1 {
                return Err(refuse(ErrorKind::InvalidPath).with_detail("top name is reserved"));
            }
            self.hidden.insert(FileId::of(metadata));
            return Ok(None);
        }
        if path.depth() > scope.client.limits.depth {
            return Err(refuse(ErrorKind::TooMany).with_detail("too many levels"));
        }
        match metadata.file_type() {
            FileType::Directory => return Ok(Some(Leaf::Directory)),
            FileType::Symlink => return Err(refuse(ErrorKind::Symlink)),
            FileType::File => {}
            _ => return Err(refuse(ErrorKind::NotRegular)),
        }
        scope.client.prefix.key(path)?;
        let stamp = Stamp::of(metadata);
        let known = base.get(path).filter(|known| known.stamp.as_deref() == Some(&stamp));
        if let Some(Known { leaf, .. }) = known
            && scope.hashing == Hashing::Never
            && leaf.size() <= max_bytes
        {
            self.stamps.insert(path.clone(), (stamp, true, FileId::of(metadata)));
            return Ok(Some(leaf.clone()));
        }
        let file = root.open_contained(path)?;
        let (stamp, id) = (Stamp::of(file.metadata()), FileId::of(file.metadata()));
        let leaf = Leaf::read(file, path.as_path(), max_bytes)?;
        self.stamps.insert(path.clone(), (stamp, !is_fresh(&stamp, now), id));
        Ok(Some(leaf))
    }

    /// Whether a file that is not there may be there under another name, where nobody has looked.
    pub(crate) fn may_hide(&self, known: Option<&Known>) -> bool {
        match known.and_then(|known| known.file) {
            _ if self.unread => true,
            Some(file) => self.hidden.contains(&file),
            None => !self.hidden.is_empty(),
        }
    }

    /// What is known of a path whose file has just been seen to be `leaf`, which the store has in this version.
    pub(crate) fn known(&self, path: &GuestPath, leaf: Leaf, etag: Option<Box<str>>) -> Known {
        let seen = self.stamps.get(path).filter(|_| self.tree.get(path) == Some(&leaf));
        let stamp = seen.filter(|(_, lasts, _)| *lasts).map(|(stamp, ..)| Box::new(*stamp));
        Known { leaf, etag, file: seen.map(|(.., file)| *file), stamp }
    }
}

/// The time by the clock of the file system.
fn clock(state: &Root) -> Result<SystemTime> {
    state.replace(CLOCK, "")?;
    Ok(state.metadata(CLOCK)?.changed())
}
