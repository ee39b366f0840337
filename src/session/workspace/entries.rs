//! Copying, moving and linking entries of the workspace, with the verbs of [`Root`](crate::Root).
//!
//! Problem: a file that is moved to another session takes with it every descriptor that the first guest holds on it.
//!
//! Defence: between sessions content is copied, and nothing is moved. Within one, the root's own calls are used, on a root
//! that follows no link.
//!
//! What remains: as for each call of the root.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Workspace;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{Copied, Metadata, Rename, Root};
use crate::session::handle::resolve::Spelled;
use crate::session::handle::rules::Act;

impl Workspace {
    /// Copies a regular file of at most `max_bytes` to a name that must be free, and makes the directories above that.
    ///
    /// # Errors
    /// Those of [`Root::copy`].
    ///
    /// # Races
    /// As [`Root::copy`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// let workspace = session.workspace();
    /// workspace.write_exclusive("a", "hello")?;
    /// assert_eq!(workspace.copy("a", "backup/a", 1 << 20)?.bytes, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copy<'p>(
        &self,
        from: impl Into<Spelled<'p>>,
        to: impl Into<Spelled<'p>>,
        max_bytes: u64,
    ) -> Result<Copied> {
        self.copy_to(from, self, to, max_bytes)
    }

    /// Copies a regular file to another session's workspace; otherwise as [`copy`](Self::copy).
    ///
    /// Each workspace's own rules hold for its side.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    ///
    /// # Races
    /// As [`copy`](Self::copy).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (one, _) = sessions.create(&beneath::SessionId::new("one"))?;
    /// # let (two, _) = sessions.create(&beneath::SessionId::new("two"))?;
    /// one.workspace().write_exclusive("a", "hello")?;
    /// one.workspace().copy_to("a", &two.workspace(), "from-one/a", 1 << 20)?;
    /// assert_eq!(two.workspace().read_contained("from-one/a", 100)?, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copy_to<'p>(
        &self,
        from: impl Into<Spelled<'p>>,
        other: &Self,
        to: impl Into<Spelled<'p>>,
        max_bytes: u64,
    ) -> Result<Copied> {
        let (from, to) = (self.entry(from, Act::Read)?, other.entry(to, Act::Replace)?);
        other.changing(&to, |there, to| {
            self.reading(&from, |here, from| {
                making_parents(there, to, || here.copy_to(from, there, to, max_bytes))
            })
        })
    }

    /// Moves a regular file of at most `max_bytes` to another session's workspace, where its name must be free.
    ///
    /// The content is copied and the old file then deleted. Moving the file itself, or a directory, would leave this
    /// session's guest with any descriptor it holds on it, and so with a way into the other session. Links are not followed under any
    /// policy, and another file that has the name after the copy is not deleted.
    ///
    /// # Errors
    /// [`Symlink`](ErrorKind::Symlink), and as [`copy_to`](Self::copy_to); [`Busy`](ErrorKind::Busy) if another entry has the old name
    /// after the copy. On every error the host has deleted nothing; on this one, and on one from deleting, the copy is there too.
    ///
    /// # Races
    /// What this guest writes to the old file meanwhile may be lost. So is what it puts at the name in the instant between the last
    /// look and the deletion.
    pub fn move_to<'p>(
        &self,
        from: impl Into<Spelled<'p>>,
        other: &Self,
        to: impl Into<Spelled<'p>>,
        max_bytes: u64,
    ) -> Result<()> {
        let (from, to) = (self.entry(from, Act::Replace)?, other.entry(to, Act::Replace)?);
        other.changing(&to, |there, to| {
            self.changing(&from, |here, from| {
                // Held until the end, so that no other file gets its number.
                let source = here.open_contained(from).map_err(|error| error.again("move"))?;
                making_parents(there, to, || {
                    there.copy_opened((&source, from.as_path()), to.as_path(), max_bytes)
                })
                .map_err(|error| match error.operation() {
                    "copy" => error.again("move"),
                    _ => error,
                })?;
                must_still_be(source.metadata(), here, from)?;
                here.remove_file(from)
            })
        })
    }

    /// Renames an entry to a name that must be free, and makes the directories above that.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists), and those of [`Root::rename`].
    ///
    /// # Races
    /// As [`Root::rename`].
    pub fn rename<'p>(&self, from: impl Into<Spelled<'p>>, to: impl Into<Spelled<'p>>) -> Result<()> {
        self.rename_with(from, to, Rename::NoReplace)
    }

    /// Renames an entry, and replaces or exchanges what has the new name if `how` says so. The directories above the new name are
    /// made.
    ///
    /// Both names are in this workspace; see [`move_to`](Self::move_to) for another.
    ///
    /// # Errors
    /// Those of [`Root::rename_with`].
    ///
    /// # Races
    /// As [`Root::rename_with`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::Rename;
    ///
    /// let workspace = session.workspace();
    /// workspace.write_exclusive("new", "2")?;
    /// workspace.write_exclusive("current", "1")?;
    /// workspace.rename_with("new", "current", Rename::Replace)?;
    /// assert_eq!(workspace.read_contained("current", 10)?, b"2");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rename_with<'p>(
        &self,
        from: impl Into<Spelled<'p>>,
        to: impl Into<Spelled<'p>>,
        how: Rename,
    ) -> Result<()> {
        let (from, to) = (self.entry(from, Act::Replace)?, self.entry(to, Act::Replace)?);
        self.changing(&from, |root, from| {
            self.changing(&to, |_, to| match how {
                Rename::Exchange => root.rename_with(from, root, to, how),
                Rename::NoReplace | Rename::Replace => making_parents(root, to, || {
                    match root.rename_with(from, root, to, how) {
                        // Nothing is made for an entry that is not there.
                        Err(error) if lacks_parent(&error, to) && !root.try_exists(from)? => {
                            Err(error.about(from))
                        }
                        result => result,
                    }
                }),
            })
        })
    }

    /// Returns the text of a link, which is not followed.
    ///
    /// # Errors
    /// [`NotSymlink`](ErrorKind::NotSymlink), and those of [`Root::read_link`].
    ///
    /// # Races
    /// As [`Root::read_link`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// let workspace = session.workspace();
    /// workspace.symlink("../semver/bin/semver.js", "node_modules/.bin/semver")?;
    /// let text = workspace.read_link("node_modules/.bin/semver")?;
    /// assert_eq!(text.to_str(), Some("../semver/bin/semver.js"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_link<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<PathBuf> {
        self.reading(&self.entry(path, Act::Read)?, |root, path| root.read_link(path))
    }

    /// Makes a symbolic link with this text at a name that must be free, and the directories above it.
    ///
    /// The text is kept as it is, whatever it leads to: only the guest follows it, or a read that stays beneath the workspace.
    ///
    /// # Errors
    /// Those of [`Root::symlink`].
    ///
    /// # Races
    /// As [`Root::symlink`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// let workspace = session.workspace();
    /// workspace.symlink("/usr/bin/python3", ".venv/bin/python")?;
    /// assert!(workspace.try_exists(".venv/bin/python")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn symlink<'p>(&self, text: impl AsRef<Path>, path: impl Into<Spelled<'p>>) -> Result<()> {
        self.changing(&self.entry(path, Act::Replace)?, |root, path| {
            making_parents(root, path, || root.symlink(&text, path))
        })
    }

    /// Sets when a regular file or directory was last accessed and modified; what is `None` stays as it is.
    ///
    /// # Errors
    /// Those of [`Root::set_times`].
    ///
    /// # Races
    /// As [`Root::set_times`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// let workspace = session.workspace();
    /// workspace.write_exclusive("a", "")?;
    /// workspace.set_times("a", None, Some(std::time::UNIX_EPOCH))?;
    /// assert_eq!(workspace.metadata("a")?.modified(), std::time::UNIX_EPOCH);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_times<'p>(
        &self,
        path: impl Into<Spelled<'p>>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        let path = self.entry(path, Act::Change)?;
        self.changing(&path, |root, path| root.set_times(path, accessed, modified))
    }

    /// Whether anything is at `path`, a link itself included, which may lead nowhere.
    ///
    /// # Errors
    /// Those of [`Root::try_exists`].
    ///
    /// # Races
    /// It was true during the call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// assert!(session.workspace().try_exists(".")?);
    /// assert!(!session.workspace().try_exists("a")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_exists<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<bool> {
        self.reading(&self.directory(path)?, |root, path| root.try_exists(path))
    }
}

