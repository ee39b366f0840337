//! The way it is usually done: look at the path, approve it, then use the path again.
//!
//! Each is right as long as nothing moves. These are the controls: a rig must catch each of them, or its zeros mean
//! nothing. Some are wrong in another way, which `faults` must catch.

pub mod queue;
pub mod session;

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use beneath::{Root, ambient_authority};
use rustix::fs::{CWD, Mode, OFlags};

use crate::operations::{ACCESS, COPY, Effect, Leaf, ONLY_OUTSIDE, Success, TEXT, TreeCopy};
use crate::scene::CANARY;
use crate::strikes::exchange::exchange;

/// How an operation is done by path.
pub type Naive = fn(&Attempt<'_>) -> io::Result<Success>;

/// What a naive call works with.
#[derive(Clone, Copy)]
pub struct Attempt<'a> {
    pub root: &'a Path,
    /// Relative to the root, like `other`.
    pub path: &'a Path,
    pub data: &'a [u8],
    /// The other end of a move or a copy.
    pub other: &'a Path,
    pub trust: Trust<'a>,
    /// What happens between check and use: nothing, or what a host does that works asynchronously.
    pub pause: &'a dyn Fn(),
}

/// What the check asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust<'a> {
    /// No link, and a real path beneath the real root.
    Root,
    /// The same with the real path of this directory as the boundary, wherever that is.
    Directory(&'a str),
    /// Links are followed, if the real path is beneath the real root.
    Links,
    /// A name is free if nothing can be reached there, as behind a dangling link.
    Reach,
}

impl Attempt<'_> {
    fn full(&self) -> PathBuf {
        self.root.join(self.path)
    }

    /// The same with both ends exchanged.
    fn turned(&self) -> Self {
        Self { path: self.other, other: self.path, ..*self }
    }

    /// lstat, realpath, prefix.
    fn approve(&self, path: &Path) -> io::Result<Metadata> {
        let entry = match self.trust {
            Trust::Links => fs::metadata(path)?,
            _ => fs::symlink_metadata(path)?,
        };
        let boundary = match self.trust {
            Trust::Directory(dir) => self.root.join(dir),
            _ => self.root.to_path_buf(),
        };
        let inside = path.canonicalize()?.starts_with(boundary.canonicalize()?);
        if !entry.is_symlink() && inside { Ok(entry) } else { Err(refused()) }
    }

    /// Approves of what is at the path if `fits` does, and gives the guest its moment.
    fn checked(&self, fits: fn(&Metadata) -> bool) -> io::Result<PathBuf> {
        let path = self.full();
        if !fits(&self.approve(&path)?) {
            return Err(refused());
        }
        (self.pause)();
        Ok(path)
    }

    /// Approves of the directory that a new entry is made in, if the name is free.
    fn free(&self, path: &Path) -> io::Result<()> {
        let taken = match self.trust {
            Trust::Reach => path.exists(),
            _ => fs::symlink_metadata(path).is_ok(),
        };
        if taken {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.approve(path.parent().unwrap_or(path)).map(drop)
    }
}

pub fn refused() -> io::Error {
    io::ErrorKind::PermissionDenied.into()
}

fn only_name(entry: &Metadata) -> bool {
    entry.is_file() && entry.nlink() == 1
}

/// With the mode that is asked for, so that only what matters is caught.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

pub fn read(attempt: &Attempt<'_>) -> io::Result<Success> {
    content(File::open(attempt.checked(only_name)?)?)
}

fn content(mut file: File) -> io::Result<Success> {
    let ino = file.metadata()?.ino();
    let mut bytes = vec![0; 1 << 16];
    // Once: behind the path may be a FIFO that somebody holds open, which has no end.
    let filled = file.read(&mut bytes)?;
    Ok(Success { entries: vec![(String::new(), ino)], ..Success::read(&bytes[..filled]) })
}

pub fn metadata(attempt: &Attempt<'_>) -> io::Result<Success> {
    describe(&attempt.checked(|_| true)?)
}

fn describe(path: &Path) -> io::Result<Success> {
    let ino = fs::metadata(path)?.ino();
    Ok(Success { entries: vec![(String::new(), ino)], ..Success::default() })
}

