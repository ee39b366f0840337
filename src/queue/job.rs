//! A request that the host has taken, from the claim to its answer.
//!
//! Problem: a host that dies has begun some requests and not others. Without a record of which, it either handles some twice or
//! answers none of them.
//!
//! Defence: whoever handles a request says so first, by [`Job::start`], and that is on disk before the handler runs. What was
//! taken and not started is handed out again by [`recover`](super::Queue::recover), and what was started is reported and never
//! handed out.
//!
//! What remains: between the start and the answer nobody knows how far a handler came.

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::SystemTime;

use super::disk::{OPERATION, Side, Step};
use super::envelope::{Body, Outcome, Request, Response};
use super::hold::Hold;
use super::id::RequestId;
use super::refusal::Refusal;
use super::shared::{Answered, Remains, Shared};
use super::slots::Slot;
use crate::error::{Error, ErrorKind, Result};

/// A claimed request that nobody has started; from [`Queue::poll`](super::Queue::poll).
///
/// Dropping it leaves it claimed: [`recover`](super::Queue::recover) hands it out again.
#[must_use = "a request that is dropped waits for a recovery"]
pub struct Job(Box<Held>);

/// A request whose handler may run; from [`Job::start`].
///
/// Dropping it leaves it started: [`recover`](super::Queue::recover) finds it indeterminate.
#[must_use = "a request that is dropped waits for a recovery"]
pub struct Started(Box<Held>);

/// An answer that could not be saved, and the request it is for, so that it can be tried again.
#[derive(Debug)]
pub struct Unanswered {
    /// Why.
    pub error: Error,
    /// The request.
    pub started: Started,
}

/// A request that this process has.
struct Held {
    shared: Arc<Shared>,
    request: Request,
    waiting_since: SystemTime,
    remains: Remains,
    slot: Slot,
    /// Others see by it that somebody has the request.
    hold: Hold,
}

impl Job {
    pub(super) fn new(
        shared: &Arc<Shared>,
        request: Request,
        waiting_since: SystemTime,
        slot: Slot,
        hold: Hold,
    ) -> Self {
        let body = if let Body::File(_) = request.body { Side::Perhaps } else { Side::No };
        let remains = Remains { from: Step::Started, body, out: Side::No };
        Self(Box::new(Held { shared: Arc::clone(shared), request, waiting_since, remains, slot, hold }))
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.0.request.id
    }

    /// What the guest asks for.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.0.request
    }

    /// When it was last changed before it was taken, by the kernel's clock.
    #[must_use]
    pub fn waiting_since(&self) -> SystemTime {
        self.0.waiting_since
    }

    /// Says that the handler is about to run. From here on a crash leaves the outcome open.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) if another request of this id is being handled, or the ledger has it by now;
    /// this one is then removed or answered 409. [`NotFound`](ErrorKind::NotFound) if another worker has recovered it, which
    /// locks prevent where the file system has them. After any other error it is still claimed, and is recovered.
    ///
    /// # Races
    /// Of two workers that have it, one starts it. The guest has no part in it.
    pub fn start(self) -> Result<Started> {
        let Held { shared, request, .. } = &*self.0;
        let id = &request.id;
        match shared.disk.start(id) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                shared.disk.forget(id, Step::Claimed)?;
                return Err(error.about(id.as_str()).with_detail("a request of this id is being handled"));
            }
            started => started.map_err(|error| error.about(id.as_str()))?,
        }
        shared.note_progress();
        // An earlier one may have ended since the claim. It was recorded before its state ended, so now it is known.
        if shared.is_reused(id).inspect_err(|_| shared.disk.unstart(id))? {
            let refusal = Refusal::Reused;
            let error = refusal.error(OPERATION, id.as_str());
            let _ = self.0.answer(&refusal.response(), None).map_err(|(error, _)| error)?;
            return Err(error);
        }
        Ok(Started(self.0))
    }

    /// Answers it without starting it, with a status from 400 to 599. The guest learns that it may ask again.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData) for another status; it is then still claimed, and is recovered. The kinds of a write
    /// if the answer could not be saved; the next [`poll`](super::Queue::poll) tries again.
    ///
    /// # Races
    /// As [`Started::answer`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let queue = session.queue(Default::default())?;
    /// # let shared = beneath::Root::open_ambient(dir.path().join("s/guest/queue"), beneath::ambient_authority())?;
    /// # let client = beneath::queue::Client::new(shared, Default::default());
    /// use beneath::queue::{Outcome, Request};
    ///
    /// let mut ticket = client.submit(&Request::new("DELETE", "/")?)?;
    /// for job in queue.poll()?.jobs {
    ///     let _ = job.refuse(403, "not allowed")?;
    /// }
    /// let response = ticket.try_fetch()?.unwrap();
    /// assert_eq!((response.status, response.outcome), (403, Outcome::NotStarted));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refuse(self, status: u16, body: impl AsRef<[u8]>) -> Result<Answered> {
        if !(400..=599).contains(&status) {
            let error = Error::new(OPERATION, self.id().as_str(), ErrorKind::InvalidData);
            return Err(error.with_detail("a refusal has a status from 400 to 599"));
        }
        let mut response = Response::new(status).with_body(Body::from(body.as_ref()));
        response.outcome = Outcome::NotStarted;
        self.refuse_with(&response)
    }

    pub(super) fn refuse_with(self, response: &Response) -> Result<Answered> {
        let Held { shared, request, slot, hold, .. } = *self.0;
        let answered = shared.refuse(&request.id, response, slot, Some(hold))?;
        Ok(answered.unwrap_or(Answered::Already))
    }
}

