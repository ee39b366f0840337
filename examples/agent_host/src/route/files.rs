//! The guest's own files: list, read, write, rename, remove.

use std::fmt::Write as _;
use std::io::{Seek as _, SeekFrom};
use std::path::Path;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use beneath::session::ListOptions;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::host::{Host, blocking};
use crate::stream::{download, upload};
use crate::target::Target;

/// The most levels that a list shows.
const DEEPEST: u32 = 64;

#[derive(Deserialize)]
pub(super) struct Listed {
    /// How many levels.
    #[serde(default = "one")]
    depth: u32,
}

fn one() -> u32 {
    1
}

pub(super) async fn list(
    target: Target,
    query: Result<Query<Listed>, QueryRejection>,
) -> Result<Json<Value>, Failure> {
    let options = ListOptions::default().with_hidden().with_depth(query?.depth.min(DEEPEST));
    blocking(move || {
        let session = target.session()?;
        // In its one form: in an absolute path, the end of a name could be taken for a slip.
        let (_, top) = session.resolve(&target.path())?;
        let listing = session.workspace().list(&target.path(), options)?;
        let top = if top.is_top() { Path::new("") } else { top.as_path() };
        let entries = listing.entries.iter().map(|entry| {
            let path = top.join(entry.path());
            json!({
                "path": path.to_string_lossy(),
                "href": target.href("files", &path),
                "type": entry.metadata().file_type(),
                "bytes": entry.metadata().len(),
            })
        });
        let entries: Vec<Value> = entries.collect();
        Ok(Json(json!({ "entries": entries, "complete": listing.is_complete() })))
    })
    .await
}

/// Streams a file, or one range of it.
pub(super) async fn read(target: Target, headers: HeaderMap) -> Result<Response, Failure> {
    blocking(move || {
        let mut file = target.session()?.workspace().open_contained(&target.path())?;
        let whole = file.len_hint();
        let (status, start, length, range) = match Asked::of(&headers, whole) {
            Asked::Whole => (StatusCode::OK, 0, whole, None),
            Asked::Part(start, end) => {
                let range = format!("bytes {start}-{end}/{whole}");
                (StatusCode::PARTIAL_CONTENT, start, end - start + 1, Some(range))
            }
            Asked::Outside => {
                let failure =
                    Failure::new(StatusCode::RANGE_NOT_SATISFIABLE, "the range is outside of the file");
                return Ok(([(header::CONTENT_RANGE, format!("bytes */{whole}"))], failure).into_response());
            }
        };
        file.seek(SeekFrom::Start(start)).map_err(Failure::internal)?;
        let ranges = [(header::ACCEPT_RANGES, "bytes")];
        let range = range.map(|range| [(header::CONTENT_RANGE, range)]);
        Ok((status, ranges, range, download(file, length)).into_response())
    })
    .await
}

/// What a `Range` header asks for.
enum Asked {
    /// Also if the header is not understood.
    Whole,
    /// From the first number to the second, both included.
    Part(u64, u64),
    Outside,
}

impl Asked {
    fn of(headers: &HeaderMap, length: u64) -> Self {
        let text = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
        text.and_then(|text| Self::read(text, length)).unwrap_or(Self::Whole)
    }

    fn read(text: &str, length: u64) -> Option<Self> {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        let number = |text: &str| if text.is_empty() { Ok(None) } else { text.parse().map(Some) };
        let end = length.checked_sub(1);
        let part = match (number(first).ok()?, number(last).ok()?) {
            (None, None) => return None,
            (Some(first), Some(last)) if last < first => return None,
            (Some(first), last) => end.map(|end| (first, last.unwrap_or(end).min(end))),
            (None, Some(suffix)) => end.map(|end| (length.saturating_sub(suffix), end)),
        };
        Some(match part {
            Some((first, last)) if first <= last => Self::Part(first, last),
            _ => Self::Outside,
        })
    }
}

/// Writes a file, with the directories above it, in place of whatever non-directory is there; with `If-None-Match: *` only if
/// there is nothing. Until all of it has come, the old file is there.
pub(super) async fn write(
    State(host): State<Host>,
    target: Target,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let is_new = headers.get(header::IF_NONE_MATCH).is_some_and(|value| value == "*");
    let most = host.file_bytes();
    upload(&host, body, move |body| {
        let mut file = target.session()?.workspace().new_file(&target.path())?.with_sha256();
        let bytes = file.copy_from(body, most)?;
        let mut sha256 = String::new();
        for byte in file.sha256().unwrap_or_default() {
            // Writing to a string does not fail.
            let _ = write!(sha256, "{byte:02x}");
        }
        if is_new {
            file.commit()?
        } else {
            file.commit_replace()?
        }
        Ok((StatusCode::CREATED, Json(json!({ "bytes": bytes, "sha256": sha256 }))))
    })
    .await
}

#[derive(Deserialize)]
pub(super) struct Rename {
    /// As the agent writes it, absolute or relative.
    from: String,
    to: String,
}

pub(super) async fn rename(
    target: Target,
    body: Result<Json<Rename>, JsonRejection>,
) -> Result<Json<Value>, Failure> {
    let Json(Rename { from, to }) = body?;
    blocking(move || {
        let session = target.session()?;
        session.workspace().rename(&from, &to)?;
        let (_, path) = session.resolve(&to)?;
        Ok(Json(json!({ "href": target.href("files", path.as_path()) })))
    })
    .await
}

#[derive(Deserialize)]
pub(super) struct Remove {
    /// Whether a directory goes with all it contains.
    #[serde(default)]
    tree: bool,
}

pub(super) async fn remove(
    target: Target,
    query: Result<Query<Remove>, QueryRejection>,
) -> Result<Json<Value>, Failure> {
    let tree = query?.tree;
    blocking(move || {
        let (workspace, path) = (target.session()?.workspace(), target.path());
        let complete = match tree {
            true => workspace.remove_tree_contained(&path)?.is_complete(),
            false => workspace.remove_file(&path).map(|()| true)?,
        };
        Ok(Json(json!({ "complete": complete })))
    })
    .await
}
