//! Which paths a guest may ask for.
//!
//! Problem: `..`, `%2e%2e`, `%252e`, `%2f`, `//`, `?` and `#` make the path that was matched another one than the handler's.
//!
//! Defence: each segment is decoded once, and refused if it is empty, a dot segment, not UTF-8, or has a separator, a control
//! character or an escape that would decode again. Segments are compared whole. The handler gets the path encoded anew.
//!
//! What remains: a handler that decodes a captured segment once more finds no escape in it, but any other text.

use std::fmt::Write as _;

use crate::error::{Error, ErrorKind, Result};

/// The longest path, raw and canonical.
const PATH: usize = 2048;
/// The longest segment that `{}` matches, decoded.
const SEGMENT: usize = 256;

/// A method and the paths it may be used on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    method: String,
    /// None for `{}`.
    segments: Vec<Option<String>>,
}

/// The routes that a guest may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

/// A request that a route allows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Allowed {
    /// The method.
    pub method: String,
    /// The path in its canonical form; all but letters, digits and `-._~` is escaped in each segment.
    pub path: String,
    /// What each `{}` has matched, decoded.
    pub captures: Vec<String>,
    /// Which route allows it: its place among the routes, from 0.
    pub route: usize,
}

/// Why a path or method is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RouteDenial {
    /// The path does not begin with `/`.
    #[error("path does not begin with a slash")]
    NotAbsolute,
    /// The path is longer than 2,048 bytes, as it is or in its canonical form.
    #[error("path is too long")]
    TooLong,
    /// A `?` or `#` is in the path.
    #[error("path has a query or a fragment")]
    QueryOrFragment,
    /// A segment is empty; so is the one after a trailing slash.
    #[error("path has an empty segment")]
    EmptySegment,
    /// A segment is `.` or `..`, also if it is escaped.
    #[error("path has a dot segment")]
    DotSegment,
    /// A `%` without two hexadecimal digits, or one that would decode again.
    #[error("path has an invalid or repeated escape")]
    Escape,
    /// A separator or control character is in a segment, or it is not UTF-8.
    #[error("path has a forbidden character")]
    Character,
    /// No route has this method and path.
    #[error("no route allows this")]
    NoRoute,
}

impl Route {
    /// A route such as `GET` on `/api/issues/{}/comments`, where `{}` matches one segment of up to 256 bytes.
    ///
    /// A brace that means itself is written as an escape, `%7B` or `%7D`.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName) if the method is not upper-case letters,
    /// [`InvalidPath`](ErrorKind::InvalidPath) for a pattern that no path can match, that is longer than a path may be, or that has
    /// a brace in a segment other than `{}`.
    pub fn new(method: &str, pattern: &str) -> Result<Self> {
        let error = |kind| Error::new("make route", pattern, kind);
        if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(error(ErrorKind::InvalidName).with_detail("method is not upper-case letters"));
        }
        let wrong = |detail: String| error(ErrorKind::InvalidPath).with_detail(detail);
        let raw = raw_segments(pattern).map_err(|denial| wrong(denial.to_string()))?;
        let mut segments = Vec::new();
        // Of the shortest path that matches.
        let mut length = 0;
        for raw in raw {
            if raw == "{}" {
                segments.push(None);
                length += 2;
            } else if raw.contains(['{', '}']) {
                return Err(wrong("has a brace in a segment other than {}".to_owned()));
            } else {
                let text = segment(raw).map_err(|denial| wrong(denial.to_string()))?;
                length += canonical(std::slice::from_ref(&text)).len();
                segments.push(Some(text));
            }
        }
        if length > PATH {
            return Err(wrong(RouteDenial::TooLong.to_string()));
        }
        Ok(Self { method: method.to_owned(), segments })
    }

    fn captures(&self, segments: &[String]) -> Option<Vec<String>> {
        if self.segments.len() != segments.len() {
            return None;
        }
        let mut captures = Vec::new();
        for (own, text) in self.segments.iter().zip(segments) {
            match own {
                Some(own) if own == text => {}
                None if text.len() <= SEGMENT => captures.push(text.clone()),
                _ => return None,
            }
        }
        Some(captures)
    }
}

