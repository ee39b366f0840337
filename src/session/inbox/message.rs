//! Messages as JSON, with their attachments in base64.
//!
//! Problem: decoding and encoding a message again changes numbers, escapes and the order of keys; a sender repeats keys
//! or spells them with escapes so that two parsers see different things; megabytes of base64 stay in the message
//! whenever something is refused.
//!
//! Defence: the text is never rebuilt. A parser finds where values begin and end, and only the members that are ours to
//! set are cut out or replaced in the original text; all else is copied byte for byte. Every `data` of an attachment
//! goes, whatever became of it, under every spelling and however often it is repeated.
//!
//! What remains: `data` elsewhere than in the elements of a top-level `attachments` array is not ours.

use std::borrow::Cow;

use self::scan::{Member, each_element, each_member, offset, string};
use super::Inbox;
use super::attachment::Attachment;
use super::delivery::{Delivery, Outcome};
use crate::error::{Error, ErrorKind};
use crate::name::{AttachmentHint, MessageId};

mod scan;

/// Delivers the attachments that a JSON message carries, and takes their content out of the message.
///
/// For each object in the top-level array `attachments` that has a member `data`: the base64 text is decoded and
/// delivered under a name derived from `name`, `mimeType` (or `mime`, `mimetype`) and `type`. Then the member `name` is
/// the file's name and `localPath` its path as the guest knows it. If it was refused there is no `localPath`, and a
/// member `refused` with `kind` and `reason` says why. `data` is gone in every case.
///
/// Attachments past the limit for [files](crate::session::MessageLimits::files) are not tried. The first of them has a member
/// `refused` that counts them; the others only lose `data`, `localPath` and `refused`. See [`Delivery::not_tried`].
///
/// Everything else is returned byte for byte: number formats, escapes, white space, the order of keys, unknown members, a
/// byte order mark at the start. So is an attachment without `data`: a `localPath` or `refused` in it comes from
/// the sender, and there need not be such a file.
///
/// Text that is not a JSON object, or has no array `attachments`, is returned as it is. Of repeated keys the last counts,
/// as in most parsers; of those that are set, the first gets the new value and the others go. A member `encoding` that
/// is not the text `base64` makes `data` unreadable, and so does a `data` that is no text.
///
/// Time and memory are linear in the length of the text, whatever it holds. The result is at most as long as the text and
/// a few kilobytes for each attachment that was tried.
///
/// # Races
/// As [`Inbox::deliver`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
/// # let sessions = beneath::Sessions::new(root, Default::default());
/// # let (session, _) = sessions.create(&beneath::SessionId::new("s"))?;
/// use beneath::MessageId;
/// use beneath::session::rewrite_message;
///
/// let message = r#"{"n": 1.0, "attachments": [{"type":"photo","data":"aGVsbG8="}]}"#;
/// let (rewritten, delivery) = rewrite_message(&session.inbox(), &MessageId::new("42"), message);
/// assert!(delivery.is_complete());
/// assert_eq!(
///     rewritten,
///     r#"{"n": 1.0, "attachments": [{"type":"photo","name":"attachment-0.jpg","localPath":"/session/inbox/42/attachment-0.jpg"}]}"#,
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rewrite_message(inbox: &Inbox, id: &MessageId, json: &str) -> (String, Delivery) {
    let most = usize::try_from(inbox.limits().files()).unwrap_or(usize::MAX);
    let mut payloads = Vec::new();
    let mut past = 0;
    each_attachment(json, |object| {
        if payloads.len() < most {
            payloads.extend(Payload::of(object));
        } else if has_data(object) {
            past += 1;
        }
    });
    // Those past the limit count, and nothing of them is looked at.
    let past = std::iter::repeat_with(|| Attachment::from_bytes("")).take(past);
    let delivery = inbox.deliver(id, payloads.iter().map(Payload::attachment).chain(past));
    drop(payloads);

    let mut rewritten = String::with_capacity(json.len().min(1 << 16));
    let mut copied = 0;
    let mut outcomes = delivery.outcomes().iter();
    each_attachment(json, |object| {
        if has_data(object) {
            let at = offset(json, object);
            rewritten.push_str(json.get(copied..at).unwrap_or_default());
            rewrite(object, outcomes.next(), &mut rewritten);
            copied = at + object.len();
        }
    });
    rewritten.push_str(json.get(copied..).unwrap_or_default());
    (rewritten, delivery)
}

/// Visits the objects in every top-level `attachments` array, unless the text is not one whole valid object.
fn each_attachment<'j>(json: &'j str, mut visit: impl FnMut(&'j str)) {
    let whole = trimmed(json);
    let mut each = |member: Member<'j>| {
        if member.key() == "attachments" {
            let objects = |element: &'j str| {
                if element.starts_with('{') {
                    visit(element)
                }
            };
            // Anything but an array is not ours.
            let _ = each_element(member.value, objects);
        }
    };
    // A text that ends badly must not be changed at its start.
    if each_member(whole, |_| {}).is_some() {
        let _ = each_member(whole, &mut each);
    }
}

