//! The rules every round is held to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::report::Report;
use super::scenario::Scenario;
use super::{CANARY, data};
use crate::operations::{ACCESS, COPY, Effect, TEXT};
use crate::snapshot::{Entry, Snapshot, is_temporary};

/// The mode that the policy gives to files.
const PRIVATE: u32 = 0o600;

/// What a round looked like.
pub struct Round<'a> {
    pub scenario: &'a Scenario,
    /// The inodes that the call is about, by their names as it began.
    pub source: BTreeMap<&'static str, u64>,
    /// The guest's tree before the attack, between attacks if there are several, and just after the last one. One state
    /// alone is both before and after.
    pub seen: &'a [Snapshot],
    pub end: &'a Snapshot,
    /// The canary before and after.
    pub outside: [&'a Snapshot; 2],
    pub leniency: Leniency,
}

/// Where the attack itself takes a promise away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leniency {
    /// The guest took hold of the temporary file, which it may do to a published one as well.
    pub temporary_taken: bool,
    /// Names of ours may be left: the guest made them, or forbade their removal, or the host was killed.
    pub leftovers: bool,
    /// An error may come after the file was published.
    pub late_error: bool,
    /// The kernel was made to say that something is gone.
    pub said_gone: bool,
    /// Publishing goes by a temporary name.
    pub by_name: bool,
    /// A rename is a link and an unlink here, so what the guest puts at either name in between may go.
    pub two_steps: bool,
    /// `Io` is the right kind for what was injected.
    pub io_error: bool,
}

