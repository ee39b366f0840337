//! The rules every round is held to.

use std::collections::BTreeSet;
use std::path::Path;

use super::scenario::Scenario;
use super::victim::Report;
use super::{CANARY, data};
use crate::operations::{ACCESS, Effect};
use crate::snapshot::{Entry, Snapshot, is_temporary};

/// What a round looked like.
pub struct Round<'a> {
    pub scenario: &'a Scenario,
    /// The inodes that a rename is about, as it began.
    pub source: Vec<u64>,
    /// The guest's tree before the attack, and between attacks if there are several.
    pub earlier: Vec<&'a Snapshot>,
    /// The guest's tree just after the last attack.
    pub attacked: &'a Snapshot,
    pub end: &'a Snapshot,
    pub outside_before: &'a Snapshot,
    pub outside_end: &'a Snapshot,
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
        if let Some(change) = self.outside_before.difference(self.outside_end) {
            found.push(format!("escape: {change}"));
        }
        // A removal that says it is incomplete may leave what it has renamed.
        let admitted =
            report.is_some_and(|report| report.result.as_ref().is_ok_and(|success| success.incomplete));
        self.judge_tree(self.leniency.leftovers || admitted, &mut found);
        if let Some(report) = report {
            self.judge_report(report, &mut found);
        }
        found
    }

    fn judge_report(&self, report: &Report, found: &mut Vec<String>) {
        if let Some(panic) = &report.panic {
            found.push(format!("panic: {panic}"));
            return;
        }
        if report.descriptors.0 != report.descriptors.1 {
            found.push(format!("descriptors: {:?}", report.descriptors));
        }
        if !report.same_resolver {
            found.push("the resolver changed".into());
        }
        match &report.result {
            Ok(success) => {
                if let Some(data) = &success.data {
                    if data.contains(CANARY) {
                        found.push("escape: the canary was read".into());
                    } else if !self.may_be_read(data) {
                        found.push(format!("wrong data: {} bytes, {:.40?}", data.len(), data));
                    }
                }
                for (path, ino) in &success.entries {
                    if !self.states().any(|tree| tree.has_ino(*ino)) {
                        found.push(format!("escape: {path:?} describes an inode that was never in the tree"));
                    }
                }
                let excused = success.incomplete || self.leniency.said_gone;
                let was_done = self.earlier.iter().any(|tree| self.done(tree));
                if !was_done && !self.done(self.end) && !excused {
                    found.push("success without the effect".into());
                }
            }
            Err((kind, error)) => {
                if kind == "Io" && !self.leniency.io_error {
                    found.push(format!("untyped error: {error}"));
                }
                if error.contains(CANARY) {
                    found.push("escape: the error repeats the canary".into());
                }
                // Where a rename goes by name, only a look afterwards shows whether the file is ours or the guest's.
                let by_name = self.scenario.effect == Effect::Replaces || self.leniency.by_name;
                let fair = by_name && kind == "Busy";
                let published = matches!(self.scenario.effect, Effect::Creates | Effect::Replaces)
                    && !fair
                    && !self.leniency.late_error
                    && !self.leniency.temporary_taken
                    && self.done(self.end);
                if published {
                    found.push(format!("published, yet reported: {error}"));
                }
            }
        }
    }

    /// Every state the guest's tree was seen in before the end.
    fn states(&self) -> impl Iterator<Item = &Snapshot> {
        self.earlier.iter().copied().chain([self.attacked])
    }

    /// A reader may see the file as it was before or after the attack, or the part that both share.
    fn may_be_read(&self, data: &str) -> bool {
        let contents = |tree: &Snapshot| -> Vec<Vec<u8>> {
            tree.iter()
                .filter(|(_, entry)| entry.is_file())
                .filter_map(|(_, entry)| entry.content.clone())
                .collect()
        };
        let earlier: Vec<Vec<u8>> = self.earlier.iter().flat_map(|tree| contents(tree)).collect();
        let now = contents(self.attacked);
        if earlier.iter().chain(&now).any(|content| content == data.as_bytes()) {
            return true;
        }
        let cut_to = now.iter().map(Vec::len).min().unwrap_or(0);
        self.earlier.iter().any(|tree| *tree != self.attacked)
            && data.len() >= cut_to
            && earlier.iter().any(|content| content.starts_with(data.as_bytes()))
    }

    fn judge_tree(&self, leftovers: bool, found: &mut Vec<String>) {
        let data = data();
        for (path, entry) in self.end.iter() {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let shown = path.display();
            if is_temporary(path) {
                if !leftovers {
                    found.push(format!("leftover: {shown}"));
                }
                continue;
            }
            let old = self.attacked.with_ino(entry.ino);
            let known = old.is_some();
            let was_temporary = old.is_some_and(|(path, _)| is_temporary(path));
            if known && was_temporary && self.leniency.temporary_taken {
                // The guest's own thing, moved by a rename that went by name.
                continue;
            }
            if let Some((_, old)) = old.filter(|_| !was_temporary) {
                if old.content != entry.content && !(entry.is_file() && self.leniency.temporary_taken) {
                    found.push(format!("changed: {shown}"));
                }
                // A directory that the guest swaps in under a name just made gets that name's mode.
                let gets_mode =
                    matches!(self.scenario.effect, Effect::RemovesTree | Effect::MakesDirectories)
                        && entry.is_dir()
                        && entry.mode & 0o7777 == 0o700;
                let gets_mode =
                    gets_mode || (self.scenario.effect == Effect::SetsAccess && has_access(entry));
                if old.mode != entry.mode && !gets_mode {
                    found.push(format!("mode {:o} became {:o}: {shown}", old.mode, entry.mode));
                }
                continue;
            }
            match self.scenario.effect {
                Effect::Creates | Effect::Replaces if entry.is_file() && name == "leaf" => {
                    let whole = entry.content.as_deref() == Some(data.as_bytes());
                    if !whole && !self.leniency.temporary_taken {
                        found.push(format!("torn: {shown} has {} of {} bytes", entry.size, data.len()));
                    }
                    if whole && entry.mode & 0o7777 != 0o600 {
                        found.push(format!("published with mode {:o}: {shown}", entry.mode));
                    }
                }
                Effect::MakesDirectories
                    if entry.is_dir() && ["leaf", "deep", "p", "g"].contains(&&*name) => {}
                _ => found.push(format!("unexpected: {shown}")),
            }
        }
        let may_go = self.may_go();
        for (path, entry) in self.attacked.iter() {
            if !self.end.has_ino(entry.ino) && !may_go.contains(&entry.ino) {
                found.push(format!("lost: {}", path.display()));
            }
        }
    }

    /// The inodes that the call was asked to remove, wherever the attack has put them.
    fn may_go(&self) -> BTreeSet<u64> {
        let ends = self.scenario.moves().filter(|_| self.leniency.two_steps);
        let doomed = |path: &Path| match self.scenario.effect {
            Effect::Replaces | Effect::RemovesEntry => path.file_name().is_some_and(|name| name == "leaf"),
            Effect::RemovesTree => {
                path.starts_with(Path::new("root").join(self.scenario.path))
                    || path.ancestors().any(is_temporary)
            }
            _ => {
                ends.is_some_and(|(from, to)| path.file_name().is_some_and(|name| name == from || name == to))
            }
        };
        self.states()
            .flat_map(Snapshot::iter)
            .filter(|(path, _)| doomed(path) || is_temporary(path))
            .map(|(_, entry)| entry.ino)
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
            Effect::MovesAway | Effect::MovesHere => {
                let Some((from, to)) = self.scenario.moves() else { return false };
                let candidates: BTreeSet<u64> =
                    self.inodes_named(from).chain(self.source.iter().copied()).collect();
                tree.named(to).any(|(_, entry)| candidates.contains(&entry.ino))
            }
            // It may have been given to what the guest removed.
            Effect::SetsAccess => {
                tree.iter().any(|(_, entry)| has_access(entry))
                    || self.source.iter().any(|ino| !self.attacked.has_ino(*ino))
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

    fn inodes_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.states().flat_map(move |tree| tree.named(name)).map(|(_, entry)| entry.ino)
    }

    /// The call held either the parent that was there before the attack or the one put in its place.
    fn gone_from_one_parent(&self, tree: &Snapshot, parent: &Path, name: &str) -> bool {
        let mut parents = self.states().filter_map(|tree| tree.get(parent));
        parents.any(|parent| {
            tree.with_ino(parent.ino).is_none_or(|(path, _)| tree.get(path.join(name)).is_none())
        })
    }
}

fn has_access(entry: &Entry) -> bool {
    let wanted = if entry.is_dir() { ACCESS.dir_mode() } else { ACCESS.file_mode() };
    entry.mode & 0o7777 == wanted
}
