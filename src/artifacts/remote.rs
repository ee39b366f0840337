//! What is in the store, as far as a listing says.
//!
//! Problem: anybody who can write to the store chooses keys: outside the prefix, with dot segments, under reserved names,
//! twice, or one as the directory of another. A listing that is cut short looks like one of fewer objects.
//!
//! Defence: each key is read by [`Prefix::path`](super::Prefix::path) and becomes a path or one refusal. What is refused at a
//! path is unknown there, and never absent. A listing that is over a limit, or has too many such paths to remember, is cut off, and
//! all that it does not show is unknown.
//!
//! What remains: sizes and versions are the store's claims until the object arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use futures_util::stream::{Stream, StreamExt as _};
use sha2::{Digest as _, Sha256};

use super::client::Client;
use super::progress::Event;
use super::state::{Base, Known, Planned, PutAt, Version};
use super::store::{Listed, within};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, SafeName};
use crate::report::Leftovers;
use crate::tree::{Leaf, Tree, is_reserved};

const OPERATION: &str = "plan";
/// Bytes of paths of which nothing can be said, and of those above them; if there are more, nothing is said of any path that is not
/// listed.
const UNKNOWN_MAX: usize = 4 << 20;
/// How many objects in a row may be there a second time: those of two pages.
const REPEATED: u64 = 2000;

/// An object as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) size: u64,
    pub(crate) version: Version,
}

/// An object that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) leaf: Leaf,
    pub(crate) version: Version,
    /// The permission bits that it says its file has.
    pub(crate) mode: Option<u32>,
}

/// Whether this is the object that the host knows.
pub(crate) type IsKnown<'b> = dyn Fn(&GuestPath, &Object) -> bool + Sync + 'b;

/// The objects that were read, by path.
pub(crate) type Contents = BTreeMap<GuestPath, Found>;

/// What says that there is a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marker {
    /// An object for each form that such a key has, as different hosts and tools choose them.
    pub(crate) keys: BTreeSet<String>,
    pub(crate) version: Version,
}

/// The objects under a prefix.
#[derive(Debug, Default)]
pub(crate) struct Remote {
    pub(crate) objects: BTreeMap<GuestPath, Object>,
    /// The directories of which an object says that they are there.
    pub(crate) markers: BTreeMap<GuestPath, Marker>,
    /// Paths of which nothing can be said.
    pub(crate) unknown: BTreeSet<GuestPath>,
    /// Those of them that are a file and also the directory of another object, with the file.
    pub(crate) covered: BTreeMap<GuestPath, Object>,
    /// Those of them that were refused, and are what this host knows.
    pub(crate) intact: BTreeSet<GuestPath>,
    /// Whether there may be more.
    pub(crate) cut: bool,
    /// What was refused, by its key.
    pub(crate) left: Leftovers,
    /// How many objects were listed.
    pub(crate) listed: u64,
}

impl Remote {
    /// Lists the store.
    ///
    /// # Errors
    /// Those of the store: half a listing is none.
    pub(crate) async fn list(client: &Client, reserved: &[SafeName], is_known: &IsKnown<'_>) -> Result<Self> {
        let mut remote = Self::default();
        let listing = client.source.backend().list(client.prefix.as_str(), client.retry);
        remote.read(listing, client, reserved, is_known).await?;
        Ok(remote)
    }

    /// What the store was left with by this host.
    pub(crate) fn left_with(base: &Base, client: &Client) -> Self {
        let mut remote = Self::default();
        for (path, known) in base.iter() {
            let put_at = match known.version.put_at {
                Some(PutAt::By(time)) => Some(PutAt::Just(time)),
                other => other,
            };
            let version = Version { put_at, ..known.version.clone() };
            match (&known.leaf, client.key(path, &known.leaf)) {
                (Leaf::Directory, Ok(key)) => {
                    drop(remote.markers.insert(path.clone(), Marker { keys: BTreeSet::from([key]), version }))
                }
                (Leaf::Directory, Err(_)) => {}
                (leaf, _) => drop(remote.objects.insert(path.clone(), Object { size: leaf.size(), version })),
            }
        }
        remote
    }

