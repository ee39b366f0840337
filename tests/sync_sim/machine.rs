//! Calls that are polled as the schedule says, and that end before their time.
//!
//! Each call stops at its *points*: before and after a request to the store, and whenever it waits for another thread. At a point
//! nothing of it is under way, so that what happens there is the same each time.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Runtime};

use crate::history::End;
use crate::stage::Stage;

/// No call takes as long.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The threads and the clock of both hosts. Its clock jumps whenever all wait.
#[derive(Debug, Default)]
pub(crate) struct Machine(Option<Runtime>);

/// A call under way.
pub(crate) struct Live<'c, T> {
    pub(crate) host: usize,
    pub(crate) call: BoxFuture<'c, T>,
    pub(crate) ends: Option<(u32, End)>,
}

/// How a call came to its end.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    Returned(T),
    Cut(End),
    /// It waits for ever.
    Hangs,
}

struct Flag {
    woken: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if let Some(outer) = self.outer.lock().unwrap().take() {
            outer.wake();
        }
    }
}

impl Flag {
    fn new() -> Arc<Self> {
        Arc::new(Self { woken: AtomicBool::new(false), outer: Mutex::new(None) })
    }

    /// Waits until it is worth polling again.
    async fn woken(&self) {
        std::future::poll_fn(|context| {
            *self.outer.lock().unwrap() = Some(context.waker().clone());
            match self.woken.swap(false, Ordering::SeqCst) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

impl Machine {
    fn runtime(&mut self) -> &Runtime {
        // With one thread for all that blocks, whatever was given to it before is done before what follows.
        let build = || {
            let mut builder = Builder::new_current_thread();
            builder.enable_time().start_paused(true).max_blocking_threads(1).build().unwrap()
        };
        self.0.get_or_insert_with(build)
    }

    /// Plays one call to its end, without a stop; none if it has no end.
    pub(crate) fn play<T>(&mut self, call: BoxFuture<'_, T>) -> Option<T> {
        // A timer must be made where its clock is.
        self.runtime().block_on(async { tokio::time::timeout(DAY, call).await.ok() })
    }

    /// Plays calls from point to point, in the order of the schedule. `meanwhile` is called at each point with its number.
    pub(crate) fn step<T>(
        &mut self,
        stage: &Mutex<Stage>,
        calls: Vec<Live<'_, T>>,
        meanwhile: impl FnMut(u32),
    ) -> Vec<(usize, Ended<T>)> {
        let (mut ended, dying) = self.runtime().block_on(steps(stage, calls, meanwhile));
        if let Some(live) = dying {
            ended.push((live.host, Ended::Cut(End::Died)));
            self.die(live.call);
        }
        ended
    }

    /// Polls `call` once more where no other thread does anything any more: what it has to leave to one is never done.
    fn die<T>(&mut self, mut call: BoxFuture<'_, T>) {
        let Some(runtime) = self.0.take() else { return };
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let _inside = handle.enter();
        let quiet = Quiet::begin();
        // A timer of a runtime that is gone panics. The process is dead by then.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            drop(call.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            drop(call);
        }));
        drop((polled, quiet));
    }
}

thread_local! {
    static DYING: Cell<bool> = const { Cell::new(false) };
}

/// Whether what is said now is said by a process that is dead.
pub(crate) fn is_dying() -> bool {
    DYING.get()
}

/// While it is there, panics of this thread are not printed.
struct Quiet;

impl Quiet {
    fn begin() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if !DYING.get() {
                    usual(panic);
                }
            }));
        });
        DYING.set(true);
        Self
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        DYING.set(false);
    }
}

async fn steps<'c, T>(
    stage: &Mutex<Stage>,
    calls: Vec<Live<'c, T>>,
    mut meanwhile: impl FnMut(u32),
) -> (Vec<(usize, Ended<T>)>, Option<Live<'c, T>>) {
    let mut calls: Vec<_> = calls.into_iter().map(|call| (call, Flag::new(), 0)).collect();
    let (mut ended, mut point) = (Vec::new(), 0);
    while !calls.is_empty() {
        let next = stage.lock().unwrap().schedule.below(calls.len() as u64) as usize;
        let (live, flag, points) = &mut calls[next];
        *points += 1;
        match live.ends.filter(|(at, _)| at == points) {
            Some((_, End::Died)) => return (ended, Some(calls.remove(next).0)),
            Some((_, End::Dropped)) => {
                ended.push((live.host, Ended::Cut(End::Dropped)));
                drop(calls.remove(next));
                idle().await;
                continue;
            }
            None => {}
        }
        stage.lock().unwrap().parked[live.host] = false;
        flag.woken.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(flag));
        // Else what it gives to the other thread may be done before it asks for the first time.
        let gate = close();
        let polled = live.call.as_mut().poll(&mut Context::from_waker(&waker));
        drop(gate);
        if let Poll::Ready(done) = polled {
            ended.push((live.host, Ended::Returned(done)));
            drop(calls.remove(next));
            continue;
        }
        let parked = stage.lock().unwrap().parked[live.host];
        if !parked && tokio::time::timeout(DAY, flag.woken()).await.is_err() {
            ended.push((live.host, Ended::Hangs));
            drop(calls.remove(next));
            continue;
        }
        idle().await;
        point += 1;
        meanwhile(point);
    }
    (ended, None)
}

/// Waits until nothing is under way in the other thread.
async fn idle() {
    tokio::task::spawn_blocking(|| ()).await.unwrap();
}

/// Lets nothing more be done in the other thread until it is dropped.
fn close() -> mpsc::Sender<()> {
    let (gate, closed) = mpsc::channel();
    tokio::task::spawn_blocking(move || closed.recv().is_err());
    gate
}
