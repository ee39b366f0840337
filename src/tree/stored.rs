//! Text in the host's state that is taken whole or not at all.
//!
//! Problem: half a base has fewer files, and a file that is not in the base cannot be seen to be deleted or changed. A base in
//! a format of another version may mean something else.
//!
//! Defence: the first line names the format, the last has the hash of all before it.
//!
//! What remains: the hash finds accidents. The host's state is not protected against whoever can write to it.

use sha2::{Digest as _, Sha256};

use super::contents::Tree;
use super::leaf::{Leaf, Leaves, unhex};
use crate::entropy::hex;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;

const TREE: &str = "beneath tree 3";
/// What the guard measures by; the first line says that there is something.
const REFERENCE: &str = "reference";

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

fn encode_leaf((path, leaf): (&GuestPath, &Leaf)) -> String {
    format!("{} {}", encode_path(path), leaf.encode())
}

fn decode_leaf(line: &str) -> Option<(GuestPath, Leaf)> {
    let mut words = line.split_ascii_whitespace();
    let path = decode_path(words.next()?).filter(|path| !path.is_top())?;
    Some((path, Leaf::decode(&mut words)?))
}

/// A line that says that there is a reference, and one for each leaf, each with `word` before it.
pub(crate) fn encode_reference(word: &str, leaves: &Leaves) -> impl Iterator<Item = String> {
    let entry = move |leaf| format!("{word} {}", encode_leaf(leaf));
    std::iter::once(word.to_owned()).chain(leaves.iter().map(entry))
}

/// Reads the rest of such a line after the word.
pub(crate) fn decode_reference(entry: &str, leaves: &mut Leaves) -> Option<()> {
    if !entry.is_empty() {
        let (path, leaf) = decode_leaf(entry)?;
        leaves.insert(path, leaf);
    }
    Some(())
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
        let reference = self.reference.as_ref().map(|leaves| encode_reference(REFERENCE, leaves));
        let leaves = self.leaves.iter().map(encode_leaf);
        seal(TREE, reference.into_iter().flatten().chain(leaves))
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
                if let Some(entry) = line.strip_prefix(REFERENCE) {
                    decode_reference(entry, tree.reference.get_or_insert_default())?;
                    continue;
                }
                let (path, leaf) = decode_leaf(line)?;
                tree.has_room(&path).then(|| tree.add(path, leaf))?;
            }
            Some(tree)
        };
        parse().ok_or_else(|| {
            Error::new("read tree", "base", ErrorKind::Io).with_detail("is not a whole tree of this format")
        })
    }
}
