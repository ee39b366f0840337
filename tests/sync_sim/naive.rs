//! A small engine by the same rules as the product's, any one of which can be left out.
//!
//! With all of them it loses nothing, and without any one of them the oracle must notice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::SystemTime;

use beneath::artifacts::Retry;
use beneath::artifacts::conformance::{Attributes, Backend, Compares, Condition};
use futures_util::TryStreamExt as _;

use crate::base;
use crate::disk::{Entry, Folder, Name, at, is_beneath};
use crate::history::Which;
use crate::report::Report;
use crate::stage::{key_of, name_of, prefix};
use crate::store::Scripted;
use crate::without::Without;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    entry: Entry,
    etag: String,
}

/// What an engine keeps between two calls.
#[derive(Debug, Default)]
pub(crate) struct Naive {
    base: BTreeMap<Name, Known>,
    bound: ((u64, Option<SystemTime>), String),
    held: Option<File>,
    trashed: u64,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Here {
    Absent,
    File(Entry),
    /// A link, a directory, or nothing that could be reached.
    Other,
}

struct Turn<'n> {
    naive: &'n mut Naive,
    home: PathBuf,
    work: PathBuf,
    store: Scripted,
    without: Option<Without>,
    remote: BTreeMap<Name, (String, u64)>,
    /// The workspace at the start.
    first: Folder,
    report: Report,
}

impl Naive {
    pub(crate) async fn call(
        &mut self,
        home: PathBuf,
        store: Scripted,
        which: Which,
        without: Option<Without>,
    ) -> Option<Report> {
        let mut work = home.join("guest/workspace");
        if without == Some(Without::FreshHandle) {
            let held = self.held.get_or_insert_with(|| File::open(&work).unwrap());
            work = format!("/proc/self/fd/{}", held.as_raw_fd()).into();
        }
        let listing: Vec<_> = tokio::time::timeout(
            std::time::Duration::from_secs(60),
            store.list(prefix().as_str(), Retry::default()).try_collect(),
        )
        .await
        .ok()?
        .ok()?;
        let mut remote = BTreeMap::new();
        for item in listing {
            let version = (item.etag.unwrap(), item.size);
            let Some(name) = name_of(std::str::from_utf8(&item.key).unwrap()) else { continue };
            if remote.insert(name, version.clone()).is_some_and(|other| other != version) {
                return None;
            }
        }
        let found = fs::metadata(&work).unwrap();
        // Another directory may get the number of one that is gone, but not its time of birth.
        let now = ((found.ino(), found.created().ok()), store.identity());
        let same_directory = self.bound.0 == now.0 || without == Some(Without::Directory);
        let same_bucket = self.bound.1 == now.1 || without == Some(Without::Bucket);
        if !(same_directory && same_bucket) || matches!(without, Some(Without::Base)) {
            self.base.clear();
        }
        self.bound = now;
        let report = Report { clean: true, ..Report::default() };
        let first = Folder::scan(&work);
        let mut turn = Turn { naive: self, home, work, store, without, remote, first, report };
        if which == Which::Restore {
            turn.naive.base.clear();
        }
        if which == Which::Plan {
            return None;
        }
        if which != Which::Mirror {
            turn.pull().await;
        }
        if matches!(which, Which::Mirror | Which::Sync) {
            turn.push().await;
        }
        turn.end();
        Some(turn.report)
    }
}

