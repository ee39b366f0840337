//! One entry of a tree, known by its content.
//!
//! Problem: whether a guest has changed a file must be known before the file is replaced or removed, and times, sizes and
//! inodes can be made to say that it has not.
//!
//! Defence: an entry is compared by kind, content and the bit to execute. Content is hashed from an open handle.
//!
//! What remains: a file that is written while it is hashed has the hash of a mix. It equals nothing that anybody expects.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::entropy::hex;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{ContainedFile, FileType, Metadata, Root};

const OPERATION: &str = "look at tree";

/// What a tree has, by path.
pub(crate) type Leaves = BTreeMap<GuestPath, Leaf>;

/// An entry that contains no other entry. Directories with something in them follow from the paths of what they contain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Leaf {
    /// A regular file.
    File {
        /// Its size.
        bytes: u64,
        /// The SHA-256 of its content.
        sha256: [u8; 32],
        /// Whether its owner may execute it.
        execute: bool,
    },
    /// A link, and where it points.
    Link {
        /// The text, any bytes.
        text: Vec<u8>,
    },
    /// An empty directory.
    Directory,
}

impl Leaf {
    /// What is at `path`, if anything, and if it is no directory with something in it.
    ///
    /// A file of more than `max_bytes` is refused. `seen` is what is known of the entry already.
    pub(super) fn look(root: &Root, path: &Path, seen: FileType, max_bytes: u64) -> Result<Self> {
        match seen {
            FileType::File => Self::file(root, path, max_bytes),
            FileType::Symlink => Ok(Self::Link { text: root.read_link(path)?.into_os_string().into_vec() }),
            FileType::Directory => Ok(Self::Directory),
            _ => Err(Error::new(OPERATION, path, ErrorKind::NotRegular)),
        }
    }

    /// What has the name `path` now: none if nothing has. A directory is always [`Leaf::Directory`].
    pub(crate) fn at(root: &Root, path: &Path, max_bytes: u64) -> Result<Option<Self>> {
        let seen = match root.metadata(path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Symlink => FileType::Symlink,
            Err(error) => return Err(error),
        };
        Self::look(root, path, seen, max_bytes).map(Some)
    }

    fn file(root: &Root, path: &Path, max_bytes: u64) -> Result<Self> {
        Self::read(root.open_contained(path)?, path, max_bytes)
    }

    /// What an open file is, which has the name `path`.
    pub(crate) fn read(mut file: ContainedFile, path: &Path, max_bytes: u64) -> Result<Self> {
        let too_large = || Error::new(OPERATION, path, ErrorKind::TooLarge);
        let execute = executable(file.metadata());
        if file.len_hint() > max_bytes {
            return Err(too_large());
        }
        let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0_u64, vec![0; 64 << 10]);
        loop {
            let read = match file.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::from_io(OPERATION, path, error)),
            };
            match buffer.get(..read) {
                Some([]) | None => return Ok(Self::File { bytes, sha256: hash.finalize().into(), execute }),
                Some(part) => hash.update(part),
            }
            bytes = bytes.saturating_add(read as u64);
            // A guest may let it grow faster than it is read.
            if bytes > max_bytes {
                return Err(too_large());
            }
        }
    }

    /// The same without the bit to execute: whoever has this has the content.
    pub(crate) fn content(&self) -> Self {
        match self {
            Self::File { bytes, sha256, .. } => Self::File { bytes: *bytes, sha256: *sha256, execute: false },
            other => other.clone(),
        }
    }

    /// Eight digits that say which content this is, so that the same content gets the same name again.
    pub(crate) fn tag(&self) -> String {
        let digest: [u8; 32] = match self {
            Self::File { sha256, .. } => *sha256,
            Self::Link { text } => Sha256::digest(text).into(),
            Self::Directory => Sha256::digest("/").into(),
        };
        hex(digest.into_iter().take(4))
    }

    /// What follows from two leaves that differ in nothing but the bit to execute.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => *bytes,
            Self::Link { text } => text.len() as u64,
            Self::Directory => 0,
        }
    }

    /// Four words without blanks in them.
    pub(crate) fn encode(&self) -> String {
        match self {
            Self::File { bytes, sha256, execute } => {
                let kind = if *execute { "x" } else { "f" };
                format!("{kind} {bytes} {}", hex(*sha256))
            }
            Self::Link { text } => format!("l {} {}", text.len(), hex(text.iter().copied())),
            Self::Directory => "d 0 -".to_owned(),
        }
    }

    pub(crate) fn decode(words: &mut std::str::SplitAsciiWhitespace<'_>) -> Option<Self> {
        let (kind, bytes, content) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        match kind {
            "f" | "x" => {
                let sha256 = unhex(content)?.try_into().ok()?;
                Some(Self::File { bytes, sha256, execute: kind == "x" })
            }
            "l" => unhex(content).filter(|text| text.len() as u64 == bytes).map(|text| Self::Link { text }),
            "d" => (content == "-").then_some(Self::Directory),
            _ => None,
        }
    }

    /// Makes the link at `path`, which must be free; nothing for what is no link.
    pub(crate) fn make(&self, root: &Root, path: impl AsRef<Path>) -> Result<()> {
        match self {
            Self::Link { text } => root.symlink(Path::new(std::ffi::OsStr::from_bytes(text)), path),
            Self::File { .. } | Self::Directory => Ok(()),
        }
    }
}

fn executable(metadata: &Metadata) -> bool {
    metadata.mode() & 0o100 != 0
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    digits
        .chunks_exact(2)
        .map(|pair| u8::try_from(pair.iter().fold(0, |sum, digit| sum * 16 + digit)).ok())
        .collect()
}
