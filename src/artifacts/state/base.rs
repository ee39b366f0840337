//! What the store and the workspace had in common when this host last knew.
//!
//! Problem: whoever compares with a base of another workspace, another store or another prefix takes for deleted what was
//! never there, and whoever reads half a base takes for new what is old.
//!
//! Defence: a base is bound to one store, one prefix, one set of rules and one directory. It has a format, the features that
//! a reader must know, and a checksum. One that does not fit, or cannot be understood, is no base: then nothing is taken for
//! deleted, and equal content is found to be equal.
//!
//! What remains: the checksum finds accidents. The host's state is not protected against whoever can write to it.

use std::collections::{BTreeMap, BTreeSet};

use super::binding::Binding;
use super::version::{
    Version, decode_number, decode_time, decode_version, encode_number, encode_time, encode_version,
};
use crate::artifacts::disk::forget;
use crate::artifacts::report::Side;
use crate::error::{ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{Metadata, Root};
use crate::tree::{
    Leaf, Leaves, Stamp, Tree, decode_path, decode_reference, encode_path, encode_reference, nanoseconds,
    seal, unseal,
};

const FORMAT: &str = "beneath base 4";
/// What a reader must understand besides the format; nothing yet.
const NEEDS: &str = "needs";
const BOUND: &str = "bound";
const CONFLICT: &str = "conflict ";
const LOST: &str = "lost ";
/// What a guard measures by, by the side that it guards.
const REFERENCES: [(Side, &str); 2] = [(Side::Here, "reference-here"), (Side::There, "reference-there")];
/// Largest base read.
const BASE_MAX: u64 = 4 << 30;

/// Which file it is, whatever its name: a new file may get the inode of one that is gone, but not its time of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    inode: u64,
    /// In nanoseconds; 0 where the file system does not record it.
    born: i128,
}

impl FileId {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { inode: metadata.ino(), born: metadata.created().map_or(0, nanoseconds) }
    }
}

/// One file, and the object that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// What both had.
    pub(crate) leaf: Leaf,
    /// Which version of the object that was.
    pub(crate) version: Version,
    /// The permission bits that the file had.
    pub(crate) mode: Option<u32>,
    /// Which file it was, if that is known.
    pub(crate) file: Option<FileId>,
    /// What the file looked like, if no later change can leave it the same.
    pub(crate) stamp: Option<Box<Stamp>>,
}

type Paths = BTreeSet<GuestPath>;

/// What is known besides the two sides themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// Second versions that wait for somebody to choose, by the path that they are beside.
    pub(crate) conflicts: BTreeMap<GuestPath, GuestPath>,
    /// What the store was seen not to have in the version that is known.
    pub(crate) lost: Paths,
    /// By the side that is guarded: what there was when a loss on the other began to look like an accident.
    pub(crate) references: BTreeMap<Side, Leaves>,
}

/// All that is known, by path.
#[derive(Debug)]
pub(crate) struct Base {
    binding: Binding,
    known: BTreeMap<GuestPath, Known>,
    pub(crate) notes: Notes,
    /// Whether there is a base that does not fit.
    misfit: bool,
    /// The checksum of what is on disk.
    written: String,
    whole: bool,
}

impl Base {
    /// Reads what was written last for `binding`; empty if there is nothing that fits.
    pub(crate) fn read(state: &Root, binding: Binding) -> Result<Self> {
        let text = match state.read_contained(binding.file(), BASE_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::none(binding)),
            Err(error) => return Err(error),
        };
        let text = String::from_utf8(text).unwrap_or_default();
        let Some((known, notes)) = parse(&text, &binding) else {
            return Ok(Self { misfit: true, ..Self::none(binding) });
        };
        let written = checksum(&text);
        let whole = match state.read_contained(binding.whole_file(), 2 * written.len() as u64) {
            Ok(sum) => sum == written.as_bytes(),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        Ok(Self { known, notes, written, whole, ..Self::none(binding) })
    }

    fn none(binding: Binding) -> Self {
        let (known, notes) = (BTreeMap::new(), Notes::default());
        Self { binding, known, notes, misfit: false, written: String::new(), whole: false }
    }

    /// The same binding, with nothing known.
    pub(crate) fn emptied(&self) -> Self {
        let (notes, written, whole) = (self.notes.clone(), self.written.clone(), self.whole);
        Self { notes, written, whole, ..Self::none(self.binding.clone()) }
    }

    /// Whether there is a base of another directory, store or set of rules, or one that cannot be read.
    pub(crate) fn is_misfit(&self) -> bool {
        self.misfit
    }