impl Started {
    pub(super) fn recovered(mut job: Job) -> Self {
        job.0.remains.out = Side::Perhaps;
        Self(job.0)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.0.request.id
    }

    /// What the guest asks for.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.0.request
    }

    /// The same, so that its body can be read or taken.
    pub fn request_mut(&mut self) -> &mut Request {
        &mut self.0.request
    }

    /// Answers it: the answer is saved on the host's side, and then published.
    ///
    /// # Errors
    /// [`Unanswered`], with the request, if the answer could not be saved: [`InvalidData`](ErrorKind::InvalidData) for a status or
    /// headers that no guest would read, and the kinds of a write. Answer again, or drop it, and it is indeterminate.
    ///
    /// # Races
    /// A guest that has replaced `responses` has it [`Saved`](Answered::Saved). One that has put something at the answer's name has
    /// it [`Already`](Answered::Already), and nothing of that is read, replaced or followed.
    pub fn answer(self, response: &Response) -> Result<Answered, Unanswered> {
        self.0.answer(response, None).map_err(Unanswered::new)
    }

    /// Answers it with a body in a file of its own, if the [config](super::QueueConfig::with_response_file_bytes) allows one. The
    /// body of `response` does not count.
    ///
    /// # Errors
    /// As [`answer`](Self::answer), and [`Io`](ErrorKind::Io) if the reader fails.
    ///
    /// # Races
    /// As [`answer`](Self::answer). The body appears before the answer does.
    pub fn answer_from(self, response: &Response, mut body: impl Read) -> Result<Answered, Unanswered> {
        self.0.answer(response, Some(&mut body)).map_err(Unanswered::new)
    }

    /// Answers 504, outcome [`Indeterminate`](Outcome::Indeterminate): it was begun, and nobody knows how far it came.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    ///
    /// # Races
    /// As [`answer`](Self::answer).
    pub fn indeterminate(self, why: &str) -> Result<Answered, Unanswered> {
        self.answer(&Response::of_host(504, Outcome::Indeterminate, "indeterminate", why))
    }
}

impl Held {
    /// Answers what was started.
    fn answer(
        self: Box<Self>,
        response: &Response,
        reader: Option<&mut dyn Read>,
    ) -> Result<Answered, (Error, Box<Self>)> {
        let Self { shared, request, waiting_since, remains, slot, hold } = *self;
        match shared.answer(&request.id, remains, response, reader, slot) {
            Ok(answered) => {
                // Otherwise its state may not have ended.
                if !shared.is_saved(&request.id) {
                    hold.end();
                }
                Ok(answered)
            }
            Err((error, slot)) => {
                // Its body may have been saved.
                let remains = Remains { out: Side::Perhaps, ..remains };
                Err((error, Box::new(Self { shared, request, waiting_since, remains, slot, hold })))
            }
        }
    }
}

impl Unanswered {
    fn new((error, held): (Error, Box<Held>)) -> Self {
        Self { error, started: Started(held) }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Unanswered {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<Unanswered> for Error {
    /// Drops the request.
    fn from(unanswered: Unanswered) -> Self {
        unanswered.error
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.0.request).finish()
    }
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Started").field(&self.0.request).finish()
    }
}
