//! What is in the workspace, compared with what the base knows.
//!
//! Problem: to hash every file at each call takes long, and stamps lie: a guest sets times, and may change a file within one
//! tick of the clock. A file that was renamed or copied to a name that cannot be mirrored looks deleted.
//!
//! Defence: a file is taken for unchanged only if inode, size and both times are those of the base, and it was old enough by
//! the clock of its own file system. All others are hashed from an open handle. What is refused is remembered by inode and birth,
//! and by its content if a file of that size is gone. A file with several names is the guest's own if all of them are in the workspace.
//!
//! What remains: a write through a mapping changes content without a new stamp on some file systems;
//! [`Hashing::Always`] finds it.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::ffi::OsStringExt as _;
use std::time::SystemTime;

use super::client::Client;
use super::state::{Base, FileId, Known, Places, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, SafeName};
use crate::root::{Entry, FileType, Linked, Metadata, Root};
use crate::tree::{Hashing, Leaf, Looked, Stamp, Tree, TreeLimits, is_fresh, is_reserved};

const OPERATION: &str = "mirror";
/// Permission bits without set-id and sticky bits.
const PERMISSIONS: u32 = 0o777;
/// A file that the host writes to see what time it is.
const CLOCK: &str = "clock";

/// What is looked at, and what is left out.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) client: Client,
    pub(crate) reserved: Vec<SafeName>,
    pub(crate) hashing: Hashing,
    /// Whether the store keeps links.
    pub(crate) attributes: bool,
}

/// What a file looked like.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// None if a later change can leave it the same.
    stamp: Option<Stamp>,
    file: FileId,
    /// None for a link, which has none of its own.
    mode: Option<u32>,
}

/// What is there and cannot be mirrored.
#[derive(Debug, Default)]
struct Hidden {
    files: HashSet<FileId>,
    /// The sizes of files that are not empty.
    sizes: HashSet<u64>,
    /// The contents of those that have a size that was asked for.
    contents: HashSet<Leaf>,
    /// Sizes of those that could not be read.
    unread: HashSet<u64>,
}

impl Hidden {
    fn has(&self, known: Option<&Known>) -> bool {
        let Some(known) = known else { return !self.files.is_empty() };
        let has_file = known.file.map_or(!self.files.is_empty(), |file| self.files.contains(&file));
        has_file || self.contents.contains(&known.leaf.content()) || self.unread.contains(&known.leaf.size())
    }
}

/// The workspace at some time.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) tree: Tree,
    /// What each file and link looked like when it had this content.
    looks: BTreeMap<GuestPath, Look>,
    /// What is there and not part of the tree.
    hidden: Hidden,
    /// Whether there may be more that nobody has seen.
    unread: bool,
    /// When the look began, by the clock of the file system; none if there was none.
    pub(crate) began: Option<SystemTime>,
}

impl Local {
    /// Looks at the whole workspace.
    pub(crate) fn scan(places: &Places, base: &Base, scope: &Scope) -> Result<Self> {
        let local = Self::scan_for(places, base, scope, &HashSet::new())?;
        // A file that is gone may be there as a copy, where nothing is ever sent from.
        let is_gone = |(path, known): &(&GuestPath, &Known)| {
            local.hidden.sizes.contains(&known.leaf.size()) && local.tree.is_absent(path)
        };
        let sizes: HashSet<u64> = base.iter().filter(is_gone).map(|(_, known)| known.leaf.size()).collect();
        match sizes.is_empty() {
            true => Ok(local),
            false => Self::scan_for(places, base, scope, &sizes),
        }
    }

