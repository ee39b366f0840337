//! Declared files, one outcome each.
//!
//! Problem: one bad name or file must not cost the others, and a guest declares more, larger or stranger files than anybody wants.
//!
//! Defence: each name is checked and read by itself, within what the message's limits leave. Only what the guest has not caused
//! ends the whole.
//!
//! What remains: a file may change between two reads.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::session::event;
use crate::session::handle::config::MessageLimits;

/// The longest declared name that a report repeats.
const NAME_SHOWN: usize = 4096;

/// The result for each declared file; `T` is `Vec<u8>` or [`LimitedFile`](crate::session::LimitedFile).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "files may have been refused"]
#[non_exhaustive]
pub struct Collected<T> {
    /// One outcome for each name, in the order they were first declared.
    pub files: Vec<CollectedFile<T>>,
    /// How many declarations only repeated a name.
    pub repeated: u64,
}

/// One declared file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CollectedFile<T> {
    /// The name as it was declared; not escaped, and any bytes. Serialised as text, with what is not UTF-8 in it replaced.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub name: OsString,
    /// The content, or why there is none.
    pub content: Result<T>,
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(name: &OsStr, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&name.to_string_lossy())
}

impl<T> Collected<T> {
    /// The files that were read or opened, by name.
    pub fn found(&self) -> impl Iterator<Item = (&OsStr, &T)> {
        self.files.iter().filter_map(|file| Some((file.name.as_os_str(), file.content.as_ref().ok()?)))
    }

    /// The others, by name, and why they were not.
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.files.iter().filter_map(|file| Some((Path::new(&file.name), file.content.as_ref().err()?)))
    }

    /// Whether every declared file was read or opened.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused().next().is_none()
    }
}

/// One collection under way.
pub(super) struct Collector<T> {
    /// What the files are taken for.
    operation: &'static str,
    limits: MessageLimits,
    /// How many bytes and files the message may still have.
    room: u64,
    files_left: u64,
    seen: HashSet<OsString>,
    collected: Collected<T>,
}

impl<T> Collector<T> {
    pub(super) fn new(operation: &'static str, limits: MessageLimits) -> Self {
        Self {
            operation,
            limits,
            room: limits.message_bytes(),
            files_left: limits.files(),
            seen: HashSet::new(),
            collected: Collected { files: Vec::new(), repeated: 0 },
        }
    }

    /// Takes one declared file with `take`, which gets its name and the most bytes, and gives the content and its length.
    ///
    /// # Errors
    /// What the guest has not caused, and may be different next time.
    pub(super) fn add(
        &mut self,
        raw: &OsStr,
        name: Result<GuestPath>,
        take: impl FnOnce(&GuestPath, u64) -> Result<(T, u64)>,
    ) -> Result<()> {
        // Two spellings of one name are one file.
        let known = name.as_ref().map_or(raw, |name| name.as_ref());
        if self.seen.contains(known) {
            self.collected.repeated += 1;
            return Ok(());
        }
        self.seen.insert(known.to_owned());
        let content = match name.and_then(|name| self.take(&name, take)) {
            Err(error) if error.is_transient() => return Err(error),
            content => content.inspect_err(|error| event::refused(self.operation, error)),
        };
        let name = OsStr::from_bytes(raw.as_bytes().get(..NAME_SHOWN).unwrap_or(raw.as_bytes()));
        self.collected.files.push(CollectedFile { name: name.to_owned(), content });
        Ok(())
    }

    fn take(
        &mut self,
        name: &GuestPath,
        take: impl FnOnce(&GuestPath, u64) -> Result<(T, u64)>,
    ) -> Result<T> {
        let refuse = |kind, why: &'static str| Err(Error::new(self.operation, name, kind).with_detail(why));
        if self.files_left == 0 {
            return refuse(ErrorKind::TooMany, "more files than the limit");
        }
        self.files_left -= 1;
        let limit = self.limits.file_bytes().min(self.room);
        match take(name, limit) {
            Ok((content, length)) => {
                self.room = self.room.saturating_sub(length);
                Ok(content)
            }
            Err(error) if error.kind() == ErrorKind::TooLarge && limit < self.limits.file_bytes() => {
                refuse(ErrorKind::TooLarge, "the message is larger than the limit")
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn finish(self) -> Collected<T> {
        self.collected
    }
}

/// A name that a file in the message may have: one component.
pub(super) fn one_name(raw: &OsStr, operation: &'static str) -> Result<GuestPath> {
    let path = GuestPath::new(raw).map_err(|error| match error.kind() {
        ErrorKind::Escape => error.again(operation),
        _ => error.again(operation).with_kind(ErrorKind::InvalidName),
    })?;
    match path.depth() {
        1 => Ok(path),
        _ => Err(Error::new(operation, raw, ErrorKind::InvalidName).with_detail("is not one component")),
    }
}
