//! Who has written, seen and decided what, and so which loss is somebody's decision.
//!
//! The oracle is survival, not agreement, and it counts occurrences: one content at one path on one side. An occurrence may
//! go only
//!
//! * from the store, by a host whose guest has had it and decided against it; or has moved it, and the store has it under
//!   another name, or something else takes its place while the workspace has it; or while the host keeps it beside the path;
//! * from a workspace, to a name beside; or to the trash, if this host has had it from the store or put it there, and the store has
//!   lost it by such a decision.
//!
//! What arrives must be what somebody has written for that path.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use beneath::artifacts::conformance::Attributes;

use crate::base::{self, Leaf};
use crate::disk::{Decided, Entry, Folder, Name, above};
use crate::history::{Edit, Saved};

/// One content at one path.
pub(crate) type Place = (Name, Entry);

/// Why an occurrence may go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Authority {
    Against,
    MovedTo(Name),
}

/// What is known of one host.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) home: PathBuf,
    /// Its workspace when it was last looked at.
    pub(crate) folder: Folder,
    /// Whether nothing but the guest has changed it since.
    current: bool,
    /// Whether a call is under way.
    calling: bool,
    /// Every occurrence that its workspace has had.
    had: BTreeSet<Place>,
    /// What its guest has decided.
    authority: BTreeMap<Place, Authority>,
    /// What it has put to the store or got from there, and not removed since.
    pub(crate) knows: BTreeSet<Place>,
    trash: BTreeSet<Entry>,
    swept: BTreeSet<OsString>,
    /// What the store has lost at some time during its call, and got again.
    lately: BTreeSet<Place>,
    /// When it has last asked for an object, during its call.
    pub(crate) looked: BTreeMap<Name, u64>,
    /// Files that a guest has written without a new stamp.
    pub(crate) blind: BTreeSet<Name>,
}

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) entry: Entry,
    pub(crate) etag: String,
    /// When it was put.
    pub(crate) when: u64,
    /// As it is sent.
    pub(crate) body: Vec<u8>,
    pub(crate) attributes: Attributes,
}

/// Everything that can be known, by all.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) hosts: [Host; 2],
    pub(crate) objects: BTreeMap<Name, Object>,
    /// The directories that the store has by themselves.
    pub(crate) marked: BTreeSet<Name>,
    /// Every occurrence that the store has had, and its version.
    stored: BTreeSet<Place>,
    versions: BTreeSet<(Name, String, Entry)>,
    /// What the store has lost by somebody's decision.
    gone: BTreeSet<Place>,
    digests: BTreeMap<String, Vec<u8>>,
    /// What was lost since the store does not compare and put in one step, as is documented.
    pub(crate) documented: u64,
    pub(crate) wrong: Vec<String>,
    /// Whether every file has a stamp that a mapping leaves.
    pub(crate) maps: bool,
    /// Whether anybody wants to know what happens.
    pub(crate) telling: bool,
    pub(crate) told: Vec<String>,
}

/// All paths that `name` may be the second version of: there are second versions of second versions, and of directories.
fn origins(name: &[u8]) -> Vec<Name> {
    let mut all = Vec::new();
    for mark in [b".ours-".as_slice(), b".theirs-"] {
        let starts = (0..name.len()).filter(|start| name[*start..].starts_with(mark));
        for start in starts {
            let rest = &name[start + mark.len()..];
            let end = rest.iter().position(|byte| *byte == b'.' || *byte == b'/').unwrap_or(rest.len());
            let origin = [&name[..start], &rest[end..]].concat();
            all.extend(origins(&origin));
            all.push(origin);
        }
    }
    all
}

fn is_beside(name: &[u8], path: &[u8]) -> bool {
    origins(name).iter().any(|origin| origin == path)
}

fn show((name, entry): (&Name, &Entry)) -> String {
    format!("{} at {}", entry.show(), name.escape_ascii())
}

