//! A message of the guest's, and what one look has found.

use std::path::Path;

use super::routing::Routing;
use super::seq::Seq;
use crate::error::Error;
use crate::name::MessageId;
use crate::report::Leftovers;

/// Whose message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Origin {
    /// The guest has written it. All of it is the guest's choice.
    Guest,
    /// The host has [posted](super::Mailbox::post) it.
    Host,
}

/// What is known of earlier tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Earlier {
    /// There was none.
    Never,
    /// So many have failed.
    Failed(u32),
    /// This many tries were begun, and the host died during the last: the message may have been sent.
    Unfinished(u32),
}

/// A message that is due; see [`Mailbox::take`](super::Mailbox::take).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Outbound {
    /// Its id. The files that come with it are in the message of this id in the [outbox](crate::session::Outbox::claim).
    pub id: MessageId,
    /// Its id as it was written.
    pub raw_id: String,
    /// Its number, by which messages are sorted.
    pub seq: Seq,
    /// Whose it is.
    pub origin: Origin,
    /// Its kind, any text.
    pub kind: String,
    /// Its content, any text.
    pub content: String,
    /// The message that it answers, as the guest says.
    pub in_reply_to: Option<String>,
    /// Where the guest wants it to go. Check that it may: [`Mailbox::routing`](super::Mailbox::routing) is where answers go.
    pub to: Routing,
    /// What is known of earlier tries.
    pub earlier: Earlier,
}

impl Outbound {
    /// What no other message of the session has, for the receiver to know it by if it comes twice.
    #[must_use]
    pub fn key(&self) -> String {
        key(self.origin, &self.id)
    }
}

/// A guest cannot write the key of a host's message: no id has a colon.
pub(super) fn key(origin: Origin, id: &MessageId) -> String {
    match origin {
        Origin::Guest => format!("guest:{id}"),
        Origin::Host => format!("host:{id}"),
    }
}

/// A message that the host sends in the guest's place; see [`Mailbox::post`](super::Mailbox::post).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post<'a> {
    pub(super) id: MessageId,
    pub(super) kind: &'a str,
    pub(super) content: &'a str,
    pub(super) to: Routing,
}

impl<'a> Post<'a> {
    /// A message of this kind and content. Of two with one id the first counts.
    #[must_use]
    pub fn new(id: &MessageId, kind: &'a str, content: &'a str) -> Self {
        Self { id: id.clone(), kind, content, to: Routing::default() }
    }

    /// Where it is to go.
    #[must_use]
    pub fn with_to(mut self, to: Routing) -> Self {
        self.to = to;
        self
    }
}

/// What one look has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "messages are sent by whoever takes them"]
#[non_exhaustive]
pub struct Taken {
    /// The messages that are due, in the order of their numbers.
    pub messages: Vec<Outbound>,
    /// Whether more are due.
    pub more: bool,
    /// What cannot be sent, and why: rows by their id, or the whole database.
    pub refused: Leftovers,
}

impl Taken {
    /// Whether nothing was refused, and no more is due.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty() && !self.more
    }

    /// What cannot be sent, and why: the first of [`refused`](Self::refused).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.refused.iter()
    }
}
