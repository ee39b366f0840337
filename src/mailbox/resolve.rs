//! Which session a conversation belongs to.
//!
//! Problem: whoever looks a session up and makes one if there is none makes two, if two messages arrive at once.
//!
//! Defence: the id is derived from the conversation, not looked up. Both calls derive the same id, and
//! [`Sessions::create`] is exclusive, so that one of them makes the session and the other one gets it.
//!
//! What remains: two conversations share a session if 128 bits of SHA-256 collide.

use crate::error::Result;
use crate::name::{SafeName, SessionId};
use crate::root::Ensured;
use crate::session::{Session, Sessions};

/// How many conversations share a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum SessionMode {
    /// One session for each messaging group, whatever the thread.
    Shared,
    /// One session for each thread of a messaging group.
    PerThread,
    /// One session for all of an agent group.
    AgentShared,
}

/// A conversation: the agents it is with, the messaging group it is in, and the thread. All of it may be any text.
///
/// ```
/// use beneath::mailbox::{SessionKey, SessionMode};
///
/// let key = SessionKey::new("agents").in_group("room-7");
/// let id = key.with_thread("t-1").id(SessionMode::Shared);
/// assert_eq!(id, key.with_thread("t-2").id(SessionMode::Shared));
/// assert_ne!(id, key.with_thread("t-1").id(SessionMode::PerThread));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey<'a> {
    agents: &'a str,
    group: Option<&'a str>,
    thread: Option<&'a str>,
}

impl<'a> SessionKey<'a> {
    /// A conversation with this group of agents, and in no messaging group.
    #[must_use]
    pub const fn new(agents: &'a str) -> Self {
        Self { agents, group: None, thread: None }
    }

    /// The same in a messaging group.
    #[must_use]
    pub const fn in_group(mut self, group: &'a str) -> Self {
        self.group = Some(group);
        self
    }

    /// The same in a thread.
    #[must_use]
    pub const fn with_thread(mut self, thread: &'a str) -> Self {
        self.thread = Some(thread);
        self
    }

    /// The id of the session; none if every call is to make a new one, which is so in no messaging group unless the mode is
    /// [`AgentShared`](SessionMode::AgentShared).
    #[must_use]
    pub fn id(&self, mode: SessionMode) -> Option<SessionId> {
        let raw = match (mode, self.group) {
            (SessionMode::AgentShared, _) => parts(&[Some("agents"), Some(self.agents)]),
            (_, None) => return None,
            (SessionMode::Shared, group) => parts(&[Some("group"), group, Some(self.agents)]),
            (SessionMode::PerThread, group) => {
                parts(&[Some("thread"), group, self.thread, Some(self.agents)])
            }
        };
        Some(SessionId::new(raw))
    }
}

/// One text for several, from which they could be read again. It has a colon, so that its id is never the text itself.
fn parts(parts: &[Option<&str>]) -> String {
    let shown = |part: &Option<&str>| match part {
        Some(text) => format!("{text}:{}", text.len()),
        None => ":".to_owned(),
    };
    parts.iter().map(shown).collect::<Vec<_>>().join(":")
}

/// The session that a conversation belongs to, in the [group](Sessions::group) of its agents; it is made if there is none.
///
/// Keep groups that this makes sessions in for it alone: whoever else makes sessions there with ids of their choice could choose
/// the id of a conversation.
///
/// # Errors
/// Those of [`Sessions::group`] and [`Sessions::create`].
///
/// # Races
/// Any number of calls for one conversation get one session, and exactly one of them gets
/// [`Created`](Ensured::Created).
///
/// ```
/// use beneath::mailbox::{SessionKey, SessionMode, resolve};
/// use beneath::{Ensured, Root, Sessions, ambient_authority};
///
/// # let dir = tempfile::tempdir()?;
/// let sessions = Sessions::new(Root::open_ambient(dir.path(), ambient_authority())?, Default::default());
/// let key = SessionKey::new("agents").in_group("room-7");
/// assert_eq!(resolve(&sessions, &key, SessionMode::Shared)?.1, Ensured::Created);
/// assert_eq!(resolve(&sessions, &key, SessionMode::Shared)?.1, Ensured::Existed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn resolve(sessions: &Sessions, key: &SessionKey<'_>, mode: SessionMode) -> Result<(Session, Ensured)> {
    let agents = SafeName::from(SessionId::new(key.agents));
    let group = sessions.group(&agents)?;
    match key.id(mode) {
        Some(id) => group.create(&id),
        None => group.create_generated().map(|(_, session)| (session, Ensured::Created)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_conversations_have_one_id() {
        let texts =
            [None, Some(""), Some("a"), Some("a:1"), Some(":"), Some("1"), Some("a:1:a"), Some("agents")];
        let mut seen = std::collections::BTreeMap::new();
        let modes = [SessionMode::Shared, SessionMode::PerThread, SessionMode::AgentShared];
        let count = texts.len();
        for number in 0..count.pow(3) * modes.len() {
            let text = |place: u32| texts[number / modes.len() / count.pow(place) % count];
            let (mode, agents, group, thread) = (modes[number % modes.len()], text(0), text(1), text(2));
            let key = SessionKey { agents: agents.unwrap_or("none"), group, thread };
            let Some(id) = key.id(mode) else {
                assert!(group.is_none() && mode != SessionMode::AgentShared);
                continue;
            };
            assert!(!id.is_verbatim(), "{id}");
            // What the mode distinguishes.
            let conversation = match mode {
                SessionMode::Shared => (0, key.agents, group, None),
                SessionMode::PerThread => (1, key.agents, group, thread),
                SessionMode::AgentShared => (2, key.agents, None, None),
            };
            let other = seen.insert(id, conversation);
            assert!(other.is_none_or(|other| other == conversation), "{other:?} and {conversation:?}");
        }
        assert!(seen.len() > 500);
    }
}
