//! Copying a tree that a guest still works in.
//!
//! Problem: a recursive copy by path follows a directory that is exchanged for a link, in the source and in the copy; waits for a
//! FIFO; reads a device; copies a host's file through a second name of it; copies the copy when one is inside the other; and
//! stops at the first thing it cannot read, or passes over it in silence.
//!
//! Defence: a [`Walk`] shows the tree, and each level is a pair of handles: the directory that the walk reads, and the one that was
//! made for it. Every file, link and directory is copied from the one to the other by a single component, with the calls that
//! copy one file or make one link. A link is copied as its text. The directory of the copy is known by its inode and never
//! entered. What is refused is reported, and the rest is copied. Entries, depth and bytes are limited.
//!
//! A file with several names is read under [`HardLinks::Allow`](super::HardLinks::Allow) only, or if all its names are proven to be in the tree. Each name
//! gets a file of its own in the copy.
//!
//! What remains: the copy is no snapshot, and is seen while it grows. What comes, goes or moves in the source meanwhile may be in
//! the copy once, twice or not at all. A guest that exchanges a directory of the copy for another of its own has that
//! one filled.

pub(super) mod options;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::entries::Ensured;
use super::metadata::describe;
use super::read::linked::Linked;
use super::resolve::path::{Checked, Meant, subject};
use super::walk::{Entry, Walk};
use super::write::copy::have_same_content;
use super::{Access, ContainedFile, Execute, FileType, Links, Root};
use crate::error::{Error, ErrorKind, Result};
use crate::name::fold;
use options::{CopiedTree, Existing, Modes, TreeOptions};

const OPERATION: &str = "copy tree";