    /// Whether `base` has all that is listed, if nothing else was left over.
    pub(crate) fn is_all_in(&self, base: &Base, local: &Tree) -> bool {
        // A directory of which two objects say that it is there, or one where there is something in it as well.
        let is_in =
            |(path, marker): (&GuestPath, &Marker)| base.get(path).is_some() && marker.keys.len() == 1;
        self.markers.iter().all(|marker| is_in(marker) || !local.is_directory(marker.0))
    }

    pub(crate) async fn read(
        &mut self,
        mut listing: impl Stream<Item = Result<Listed>> + Unpin,
        client: &Client,
        reserved: &[SafeName],
        is_known: &IsKnown<'_>,
    ) -> Result<()> {
        let (mut room, mut twice, mut hidden) = (client.limits.bytes, BTreeSet::new(), 0);
        let content_etags = client.source.backend().abilities().content_etags;
        let (prefix, wait, mut repeated) = (client.prefix.as_str(), client.retry.whole(), 0);
        // What is listed and is no file or link: whoever can write to the store makes as many as they want.
        let mut others = 0_u64;
        while let Some(object) =
            within(wait, "list", prefix, async { listing.next().await.transpose() }).await?
        {
            // What a host has left that was trying out the store.
            if client.prefix.is_scratch(&object.key) && others < client.limits.objects {
                others += 1;
                continue;
            }
            if self.listed.max(others) >= client.limits.objects {
                self.cut = true;
                let error = Error::new(OPERATION, client.prefix.as_str(), ErrorKind::TooMany)
                    .with_detail(format!("more than {} objects", client.limits.objects));
                self.refuse(client, client.prefix.as_str().into(), error);
                break;
            }
            // The directory of the session itself, as some tools make it.
            if object.key == prefix.as_bytes() && object.size == 0 {
                others += 1;
                continue;
            }
            let marked = client.prefix.marked(&object.key);
            let (is_marker, path) =
                (marked.is_some(), marked.unwrap_or_else(|| client.prefix.path(&object.key)));
            *(if is_marker { &mut others } else { &mut self.listed }) += 1;
            let path = match path {
                Ok(path) => path,
                Err(error) => {
                    self.refuse(client, object.key, error);
                    continue;
                }
            };
            if client.leaves_out(&path, is_marker) {
                continue;
            }
            let now = client.source.backend().time();
            let put_at = object.put_at.filter(|_| content_etags).map(|time| match now {
                Some(now) if time < now - 1 => PutAt::Exactly(time),
                _ => PutAt::Just(time),
            });
            let version = Version { put_at, ..Version::of(object.etag) };
            let found = Object { size: object.size, version };
            if let Err(error) = admit(&path, found.size, room, client, reserved) {
                if is_known(&path, &found) {
                    self.intact.insert(path.clone());
                }
                // What is beneath an unknown path is unknown, too.
                let depth = if is_reserved(&path, reserved) { 1 } else { client.limits.depth };
                let mut upwards = std::iter::successors(Some(path), GuestPath::parent);
                if let Some(path) = upwards.find(|above| above.depth() <= depth)
                    && !self.unknown.contains(&path)
                {
                    // Each is remembered with all that are above it.
                    hidden += path.as_bytes().len() * path.depth();
                    match hidden > UNKNOWN_MAX {
                        true => self.cut = true,
                        false => drop(self.unknown.insert(path)),
                    }
                }
                self.refuse(client, object.key, error);
                continue;
            }
            if is_marker {
                match found.size {
                    0 => {
                        // A key that is read as a path is text.
                        let key = String::from_utf8_lossy(&object.key).into_owned();
                        let marker = self.markers.entry(path).or_default();
                        marker.version = found.version;
                        marker.keys.insert(key);
                    }
                    _ => {
                        let error = Error::new(OPERATION, &path, ErrorKind::NotRegular)
                            .with_detail("is the marker of a directory, and has content");
                        self.unknown.insert(path);
                        self.refuse(client, object.key, error);
                    }
                }
                continue;
            }
            match self.objects.get(&path) {
                // Two pages may both have it, but not page after page.
                Some(other) if *other == found => {
                    repeated += 1;
                    if repeated > REPEATED {
                        return Err(Error::new(OPERATION, prefix, ErrorKind::TooMany)
                            .with_detail("listing repeats itself"));
                    }
                }
                Some(_) => drop(twice.insert(path)),
                None => {
                    repeated = 0;
                    room = room.saturating_sub(found.size);
                    self.objects.insert(path, found);
                }
            }
        }
        for path in twice {
            self.clash(client, path, ErrorKind::AlreadyExists, "is listed twice, in two versions");
        }
        let beneath = self.objects.keys().chain(self.markers.keys()).flat_map(above);
        let above =
            beneath.chain(self.markers.keys().cloned()).filter(|path| self.objects.contains_key(path));
        for path in above.collect::<BTreeSet<_>>() {
            if let Some(object) = self.objects.get(&path) {
                if is_known(&path, object) {
                    self.intact.insert(path.clone());
                }
                self.covered.insert(path.clone(), object.clone());
            }
            self.clash(client, path, ErrorKind::NotRegular, "is also the directory of another object");
        }
        Ok(())
    }

