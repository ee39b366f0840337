//! The parts of a file that is too large for one request, and how they become the object.

use sha2::{Digest as _, Sha256};

use super::uploader::{Content, Uploader, read};
use crate::artifacts::disk::blocking;
use crate::artifacts::progress::Event;
use crate::artifacts::store::{Compares, Condition, Parts, Retry};
use crate::error::{ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::ContainedFile;
use crate::tree::Digest;

impl Uploader {
    /// Puts all of `file`, `part` bytes at a time; returns the size and the hash of what was read.
    pub(super) async fn send(
        &self,
        parts: &dyn Parts,
        path: &GuestPath,
        file: std::io::Take<ContainedFile>,
        part: u64,
    ) -> Result<(u64, Digest)> {
        let retry = self.retry_of_parts();
        let (mut rest, mut hash, mut sent) = (file, Sha256::new(), 0);
        loop {
            let (file, subject, mut hashing) = (rest, path.clone(), hash);
            let (file, bytes, hashed) = blocking("read", move || {
                let (file, bytes) = read(&subject, file, part)?;
                hashing.update(&bytes);
                Ok((file, bytes, hashing))
            })
            .await?;
            (rest, hash) = (file, hashed);
            let moved = bytes.len() as u64;
            if moved == 0 {
                return Ok((sent, hash.finalize().into()));
            }
            let limit = self.retry.deadline(moved);
            let calls = retry.about(&self.progress, path).within(limit);
            self.patience.call(path, calls.run(|_| parts.put(bytes.clone()))).await?;
            sent += moved;
            self.progress.report(&Event::Moved { path, bytes: moved });
        }
    }

    /// Makes the parts the object, if `condition` holds.
    pub(super) async fn complete(
        &self,
        parts: &dyn Parts,
        key: &str,
        content: &Content<'_>,
        condition: Condition<'_>,
    ) -> Result<Option<String>> {
        let (limit, compares) =
            (self.retry.deadline(content.leaf.size()), self.completions().await.of(condition));
        // Not every store checks the condition of a completion.
        self.call(content.path, 0, || self.compare(key, condition)).await?;
        let complete = |_| async {
            match parts.complete(condition).await {
                Err(error) if error.kind() == ErrorKind::Unsupported && condition != Condition::Always => {
                    Ok((parts.complete(Condition::Always).await?, Compares::Never))
                }
                result => Ok((result?, compares)),
            }
        };
        let calls = self.retry_of_parts().about(&self.progress, content.path).within(limit);
        let (etag, compared) = self.patience.call(content.path, calls.run(complete)).await?;
        self.count(if condition == Condition::Always { Compares::Never } else { compared });
        Ok(etag)
    }

    /// As often as the store lets a part or a completion be sent again.
    fn retry_of_parts(&self) -> Retry {
        let repeats = self.source.backend().abilities().repeats;
        if repeats { self.retry } else { self.retry.with_attempts(1) }
    }
}
