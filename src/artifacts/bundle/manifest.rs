//! What a bundle holds: one hash per file.

use std::collections::BTreeMap;

use crate::artifacts::state::unhex;
use crate::entropy::hex;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{SafeName, SafePath};
use crate::root::{FileType, Root, WalkLimits};
use crate::tree::{Digest, Hashing, ObjectLimits, Snapshot, digest};

/// The files of a bundle and their SHA-256, as the `sha256sum` tool writes them.
///
/// ```
/// use beneath::artifacts::Manifest;
///
/// let text = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824  docs/hello.txt\n";
/// let manifest = Manifest::parse(text)?;
/// assert_eq!(manifest.paths().next().unwrap().as_str(), "docs/hello.txt");
/// assert_eq!(manifest.to_text(), text);
/// assert!(Manifest::parse(&text.replace("docs", "..")).is_err());
/// # Ok::<(), beneath::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub(super) files: BTreeMap<SafePath, Digest>,
}

impl Manifest {
    /// Reads lines of a hash in lower case, two spaces and a path.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`] for a path that is no [`SafePath`] or is there twice,
    /// [`ErrorKind::Unsupported`] for a line of another form.
    pub fn parse(text: &str) -> Result<Self> {
        let mut files = BTreeMap::new();
        for line in text.lines() {
            let fields = line.split_once("  ").and_then(|(hash, path)| Some((unhex(hash)?, path)));
            let Some((hash, path)) = fields else {
                return Err(Error::new("read manifest", line, ErrorKind::Unsupported)
                    .with_detail("line is not a hash, two spaces and a path"));
            };
            let path = SafePath::new(path)?;
            if files.insert(path.clone(), hash).is_some() {
                return Err(Error::new("read manifest", &path, ErrorKind::InvalidPath)
                    .with_detail("path is there twice"));
            }
        }
        Ok(Self { files })
    }

    /// Hashes every file beneath `root`, to publish it as a bundle.
    ///
    /// # Errors
    /// The first reason that keeps a file from being part of a bundle, and those of reading.
    pub fn of(root: &Root) -> Result<Self> {
        let snapshot = Snapshot::take(root, &[], Hashing::Always)?;
        let mut files = BTreeMap::new();
        for seen in &snapshot.files {
            if let Some(digest) = seen.digest {
                files.insert(seen.path.clone(), digest);
            }
        }
        match snapshot.into_left().first.into_iter().next() {
            Some(left) => Err(left.error),
            None => Ok(Self { files }),
        }
    }

    /// The text that [`parse`](Self::parse) reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.files.iter().fold(String::new(), |mut text, (path, digest)| {
            text.push_str(&hex(*digest));
            text.push_str("  ");
            text.push_str(path.as_str());
            text.push('\n');
            text
        })
    }

    /// The files, in the order of their paths' bytes.
    pub fn paths(&self) -> impl Iterator<Item = &SafePath> {
        self.files.keys()
    }

    /// Whether the directory `path` beneath `root` holds exactly these files, with this content.
    ///
    /// What cannot be looked at, or has more than `limits` allow, is not the bundle: it is installed again, whatever a
    /// guest has put there.
    pub(super) fn matches(&self, root: &Root, path: &str, limits: &ObjectLimits) -> bool {
        let Ok(top) = root.descend(path) else { return false };
        let Ok(walk) = top.walk(".", WalkLimits::default()) else { return false };
        let mut found = 0;
        for entry in walk {
            let Ok(entry) = entry else { return false };
            match entry.metadata().file_type() {
                FileType::Directory => continue,
                FileType::File => found += 1,
                _ => return false,
            }
            let path = entry.path().to_str().and_then(|path| SafePath::new(path).ok());
            if path.is_none_or(|path| !self.files.contains_key(&path)) {
                return false;
            }
        }
        let mut left = limits.bytes;
        let mut same = |path, wanted: &Digest| match digest(&top, path, limits.file_bytes.min(left)) {
            Ok((stamp, found)) => {
                left = left.saturating_sub(stamp.size);
                found == *wanted
            }
            Err(_) => false,
        };
        found == self.files.len() && self.files.iter().all(|(path, wanted)| same(path, wanted))
    }
}

/// One version of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The name of its directory in the area.
    pub name: SafeName,
    /// Its version.
    pub version: SafeName,
    /// Its files.
    pub manifest: Manifest,
}
