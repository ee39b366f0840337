//! What a server does with conditions and attributes, found out by trying.
//!
//! Problem: a server may take a condition and ignore it. Two hosts then overwrite each other although each has asked for
//! the version that it knows, and no answer shows it.
//!
//! Defence: before the first call that relies on a condition, a scratch object is put, and put again on conditions that do not
//! hold. Only a server that refuses these is relied on. What is found out holds for all copies of the source. What
//! cannot be found out is not relied on, and is tried again by the next call.
//!
//! In the same way an object with attributes is put, and one whose key ends in `/`: some servers drop the former, and some take
//! the latter for another object.
//!
//! What remains: a server that compares without a lock is not found out. A host that dies meanwhile leaves a scratch object,
//! which every listing skips.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::sync::OnceCell;

use super::attributes::{Attributes, Kind};
use super::backend::{Abilities, Backend, Compares, Conditions};
use super::object::{Condition, Doomed, Listed};
use super::retry::{Retry, within};
use crate::artifacts::key::Prefix;
use crate::error::{ErrorKind, Result};

/// A version that no object has.
const WRONG: &str = "\"00000000000000000000000000000000\"";

/// What was found out of a server, each once.
#[derive(Debug, Default)]
pub(super) struct Found {
    puts: OnceCell<Conditions>,
    completions: OnceCell<Conditions>,
    keeps: OnceCell<Keeps>,
    deletes: OnceCell<Deletes>,
}

/// How a store removes objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deletes {
    /// How it checks the version of one that is removed by itself.
    pub(crate) one: Compares,
    /// How it checks the versions of those that are removed together.
    pub(crate) many: Compares,
    /// The most that it removes in one request.
    pub(crate) bulk: usize,
}

impl Deletes {
    /// Whether several are removed in one request: not if the store compares only those that are removed by themselves.
    pub(crate) fn together(&self) -> bool {
        self.bulk > 1 && (self.many == Compares::InOneStep || self.one != Compares::InOneStep)
    }

    /// How the version of each is checked, as they are removed.
    pub(crate) fn way(&self) -> Compares {
        if self.together() { self.many } else { self.one }
    }
}

/// What a store keeps of a file besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keeps {
    /// Mode, time and kind.
    pub(crate) attributes: bool,
    /// Keys that end in `/`.
    pub(crate) markers: bool,
}

impl Found {
    /// How `store` checks the conditions of a put; what is still [`Compares::AsServer`] could not be found out.
    pub(super) async fn puts(&self, store: &dyn Backend, prefix: &Prefix, retry: Retry) -> Conditions {
        let claimed = store.abilities().put;
        if !claimed.depends_on_the_server() {
            return claimed;
        }
        let trial = async || Trial { store, scratch: prefix.scratch()?, retry }.puts(claimed).await;
        self.puts.get_or_try_init(trial).await.copied().unwrap_or(claimed)
    }

    /// What `store` keeps of a file; where that cannot be found out, as little as any store.
    pub(super) async fn keeps(&self, store: &dyn Backend, prefix: &Prefix, retry: Retry) -> Keeps {
        let claimed = claimed(store);
        // What is in this process or on this machine is known.
        if !store.abilities().put.depends_on_the_server() || !claimed.attributes {
            return claimed;
        }
        let trial = async || Trial { store, scratch: prefix.scratch()?, retry }.keeps(claimed, prefix).await;
        let found = self.keeps.get_or_try_init(trial).await.copied();
        found.unwrap_or(Keeps { attributes: false, markers: false })
    }

    /// What was found out, or what the store claims.
    pub(super) fn known(&self, store: &dyn Backend) -> Keeps {
        self.keeps.get().copied().unwrap_or_else(|| claimed(store))
    }

    /// The same for a completion of parts.
    pub(super) async fn completions(&self, store: &dyn Backend, prefix: &Prefix, retry: Retry) -> Conditions {
        let claimed = store.abilities().complete;
        if !claimed.depends_on_the_server() {
            return claimed;
        }
        let trial = async || Trial { store, scratch: prefix.scratch()?, retry }.completions(claimed).await;
        self.completions.get_or_try_init(trial).await.copied().unwrap_or(claimed)
    }