/// The text without the white space around it, and without a byte order mark, which many parsers skip.
fn trimmed(json: &str) -> &str {
    json.strip_prefix('\u{feff}').unwrap_or(json).trim()
}

/// An attachment with `data`.
struct Payload<'j> {
    data: Result<Cow<'j, str>, &'static str>,
    name: Option<Cow<'j, str>>,
    mime: Option<Cow<'j, str>>,
    kind: Option<Cow<'j, str>>,
}

/// The members that are cut out, and those that are set.
const DATA: &str = "data";
const NAME: &str = "name";
const LOCAL_PATH: &str = "localPath";
const REFUSED: &str = "refused";

impl<'j> Payload<'j> {
    fn of(object: &'j str) -> Option<Self> {
        const KEYS: [&str; 7] = [DATA, "encoding", NAME, "type", "mimeType", "mimetype", "mime"];
        let mut last = [None; KEYS.len()];
        each_member(object, |member| {
            let key = member.key();
            let place = last.iter_mut().zip(KEYS).find(|(_, known)| *known == key);
            if let Some((last, _)) = place {
                *last = Some(member.value);
            }
        })?;
        let [data, encoding, name, kind, mimes @ ..] = last;
        let data = string(data?).ok_or("its data is not a text");
        let known = |raw| string(raw).is_some_and(|encoding| encoding.eq_ignore_ascii_case("base64"));
        let data = if encoding.is_none_or(known) { data } else { Err("is in an unknown encoding") };
        let mime = mimes.into_iter().flatten().find_map(string);
        Some(Self { data, name: name.and_then(string), mime, kind: kind.and_then(string) })
    }

    fn attachment(&self) -> Attachment<'_> {
        let hint = AttachmentHint {
            name: self.name.as_deref(),
            mime: self.mime.as_deref(),
            kind: self.kind.as_deref(),
        };
        let attachment = match &self.data {
            Ok(text) => Attachment::from_base64(text),
            Err(why) => {
                let subject = self.name.as_deref().unwrap_or("attachment");
                let error = Error::new("deliver", subject, ErrorKind::InvalidData).with_detail(*why);
                Attachment::unavailable(error)
            }
        };
        attachment.with_hint(hint)
    }
}

fn has_data(object: &str) -> bool {
    let mut found = false;
    // It was parsed before.
    let _ = each_member(object, |member| found |= member.key() == DATA);
    found
}

/// Writes an attachment anew from the pieces of its old text.
fn rewrite(object: &str, outcome: Option<&Outcome>, out: &mut String) {
    let mut set = match outcome {
        Some(Outcome::Saved(file) | Outcome::AlreadySaved(file)) => {
            vec![(NAME, quoted(file.name.as_str())), (LOCAL_PATH, quoted(&file.guest_path))]
        }
        Some(Outcome::Refused(error)) => {
            let (kind, reason) = (quoted(&format!("{:?}", error.kind())), quoted(&error.to_string()));
            vec![(REFUSED, format!(r#"{{"kind":{kind},"reason":{reason}}}"#))]
        }
        None => Vec::new(),
    };
    let names = set.iter().any(|(key, _)| *key == NAME);
    let is_ours = |key: &str| [DATA, LOCAL_PATH, REFUSED].contains(&key) || (names && key == NAME);
    let mut separator = Separator::default();
    let mut end = 1;
    out.push('{');
    // It was parsed before.
    let _ = each_member(object, |member| {
        let (start, value) = (offset(object, member.raw_key), offset(object, member.value));
        let gap = object.get(end..start).unwrap_or_default();
        end = value + member.value.len();
        let key = member.key();
        let new = set.iter().position(|(own, _)| *own == key).map(|at| set.swap_remove(at).1);
        if new.is_none() && is_ours(&key) {
            return;
        }
        separator.put(gap, out);
        out.push_str(object.get(start..value).unwrap_or_default());
        out.push_str(new.as_deref().unwrap_or(member.value));
    });
    for (key, value) in set {
        separator.put("", out);
        out.push_str(&quoted(key));
        out.push(':');
        out.push_str(&value);
    }
    out.push_str(object.get(end..).unwrap_or_default());
}

/// Puts one comma between each two members, with the white space that was there.
#[derive(Default)]
struct Separator {
    begun: bool,
}

impl Separator {
    fn put(&mut self, gap: &str, out: &mut String) {
        match (self.begun, gap.contains(',')) {
            (true, false) => {
                out.push(',');
                out.push_str(gap);
            }
            (false, true) => out.extend(gap.chars().filter(|character| *character != ',')),
            _ => out.push_str(gap),
        }
        self.begun = true;
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
