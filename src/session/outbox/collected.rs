//! Declared files, one outcome each.
//!
//! Problem: one bad name or file must not cost the others, and a guest declares more, larger or stranger files than anybody wants.
//!
//! Defence: each name is checked and read by itself, within what the message's limits leave. Only what the guest has not caused
//! ends the whole.
//!
//! What remains: a file may change between two reads.

use std::collections::HashSet;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
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
    /// The name as it was declared; not escaped. If the content is there, it is one component and safe to show.
    pub name: String,
    /// The content, or why there is none.
    pub content: Result<T>,
}

impl<T> Collected<T> {
    /// The files that were read or opened, by name.
    pub fn found(&self) -> impl Iterator<Item = (&str, &T)> {
        self.files.iter().filter_map(|file| Some((file.name.as_str(), file.content.as_ref().ok()?)))
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
    seen: HashSet<String>,
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

    /// Takes one declared file with `take`, which gets the name and the most bytes, and gives the content and its length.
    ///
    /// # Errors
    /// What the guest has not caused, and may be different next time.
    pub(super) fn add(
        &mut self,
        raw: &str,
        take: impl FnOnce(&SafePath, u64) -> Result<(T, u64)>,
    ) -> Result<()> {
        if self.seen.contains(raw) {
            self.collected.repeated += 1;
            return Ok(());
        }
        self.seen.insert(raw.to_owned());
        let content = match self.take(raw, take) {
            Err(error) if error.is_transient() => return Err(error),
            content => content.inspect_err(|error| event::refused(self.operation, error)),
        };
        let name = (0..=raw.len().min(NAME_SHOWN)).rev().find_map(|end| raw.get(..end)).unwrap_or_default();
        self.collected.files.push(CollectedFile { name: name.to_owned(), content });
        Ok(())
    }

    fn take(&mut self, raw: &str, take: impl FnOnce(&SafePath, u64) -> Result<(T, u64)>) -> Result<T> {
        let name = one_name(raw, self.operation)?;
        let refuse = |kind, why: &'static str| Err(Error::new(self.operation, &name, kind).with_detail(why));
        if self.files_left == 0 {
            return refuse(ErrorKind::TooMany, "more files than the limit");
        }
        self.files_left -= 1;
        let limit = self.limits.file_bytes().min(self.room);
        match take(&name, limit) {
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

/// A name that may be read: one component, a dotfile included.
pub(super) fn one_name(raw: &str, operation: &'static str) -> Result<SafePath> {
    let path = SafePath::new(raw).map_err(|error| match error.kind() {
        ErrorKind::Escape => error.again(operation),
        _ => error.again(operation).with_kind(ErrorKind::InvalidName),
    })?;
    match path.depth() {
        1 => Ok(path),
        _ => Err(Error::new(operation, raw, ErrorKind::InvalidName).with_detail("is not one component")),
    }
}