    /// The same for removals.
    pub(super) async fn deletes(&self, store: &dyn Backend, prefix: &Prefix, retry: Retry) -> Deletes {
        let Abilities { delete: one, delete_many: many, bulk, .. } = store.abilities();
        let claimed = Deletes { one, many, bulk };
        if one != Compares::AsServer && many != Compares::AsServer {
            return claimed;
        }
        let trial = async || Trial { store, scratch: prefix.scratch()?, retry }.deletes(claimed).await;
        self.deletes.get_or_try_init(trial).await.copied().unwrap_or(claimed)
    }
}

fn claimed(store: &dyn Backend) -> Keeps {
    let Abilities { attributes, markers, .. } = store.abilities();
    Keeps { attributes, markers }
}

/// One scratch object, and what is tried on it.
struct Trial<'a> {
    store: &'a dyn Backend,
    scratch: String,
    retry: Retry,
}

impl Trial<'_> {
    async fn call<T, C: Future<Output = Result<T>>>(&self, mut call: impl FnMut() -> C) -> Result<T> {
        let calls = self.retry.of("probe", Path::new(&self.scratch)).within(self.retry.silence());
        calls.run(|_| call()).await
    }

    async fn put(&self, content: &'static str, condition: Condition<'_>) -> Result<Option<String>> {
        let content = Bytes::from_static(content.as_bytes());
        self.call(|| self.store.put(&self.scratch, content.clone(), &Attributes::NONE, condition)).await
    }

    async fn keeps(&self, claimed: Keeps, prefix: &Prefix) -> Result<Keeps> {
        let mut attributes = Attributes::NONE;
        (attributes.mode, attributes.put_id) = (Some(0o751), Some("beneath".to_owned()));
        attributes.modified = UNIX_EPOCH.checked_add(Duration::from_secs(1));
        let put = || self.store.put(&self.scratch, Bytes::new(), &attributes, Condition::Always);
        self.call(put).await?;
        let found = self.call(|| self.store.head(&self.scratch)).await?;
        let listed = self.list(1).await?;
        // One that lists the time of the file as its own does not show when an object is put again.
        let shows = !listed.iter().any(|object| object.put_at == Some(1));
        let keeps = shows && found.is_some_and(|found| found.attributes == attributes);
        self.clear().await;
        let markers = claimed.markers && self.markers(prefix).await?;
        Ok(Keeps { attributes: keeps && self.store.abilities().attributes, markers })
    }

    /// The first objects under the scratch key, for which nobody waits longer than for any listing.
    async fn list(&self, most: usize) -> Result<Vec<Listed>> {
        let listing = self.store.list(&self.scratch, self.retry).take(most).try_collect();
        within(self.retry.whole(), "list", &self.scratch, listing).await
    }

    /// Whether a key with a slash at its end is listed, and is no other object.
    async fn markers(&self, prefix: &Prefix) -> Result<bool> {
        let marker = format!("{}/", self.scratch);
        let mut attributes = Attributes::NONE;
        attributes.kind = Kind::Directory;
        let put = || self.store.put(&marker, Bytes::new(), &attributes, Condition::Always);
        if let Err(error) = self.call(put).await {
            return if error.kind() == ErrorKind::Io { Err(error) } else { Ok(false) };
        }
        let other = self.call(|| self.store.head(&self.scratch)).await;
        let listed = self.list(2).await;
        let removed = self.call(|| self.store.delete(&marker)).await;
        let is_listed = |listed: Vec<Listed>| matches!(listed.as_slice(), [one] if one.key == marker.as_bytes() && prefix.is_scratch(&one.key));
        // A listing that only failed now says nothing, and is asked for again by the next call.
        let listed = match listed {
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            listed => listed.is_ok_and(is_listed),
        };
        Ok(other?.is_none() && listed && removed.is_ok())
    }

    async fn puts(&self, claimed: Conditions) -> Result<Conditions> {
        self.put("scratch", Condition::Always).await?;
        let absent = self.put("absent", Condition::Absent).await;
        let unchanged = self.put("unchanged", Condition::Unchanged(WRONG)).await;
        self.clear().await;
        verdict(claimed, absent, unchanged)
    }

    async fn completions(&self, claimed: Conditions) -> Result<Conditions> {
        self.put("scratch", Condition::Always).await?;
        let absent = self.complete(Condition::Absent).await;
        let unchanged = self.complete(Condition::Unchanged(WRONG)).await;
        self.clear().await;
        verdict(claimed, absent, unchanged)
    }

    async fn deletes(&self, claimed: Deletes) -> Result<Deletes> {
        self.put("scratch", Condition::Always).await?;
        let one = self.call(|| self.store.delete_if(&self.scratch, WRONG)).await;
        // It is gone if the condition was ignored.
        self.put("scratch", Condition::Always).await?;
        let doomed = [Doomed { key: self.scratch.clone(), etag: Some(WRONG.to_owned()) }];
        let many = self.call(|| self.store.delete_many(&doomed)).await;
        self.clear().await;
        let bulk = match &many {
            Err(error) if error.kind() != ErrorKind::Io => 1,
            _ => claimed.bulk,
        };
        let many = many.and_then(|outcomes| outcomes.into_iter().collect::<Result<()>>());
        let many = if bulk == 1 { Compares::Never } else { kept(claimed.many, many)? };
        Ok(Deletes { one: kept(claimed.one, one)?, many, bulk })
    }

    /// Removes the scratch object. If that fails, every listing skips it.
    async fn clear(&self) {
        let _ = self.call(|| self.store.delete(&self.scratch)).await;
    }

    /// Each needs an upload of its own: one that was completed is gone, which looks like a refusal.
    async fn complete(&self, condition: Condition<'_>) -> Result<Option<String>> {
        let parts = self.call(|| self.store.begin(&self.scratch, &Attributes::NONE)).await?;
        let completed = async {
            self.call(|| parts.put(Bytes::from_static(b"part"))).await?;
            // Once: of an answer that was lost nobody knows what it said, and the upload may be gone.
            within(self.retry.silence(), "probe", &self.scratch, parts.complete(condition)).await
        };
        let completed = completed.await;
        if completed.is_err() {
            // The scratch object goes all the same.
            let _ = self.call(|| parts.abort()).await;
        }
        completed
    }
}