    /// Whether the store had exactly what is known here when it was last looked at, and nobody has put anything since but this host.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Notes that the store has exactly what is known here. Valid only for the base as it is written now.
    pub(crate) fn vouch(&mut self, state: &Root) -> Result<()> {
        if !self.whole {
            state.replace(self.binding.whole_file(), &self.written)?;
        }
        self.whole = true;
        Ok(())
    }

    /// Notes that the store is about to become something else.
    pub(crate) fn doubt(&mut self, state: &Root) -> Result<()> {
        self.whole = false;
        // Also one that does not fit what is written now: it may fit again later.
        forget(state, self.binding.whole_file())
    }

    /// Writes what is known, unless it is on disk already.
    pub(crate) fn write(&mut self, state: &Root) -> Result<()> {
        let head = [NEEDS.to_owned(), format!("{BOUND} {}", self.binding.line())];
        let known = self.known.iter().map(|(path, known)| {
            let Known { leaf, version, mode, file, stamp } = known;
            let file = file.map_or_else(|| "-".to_owned(), |file| format!("{}:{}", file.inode, file.born));
            let stamp = stamp.as_ref().map_or_else(|| "-".to_owned(), |stamp| encode_stamp(stamp));
            let etag = encode_version(version.etag.as_deref());
            let (put_at, mode) = (encode_time(version.put_at), encode_number(*mode));
            format!("{} {} {etag} {put_at} {mode} {file} {stamp}", encode_path(path), leaf.encode())
        });
        let text = seal(FORMAT, head.into_iter().chain(self.notes.lines()).chain(known));
        let sum = checksum(&text);
        if sum != self.written {
            state.replace(self.binding.file(), text)?;
            (self.written, self.whole) = (sum, false);
        }
        Ok(())
    }

    /// What it belongs to.
    pub(crate) fn binding(&self) -> &Binding {
        &self.binding
    }

    pub(crate) fn get(&self, path: &GuestPath) -> Option<&Known> {
        self.known.get(path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GuestPath, &Known)> {
        self.known.iter()
    }

    pub(crate) fn insert(&mut self, path: GuestPath, known: Known) {
        self.notes.lost.remove(&path);
        self.known.insert(path, known);
    }

    pub(crate) fn remove(&mut self, path: &GuestPath) {
        self.known.remove(path);
        self.notes.lost.remove(path);
    }

    pub(crate) fn replace(&mut self, known: BTreeMap<GuestPath, Known>) {
        let before = std::mem::replace(&mut self.known, known);
        let version = |known: Option<&Known>| known.map(|known| known.version.clone());
        self.notes.lost.retain(|path| version(before.get(path)) == version(self.known.get(path)));
    }

    /// Whether an object of this version and size is the one that is known.
    pub(crate) fn is_at(&self, path: &GuestPath, version: &Version, size: u64) -> bool {
        self.get(path).is_some_and(|known| known.version.is(version) && known.leaf.size() == size)
    }

    /// What both had, as a tree that guards this side. What does not fit together is left out.
    pub(crate) fn tree(&self, side: Side) -> Tree {
        let mut tree = Tree::default().with_reference(self.notes.references.get(&side).cloned());
        // From the deepest: a directory that was empty may have had something in it since.
        for (path, known) in self.known.iter().rev() {
            if tree.has_room(path) {
                tree.add(path.clone(), known.leaf.clone());
            }
        }
        tree
    }
}

impl Notes {
    fn lines(&self) -> impl Iterator<Item = String> {
        let conflict = |(path, beside)| format!("{CONFLICT}{} {}", encode_path(path), encode_path(beside));
        let lost = |path| format!("{LOST}{}", encode_path(path));
        let references = REFERENCES
            .into_iter()
            .filter_map(|(side, word)| Some(encode_reference(word, self.references.get(&side)?)));
        self.conflicts.iter().map(conflict).chain(self.lost.iter().map(lost)).chain(references.flatten())
    }

