//! What the host has written about a directory among its sessions: that it is a session, or a group.
//!
//! Problem: names and sub-directories decide nothing. A tenant may be called `host`, a backup looks like a session, a file
//! system has its `lost+found`, and where case is folded `BOB` opens the directory of `bob`.
//!
//! Defence: a session holds a file `.session`, a group a file `.group`, each with the format and the name it was made for. Both
//! are beside `guest`, so no guest reaches them, and no id starts with a dot. What has neither file is neither, and is never
//! opened, swept or removed. What was made for another name is refused.
//!
//! What remains: the existence of the file decides. A power cut can leave it empty where nothing is synced; then the name that was made
//! for it is unknown, and any spelling that the file system accepts opens it.

use std::path::Path;

use rustix::io::Errno;

use super::identity::Identity;
use crate::error::{Error, ErrorKind, Result};
use crate::root::Root;

const SESSION: &str = ".session";
const GROUP: &str = ".group";

const FORMAT: &str = "1";
const MOST_BYTES: u64 = 4096;

/// How often a name may lead to another directory while it is looked at.
const MOST_LOOKS: usize = 16;

/// What a directory is, by its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Kind {
    /// There is no directory.
    Nothing,
    Session,
    Group,
    /// A session that is being removed where it is.
    Doomed,
    /// Made for another name.
    Namesake,
    /// A directory that the host has not marked.
    Unmarked,
}

impl Kind {
    /// Why this is no session.
    pub(in crate::session) fn reason(self) -> &'static str {
        match self {
            Self::Nothing => "not found",
            Self::Group => "is a group",
            Self::Doomed => "is being removed",
            Self::Namesake => "was made for another name",
            Self::Session | Self::Unmarked => "is not a session",
        }
    }
}

/// What the directory `name` of `root` is.
pub(in crate::session) fn kind_of(root: &Root, name: &str) -> Result<Kind> {
    look_at(root, name).map(|(kind, _)| kind)
}

/// Looks at the directory `name` of `root`, and returns it with what it is. The name may lead to another one by then.
///
/// A session appears with its marker and loses its name before it. So one look in a directory that is held decides, and what has
/// no marker is unmarked only if it still has the name.
pub(in crate::session) fn look_at(root: &Root, name: &str) -> Result<(Kind, Option<Root>)> {
    for _ in 0..MOST_LOOKS {
        let dir = match root.descend(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Kind::Nothing, None)),
            opened => opened?,
        };
        if let Some(kind) = marked(&dir, name).map_err(|error| error.about(name))? {
            return Ok((kind, Some(dir)));
        }
        let failed = |errno| Error::from_errno("read marker", name, errno);
        let held = Identity::of(&dir).map_err(failed)?;
        match Identity::at(root, name) {
            Ok(now) if now == held => return Ok((Kind::Unmarked, Some(dir))),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Err(Error::new("read marker", name, ErrorKind::Busy).with_detail("comes and goes"))
}

/// What the marker of a directory says; none if it has none.
fn marked(dir: &Root, name: &str) -> Result<Option<Kind>> {
    for (file, kind) in [(SESSION, Kind::Session), (GROUP, Kind::Group)] {
        match dir.read_contained(file, MOST_BYTES) {
            Ok(content) => return judge(&content, kind, name).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn judge(content: &[u8], kind: Kind, name: &str) -> Result<Kind> {
    // What a file system without a sync may make of it in a power cut.
    if content.iter().all(|byte| *byte == 0) {
        return Ok(kind);
    }
    let refuse = |refusal, why| Err(Error::new("read marker", name, refusal).with_detail(why));
    let text = String::from_utf8_lossy(content);
    let mut lines = text.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some("beneath"), Some(word), Some(format), None) =
        (first.next(), first.next(), first.next(), first.next())
    else {
        return refuse(ErrorKind::InvalidData, "its marker is damaged");
    };
    if format != FORMAT {
        return refuse(ErrorKind::Unsupported, "was made by a later version");
    }
    let kind = match (kind, word) {
        (Kind::Session, "session") | (Kind::Group, "group") => kind,
        (Kind::Session, "removed") => Kind::Doomed,
        _ => return refuse(ErrorKind::InvalidData, "its marker is damaged"),
    };
    Ok(if lines.next() == Some(name) { kind } else { Kind::Namesake })
}

fn content(word: &str, name: &str) -> String {
    format!("beneath {word} {FORMAT}\n{name}\n")
}

/// Makes `dir` the session `name`.
pub(in crate::session) fn mark_session(dir: &Root, name: &str) -> Result<()> {
    dir.write_exclusive(SESSION, content("session", name))
}

/// Makes `dir` the group `name`.
pub(in crate::session) fn mark_group(dir: &Root, name: &str) -> Result<()> {
    dir.write_exclusive(GROUP, content("group", name))
}

/// Makes the session `name` of `root` one that is being removed.
pub(in crate::session) fn mark_doomed(root: &Root, name: &str) -> Result<()> {
    root.replace(Path::new(name).join(SESSION), content("removed", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_says_what_it_is_of_which_name_and_in_which_format() {
        let cases = [
            (content("session", "bob"), Kind::Session, Ok(Kind::Session)),
            (content("removed", "bob"), Kind::Session, Ok(Kind::Doomed)),
            (content("group", "bob"), Kind::Group, Ok(Kind::Group)),
            (content("session", "BOB"), Kind::Session, Ok(Kind::Namesake)),
            (content("session", "bob\nx"), Kind::Session, Ok(Kind::Session)),
            (String::new(), Kind::Session, Ok(Kind::Session)),
            ("\0\0\0".into(), Kind::Group, Ok(Kind::Group)),
            ("beneath session 1".into(), Kind::Session, Ok(Kind::Namesake)),
            ("beneath session 2\nbob\n".into(), Kind::Session, Err(ErrorKind::Unsupported)),
            ("beneath group 1\nbob\n".into(), Kind::Session, Err(ErrorKind::InvalidData)),
            ("beneath removed 1\nbob\n".into(), Kind::Group, Err(ErrorKind::InvalidData)),
            ("beneath session 1 more\nbob\n".into(), Kind::Session, Err(ErrorKind::InvalidData)),
            ("\u{fffd}".into(), Kind::Session, Err(ErrorKind::InvalidData)),
        ];
        for (text, file, expected) in cases {
            let judged = judge(text.as_bytes(), file, "bob").map_err(|error| error.kind());
            assert_eq!(judged, expected, "{text:?}");
        }
    }
}
