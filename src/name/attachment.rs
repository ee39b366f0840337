//! Names for attachments: from what a message says of them, or from nothing.

use super::mime::Mime;
use super::repair::start;
use super::rules::{NAME_MAX, SafeName};

/// What a message says of an attachment, as far as it helps to name it.
///
/// All of it is untrusted and any of it may be missing.
///
/// ```
/// use beneath::AttachmentHint;
///
/// let hint = AttachmentHint { name: Some("../cat.png"), ..AttachmentHint::default() };
/// assert_eq!(hint.to_name(0).as_str(), "cat.png");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttachmentHint<'a> {
    /// The file name that the sender gave.
    pub name: Option<&'a str>,
    /// The MIME type, parameters and all.
    pub mime: Option<&'a str>,
    /// The coarse type that chat systems use: image, photo, sticker, voice, audio, video, animation.
    pub kind: Option<&'a str>,
}

impl AttachmentHint<'_> {
    /// Names the attachment at position `index` of its message.
    ///
    /// The given name wins, [repaired](SafeName::repair) if need be. If there is none, or nothing of it is left, the
    /// name is `attachment-` and the index, so that two nameless attachments of one message are two files. Its
    /// extension comes from the MIME type, else from the coarse type; if both are unknown it has none. Two
    /// attachments may still be given one name: create exclusively, and try [`SafeName::numbered`] when it is taken.
    ///
    /// ```
    /// use beneath::AttachmentHint;
    ///
    /// let photo = AttachmentHint { mime: Some("Image/PNG; q=1"), kind: Some("photo"), name: None };
    /// assert_eq!(photo.to_name(0).as_str(), "attachment-0.png");
    /// assert_eq!(photo.to_name(1).as_str(), "attachment-1.png");
    ///
    /// let voice = AttachmentHint { kind: Some("voice"), ..AttachmentHint::default() };
    /// assert_eq!(voice.to_name(2).as_str(), "attachment-2.ogg");
    /// ```
    #[must_use]
    pub fn to_name(&self, index: usize) -> SafeName {
        if let Some(name) = self.name.and_then(|raw| SafeName::salvage(raw.as_bytes())) {
            return name;
        }
        let extension = self.mime.and_then(Mime::new).and_then(Mime::extension);
        let extension = extension.or_else(|| self.kind.and_then(kind_extension));
        SafeName::built(match extension {
            Some(extension) => format!("attachment-{index}.{extension}"),
            None => format!("attachment-{index}"),
        })
    }
}

impl SafeName {
    /// The `n`-th name to try for one file: this name, then `photo-2.png`, `photo-3.png` and so on.
    ///
    /// No two of them are equal, counting from 1; 0 gives this name too. Where the number would make the name too
    /// long, the stem is cut between characters; if not even one character of it could stay, the number goes to the
    /// end and the extension is cut.
    ///
    /// ```
    /// use beneath::safe_name;
    ///
    /// let name = safe_name("photo.png")?;
    /// assert_eq!(name.numbered(1), name);
    /// assert_eq!(name.numbered(2).as_str(), "photo-2.png");
    /// assert_eq!(safe_name("README")?.numbered(3).as_str(), "README-3");
    /// # Ok::<(), beneath::Error>(())
    /// ```
    #[must_use]
    pub fn numbered(&self, n: u32) -> Self {
        if n < 2 {
            return self.clone();
        }
        let tail = match self.extension() {
            Some(extension) => format!("-{n}.{extension}"),
            None => format!("-{n}"),
        };
        let name = with_tail(self.stem(), &tail, self.as_str())
            .or_else(|| with_tail(self.as_str(), &format!("-{n}"), self.as_str()));
        name.map_or_else(|| self.clone(), Self::built)
    }
}

/// `stem`, cut as far as it must be, followed by `tail`; never `taken`, and `None` if nothing of the stem fits.
fn with_tail(stem: &str, tail: &str, taken: &str) -> Option<String> {
    let mut stem = start(stem, NAME_MAX.checked_sub(tail.len())?);
    // Cutting `…x-2` to make room for `-2` gives the same name again.
    if taken.strip_suffix(tail) == Some(stem) {
        stem = start(stem, stem.len().checked_sub(1)?);
    }
    (!stem.is_empty()).then(|| format!("{stem}{tail}"))
}

/// The extension that a coarse type most often has.
fn kind_extension(raw: &str) -> Option<&'static str> {
    Some(match raw.trim().to_ascii_lowercase().as_str() {
        "image" | "photo" => "jpg",
        "sticker" => "webp",
        "voice" => "ogg",
        "audio" => "mp3",
        "video" | "animation" => "mp4",
        _ => return None,
    })
}
