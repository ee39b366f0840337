//! Directories that were granted.
//!
//! Problem: what a guest asks a host's tool to read or write in a mount is a path again. A mount that is read-only in a table can
//! be written to by whoever does not read the table. A blocked name may be beneath a directory that is allowed.
//!
//! Defence: a mount is the handle that the grant ended with. The handle of a read-only one refuses every change, and once it is
//! [sealed](Mounts::sealed) so does the kernel. Blocked names are compared again on each path within the mount.
//!
//! What remains: a guest that renames a file within a mount to which it may write chooses its name; it reads what it likes there
//! anyway.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use super::base::Mode;
use super::pattern::Blocked;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, MountPoint, SafeName, SafePath, Spelling};
use crate::root::{Ensured, List, Root, Seal, Seat};

/// A directory of the host that a guest was granted.
#[derive(Debug)]
pub struct Mount {
    alias: SafeName,
    base: SafeName,
    subpath: Option<SafePath>,
    mode: Mode,
    root: Root,
    /// The handle from before sealing, which others can mount.
    plain: Option<Root>,
    identity: (u64, u64),
    blocked: [Arc<Blocked>; 2],
}

impl Mount {
    pub(super) fn new(
        alias: SafeName,
        base: SafeName,
        subpath: Option<SafePath>,
        mode: Mode,
        root: Root,
        blocked: [Arc<Blocked>; 2],
    ) -> Result<Self> {
        let found = root.metadata(".")?;
        let root = if mode == Mode::ReadOnly { root.refusing_changes() } else { root };
        let identity = (found.dev(), found.ino());
        Ok(Self { alias, base, subpath, mode, root, plain: None, identity, blocked })
    }

    /// The name by which the guest knows it.
    #[must_use]
    pub fn alias(&self) -> &SafeName {
        &self.alias
    }

    /// The base that it was taken from.
    #[must_use]
    pub fn base(&self) -> &SafeName {
        &self.base
    }

    /// The path from the base; empty for the base itself.
    #[must_use]
    pub fn subpath(&self) -> &str {
        self.subpath.as_ref().map_or("", SafePath::as_str)
    }

    /// What may be done with it.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The handle. That of a read-only mount refuses every change; blocked names are not its concern.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The handle to give to others who mount it: a mount that is attached nowhere can be bound by few.
    pub(super) fn to_hand_over(&self) -> &Root {
        self.plain.as_ref().unwrap_or(&self.root)
    }

    /// Device and inode of the directory.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Reads a file; as [`Root::read_contained`].
    ///
    /// # Errors
    /// [`Denied`](ErrorKind::Denied) for a blocked name, and those of [`Root::read_contained`].
    pub fn read_contained(&self, path: &GuestPath, max_bytes: u64) -> Result<Vec<u8>> {
        self.check("read", path)?;
        self.root.read_contained(path, max_bytes)
    }

    /// Lists a directory; as [`Root::list`]. Blocked names are listed.
    ///
    /// # Errors
    /// [`Denied`](ErrorKind::Denied) for a blocked name, and those of [`Root::list`].
    pub fn list(&self, path: &GuestPath) -> Result<List> {
        self.check("list", path)?;
        self.root.list(path)
    }

    /// Writes a new file; as [`Root::write_exclusive`].
    ///
    /// # Errors
    /// [`Denied`](ErrorKind::Denied) for a blocked name and in a read-only mount, and those of [`Root::write_exclusive`].
    pub fn write_exclusive(&self, path: &GuestPath, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.check("write", path)?;
        self.root.write_exclusive(path, bytes)
    }

    /// Replaces a file; as [`Root::replace`].
    ///
    /// # Errors
    /// [`Denied`](ErrorKind::Denied) for a blocked name and in a read-only mount, and those of [`Root::replace`].
    pub fn replace(&self, path: &GuestPath, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.check("replace", path)?;
        self.root.replace(path, bytes)
    }

    /// Makes a directory; as [`Root::ensure_dir`].
    ///
    /// # Errors
    /// [`Denied`](ErrorKind::Denied) for a blocked name and in a read-only mount, and those of [`Root::ensure_dir`].
    pub fn ensure_dir(&self, path: &GuestPath) -> Result<Ensured> {
        self.check("create directory", path)?;
        self.root.ensure_dir(path)
    }

