//! What a store says when it refuses, in words that a person can act on.
//!
//! Problem: a wrong clock, a wrong key and a missing permission are all 403, and an expired token is 400. The code that
//! distinguishes them is in the body, which the store, or a proxy in its place, fills as it likes.
//!
//! Defence: one table from codes to kinds and sentences. The store's own code is always in the text, escaped and cut.
//!
//! What remains: the answer to a HEAD has no body, and then only the status is known.

use crate::error::{Error, ErrorKind};

/// Longest code and longest message that are shown.
const CODE_MAX: usize = 64;
const MESSAGE_MAX: usize = 200;

/// An answer that is no success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// None if the text of the client has none.
    pub(super) status: Option<u16>,
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
    /// The region that the bucket is in, if this is another one.
    pub(super) region: Option<String>,
    /// Whether the call was made on a condition, which needs a permission of its own in S3.
    pub(super) on_condition: bool,
}

/// What a code means: of S3, GCS and Azure, which have many in common.
fn meaning(code: &str) -> Option<(ErrorKind, &'static str)> {
    use ErrorKind as K;
    Some(match code {
        "NoSuchBucket" | "ContainerNotFound" => (K::NotFound, "the bucket does not exist"),
        "NoSuchKey" | "BlobNotFound" => (K::NotFound, "there is no such object"),
        "NoSuchUpload" => (K::NotFound, "there is no such upload"),
        "AccessDenied" | "AuthorizationPermissionMismatch" | "AllAccessDisabled" => {
            (K::Denied, "the credentials do not permit this call")
        }
        "InvalidAccessKeyId" => (K::Denied, "the store does not know the access key"),
        "SignatureDoesNotMatch" | "AuthenticationFailed" => {
            (K::Denied, "the secret key is wrong, or something changes the request on its way")
        }
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "RequestExpired" => {
            (K::Denied, "the credentials have expired, get new ones")
        }
        "InvalidToken" | "InvalidSecurity" | "AuthenticationRequired" | "NoAuthenticationInformation" => {
            (K::Denied, "the store does not accept the credentials")
        }
        "RequestTimeTooSkewed" => (K::Denied, "the clock of this host is wrong, set it"),
        "InvalidObjectState" => (K::Unsupported, "the object is archived, and must be restored there first"),
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "Redirect"
        | "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException" => (K::Unsupported, "the bucket is in another region"),
        "SlowDown" | "ServiceUnavailable" | "ServerBusy" | "RequestLimitExceeded" | "TooManyRequests" => {
            (K::Io, "the store is busy, ask for fewer objects at a time")
        }
        "InternalError" | "OperationTimedOut" | "RequestTimeout" => (K::Io, "the store has failed"),
        "PreconditionFailed" | "ConditionalRequestConflict" | "ConditionNotMet" | "OperationAborted" => {
            (K::Busy, "object changed meanwhile")
        }
        "NotImplemented" | "MethodNotAllowed" => (K::Unsupported, "the store does not know this call"),
        "EntityTooLarge" => (K::TooLarge, "the store takes no object as large as this"),
        "QuotaExceeded" | "InsufficientStorage" => (K::NoSpace, "the store is full"),
        _ => return None,
    })
}

fn kind_of(status: u16) -> ErrorKind {
    match status {
        404 => ErrorKind::NotFound,
        401 | 403 => ErrorKind::Denied,
        409 | 412 => ErrorKind::Busy,
        408 | 429 => ErrorKind::Io,
        501 => ErrorKind::Unsupported,
        500.. => ErrorKind::Io,
        _ => ErrorKind::Unsupported,
    }
}