    fn clash(&mut self, client: &Client, path: GuestPath, kind: ErrorKind, detail: &'static str) {
        let key = client.prefix.key(&path).unwrap_or_default();
        self.objects.remove(&path);
        self.refuse(client, key.into_bytes(), Error::new(OPERATION, &path, kind).with_detail(detail));
        self.unknown.insert(path);
    }

    fn refuse(&mut self, client: &Client, mut key: Vec<u8>, error: Error) {
        // A key has no more than 1,024 bytes; a store that sends longer ones must not fill the report.
        key.truncate(1024);
        client.progress.report(&Event::Refused { raw: &key, error: &error });
        self.left.add(OsString::from_vec(key), error);
    }

    /// The objects that are not what the base knows, in the order of their paths. `mode` is that of a file whose object does not
    /// say it.
    pub(crate) fn changed(&self, base: &Base, mode: impl Fn(&GuestPath) -> Option<u32>) -> Vec<Planned> {
        let differs =
            |(path, object): &(&GuestPath, &Object)| !base.is_at(path, &object.version, object.size);
        let planned = |(path, object): (&GuestPath, &Object)| Planned {
            path: path.clone(),
            size: object.size,
            version: object.version.clone(),
            mode: mode(path),
        };
        self.objects.iter().filter(differs).map(planned).collect()
    }

    /// What may be in the objects that have changed, before they are read: like nothing that anybody knows.
    pub(crate) fn guesses(&self, base: &Base) -> Contents {
        let guess = |Planned { path, size, version, .. }| {
            let sha256 = Sha256::digest(format!("{size} {version:?}")).into();
            (path, Found { leaf: Leaf::File { bytes: size, sha256, execute: false }, version, mode: None })
        };
        self.changed(base, |_| None).into_iter().map(guess).collect()
    }

    /// Of how many files that are known not all can have gone without an accident. A wrong prefix has nothing, too.
    pub(crate) fn fewest(&self) -> usize {
        if self.is_empty() { 1 } else { 2 }
    }

    /// The files and links of `base` of which the store has no object any more, or another one.
    pub(crate) fn lost(&self, base: &Base) -> BTreeSet<GuestPath> {
        let is_lost = |(path, known): &(&GuestPath, &Known)| match self.objects.get(*path) {
            Some(object) => !base.is_at(path, &object.version, object.size),
            // What was refused is there, and may be another one.
            None => known.leaf != Leaf::Directory && !self.cut && !self.intact.contains(*path),
        };
        base.iter().filter(is_lost).map(|(path, _)| path.clone()).collect()
    }

    /// Whether the store has the files and links that `base` knows, and no others.
    pub(crate) fn is_as(&self, base: &Base) -> bool {
        base.notes.lost.is_empty() && self.changed(base, |_| None).is_empty()
    }

    /// The objects that have the bytes that the base knows, and may have been put again with other attributes.
    pub(crate) fn renewed(&self, base: &Base) -> Vec<(GuestPath, Version)> {
        let renewed = self.objects.iter().filter(|(path, object)| {
            let known = base.get(path).filter(|known| known.leaf.size() == object.size);
            known.is_some_and(|known| {
                known.version.same_bytes(&object.version) && !known.version.is(&object.version)
            })
        });
        renewed.map(|(path, object)| (path.clone(), object.version.clone())).collect()
    }

