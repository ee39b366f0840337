//! What a merge needs to know if the host dies.
//!
//! Problem: a host that dies right after an exchange has not looked at what came out. It may be a version that nobody has
//! seen, and whoever sweeps it away loses it.
//!
//! Defence: before the first exchange the journal says, for each slot, which path it is for, what was expected there, and
//! what was put into it. After a crash the content of a slot says how far its step came:
//!
//! | in the slot | |
//! |---|---|
//! | nothing | the step had not begun, or had nothing to take out |
//! | what was put into it | the step had not begun |
//! | what was expected at the path | the step is done |
//! | anything else | it was not seen when the merge was planned: it goes back to its path, or beside |
//!
//! Each of these is one rename that replaces nothing, so that a crash during the recovery changes nothing about it. The
//! merge that follows starts afresh and finds what is done to be equal.
//!
//! What remains: a journal of another version stops the merge, since only that version knows what its slots mean.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::beside::{TRIES, Whose, beside};
use super::leaf::Leaf;
use super::plan::Keep;
use super::stored::{decode_path, encode_path, seal, unseal};
use crate::entropy::unguessable;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{HardLinks, Root};

const FORMAT: &str = "beneath merge 1";
const JOURNAL: &str = "journal";
const JOURNAL_MAX: u64 = 4 << 30;
/// Where the slots are, in the host's directory.
pub(super) const SLOTS: &str = "merge";
const OPERATION: &str = "merge";

/// A place for one version that arrives or leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    number: usize,
    pub(super) path: GuestPath,
    /// What the step takes away.
    expected: Option<Leaf>,
    /// What the step brings.
    staged: Option<Leaf>,
    keep: Keep,
}

/// What was done about the content of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// There was none, or none that counts.
    AsPlanned,
    /// It is at its path again.
    Back,
    /// It has this name.
    Beside(GuestPath),
}

impl Slot {
    pub(super) fn new(
        number: usize,
        path: &GuestPath,
        expected: Option<&Leaf>,
        staged: Option<&Leaf>,
        keep: Keep,
    ) -> Self {
        Self { number, path: path.clone(), expected: expected.cloned(), staged: staged.cloned(), keep }
    }

    /// Its name among the slots.
    pub(super) fn name(&self) -> PathBuf {
        self.number.to_string().into()
    }

    /// The name for what leaves where the file system cannot exchange.
    pub(super) fn out(&self) -> PathBuf {
        format!("{}.out", self.number).into()
    }