    /// Removes a file; as [`Root::remove_file`].
    ///
    /// # Errors
    /// [`Denied`](ErrorKind::Denied) for a blocked name and in a read-only mount, and those of [`Root::remove_file`].
    pub fn remove_file(&self, path: &GuestPath) -> Result<()> {
        self.check("remove", path)?;
        self.root.remove_file(path)
    }

    fn check(&self, operation: &'static str, path: &GuestPath) -> Result<()> {
        // What is not UTF-8 is compared by what is left of it.
        let names: Vec<_> = path.components().map(|name| String::from_utf8_lossy(name.as_bytes())).collect();
        match self.blocked.iter().any(|blocked| blocked.blocks(names.iter().map(AsRef::as_ref))) {
            true => Err(Error::new(operation, path, ErrorKind::Denied).with_detail("has a blocked name")),
            false => Ok(()),
        }
    }
}

/// The directories that a guest was granted, by alias.
#[derive(Debug, Default)]
pub struct Mounts {
    mounts: Vec<Mount>,
    missing: Vec<SafeName>,
}

impl Mounts {
    pub(super) fn new(mut mounts: Vec<Mount>, missing: Vec<SafeName>) -> Self {
        mounts.sort_by(|one, other| one.alias.cmp(&other.alias));
        Self { mounts, missing }
    }

    /// The mounts, in the order of their aliases.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// Aliases of optional requests for which there was nothing.
    #[must_use]
    pub fn missing(&self) -> &[SafeName] {
        &self.missing
    }

    /// The mount of that alias.
    #[must_use]
    pub fn get(&self, alias: &str) -> Option<&Mount> {
        let found = self.mounts.binary_search_by(|mount| mount.alias.as_str().cmp(alias));
        found.ok().and_then(|at| self.mounts.get(at))
    }

    /// The mount that an agent means by a path, and the path within it. The agent sees the mounts as directories of `at`; the
    /// path is read as [`GuestPath::parse`] reads it. The disk is not asked.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if there is no mount of that alias, and those of [`GuestPath::parse`].
    ///
    /// ```
    /// # use beneath::{MountPoint, mounts::Mounts};
    /// # let mounts = Mounts::default();
    /// let at = MountPoint::new("/mnt")?;
    /// assert!(mounts.resolve("/mnt/unknown/a", &at).is_err());
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn resolve(&self, raw: &str, at: &MountPoint) -> Result<(&Mount, GuestPath)> {
        let path = GuestPath::parse(raw, std::slice::from_ref(at), Spelling::Lenient)?;
        let text = path.as_path().as_os_str().as_bytes();
        let known = self.mounts.iter().find_map(|mount| {
            let rest = text.strip_prefix(mount.alias.as_str().as_bytes())?;
            matches!(rest, [] | [b'/', ..]).then_some(mount)
        });
        let mount = known.ok_or_else(|| {
            Error::new("find mount", raw, ErrorKind::NotFound).with_detail("is in no mount")
        })?;
        let rest = path.strip_prefix(&GuestPath::new(mount.alias.as_str())?);
        Ok((mount, rest.unwrap_or_else(GuestPath::top)))
    }

    /// The mounts that are to be kept, and the aliases of the other mounts.
    pub(super) fn keep(self, is_kept: impl Fn(&Mount) -> bool) -> (Self, Vec<String>) {
        let (mounts, others): (Vec<_>, Vec<_>) = self.mounts.into_iter().partition(is_kept);
        let others = others.into_iter().map(|mount| mount.alias.to_string()).collect();
        (Self { mounts, missing: Vec::new() }, others)
    }

    /// The same mounts, each [sealed](Root::seal) by its mode.
    ///
    /// # Errors
    /// Those of [`Root::seal`].
    pub fn sealed(self, seat: &Seat) -> Result<Self> {
        let seal = |mount: Mount| {
            let seal = match mount.mode {
                Mode::ReadOnly => Seal::ReadOnly,
                Mode::ReadWrite => Seal::ReadWrite,
            };
            let root = mount.to_hand_over().seal(seal, seat).map_err(|error| error.about(&mount.alias))?;
            Ok(Mount { root, plain: Some(mount.plain.unwrap_or(mount.root)), ..mount })
        };
        let mounts = self.mounts.into_iter().map(seal).collect::<Result<_>>()?;
        Ok(Self { mounts, missing: self.missing })
    }
}
