//! A message for the guest.

use std::fmt;
use std::time::SystemTime;

use super::routing::Routing;
use super::seq::Seq;
use crate::name::MessageId;
use crate::root::Ensured;
use crate::session::{Attachment, Delivery};

/// A message for the guest; see [`Mailbox::put`](super::Mailbox::put).
///
/// ```
/// use beneath::MessageId;
/// use beneath::mailbox::Inbound;
/// use beneath::session::Attachment;
///
/// let message = Inbound::new(&MessageId::new("m-1"), "chat", "see the photo")
///     .with_attachments([Attachment::from_bytes("\u{89}PNG").with_name("photo.png")]);
/// ```
pub struct Inbound<'a> {
    pub(super) id: MessageId,
    pub(super) kind: &'a str,
    pub(super) content: &'a str,
    pub(super) from: Routing,
    pub(super) not_before: Option<SystemTime>,
    pub(super) attachments: Vec<Attachment<'a>>,
}

impl<'a> Inbound<'a> {
    /// A message of this kind and content, which are any text. Of two messages with one id the first counts.
    #[must_use]
    pub fn new(id: &MessageId, kind: &'a str, content: &'a str) -> Self {
        let (from, not_before, attachments) = (Routing::default(), None, Vec::new());
        Self { id: id.clone(), kind, content, from, not_before, attachments }
    }

    /// The files that come with it.
    #[must_use]
    pub fn with_attachments(mut self, attachments: impl IntoIterator<Item = Attachment<'a>>) -> Self {
        self.attachments.extend(attachments);
        self
    }

    /// Where it is from.
    #[must_use]
    pub fn with_from(mut self, from: Routing) -> Self {
        self.from = from;
        self
    }

    /// When the guest is to read it, at the earliest.
    #[must_use]
    pub fn with_not_before(mut self, time: SystemTime) -> Self {
        self.not_before = Some(time);
        self
    }
}

impl fmt::Debug for Inbound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("content", &format_args!("{} bytes", self.content.len()))
            .field("attachments", &self.attachments)
            .finish_non_exhaustive()
    }
}

/// What [`Mailbox::put`](super::Mailbox::put) did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "attachments may have been refused"]
#[non_exhaustive]
pub struct Put {
    /// The number of the message.
    pub seq: Seq,
    /// Whether the message was there before; then nothing was done.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub how: Ensured,
    /// The outcome for each attachment; none if the message was there before.
    pub delivery: Option<Delivery>,
}

impl Put {
    /// Whether every attachment is in the inbox.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.delivery.as_ref().is_none_or(Delivery::is_complete)
    }

    /// Which attachments are not, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&std::path::Path, &crate::error::Error)> {
        self.delivery.iter().flat_map(Delivery::refused)
    }
}
