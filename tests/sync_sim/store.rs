//! A store whose answers get lost, whose listings are old, short or out of order, and whose requests fail.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use beneath::artifacts::conformance::{
    Abilities, Backend, Body, Compares as Comparison, Condition, Parts, failure, listed, silence,
};
use beneath::artifacts::{Listed, Prefix, Retry, Source};
use beneath::{ErrorKind, Result, SessionId};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, BoxStream, StreamExt as _};

use crate::books::{Books, Object};
use crate::disk::{Entry, Name};
use crate::history::{Compares, Versions};
use crate::tape::Tape;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// It is not heard, or the server fails.
    Unheard,
    /// It is done, and the answer is lost.
    AnswerLost,
    /// No answer ever comes.
    Silent,
    /// The server says that somebody else is at it (409), and has done nothing.
    Refused,
    Denied,
    /// The body ends early, and nobody has said how long it is.
    Short,
}

/// The state of the store, and of its mood.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) books: Books,
    pub(crate) schedule: Tape,
    pub(crate) versions: Versions,
    pub(crate) compares: Compares,
    /// Whether anything goes wrong at all.
    pub(crate) rough: bool,
    /// Whether listings show what was there at first.
    pub(crate) stale: bool,
    /// Whether requests wait until they are let through.
    pub(crate) stepped: bool,
    /// Whether bodies may come without their length. Such a body has a thread of its own while it comes.
    pub(crate) shortens: bool,
    /// Which hosts have a request that waits.
    pub(crate) parked: [bool; 2],
    /// Whether a host was shown a listing that is not the truth.
    pub(crate) lied: [bool; 2],
    pub(crate) faults: u64,
    pub(crate) requests: u64,
    /// How often the bucket was replaced by another.
    pub(crate) bucket: u64,
    clock: u64,
    /// What earlier listings have shown.
    past: Vec<Vec<Listed>>,
}

/// The store as one host sees it.
#[derive(Clone, Debug)]
pub(crate) struct Scripted {
    stage: Arc<Mutex<Stage>>,
    host: usize,
    abilities: Abilities,
}

pub(crate) fn prefix() -> Prefix {
    Prefix::session(&SessionId::new("s"))
}

impl Stage {
    pub(crate) fn new(books: Books, versions: Versions, compares: Compares) -> Self {
        Self {
            books,
            schedule: Tape::new(0, 0),
            versions,
            compares,
            rough: false,
            stale: false,
            stepped: false,
            shortens: false,
            parked: [false; 2],
            lied: [false; 2],
            faults: 0,
            requests: 0,
            bucket: 0,
            clock: 0,
            past: Vec::new(),
        }
    }