pub fn exists(attempt: &Attempt<'_>) -> io::Result<Success> {
    let path = attempt.checked(|_| true)?;
    if path.with_file_name(ONLY_OUTSIDE).exists() {
        return Ok(Success::read(CANARY.as_bytes()));
    }
    describe(&path)
}

pub fn read_link(attempt: &Attempt<'_>) -> io::Result<Success> {
    let path = attempt.full();
    attempt.approve(path.parent().unwrap_or(&path))?;
    (attempt.pause)();
    Ok(Success::read(fs::read_link(path)?.as_os_str().as_encoded_bytes()))
}

pub fn list(attempt: &Attempt<'_>) -> io::Result<Success> {
    let mut found = Success::default();
    for entry in fs::read_dir(attempt.checked(Metadata::is_dir)?)? {
        let path = entry?.path();
        found.entries.push((path.to_string_lossy().into_owned(), fs::symlink_metadata(&path)?.ino()));
    }
    Ok(found)
}

pub fn walk(attempt: &Attempt<'_>) -> io::Result<Success> {
    let mut found = Success::default();
    walk_by_path(&attempt.checked(Metadata::is_dir)?, attempt.pause, &mut found)?;
    Ok(found)
}

fn walk_by_path(dir: &Path, pause: &dyn Fn(), found: &mut Success) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let entry = fs::symlink_metadata(&path)?;
        found.entries.push((path.to_string_lossy().into_owned(), entry.ino()));
        if entry.is_dir() {
            pause();
            walk_by_path(&path, pause, found)?;
        }
    }
    Ok(())
}

/// To the host's own directory, which no guest reaches, and away again.
pub fn copy_tree(attempt: &Attempt<'_>) -> io::Result<Success> {
    let from = attempt.checked(Metadata::is_dir)?;
    let host = attempt.root.with_file_name("host");
    copy_by_path(&from, &host.join(COPY), attempt.pause)?;
    let found = TreeCopy::look(&Root::open_ambient(&host, ambient_authority())?);
    fs::remove_dir_all(host.join(COPY))?;
    Ok(found.stolen.unwrap_or_default())
}

fn copy_by_path(from: &Path, to: &Path, pause: &dyn Fn()) -> io::Result<()> {
    let entries = fs::read_dir(from)?;
    fs::create_dir(to)?;
    // A link may lead to what holds the copy itself.
    for entry in entries.flatten().filter(|entry| entry.file_name() != COPY) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        // What goes wrong is passed over, so that all of it is tried.
        let _ = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {
                pause();
                copy_by_path(&path, &to, pause)
            }
            Ok(found) if found.is_file() => File::open(&path)
                .and_then(content)
                .and_then(|found| put(&to, found.data.unwrap_or_default().as_bytes()))
                .map(drop),
            _ => Ok(()),
        };
    }
    Ok(())
}

pub fn write(attempt: &Attempt<'_>) -> io::Result<Success> {
    let path = attempt.full();
    attempt.free(&path)?;
    (attempt.pause)();
    put(&path, attempt.data)
}

pub fn replace(attempt: &Attempt<'_>) -> io::Result<Success> {
    put(&attempt.checked(only_name)?, attempt.data)
}

/// As `fs::copy` does it, but for what has no end.
pub fn copy(attempt: &Attempt<'_>) -> io::Result<Success> {
    let to = attempt.root.join(attempt.other);
    attempt.free(&to)?;
    let found = content(File::open(attempt.checked(only_name)?)?)?;
    put(&to, found.data.unwrap_or_default().as_bytes())
}

pub fn copy_here(attempt: &Attempt<'_>) -> io::Result<Success> {
    copy(&attempt.turned())
}

pub fn symlink(attempt: &Attempt<'_>) -> io::Result<Success> {
    let path = attempt.full();
    attempt.free(&path)?;
    (attempt.pause)();
    std::os::unix::fs::symlink(TEXT, path).map(done)
}

fn put(path: &Path, data: &[u8]) -> io::Result<Success> {
    private().create(true).truncate(true).open(path)?.write_all(data).map(done)
}

fn done((): ()) -> Success {
    Success::default()
}

