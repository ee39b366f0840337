//! The way it is usually done: look at the path, approve it, then use the path again.
//!
//! These are the controls. The rig must catch each of them, or its zeros mean nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::scenario::{Effect, Success};
use super::scene::{Leaf, data};

/// A call that is known to be unsafe.
pub struct Control {
    pub name: &'static str,
    pub leaf: Leaf,
    pub effect: Effect,
    /// Checks and then uses the path: for the stepper. The others break under faults.
    pub checks_first: bool,
    pub run: fn(&Path) -> io::Result<Success>,
}

pub const CONTROLS: &[Control] = &[
    Control {
        name: "control: read",
        leaf: Leaf::File,
        effect: Effect::Reads,
        checks_first: true,
        run: |root| {
            let path = approve(root, "g/p/leaf", Expect::File)?;
            fs::read(path).map(|bytes| Success::read(&bytes))
        },
    },
    Control {
        name: "control: write",
        leaf: Leaf::Absent,
        effect: Effect::Creates,
        checks_first: true,
        run: |root| {
            let parent = approve(root, "g/p", Expect::Directory)?;
            let path = parent.join("leaf");
            if fs::symlink_metadata(&path).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let mut file = private().create(true).truncate(true).open(path)?;
            file.write_all(data().as_bytes()).map(|()| Success::default())
        },
    },
    Control {
        name: "control: remove",
        leaf: Leaf::Directory,
        effect: Effect::RemovesTree("g/p/leaf"),
        checks_first: true,
        run: |root| {
            let path = approve(root, "g/p/leaf", Expect::Directory)?;
            remove(&path).map(|()| Success::default())
        },
    },
    Control {
        name: "control: count names",
        leaf: Leaf::File,
        effect: Effect::Reads,
        checks_first: true,
        run: |root| {
            let mut file = OpenOptions::new()
                .read(true)
                .custom_flags(nix::libc::O_NOFOLLOW)
                .open(root.join("g/p/leaf"))?;
            let meta = file.metadata()?;
            if !meta.is_file() || meta.nlink() != 1 {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(Success::read(&bytes))
        },
    },
    Control {
        name: "control: leak",
        leaf: Leaf::File,
        effect: Effect::Reads,
        checks_first: false,
        run: |root| {
            let mut file = File::open(root.join("g/p/leaf"))?;
            let mut bytes = Vec::new();
            if let Err(error) = file.read_to_end(&mut bytes) {
                // What an early return does in a language without owners.
                let _forgotten = std::os::fd::IntoRawFd::into_raw_fd(file);
                return Err(error);
            }
            Ok(Success::read(&bytes))
        },
    },
    Control {
        name: "control: tear",
        leaf: Leaf::Absent,
        effect: Effect::Creates,
        checks_first: false,
        run: |root| {
            let mut file = private().create_new(true).open(root.join("g/p/leaf"))?;
            let data = data();
            let (first, second) = data.split_at(data.len() / 3);
            file.write_all(first.as_bytes())?;
            file.write_all(second.as_bytes())?;
            Ok(Success::default())
        },
    },
];

/// With the mode that is asked for, so that only what matters is caught.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

enum Expect {
    File,
    Directory,
}

/// lstat, realpath, prefix.
fn approve(root: &Path, path: &str, expect: Expect) -> io::Result<PathBuf> {
    let path = root.join(path);
    let meta = fs::symlink_metadata(&path)?;
    let fits = match expect {
        Expect::File => meta.is_file(),
        Expect::Directory => meta.is_dir(),
    };
    let real = path.canonicalize()?;
    if !fits || !real.starts_with(root.canonicalize()?) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(path)
}

/// Removal by path, as it was before descriptors.
fn remove(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = dir.join(entry?.file_name());
        if fs::symlink_metadata(&path)?.is_dir() {
            remove(&path)?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    fs::remove_dir(dir)
}
