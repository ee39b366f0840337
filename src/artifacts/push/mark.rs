//! Empty directories, as objects in the store.
//!
//! Problem: a store knows keys and no directories. One with something in it follows from that, and an empty one is lost. Some
//! servers keep real directories behind their keys, which are then in the way of a file of that name.
//!
//! Defence: an empty directory is an object of its own, without content. It goes when the directory goes, together with the
//! directories above it that are gone as well.
//!
//! What remains: modes of directories are not kept. A file in place of a directory may take a second call.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};

use super::uploader::Uploader;
use crate::artifacts::Artifacts;
use crate::artifacts::state::Version;
use crate::artifacts::store::{Attributes, Condition, Kind};
use crate::artifacts::sync::Turn;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::tree::{Leaf, Tree};

impl Artifacts {
    /// Puts the objects that mark empty directories.
    pub(super) async fn mark_all(&self, uploader: &Uploader, turn: &mut Turn, mut paths: Vec<GuestPath>) {
        // Where a file could not be deleted it stays, and is reported.
        let is_file =
            |path: &GuestPath| turn.base.get(path).is_some_and(|known| known.leaf != Leaf::Directory);
        paths.retain(|path| {
            !std::iter::successors(Some(path.clone()), GuestPath::parent).any(|at| is_file(&at))
        });
        let unsure = turn.unsure;
        let marked = stream::iter(paths).map(|path| async move {
            let marked = match unsure {
                // Some servers take the key for that of a file.
                true => Err(Error::new("put", &path, ErrorKind::Unsupported)
                    .with_detail("nobody could find out whether the store keeps directories")),
                false => self.mark(uploader, &path).await,
            };
            (path, marked)
        });
        let mut marked = std::pin::pin!(marked.buffer_unordered(self.client.concurrency));
        while let Some((path, marked)) = marked.next().await {
            match marked {
                Ok(etag) => {
                    turn.report.uploaded += 1;
                    let known = turn.local.known(&path, Leaf::Directory, (Version::of(etag), None));
                    turn.base.insert(path, known);
                }
                Err(error) => turn.report.failed.add(&path, error),
            }
        }
    }

    async fn mark(&self, uploader: &Uploader, path: &GuestPath) -> Result<Option<String>> {
        let key = self.client.key(path, &Leaf::Directory)?;
        let mut attributes = Attributes::default();
        (attributes.kind, attributes.mode) = (Kind::Directory, Some(0o755));
        let store = self.client.source.backend();
        uploader.call(path, 0, || store.put(&key, Bytes::new(), &attributes, Condition::Always)).await
    }

    /// Deletes the objects of directories that are gone.
    pub(super) async fn unmark_all(&self, uploader: &Uploader, turn: &mut Turn, paths: Vec<GuestPath>) {
        // One after the other: one may be in another.
        for path in paths {
            let listed = turn.remote.markers.get(&path);
            let keys = match listed {
                Some(marker) => Ok(marker.keys.iter().cloned().collect()),
                None => self.client.key(&path, &Leaf::Directory).map(|key| vec![key]),
            };
            let store = self.client.source.backend();
            let removed = async {
                for key in keys? {
                    uploader.call(&path, 0, || store.delete(&key)).await?;
                }
                Ok::<_, crate::Error>(())
            };
            let removed = removed.await;
            match removed {
                Ok(()) => {
                    turn.report.deleted += u64::from(listed.is_some());
                    turn.base.remove(&path);
                }
                Err(error) if listed.is_some() => turn.report.failed.add(&path, error),
                // It was no object, and need not be there.
                Err(_) => {}
            }
        }
    }
}

impl Turn {
    /// The directories to mark in the store, and those that are gone, with those that the plan says: the innermost
    /// first.
    pub(super) fn directories(
        &self,
        was: &Tree,
        there: &Tree,
        deletes: &[GuestPath],
        planned: Vec<GuestPath>,
    ) -> (Vec<GuestPath>, Vec<GuestPath>) {
        let Self { local, remote, .. } = self;
        let going: BTreeSet<&GuestPath> = deletes.iter().chain(&planned).collect();
        let empty = local.tree.iter().filter(|(_, leaf)| **leaf == Leaf::Directory);
        let unmarked = empty.filter(|(path, _)| {
            let free = there.is_absent(path) || there.is_directory(path) || going.contains(path);
            let below = there.file_above(path).is_some_and(|above| !going.contains(&above));
            free && !below && !remote.markers.contains_key(path)
        });
        let marks = unmarked.map(|(path, _)| path.clone()).collect();
        let is_gone = |path: &GuestPath| {
            let gone = !local.tree.is_directory(path) && !local.tree.is_unknown(path);
            gone && was.is_directory(path) && there.get(path).is_none() && !there.is_in_use(path, &going)
        };
        // What was left of a directory when it had something in it, of which the last goes now.
        let emptied = remote.markers.keys().filter(|path| is_gone(path)).cloned();
        let above = planned.iter().flat_map(|path| std::iter::successors(path.parent(), GuestPath::parent));
        let above = above.filter(|path| !path.is_top() && is_gone(path));
        let all: BTreeSet<GuestPath> = emptied.chain(above).chain(planned.iter().cloned()).collect();
        (marks, all.into_iter().rev().collect())
    }
}
