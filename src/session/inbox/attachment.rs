//! What is to be delivered, before it has a safe name.

use std::fmt;
use std::io::Read;

use crate::error::Error;
use crate::name::AttachmentHint;
#[cfg(feature = "json")]
use crate::session::handle::config::Base64;

/// One file of a message, on its way to the guest.
///
/// Everything a sender says of it is untrusted: the name is repaired, the size compared.
///
/// ```
/// use beneath::session::Attachment;
///
/// let photo = Attachment::from_bytes(b"\x89PNG").with_mime("image/png");
/// let log = Attachment::from_reader(std::io::stdin()).with_name("session.log");
/// ```
pub struct Attachment<'a> {
    pub(super) hint: AttachmentHint<'a>,
    pub(super) content: Content<'a>,
    pub(super) declared: Option<u64>,
    /// Other forms than those of the config.
    #[cfg(feature = "json")]
    pub(super) base64: Option<Base64>,
}

pub(super) enum Content<'a> {
    Bytes(&'a [u8]),
    #[cfg(feature = "json")]
    Base64(&'a str),
    Reader(Box<dyn Read + Send + 'a>),
    /// There is none, for this reason.
    Unavailable(Error),
}

impl<'a> Attachment<'a> {
    fn new(content: Content<'a>) -> Self {
        Self {
            hint: AttachmentHint::default(),
            content,
            declared: None,
            #[cfg(feature = "json")]
            base64: None,
        }
    }

    /// An attachment that is in memory.
    #[must_use]
    pub fn from_bytes(bytes: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::new(Content::Bytes(bytes.as_ref()))
    }

    /// An attachment in base64, in the forms that the config or [`with_base64`](Self::with_base64) says: unless that is asked for,
    /// the standard alphabet, padded, with no blanks or line ends. Anything else is refused.
    #[cfg(feature = "json")]
    #[must_use]
    pub fn from_base64(text: &'a str) -> Self {
        Self::new(Content::Base64(text))
    }

    /// An attachment that is read while it is written, in chunks of up to 64 KiB. Reading ends with the chunk that passes
    /// the limit, so the reader may be left up to 64 KiB past it.
    #[must_use]
    pub fn from_reader(reader: impl Read + Send + 'a) -> Self {
        Self::new(Content::Reader(Box::new(reader)))
    }

    /// An attachment without content; its outcome is the reason.
    pub(in crate::session) fn unavailable(error: Error) -> Self {
        Self::new(Content::Unavailable(error))
    }

    /// Which forms of base64 this attachment may have, whatever the config says.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
    /// use beneath::MessageId;
    /// use beneath::session::{Attachment, Base64};
    ///
    /// let photo = Attachment::from_base64("data:image/png;base64,iVBORw0KGgo").with_base64(Base64::Lenient);
    /// assert!(session.inbox().deliver(&MessageId::new("42"), [photo]).is_complete());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "json")]
    #[must_use]
    pub fn with_base64(mut self, forms: Base64) -> Self {
        self.base64 = Some(forms);
        self
    }

    /// The name that the sender gave.
    #[must_use]
    pub fn with_name(mut self, raw: &'a str) -> Self {
        self.hint.name = Some(raw);
        self
    }

    /// The MIME type that the sender gave, for the extension of a file without a name.
    #[must_use]
    pub fn with_mime(mut self, raw: &'a str) -> Self {
        self.hint.mime = Some(raw);
        self
    }

    /// The coarse type that the sender gave (`photo`, `voice`), for the extension of a file with neither.
    #[must_use]
    pub fn with_kind(mut self, raw: &'a str) -> Self {
        self.hint.kind = Some(raw);
        self
    }

    /// Everything the sender said that helps to name it.
    #[must_use]
    pub fn with_hint(mut self, hint: AttachmentHint<'a>) -> Self {
        self.hint = hint;
        self
    }

    /// The size that the sender gave; an attachment of another size is refused.
    #[must_use]
    pub fn with_declared_size(mut self, bytes: u64) -> Self {
        self.declared = Some(bytes);
        self
    }
}

impl fmt::Debug for Attachment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match &self.content {
            Content::Bytes(bytes) => format!("{} bytes", bytes.len()),
            #[cfg(feature = "json")]
            Content::Base64(text) => format!("{} characters of base64", text.len()),
            Content::Reader(_) => "a reader".to_owned(),
            Content::Unavailable(error) => error.to_string(),
        };
        f.debug_struct("Attachment")
            .field("hint", &self.hint)
            .field("content", &format_args!("{content}"))
            .field("declared", &self.declared)
            .finish()
    }
}
