//! What the host answers by itself.

use super::envelope::{Malformed, Outcome, Response};
use crate::error::{Error, ErrorKind};

/// Why a request is answered without a handler, or without its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Malformed(Malformed),
    TooLarge,
    /// Its body is in a file, and the queue allows none.
    NoBodyFiles,
    /// The id was answered before.
    Reused,
    /// As many as allowed are in flight.
    Overflow,
    /// It has waited too long.
    Waited,
    /// The service stops.
    Stopping,
    /// It was taken, and is gone: its writer has withdrawn it, or a crash came between.
    Lost,
    /// The service was interrupted after it had begun.
    Interrupted,
    /// The answer is larger than the limit.
    AnswerTooLarge,
}

impl Refusal {
    fn parts(self) -> (u16, Outcome, &'static str, &'static str) {
        use Outcome::{Done, Indeterminate, NotStarted};
        match self {
            Self::Malformed(malformed) => (400, NotStarted, malformed.code(), "the envelope is refused"),
            Self::TooLarge => (413, NotStarted, "too-large", "the request is larger than the limit"),
            Self::NoBodyFiles => {
                (415, NotStarted, "no-body-files", "a body in a file of its own is not allowed")
            }
            Self::Reused => (409, NotStarted, "reused", "the id was answered before"),
            Self::Overflow => (503, NotStarted, "overflow", "too many requests are in flight"),
            Self::Waited => (503, NotStarted, "waited", "the request has waited too long"),
            Self::Stopping => (503, NotStarted, "stopping", "the service stops"),
            Self::Lost => (503, NotStarted, "lost", "the service was interrupted before it began"),
            Self::Interrupted => {
                (504, Indeterminate, "interrupted", "the service was interrupted after it had begun")
            }
            Self::AnswerTooLarge => {
                (502, Done, "response-too-large", "the request was handled, and its answer is too large")
            }
        }
    }

    pub(super) fn response(self) -> Response {
        let (status, outcome, reason, words) = self.parts();
        Response::of_host(status, outcome, reason, words)
    }

    /// The same for the host's report.
    pub(super) fn error(self, operation: &'static str, name: &str) -> Error {
        let kind = match self {
            Self::Malformed(_) | Self::NoBodyFiles => ErrorKind::InvalidData,
            Self::TooLarge | Self::AnswerTooLarge => ErrorKind::TooLarge,
            Self::Reused => ErrorKind::AlreadyExists,
            Self::Overflow | Self::Waited => ErrorKind::TooMany,
            Self::Stopping | Self::Lost | Self::Interrupted => ErrorKind::Busy,
        };
        let error = Error::new(operation, name, kind);
        match self {
            Self::Malformed(malformed) => error.with_detail(malformed.to_string()),
            other => error.with_detail(other.parts().3),
        }
    }
}
