//! Asking, from inside the guest.
//!
//! Problem: a client that gives up and leaves its request behind has it handled for nobody, and fills the queue. One that reads an
//! answer while it is written sees half of it. One that polls is slow.
//!
//! Defence: a request appears whole, under a name that must be free. A [`Ticket`] that is dropped takes its request back, and fetches
//! away the answer if there is one. It waits for events, and by a timer where there are none.
//!
//! What remains: an answer that comes after its ticket was dropped is swept by the host.

mod ticket;

use std::io::Read;
use std::num::NonZeroU16;
use std::sync::Arc;

use super::disk::{BODY, JSON, OPERATION, REQUESTS};
use super::envelope::{Body, BodyPlace, EnvelopeLimits, Request};
use super::ready::{READY, Ready};
use super::slots::Slots;
use crate::error::{Error, ErrorKind, Result};
use crate::root::{HardLinks, Root};
use crate::session::Watcher;

pub use ticket::{Cancelled, Ticket};

/// What a client allows itself.
///
/// ```
/// let config = beneath::queue::ClientConfig::default().with_depth(8);
/// assert_eq!(config.depth(), 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    depth: usize,
    request_bytes: u64,
    file_bytes: u64,
    response_bytes: u64,
    envelope: EnvelopeLimits,
}

impl Default for ClientConfig {
    /// 64 requests at a time; 384 KiB a request, 2 MiB an answer; bodies in files of their own up to 16 MiB.
    fn default() -> Self {
        Self {
            depth: 64,
            request_bytes: 384 << 10,
            file_bytes: 16 << 20,
            response_bytes: 2 << 20,
            envelope: EnvelopeLimits::default(),
        }
    }
}

impl ClientConfig {
    /// Bounds how many requests wait at a time; at least one.
    #[must_use]
    pub const fn with_depth(mut self, requests: usize) -> Self {
        self.depth = if requests == 0 { 1 } else { requests };
        self
    }

    /// Bounds the file of a request. A host with a lower bound answers 413.
    #[must_use]
    pub const fn with_request_bytes(mut self, bytes: u64) -> Self {
        self.request_bytes = bytes;
        self
    }

    /// Bounds bodies in files of their own.
    #[must_use]
    pub const fn with_file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes;
        self
    }

    /// Bounds the file of an answer.
    #[must_use]
    pub const fn with_response_bytes(mut self, bytes: u64) -> Self {
        self.response_bytes = bytes;
        self
    }

    /// Bounds what an envelope contains.
    #[must_use]
    pub const fn with_envelope(mut self, limits: EnvelopeLimits) -> Self {
        self.envelope = limits;
        self
    }

    /// Most requests that wait at a time.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Most bytes of a request's file.
    #[must_use]
    pub const fn request_bytes(&self) -> u64 {
        self.request_bytes
    }

    /// Most bytes of a body in a file of its own.
    #[must_use]
    pub const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Most bytes of an answer's file.
    #[must_use]
    pub const fn response_bytes(&self) -> u64 {
        self.response_bytes
    }

    /// What an envelope may contain.
    #[must_use]
    pub const fn envelope(&self) -> EnvelopeLimits {
        self.envelope
    }
}

/// Asks the host, from inside the guest.
///
/// It needs only the queue's directory, as the guest sees it. A clone is the same client. What it writes has the modes of the root's
/// policy: give that [`Access::shared`](crate::Access::shared) if the host is another user of the same group.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    root: Arc<Root>,
    config: ClientConfig,
    slots: Arc<Slots>,
    watcher: Watcher,
}

impl Client {
    /// A client of the queue in that directory, which has `requests` and `responses`.
    #[must_use]
    pub fn new(directory: Root, config: ClientConfig) -> Self {
        let (slots, watcher) = (Slots::new(config.depth), Watcher::new());
        // A second name of an answer is the guest's own doing, and there is nothing in the guest to protect from it.
        let policy = directory.policy().clone().with_hard_links(HardLinks::Allow);
        let root = Arc::new(directory.with_policy(policy));
        Self { shared: Arc::new(Shared { root, config, slots, watcher }) }
    }

    /// Submits a request.
    ///
    /// # Errors
    /// [`TooMany`](ErrorKind::TooMany) if as many requests as allowed wait, [`AlreadyExists`](ErrorKind::AlreadyExists) if one of
    /// this id does, [`TooLarge`](ErrorKind::TooLarge), [`InvalidData`](ErrorKind::InvalidData) for what no host would read or a
    /// body that is a [file](Body::File), and the kinds of a write.
    ///
    /// # Races
    /// The host sees the whole request or none.
    pub fn submit(&self, request: &Request) -> Result<Ticket> {
        match request.body {
            Body::File(_) => Err(refused(request, "a file is submitted by submit_from")),
            _ => self.submit_in(request, BodyPlace::Inside),
        }
    }

    /// Submits a request with its body in a file of its own, where the host allows one. The body of `request` does not count.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), and [`Io`](ErrorKind::Io) if the reader fails.
    ///
    /// # Races
    /// The body appears before the request does.
    pub fn submit_from(&self, request: &Request, body: impl Read) -> Result<Ticket> {
        let (root, id) = (&self.shared.root, &request.id);
        let name = format!("{REQUESTS}/{id}{BODY}");
        let mut file = root.new_file(&name)?;
        file.copy_from(body, self.shared.config.file_bytes)?;
        file.commit()?;
        self.submit_in(request, BodyPlace::Beside).inspect_err(|_| {
            // The host sweeps what stays.
            let _ = root.remove_file(&name);
        })
    }

    fn submit_in(&self, request: &Request, place: BodyPlace) -> Result<Ticket> {
        let Shared { root, config, slots, watcher } = &*self.shared;
        if let Err(malformed) = request.check(config.envelope) {
            return Err(refused(request, malformed.to_string()));
        }
        let name = format!("{REQUESTS}/{}{JSON}", request.id);
        let json = request.write(place);
        if json.len() as u64 > config.request_bytes {
            return Err(Error::new(OPERATION, name, ErrorKind::TooLarge));
        }
        let Some(slot) = slots.take() else {
            let error = Error::new(OPERATION, name, ErrorKind::TooMany);
            return Err(error.with_detail("as many requests as allowed wait for an answer"));
        };
        root.write_exclusive(&name, json)?;
        Ticket::new(root, *config, &request.id, watcher, slot)
    }

    /// Announces to the host where the guest's own server listens; see [`Queue::ready`](super::Queue::ready).
    ///
    /// # Errors
    /// The kinds of [`Root::replace`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let queue = session.queue(Default::default())?;
    /// # let shared = beneath::Root::open_ambient(dir.path().join("s/guest/queue"), beneath::ambient_authority())?;
    /// # let client = beneath::queue::Client::new(shared, Default::default());
    /// client.announce(8080.try_into()?)?;
    /// assert_eq!(queue.ready()?.unwrap().port.get(), 8080);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn announce(&self, port: NonZeroU16) -> Result<()> {
        self.shared.root.replace(READY, Ready::new(port).to_json())
    }

    /// How many requests wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.slots.in_use()
    }
}

fn refused(request: &Request, why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(OPERATION, request.id.as_str(), ErrorKind::InvalidData).with_detail(why)
}
