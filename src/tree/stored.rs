//! Text in the host's state that is taken whole or not at all.
//!
//! Problem: half a base has fewer files, and a file that is not in the base cannot be seen to be deleted or changed. A base in
//! a format of another version may mean something else.
//!
//! Defence: the first line names the format, the last has the hash of all before it.
//!
//! What remains: the hash finds accidents. The host's state is not protected against whoever can write to it.

use sha2::{Digest as _, Sha256};

use super::contents::{Came, Tree};
use super::leaf::{Leaf, unhex};
use crate::entropy::hex;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;

const TREE: &str = "beneath tree 3";
const DOUBTED: &str = "doubted";
const SINCE: [(&str, Came); 2] = [("new ", Came::New), ("changed ", Came::Changed)];

/// Lines between the name of their format and a checksum.
pub(crate) fn seal(format: &str, lines: impl IntoIterator<Item = String>) -> String {
    let mut text = format!("{format}\n");
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    let sum = hex(Sha256::digest(&text));
    text.push_str(&sum);
    text.push('\n');
    text
}

/// The lines that [`seal`] was given; none if anything is missing, changed or of another format.
pub(crate) fn unseal<'t>(format: &str, text: &'t str) -> Option<Vec<&'t str>> {
    let body = text.strip_suffix('\n')?;
    let end = body.rfind('\n')? + 1;
    let (body, sum) = body.split_at_checked(end)?;
    if hex(Sha256::digest(body)) != sum {
        return None;
    }
    let mut lines = body.lines();
    (lines.next()? == format).then(|| lines.collect())
}

pub(crate) fn encode_path(path: &GuestPath) -> String {
    hex(path.as_bytes().iter().copied())
}

pub(crate) fn decode_path(word: &str) -> Option<GuestPath> {
    GuestPath::try_from(unhex(word)?.as_slice()).ok()
}

impl Tree {
    /// The tree as text, with a checksum. What was refused is not part of it.
    ///
    /// ```
    /// use beneath::tree::{Tree, TreeLimits};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// root.write_exclusive("a", "hello")?;
    /// let tree = Tree::take(&root, TreeLimits::default())?;
    /// assert_eq!(Tree::decode(tree.encode())?, tree);
    /// assert!(Tree::decode(&tree.encode()[1..]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn encode(&self) -> String {
        let doubted = self.doubted.then(|| DOUBTED.to_owned());
        let word = |came| SINCE.iter().find(|(_, other)| *other == came).map_or("", |(word, _)| word);
        let since = self.since.iter().map(|(path, came)| word(*came).to_owned() + &encode_path(path));
        let leaves =
            self.leaves.iter().map(|(path, leaf)| format!("{} {}", encode_path(path), leaf.encode()));
        seal(TREE, doubted.into_iter().chain(since).chain(leaves))
    }

    /// Reads back what [`encode`](Self::encode) returned.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it is cut off, changed, or of another format. Then there is no base: merge with
    /// [`Tree::default`], which takes nothing for deleted.
    pub fn decode(text: impl AsRef<str>) -> Result<Self> {
        let parse = || {
            let mut tree = Self::default();
            for line in unseal(TREE, text.as_ref())? {
                if line == DOUBTED {
                    tree.doubted = true;
                    continue;
                }
                let since = |(word, came)| Some((line.strip_prefix(word)?, came));
                if let Some((path, came)) = SINCE.into_iter().find_map(since) {
                    tree.since.insert(decode_path(path)?, came);
                    continue;
                }
                let mut words = line.split_ascii_whitespace();
                let path = decode_path(words.next()?).filter(|path| !path.is_top())?;
                let leaf = Leaf::decode(&mut words)?;
                tree.has_room(&path).then(|| tree.add(path, leaf))?;
            }
            Some(tree)
        };
        parse().ok_or_else(|| {
            Error::new("read tree", "base", ErrorKind::Io).with_detail("is not a whole tree of this format")
        })
    }
}
