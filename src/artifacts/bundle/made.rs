//! A manifest for a version that was stored without one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::stream::{self, StreamExt as _};
use sha2::{Digest as _, Sha256};

use super::install::Bundles;
use super::manifest::Manifest;
use crate::artifacts::store::within;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{GuestPath, SafePath};
use crate::tree::Digest;

const OPERATION: &str = "make manifest";

impl Bundles {
    /// Hashes what the store lists below `home`; none if that is nothing.
    pub(super) async fn make_manifest(&self, home: &SafePath) -> Result<Option<Manifest>> {
        let prefix = self.client.prefix.join(home);
        let limits = self.client.limits;
        let mut paths: BTreeMap<GuestPath, u64> = BTreeMap::new();
        let (retry, mut seen) = (self.client.retry, 0_u64);
        let mut listed = self.client.source.backend().list(prefix.as_str(), retry);
        let wait = retry.whole();
        while let Some(object) =
            within(wait, OPERATION, home, async { listed.next().await.transpose() }).await?
        {
            seen += 1;
            if seen > limits.objects {
                return Err(Error::new(OPERATION, home, ErrorKind::TooMany));
            }
            // What consoles make for a directory.
            if object.size == 0 && object.key.ends_with(b"/") {
                continue;
            }
            paths.insert(prefix.path(&object.key)?, object.size);
        }
        if paths.is_empty() {
            return Ok(None);
        }
        let taken = &AtomicU64::new(0);
        let prefix = &prefix;
        let hashes = stream::iter(paths).map(|(path, size)| async move {
            let key = prefix.key(&path)?;
            let _leave = self.client.source.leave().await;
            let calls = retry.about(&self.client.progress, &path).within(retry.deadline(size));
            let hash = calls.run(|_| self.hash(&key, (&path, size), taken)).await?;
            // A manifest has no names but safe ones.
            Ok::<_, Error>((SafePath::new(&path.as_path().to_string_lossy())?, hash))
        });
        let mut hashes = std::pin::pin!(hashes.buffer_unordered(self.client.concurrency));
        let mut files = BTreeMap::new();
        while let Some(hashed) = hashes.next().await {
            let (path, hash): (SafePath, Digest) = hashed?;
            files.insert(path, hash);
        }
        Ok(Some(Manifest { files }))
    }

    async fn hash(&self, key: &str, (path, listed): (&GuestPath, u64), taken: &AtomicU64) -> Result<Digest> {
        let mut body = self.client.source.backend().get(key, None).await?;
        let (mut hash, mut size, whole) = (Sha256::new(), 0_u64, body.size.unwrap_or(listed));
        while let Some(chunk) = body.chunks.next().await {
            let chunk = chunk?;
            size += chunk.len() as u64;
            let all = taken.fetch_add(chunk.len() as u64, Ordering::Relaxed) + chunk.len() as u64;
            if size > self.client.limits.file_bytes || all > self.client.limits.bytes {
                return Err(Error::new(OPERATION, path, ErrorKind::TooLarge));
            }
            hash.update(&chunk);
        }
        match size == whole {
            true => Ok(hash.finalize().into()),
            false => Err(Error::new(OPERATION, path, ErrorKind::Io)
                .with_detail(format!("body ends after {size} of {whole} bytes"))),
        }
    }
}
