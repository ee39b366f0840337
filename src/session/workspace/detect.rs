//! What type a file of the workspace has.

use super::Workspace;
use crate::error::Result;
use crate::name::Detected;
use crate::session::handle::resolve::Spelled;
use crate::session::handle::rules::Act;
use crate::session::limited::start_of;

impl Workspace {
    /// Judges a file by its name and its first [bytes](Detected::PREFIX). Links are not followed under any policy.
    ///
    /// # Errors
    /// Those of [`Root::open_contained`](crate::Root::open_contained).
    ///
    /// # Races
    /// As [`Root::read_contained`](crate::Root::read_contained).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// let workspace = session.workspace();
    /// workspace.write_exclusive("notes.md", "# Plan")?;
    /// let found = workspace.detect("notes.md")?;
    /// assert_eq!((found.mime().unwrap().as_str(), found.is_text), ("text/markdown", true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn detect<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<Detected> {
        let within = self.entry(path, Act::Read)?;
        self.changing(&within, |root, path| {
            let start = start_of(&mut root.open_contained(path)?, path.as_path())?;
            Ok(Detected::new(&within, &start))
        })
    }
}
