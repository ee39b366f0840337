//! What a victim reports of the part under test.

use std::panic::{AssertUnwindSafe, catch_unwind};

use beneath::{Error, Result};
use serde::{Deserialize, Serialize};

use super::CANARY;
use crate::child::open_descriptors;
use crate::operations::{Success, met_before_failing};

/// What came of a call, or of all the calls of a job.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Contents that were read.
    pub data: Vec<String>,
    /// Paths and inodes of what was found, also by a listing that has failed then.
    pub entries: Vec<(String, u64)>,
    /// Kinds and texts.
    pub errors: Vec<(String, String)>,
    pub incomplete: bool,
    pub panic: Option<String>,
    /// How many were open before and after.
    pub descriptors: (usize, usize),
}

/// What the part under test is run inside: the signals to a tracer, or a limit.
pub type Around<'a> = dyn Fn(&mut dyn FnMut()) + 'a;

impl Report {
    /// Runs the part, which reports what it does.
    pub fn of(around: &Around<'_>, part: impl FnOnce(&mut Self)) -> Self {
        let mut report = Self::default();
        let (mut part, mut ended) = (Some(part), None);
        let before = open_descriptors();
        around(&mut || {
            let part = part.take().expect("a part is run once");
            ended = Some(catch_unwind(AssertUnwindSafe(|| part(&mut report))));
        });
        report.descriptors = (before, open_descriptors());
        report.panic = match ended {
            None => Some("the call was not made".into()),
            Some(Ok(())) => None,
            Some(Err(panic)) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                Some(text.unwrap_or_default())
            }
        };
        report
    }

    pub fn read(&mut self, bytes: &[u8]) {
        self.data.push(String::from_utf8_lossy(bytes).into_owned());
    }

    pub fn refuse<'e>(&mut self, errors: impl IntoIterator<Item = &'e Error>) {
        let errors = errors.into_iter();
        self.errors.extend(errors.map(|error| (format!("{:?}", error.kind()), error.to_string())));
    }

    pub(super) fn add(&mut self, success: Success) {
        self.data.extend(success.data);
        self.entries.extend(success.entries);
        self.incomplete |= success.incomplete;
    }

    pub(super) fn end(&mut self, result: Result<Success>) {
        match result {
            Ok(success) => self.add(success),
            Err(error) => {
                self.entries.extend(met_before_failing());
                self.refuse([&error]);
            }
        }
    }

    /// Whether there was no error, complete or not.
    pub fn succeeded(&self) -> bool {
        self.panic.is_none() && self.errors.is_empty()
    }

    /// `ok` or what kept it from being so.
    pub fn verdict(&self) -> String {
        match self.errors.first() {
            _ if self.panic.is_some() => "panic".into(),
            Some((kind, _)) => kind.clone(),
            None if self.incomplete => "incomplete".into(),
            None => "ok".into(),
        }
    }

    /// What no call may do, whatever the guest does.
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.panic.iter().map(|panic| format!("panic: {panic}")).collect();
        if self.descriptors.0 != self.descriptors.1 {
            faults.push(format!("descriptors: {:?}", self.descriptors));
        }
        if self.data.iter().any(|data| data.contains(CANARY)) {
            faults.push("escape: the canary was read".into());
        }
        if self.errors.iter().any(|(_, text)| text.contains(CANARY)) {
            faults.push("escape: an error repeats the canary".into());
        }
        faults
    }

    /// Errors that only an injected fault explains.
    pub fn untyped(&self) -> impl Iterator<Item = String> {
        let untyped = self.errors.iter().filter(|(kind, _)| kind == "Io");
        untyped.map(|(_, text)| format!("untyped error: {text}"))
    }
}