impl Root {
    /// Copies the directory at `from`, with everything in it, to `to`, which must be free.
    ///
    /// Names, kinds, content, execute bits and the text of links are those of the source, empty directories among them, and holes
    /// stay holes. Links are not followed under any policy. The mode is the policy's, as for [`copy`](Self::copy), or that of the
    /// source by [`TreeOptions::keep_modes`]; the owner is the policy's. Times, attributes and access control lists are not
    /// copied. FIFOs, sockets and devices are reported and not copied. A file with several names becomes one file
    /// for each, and is copied only if the policy [allows](super::HardLinks::Allow) it or if each of its names is in the tree, in a
    /// directory of its own.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), [`NotDirectory`](ErrorKind::NotDirectory) or [`NotFound`](ErrorKind::NotFound) if `from`
    /// is no directory, [`AlreadyExists`](ErrorKind::AlreadyExists) if `to` is taken, and the kinds of every resolution. What is
    /// refused further down is no error but reported in [`CopiedTree`], also where a limit was met.
    ///
    /// # Races
    /// Every byte comes from a file, and every text from a link, that was beneath the root during the call, and nothing is written
    /// outside of the destination's root. Each file appears whole or not at all; the tree grows in the sight of the guest. What
    /// comes, goes or moves in the source meanwhile may be copied or not. A host that dies leaves a part, which
    /// [`TreeOptions::into_existing`] completes.
    ///
    /// ```
    /// use beneath::TreeOptions;
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.ensure_dir("job/out")?;
    /// root.write_exclusive("job/run.sh", "#!/bin/sh\n")?;
    /// root.symlink("run.sh", "job/latest")?;
    /// let copied = root.copy_tree("job", "kept", TreeOptions::default())?;
    /// assert!(copied.is_complete());
    /// assert_eq!((copied.directories, copied.files, copied.links), (2, 1, 1));
    /// assert_eq!(root.read_link("kept/latest")?.to_str(), Some("run.sh"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copy_tree(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: TreeOptions,
    ) -> Result<CopiedTree> {
        self.copy_tree_to(from, self, to, options)
    }

    /// Copies a directory to another root, on any file system; otherwise as [`copy_tree`](Self::copy_tree).
    ///
    /// This root's policy decides about the source, the other's about the copy. Both paths may be `.`; for `to` that takes
    /// [`TreeOptions::into_existing`].
    ///
    /// # Errors
    /// As [`copy_tree`](Self::copy_tree).
    ///
    /// # Races
    /// As [`copy_tree`](Self::copy_tree).
    ///
    /// ```
    /// use beneath::TreeOptions;
    /// # let (one, two) = (tempfile::tempdir()?, tempfile::tempdir()?);
    /// # let guest = beneath::Root::open_ambient(one.path(), beneath::ambient_authority())?;
    /// # let host = beneath::Root::open_ambient(two.path(), beneath::ambient_authority())?;
    /// guest.ensure_dir("project/src")?;
    /// std::os::unix::net::UnixListener::bind(one.path().join("project/socket"))?;
    /// let copied = guest.copy_tree_to("project", &host, "project", TreeOptions::default())?;
    /// for (path, error) in copied.refused() {
    ///     println!("{}: {error}", path.display());
    /// }
    /// assert_eq!(copied.left.total, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copy_tree_to(
        &self,
        from: impl AsRef<Path>,
        other: &Self,
        to: impl AsRef<Path>,
        options: TreeOptions,
    ) -> Result<CopiedTree> {
        self.copy_tree_where(from, other, to, options, &|_| Ok(()))
    }

    /// Copies a directory, but for the entries that `admit` refuses; those are reported with its error.
    pub(crate) fn copy_tree_where(
        &self,
        from: impl AsRef<Path>,
        other: &Self,
        to: impl AsRef<Path>,
        options: TreeOptions,
        admit: &dyn Fn(&Entry) -> Result<()>,
    ) -> Result<CopiedTree> {
        let from = Checked::new(OPERATION, from.as_ref(), Meant::DirectoryOrRoot)?;
        let to = Checked::new(OPERATION, to.as_ref(), Meant::DirectoryOrRoot)?;
        let again = |error: Error| error.again(OPERATION).about(subject(from));
        let source = self.descend(subject(from)).map_err(again)?.without_links();
        let walk = source.walk(".", options.walk).map_err(again)?;
        let mut report = CopiedTree::default();
        let (copy, made) = other.open_copy(to, options.existing, &mut report)?;
        let copy = copy.without_links();
        let top = describe(copy.as_fd()).map_err(|errno| Error::from_errno(OPERATION, subject(to), errno))?;
        let mode = describe(source.as_fd()).map_or(0o700, |source| source.mode());
        let top = (top.dev(), top.ino());
        let levels = vec![Level::new(copy, made, mode, PathBuf::new())];
        let linked = Linked::new(options.walk);
        Ok(Copying { source, options, admit, top, levels, linked, compared: 0, report }.run(walk))
    }

    /// Never follows a link, whatever the policy says about paths that a caller gives.
    fn without_links(self) -> Self {
        let policy = self.policy.clone().with_links(Links::Refuse);
        self.with_policy(policy)
    }

    /// Makes the top of a copy, or opens the directory that is there.
    fn open_copy(
        &self,
        to: Checked<'_>,
        existing: Existing,
        report: &mut CopiedTree,
    ) -> Result<(Self, Ensured)> {
        self.writable(OPERATION, to)?;
        let taken = || Error::from_errno(OPERATION, subject(to), Errno::EXIST);
        if to.bytes() == b"." {
            return match existing {
                Existing::Keep => Ok((self.try_clone()?, Ensured::Existed)),
                Existing::Refuse => Err(taken()),
            };
        }
        let (dir, name) = self.parent(OPERATION, to)?;
        match self.make_dir(&dir, name) {
            Ok((made, Ensured::Created)) => {
                report.directories += 1;
                Ok((self.narrowed(made), Ensured::Created))
            }
            Ok((found, Ensured::Existed)) if existing == Existing::Keep => {
                Ok((self.narrowed(found), Ensured::Existed))
            }
            Ok((_, Ensured::Existed)) => Err(taken()),
            // A link or a file has the name; into a directory that is there, the kind says which.
            Err(Errno::LOOP | Errno::NOTDIR) if existing == Existing::Refuse => Err(taken()),
            Err(errno) => Err(Error::from_errno(OPERATION, subject(to), errno)),
        }
    }
}

/// A directory of the source, once its first entry was shown, and the one of the copy.
struct Level {
    source: Option<Root>,
    copy: Root,
    /// Whether this call has made the copy.
    made: Ensured,
    /// The mode of the source.
    mode: u32,
    /// What this call has put there, if something that is there already counts.
    names: HashSet<Vec<u8>>,
    /// Where it is in the tree.
    path: PathBuf,
}

impl Level {
    fn new(copy: Root, made: Ensured, mode: u32, path: PathBuf) -> Self {
        Self { source: None, copy, made, mode, names: HashSet::new(), path }
    }