    pub(crate) fn replace_bucket(&mut self) {
        self.bucket += 1;
        self.past.clear();
        self.books.objects.clear();
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn draw(&mut self) -> Fault {
        self.requests += 1;
        if !self.rough {
            return Fault::None;
        }
        let fault = match self.schedule.below(36) {
            0 | 1 => Fault::Unheard,
            2 | 3 => Fault::AnswerLost,
            4 => Fault::Silent,
            5 => Fault::Refused,
            6 => Fault::Denied,
            7 if self.shortens => Fault::Short,
            _ => Fault::None,
        };
        self.faults += u64::from(fault != Fault::None);
        fault
    }

    fn version(&self, content: &[u8]) -> String {
        match self.versions {
            Versions::Count => format!("\"{}\"", self.clock),
            Versions::Content => {
                let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
                format!("\"{:x}\"", content.iter().fold(0xcbf2_9ce4_8422_2325, mix))
            }
        }
    }

    fn listing(&self) -> Vec<Listed> {
        let item = |(name, object): (&Name, &Object)| {
            listed(key_of(name).into_bytes(), size_of(&object.entry), Some(object.etag.clone()))
        };
        self.books.objects.iter().map(item).collect()
    }

    /// What a listing shows, and whether it ends in silence.
    fn show(&mut self, host: usize) -> (Vec<Result<Listed>>, bool) {
        self.requests += 1;
        let truth = self.listing();
        let lie = match () {
            () if self.stale => 3,
            () if self.rough => self.schedule.below(16),
            () => 15,
        };
        self.faults += u64::from(lie < 8);
        let mut shown: Vec<Result<Listed>> = truth.iter().cloned().map(Ok).collect();
        match lie {
            // Cut short, and said to be whole.
            0 | 1 => {
                let length = self.schedule.below(shown.len() as u64 + 1) as usize;
                shown.truncate(length);
                self.lied[host] |= length < truth.len();
            }
            // As it was at some time.
            2 | 3 if !self.past.is_empty() => {
                let first = self.past.iter().position(|shown| !shown.is_empty()).unwrap_or(0);
                let any = self.schedule.below(self.past.len() as u64) as usize;
                let old = if self.stale { first } else { any };
                self.lied[host] |= self.past[old] != truth;
                shown = self.past[old].iter().cloned().map(Ok).collect();
            }
            // Two pages overlap, in one version or in two.
            4 => shown.extend(truth.iter().take(2).cloned().map(Ok)),
            5 => {
                let old = self.past.last().into_iter().flatten().take(2).cloned();
                shown.extend(old.map(Ok));
                self.lied[host] = true;
            }
            6 => shown.truncate(shown.len() / 2),
            7 => shown.reverse(),
            _ => {}
        }
        if lie == 6 {
            shown.push(Err(silence("list", prefix().as_str())));
        }
        if self.past.last() != Some(&truth) {
            self.past.push(truth);
        }
        (shown, lie == 7 && self.schedule.once_in(4))
    }
}

fn size_of(entry: &Entry) -> u64 {
    match entry {
        Entry::File { content, .. } => content.len() as u64,
        Entry::Link(to) => to.len() as u64,
    }
}

pub(crate) fn key_of(name: &[u8]) -> String {
    prefix().key(&beneath::GuestPath::try_from(name).unwrap()).unwrap()
}

pub(crate) fn name_of(key: &str) -> Name {
    prefix().path(key.as_bytes()).unwrap().as_bytes().to_vec()
}

/// What a store has at a key, as it sends it.
fn body_of(entry: &Entry) -> Vec<u8> {
    match entry {
        Entry::File { content, .. } | Entry::Link(content) => content.clone(),
    }
}

impl Scripted {
    pub(crate) fn new(stage: &Arc<Mutex<Stage>>, host: usize) -> Self {
        let memory = Source::memory(Arc::new(object_store::memory::InMemory::new()));
        let mut abilities = memory.backend().abilities();
        if stage.lock().unwrap().compares == Compares::Never {
            (abilities.put.absent, abilities.put.unchanged) = (Comparison::Never, Comparison::Never);
        }
        Self { stage: Arc::clone(stage), host, abilities }
    }