    /// Brings what came out, and was not expected, back to its path or beside it.
    pub(super) fn settle(&self, slots: &Root, ours: &Root) -> Result<Settled> {
        let mut settled = Settled::AsPlanned;
        // A larger file is neither of them, and need not be read.
        let max_bytes =
            [&self.expected, &self.staged].into_iter().flatten().map(Leaf::size).max().unwrap_or(0);
        for name in [self.name(), self.out()] {
            // What cannot be read was not expected either.
            let found = match Leaf::at(slots, &name, max_bytes) {
                Ok(None) => continue,
                Ok(found) => found,
                Err(_) => None,
            };
            let is_staged = name == self.name() && self.staged.is_some() && found == self.staged;
            let as_expected = self.expected.is_some() && found == self.expected;
            let half_done = name == self.out() && slots.try_exists(self.name())?;
            if is_staged || (as_expected && self.keep == Keep::InTrash && !half_done) {
                continue;
            }
            // Only where nothing has come to the path in its place.
            if self.staged.is_none() || half_done {
                match slots.rename_to(&name, ours, &self.path) {
                    Ok(()) => {
                        settled = Settled::Back;
                        continue;
                    }
                    Err(error) if gives_way(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            let second = Second { whose: Whose::Ours, leaf: found, shared: &|_| false };
            settled = Settled::Beside(put_beside(slots, &name, ours, &self.path, &second)?);
        }
        Ok(settled)
    }

    fn encode(&self) -> String {
        let leaf = |leaf: &Option<Leaf>| leaf.as_ref().map_or_else(|| "- 0 -".to_owned(), Leaf::encode);
        let keep = match self.keep {
            Keep::InTrash => "trash",
            Keep::Beside => "beside",
        };
        let Self { number, path, expected, staged, .. } = self;
        format!("{number} {keep} {} {} {}", encode_path(path), leaf(expected), leaf(staged))
    }

    fn decode(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        let keep = match words.next()? {
            "trash" => Keep::InTrash,
            "beside" => Keep::Beside,
            _ => return None,
        };
        let path = decode_path(words.next()?)?;
        let mut leaf = || {
            let mut ahead = words.clone();
            if ahead.next()? == "-" {
                words.nth(2)?;
                return Some(None);
            }
            Leaf::decode(&mut words).map(Some)
        };
        Some(Self { number, path, expected: leaf()?, staged: leaf()?, keep })
    }
}

/// Whether the name, or the way to it, is taken by something else.
pub(super) fn gives_way(error: &Error) -> bool {
    use ErrorKind::{AlreadyExists, NotDirectory, NotFound, NotRegular, Symlink};
    matches!(error.kind(), AlreadyExists | NotDirectory | NotFound | NotRegular | Symlink)
}

/// What gets a name beside.
pub(super) struct Second<'s> {
    pub(super) whose: Whose,
    /// What it is, if it could be read.
    pub(super) leaf: Option<Leaf>,
    /// Whether a name will do that has the same content already. Not one that the merge is about to change.
    pub(super) shared: &'s dyn Fn(&GuestPath) -> bool,
}

/// Moves what has the name `from` to a free name beside `path`. Where that cannot be, since the guest does not let the host into the
/// directory or the path is too long, to one at the top.
pub(super) fn put_beside(
    slots: &Root,
    from: &Path,
    ours: &Root,
    path: &GuestPath,
    second: &Second<'_>,
) -> Result<GuestPath> {
    let random = || unguessable().map_err(|errno| Error::from_errno(OPERATION, path, errno));
    let tag = match &second.leaf {
        Some(leaf) => leaf.tag(),
        None => random()?.chars().take(8).collect(),
    };
    let place = |path: &GuestPath| {
        let reached = reachable(ours, path, second.whose, &tag)?;
        for number in 0..TRIES {
            // In a directory beside the one it is meant for it keeps its name, if that is free.
            let name = match number {
                0 if reached != *path => reached.clone(),
                number => beside(&reached, second.whose, &tag, number)?,
            };
            match slots.rename_to(from, ours, &name) {
                Ok(()) => return Ok(name),
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                Err(_) if second.is_at(ours, &name) => return Ok(name),
                Err(_) => {}
            }
        }
        let name = beside(&reached, second.whose, &random()?, 0)?;
        slots.rename_to(from, ours, &name).map(|()| name)
    };
    place(path).or_else(|error| {
        let name = path.file_name().unwrap_or_default();
        GuestPath::top().join(name).and_then(|top| place(&top)).map_err(|_| error)
    })
}

impl Second<'_> {
    /// Whether `name` has this content already, and keeps it.
    fn is_at(&self, ours: &Root, name: &GuestPath) -> bool {
        match &self.leaf {
            None | Some(Leaf::Directory) => false,
            Some(leaf) => {
                let found = || Leaf::at(ours, name.as_path(), leaf.size());
                (self.shared)(name) && found().is_ok_and(|found| found.as_ref() == Some(leaf))
            }
        }
    }
}

/// `path` with its directories made; where something else is in their way, with a directory beside that.
pub(super) fn reachable(ours: &Root, path: &GuestPath, whose: Whose, tag: &str) -> Result<GuestPath> {
    let Some(parent) = path.parent().filter(|parent| !parent.is_top()) else { return Ok(path.clone()) };
    match ours.ensure_dir(&parent) {
        Ok(_) => return Ok(path.clone()),
        Err(error) if gives_way(&error) => {}
        Err(error) => return Err(error),
    }
    let mut above: Vec<GuestPath> =
        std::iter::successors(Some(parent), GuestPath::parent).filter(|above| !above.is_top()).collect();
    above.reverse();
    let blocked =
        above.iter().find(|above| !ours.metadata(above.as_path()).is_ok_and(|found| found.is_dir()));
    let Some(blocked) = blocked else { return Ok(path.clone()) };
    let rest = path.strip_prefix(blocked).unwrap_or_default();
    for number in 0..TRIES {
        let path = beside(blocked, whose, tag, number)?.join(&rest)?;
        match ours.ensure_dir(path.parent().unwrap_or_default()) {
            Ok(_) => return Ok(path),
            Err(error) if gives_way(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(OPERATION, path, ErrorKind::AlreadyExists).with_detail("every name beside it is taken"))
}

/// Writes the journal, after which the slots mean something.
pub(super) fn write(slots: &Root, all: &[Slot]) -> Result<()> {
    slots.write_exclusive(JOURNAL, seal(FORMAT, all.iter().map(Slot::encode)))
}

/// Ends what a host that died has begun. What came back, or has another name now, by path.
///
/// # Errors
/// `Unsupported` for a journal of another format; then nothing is touched.
pub(super) fn recover(work: &Root, trash: &Root, ours: &Root) -> Result<Vec<(GuestPath, Settled)>> {
    let slots = match work.descend(SLOTS) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        slots => slots?,
    };
    let policy = slots.policy().clone().with_hard_links(HardLinks::Allow);
    let slots = slots.with_policy(policy);
    let text = match slots.read_contained(JOURNAL, JOURNAL_MAX) {
        // Nothing was moved yet.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return discard(work, trash).map(|()| Vec::new());
        }
        text => text?,
    };
    let lines = str::from_utf8(&text).ok().and_then(|text| unseal(FORMAT, text));
    let all: Option<Vec<Slot>> = lines.and_then(|lines| lines.into_iter().map(Slot::decode).collect());
    let Some(all) = all else {
        return Err(Error::new(OPERATION, JOURNAL, ErrorKind::Unsupported)
            .with_detail("journal of a merge is of another format, or was changed"));
    };
    let mut found = Vec::new();
    for slot in all {
        match slot.settle(&slots, ours)? {
            Settled::AsPlanned => {}
            settled => found.push((slot.path, settled)),
        }
    }
    discard(work, trash)?;
    Ok(found)
}

/// Moves the slots to the trash, as one.
pub(super) fn discard(work: &Root, trash: &Root) -> Result<()> {
    let name = unguessable().map_err(|errno| Error::from_errno(OPERATION, SLOTS, errno))?;
    work.rename_to(SLOTS, trash, displaced_name(&name))
}

/// How long what was displaced is kept in the trash.
pub(crate) const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The name in the trash of what was displaced.
pub(crate) fn displaced_name(number: &str) -> String {
    format!("{SLOTS}-{number}")
}

/// Whether it is one of these.
pub(crate) fn is_displaced(name: &OsStr) -> bool {
    name.as_encoded_bytes().strip_prefix(SLOTS.as_bytes()).is_some_and(|rest| rest.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_read_as_it_was_written() {
        let file = Leaf::File { bytes: 3, sha256: [7; 32], execute: true };
        let link = Leaf::Link { text: b"a \n\xff".to_vec() };
        let path = GuestPath::try_from(&b"a b/\xff\n"[..]).unwrap();
        for (expected, staged) in
            [(None, None), (Some(&file), None), (None, Some(&link)), (Some(&Leaf::Directory), Some(&file))]
        {
            let slot = Slot::new(12, &path, expected, staged, Keep::Beside);
            assert_eq!(Slot::decode(&slot.encode()), Some(slot));
        }
        assert_eq!(Slot::decode("1 trash"), None);
        assert_eq!(Slot::decode("1 other 61 - 0 - - 0 -"), None);
    }

    #[test]
    fn text_that_was_cut_or_changed_is_none() {
        let text = seal(FORMAT, ["1 trash 61 - 0 - - 0 -".to_owned()]);
        assert!(unseal(FORMAT, &text).is_some());
        for end in 0..text.len() {
            assert_eq!(unseal(FORMAT, &text[..end]), None, "{end}");
        }
        assert_eq!(unseal("beneath merge 2", &text), None);
        assert_eq!(unseal(FORMAT, &text.replace("61", "62")), None);
    }

    /// Whatever a crash left in a slot, each version is somewhere afterwards, and a second recovery finds nothing to do.
    #[test]
    fn what_nobody_has_seen_is_put_back_or_beside() {
        let text = |text: &[u8]| {
            use sha2::Digest as _;
            let sha256 = sha2::Sha256::digest(text).into();
            Leaf::File { bytes: text.len() as u64, sha256, execute: false }
        };
        let (expected, staged) = (text(b"expected"), text(b"staged"));
        let steps = [
            (Some(&expected), None, Keep::InTrash),
            (Some(&expected), Some(&staged), Keep::InTrash),
            (Some(&expected), Some(&staged), Keep::Beside),
            (None, Some(&staged), Keep::InTrash),
        ];
        let contents = ["", "expected", "staged", "unseen", "directory", "link"];
        let cases = steps.iter().flat_map(|step| contents.iter().map(move |slot| (step, slot)));
        let cases = cases.flat_map(|case| contents.iter().map(move |out| (case, out)));
        let cases = cases.flat_map(|case| [false, true].map(|taken| (case, taken)));
        for (((step, slot), out), taken) in cases {
            let case = format!("{step:?}, slot {slot:?}, out {out:?}, taken {taken}");
            let dir = tempfile::tempdir().unwrap();
            let open = |name: &str| {
                std::fs::create_dir(dir.path().join(name)).unwrap();
                Root::open_ambient(dir.path().join(name), cap_std::ambient_authority()).unwrap()
            };
            let (work, trash, ours) = (open("work"), open("trash"), open("ours"));
            work.ensure_dir(SLOTS).unwrap();
            let slots = work.descend(SLOTS).unwrap();
            let path = GuestPath::new("d/a.txt").unwrap();
            let (expected, staged, keep) = *step;
            let record = Slot::new(3, &path, expected, staged, keep);
            for (name, content) in [(record.name(), slot), (record.out(), out)] {
                match *content {
                    "" => {}
                    "directory" => drop(slots.ensure_dir(name.join("inside")).unwrap()),
                    "link" => slots.symlink("unseen", name).unwrap(),
                    content => slots.write_exclusive(name, content).unwrap(),
                }
            }
            if taken {
                ours.ensure_dir("d").unwrap();
                ours.write_exclusive(&path, "guest").unwrap();
            }
            write(&slots, &[record]).unwrap();
            let found = recover(&work, &trash, &ours).unwrap();
            for (name, settled) in found {
                let place = if let Settled::Beside(place) = settled { place } else { name };
                assert!(ours.try_exists(&place).unwrap(), "{place}: {case}");
            }
            let count = |kind: &dyn Fn(&crate::root::Entry) -> bool| {
                let walk = ours.walk(".", crate::root::WalkLimits::default()).unwrap();
                walk.filter(|entry| kind(entry.as_ref().unwrap())).count()
            };
            let wanted = |kind: &str| [slot, out].into_iter().filter(|content| **content == kind).count();
            let unseen = count(&|entry| entry.metadata().is_file() && entry.metadata().len() == 6);
            // What was staged has the same size, and nobody has seen it in the place for what leaves.
            let odd = usize::from(**out == *"staged") + usize::from(**slot == *"staged" && staged.is_none());
            // The same content twice needs one name only.
            assert!(unseen >= usize::from(wanted("unseen") + odd > 0), "{case}");
            assert_eq!(count(&|entry| entry.file_name() == "inside"), wanted("directory"), "{case}");
            assert!(
                count(&|entry| entry.metadata().is_symlink()) >= usize::from(wanted("link") > 0),
                "{case}"
            );
            assert!(!taken || ours.read_contained(&path, 64).unwrap() == b"guest", "{case}");
            assert!(!work.try_exists(SLOTS).unwrap(), "{case}");
            assert_eq!(recover(&work, &trash, &ours).unwrap(), [], "{case}");
        }
    }
}
