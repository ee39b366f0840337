//! Stores for the tests, and the directories of a session.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use beneath::artifacts::conformance::{Attributes, Condition};
use beneath::artifacts::{Artifacts, Places, Prefix, Source, SyncOptions};
use beneath::{Root, Session, SessionId, ambient_authority};
use beneath_kit::Snapshot;
use futures_util::TryStreamExt as _;
use sha2::{Digest as _, Sha256};

use crate::servers::{moto, weed};

/// Every kind of store, by name; prints which it had to leave out.
pub(crate) async fn every_store() -> Vec<(&'static str, Source)> {
    let mut stores = vec![("memory", memory()), ("directory", directory()), ("local", local().1)];
    for (name, server) in [("moto", moto()), ("seaweedfs", weed())] {
        if let Some(server) = server {
            stores.push((name, server.bucket().await.1));
        }
    }
    stores
}

/// How the key of a scratch object goes on after the prefix.
pub(crate) const SCRATCH: &str = "%=~probe-";

pub(crate) fn memory() -> Source {
    Source::memory(Arc::new(object_store::memory::InMemory::new()))
}

pub(crate) fn directory() -> Source {
    let home = tempfile::tempdir().unwrap().keep();
    Source::new(Arc::new(object_store::local::LocalFileSystem::new_with_prefix(home).unwrap()))
}

/// A directory as a store, and the source on it.
pub(crate) fn local() -> (PathBuf, Source) {
    let home = tempfile::tempdir().unwrap().keep();
    let source = Source::local(&home, ambient_authority()).unwrap();
    (home, source)
}

/// The directories of one session, and a canary beside them that no test may touch.
#[derive(Debug)]
pub(crate) struct Home {
    dir: tempfile::TempDir,
    outside: Snapshot,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["guest/workspace", "host/staging/artifacts", "host/state/artifacts", "outside"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("outside/canary"), "canary").unwrap();
        let outside = Snapshot::take(&dir.path().join("outside"));
        Self { dir, outside }
    }

    /// A path in the home: that of the workspace, of staging or of the state if it begins with one of these words.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        place_at(self.dir.path(), name)
    }

    pub(crate) fn workspace(&self, name: &str) -> PathBuf {
        self.path("workspace").join(name)
    }

    pub(crate) fn artifacts(&self, source: &Source) -> Artifacts {
        artifacts_at(self.dir.path(), source)
    }

    /// Every file of the workspace with its content.
    pub(crate) fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        tree_at(&self.path("workspace"))
    }

    /// Nothing in staging, nothing outside.
    pub(crate) fn assert_clean(&self) {
        let staged: Vec<_> = std::fs::read_dir(self.path("staging")).unwrap().collect();
        assert!(staged.is_empty(), "left in staging: {staged:?}");
        self.assert_contained();
    }

    pub(crate) fn assert_contained(&self) {
        self.outside.assert_same(&Snapshot::take(&self.path("outside")), "the canary");
    }
}

/// A home with files `f0`, `f1` and so on, which are in the store.
pub(crate) async fn mirrored(files: usize) -> (Home, Source, Artifacts) {
    let (home, source) = (Home::new(), memory());
    let artifacts = home.artifacts(&source);
    for n in 0..files {
        std::fs::write(home.workspace(&format!("f{n}")), format!("{n}")).unwrap();
    }
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    (home, source, artifacts)
}

pub(crate) fn prefix() -> Prefix {
    Prefix::session(&SessionId::new("s1"))
}

pub(crate) fn artifacts_at(home: &Path, source: &Source) -> Artifacts {
    Artifacts::new(source.clone(), prefix(), &session_at(home))
}

/// The session whose directories are in a home.
pub(crate) fn session_at(home: &Path) -> Session {
    let open = |name| Root::open_ambient(home.join(name), ambient_authority()).unwrap();
    Session::from_roots(open("guest"), open("host")).unwrap()
}

/// The same directories, for bundles.
pub(crate) fn places_at(home: &Path) -> Places {
    let open = |name| Root::open_ambient(place_at(home, name), ambient_authority()).unwrap();
    Places { workspace: open("workspace"), staging: open("staging"), state: open("state") }
}

pub(crate) fn place_at(home: &Path, name: &str) -> PathBuf {
    let places = [("workspace", "guest"), ("staging", "host"), ("state", "host")];
    let (top, rest) = name.split_once('/').unwrap_or((name, ""));
    match places.into_iter().find(|(place, _)| *place == top) {
        Some((_, "guest")) => home.join("guest/workspace").join(rest),
        Some((place, side)) => home.join(side).join(place).join("artifacts").join(rest),
        None => home.join(name),
    }
}

pub(crate) fn tree_at(top: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = walkdir::WalkDir::new(top).into_iter().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().is_file()).map(|entry| {
        let name = entry.path().strip_prefix(top).unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(entry.path()).unwrap())
    });
    files.collect()
}

/// What is beneath a directory: of files mode, time and content, of links the text, and every directory.
pub(crate) fn facts(top: &Path) -> BTreeMap<PathBuf, String> {
    let entries = walkdir::WalkDir::new(top).min_depth(1).into_iter().map(Result::unwrap);
    let fact = |entry: walkdir::DirEntry| {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        let fact = match () {
            () if metadata.is_dir() => "directory".to_owned(),
            () if metadata.is_symlink() => {
                format!("link to {}", std::fs::read_link(path).unwrap().as_os_str().as_bytes().escape_ascii())
            }
            () if metadata.is_file() => {
                let content: [u8; 32] = Sha256::digest(std::fs::read(path).unwrap()).into();
                let content = u128::from_be_bytes(content[..16].try_into().unwrap());
                let (mode, seconds) = (metadata.mode() & 0o777, metadata.mtime());
                format!("{mode:o} {seconds}.{:09} {content:x}", metadata.mtime_nsec())
            }
            () => "special".to_owned(),
        };
        (path.strip_prefix(top).unwrap().to_owned(), fact)
    };
    entries.map(fact).collect()
}

/// Every object under the prefix with its content.
pub(crate) async fn objects(source: &Source) -> BTreeMap<String, Vec<u8>> {
    let listed: Vec<_> = source.list(&prefix()).try_collect().await.unwrap();
    let mut objects = BTreeMap::new();
    for object in listed {
        let key = String::from_utf8(object.key).unwrap();
        // A host that was killed may have left one; no listing of the crate shows it.
        if key.contains(SCRATCH) {
            continue;
        }
        objects.insert(key.strip_prefix(prefix().as_str()).unwrap().to_owned(), get_key(source, &key).await);
    }
    objects
}

pub(crate) async fn seed(source: &Source, files: &[(&str, &[u8])]) {
    for (path, content) in files {
        put_object(source, path, content).await;
    }
}

pub(crate) async fn put_object(source: &Source, path: &str, content: &[u8]) {
    put_key(source, &format!("{}{path}", prefix()), content).await;
}

/// Puts an object past all that the crate checks.
pub(crate) async fn put_key(source: &Source, key: &str, content: &[u8]) {
    source.backend().put(key, content.to_vec().into(), &Attributes::NONE, Condition::Always).await.unwrap();
}

pub(crate) async fn get_key(source: &Source, key: &str) -> Vec<u8> {
    let body = source.backend().get(key, None).await.unwrap();
    body.chunks.try_collect::<Vec<_>>().await.unwrap().concat()
}

pub(crate) async fn delete_key(source: &Source, key: &str) {
    source.backend().delete(key).await.unwrap();
}
