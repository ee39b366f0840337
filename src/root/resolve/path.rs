//! The form of a path, judged before any syscall.
//!
//! Problem: `openat`, `linkat`, `renameat2` and `unlinkat` follow links in the middle of a path, and a trailing
//! slash makes even `O_NOFOLLOW` follow the last one.
//!
//! Defence: a path is split here, once, into a parent and one last component with no slash. Everything that has
//! a second meaning (`..`, `.`, `//`, a leading slash, NUL) is refused, so each file has one spelling. A leading slash or a
//! `..` is an attempt to leave, and reported as one.
//!
//! What remains: nothing that a text can say. What the entries are is decided by the kernel.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::name::kind_of_refused;

/// Longest path the kernel takes, without its NUL.
const PATH_BYTES: usize = 4095;
/// Longest component on any file system the kernel has.
const NAME_BYTES: usize = 255;

/// What a path is used for, which decides about `.` and a trailing slash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::root) enum Meant {
    /// One entry that may be anything but the root: no `.`, no trailing slash.
    Entry,
    /// A directory beneath the root: one trailing slash is dropped.
    Directory,
    /// A directory or the root itself: `.` is allowed too.
    DirectoryOrRoot,
}

/// A relative path in its one allowed form.
#[derive(Clone, Copy, Debug)]
pub(in crate::root) struct Checked<'a> {
    bytes: &'a [u8],
    /// It ended with a slash.
    directory: bool,
}

impl<'a> Checked<'a> {
    pub(in crate::root) fn new(operation: &'static str, path: &'a Path, meant: Meant) -> Result<Self> {
        let raw = path.as_os_str().as_bytes();
        let refuse =
            |why: &'static str| Err(Error::new(operation, path, kind_of_refused(raw)).with_detail(why));
        if raw.is_empty() {
            return refuse("path is empty");
        }
        if raw.len() > PATH_BYTES {
            return refuse("path is longer than 4095 bytes");
        }
        if raw.contains(&0) {
            return refuse("path contains a NUL byte");
        }
        if raw.starts_with(b"/") {
            return refuse("path is absolute");
        }
        if raw == b"." && meant == Meant::DirectoryOrRoot {
            return Ok(Self { bytes: raw, directory: true });
        }
        let plain = match raw.strip_suffix(b"/") {
            Some(_) if meant == Meant::Entry => return refuse("path ends with a slash"),
            Some(stripped) => stripped,
            None => raw,
        };
        for component in plain.split(|byte| *byte == b'/') {
            match component {
                b"" => return refuse("path has an empty component"),
                b"." => return refuse("path has a \".\" component"),
                b".." => return refuse("path has a \"..\" component"),
                long if long.len() > NAME_BYTES => {
                    return refuse("path has a component longer than 255 bytes");
                }
                _ => {}
            }
        }
        Ok(Self { bytes: plain, directory: plain.len() < raw.len() })
    }

    /// Whether the path can only mean a directory.
    pub(in crate::root) fn names_directory(self) -> bool {
        self.directory
    }

    /// The whole path; only `openat2` may see it.
    pub(in crate::root) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The path up to the last component, if there is one, and the last component.
    pub(in crate::root) fn split(self) -> (Option<Checked<'a>>, &'a [u8]) {
        match self.bytes.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => {
                let (parent, leaf) = self.bytes.split_at(slash);
                (Some(Self { bytes: parent, directory: true }), leaf.get(1..).unwrap_or_default())
            }
            None => (None, self.bytes),
        }
    }

    pub(in crate::root) fn components(self) -> impl Iterator<Item = &'a [u8]> {
        self.bytes.split(|byte| *byte == b'/')
    }
}

pub(in crate::root) fn subject(path: Checked<'_>) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path.bytes()))
}