    pub(crate) fn source(&self) -> Source {
        Source::of_backend(Arc::new(self.clone()))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap()
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
        request: impl FnOnce(&mut Stage, &Name, Fault) -> Result<T>,
    ) -> Result<T> {
        self.wait().await;
        let (answer, fault, late) = {
            let mut stage = self.stage();
            let (fault, name) = (stage.draw(), name_of(key));
            stage.tick();
            let answer = match fault {
                Fault::Unheard | Fault::Silent => None,
                Fault::Denied => Some(Err(failure(operation, key, ErrorKind::Denied, "not permitted"))),
                fault => Some(request(&mut stage, &name, fault)),
            };
            let outcome = answer.as_ref().map(|answer| answer.as_ref().err().map(beneath::Error::kind));
            let host = self.host;
            stage.books.tell(|| {
                format!("  host {host} {operation} {}, {fault:?}: {outcome:?}", name.escape_ascii())
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

    fn take(&self, stage: &mut Stage, key: &str, name: &Name, content: Option<Bytes>) -> Option<String> {
        let new = content.map(|content| Object {
            etag: stage.version(&content),
            entry: Entry::file(content.to_vec()),
            when: stage.clock,
        });
        debug_assert_eq!(key_of(name), key);
        let etag = new.as_ref().map(|new| new.etag.clone());
        let apart = new.is_none() || stage.compares == Compares::Never;
        stage.books.change(self.host, name, new, apart);
        etag
    }
}

impl Backend for Scripted {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn identity(&self) -> String {
        format!("bucket {}", self.stage().bucket)
    }

    fn list(&self, _: &str, _: Retry) -> BoxStream<'static, Result<Listed>> {
        let store = self.clone();
        let shown = async move {
            store.wait().await;
            let (shown, silent) = store.stage().show(store.host);
            let names = |item: &Result<Listed>| {
                item.as_ref().map_or("error".to_owned(), |item| item.key.escape_ascii().to_string())
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
        let request = move |stage: &mut Stage, name: &Name, fault| {
            let now = stage.clock;
            let Some(object) = stage.books.objects.get(name).cloned() else {
                return Err(failure("get", key, ErrorKind::NotFound, "no such object"));
            };
            if etag.is_some_and(|etag| etag != object.etag) {
                return Err(failure("get", key, ErrorKind::Busy, "object changed meanwhile"));
            }
            let host = &mut stage.books.hosts[self.host];
            host.looked.insert(name.clone(), now);
            let mut content = body_of(&object.entry);
            let mut size = Some(content.len() as u64);
            if fault == Fault::Short {
                content.truncate(content.len() / 2);
                size = None;
            } else {
                host.knows.insert((name.clone(), object.entry.essence()));
            }
            let chunks = stream::iter([Ok(Bytes::from(content))]).boxed();
            Ok(Body { size, etag: Some(object.etag), chunks })
        };
        self.ask("get", key, request).boxed()
    }

    fn rest<'a>(&'a self, _: &'a str, _: &'a str, _: u64) -> BoxFuture<'a, Result<Option<Body>>> {
        async { Ok(None) }.boxed()
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Listed>>> {
        let request = |stage: &mut Stage, name: &Name, _| {
            let now = stage.clock;
            stage.books.hosts[self.host].looked.insert(name.clone(), now);
            let object = stage.books.objects.get(name);
            Ok(object.map(|object| listed(key.into(), size_of(&object.entry), Some(object.etag.clone()))))
        };
        self.ask("head", key, request).boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        content: Bytes,
        condition: Condition<'a>,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        let request = move |stage: &mut Stage, name: &Name, fault| {
            if fault == Fault::Refused && condition != Condition::Always {
                return Err(failure("put", key, ErrorKind::AlreadyExists, "somebody else is at it"));
            }
            let found = stage.books.objects.get(name).map(|object| object.etag.as_str());
            let ignored = stage.compares == Compares::Never;
            match (condition, found) {
                _ if ignored => {}
                (Condition::Absent, Some(_)) => {
                    return Err(failure("put", key, ErrorKind::AlreadyExists, "is there"));
                }
                (Condition::Unchanged(etag), found) if found != Some(etag) => {
                    return Err(failure("put", key, ErrorKind::Busy, "object changed meanwhile"));
                }
                _ => {}
            }
            Ok(self.take(stage, key, name, Some(content)))
        };
        self.ask("put", key, request).boxed()
    }

    fn begin<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Box<dyn Parts>>> {
        async move { Err(failure("put", key, ErrorKind::Unsupported, "no parts")) }.boxed()
    }

    fn abort<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        let request = |stage: &mut Stage, name: &Name, _| {
            self.take(stage, key, name, None);
            Ok(())
        };
        self.ask("delete", key, request).boxed()
    }

    fn sign<'a>(&'a self, key: &'a str, _: Duration) -> BoxFuture<'a, Result<String>> {
        async move { Err(failure("sign", key, ErrorKind::Unsupported, "no signer")) }.boxed()
    }
}