    /// Takes a line that is none of a path; none if it is not understood.
    fn take(&mut self, line: &str) -> Option<()> {
        if let Some(paths) = line.strip_prefix(CONFLICT) {
            let (path, beside) = paths.split_once(' ')?;
            self.conflicts.insert(decode_path(path)?, decode_path(beside)?);
        } else if let Some(path) = line.strip_prefix(LOST) {
            self.lost.insert(decode_path(path)?);
        } else {
            let entry = |(side, word)| Some((side, line.strip_prefix(word)?));
            let (side, entry) = REFERENCES.into_iter().find_map(entry)?;
            decode_reference(entry, self.references.entry(side).or_default())?;
        }
        Some(())
    }
}

/// The last line, which is the hash of all others.
fn checksum(text: &str) -> String {
    text.lines().next_back().unwrap_or_default().to_owned()
}

fn parse(text: &str, binding: &Binding) -> Option<(BTreeMap<GuestPath, Known>, Notes)> {
    let mut lines = unseal(FORMAT, text)?.into_iter();
    if lines.next()? != NEEDS || lines.next()?.strip_prefix(BOUND)?.trim_start() != binding.line() {
        return None;
    }
    let (mut known, mut notes) = (BTreeMap::new(), Notes::default());
    for line in lines {
        if notes.take(line).is_some() {
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let path = decode_path(words.next()?).filter(|path| !path.is_top())?;
        let leaf = Leaf::decode(&mut words)?;
        let etag = decode_version(words.next()?)?;
        let version = Version { etag, put_at: decode_time(words.next()?)? };
        let mode = decode_number(words.next()?)?;
        let file = match words.next()? {
            "-" => None,
            id => {
                let (inode, born) = id.split_once(':')?;
                Some(FileId { inode: inode.parse().ok()?, born: born.parse().ok()? })
            }
        };
        let stamp = match words.next()? {
            "-" => None,
            numbers => Some(Box::new(decode_stamp(numbers)?)),
        };
        known.insert(path, Known { leaf, version, mode, file, stamp });
    }
    Some((known, notes))
}

fn encode_stamp(stamp: &Stamp) -> String {
    let Stamp { dev, ino, size, modified, changed } = stamp;
    format!("{dev}:{ino}:{size}:{modified}:{changed}")
}

fn decode_stamp(numbers: &str) -> Option<Stamp> {
    let mut parts = numbers.split(':');
    let stamp = Stamp {
        dev: parts.next()?.parse().ok()?,
        ino: parts.next()?.parse().ok()?,
        size: parts.next()?.parse().ok()?,
        modified: parts.next()?.parse().ok()?,
        changed: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::super::version::PutAt;
    use super::*;

    fn stored() -> (tempfile::TempDir, Root, Base) {
        let dir = tempfile::tempdir().unwrap();
        let state = Root::open_ambient(dir.path(), crate::ambient_authority()).unwrap();
        let mut base = Base::read(&state, Binding::for_tests("a")).unwrap();
        let leaf = Leaf::File { bytes: 3, sha256: [7; 32], execute: true };
        let stamp = Stamp { dev: 1, ino: 2, size: 3, modified: -4, changed: 5 };
        let path = |raw: &[u8]| GuestPath::try_from(raw).unwrap();
        let file = Some(FileId { inode: 2, born: -3 });
        let version = Version { etag: Some("\"e -\"".into()), put_at: Some(PutAt::By(-7)) };
        let known = Known { leaf: leaf.clone(), version, mode: Some(0o755), file, stamp: None };
        base.insert(path(b"a \xff\n/b"), Known { stamp: Some(Box::new(stamp)), ..known.clone() });
        base.insert(path(b"c"), Known { version: Version::default(), mode: None, file: None, ..known });
        base.notes.conflicts.insert(path(b"c"), path(b"c.theirs-00112233"));
        base.notes.lost.insert(path(b"c"));
        base.notes.references.insert(Side::There, Leaves::from([(path(b"d e"), leaf)]));
        base.notes.references.insert(Side::Here, Leaves::new());
        base.write(&state).unwrap();
        (dir, state, base)
    }

    #[test]
    fn base_is_read_back_as_it_was() {
        let (_dir, state, base) = stored();
        let read = Base::read(&state, Binding::for_tests("a")).unwrap();
        assert_eq!((&read.known, &read.notes), (&base.known, &base.notes));
        assert!(read.notes.references.len() == 2 && !read.is_misfit());
    }

    #[test]
    fn base_of_another_binding_is_no_base() {
        let (dir, state, _) = stored();
        assert!(Base::read(&state, Binding::for_tests("b")).unwrap().known.is_empty());
        let file = dir.path().join(Binding::for_tests("a").file());
        let text = std::fs::read_to_string(&file).unwrap();
        // Another format, a feature that nobody knows, a line that is cut off, a byte that has changed.
        let other = text.replacen("base 4", "base 5", 1);
        let lines: Vec<&str> = unseal(FORMAT, &text).unwrap();
        let needs = seal(FORMAT, lines.iter().map(|line| line.replacen("needs", "needs time-travel", 1)));
        let bits = text.replacen("07", "08", 1);
        for damaged in [&other, &needs, &text[..text.len() / 2], &bits, ""] {
            std::fs::write(&file, damaged).unwrap();
            let read = Base::read(&state, Binding::for_tests("a")).unwrap();
            assert!(read.known.is_empty() && read.notes == Notes::default() && read.is_misfit(), "{damaged}");
        }
    }
}
