//! What a queue allows.

use std::time::Duration;

use super::envelope::EnvelopeLimits;

/// What becomes of requests that come while as many as allowed are in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overflow {
    /// They wait in the guest's directory.
    #[default]
    Wait,
    /// They are answered 503, not started; they wait while as many answers as may be in flight cannot be published.
    Reject,
}

/// How a queue works and what it allows.
///
/// | | default | past it |
/// |---|---|---|
/// | entries that a poll looks at | 1,024 | the next poll goes on there; [`Polled::more`](super::Polled::more) |
/// | requests that a poll takes | 64 | likewise |
/// | requests in flight | 64 | wait, or 503 |
/// | a request's file | 384 KiB | 413 |
/// | a request's body in a file of its own | off | 413; off: 415 |
/// | an answer's body | 256 KiB | 502, outcome *done* |
/// | an answer's body in a file of its own | off | likewise |
/// | an envelope | [`EnvelopeLimits`] | 400 |
/// | a request that waits | 1 h | 503 |
/// | answers that nobody fetches | 256, 64 MiB, 10 min | [`sweep`](super::Queue::sweep) removes the oldest |
/// | names that are no request | 1 h | `sweep` removes them |
///
/// ```
/// use std::time::Duration;
/// use beneath::queue::{Overflow, QueueConfig};
///
/// let config = QueueConfig::default().with_in_flight(8).with_overflow(Overflow::Reject).with_ledger(10_000);
/// assert_eq!((config.in_flight(), config.request_bytes()), (8, 384 << 10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    entries: usize,
    claims: usize,
    in_flight: usize,
    overflow: Overflow,
    request_bytes: u64,
    request_file_bytes: u64,
    response_bytes: u64,
    response_file_bytes: u64,
    envelope: EnvelopeLimits,
    waiting_age: Duration,
    junk_age: Duration,
    responses: usize,
    responses_bytes: u64,
    response_age: Duration,
    ledger: usize,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            entries: 1024,
            claims: 64,
            in_flight: 64,
            overflow: Overflow::Wait,
            request_bytes: 384 << 10,
            request_file_bytes: 0,
            response_bytes: 256 << 10,
            response_file_bytes: 0,
            envelope: EnvelopeLimits::default(),
            waiting_age: Duration::from_secs(3600),
            junk_age: Duration::from_secs(3600),
            responses: 256,
            responses_bytes: 64 << 20,
            response_age: Duration::from_secs(600),
            ledger: 0,
        }
    }
}

impl QueueConfig {
    /// Bounds how many entries of `requests` a poll looks at; at least one.
    #[must_use]
    pub const fn with_entries(mut self, entries: usize) -> Self {
        self.entries = if entries == 0 { 1 } else { entries };
        self
    }

    /// Bounds how many requests a poll takes or refuses; at least one.
    #[must_use]
    pub const fn with_claims(mut self, claims: usize) -> Self {
        self.claims = if claims == 0 { 1 } else { claims };
        self
    }

    /// Bounds how many requests are claimed and not answered, and answers that could not be published; at least one.
    #[must_use]
    pub const fn with_in_flight(mut self, requests: usize) -> Self {
        self.in_flight = if requests == 0 { 1 } else { requests };
        self
    }

    /// Sets what becomes of requests past that.
    #[must_use]
    pub const fn with_overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// Bounds the file of a request.
    #[must_use]
    pub const fn with_request_bytes(mut self, bytes: u64) -> Self {
        self.request_bytes = bytes;
        self
    }

    /// Lets a request have its body in a file of its own, of at most so many bytes. None may by default.
    #[must_use]
    pub const fn with_request_file_bytes(mut self, bytes: u64) -> Self {
        self.request_file_bytes = bytes;
        self
    }

    /// Bounds the body of an answer.
    #[must_use]
    pub const fn with_response_bytes(mut self, bytes: u64) -> Self {
        self.response_bytes = bytes;
        self
    }

    /// Lets an answer have its body in a file of its own, of at most so many bytes. None may by default.
    #[must_use]
    pub const fn with_response_file_bytes(mut self, bytes: u64) -> Self {
        self.response_file_bytes = bytes;
        self
    }

    /// Bounds what an envelope contains.
    #[must_use]
    pub const fn with_envelope(mut self, limits: EnvelopeLimits) -> Self {
        self.envelope = limits;
        self
    }

    /// Sets after which time a request that nobody has started is answered 503.
    #[must_use]
    pub const fn with_waiting_age(mut self, age: Duration) -> Self {
        self.waiting_age = age;
        self
    }

    /// Sets after which time a name that is no request is swept away.
    #[must_use]
    pub const fn with_junk_age(mut self, age: Duration) -> Self {
        self.junk_age = age;
        self
    }

    /// Bounds the number of answers that nobody has fetched.
    #[must_use]
    pub const fn with_responses(mut self, answers: usize) -> Self {
        self.responses = answers;
        self
    }

    /// Bounds the bytes of all answers that nobody has fetched.
    #[must_use]
    pub const fn with_responses_bytes(mut self, bytes: u64) -> Self {
        self.responses_bytes = bytes;
        self
    }

    /// Sets after which time an answer that nobody has fetched is swept away.
    #[must_use]
    pub const fn with_response_age(mut self, age: Duration) -> Self {
        self.response_age = age;
        self
    }

    /// Remembers the last `ids` ids that were answered: one that is used again is answered 409, and no handler sees it.
    /// 0, the default, remembers none.
    #[must_use]
    pub const fn with_ledger(mut self, ids: usize) -> Self {
        self.ledger = ids;
        self
    }

    /// Most entries that a poll looks at.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// Most requests that a poll takes or refuses.
    #[must_use]
    pub const fn claims(&self) -> usize {
        self.claims
    }

    /// Most requests in flight.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// What becomes of requests past that.
    #[must_use]
    pub const fn overflow(&self) -> Overflow {
        self.overflow
    }

    /// Most bytes of a request's file.
    #[must_use]
    pub const fn request_bytes(&self) -> u64 {
        self.request_bytes
    }

    /// Most bytes of a request's body in a file of its own.
    #[must_use]
    pub const fn request_file_bytes(&self) -> u64 {
        self.request_file_bytes
    }

    /// Most bytes of an answer's body.
    #[must_use]
    pub const fn response_bytes(&self) -> u64 {
        self.response_bytes
    }

    /// Most bytes of an answer's body in a file of its own.
    #[must_use]
    pub const fn response_file_bytes(&self) -> u64 {
        self.response_file_bytes
    }

    /// What an envelope may contain.
    #[must_use]
    pub const fn envelope(&self) -> EnvelopeLimits {
        self.envelope
    }

    /// How long a request may wait.
    #[must_use]
    pub const fn waiting_age(&self) -> Duration {
        self.waiting_age
    }

    /// How long a name that is no request may stay.
    #[must_use]
    pub const fn junk_age(&self) -> Duration {
        self.junk_age
    }

    /// Most answers that nobody has fetched.
    #[must_use]
    pub const fn responses(&self) -> usize {
        self.responses
    }

    /// Most bytes of them.
    #[must_use]
    pub const fn responses_bytes(&self) -> u64 {
        self.responses_bytes
    }

    /// How long they may stay.
    #[must_use]
    pub const fn response_age(&self) -> Duration {
        self.response_age
    }

    /// How many ids are remembered.
    #[must_use]
    pub const fn ledger(&self) -> usize {
        self.ledger
    }
}