/// Calls `call`, which makes an entry at `path`, and once more with the directories above it if they are missing.
fn making_parents<T>(root: &Root, path: &GuestPath, call: impl Fn() -> Result<T>) -> Result<T> {
    match (call(), path.parent().filter(|parent| !parent.is_top())) {
        (Err(error), Some(parent)) if lacks_parent(&error, path) => {
            root.ensure_dir(parent)?;
            call()
        }
        (result, _) => result,
    }
}

/// Refuses to go on with a move if another entry than `source` is at `from`.
fn must_still_be(source: &Metadata, root: &Root, from: &GuestPath) -> Result<()> {
    match root.metadata(from) {
        Ok(now) if (now.dev(), now.ino()) == (source.dev(), source.ino()) => Ok(()),
        Err(error) if error.kind() != ErrorKind::Symlink => Err(error.again("move")),
        _ => Err(Error::new("move", from, ErrorKind::Busy).with_detail(
            "was exchanged for another while it was copied: the copy and the other are both there",
        )),
    }
}

/// Whether the directory that is to contain the entry is missing.
fn lacks_parent(error: &Error, path: &GuestPath) -> bool {
    error.kind() == ErrorKind::NotFound && error.subject() == Some(path.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ambient_authority;

    #[test]
    fn a_move_deletes_no_other_entry_than_the_one_that_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
        let name = GuestPath::new("a").unwrap();
        root.write_exclusive("a", "copied").unwrap();
        let source = root.open_contained("a").unwrap();
        let check = || must_still_be(source.metadata(), &root, &name).map_err(|error| error.kind());
        assert_eq!(check(), Ok(()));
        root.replace("a", "another").unwrap();
        assert_eq!(check(), Err(ErrorKind::Busy));
        root.remove_file("a").unwrap();
        assert_eq!(check(), Err(ErrorKind::NotFound));
        root.symlink("b", "a").unwrap();
        assert_eq!(check(), Err(ErrorKind::Busy));
        root.remove_file("a").unwrap();
        root.ensure_dir("a").unwrap();
        assert_eq!(check(), Err(ErrorKind::Busy));
    }
}
