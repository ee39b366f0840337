//! What an agent means by the path that it writes.
//!
//! Problem: one file has many spellings: `a.txt`, `./a.txt`, `src/../a.txt`, `/session/a.txt`. To refuse most of them makes
//! an agent fail for no reason; to take an absolute path of the guest's own system as one of the shared directory writes a
//! file where nobody looks for it.
//!
//! Defence: the text is normalised without asking the disk, and an absolute path must then be under a mount point. A
//! relative path that leads out is refused, also if it comes back.
//!
//! What remains: a `..` is taken from the text. Where a directory before it is a link, the kernel would go elsewhere; the
//! path that is read here is still inside.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::super::path::{OPERATION, PATH_MAX};
use super::super::rules::{Breach, refused};
use super::mount::MountPoint;
use super::{GuestPath, check_nul};
use crate::error::{ErrorKind, Result, escaped};

/// What the root directory of a Linux system contains, by the Filesystem Hierarchy Standard and the kernel's own mounts.
const SYSTEM: [&str; 23] = [
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "lost+found",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "snap",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
];

/// Which spellings of a path are read; see [`GuestPath::parse`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Spelling {
    /// All that have one clear meaning.
    #[default]
    Lenient,
    /// Only the one form of a [`GuestPath`], alone or after `<mount point>/`, and the mount point itself.
    Strict,
}

impl GuestPath {
    /// Reads a path as an agent writes it.
    ///
    /// The agent sees the shared directory at each of `mounts`. In either spelling it may write the path itself
    /// (`src/a.rs`, `.` for the top) or the path under a mount point (`/session/src/a.rs`, `/session` for the top).
    /// A mount point is compared component by component, and of several that match the longest counts.
    ///
    /// [`Spelling::Lenient`] also reads
    ///
    /// * `./a`, `a//b`, `a/./b`, `//session/a`: empty components and `.` have no meaning;
    /// * `dir/../a`: a `..` takes back what is before it, by the text and not by what is on disk. A relative path must stay
    ///   inside all the way: `a/../../a` is refused. An absolute one is first normalised, and then must be under a mount
    ///   point: `/session/../etc` is refused;
    /// * `a/` and `a/.`: that a directory is meant is not kept;
    /// * the empty text and `/`: the top;
    /// * blanks around the whole text (Unicode white space, if the text is UTF-8), unless there is nothing else. A name that
    ///   starts or ends with a blank is reached by `./ a` and `a /`;
    /// * `/a`: agents write this for a file at the top. It is one only if `a` cannot be meant as an entry of the guest's own
    ///   root directory. `/etc`, `/tmp` and the others that Linux systems have, and the first component of a mount point,
    ///   are refused. So is every longer absolute path, such as `/data/a`: to take it as `data/a` would read or write
    ///   another file than the one the agent can see by that name.
    ///
    /// No other character has a meaning: `a\b` is one name, `~/a` is `a` in a directory called `~`, and `$HOME` and `*` are
    /// names.
    ///
    /// # Errors
    /// [`ErrorKind::Escape`] for what would leave; for an absolute path the message names the mount points.
    /// [`ErrorKind::InvalidPath`] for a NUL, for a result of more than 4095 bytes, and with [`Spelling::Strict`] for each
    /// spelling that stays inside but is not the strict one.
    ///
    /// ```
    /// use beneath::{ErrorKind, GuestPath, MountPoint, Spelling};
    ///
    /// let mounts = [MountPoint::new("/session")?];
    /// for raw in ["a.txt", "./a.txt", "b/../a.txt", " a.txt\n", "/a.txt", "/session//a.txt", "a.txt/"] {
    ///     assert_eq!(GuestPath::parse(raw, &mounts, Spelling::Lenient)?.as_str(), Some("a.txt"));
    /// }
    /// assert!(GuestPath::parse("/session/", &mounts, Spelling::Lenient)?.is_top());
    ///
    /// let error = GuestPath::parse("/etc/passwd", &mounts, Spelling::Lenient).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Escape);
    /// assert_eq!(error.to_string(), r#"check path "/etc/passwd": is absolute and not under "/session""#);
    ///
    /// let error = GuestPath::parse("./a.txt", &mounts, Spelling::Strict).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidPath);
    /// assert_eq!(error.to_string(), r#"check path "./a.txt": must be written "a.txt""#);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn parse(raw: impl AsRef<OsStr>, mounts: &[MountPoint], spelling: Spelling) -> Result<Self> {
        Self::locate(raw, mounts, spelling).map(|(_, path)| path)
    }

    /// Reads a path as [`parse`](Self::parse) does, and also returns the mount point that it was written under, if any.
    ///
    /// This is for a host whose mount points are different directories.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse).
    ///
    /// ```
    /// use beneath::{GuestPath, MountPoint, Spelling};
    ///
    /// let mounts = [MountPoint::new("/session")?, MountPoint::new("/session/data")?];
    /// let (mount, path) = GuestPath::locate("/session/data/a", &mounts, Spelling::Lenient)?;
    /// assert_eq!((mount, path), (Some(&mounts[1]), GuestPath::new("a")?));
    /// let (mount, _) = GuestPath::locate("data/a", &mounts, Spelling::Lenient)?;
    /// assert_eq!(mount, None);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn locate(
        raw: impl AsRef<OsStr>,
        mounts: &[MountPoint],
        spelling: Spelling,
    ) -> Result<(Option<&MountPoint>, Self)> {
        read(raw.as_ref().as_bytes(), mounts, spelling).map(|read| (read.mount, read.path))
    }
}

