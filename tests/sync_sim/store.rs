//! A store in memory whose answers get lost, whose listings are old or cut short, and whose requests fail.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use beneath::artifacts::conformance::{
    Abilities, Attributes, Backend, Body, Condition, Head, Parts, silence,
};
use beneath::artifacts::{Retry, Source};
use beneath::{Error, Result};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use object_store::memory::InMemory;

/// Numbers that are the same for the same seed.
#[derive(Debug)]
pub(crate) struct Tape(u64);

impl Tape {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// It is not heard.
    Unheard,
    /// It is done, and the answer is lost.
    AnswerLost,
}

#[derive(Debug)]
struct Shared {
    inner: Source,
    schedule: Mutex<Tape>,
    /// Whether anything goes wrong at all.
    rough: AtomicBool,
    /// Whether a listing was not the truth since somebody asked.
    lied: AtomicBool,
    faults: AtomicU64,
    /// What an earlier listing showed.
    earlier: Mutex<Vec<(Vec<u8>, Option<String>)>>,
}

/// The store, for any number of hosts.
#[derive(Clone, Debug)]
pub(crate) struct Scripted(Arc<Shared>);

impl Scripted {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Shared {
            inner: Source::memory(Arc::new(InMemory::new())),
            schedule: Mutex::new(Tape::new(seed)),
            rough: AtomicBool::new(false),
            lied: AtomicBool::new(false),
            faults: AtomicU64::new(0),
            earlier: Mutex::default(),
        }))
    }

    pub(crate) fn source(&self) -> Source {
        Source::of_backend(Arc::new(self.clone()))
    }

    /// The store without its faults.
    pub(crate) fn honest(&self) -> &Source {
        &self.0.inner
    }

    pub(crate) fn set_rough(&self, rough: bool) {
        self.0.rough.store(rough, Ordering::SeqCst);
    }

    /// Whether a listing has lied since the last question.
    pub(crate) fn has_lied(&self) -> bool {
        self.0.lied.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn faults(&self) -> u64 {
        self.0.faults.load(Ordering::SeqCst)
    }

    fn inner(&self) -> &dyn Backend {
        self.0.inner.backend()
    }

    fn draw(&self) -> Fault {
        if !self.0.rough.load(Ordering::SeqCst) {
            return Fault::None;
        }
        let fault = match self.0.schedule.lock().unwrap().below(12) {
            0 => Fault::Unheard,
            1 => Fault::AnswerLost,
            _ => Fault::None,
        };
        self.0.faults.fetch_add(u64::from(fault != Fault::None), Ordering::SeqCst);
        fault
    }

    /// One request, or what goes wrong with it.
    fn ask<'a, T: Send + 'a>(
        &'a self,
        key: &'a str,
        request: BoxFuture<'a, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        let fault = self.draw();
        async move {
            match fault {
                Fault::None => request.await,
                Fault::Unheard => Err(lost(key)),
                Fault::AnswerLost => {
                    let _ = request.await;
                    Err(lost(key))
                }
            }
        }
        .boxed()
    }
}

fn lost(key: &str) -> Error {
    silence("ask for", key)
}

impl Backend for Scripted {
    fn abilities(&self) -> Abilities {
        self.inner().abilities()
    }

    fn identity(&self) -> String {
        self.inner().identity()
    }

    fn list(&self, prefix: &str, retry: Retry) -> BoxStream<'static, Result<beneath::artifacts::Listed>> {
        let listed: Vec<_> = self.inner().list(prefix, retry).collect::<Vec<_>>().now_or_never().unwrap();
        let shown: Vec<_> =
            listed.iter().flatten().map(|object| (object.key.clone(), object.etag.clone())).collect();
        let rough = self.0.rough.load(Ordering::SeqCst);
        let lie = if rough { self.0.schedule.lock().unwrap().below(10) } else { 9 };
        let mut earlier = self.0.earlier.lock().unwrap();
        let listed: Vec<_> = match lie {
            // Cut short, and said to be whole.
            0 => {
                let half = listed.len() / 2;
                listed.into_iter().take(half).collect()
            }
            // As it was: without what has come since. Versions that are gone cannot be shown.
            1 => {
                let is_old = |item: &Result<beneath::artifacts::Listed>| {
                    item.as_ref().is_ok_and(|object| {
                        earlier.iter().any(|(key, etag)| *key == object.key && *etag == object.etag)
                    })
                };
                listed.into_iter().filter(is_old).collect()
            }
            2 => vec![Err(lost(prefix))],
            _ => listed,
        };
        if lie < 2 {
            self.0.lied.store(true, Ordering::SeqCst);
        }
        if lie == 9 {
            *earlier = shown;
        }
        stream::iter(listed).boxed()
    }

    fn get<'a>(&'a self, key: &'a str, etag: Option<&'a str>) -> BoxFuture<'a, Result<Body>> {
        self.ask(key, self.inner().get(key, etag))
    }

    fn rest<'a>(&'a self, key: &'a str, etag: &'a str, from: u64) -> BoxFuture<'a, Result<Option<Body>>> {
        self.ask(key, self.inner().rest(key, etag, from))
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Head>>> {
        self.ask(key, self.inner().head(key))
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        content: Bytes,
        attributes: &'a Attributes,
        condition: Condition<'a>,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        self.ask(key, self.inner().put(key, content, attributes, condition))
    }

    fn begin<'a>(
        &'a self,
        key: &'a str,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Box<dyn Parts>>> {
        self.inner().begin(key, attributes)
    }

    fn abort<'a>(&'a self, key: &'a str, id: &'a str) -> BoxFuture<'a, Result<()>> {
        self.inner().abort(key, id)
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        self.ask(key, self.inner().delete(key))
    }

    fn sign<'a>(
        &'a self,
        key: &'a str,
        valid: Duration,
        disposition: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String>> {
        self.inner().sign(key, valid, disposition)
    }
}