/// What the answers to two calls say, whose conditions did not hold.
fn verdict(
    claimed: Conditions,
    absent: Result<Option<String>>,
    unchanged: Result<Option<String>>,
) -> Result<Conditions> {
    Ok(Conditions { absent: kept(claimed.absent, absent)?, unchanged: kept(claimed.unchanged, unchanged)? })
}

fn kept<T>(claimed: Compares, answer: Result<T>) -> Result<Compares> {
    match answer.map_err(|error| (error.kind(), error)) {
        _ if claimed != Compares::AsServer => Ok(claimed),
        Ok(_) | Err((ErrorKind::Unsupported, _)) => Ok(Compares::Never),
        Err((ErrorKind::AlreadyExists | ErrorKind::Busy | ErrorKind::NotFound, _)) => Ok(Compares::InOneStep),
        Err((_, error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn only_a_refusal_shows_that_a_condition_is_kept() {
        let answer = |kind| Err(Error::new("put", "k", kind));
        let kept = |answer: Result<Option<String>>| kept(Compares::AsServer, answer).ok();
        assert_eq!(kept(answer(ErrorKind::Busy)), Some(Compares::InOneStep));
        assert_eq!(kept(answer(ErrorKind::AlreadyExists)), Some(Compares::InOneStep));
        assert_eq!(kept(answer(ErrorKind::NotFound)), Some(Compares::InOneStep));
        assert_eq!(kept(Ok(None)), Some(Compares::Never), "it was ignored");
        assert_eq!(kept(answer(ErrorKind::Unsupported)), Some(Compares::Never));
        assert_eq!(kept(answer(ErrorKind::Io)), None, "nobody knows");
        assert_eq!(kept(answer(ErrorKind::Denied)), None);
        let denied: Result<()> = Err(Error::new("put", "k", ErrorKind::Denied));
        assert_eq!(super::kept(Compares::Never, denied).ok(), Some(Compares::Never), "it was not asked for");
    }
}