    /// The store as a tree: by the base where it has not changed since, by `contents` where these are known.
    pub(crate) fn tree(&self, base: &Base, contents: &Contents) -> Tree {
        let mut tree = Tree::default();
        for (path, object) in &self.objects {
            match (contents.get(path), base.get(path)) {
                (Some(found), _) => tree.add(path.clone(), found.leaf.clone()),
                (None, Some(known)) if base.is_at(path, &object.version, object.size) => {
                    tree.add(path.clone(), known.leaf.clone());
                }
                (None, _) => tree.add_unknown(path.clone()),
            }
        }
        for path in &self.unknown {
            tree.add_unknown(path.clone());
        }
        // From the deepest: a directory with something in it follows from that.
        for path in self.markers.keys().rev() {
            // Where an object is as well, nobody knows which of the two is meant.
            if tree.has_room(path) && !self.unknown.contains(path) {
                tree.add(path.clone(), Leaf::Directory);
            }
        }
        if self.cut {
            tree.cut_off();
        }
        tree
    }

    /// The version with this ETag, and when it was put if it is the one that was listed.
    pub(crate) fn of_etag(&self, path: &GuestPath, etag: Option<String>) -> Version {
        let version = Version::of(etag);
        let listed = self.objects.get(path).filter(|object| object.version.same_bytes(&version));
        Version { put_at: listed.and_then(|object| object.version.put_at), ..version }
    }

    /// Whether nothing was listed: the wrong prefix, or a store that has lost everything, looks like that, too.
    pub(crate) fn is_empty(&self) -> bool {
        self.listed == 0 && self.markers.is_empty()
    }

    /// Whether the store has nothing at `path`, as far as its listing says.
    pub(crate) fn lacks(&self, path: &GuestPath) -> bool {
        self.lacks_object(path) && !self.markers.contains_key(path)
    }

    /// Whether the store has no file or link at `path`, as far as its listing says.
    pub(crate) fn lacks_object(&self, path: &GuestPath) -> bool {
        !self.cut && !self.objects.contains_key(path) && !self.unknown.contains(path)
    }

    /// The version that the store has at `path`, and the mode that it says its file has. If another host has changed nothing but
    /// the mode, that stays in the store and does not come here: then it is the mode that the store had before.
    pub(crate) fn version(
        &self,
        base: &Base,
        contents: &Contents,
        path: &GuestPath,
    ) -> (Version, Option<u32>) {
        match (self.markers.get(path), contents.get(path), base.get(path)) {
            (_, Some(found), known) => {
                let had = known.filter(|known| known.leaf == found.leaf).and_then(|known| known.mode);
                let mode = had.or(found.mode).or_else(|| known.and_then(|known| known.mode));
                (found.version.clone(), mode)
            }
            (Some(marker), None, _) => (marker.version.clone(), None),
            // Not that of the listing, which may be spelled in another way.
            (None, None, Some(known)) => (known.version.clone(), known.mode),
            (None, None, None) => (Version::default(), None),
        }
    }
}

fn above(path: &GuestPath) -> impl Iterator<Item = GuestPath> + use<> {
    std::iter::successors(path.parent(), GuestPath::parent).filter(|above| !above.is_top())
}

fn admit(path: &GuestPath, size: u64, room: u64, client: &Client, reserved: &[SafeName]) -> Result<()> {
    let limits = &client.limits;
    let refuse = |kind, detail: String| Err(Error::new(OPERATION, path, kind).with_detail(detail));
    match () {
        () if is_reserved(path, reserved) => refuse(ErrorKind::InvalidPath, "top name is reserved".into()),
        () if path.depth() > limits.depth => {
            refuse(ErrorKind::TooMany, format!("more than {} levels", limits.depth))
        }
        () if size > limits.file_bytes => {
            refuse(ErrorKind::TooLarge, format!("more than {} bytes", limits.file_bytes))
        }
        () if size > room => refuse(ErrorKind::TooLarge, format!("more than {} bytes in all", limits.bytes)),
        () => Ok(()),
    }
}

/// The kept paths with their sizes, and the refused keys with the reasons.
#[cfg(all(fuzzing, feature = "aws"))]
pub(super) type Shown = (Vec<(GuestPath, u64)>, Vec<(std::path::PathBuf, Error)>);