impl FromIterator<Route> for Routes {
    fn from_iter<I: IntoIterator<Item = Route>>(routes: I) -> Self {
        Self(routes.into_iter().collect())
    }
}

impl Routes {
    /// Checks a request; the first route that fits allows it. `HEAD` is not `GET`.
    ///
    /// # Errors
    /// The [`RouteDenial`]. A path in a forbidden form is refused whatever the routes are.
    ///
    /// ```
    /// use beneath::queue::policy::{Route, RouteDenial, Routes};
    ///
    /// let routes = Routes::from_iter([Route::new("GET", "/issues/{}/comments")?]);
    /// let allowed = routes.check("GET", "/issues/a%20b/comments").unwrap();
    /// assert_eq!((allowed.path.as_str(), allowed.captures), ("/issues/a%20b/comments", vec!["a b".into()]));
    /// assert_eq!(routes.check("GET", "/issues/%2e%2e/comments"), Err(RouteDenial::DotSegment));
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn check(&self, method: &str, raw_path: &str) -> Result<Allowed, RouteDenial> {
        let segments = segments(raw_path)?;
        let path = canonical(&segments);
        if path.len() > PATH {
            return Err(RouteDenial::TooLong);
        }
        let mut fitting = self.0.iter().enumerate().filter(|(_, route)| route.method == method);
        let first = fitting.find_map(|(place, route)| Some((place, route.captures(&segments)?)));
        let (route, captures) = first.ok_or(RouteDenial::NoRoute)?;
        Ok(Allowed { method: method.to_owned(), path, captures, route })
    }
}

/// The segments of a path, decoded.
fn segments(raw: &str) -> Result<Vec<String>, RouteDenial> {
    raw_segments(raw)?.map(segment).collect()
}

/// The segments of a path as they are written.
fn raw_segments(raw: &str) -> Result<impl Iterator<Item = &str>, RouteDenial> {
    let rest = raw.strip_prefix('/').ok_or(RouteDenial::NotAbsolute)?;
    if raw.len() > PATH {
        return Err(RouteDenial::TooLong);
    }
    if raw.contains(['?', '#']) {
        return Err(RouteDenial::QueryOrFragment);
    }
    Ok(rest.split('/'))
}

fn segment(raw: &str) -> Result<String, RouteDenial> {
    let text = String::from_utf8(decoded(raw.as_bytes())?).map_err(|_| RouteDenial::Character)?;
    match text.as_str() {
        "" => Err(RouteDenial::EmptySegment),
        "." | ".." => Err(RouteDenial::DotSegment),
        _ if text.chars().any(|c| c.is_control() || matches!(c, '/' | '\\')) => Err(RouteDenial::Character),
        _ if decodes(text.as_bytes()) => Err(RouteDenial::Escape),
        _ => Ok(text),
    }
}

fn hex_digit(byte: Option<&u8>) -> Option<u8> {
    let value = char::from(*byte?).to_digit(16)?;
    u8::try_from(value).ok()
}

fn decoded(raw: &[u8]) -> Result<Vec<u8>, RouteDenial> {
    let mut bytes = raw.iter();
    let mut text = Vec::with_capacity(raw.len());
    while let Some(byte) = bytes.next() {
        text.push(match byte {
            b'%' => match (hex_digit(bytes.next()), hex_digit(bytes.next())) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(RouteDenial::Escape),
            },
            byte => *byte,
        });
    }
    Ok(text)
}

/// Whether an escape is left.
fn decodes(text: &[u8]) -> bool {
    text.windows(3).any(|three| {
        three.first() == Some(&b'%') && hex_digit(three.get(1)).is_some() && hex_digit(three.get(2)).is_some()
    })
}

fn canonical(segments: &[String]) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        for byte in segment.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                path.push(char::from(byte));
            } else {
                // Writing to a string does not fail.
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
    path
}
