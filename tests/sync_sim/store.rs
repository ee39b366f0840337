//! A store whose answers get lost, whose listings are old, short or out of order, and whose requests fail.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use beneath::artifacts::conformance::{
    Abilities, Attributes, Backend, Body, Compares as Comparison, Condition, Head, Parts, failure, head,
    silence,
};
use beneath::artifacts::{Listed, Retry, Source};
use beneath::{ErrorKind, Result};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, BoxStream, StreamExt as _};

use crate::books::Object;
use crate::disk::Name;
use crate::history::{Compares, Versions};
use crate::stage::{Fault, Stage, entry_of, name_of};

/// The store as one host sees it.
#[derive(Clone, Debug)]
pub(crate) struct Scripted {
    stage: Arc<Mutex<Stage>>,
    host: usize,
    abilities: Abilities,
}

impl Scripted {
    pub(crate) fn new(stage: &Arc<Mutex<Stage>>, host: usize) -> Self {
        let memory = Source::memory(Arc::new(object_store::memory::InMemory::new()));
        let mut abilities = memory.backend().abilities();
        let (versions, compares) = {
            let stage = stage.lock().unwrap();
            (stage.versions, stage.compares)
        };
        let put = match compares {
            Compares::InOneStep => Comparison::InOneStep,
            Compares::Never => Comparison::Never,
            Compares::Ignored => Comparison::AsServer,
        };
        (abilities.put.absent, abilities.put.unchanged) = (put, put);
        (abilities.attributes, abilities.markers) = (true, true);
        abilities.content_etags = versions == Versions::Content;
        // Stores that count compare before they delete, and delete two at a time.
        let one_step = compares == Compares::InOneStep && versions == Versions::Content;
        abilities.delete = if one_step { Comparison::InOneStep } else { Comparison::Never };
        (abilities.delete_many, abilities.bulk) = (Comparison::Never, if one_step { 1 } else { 2 });
        Self { stage: Arc::clone(stage), host, abilities }
    }

    pub(crate) fn source(&self) -> Source {
        Source::of_backend(Arc::new(self.clone()))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap()
    }

    /// Notes that this host knows what is there now.
    fn looks(&self, stage: &mut Stage, key: &str) {
        if let Some(name) = name_of(key) {
            let now = stage.clock;
            stage.books.hosts[self.host].looked.insert(name, now);
        }
    }

    /// Whether the guest has written the file without a new stamp.
    pub(crate) fn is_blind(&self, name: &Name) -> bool {
        self.stage().books.hosts[self.host].blind.contains(name)
    }

    /// Waits until somebody lets this host go on.
    async fn wait(&self) {
        if !self.stage().stepped {
            return;
        }
        let mut waited = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            self.stage().parked[self.host] = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// One request, or what goes wrong with it.
    async fn ask<T>(
        &self,
        operation: &'static str,
        key: &str,
        request: impl FnOnce(&mut Stage, Fault) -> Result<T>,
    ) -> Result<T> {
        self.wait().await;
        let (answer, fault, late) = {
            let mut stage = self.stage();
            let fault = stage.draw();
            stage.tick();
            let answer = match fault {
                Fault::Unheard | Fault::Silent => None,
                Fault::Denied => Some(Err(failure(operation, key, ErrorKind::Denied, "not permitted"))),
                fault => Some(request(&mut stage, fault)),
            };
            let outcome = answer.as_ref().map(|answer| answer.as_ref().err().map(beneath::Error::kind));
            let host = self.host;
            stage.books.tell(|| {
                // The name of a trial is random.
                let what = if key.contains("~probe-") { "a trial" } else { key };
                format!("  host {host} {operation} {what}, {fault:?}: {outcome:?}")
            });
            let late = stage.stepped && stage.schedule.once_in(2);
            (answer, fault, late)
        };
        if late {
            self.wait().await;
        }
        match (answer, fault) {
            (_, Fault::Silent) => std::future::pending().await,
            (Some(answer), Fault::None | Fault::Denied | Fault::Refused | Fault::Short) => answer,
            _ => Err(silence(operation, key)),
        }
    }
}

impl Backend for Scripted {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn identity(&self) -> String {
        format!("bucket {}", self.stage().bucket)
    }