/// Reads a listing of keys and sizes: for the fuzz targets alone.
#[cfg(all(fuzzing, feature = "aws"))]
#[must_use]
pub fn read_listing(
    listing: Vec<(Vec<u8>, u64)>,
    prefix: &super::Prefix,
    limits: &crate::tree::ObjectLimits,
    reserved: &[SafeName],
) -> Shown {
    use futures_util::stream;
    let store = std::sync::Arc::new(object_store::memory::InMemory::new());
    let client = Client { limits: *limits, ..Client::new(super::Source::memory(store), prefix.clone()) };
    let listed = |(key, size)| Ok(Listed { key, size, etag: None, put_at: None });
    let listing = stream::iter(listing.into_iter().map(listed));
    let mut remote = Remote::default();
    // A listing of the target's own has no errors.
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() {
        let _ = runtime.block_on(remote.read(listing, &client, reserved, &|_, _| false));
    }
    let kept = remote.objects.into_iter().map(|(path, object)| (path, object.size));
    let refused = remote.left.first.into_iter().map(|left| (left.subject, left.error));
    (kept.collect(), refused.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifacts::{ObjectLimits, Prefix, Source};
    use crate::name::SafePath;
    use futures_util::stream;

    fn read(keys: &[&str], limits: ObjectLimits) -> Remote {
        let listed = |key: &&str| {
            let size = key.rsplit_once('=').map_or(10, |(_, size)| size.parse().unwrap());
            Ok(Listed { key: format!("p/{key}").into_bytes(), size, etag: None, put_at: None })
        };
        let store = std::sync::Arc::new(object_store::memory::InMemory::new());
        let prefix = Prefix::at(&SafePath::new("p").unwrap());
        let client = Client { limits, ..Client::new(Source::memory(store), prefix) };
        let mut remote = Remote::default();
        let reserved = [SafeName::new("skills").unwrap()];
        let listing = stream::iter(keys.iter().map(listed));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(remote.read(listing, &client, &reserved, &|_, _| false)).unwrap();
        remote
    }

    fn kept(remote: &Remote) -> Vec<&str> {
        remote.objects.keys().map(|path| path.as_str().unwrap()).collect()
    }

    #[test]
    fn files_in_place_of_directories_are_refused_and_equal_duplicates_are_one() {
        let keys = ["a/b", "a", "a-b", "x", "x", "y/z/1", "y/z", "é", "e\u{301}", "A"];
        let remote = read(&keys, ObjectLimits::default());
        assert_eq!(kept(&remote), ["A", "a-b", "a/b", "e\u{301}", "x", "y/z/1", "é"]);
        let refused: Vec<_> = remote.left.iter().map(|(key, _)| key.to_str().unwrap()).collect();
        assert_eq!(refused, ["p/a", "p/y/z"]);
        let unknown: Vec<_> = remote.unknown.iter().map(|path| path.as_str().unwrap()).collect();
        assert_eq!(unknown, ["a", "y/z"], "what is refused is not absent");
    }

    #[test]
    fn reserved_top_names_are_refused_in_any_case() {
        let remote = read(&["skills/x", "Skills/x", "sub/skills/x", "skillset"], ObjectLimits::default());
        assert_eq!(kept(&remote), ["skillset", "sub/skills/x"]);
        assert_eq!(remote.left.total, 2);
        let path = |raw: &str| GuestPath::new(raw).unwrap();
        for (top, reserved) in [("\u{17f}kills", "skills"), ("s\u{212a}ills", "skills"), ("k", "\u{212a}")] {
            assert!(is_reserved(&path(top), &[SafeName::new(reserved).unwrap()]), "{top} is {reserved}");
        }
    }

    #[test]
    fn what_is_over_a_limit_is_refused_and_the_rest_is_there() {
        let limits = ObjectLimits::default();
        assert_eq!(kept(&read(&["a/b/c", "d"], limits.with_depth(2))), ["d"]);
        assert!(kept(&read(&["a"], limits.with_file_bytes(9))).is_empty());
        let remote = read(&["a", "b", "c"], limits.with_objects(2));
        assert!(remote.cut && kept(&remote) == ["a", "b"]);
        let remote = read(&["a", "b"], limits.with_bytes(19));
        assert!(!remote.cut && kept(&remote) == ["a"] && remote.unknown.len() == 1);
    }
}
