//! What a URL names: `/sessions/<session>/<what>/<rest>`.
//!
//! Read from the URL as it came, since a path in a workspace may have any bytes, and axum's own extractors take text only.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use beneath::{Session, SessionId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::failure::Failure;
use crate::host::Host;

/// What a path of a URL may contain as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A session, and what the URL says after that.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: SessionId,
    /// Not decoded.
    rest: String,
    host: Host,
}

impl FromRequestParts<Host> for Target {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, host: &Host) -> Result<Self, Failure> {
        let mut segments = parts.uri.path().splitn(5, '/').skip(2);
        let raw = text(segments.next().unwrap_or_default())?;
        // Only what the service has given out, so that no text names two sessions.
        let id = SessionId::from_component(&raw)?;
        let rest = segments.nth(1).unwrap_or_default().to_owned();
        Ok(Self { id, rest, host: host.clone() })
    }
}

impl Target {
    /// Opens the session. Blocks.
    pub(crate) fn session(&self) -> beneath::Result<Session> {
        self.host.sessions().open(&self.id)
    }

    /// The rest as a path in the workspace, byte for byte; [`Session::resolve`] reads it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(bytes(&self.rest))
    }

    /// The rest as one text.
    pub(crate) fn text(&self) -> Result<String, Failure> {
        text(&self.rest)
    }

    /// The rest as a text and a name, which is taken byte for byte.
    pub(crate) fn pair(&self) -> Result<(String, OsString), Failure> {
        let (one, other) = self.rest.split_once('/').unwrap_or((&self.rest, ""));
        Ok((text(one)?, bytes(other)))
    }

    /// The rest as two texts.
    pub(crate) fn texts(&self) -> Result<(String, String), Failure> {
        let (one, other) = self.pair()?;
        Ok((one, in_text(other)?))
    }

    /// The URL of a file of the session: of its workspace (`files`), or of a message (`claims`).
    pub(crate) fn href(&self, what: &str, path: &Path) -> String {
        let path = percent_encode(path.as_os_str().as_bytes(), PLAIN);
        format!("/sessions/{}/{what}/{path}", percent_encode(self.id.as_str().as_bytes(), PLAIN))
    }
}

fn bytes(raw: &str) -> OsString {
    OsString::from_vec(percent_decode_str(raw).collect())
}

fn text(raw: &str) -> Result<String, Failure> {
    in_text(bytes(raw))
}

fn in_text(name: OsString) -> Result<String, Failure> {
    name.into_string().map_err(|_| Failure::new(StatusCode::BAD_REQUEST, "a name in the URL is not UTF-8"))
}