impl Answer {
    /// What the text of a client says of an answer; none if it speaks of no answer.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let part = |from: &str, to: &str| {
            let (_, rest) = text.split_once(from)?;
            rest.split_once(to).map(|(inner, _)| inner.to_owned())
        };
        if text.contains("Received redirect without LOCATION") {
            return Some(Self { status: Some(301), ..Self::default() });
        }
        let status = text.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse().ok());
        let code = part("<Code>", "</Code>");
        if status.is_none() && code.is_none() {
            return None;
        }
        let (message, region) = (part("<Message>", "</Message>"), part("<Region>", "</Region>"));
        Some(Self { status, code, message, region, on_condition: false })
    }

    /// The failure of `operation` on `key`.
    pub(super) fn into_error(self, operation: &'static str, key: &str) -> Error {
        let code = self.code.filter(|code| !code.is_empty());
        let redirected =
            self.region.is_some() || self.status.is_some_and(|status| (300..400).contains(&status));
        let known = code.as_deref().and_then(meaning).or(match redirected && self.status != Some(304) {
            true => {
                Some((ErrorKind::Unsupported, "the bucket is in another region, or the endpoint is wrong"))
            }
            false => None,
        });
        let kind = known.map_or_else(|| self.status.map_or(ErrorKind::Io, kind_of), |(kind, _)| kind);
        let status = self.status.map_or_else(|| "an error".to_owned(), |status| status.to_string());
        let mut text = match known {
            Some((_, words)) => words.to_owned(),
            None if kind == ErrorKind::Busy => "object changed meanwhile".to_owned(),
            None => format!("the store answers {status}"),
        };
        if let Some(region) = &self.region {
            text.push_str(&format!(", {}", shown(region, CODE_MAX)));
        }
        if self.on_condition && kind == ErrorKind::Denied {
            text.push_str(", and on a condition also needs s3:GetObject");
        }
        match (code, known) {
            (Some(code), _) => text.push_str(&format!(" ({})", shown(&code, CODE_MAX))),
            (None, Some(_)) => text.push_str(&format!(" ({status})")),
            (None, None) => {}
        }
        if let (None, Some(message)) = (known, self.message.filter(|message| !message.is_empty())) {
            text.push_str(&format!(": {}", shown(&message, MESSAGE_MAX)));
        }
        Error::new(operation, key, kind).with_detail(text)
    }
}

/// Text of the store, escaped and cut.
fn shown(text: &str, max: usize) -> String {
    let short: String = text.trim().chars().take(max).collect();
    let dots = if text.trim().chars().nth(max).is_some() { "…" } else { "" };
    format!("{}{dots}", crate::error::escaped_whole(short.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, code: &str) -> Answer {
        Answer { status: Some(status), code: Some(code.to_owned()), ..Answer::default() }
    }

    #[test]
    fn codes_become_kinds_and_sentences_that_name_the_code() {
        let cases = [
            (403, "SignatureDoesNotMatch", ErrorKind::Denied, "secret key is wrong"),
            (400, "ExpiredToken", ErrorKind::Denied, "have expired"),
            (403, "RequestTimeTooSkewed", ErrorKind::Denied, "clock"),
            (403, "AccessDenied", ErrorKind::Denied, "do not permit"),
            (403, "InvalidAccessKeyId", ErrorKind::Denied, "access key"),
            (404, "NoSuchBucket", ErrorKind::NotFound, "bucket does not exist"),
            (301, "PermanentRedirect", ErrorKind::Unsupported, "another region"),
            (503, "SlowDown", ErrorKind::Io, "busy"),
            (403, "InvalidObjectState", ErrorKind::Unsupported, "archived"),
            (418, "Teapot", ErrorKind::Unsupported, "answers 418"),
        ];
        for (status, code, kind, words) in cases {
            let error = answer(status, code).into_error("get", "k");
            let text = error.to_string();
            assert_eq!(error.kind(), kind, "{text}");
            assert!(text.contains(words) && text.contains(code), "{text}");
        }
    }

    #[test]
    fn what_is_missing_for_a_condition_and_where_the_bucket_is_are_named() {
        let denied = Answer { on_condition: true, ..answer(403, "AccessDenied") }.into_error("put", "k");
        assert!(denied.to_string().contains("s3:GetObject"), "{denied}");
        let region = Some("eu-west-3".to_owned());
        for status in [301, 307, 400] {
            let elsewhere = Answer { status: Some(status), region: region.clone(), ..Answer::default() };
            let error = elsewhere.into_error("list", "p/");
            assert!(error.to_string().contains("another region") && error.to_string().contains("eu-west-3"));
        }
    }

    #[test]
    fn hostile_text_is_escaped_and_cut() {
        let code = format!("\u{1b}[31m\n{}", "x".repeat(5000));
        let error = Answer { message: Some("\u{202e}\0".repeat(5000)), ..answer(400, &code) };
        let text = error.into_error("get", "k").to_string();
        assert!(!text.contains(['\u{1b}', '\n', '\0', '\u{202e}']) && text.len() < 4000, "{text}");
    }

    #[test]
    fn text_of_a_client_is_understood() {
        let text = "Generic S3 error: Error performing PUT http://x/k in 1ms - Server returned non-2xx status code: \
                    501 Not Implemented: <Error><Code>NotImplemented</Code><Message>m</Message></Error>";
        let found = Answer::of_text(text).unwrap();
        assert_eq!((found.status, found.code.as_deref()), (Some(501), Some("NotImplemented")));
        assert_eq!(Answer::of_text("connection refused"), None);
    }
}
