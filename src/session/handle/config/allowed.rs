//! What the host's own calls may touch, and what may come out of a session.

use super::SessionsConfig;
#[cfg(feature = "patterns")]
use crate::name::Patterns;
use crate::name::{AllowedTypes, GuestPath};
use crate::session::handle::rules::Rules;

impl SessionsConfig {
    /// Sets what the host's own calls on a [workspace](crate::session::Workspace) do not change: these paths from the
    /// workspace, and all that is beneath them. They fail with [`Denied`](crate::ErrorKind::Denied), in every spelling, and
    /// so do calls that would move, replace or remove a directory that contains such a path.
    ///
    /// Reading is not restricted, and neither is the guest.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// use beneath::session::SessionsConfig;
    /// use beneath::{ErrorKind, GuestPath, SessionId, Sessions};
    ///
    /// let config = SessionsConfig::default().with_read_only([GuestPath::new("skills")?]);
    /// let (session, _) = Sessions::new(root, config).create(&SessionId::new("s"))?;
    /// let workspace = session.workspace();
    /// for path in ["skills/a.md", "./x/../skills/a.md", "/session/workspace/skills"] {
    ///     assert_eq!(workspace.replace(path, "").unwrap_err().kind(), ErrorKind::Denied);
    /// }
    /// workspace.replace("skills-of-mine/a.md", "")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_read_only(mut self, paths: impl IntoIterator<Item = GuestPath>) -> Self {
        self.rules.set_read_only(paths);
        self
    }

    /// Sets what the host's own calls on a [workspace](crate::session::Workspace) refuse, to read too, with
    /// [`Denied`](crate::ErrorKind::Denied). Listings and walks leave it out.
    ///
    /// The path that is given is compared, and each directory above it. A directory that is removed or renamed takes with it
    /// what it contains, and is then another path. A link that is [followed](Self::with_links) is not compared.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// use beneath::session::SessionsConfig;
    /// use beneath::{ErrorKind, Patterns, SessionId, Sessions};
    ///
    /// let config = SessionsConfig::default().with_blocked(Patterns::new(["*.pem", ".env", ".git/"])?);
    /// let (session, _) = Sessions::new(root, config).create(&SessionId::new("s"))?;
    /// let refused = session.workspace().read_contained("deploy/.env", 1024).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Denied);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "patterns")]
    #[must_use]
    pub fn with_blocked(mut self, patterns: Patterns) -> Self {
        self.rules.lists.blocked = Some(patterns);
        self
    }

    /// Sets what alone the host's own calls on a [workspace](crate::session::Workspace) read and change; anything else is
    /// [`Denied`](crate::ErrorKind::Denied). Directories can be made, listed and described nevertheless.
    ///
    /// ```
    /// use beneath::{Patterns, session::SessionsConfig};
    ///
    /// let config = SessionsConfig::default().with_allowed(Patterns::new(["/docs/", "*.md"])?);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[cfg(feature = "patterns")]
    #[must_use]
    pub fn with_allowed(mut self, patterns: Patterns) -> Self {
        self.rules.lists.allowed = Some(patterns);
        self
    }

    /// Sets which types of files are taken from an outbox. Any other is refused with [`Denied`](crate::ErrorKind::Denied), and one
    /// whose content is not what its extension says with [`InvalidData`](crate::ErrorKind::InvalidData); see
    /// [`AllowedTypes::check`].
    ///
    /// ```
    /// use beneath::{AllowedTypes, session::SessionsConfig};
    ///
    /// let config = SessionsConfig::default().with_types(AllowedTypes::new(["image/*", "application/pdf"])?);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn with_types(mut self, types: AllowedTypes) -> Self {
        self.types = Some(types);
        self
    }

    /// What the host's own calls on a workspace do not change.
    #[must_use]
    pub fn read_only(&self) -> &[GuestPath] {
        self.rules.read_only()
    }

    /// Which types of files are taken from an outbox, if not all.
    #[must_use]
    pub fn types(&self) -> Option<&AllowedTypes> {
        self.types.as_ref()
    }

    pub(in crate::session) fn rules(&self) -> &Rules {
        &self.rules
    }
}
