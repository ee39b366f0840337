//! Writing files of the workspace, with the verbs of [`Root`](crate::Root).

use super::Workspace;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
#[cfg(doc)]
use crate::root::Root;
use crate::root::{NewFile, WriteOptions};
use crate::session::handle::resolve::Spelled;
use crate::session::handle::rules::Act;

impl Workspace {
    /// Writes a new file, and the directories above it.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists), [`InvalidPath`](ErrorKind::InvalidPath), and those of
    /// [`Root::write_exclusive`].
    ///
    /// # Races
    /// As [`Root::write_exclusive`].
    pub fn write_exclusive<'p>(&self, path: impl Into<Spelled<'p>>, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.write_exclusive_with(path, bytes, parents())
    }

    /// Writes a new file with a mode of its own; the directories above it are made only if the options say so.
    ///
    /// # Errors
    /// Those of [`Root::write_exclusive_with`].
    ///
    /// # Races
    /// As [`Root::write_exclusive`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::WriteOptions;
    ///
    /// let script = WriteOptions::default().with_mode(0o755).with_parents();
    /// session.workspace().write_exclusive_with("bin/run", "#!/bin/sh\n", script)?;
    /// assert_eq!(session.workspace().metadata("bin/run")?.mode(), 0o755);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_exclusive_with<'p>(
        &self,
        path: impl Into<Spelled<'p>>,
        bytes: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        let path = self.entry(path, Act::Replace)?;
        self.changing(&path, |root, path| root.write_exclusive_with(path, bytes, options))
    }

    /// Writes a file in place of whatever non-directory is there, and the directories above it. A regular file's permission bits
    /// are kept, and a read-only one is not replaced.
    ///
    /// # Errors
    /// [`NotRegular`](ErrorKind::NotRegular) for a directory, [`InvalidPath`](ErrorKind::InvalidPath), and those of
    /// [`Root::replace`].
    ///
    /// # Races
    /// As [`Root::replace`].
    pub fn replace<'p>(&self, path: impl Into<Spelled<'p>>, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.replace_with(path, bytes, parents())
    }

    /// Writes a file in place of whatever non-directory is there, with a mode of its own or over a read-only file; the
    /// directories above it are made only if the options say so.
    ///
    /// # Errors
    /// Those of [`Root::replace_with`].
    ///
    /// # Races
    /// As [`Root::replace`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::WriteOptions;
    ///
    /// let workspace = session.workspace();
    /// workspace.write_exclusive_with("a", "old", WriteOptions::default().with_mode(0o400))?;
    /// assert!(workspace.replace("a", "new").is_err());
    /// workspace.replace_with("a", "new", WriteOptions::default().over_read_only())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_with<'p>(
        &self,
        path: impl Into<Spelled<'p>>,
        bytes: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        let path = self.entry(path, Act::Replace)?;
        self.changing(&path, |root, path| root.replace_with(path, bytes, options))
    }

    /// Starts a file of any size that appears when it is committed, exclusively or in place of another, and makes the directories
    /// above it.
    ///
    /// The config's rules are asked about this path, now, and about each name that [`NewFile::commit_as`] is given.
    ///
    /// # Errors
    /// Those of [`Root::new_file`].
    ///
    /// # Races
    /// As [`NewFile::commit`].
    pub fn new_file<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<NewFile> {
        self.new_file_with(path, parents())
    }

    /// Starts a file as [`new_file`](Self::new_file) does, with a mode of its own or to be published over a read-only file;
    /// the directories above it are made only if the options say so.
    ///
    /// # Errors
    /// Those of [`Root::new_file_with`].
    ///
    /// # Races
    /// As [`NewFile::commit`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::WriteOptions;
    ///
    /// let workspace = session.workspace();
    /// let mut file = workspace.new_file_with("run", WriteOptions::default().with_mode(0o755))?;
    /// file.copy_from(&b"#!/bin/sh\n"[..], 1 << 20)?;
    /// file.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new_file_with<'p>(&self, path: impl Into<Spelled<'p>>, options: WriteOptions) -> Result<NewFile> {
        let path = self.entry(path, Act::Replace)?;
        let file = self.changing(&path, |root, path| root.new_file_with(path, options))?;
        if self.session.config().rules().is_empty() {
            return Ok(file);
        }
        let (session, parent) = (self.session.clone(), path.parent().unwrap_or_default());
        Ok(file.admitting(move |name| session.config().rules().check(&parent.join(name)?, Act::Replace)))
    }
}

/// The calls that take no options make what is missing above the new file.
fn parents() -> WriteOptions {
    WriteOptions::default().with_parents()
}