    fn list(&self, prefix: &str, _: Retry) -> BoxStream<'static, Result<Listed>> {
        let (store, prefix) = (self.clone(), prefix.to_owned());
        let shown = async move {
            store.wait().await;
            let (mut shown, silent) = store.stage().show(store.host);
            shown.retain(|item| item.as_ref().map_or(true, |item| item.key.starts_with(prefix.as_bytes())));
            let names = |item: &Result<Listed>| match item {
                Ok(item) if item.key.windows(7).any(|part| part == b"~probe-") => "a trial".to_owned(),
                Ok(item) => item.key.escape_ascii().to_string(),
                Err(error) => error.to_string(),
            };
            store.stage().books.tell(|| {
                format!("  host {} lists {:?}", store.host, shown.iter().map(names).collect::<Vec<_>>())
            });
            let end = stream::pending().take(usize::from(silent));
            stream::iter(shown).chain(end)
        };
        shown.flatten_stream().boxed()
    }

    fn get<'a>(&'a self, key: &'a str, etag: Option<&'a str>) -> BoxFuture<'a, Result<Body>> {
        let request = move |stage: &mut Stage, fault| {
            let Some(object) = stage.find(key).cloned() else {
                return Err(failure("get", key, ErrorKind::NotFound, "no such object"));
            };
            if etag.is_some_and(|etag| etag != object.etag) {
                return Err(failure("get", key, ErrorKind::Busy, "object changed meanwhile"));
            }
            let Object { entry, mut body, etag, attributes, .. } = object;
            let mut size = Some(body.len() as u64);
            self.looks(stage, key);
            if fault == Fault::Short {
                body.truncate(body.len() / 2);
                size = None;
            } else if let Some(name) = name_of(key) {
                stage.books.hosts[self.host].knows.insert((name, entry.essence()));
            }
            let chunks = stream::iter([Ok(Bytes::from(body))]).boxed();
            Ok(Body { size, etag: Some(etag), attributes, chunks })
        };
        self.ask("get", key, request).boxed()
    }

    fn rest<'a>(&'a self, _: &'a str, _: &'a str, _: u64) -> BoxFuture<'a, Result<Option<Body>>> {
        async { Ok(None) }.boxed()
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Head>>> {
        let request = |stage: &mut Stage, _| {
            self.looks(stage, key);
            let describe = |object: &Object| {
                head(object.body.len() as u64, Some(object.etag.clone()), object.attributes.clone())
            };
            Ok(stage.find(key).map(describe))
        };
        self.ask("head", key, request).boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        content: Bytes,
        attributes: &'a Attributes,
        condition: Condition<'a>,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        let request = move |stage: &mut Stage, fault| {
            // Who ignores conditions is never in doubt about one.
            let doubts = condition != Condition::Always && stage.compares == Compares::InOneStep;
            if fault == Fault::Refused && doubts {
                return Err(failure("put", key, ErrorKind::AlreadyExists, "somebody else is at it"));
            }
            let found = stage.find(key).map(|object| object.etag.as_str());
            match (condition, found) {
                _ if stage.compares != Compares::InOneStep => {}
                (Condition::Absent, Some(_)) => {
                    return Err(failure("put", key, ErrorKind::AlreadyExists, "is there"));
                }
                (Condition::Unchanged(etag), found) if found != Some(etag) => {
                    return Err(failure("put", key, ErrorKind::Busy, "object changed meanwhile"));
                }
                _ => {}
            }
            let (etag, entry) = (stage.version(&content), entry_of(&content, attributes));
            let (body, attributes, when) = (content.to_vec(), attributes.clone(), stage.clock);
            let new = Object { entry, etag: etag.clone(), when, body, attributes };
            let apart = stage.compares != Compares::InOneStep;
            stage.change(self.host, key, Some(new), apart);
            Ok(Some(etag))
        };
        self.ask("put", key, request).boxed()
    }

    fn begin<'a>(&'a self, key: &'a str, _: &'a Attributes) -> BoxFuture<'a, Result<Box<dyn Parts>>> {
        async move { Err(failure("put", key, ErrorKind::Unsupported, "no parts")) }.boxed()
    }

    fn abort<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        let request = |stage: &mut Stage, _| {
            stage.change(self.host, key, None, true);
            Ok(())
        };
        self.ask("delete", key, request).boxed()
    }

    fn delete_if<'a>(&'a self, key: &'a str, etag: &'a str) -> BoxFuture<'a, Result<()>> {
        let request = move |stage: &mut Stage, _| {
            if stage.find(key).is_some_and(|object| object.etag != etag) {
                return Err(failure("delete", key, ErrorKind::Busy, "object changed meanwhile"));
            }
            stage.change(self.host, key, None, false);
            Ok(())
        };
        self.ask("delete if unchanged", key, request).boxed()
    }

    fn sign<'a>(&'a self, key: &'a str, _: Duration, _: Option<&'a str>) -> BoxFuture<'a, Result<String>> {
        async move { Err(failure("sign", key, ErrorKind::Unsupported, "no signer")) }.boxed()
    }
}