impl Turn<'_> {
    fn breaks(&self, rule: Without) -> bool {
        self.without == Some(rule)
    }

    fn base(&self, name: &Name) -> Option<&Known> {
        self.naive.base.get(name)
    }

    fn know(&mut self, name: &Name, entry: Entry, etag: String) {
        self.naive.base.insert(name.clone(), Known { entry, etag });
    }

    /// What the workspace has at `name`, right now.
    fn here(&self, name: &Name) -> Here {
        if self.breaks(Without::HiddenFiles) && (name.contains(&b'?') || name.contains(&0xff)) {
            return Here::Absent;
        }
        if self.breaks(Without::LookingAgain) {
            return match self.first.leaves.get(name) {
                Some(entry @ Entry::File { .. }) => Here::File(entry.clone()),
                Some(Entry::Link(_)) => Here::Other,
                None if self.first.directories.contains(name) => Here::Other,
                None => Here::Absent,
            };
        }
        let path = at(&self.work, name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => match self.base(name) {
                Some(known) if self.breaks(Without::Reading) && self.store.is_blind(name) => {
                    Here::File(known.entry.clone())
                }
                _ => Here::File(Entry::file(fs::read(path).unwrap())),
            },
            Ok(_) => Here::Other,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Here::Absent,
            // Something above it is a file.
            Err(_) => Here::Other,
        }
    }

    /// One side has changed it, and the other has deleted it.
    fn conflict(&mut self, name: &Name) {
        if !self.breaks(Without::Conflicts) {
            self.report.conflicts.insert(name.clone());
        }
    }

    async fn pull(&mut self) {
        let names: BTreeSet<Name> = self.naive.base.keys().chain(self.remote.keys()).cloned().collect();
        for name in names {
            let (there, etag) = match (self.remote.get(&name).cloned(), self.base(&name)) {
                (None, _) => (None, String::new()),
                (Some((etag, _)), Some(known)) if known.etag == etag => (Some(known.entry.clone()), etag),
                (Some((etag, size)), _) => match self.get(&name, Some(&etag), size).await {
                    Some(entry) => (Some(entry), etag),
                    None => {
                        if self.breaks(Without::Unknown) {
                            self.know(&name, Entry::file(Vec::new()), etag);
                        }
                        self.report.clean = false;
                        continue;
                    }
                },
            };
            self.take(&name, there, etag).await;
        }
    }

    async fn get(&self, name: &Name, etag: Option<&str>, size: u64) -> Option<Entry> {
        let key = key_of(name);
        let get = async { self.store.get(&key, etag).await.ok()?.chunks.try_collect::<Vec<_>>().await.ok() };
        let content = patient(get).await?.concat();
        let whole = content.len() as u64 == size || self.breaks(Without::Sizes);
        whole.then(|| Entry::file(content))
    }

    /// Brings to the workspace what the store has changed.
    async fn take(&mut self, name: &Name, there: Option<Entry>, etag: String) {
        let was = self.base(name).map(|known| known.entry.clone());
        let here = match self.here(name) {
            Here::Absent => None,
            Here::File(entry) => Some(entry),
            Here::Other => return self.clash(name, there, etag),
        };
        match there {
            there if here == there => match there {
                Some(entry) => self.know(name, entry, etag),
                None => drop(self.naive.base.remove(name)),
            },
            there if there == was => {}
            None if here == was => {
                let gone = self.breaks(Without::Asking) || matches!(self.head(name).await, Some(None));
                if !gone || self.here(name) != was.map_or(Here::Absent, Here::File) {
                    self.report.clean = false;
                    return;
                }
                self.trash(name);
                self.naive.base.remove(name);
            }
            Some(entry) if here == was || here.is_none() => {
                if here != was {
                    self.conflict(name);
                }
                if self.place(name, &entry) {
                    self.know(name, entry, etag);
                }
            }
            None => {
                self.conflict(name);
                self.naive.base.remove(name);
            }
            Some(entry) => {
                self.report.conflicts.insert(name.clone());
                let Entry::File { content, .. } = &entry else { return };
                let tag: String = base::hash(content).chars().take(8).collect();
                let beside = [name.as_slice(), b".theirs-", tag.as_bytes()].concat();
                if self.breaks(Without::Base)
                    || self.here(&beside) != Here::Absent
                    || self.place(&beside, &entry)
                {
                    self.know(name, entry, etag);
                }
            }
        }
    }

    /// A directory or a link is there, or a file is above.
    fn clash(&mut self, name: &Name, there: Option<Entry>, etag: String) {
        self.report.clean = false;
        let Some(entry) = there else { return };
        if self.breaks(Without::Placed) {
            return self.know(name, entry, etag);
        }
        let path = at(&self.work, name);
        if self.breaks(Without::Kinds) && fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            fs::remove_dir_all(path).unwrap();
            if self.place(name, &entry) {
                self.know(name, entry, etag);
            }
        }
    }

    async fn head(&self, name: &Name) -> Option<Option<String>> {
        let key = key_of(name);
        let found = patient(async { self.store.head(&key).await.ok() }).await?;
        Some(found.map(|found| found.etag.unwrap()))
    }

    fn trash(&mut self, name: &Name) {
        let path = at(&self.work, name);
        if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
            return;
        }
        self.naive.trashed += 1;
        let trash = self.home.join("host/trash").join(format!("naive-{}", self.naive.trashed));
        fs::create_dir_all(&trash).unwrap();
        fs::rename(&path, trash.join("file")).unwrap();
        for above in path.ancestors().skip(1).take_while(|above| *above != self.work) {
            if fs::remove_dir(above).is_err() {
                break;
            }
        }
    }

    /// Gives `entry` its name, in place of what is there.
    fn place(&mut self, name: &Name, entry: &Entry) -> bool {
        let (path, Entry::File { content, .. }) = (at(&self.work, name), entry) else { return false };
        self.trash(name);
        if fs::create_dir_all(path.parent().unwrap()).is_err() || path.is_dir() {
            self.report.clean = false;
            return false;
        }
        self.report.done += 1;
        let draft = self.home.join("host/draft");
        fs::write(&draft, content).unwrap();
        fs::rename(draft, path).is_ok()
    }

    async fn push(&mut self) {
        let local = Folder::scan(&self.work);
        let names: BTreeSet<Name> = self.naive.base.keys().chain(local.leaves.keys()).cloned().collect();
        let mut deletes = Vec::new();
        for name in names {
            let known = self.base(&name).cloned();
            let there = self.remote.get(&name).cloned();
            let unchanged = known.as_ref().map(|known| &known.etag) == there.as_ref().map(|(etag, _)| etag);
            match self.here(&name) {
                Here::Other => self.report.clean = false,
                Here::Absent if known.is_some() && unchanged => deletes.push(name),
                Here::Absent if known.is_some() && there.is_some() => self.conflict(&name),
                Here::Absent => {}
                Here::File(entry) if known.as_ref().is_some_and(|known| known.entry == entry) => {}
                Here::File(entry) => {
                    if let (false, Some((etag, size))) = (unchanged, there) {
                        match self.get(&name, Some(&etag), size).await {
                            Some(found) if found == entry => self.know(&name, entry, etag),
                            Some(_) => drop(self.report.conflicts.insert(name)),
                            None => self.report.clean = false,
                        }
                        continue;
                    }
                    if !unchanged {
                        self.conflict(&name);
                    }
                    let etag = known.filter(|_| unchanged).map(|known| known.etag);
                    self.put(&name, entry, etag.as_deref()).await;
                }
            }
        }
        for name in deletes {
            self.delete(&name).await;
        }
    }

    async fn put(&mut self, name: &Name, entry: Entry, etag: Option<&str>) {
        let Entry::File { content, .. } = &entry else { return };
        let (key, content) = (key_of(name), content.clone());
        let condition = match etag {
            _ if self.breaks(Without::Conditions) => Condition::Always,
            Some(etag) => Condition::Unchanged(etag),
            None => Condition::Absent,
        };
        let compares =
            self.store.abilities().put.absent == Compares::InOneStep || condition == Condition::Always;
        if !compares && self.head(name).await != Some(etag.map(str::to_owned)) {
            self.report.clean = false;
            return;
        }
        let size = content.len() as u64;
        match patient(async {
            self.store.put(&key, content.into(), &Attributes::NONE, condition).await.ok().flatten()
        })
        .await
        {
            Some(etag) => {
                self.report.done += 1;
                self.remote.insert(name.clone(), (etag.clone(), size));
                self.know(name, entry, etag);
            }
            None => self.report.clean = false,
        }
    }

    async fn delete(&mut self, name: &Name) {
        let Some(known) = self.base(name).cloned() else { return };
        let unsent = || {
            let local = Folder::scan(&self.work);
            let is_unsent = |(other, entry): (&Name, &Entry)| {
                *entry == known.entry && self.base(other).is_none_or(|there| there.entry != known.entry)
            };
            local.leaves.iter().any(is_unsent)
        };
        let held = !self.breaks(Without::HiddenFiles) && !self.breaks(Without::PutsFirst) && unsent();
        if held || self.head(name).await != Some(Some(known.etag.clone())) || self.here(name) != Here::Absent
        {
            self.report.clean = false;
            return;
        }
        let key = key_of(name);
        match patient(async { self.store.delete(&key).await.ok() }).await {
            Some(()) => {
                self.report.deleted += 1;
                self.remote.remove(name);
                self.naive.base.remove(name);
            }
            None => self.report.clean = false,
        }
    }

    /// Complete is what is equal on both sides and in the base.
    fn end(&mut self) {
        let local = Folder::scan(&self.work);
        let here = local.leaves.iter().map(|(name, entry)| (name, entry.clone()));
        let base = &self.naive.base;
        let known = base.iter().map(|(name, known)| (name, known.entry.clone()));
        let versions = base.iter().map(|(name, known)| (name, &known.etag));
        let there = self.remote.iter().map(|(name, (etag, _))| (name, etag));
        let report = &mut self.report;
        let nested = base.keys().any(|name| base.keys().any(|other| is_beneath(name, other)));
        report.complete =
            report.clean && report.conflicts.is_empty() && !nested && here.eq(known) && versions.eq(there);
    }
}

/// Waits no longer than the store may be silent.
async fn patient<T>(request: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::time::timeout(std::time::Duration::from_secs(30), request).await.ok().flatten()
}
