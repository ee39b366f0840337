//! A store, and how it is asked: what a session's artifacts and bundles have in common.

use super::key::Prefix;
use super::progress::{Event, Progress};
use super::store::{Retry, Source};
use crate::tree::ObjectLimits;

/// Where objects are, and how they are moved.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) source: Source,
    pub(crate) prefix: Prefix,
    pub(crate) limits: ObjectLimits,
    pub(crate) retry: Retry,
    pub(crate) concurrency: usize,
    pub(crate) progress: Progress,
}

impl Client {
    pub(crate) fn new(source: Source, prefix: Prefix) -> Self {
        Self {
            source,
            prefix,
            limits: ObjectLimits::default(),
            retry: Retry::default(),
            concurrency: 16,
            progress: Progress::default(),
        }
    }

    pub(crate) fn with_progress(self, listener: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { progress: Progress::to(listener), ..self }
    }
}