    /// Looks at the whole workspace, and reads what cannot be mirrored if it has one of these sizes.
    fn scan_for(places: &Places, base: &Base, scope: &Scope, sizes: &HashSet<u64>) -> Result<Self> {
        let now = clock(&places.state)?;
        let limits = scope.client.limits;
        let bounds = TreeLimits::default()
            .with_entries(limits.objects.saturating_mul(2))
            .with_depth(u32::try_from(limits.depth).unwrap_or(u32::MAX))
            .with_file_bytes(limits.file_bytes)
            .with_bytes(limits.bytes);
        let mut local = Self::default();
        let mut linked = Linked::new(bounds.walk());
        let (mut refused, mut room) = (0, limits.bytes);
        let tree = Tree::take_by(&places.workspace, bounds, |path, entry, max_bytes| {
            let seen = (path, entry, max_bytes);
            let looked = local.look((&places.workspace, &mut linked), seen, (base, scope), now);
            if let Err(error) = &looked
                && error.kind() != ErrorKind::NotFound
            {
                refused += 1;
                local.hidden.files.insert(FileId::of(entry.metadata()));
            }
            if local.hidden.files.contains(&FileId::of(entry.metadata())) {
                local.hide(&places.workspace, entry, sizes, &mut room);
            }
            looked
        })?;
        // What the walk itself could not enter may contain anything.
        local.began = Some(now);
        local.unread = tree.is_cut_off() || tree.left().total > refused;
        local.tree = tree;
        Ok(local)
    }

    /// Notes the size of what cannot be mirrored, and reads it if that was asked for.
    fn hide(&mut self, root: &Root, entry: &Entry, sizes: &HashSet<u64>, room: &mut u64) {
        let size = entry.metadata().len();
        if !entry.metadata().is_file() || size == 0 {
            return;
        }
        self.hidden.sizes.insert(size);
        if sizes.contains(&size) {
            match Leaf::at(root, entry.path(), size.min(*room)) {
                Ok(Some(leaf)) => drop(self.hidden.contents.insert(leaf.content())),
                // Its other name may be outside, so it is not read, and there may be a great many of them.
                Err(error) if error.kind() == ErrorKind::HardLinked => {}
                _ => drop(self.hidden.unread.insert(size)),
            }
            *room = room.saturating_sub(size);
        }
    }

    /// Looks at one path only: of all others nothing is known.
    pub(crate) fn one(places: &Places, path: &GuestPath, max_bytes: u64) -> Result<Self> {
        let mut local = Self { unread: true, ..Self::default() };
        match Leaf::at(&places.workspace, path.as_path(), max_bytes) {
            Ok(Some(leaf)) if leaf != Leaf::Directory => local.tree.add(path.clone(), leaf),
            // What it contains is not looked at.
            Ok(Some(_)) => {
                let error = Error::new(OPERATION, path, ErrorKind::NotRegular).with_detail("is a directory");
                local.tree.refuse(path.as_path(), error);
            }
            Err(error) => local.tree.refuse(path.as_path(), error),
            Ok(None) => {}
        }
        Ok(local)
    }

    fn look(
        &mut self,
        (root, linked): (&Root, &mut Linked),
        (path, entry, max_bytes): (&GuestPath, &Entry, u64),
        (base, scope): (&Base, &Scope),
        now: SystemTime,
    ) -> Result<Looked> {
        let refuse = |kind| Error::new(OPERATION, path, kind);
        let metadata = entry.metadata();
        if scope.client.leaves_out(path, metadata.is_dir()) {
            return Ok(Looked::LeaveOut);
        }
        if is_reserved(path, &scope.reserved) {
            if path.depth() == 1 {
                return Err(refuse(ErrorKind::InvalidPath).with_detail("top name is reserved"));
            }
            self.hidden.files.insert(FileId::of(metadata));
            return Ok(Looked::Nothing);
        }
        if path.depth() > scope.client.limits.depth {
            return Err(refuse(ErrorKind::TooMany).with_detail("too many levels"));
        }
        let look = |stamp, metadata: &Metadata| Look {
            stamp,
            file: FileId::of(metadata),
            mode: metadata.is_file().then(|| metadata.mode() & PERMISSIONS),
        };
        let client = &scope.client;
        client.prefix.key(path)?;
        match metadata.file_type() {
            FileType::Directory => return Ok(Looked::Leaf(Leaf::Directory)),
            FileType::Symlink if scope.attributes => {
                let text = root.read_link(path)?.into_os_string().into_vec();
                self.looks.insert(path.clone(), look(None, metadata));
                return Ok(Looked::Leaf(Leaf::Link { text }));
            }
            FileType::Symlink => {
                return Err(refuse(ErrorKind::Symlink).with_detail("the store keeps no links"));
            }
            FileType::File => {}
            _ => return Err(refuse(ErrorKind::NotRegular)),
        }
        let stamp = Stamp::of(metadata);
        let known = base.get(path).filter(|known| known.stamp.as_deref() == Some(&stamp));
        if let Some(Known { leaf, .. }) = known
            && scope.hashing == Hashing::Never
            && leaf.size() <= max_bytes
        {
            self.looks.insert(path.clone(), look(Some(stamp), metadata));
            return Ok(Looked::Leaf(leaf.clone()));
        }
        let file = linked.open(root, path.as_path())?;
        let stamp = Stamp::of(file.metadata());
        let seen = look(Some(stamp).filter(|stamp| !is_fresh(stamp, now)), file.metadata());
        let leaf = Leaf::read(file, path.as_path(), max_bytes)?;
        self.looks.insert(path.clone(), seen);
        Ok(Looked::Leaf(leaf))
    }

