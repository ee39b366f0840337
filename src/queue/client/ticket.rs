//! A request that somebody waits for.

use std::sync::Arc;
use std::time::Instant;

use super::super::disk::{BODY, JSON, OPERATION, REQUESTS, RESPONSES};
use super::super::envelope::{Body, BodyPlace, Response};
use super::super::id::RequestId;
use super::super::slots::Slot;
use super::ClientConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::Root;
use crate::session::{Watch, Watcher};

/// What became of a request that its writer does not wait for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cancelled {
    /// It was taken back before the host had it: asking again is safe.
    Withdrawn,
    /// The host has taken it, and may have begun.
    Taken,
}

/// A request that was submitted; from [`Client::submit`](super::Client::submit).
///
/// Dropping it [cancels](Self::cancel) it.
#[derive(Debug)]
#[must_use = "a ticket that is dropped is cancelled"]
pub struct Ticket {
    root: Arc<Root>,
    config: ClientConfig,
    id: RequestId,
    watch: Watch,
    /// Whether there is nothing left to take back.
    is_over: bool,
    _slot: Slot,
}

impl Ticket {
    pub(super) fn new(
        root: &Arc<Root>,
        config: ClientConfig,
        id: &RequestId,
        watcher: &Watcher,
        slot: Slot,
    ) -> Result<Self> {
        let watch = watcher.watch_beneath(None, Arc::clone(root), GuestPath::new(RESPONSES)?);
        Ok(Self { root: Arc::clone(root), config, id: id.clone(), watch, is_over: false, _slot: slot })
    }

    /// The id of the request.
    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// Waits for the answer until `deadline`, and returns none then. The call can be repeated.
    ///
    /// The answer is removed from the directory; a body in a file of its own stays readable.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData) if the answer is none, [`NotFound`](ErrorKind::NotFound) if it was fetched before,
    /// and the kinds of [`Root::read_contained`].
    ///
    /// # Races
    /// No answer is missed. Whoever else can write to the directory can forge one.
    pub fn wait(&mut self, deadline: Instant) -> Result<Option<Response>> {
        if self.is_over {
            return Err(Error::new(OPERATION, self.id.as_str(), ErrorKind::NotFound));
        }
        let Self { root, config, id, watch, .. } = self;
        let response = watch.wait_for(deadline, || fetch(root, config, id))?;
        self.is_over |= response.is_some();
        Ok(response)
    }

    /// The answer, if it is there.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_fetch(&mut self) -> Result<Option<Response>> {
        let response = fetch(&self.root, &self.config, &self.id)?;
        self.is_over |= response.is_some();
        Ok(response)
    }

    /// Takes the request back, and says whether the host had taken it.
    ///
    /// # Errors
    /// The kinds of [`Root::remove_file`], if the request could not be taken back.
    ///
    /// # Races
    /// Of this and the host's claim one succeeds. Only where the host may not remove requests from the directory, a request that
    /// was withdrawn may have been taken too.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// # let queue = session.queue(Default::default())?;
    /// # let shared = beneath::Root::open_ambient(dir.path().join("s/guest/queue"), beneath::ambient_authority())?;
    /// # let client = beneath::queue::Client::new(shared, Default::default());
    /// use beneath::queue::{Cancelled, Request};
    ///
    /// let ticket = client.submit(&Request::new("GET", "/")?)?;
    /// assert_eq!(ticket.cancel()?, Cancelled::Withdrawn);
    /// assert!(queue.poll()?.jobs.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(mut self) -> Result<Cancelled> {
        self.take_back()
    }

    fn take_back(&mut self) -> Result<Cancelled> {
        self.is_over = true;
        let (root, id) = (&self.root, &self.id);
        let withdrawn = match root.remove_file(format!("{REQUESTS}/{id}{JSON}")) {
            Ok(()) => Cancelled::Withdrawn,
            Err(error) if error.kind() == ErrorKind::NotFound => Cancelled::Taken,
            Err(error) => return Err(error),
        };
        for left in [
            format!("{REQUESTS}/{id}{BODY}"),
            format!("{RESPONSES}/{id}{JSON}"),
            format!("{RESPONSES}/{id}{BODY}"),
        ] {
            // Most are not there, and the host sweeps the rest.
            let _ = root.remove_file(left);
        }
        Ok(withdrawn)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_over {
            // The host sweeps what stays.
            let _ = self.take_back();
        }
    }
}

/// Reads the answer and removes it, if it is there.
fn fetch(root: &Root, config: &ClientConfig, id: &RequestId) -> Result<Option<Response>> {
    let name = format!("{RESPONSES}/{id}{JSON}");
    let json = match root.read_contained(&name, config.response_bytes()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        json => json?,
    };
    let (mut response, place) = Response::read(&json, id, config.envelope()).map_err(|malformed| {
        Error::new(OPERATION, &name, ErrorKind::InvalidData).with_detail(malformed.to_string())
    })?;
    if place == BodyPlace::Beside {
        let body = format!("{RESPONSES}/{id}{BODY}");
        response.body = Body::File(root.open_contained(&body)?);
        // It stays readable by its handle.
        let _ = root.remove_file(body);
    }
    // The host sweeps it if this fails.
    let _ = root.remove_file(name);
    Ok(Some(response))
}
