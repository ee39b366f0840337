//! A listing that turns each key into a path.
//!
//! Problem: the first key that is no path ends it, for good. One planted key would keep all others from being listed.
//!
//! Defence: then one directory is listed after the other. One that cannot be listed becomes an object that no file is, a
//! directory with content, which is one refusal; of what is beneath it nothing is known, and so nothing is deleted.
//!
//! What remains: directly below the prefix such a key still ends the listing. `dir/` is listed as `dir`, which is not there when it
//! is fetched.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use object_store::path::{Error as PathError, Path};
use object_store::{Error as StoreError, ObjectMeta, ObjectStore};

use crate::artifacts::store::error::store_error;
use crate::artifacts::store::object::{Listed, quoted};
use crate::error::{Error, ErrorKind, Result};

/// Directories that are known and not yet listed; a store may name as many as it likes.
const DIRECTORIES: usize = 100_000;

/// Every object below `top`; the stream ends after its first error.
pub(super) fn list(store: Arc<dyn ObjectStore>, top: Path) -> BoxStream<'static, Result<Listed>> {
    let flat = Some(store.list(Some(&top)));
    let (seen, hasher) = (HashSet::new(), RandomState::new());
    let walk = Walk { store, flat, directories: vec![top.clone()], top, found: Vec::new(), seen, hasher };
    stream::unfold(Some(walk), |walk| async {
        let mut walk = walk?;
        match walk.next().await {
            Ok(Some(object)) => Some((Ok(object), Some(walk))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

struct Walk {
    store: Arc<dyn ObjectStore>,
    top: Path,
    /// The listing of all, until it fails.
    flat: Option<BoxStream<'static, object_store::Result<ObjectMeta>>>,
    directories: Vec<Path>,
    /// What the last directory has, from the end.
    found: Vec<Listed>,
    /// The keys that the first listing had shown, as hashes.
    seen: HashSet<u64>,
    hasher: RandomState,
}

impl Walk {
    async fn next(&mut self) -> Result<Option<Listed>> {
        if let Some(flat) = &mut self.flat {
            match flat.next().await {
                Some(Ok(meta)) => {
                    let object = listed(meta);
                    self.seen.insert(self.hasher.hash_one(&object.key));
                    return Ok(Some(object));
                }
                None => return Ok(None),
                Some(Err(StoreError::InvalidPath { .. })) => self.flat = None,
                Some(Err(error)) => return Err(store_error("list", self.top.as_ref(), error)),
            }
        }
        while self.found.is_empty() {
            let Some(directory) = self.directories.pop() else { return Ok(None) };
            self.enter(directory).await?;
        }
        Ok(self.found.pop())
    }

    async fn enter(&mut self, directory: Path) -> Result<()> {
        let listing = match self.store.list_with_delimiter(Some(&directory)).await {
            Ok(listing) => listing,
            Err(StoreError::InvalidPath { source }) if directory == self.top => {
                return Err(Error::new("list", raw(&source), ErrorKind::InvalidPath)
                    .with_detail("the store's own listing ends at this key, remove it")
                    .with_source(std::io::Error::other(source)));
            }
            Err(StoreError::InvalidPath { source }) => {
                let key = |key: &str, size| Listed { key: key.into(), size, etag: None, put_at: None };
                self.found = vec![key(&format!("{directory}/"), 1), key(raw(&source), 0)];
                return Ok(());
            }
            Err(error) => return Err(store_error("list", directory.as_ref(), error)),
        };
        // One that is not beneath could be listed again and again.
        let above = format!("{directory}/");
        let beneath = |path: &Path| directory.as_ref().is_empty() || path.as_ref().starts_with(&above);
        self.directories.extend(listing.common_prefixes.into_iter().filter(|path| beneath(path)));
        if self.directories.len() > DIRECTORIES {
            return Err(Error::new("list", self.top.as_ref(), ErrorKind::TooMany)
                .with_detail("more directories than can be remembered"));
        }
        let fresh = listing.objects.into_iter().rev().map(listed);
        self.found = fresh.filter(|object| !self.seen.contains(&self.hasher.hash_one(&object.key))).collect();
        Ok(())
    }
}

fn listed(meta: ObjectMeta) -> Listed {
    Listed {
        key: String::from(meta.location).into_bytes(),
        size: meta.size,
        etag: meta.e_tag.map(quoted),
        put_at: Some(meta.last_modified.timestamp()),
    }
}

/// The key that is no path, where the store says it.
fn raw(error: &PathError) -> &str {
    match error {
        PathError::EmptySegment { path }
        | PathError::BadSegment { path, .. }
        | PathError::NonUnicode { path, .. } => path,
        _ => "a key",
    }
}
