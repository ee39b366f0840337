//! What the next host finds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use beneath::{ResolverChoice, Session, Sessions};

use crate::host::*;

pub(crate) type Verdict = Result<(), String>;

/// Whole files only, under the names they were meant to have.
pub(crate) fn no_torn_file(directory: &Path) -> Verdict {
    for name in names_if_any(directory) {
        let bytes = fs::read(directory.join(&name)).map_err(text)?;
        if !FILES.iter().any(|(wanted, byte, length)| *wanted == name && bytes == vec![*byte; *length]) {
            return Err(format!("{name} holds {} bytes", bytes.len()));
        }
    }
    Ok(())
}

/// A message that the next host would find has all its files.
pub(crate) fn visible_messages_are_whole(dir: &Path, host: &Path) -> Verdict {
    let claims =
        names(&host.join("claimed")).into_iter().map(|slot| host.join("claimed").join(slot).join("42"));
    for place in claims.chain([dir.join("s/guest/outbox/42")]).filter(|place| place.is_dir()) {
        if names(&place) != FILES.map(|(name, ..)| name) {
            return Err(format!("{} holds {:?}", place.display(), names(&place)));
        }
    }
    Ok(())
}

/// The next host takes over, while the guest uses the id again as soon as it can.
pub(crate) fn judge_loop(dir: &Path, session: &Session, host: &Path) -> Verdict {
    let whole: Vec<u8> = FILES.iter().flat_map(|(_, byte, length)| vec![*byte; *length]).collect();
    visible_messages_are_whole(dir, host)?;
    let mut messages = 1;
    if !dir.join("s/guest/outbox/42").exists() {
        send_message(dir);
        messages += 1;
    }
    for _ in 0..2 {
        let report = collect_all(session);
        let sent = names(&host.join("sent"));
        let is_whole = |name: &String| fs::read(host.join("sent").join(name)).is_ok_and(|sent| sent == whole);
        if !report.is_complete() || sent.len() != messages || !sent.iter().all(is_whole) {
            return Err(format!("{report:?}, and {} of {messages} messages were sent", sent.len()));
        }
    }
    let pending = session.outbox().pending().map_err(text)?;
    let messages = session.outbox().messages().map_err(text)?;
    if pending.total > 0 || !messages.entries.is_empty() {
        return Err(format!("left {pending:?} and {messages:?}"));
    }
    let swept = session.outbox().sweep(Duration::ZERO).map_err(text)?;
    let places = [host.join("trash"), host.join("claimed"), dir.join("s/guest/outbox")];
    if swept.left.total > 0 || places.iter().any(|place| !names(place).is_empty()) {
        return Err(format!("unswept {swept:?}"));
    }
    Ok(())
}

/// Everything is a session or a group, whole, after what a service does anyway; and nothing is left of interrupted calls
/// after the first sweep that finds it old.
pub(crate) fn orderly(dir: &Path, resolver: ResolverChoice, judge: impl Fn(&Sessions) -> Verdict) -> Verdict {
    let sessions = sessions(dir, resolver);
    let survey = sessions.survey().map_err(text)?;
    if survey.refused.total > 0 {
        return Err(format!("refused {:?}", survey.refused));
    }
    for id in &survey.sessions {
        if !sessions.open(id).map_err(text)?.verify().is_sound() {
            return Err(format!("{id} is not whole"));
        }
    }
    let swept = sessions.sweep(Duration::from_secs(3600)).map_err(text)?;
    if swept.left.total > 0 || names(dir).iter().any(|name| name.starts_with(".removed-")) {
        return Err(format!("{swept:?} left {:?}", names(dir)));
    }
    judge(&sessions)?;
    let swept = sessions.sweep(Duration::ZERO).map_err(text)?;
    let left: Vec<String> = names(dir).into_iter().filter(|name| name.starts_with('.')).collect();
    if swept.left.total > 0 || left.iter().any(|name| ![".clock", ".log"].contains(&name.as_str())) {
        return Err(format!("{swept:?} left {left:?}"));
    }
    Ok(())
}