    /// Whether there is anything that a store can only keep if it keeps more than bytes.
    pub(crate) fn wants_more_than_bytes(&self) -> bool {
        self.tree.iter().any(|(_, leaf)| !matches!(leaf, Leaf::File { execute: false, .. }))
    }

    /// The programs, of which a store that keeps only bytes does not have all.
    pub(crate) fn unkept(&self) -> impl Iterator<Item = (&GuestPath, Error)> {
        let error = |path| {
            Error::new(OPERATION, path, ErrorKind::Unsupported).with_detail("the bit to execute is not kept")
        };
        let programs = self.tree.iter().filter(|(_, leaf)| matches!(leaf, Leaf::File { execute: true, .. }));
        programs.map(move |(path, _)| (path, error(path)))
    }

    /// Whether a file that is not there may be there under another name, where nobody has looked.
    pub(crate) fn may_hide(&self, known: Option<&Known>) -> bool {
        self.unread || self.hidden.has(known)
    }

    /// The files that are here and not in `base`: the store may have them under names that they had before.
    pub(crate) fn unsent(&self, base: &Base) -> (HashSet<FileId>, HashSet<Leaf>) {
        let (mut files, mut leaves) = (HashSet::new(), HashSet::new());
        for (path, leaf) in self.tree.iter().filter(|(_, leaf)| **leaf != Leaf::Directory) {
            if base.get(path).map(|known| &known.leaf) != Some(leaf) {
                files.extend(self.looks.get(path).map(|look| look.file));
                leaves.insert(leaf.content());
            }
        }
        (files, leaves)
    }

    /// What is known of a path whose file has just been seen to be `leaf`, which the store has in this version.
    /// The mode that is known is what the object says, whatever the file has by now.
    pub(crate) fn known(
        &self,
        path: &GuestPath,
        leaf: Leaf,
        (version, said): (Version, Option<u32>),
    ) -> Known {
        let seen = self.looks.get(path).filter(|_| self.tree.get(path) == Some(&leaf));
        let stamp = seen.and_then(|seen| seen.stamp).map(Box::new);
        let mode = said.or_else(|| seen?.mode);
        Known { leaf, version, mode, file: seen.map(|seen| seen.file), stamp }
    }

    /// Which file or link is at `path`.
    pub(crate) fn file(&self, path: &GuestPath) -> Option<FileId> {
        self.looks.get(path).map(|seen| seen.file)
    }

    /// The permission bits of what is at `path`.
    pub(crate) fn mode(&self, path: &GuestPath) -> Option<u32> {
        self.looks.get(path)?.mode
    }
}

/// The time by the clock of the file system.
fn clock(state: &Root) -> Result<SystemTime> {
    state.replace(CLOCK, "")?;
    Ok(state.metadata(CLOCK)?.changed())
}