    /// Whether somebody else has given the directory its mode. An earlier call that was cut off leaves what is beneath its top with the
    /// policy's.
    fn is_foreign(&self, dir_mode: u32) -> bool {
        let left = || describe(self.copy.as_fd()).is_ok_and(|dir| dir.mode() == dir_mode);
        self.made == Ensured::Existed && (self.path.as_os_str().is_empty() || !left())
    }
}

/// A name as a file system has it that folds case.
fn folded(name: &OsStr) -> Vec<u8> {
    name.to_str().map_or_else(|| name.as_bytes().to_ascii_lowercase(), |name| fold(name).into_bytes())
}

/// Device and inode.
type Inode = (u64, u64);

/// One copy under way.
struct Copying<'a> {
    /// The top of the source.
    source: Root,
    options: TreeOptions,
    admit: &'a dyn Fn(&Entry) -> Result<()>,
    /// The top of the copy.
    top: Inode,
    levels: Vec<Level>,
    /// The names of files that have several; looked for when the first is met.
    linked: Linked,
    /// The bytes that were compared. Where they did not count, a guest could have the host read without end.
    compared: u64,
    report: CopiedTree,
}

impl Copying<'_> {
    fn run(mut self, mut walk: Walk) -> CopiedTree {
        loop {
            let entry = walk.next();
            self.note_gone(&mut walk);
            let Some(entry) = entry else { break };
            self.close_to(walk.depth());
            let copied = match entry {
                Ok(entry) => {
                    let path = entry.path().to_path_buf();
                    self.take(&entry, &mut walk).map_err(|error| (path, error))
                }
                Err(error) => Err((error.subject().unwrap_or(Path::new("")).to_path_buf(), error)),
            };
            if let Err((path, error)) = copied {
                let error = error.again(OPERATION).about(&path);
                self.report.left.add(path, error);
            }
        }
        self.close_to(0);
        self.report
    }

    /// A directory whose copy is empty since it was not found any more: it may be in the source under another name.
    fn note_gone(&mut self, walk: &mut Walk) {
        if let Some(path) = walk.take_gone() {
            let error = Error::new(OPERATION, &path, ErrorKind::NotFound)
                .with_detail("was moved or removed meanwhile");
            self.report.left.add(path, error);
        }
    }

    /// Copies one entry, or makes the directory for what it holds.
    fn take(&mut self, entry: &Entry, walk: &mut Walk) -> Result<()> {
        (self.admit)(entry).inspect_err(|_| walk.skip_dir())?;
        let kind = entry.metadata().file_type();
        if kind == FileType::Directory {
            return self.take_directory(entry).inspect_err(|_| walk.skip_dir());
        }
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        if level.source.is_none() {
            let Some(dir) = walk.dir() else { return Ok(()) };
            let dir = fcntl_dupfd_cloexec(dir, 0);
            let dir = dir.map_err(|errno| Error::from_errno(OPERATION, entry.path(), errno))?;
            level.source = Some(self.source.narrowed(dir));
        }
        match kind {
            FileType::File => self.take_file(entry),
            FileType::Symlink => self.take_link(entry),
            _ => Err(Error::new(OPERATION, entry.path(), ErrorKind::NotRegular)),
        }
    }

    fn take_directory(&mut self, entry: &Entry) -> Result<()> {
        let failed = |errno| Error::from_errno(OPERATION, entry.path(), errno);
        let metadata = entry.metadata();
        if (metadata.dev(), metadata.ino()) == self.top {
            return Err(
                Error::new(OPERATION, entry.path(), ErrorKind::InvalidPath).with_detail("is the copy itself")
            );
        }
        let Some(level) = self.levels.last() else { return Ok(()) };
        let name = Checked::new(OPERATION, entry.file_name().as_ref(), Meant::Directory)?;
        let (dir, name) = level.copy.parent(OPERATION, name)?;
        let (copy, made) = level.copy.make_dir(&dir, name).map_err(failed)?;
        match made {
            Ensured::Created => self.report.directories += 1,
            Ensured::Existed if self.counts_as_present(entry) => {}
            Ensured::Existed => return Err(failed(Errno::EXIST)),
        }
        let copy = level.copy.narrowed(copy);
        let (mode, path) = (metadata.mode(), entry.path().to_path_buf());
        self.remember(entry);
        self.levels.push(Level::new(copy, made, mode, path));
        Ok(())
    }

    fn take_file(&mut self, entry: &Entry) -> Result<()> {
        let name: &Path = entry.file_name().as_ref();
        let source = match self.level()?.0.open_contained(name) {
            Err(error) if error.kind() == ErrorKind::HardLinked => self.open_linked(entry)?,
            opened => opened?,
        };
        let taken = self.report.bytes.saturating_add(self.compared);
        let limit = self.options.file_bytes.min(self.options.bytes.saturating_sub(taken));
        let (_, copy) = self.level()?;
        let mode = match self.options.modes {
            Modes::Policy => Execute::Keep.mode(copy.policy.access(), source.metadata()),
            Modes::Source => source.metadata().mode() & 0o777,
        };
        let to = Checked::new(OPERATION, name, Meant::Entry)?;
        match copy.take_copy((&source, name), to, mode, limit) {
            Ok(copied) => {
                self.report.files += 1;
                self.report.bytes = self.report.bytes.saturating_add(copied.bytes);
                self.remember(entry);
                Ok(())
            }
            Err(error) => self.is_present(error, entry, |this| this.is_there(name, &source)),
        }
    }

    /// Whether a file of this name and content is in the copy. What it takes to find out counts as if it were copied.
    fn is_there(&mut self, name: &Path, source: &ContainedFile) -> Result<bool> {
        let size = source.len_hint();
        let Ok(found) = self.level()?.1.open_contained(name) else { return Ok(false) };
        if found.len_hint() != size {
            return Ok(false);
        }
        self.compared = self.compared.saturating_add(size);
        have_same_content(source.as_fd(), found.as_fd(), size)
            .map_err(|errno| Error::from_errno(OPERATION, name, errno))
    }

    fn take_link(&mut self, entry: &Entry) -> Result<()> {
        let name: &Path = entry.file_name().as_ref();
        let (source, copy) = self.level()?;
        let text = source.read_link(name)?;
        match copy.symlink(&text, name) {
            Ok(()) => {
                self.report.links += 1;
                self.remember(entry);
                Ok(())
            }
            Err(error) => self.is_present(error, entry, |this| {
                Ok(this.level()?.1.read_link(name).is_ok_and(|found| found == text))
            }),
        }
    }

    /// The directories that the entry shown last is in, and is to be in.
    fn level(&self) -> Result<(&Root, &Root)> {
        let level = self.levels.last().and_then(|level| Some((level.source.as_ref()?, &level.copy)));
        level.ok_or_else(|| Error::new(OPERATION, "", ErrorKind::Io))
    }

    /// Whether what is in the way is what an earlier call has copied.
    fn is_present(
        &mut self,
        error: Error,
        entry: &Entry,
        is: impl FnOnce(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let may_be = error.kind() == ErrorKind::AlreadyExists && self.counts_as_present(entry);
        if !may_be || !is(self)? {
            return Err(error);
        }
        self.report.present += 1;
        self.remember(entry);
        Ok(())
    }

    /// Whether what is at the name of an entry may be from an earlier call: not if this one has met the name, as a file system
    /// that folds case takes it.
    fn counts_as_present(&self, entry: &Entry) -> bool {
        let is_ours = |level: &Level| level.names.contains(&folded(entry.file_name()));
        self.options.existing == Existing::Keep && !self.levels.last().is_some_and(is_ours)
    }

    fn remember(&mut self, entry: &Entry) {
        if self.options.existing == Existing::Keep
            && let Some(level) = self.levels.last_mut()
        {
            level.names.insert(folded(entry.file_name()));
        }
    }

    /// Opens a file that has several names, if all of them are in the tree.
    fn open_linked(&mut self, entry: &Entry) -> Result<ContainedFile> {
        let level = self.level()?.0.try_clone()?;
        let name: &Path = entry.file_name().as_ref();
        let opened = self.linked.open_linked(&self.source, &level, name);
        opened.map_err(|error| error.again(OPERATION).about(entry.path()))
    }

    /// Leaves the directories that are complete. They get their mode now, since it may forbid to write to them.
    fn close_to(&mut self, depth: usize) {
        while self.levels.len() > depth {
            let Some(level) = self.levels.pop() else { return };
            let policy = level.copy.policy.access();
            if self.options.modes == Modes::Policy || level.is_foreign(policy.dir_mode()) {
                continue;
            }
            let access = Access::custom(0, level.mode & 0o777 | policy.dir_mode() & 0o7000);
            if let Err(error) = level.copy.set_access(".", access, Execute::Clear) {
                let error = error.again(OPERATION).about(&level.path);
                self.report.left.add(level.path, error);
            }
        }
    }
}