impl Books {
    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.telling {
            let what = what();
            self.told.push(what);
        }
    }

    pub(crate) fn accuse(&mut self, what: String) {
        self.told.push(format!("WRONG: {what}"));
        self.wrong.push(what);
    }

    fn workspace(&self, host: usize) -> PathBuf {
        self.hosts[host].home.join("guest/workspace")
    }

    /// A guest edits its workspace.
    pub(crate) fn edit(&mut self, host: usize, edit: &Edit) {
        self.look(host);
        let workspace = self.workspace(host);
        let decided = self.hosts[host].folder.edit(&workspace, edit);
        if decided.is_empty() {
            return;
        }
        self.tell(|| format!("guest {host} {edit}"));
        for decided in decided {
            self.decide(host, decided);
        }
        if let Edit::Write { path, saved: Saved::Mapped, .. } = *edit {
            let is_it = |known: &[u8], _: &str, stamped| known == path && stamped;
            let count = base::stamp(&self.hosts[host].home.join("host"), &workspace, is_it);
            if count > 0 || self.maps {
                self.hosts[host].blind.insert(path.to_vec());
            }
        }
    }

    fn decide(&mut self, host: usize, decided: Decided) {
        match decided {
            Decided::For(name, entry) => {
                let entry = entry.essence();
                if let Entry::File { content, .. } = &entry {
                    self.digests.insert(base::hash(content), content.clone());
                }
                let host = &mut self.hosts[host];
                host.blind.remove(&name);
                host.authority.remove(&(name.clone(), entry.clone()));
                host.had.insert((name, entry));
            }
            Decided::Against(name, entry) => {
                let host = &mut self.hosts[host];
                for (place, authority) in &mut host.authority {
                    if place.1 == entry.essence() && *authority == Authority::MovedTo(name.clone()) {
                        *authority = Authority::Against;
                    }
                }
                // Whoever deletes the second version has seen it.
                for name in origins(&name).into_iter().chain([name.clone()]) {
                    host.authority.insert((name, entry.essence()), Authority::Against);
                }
            }
            Decided::Moved(from, to, entry) => {
                let (host, entry) = (&mut self.hosts[host], entry.essence());
                host.blind.remove(&from);
                for (place, authority) in &mut host.authority {
                    if place.1 == entry && *authority == Authority::MovedTo(from.clone()) {
                        *authority = Authority::MovedTo(to.clone());
                    }
                }
                host.authority.insert((from.clone(), entry.clone()), Authority::MovedTo(to.clone()));
                for origin in origins(&from) {
                    host.authority.insert((origin, entry.clone()), Authority::MovedTo(to.clone()));
                }
                host.authority.remove(&(to.clone(), entry.clone()));
                host.had.insert((to, entry));
            }
        }
    }

    /// A host begins a call.
    pub(crate) fn begin(&mut self, host: usize) {
        self.look(host);
        let host = &mut self.hosts[host];
        (host.current, host.calling) = (false, true);
        host.lately.clear();
        host.looked.clear();
    }

    /// The call has come to its end.
    pub(crate) fn end(&mut self, host: usize) {
        self.hosts[host].calling = false;
        self.look(host);
    }

    /// A host has put `new`, or nothing, in place of what the store had at `name`.
    ///
    /// A store that does not do that in one step with a comparison is `apart`.
    pub(crate) fn change(&mut self, host: usize, name: &Name, new: Option<Object>, apart: bool) {
        let old = match &new {
            Some(object) => self.objects.insert(name.clone(), object.clone()),
            None => self.objects.remove(name),
        };
        if let Some(Object { entry, etag, .. }) = new {
            let place = (name.clone(), entry.essence());
            if self.gone.remove(&place) {
                for host in &mut self.hosts {
                    host.lately.insert(place.clone());
                }
            }
            if !self.hosts[host].had.contains(&place) {
                self.look(host);
            }
            if !self.hosts[host].had.iter().any(|(_, had)| *had == place.1) {
                self.accuse(format!("host {host} puts {}, which it never had", show((name, &entry))));
            }
            self.versions.insert((name.clone(), etag, place.1.clone()));
            self.hosts[host].knows.insert(place.clone());
            self.stored.insert(place);
            if old.as_ref().is_some_and(|old| old.entry.essence() == entry.essence()) {
                return;
            }
        }
        let Some(old) = old else { return };
        let place = (name.clone(), old.entry.essence());
        if !self.may_go(host, &place, old.when, apart) {
            self.accuse(format!("host {host} takes {} out of the store", show((name, &old.entry))));
        }
        self.hosts[host].knows.remove(&place);
        self.gone.insert(place);
    }

    fn may_go(&mut self, host: usize, place: &Place, when: u64, apart: bool) -> bool {
        let (name, entry) = place;
        match self.hosts[host].authority.get(place) {
            Some(Authority::Against) => return true,
            Some(Authority::MovedTo(_)) if self.is_stored(entry) => return true,
            // There somebody else has decided against it.
            Some(Authority::MovedTo(to)) if self.gone.contains(&(to.clone(), entry.clone())) => return true,
            _ => {}
        }
        self.look(host);
        let moved = matches!(self.hosts[host].authority.get(place), Some(Authority::MovedTo(_)));
        let has_it = |folder: &Folder| folder.leaves.values().any(|found| found.essence() == *entry);
        // The guest has made it again since the host has looked: the workspace has it, at its path.
        if self.hosts[host].folder.leaves.get(name).is_some_and(|found| found.essence() == *entry) {
            return true;
        }
        if moved && self.objects.contains_key(name) && has_it(&self.hosts[host].folder) {
            return true;
        }
        let host = &mut self.hosts[host];
        let kept = |(other, found): (&Name, &Entry)| found.essence() == *entry && is_beside(other, name);
        if host.folder.leaves.iter().any(kept) {
            return true;
        }
        // It came after this host had looked, and before it acted on what it saw.
        let raced = apart && host.looked.get(name).is_some_and(|looked| *looked < when);
        self.documented += u64::from(raced);
        raced
    }

    fn is_stored(&self, entry: &Entry) -> bool {
        self.objects.values().any(|object| object.entry.essence() == *entry)
    }

    /// Looks at the workspace of a host, and judges what the host has made of it.
    pub(crate) fn look(&mut self, host: usize) {
        if self.hosts[host].current {
            return;
        }
        let now = Folder::scan(&self.workspace(host));
        self.read_trash(host);
        let was = std::mem::take(&mut self.hosts[host].folder);
        for (name, entry) in &was.leaves {
            if now.leaves.get(name).is_none_or(|found| found.essence() != entry.essence()) {
                self.judge_loss(host, name, entry, &now);
            }
        }
        for (name, entry) in &now.leaves {
            let place = (name.clone(), entry.essence());
            if was.leaves.get(name).is_none_or(|found| found.essence() != place.1) {
                self.judge_arrival(host, &place);
            }
            let host = &mut self.hosts[host];
            host.authority.remove(&place);
            host.had.insert(place);
        }
        let host = &mut self.hosts[host];
        (host.folder, host.current) = (now, !host.calling);
    }

    fn judge_loss(&mut self, host: usize, name: &Name, entry: &Entry, now: &Folder) {
        let place = (name.clone(), entry.essence());
        let kept = |(other, found): (&Name, &Entry)| found.essence() == place.1 && is_beside(other, name);
        if now.leaves.iter().any(kept) {
            return;
        }
        let book = &mut self.hosts[host];
        let decided = self.gone.contains(&place) || book.lately.contains(&place);
        let (known, in_trash) = (book.knows.remove(&place), book.trash.contains(&place.1));
        if !(known && decided && in_trash) {
            self.accuse(format!(
                "host {host} loses {}: known {known}, decided {decided}, in the trash {in_trash}",
                show((name, entry))
            ));
        }
    }

    fn judge_arrival(&mut self, host: usize, place: &Place) {
        let (name, entry) = place;
        let had = &self.hosts[host].had;
        let is_known = |name: Name| {
            let place = (name, entry.clone());
            self.stored.contains(&place) || had.contains(&place)
        };
        let is_real = is_known(name.clone()) || origins(name).into_iter().any(is_known);
        if !is_real {
            self.accuse(format!(
                "{} appears in workspace {host}, and nobody has put it",
                show((name, entry))
            ));
        }
    }

    /// What the host has displaced since, in its trash or on the way there.
    fn read_trash(&mut self, host: usize) {
        let home = self.hosts[host].home.join("host");
        let book = &mut self.hosts[host];
        let mut read = |path: &Path| {
            book.trash.extend(Folder::scan(path).leaves.values().map(Entry::essence));
        };
        for entry in fs::read_dir(home.join("trash")).into_iter().flatten() {
            let entry = entry.unwrap();
            if book.swept.insert(entry.file_name()) {
                read(&entry.path());
            }
        }
        read(&home.join("state/merge"));
    }

    /// A guest decides nothing by this: somebody has lost it.
    pub(crate) fn lose_workspace(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        (host.folder, host.current) = (Folder::default(), true);
        host.blind.clear();
    }

    /// The objects as a tree.
    pub(crate) fn stored(&self) -> Folder {
        let leaves = self.objects.iter().map(|(name, object)| (name.clone(), object.entry.clone()));
        let above = self.objects.keys().chain(&self.marked).flat_map(|name| above(name));
        let directories = above.map(<[u8]>::to_vec).chain(self.marked.iter().cloned()).collect();
        Folder { leaves: leaves.collect(), directories }
    }

    /// What the base of a host says must have been in its workspace and in the store.
    pub(crate) fn judge_base(&mut self, host: usize) {
        for known in base::read(&self.hosts[host].home.join("host")) {
            let name = known.path.escape_ascii().to_string();
            let content = |sum: &String| self.digests.get(sum).cloned();
            let entry = match known.leaf {
                Leaf::Directory => continue,
                Leaf::Link(text) => Some(Entry::Link(text)),
                Leaf::File(sum) => content(&sum).map(Entry::file),
            };
            let Some(entry) = entry else {
                self.accuse(format!("the base of host {host} has at {name} what nobody has written"));
                continue;
            };
            let etag = known.etag.unwrap_or_default();
            if !self.versions.contains(&(known.path.clone(), etag.clone(), entry.clone())) {
                self.accuse(format!(
                    "the base of host {host} has {name} in a version that never was: {etag}"
                ));
            }
            let is_it =
                |(had, one): &Place| *one == entry && (*had == known.path || is_beside(had, &known.path));
            if !self.hosts[host].had.iter().any(is_it) {
                self.accuse(format!("the base of host {host} has {name}, which its workspace never had"));
            }
        }
    }
}
