//! What an operation is about: what it needs at its path, and what is different afterwards.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// What a call is meant to do, and so what may be different afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing changes.
    Reads,
    /// A file with the data appears at the path.
    Creates,
    /// A file with the data takes the place of what is at the path.
    Replaces,
    /// A link with [`TEXT`](super::TEXT) appears at the path.
    Links,
    /// Directories appear at the path.
    MakesDirectories,
    /// What is at the path gets another name.
    MovesAway,
    /// Something else gets the path as its name.
    MovesHere,
    /// The same, and what was at the path goes.
    MovesOver,
    /// Something else and what is at the path change places.
    Exchanges,
    /// A file with the content of the one at the path appears elsewhere.
    CopiesAway,
    /// A file with the content of another appears at the path.
    CopiesHere,
    /// The entry at the path goes.
    RemovesEntry,
    /// What is at the path gets [`ACCESS`](super::ACCESS).
    SetsAccess,
    /// The directory at the path goes, with everything in it.
    RemovesTree,
}

impl Effect {
    /// Whether something gets another name.
    pub fn moves(self) -> bool {
        matches!(self, Self::MovesAway | Self::MovesHere | Self::MovesOver | Self::Exchanges)
    }

    pub fn copies(self) -> bool {
        matches!(self, Self::CopiesAway | Self::CopiesHere)
    }

    /// Whether a file appears, whole or not at all.
    pub fn writes(self) -> bool {
        self.copies() || matches!(self, Self::Creates | Self::Replaces)
    }

    /// Whether the other end of a move or a copy is where something comes from.
    pub fn brings(self) -> bool {
        matches!(self, Self::MovesHere | Self::MovesOver | Self::Exchanges | Self::CopiesHere)
    }
}

/// What a path may mean to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A file, so no trailing slash.
    File,
    /// A directory.
    Directory,
    Entry,
}

/// What is at the path when an operation is to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    Absent,
    File,
    /// A link to a file beside it, whose name is the first line of its content.
    Link,
    EmptyDirectory,
    /// With files, directories, a link and a FIFO in it.
    Directory,
}

impl Leaf {
    /// Makes it, with no more in a directory than a file and another directory.
    pub(crate) fn build(self, path: &Path, content: &str) -> io::Result<()> {
        match self {
            Self::Absent => Ok(()),
            Self::File => fs::write(path, content),
            Self::Link => {
                let name = content.lines().next().unwrap_or_default();
                fs::write(path.with_file_name(name), content)?;
                symlink(name, path)
            }
            Self::EmptyDirectory => fs::create_dir(path),
            Self::Directory => {
                fs::create_dir_all(path.join("sub"))?;
                fs::write(path.join("a"), content)
            }
        }
    }
}
