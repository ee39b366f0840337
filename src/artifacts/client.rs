//! A store, and how it is asked: what a session's artifacts and bundles have in common.

use super::key::Prefix;
use super::progress::{Event, Progress};
use super::store::{Head, Retry, Source};
use crate::error::Result;
use crate::name::GuestPath;
#[cfg(feature = "patterns")]
use crate::name::Patterns;
use crate::tree::{Leaf, ObjectLimits};

/// Where objects are, and how they are moved.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) source: Source,
    pub(crate) prefix: Prefix,
    pub(crate) limits: ObjectLimits,
    pub(crate) retry: Retry,
    pub(crate) concurrency: usize,
    pub(crate) progress: Progress,
    /// What neither side is asked for.
    #[cfg(feature = "patterns")]
    pub(crate) filter: Option<Patterns>,
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
            #[cfg(feature = "patterns")]
            filter: None,
        }
    }

    /// Whether what is at `path` is nobody's concern.
    pub(crate) fn leaves_out(&self, path: &GuestPath, is_directory: bool) -> bool {
        #[cfg(feature = "patterns")]
        if let Some(filter) = &self.filter {
            return match is_directory {
                true => filter.matches_dir(path),
                false => filter.matches_file(path),
            };
        }
        let _ = (path, is_directory);
        false
    }

    /// The rules of what is left out, as text.
    pub(crate) fn rules(&self) -> String {
        #[cfg(feature = "patterns")]
        if let Some(filter) = &self.filter {
            return filter.lines().iter().map(|line| format!("{line}\n")).collect();
        }
        String::new()
    }

    /// The key of the object that holds what is at `path`.
    pub(crate) fn key(&self, path: &GuestPath, leaf: &Leaf) -> Result<String> {
        match leaf {
            Leaf::Directory => self.prefix.marker(path, self.source.keeps().markers),
            Leaf::File { .. } | Leaf::Link { .. } => self.prefix.key(path),
        }
    }

    /// What the store says of the object `key`, whose file is at `path`.
    pub(crate) async fn head(&self, path: &GuestPath, key: &str) -> Result<Option<Head>> {
        let calls = self.retry.about(&self.progress, path).within(self.retry.silence());
        calls.run(|_| self.source.backend().head(key)).await
    }

    pub(crate) fn with_progress(self, listener: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { progress: Progress::to(listener), ..self }
    }
}
