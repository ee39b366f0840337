//! A store whose answers get lost, whose listings are old, short or out of order, and whose requests fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use beneath::artifacts::conformance::{
    Abilities, Attributes, Backend, Body, Compares as Comparison, Condition, Head, Kind, Parts, failure,
    head, listed, silence,
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
    /// What is no file: directories, and trials.
    others: BTreeMap<String, Object>,
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
            others: BTreeMap::new(),
            past: Vec::new(),
        }
    }

    pub(crate) fn replace_bucket(&mut self) {
        self.bucket += 1;
        self.past.clear();
        self.others.clear();
        self.books.objects.clear();
        self.books.marked.clear();
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
        let item = |key: String, object: &Object| {
            let mut item = listed(key.into_bytes(), object.body.len() as u64, Some(object.etag.clone()));
            item.put_at = Some(object.when as i64);
            item
        };
        let files = self.books.objects.iter().map(|(name, object)| item(key_of(name), object));
        files.chain(self.others.iter().map(|(key, object)| item(key.clone(), object))).collect()
    }

    fn find(&self, key: &str) -> Option<&Object> {
        match name_of(key) {
            Some(name) => self.books.objects.get(&name),
            None => self.others.get(key),
        }
    }

    /// Puts an object, or removes it.
    fn change(&mut self, host: usize, key: &str, new: Option<Object>, apart: bool) {
        if let Some(name) = name_of(key) {
            return self.books.change(host, &name, new, apart);
        }
        // No file: a directory that says that it is one, or a trial.
        match new {
            Some(new) => drop(self.others.insert(key.to_owned(), new)),
            None => drop(self.others.remove(key)),
        }
        // Where a slash at the end is not kept, or nobody could find that out, something follows it.
        let directory = |key: &String| name_of(key.strip_suffix("/%=").or(key.strip_suffix('/'))?);
        self.books.marked = self.others.keys().filter_map(directory).collect();
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
        (shown, lie == 7 && self.schedule.once_in(2))
    }
}

pub(crate) fn key_of(name: &[u8]) -> String {
    prefix().key(&beneath::GuestPath::try_from(name).unwrap()).unwrap()
}

/// The path of a file; none if it is the key of something else.
pub(crate) fn name_of(key: &str) -> Option<Name> {
    prefix().path(key.as_bytes()).ok().map(|path| path.as_bytes().to_vec())
}

fn entry_of(content: &[u8], attributes: &Attributes) -> Entry {
    match attributes.kind {
        Kind::Link => Entry::Link(content.to_vec()),
        _ => Entry::File {
            content: content.to_vec(),
            execute: attributes.mode.is_some_and(|mode| mode & 0o100 != 0),
        },
    }
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
            if fault == Fault::Refused && condition != Condition::Always {
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
