//! Events during a call, which a caller can show as a bar or write to a log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::name::GuestPath;

/// Something that happened during a restore, a mirror or the installation of a bundle.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A step has begun; after it has begun, it survives a crash.
    Entered(Step),
    /// What there is to do is known.
    Planned {
        /// Objects to move.
        objects: u64,
        /// Bytes to move, as far as the sizes that the other side claims are true.
        bytes: u64,
    },
    /// An object is under way.
    Started {
        /// Which.
        path: &'a GuestPath,
        /// The bytes expected.
        bytes: u64,
    },
    /// More bytes of an object have moved.
    Moved {
        /// Which.
        path: &'a GuestPath,
        /// How many more.
        bytes: u64,
    },
    /// An attempt failed and is made again after a pause; of the bytes it has moved only those count that are kept.
    Retried {
        /// Which.
        path: &'a GuestPath,
        /// The attempt that failed, counted from 1.
        attempt: u32,
        /// The bytes to take back from the total.
        moved: u64,
        /// The pause.
        delay: Duration,
        /// What went wrong.
        error: &'a Error,
    },
    /// An object has arrived.
    Done {
        /// Which.
        path: &'a GuestPath,
        /// Its bytes.
        bytes: u64,
    },
    /// An object will not be moved.
    Refused {
        /// Its key or path, as it was found.
        raw: &'a [u8],
        /// Why.
        error: &'a Error,
    },
}

/// The steps of a restore or an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The store is being listed.
    Listing,
    /// Objects are being fetched into staging.
    Fetching,
    /// Files are being moved to where the guest sees them.
    Publishing,
    /// All is done, and the journal says so.
    Complete,
}

/// Who receives events.
#[derive(Clone, Default)]
pub(crate) struct Progress(Option<Arc<Listener>>);

type Listener = dyn Fn(&Event<'_>) + Send + Sync;

impl Progress {
    pub(crate) fn to(listener: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    pub(crate) fn report(&self, event: &Event<'_>) {
        if let Some(listener) = &self.0 {
            listener(event);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(listener)" } else { "Progress(none)" })
    }
}