impl Round<'_> {
    /// Every broken rule, in words. Without a report the victim was killed.
    pub fn violations(&self, report: Option<&Report>) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(change) = self.outside[0].difference(self.outside[1]) {
            found.push(format!("escape: {change}"));
        }
        // A removal that says it is incomplete may leave what it has renamed.
        let admitted = report.is_some_and(|report| report.succeeded() && report.incomplete);
        self.judge_tree(self.leniency.leftovers || admitted, &mut found);
        if let Some(report) = report {
            self.judge_report(report, &mut found);
        }
        found
    }

    fn judge_report(&self, report: &Report, found: &mut Vec<String>) {
        found.extend(report.faults());
        if !self.leniency.io_error {
            found.extend(report.untyped());
        }
        let may_be_read = |data: &str| self.may_be_read(data.as_bytes(), &|_| true);
        if let Some(data) = report.data.iter().find(|data| !data.contains(CANARY) && !may_be_read(data)) {
            found.push(format!("wrong data: {} bytes, {data:.40?}", data.len()));
        }
        for (path, ino) in &report.entries {
            if !self.seen.iter().any(|tree| tree.has_ino(*ino)) {
                found.push(format!("escape: {path:?} describes an inode that was never in the tree"));
            }
        }
        if report.succeeded() {
            let removes = self.scenario.effect == Effect::RemovesTree;
            let excused = report.incomplete || removes && self.leniency.said_gone;
            let was_done = self.earlier().iter().any(|tree| self.done(tree));
            if !was_done && !self.done(self.end) && !excused {
                found.push("success without the effect".into());
            }
        }
        for (kind, error) in &report.errors {
            // Where a rename goes by name, only a look afterwards shows whether the file is ours or the guest's.
            let by_name = self.scenario.effect == Effect::Replaces || self.leniency.by_name;
            let fair = by_name && kind == "Busy";
            let published = (self.scenario.effect.writes() || self.scenario.effect == Effect::Links)
                && !fair
                && !self.leniency.late_error
                && !self.leniency.temporary_taken
                && self.done(self.end);
            if published {
                found.push(format!("published, yet reported: {error}"));
            }
        }
    }

    fn attacked(&self) -> &Snapshot {
        &self.seen[self.seen.len() - 1]
    }

    fn earlier(&self) -> &[Snapshot] {
        &self.seen[..(self.seen.len() - 1).max(1)]
    }

    /// A reader may see a file as it was before or after the attack, or the part that both share; or the text of a link.
    fn may_be_read(&self, data: &[u8], wanted: &dyn Fn(&Entry) -> bool) -> bool {
        let all = |trees: &[Snapshot]| -> Vec<Entry> {
            let entries = trees.iter().flat_map(Snapshot::iter).map(|(_, entry)| entry);
            entries.filter(|entry| wanted(entry)).cloned().collect()
        };
        let has = |entry: &Entry| entry.content.as_deref() == Some(data);
        if all(self.seen).iter().any(has) {
            return true;
        }
        let files = |trees: &[Snapshot]| all(trees).into_iter().filter(Entry::is_file);
        let begins = |entry: Entry| entry.content.is_some_and(|content| content.starts_with(data));
        let cut_to = files(&[self.attacked().clone()]).map(|entry| entry.size).min();
        self.earlier().iter().any(|tree| tree != self.attacked())
            && cut_to.is_some_and(|cut_to| data.len() as u64 >= cut_to)
            && files(self.earlier()).any(begins)
    }

    fn judge_tree(&self, leftovers: bool, found: &mut Vec<String>) {
        for (path, entry) in self.end.iter() {
            match self.attacked().with_ino(entry.ino) {
                _ if is_temporary(path) => {
                    found.extend((!leftovers).then(|| format!("leftover: {}", path.display())));
                }
                // The guest's own thing, moved by a rename that went by name.
                Some((old, _)) if is_temporary(old) && self.leniency.temporary_taken => {}
                Some((old, known)) if !is_temporary(old) => self.judge_known(path, known, entry, found),
                _ => {
                    let wrong = self.wrong_with_new(path, entry);
                    found.extend(wrong.map(|wrong| format!("{wrong}: {}", path.display())));
                }
            }
        }
        let may_go = self.may_go();
        // The copy of a tree goes again before the call ends.
        let copy = Path::new("host").join(COPY);
        for (path, entry) in self.attacked().iter().filter(|(path, _)| !path.starts_with(&copy)) {
            if !self.end.has_ino(entry.ino) && !may_go.contains(&entry.ino) {
                found.push(format!("lost: {}", path.display()));
            }
        }
    }

    fn judge_known(&self, path: &Path, old: &Entry, entry: &Entry, found: &mut Vec<String>) {
        // A draft that the guest has given a name, and that the host goes on writing through its handle.
        let is_draft = entry.is_file() && self.seen.iter().any(|tree| tree.is_named_by_us(entry.ino));
        let shown = path.display();
        if old.content != entry.content && !is_draft {
            found.push(format!("changed: {shown}"));
        }
        let gets_mode = match self.scenario.effect {
            // A directory that the guest swaps in under a name just made gets that name's mode.
            Effect::RemovesTree | Effect::MakesDirectories => entry.is_dir() && entry.mode & 0o7777 == 0o700,
            Effect::SetsAccess => has_access(entry),
            _ => is_draft && self.modes().contains(&(entry.mode & 0o7777)),
        };
        if old.mode != entry.mode && !gets_mode {
            found.push(format!("mode {:o} became {:o}: {shown}", old.mode, entry.mode));
        }
    }

    /// What is wrong with an entry that was not there when the attack was over.
    fn wrong_with_new(&self, path: &Path, entry: &Entry) -> Option<String> {
        let content = entry.content.as_deref().unwrap_or_default();
        let is_at_its_place = self.is_where_it_is_made(self.end, path);
        match self.scenario.effect {
            Effect::MakesDirectories => {
                let fits = ["leaf", "deep", "p", "g"].iter().any(|name| is_named(path, name));
                (!entry.is_dir() || !fits).then(|| "unexpected".into())
            }
            Effect::Links if is_at_its_place && entry.is_link() => {
                (content != TEXT.as_bytes()).then(|| "with another text".into())
            }
            effect if is_at_its_place && effect.writes() && entry.is_file() => {
                if String::from_utf8_lossy(content).contains(CANARY) {
                    return Some("escape: a copy of the canary".into());
                }
                match (self.is_whole(entry), self.modes().contains(&(entry.mode & 0o7777))) {
                    (true, false) => Some(format!("published with mode {:o}", entry.mode)),
                    (false, _) if !self.leniency.temporary_taken => {
                        Some(format!("torn, with {} bytes", entry.size))
                    }
                    _ => None,
                }
            }
            _ => Some("unexpected".into()),
        }
    }

    /// Whether a file has all that the call was to write.
    fn is_whole(&self, entry: &Entry) -> bool {
        let content = entry.content.as_deref().unwrap_or_default();
        match self.scenario.ends() {
            Some((from, _)) => {
                let candidates = self.candidates(from);
                self.may_be_read(content, &|entry| candidates.contains(&entry.ino))
            }
            None => content == data().as_bytes(),
        }
    }

    /// The permission bits that a new file may have.
    ///
    /// A replacement has those of the file that was at its name, and a copy no more than to be executed. No other bits are kept,
    /// and where there was no file at any moment there are none to keep.
    fn modes(&self) -> BTreeSet<u32> {
        let (copies, keeps) = (self.scenario.effect.copies(), self.scenario.keeps_mode);
        if !copies && !keeps {
            return BTreeSet::from([PRIVATE]);
        }
        let [from, _] = self.ends();
        let homes = self.homes(&from);
        let mut modes = BTreeSet::from_iter((keeps && self.leniency.said_gone).then_some(PRIVATE));
        for tree in self.seen {
            for (dir, _) in homes.iter().filter_map(|home| tree.with_ino(*home)) {
                let name = from.file_name().unwrap_or_default();
                match tree.get(dir.join(name)).filter(|entry| entry.is_file()) {
                    Some(old) if copies => modes.insert(PRIVATE | old.mode & 0o100),
                    Some(old) => modes.insert(old.mode & 0o777),
                    None => keeps && modes.insert(PRIVATE),
                };
            }
        }
        modes
    }

    /// Where the call finds what it works with, and where it makes what it makes, relative to the scene.
    fn ends(&self) -> [PathBuf; 2] {
        let effect = self.scenario.effect;
        let [path, other] =
            [Path::new(self.scenario.path), effect.other_end()].map(|end| Path::new("root").join(end));
        match effect {
            Effect::MovesAway | Effect::CopiesAway => [path, other],
            _ if effect.brings() => [other, path],
            _ => [path.clone(), path],
        }
    }

    /// The directories that were above this path at some moment.
    fn homes(&self, path: &Path) -> BTreeSet<u64> {
        let parent = path.parent().unwrap_or(path);
        let found = self.seen.iter().filter_map(|tree| tree.get(parent)).filter(|home| home.is_dir());
        found.map(|home| home.ino).collect()
    }

    /// Whether what is at this path may have been made there by the call.
    fn is_where_it_is_made(&self, tree: &Snapshot, path: &Path) -> bool {
        let [_, to] = self.ends();
        // Between two roots the other one is the host's.
        let places = [Path::new("host").join(to.file_name().unwrap_or_default()), to];
        let home = path.parent().and_then(|parent| tree.get(parent));
        places.iter().any(|place| {
            path.file_name() == place.file_name()
                && home.is_some_and(|home| self.homes(place).contains(&home.ino))
        })
    }

    /// The inodes that the call was asked to remove, wherever the attack has put them.
    fn may_go(&self) -> BTreeSet<u64> {
        let ends = self.scenario.ends().filter(|_| self.leniency.two_steps);
        let doomed = |tree: &Snapshot, path: &Path| match self.scenario.effect {
            Effect::Replaces | Effect::RemovesEntry | Effect::MovesOver => {
                self.is_where_it_is_made(tree, path)
            }
            Effect::RemovesTree => {
                path.starts_with(Path::new("root").join(self.scenario.path))
                    || path.ancestors().any(is_temporary)
            }
            _ => ends.is_some_and(|(from, to)| is_named(path, from) || is_named(path, to)),
        };
        let entries =
            self.seen.iter().flat_map(|tree| tree.iter().map(move |(path, entry)| (tree, path, entry)));
        entries
            .filter(|(tree, path, _)| is_temporary(path) || doomed(tree, path))
            .map(|(.., entry)| entry.ino)
            .collect()
    }

    /// Whether the call's effect can be seen.
    fn done(&self, tree: &Snapshot) -> bool {
        match self.scenario.effect {
            Effect::Reads => true,
            Effect::Creates | Effect::Replaces => tree.iter().any(|(path, entry)| {
                !is_temporary(path) && entry.is_file() && entry.content.as_deref() == Some(data().as_bytes())
            }),
            Effect::MakesDirectories => tree.named(self.last_name()).any(|(_, entry)| entry.is_dir()),
            Effect::Links => tree.iter().any(|(path, entry)| {
                entry.content.as_deref() == Some(TEXT.as_bytes()) && self.is_where_it_is_made(tree, path)
            }),
            Effect::CopiesAway | Effect::CopiesHere => tree.iter().any(|(path, entry)| {
                entry.is_file() && self.is_where_it_is_made(tree, path) && self.is_whole(entry)
            }),
            Effect::MovesAway | Effect::MovesHere | Effect::MovesOver | Effect::Exchanges => {
                let Some((from, to)) = self.scenario.ends() else { return false };
                let has_moved = |from, to| {
                    let candidates = self.candidates(from);
                    tree.named(to).any(|(_, entry)| candidates.contains(&entry.ino))
                };
                has_moved(from, to) && (self.scenario.effect != Effect::Exchanges || has_moved(to, from))
            }
            // It may have been given to what the guest removed.
            Effect::SetsAccess => {
                tree.iter().any(|(_, entry)| has_access(entry))
                    || self.source.values().any(|ino| !self.attacked().has_ino(*ino))
            }
            Effect::RemovesEntry | Effect::RemovesTree => {
                let path = Path::new("root").join(self.scenario.path);
                let parent = path.parent().unwrap_or(&path);
                self.gone_from_one_parent(tree, parent, self.last_name())
            }
        }
    }

    fn last_name(&self) -> &str {
        self.scenario.path.rsplit('/').next().unwrap_or_default()
    }

    /// What the call may have found at this name: what was there as it began, or what the guest has put there.
    fn candidates(&self, name: &str) -> BTreeSet<u64> {
        let named = self.seen.iter().flat_map(|tree| tree.named(name)).map(|(_, entry)| entry.ino);
        let planted = named.filter(|ino| !self.source.values().any(|source| source == ino));
        planted.chain(self.source.get(name).copied()).collect()
    }

    /// The call held either the parent that was there before the attack or the one put in its place.
    fn gone_from_one_parent(&self, tree: &Snapshot, parent: &Path, name: &str) -> bool {
        let mut parents = self.seen.iter().filter_map(|tree| tree.get(parent));
        parents.any(|parent| {
            tree.with_ino(parent.ino).is_none_or(|(path, _)| tree.get(path.join(name)).is_none())
        })
    }
}

fn is_named(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|last| last == name)
}

fn has_access(entry: &Entry) -> bool {
    let wanted = if entry.is_dir() { ACCESS.dir_mode() } else { ACCESS.file_mode() };
    entry.mode & 0o7777 == wanted
}
