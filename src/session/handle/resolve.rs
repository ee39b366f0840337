//! What a path means in a session.
//!
//! Problem: the guest sees one directory at its mount point, works in another, and names a file from either. If each call
//! reads that in its own way, one spelling is two files.
//!
//! Defence: every spelling is read here. A path from a listing is taken byte for byte; a text is read as
//! [`GuestPath::parse`] reads it.
//!
//! What remains: the guest may work in another directory than the workspace. A relative path is still one from the
//! workspace.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Session;
use super::parts::Part;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, MountPoint, SafeName, SafePath};

/// A path for a call on a session: a text that somebody wrote, or a path that is known byte for byte.
///
/// A `str` or `OsStr` is what an agent wrote, and is read as [`GuestPath::parse`] reads it, in the spelling that the
/// [config](super::config::SessionsConfig::with_spelling) sets. A [`GuestPath`], [`SafePath`] or [`SafeName`] is taken as it
/// is, also if it starts or ends with a blank. So is a [`Path`] that is the one form of a path, as those of a
/// listing are; any other is read as a text.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// # let sessions = beneath::Sessions::new(root, Default::default());
/// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
/// use beneath::GuestPath;
///
/// let workspace = session.workspace();
/// workspace.write_exclusive(&GuestPath::new(" blank ")?, "1")?;
/// assert!(workspace.exists(&GuestPath::new(" blank ")?)?);
/// assert!(!workspace.exists(" blank ")?, "this is the name without its blanks");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spelled<'a>(Form<'a>);

#[derive(Clone, Debug)]
enum Form<'a> {
    Written(&'a OsStr),
    Exact(Cow<'a, GuestPath>),
}

impl Spelled<'_> {
    /// What was given, for an error.
    pub(in crate::session) fn subject(&self) -> &Path {
        match &self.0 {
            Form::Written(raw) => Path::new(raw),
            Form::Exact(path) => path.as_path(),
        }
    }
}

impl Session {
    /// The part of the session that a path is in, and its path there.
    ///
    /// A relative path is one from the workspace. An absolute one is under the config's mount point, which is the guest's
    /// directory: `<mount point>/workspace/a` and `a` are the same file, and `<mount point>/inbox/42/a` is `42/a` in the
    /// inbox. If the config has [places](crate::SessionsConfig::with_places), it is under the mount point of one of them; and if one of them
    /// is mounted in the workspace, a relative text into that is in that part, as the guest sees it. The disk is not asked.
    ///
    /// # Errors
    /// Those of [`GuestPath::parse`], and [`Escape`](ErrorKind::Escape) for `/inbox`, `/outbox` and `/workspace` where no part is
    /// mounted there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::{ErrorKind, GuestPath, session::Part};
    ///
    /// let path = GuestPath::new("src/a.rs")?;
    /// for raw in ["src/a.rs", "./src//a.rs", "/session/workspace/src/a.rs"] {
    ///     assert_eq!(session.resolve(raw)?, (Part::Workspace, path.clone()));
    /// }
    /// assert_eq!(session.resolve("/session/inbox/42/a.txt")?, (Part::Inbox, GuestPath::new("42/a.txt")?));
    /// assert_eq!(session.resolve("/session")?, (Part::Guest, GuestPath::top()));
    /// assert_eq!(session.resolve("/etc/passwd").unwrap_err().kind(), ErrorKind::Escape);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolve<'p>(&self, path: impl Into<Spelled<'p>>) -> Result<(Part, GuestPath)> {
        let raw = match path.into().0 {
            Form::Exact(path) => return Ok((Part::Workspace, path.into_owned())),
            Form::Written(raw) => raw,
        };
        let config = self.config();
        let places = Part::ALL.into_iter().filter_map(|part| Some((part, config.place(part)?)));
        let (parts, mut mounts): (Vec<Part>, Vec<MountPoint>) =
            places.map(|(part, mount)| (part, mount.clone())).unzip();
        if mounts.is_empty() {
            mounts.push(config.mount_point().clone());
        }
        let (mount, path) = GuestPath::locate(raw, &mounts, config.spelling())?;
        let Some(mount) = mount else {
            // `/outbox` as `outbox` in the workspace would be a directory that nobody collects.
            let is_absolute = raw.to_string_lossy().trim_start().starts_with('/');
            return match is_absolute && Part::of(path.clone()).0 != Part::Guest {
                true => Err(Error::new("check path", raw, ErrorKind::Escape)
                    .with_detail("is a part of the session, and not at its mount point")),
                false => Ok(self.seen_in_workspace(path)),
            };
        };
        let place = parts.into_iter().zip(&mounts).find(|(_, place)| *place == mount);
        Ok(place.map_or_else(|| Part::of(path.clone()), |(part, _)| (part, path.clone())))
    }

    /// What the guest sees at a path from the workspace: another part, if that is mounted there or above.
    fn seen_in_workspace(&self, path: GuestPath) -> (Part, GuestPath) {
        let seen = |part| {
            let (mount, workspace) = (self.config().place(part)?, self.config().place(Part::Workspace)?);
            let there = mount.strip_prefix(workspace).filter(|there| !there.is_top())?;
            Some((part, path.strip_prefix(&there)?))
        };
        // Of two that are mounted one in the other, the inner.
        let seen = [Part::Inbox, Part::Outbox].into_iter().filter_map(seen);
        seen.min_by_key(|(_, rest)| rest.depth()).unwrap_or((Part::Workspace, path))
    }

    /// The absolute path by which the guest reaches `path` in a part.
    ///
    /// # Errors
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) if the path is too long.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::{GuestPath, session::Part};
    ///
    /// let path = session.guest_path(Part::Workspace, &GuestPath::new("src/a.rs")?)?;
    /// assert_eq!(path, std::path::Path::new("/session/workspace/src/a.rs"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn guest_path(&self, part: Part, path: &GuestPath) -> Result<PathBuf> {
        match self.config().place(part) {
            Some(mount) => Ok(mount.join(path)),
            None => Ok(self.config().mount_point().join(&part.path(path)?)),
        }
    }
}

impl<'a> From<&'a str> for Spelled<'a> {
    fn from(raw: &'a str) -> Self {
        Self(Form::Written(raw.as_ref()))
    }
}

impl<'a> From<&'a String> for Spelled<'a> {
    fn from(raw: &'a String) -> Self {
        raw.as_str().into()
    }
}

impl<'a> From<&'a OsStr> for Spelled<'a> {
    fn from(raw: &'a OsStr) -> Self {
        Self(Form::Written(raw))
    }
}

impl<'a> From<&'a Path> for Spelled<'a> {
    fn from(path: &'a Path) -> Self {
        match GuestPath::new(path) {
            Ok(path) => path.into(),
            Err(_) => path.as_os_str().into(),
        }
    }
}

impl<'a> From<&'a PathBuf> for Spelled<'a> {
    fn from(path: &'a PathBuf) -> Self {
        path.as_path().into()
    }
}

impl<'a> From<&'a GuestPath> for Spelled<'a> {
    fn from(path: &'a GuestPath) -> Self {
        Self(Form::Exact(Cow::Borrowed(path)))
    }
}

impl From<GuestPath> for Spelled<'_> {
    fn from(path: GuestPath) -> Self {
        Self(Form::Exact(Cow::Owned(path)))
    }
}

impl From<&SafePath> for Spelled<'_> {
    fn from(path: &SafePath) -> Self {
        GuestPath::from(path).into()
    }
}

impl From<&SafeName> for Spelled<'_> {
    fn from(name: &SafeName) -> Self {
        GuestPath::from(name).into()
    }
}