/// A path, and the mount point that it was written under.
struct Read<'m> {
    path: GuestPath,
    mount: Option<&'m MountPoint>,
}

fn read<'m>(raw: &[u8], mounts: &'m [MountPoint], spelling: Spelling) -> Result<Read<'m>> {
    let (offset, text) = match spelling {
        Spelling::Lenient => trimmed(raw),
        Spelling::Strict => (0, raw),
    };
    let refuse = |kind| move |breach: Breach<'_>| breach.shifted(offset).into_error(OPERATION, raw, kind);
    let normal = Normal::of(text).map_err(refuse(ErrorKind::Escape))?;
    let (mount, path) = match normal.under(mounts) {
        Some((mount, path)) => (Some(mount), path),
        None if normal.is_inside(mounts, spelling) => (None, normal.path.as_slice()),
        None => return Err(refused(OPERATION, raw, ErrorKind::Escape, outside(mounts))),
    };
    check_nul(text).and_then(|()| check_length(path)).map_err(refuse(ErrorKind::InvalidPath))?;
    let read = Read { path: GuestPath { bytes: path.into() }, mount };
    match spelling {
        Spelling::Lenient => Ok(read),
        Spelling::Strict => read.if_written(raw),
    }
}

impl Read<'_> {
    /// Refuses every text but the one that the strict spelling has for this path.
    fn if_written(self, raw: &[u8]) -> Result<Self> {
        let strict = match self.mount {
            Some(mount) => mount.join(&self.path),
            None => self.path.as_path().to_owned(),
        };
        match strict.as_os_str().as_bytes() {
            strict if strict == raw => Ok(self),
            strict => {
                let why = format!("must be written {}", escaped(strict));
                Err(refused(OPERATION, raw, ErrorKind::InvalidPath, why))
            }
        }
    }
}

/// A path without empty components, `.` and `..`.
struct Normal {
    path: Vec<u8>,
    absolute: bool,
    /// It was written with a `..`.
    climbs: bool,
}

impl Normal {
    /// Normalises `text`, or returns the `..` that has nothing before it.
    fn of(text: &[u8]) -> Result<Self, Breach<'_>> {
        let mut normal = Self { path: Vec::new(), absolute: text.starts_with(b"/"), climbs: false };
        let mut at = 0;
        for component in text.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." if normal.path.is_empty() => return Err(Breach::new("leads out by", component, at)),
                b".." => normal.climb(),
                name => normal.push(name),
            }
            at += component.len() + 1;
        }
        Ok(normal)
    }

    fn push(&mut self, name: &[u8]) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
    }

    fn climb(&mut self) {
        self.climbs = true;
        self.path.truncate(self.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
    }

    /// The longest mount point that this path is under, if it is absolute, and what follows it.
    fn under<'m>(&self, mounts: &'m [MountPoint]) -> Option<(&'m MountPoint, &[u8])> {
        let under = |mount: &'m MountPoint| Some((mount, mount.strip(&self.path)?));
        mounts.iter().filter(|_| self.absolute).filter_map(under).min_by_key(|(_, rest)| rest.len())
    }

    /// Whether this path, which is under no mount point, is one from the top.
    fn is_inside(&self, mounts: &[MountPoint], spelling: Spelling) -> bool {
        !self.absolute || spelling == Spelling::Lenient && self.is_name_at_top(mounts)
    }

    /// Whether this absolute path is what agents write for the top or a name there.
    fn is_name_at_top(&self, mounts: &[MountPoint]) -> bool {
        let is_known = SYSTEM.iter().any(|name| name.as_bytes() == self.path)
            || mounts.iter().any(|mount| mount.first() == self.path);
        !self.climbs && !self.path.contains(&b'/') && !is_known
    }
}

/// `raw` without the blanks around it, and how many bytes of them are before it.
fn trimmed(raw: &[u8]) -> (usize, &[u8]) {
    let Ok(text) = str::from_utf8(raw) else { return (0, raw) };
    let rest = text.trim_start();
    match rest.trim_end() {
        "" => (0, raw),
        trimmed => (text.len() - rest.len(), trimmed.as_bytes()),
    }
}

fn check_length(path: &[u8]) -> Result<(), Breach<'static>> {
    if path.len() > PATH_MAX {
        return Err(Breach::new("is longer than 4095 bytes", "", PATH_MAX));
    }
    Ok(())
}

fn outside(mounts: &[MountPoint]) -> String {
    let mounts: Vec<_> = mounts.iter().map(|mount| escaped(mount.as_str().as_bytes()).to_string()).collect();
    match mounts.as_slice() {
        [] => "is absolute".to_owned(),
        mounts => format!("is absolute and not under {}", mounts.join(" or ")),
    }
}