pub fn ensure_dir(attempt: &Attempt<'_>) -> io::Result<Success> {
    let path = attempt.full();
    let existing = path.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    attempt.approve(existing.unwrap_or(&path))?;
    (attempt.pause)();
    fs::create_dir_all(path).map(done)
}

/// Opens without following a link, then counts the names: one handle, and no path is used twice. Still the name that was
/// counted may be another one.
pub fn open_counted(path: &Path, flags: OFlags, pause: &dyn Fn()) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
    pause();
    if only_name(&file.metadata()?) { Ok(file) } else { Err(refused()) }
}

pub fn read_counted(attempt: &Attempt<'_>) -> io::Result<Success> {
    content(open_counted(&attempt.full(), OFlags::RDONLY, attempt.pause)?)
}

pub fn set_access(attempt: &Attempt<'_>) -> io::Result<Success> {
    let pin = open_counted(&attempt.full(), OFlags::PATH, attempt.pause)?;
    let path = format!("/proc/self/fd/{}", pin.as_raw_fd());
    fs::set_permissions(path, Permissions::from_mode(ACCESS.file_mode())).map(done)
}

pub fn rename(attempt: &Attempt<'_>) -> io::Result<Success> {
    let to = attempt.root.join(attempt.other);
    attempt.free(&to)?;
    fs::rename(attempt.checked(|_| true)?, to).map(done)
}

pub fn rename_here(attempt: &Attempt<'_>) -> io::Result<Success> {
    rename(&attempt.turned())
}

pub fn rename_over(attempt: &Attempt<'_>) -> io::Result<Success> {
    let to = attempt.full();
    attempt.approve(&to)?;
    fs::rename(attempt.turned().checked(|_| true)?, to).map(done)
}

pub fn exchange_places(attempt: &Attempt<'_>) -> io::Result<Success> {
    let to = attempt.full();
    attempt.approve(&to)?;
    Ok(exchange(CWD, attempt.turned().checked(|_| true)?, CWD, to).map(done)?)
}

pub fn remove_file(attempt: &Attempt<'_>) -> io::Result<Success> {
    fs::remove_file(attempt.checked(|entry| !entry.is_dir())?).map(done)
}

pub fn remove_dir(attempt: &Attempt<'_>) -> io::Result<Success> {
    fs::remove_dir(attempt.checked(Metadata::is_dir)?).map(done)
}

pub fn remove_tree(attempt: &Attempt<'_>) -> io::Result<Success> {
    remove_by_path(&attempt.checked(Metadata::is_dir)?, attempt.pause).map(done)
}

/// Removal by path, as it was before descriptors.
pub fn remove_by_path(dir: &Path, pause: &dyn Fn()) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let entry = fs::symlink_metadata(&path)?;
        if !entry.is_dir() {
            fs::remove_file(&path)?;
            continue;
        }
        pause();
        if entry.mode() & 0o700 != 0o700 {
            fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        }
        remove_by_path(&path, pause)?;
    }
    fs::remove_dir(dir)
}

/// What must catch a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caught {
    /// One strike between check and use.
    ByStrike,
    /// A second name that comes and goes, in two strikes.
    ByNames,
    /// A call that fails.
    ByFaults,
}

pub const TEARING: &str = "control: tear";

/// Ways to do an operation that break by themselves or where names are counted: no operation's own control.
pub const FLAWED: &[(&str, Leaf, Effect, Caught, Naive)] = &[
    ("control: count names", Leaf::File, Effect::Reads, Caught::ByNames, read_counted),
    ("control: leak", Leaf::File, Effect::Reads, Caught::ByFaults, |attempt| {
        let mut file = File::open(attempt.full())?;
        let mut bytes = Vec::new();
        if let Err(error) = file.read_to_end(&mut bytes) {
            // What an early return does in a language without owners.
            let _forgotten = std::os::fd::IntoRawFd::into_raw_fd(file);
            return Err(error);
        }
        Ok(Success::read(&bytes))
    }),
    (TEARING, Leaf::Absent, Effect::Creates, Caught::ByFaults, |attempt| {
        let mut file = private().create_new(true).open(attempt.full())?;
        let (first, second) = attempt.data.split_at(attempt.data.len() / 3);
        file.write_all(first)?;
        file.write_all(second).map(done)
    }),
];
