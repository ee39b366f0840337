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
//! Left: `data` elsewhere than in the elements of a top-level `attachments` array is not ours.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use serde::Deserializer as _;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::attachment::Attachment;
use super::delivery::{Delivery, Outcome};
use super::inbox::Inbox;
use crate::error::{Error, ErrorKind};
use crate::name::{AttachmentHint, MessageId};

/// Delivers the attachments that a JSON message carries, and takes their content out of the message.
///
/// For each object in the top-level array `attachments` that has a member `data`: the base64 text is decoded and
/// delivered under a name derived from `name`, `mimeType` (or `mime`, `mimetype`) and `type`. Then the member `name` is
/// the file's name and `localPath` its path as the guest knows it. If it was refused there is no `localPath`, and a
/// member `refused` with `kind` and `reason` says why. `data` is gone in every case.
///
/// Everything else is returned byte for byte: number formats, escapes, white space, the order of keys, unknown members, a
/// byte order mark at the start. So is an attachment without `data`: a `localPath` or `refused` in it is the sender's own
/// word, and no file of the session's need stand there.
///
/// Text that is not a JSON object, or has no array `attachments`, is returned as it is. Of repeated keys the last counts,
/// as in most parsers, and all are replaced. A member `encoding` that is not the text `base64` makes `data` unreadable,
/// and so does a `data` that is no text.
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
///     r#"{"n": 1.0, "attachments": [{"type":"photo","name":"attachment-0.jpg","localPath":"inbox/42/attachment-0.jpg"}]}"#,
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rewrite_message<'s>(inbox: &Inbox<'s>, id: &MessageId, json: &str) -> (String, Delivery<'s>) {
    let objects = attachment_objects(json).unwrap_or_default();
    let parsed: Vec<Payload<'_>> = objects.iter().filter_map(|object| Payload::of(json, object)).collect();
    let delivery = inbox.deliver(id, parsed.iter().map(Payload::attachment));
    let mut rewritten = String::with_capacity(json.len().min(1 << 16));
    let mut copied = 0;
    for (payload, outcome) in parsed.iter().zip(delivery.outcomes()) {
        rewritten.push_str(json.get(copied..payload.object.start).unwrap_or_default());
        payload.rewrite(json, outcome, &mut rewritten);
        copied = payload.object.end;
    }
    rewritten.push_str(json.get(copied..).unwrap_or_default());
    (rewritten, delivery)
}

/// How many bytes a base64 text of this length is at least.
pub(super) fn decoded_length(text: &str) -> u64 {
    let padding = text.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    ((text.len() / 4 * 3) as u64).saturating_sub(padding as u64)
}

pub(super) fn decode(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => {
            format!("is not base64 at byte {at}")
        }
        _ => "is not base64: its end is missing or wrongly padded".to_owned(),
    })
}

/// One `"key": value` of an object, by position in the whole text.
struct Member {
    /// Decoded, since a key may be spelled with escapes; empty if it is no text at all.
    key: String,
    /// From the key to the end of the value.
    whole: Range<usize>,
    value: Range<usize>,
}

/// An attachment with `data`.
struct Payload<'j> {
    object: Range<usize>,
    members: Vec<Member>,
    data: Result<Cow<'j, str>, &'static str>,
    name: Option<String>,
    mime: Option<String>,
    kind: Option<String>,
}

/// The members that are cut out, and those that are set.
const DATA: &str = "data";
const NAME: &str = "name";
const LOCAL_PATH: &str = "localPath";
const REFUSED: &str = "refused";

impl<'j> Payload<'j> {
    fn of(json: &'j str, object: &Range<usize>) -> Option<Self> {
        let members = members(json, object)?;
        let last = |key: &str| {
            let member = members.iter().rev().find(|member| member.key == key)?;
            json.get(member.value.clone())
        };
        let text = |key: &str| last(key).and_then(|raw| serde_json::from_str::<String>(raw).ok());
        let data = string(last(DATA)?).ok_or("its data is not a text");
        let known = |raw| string(raw).is_some_and(|encoding| encoding.eq_ignore_ascii_case("base64"));
        let data = if last("encoding").is_none_or(known) { data } else { Err("is in an unknown encoding") };
        let (name, kind) = (text(NAME), text("type"));
        let mime = ["mimeType", "mimetype", "mime"].into_iter().find_map(text);
        Some(Self { object: object.clone(), members, data, name, mime, kind })
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

    /// Writes the object anew from the pieces of its old text.
    fn rewrite(&self, json: &str, outcome: &Outcome, out: &mut String) {
        let set = match outcome {
            Outcome::Saved(file) | Outcome::AlreadySaved(file) => {
                vec![(NAME, quoted(file.name.as_str())), (LOCAL_PATH, quoted(&file.guest_path))]
            }
            Outcome::Refused(error) => {
                let (kind, reason) = (quoted(&format!("{:?}", error.kind())), quoted(&error.to_string()));
                vec![(REFUSED, format!(r#"{{"kind":{kind},"reason":{reason}}}"#))]
            }
        };
        let mut separator = Separator::default();
        let mut end = self.object.start + 1;
        out.push('{');
        for member in &self.members {
            let gap = json.get(end..member.whole.start).unwrap_or_default();
            end = member.whole.end;
            let ours = [DATA, LOCAL_PATH, REFUSED].contains(&member.key.as_str());
            let value = set.iter().find(|(key, _)| *key == member.key).map(|(_, value)| value.as_str());
            let Some(value) = value.or_else(|| (!ours).then(|| json.get(member.value.clone())).flatten())
            else {
                continue;
            };
            separator.put(gap, out);
            out.push_str(json.get(member.whole.start..member.value.start).unwrap_or_default());
            out.push_str(value);
        }
        for (key, value) in &set {
            if !self.members.iter().any(|member| member.key == *key) {
                separator.put("", out);
                out.push_str(&quoted(key));
                out.push(':');
                out.push_str(value);
            }
        }
        out.push_str(json.get(end..self.object.end).unwrap_or_default());
    }
}

/// Puts one comma between each two members, with the white space that stood there.
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

/// The text of a JSON string, borrowed if it has no escapes; `None` if it is something else.
fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str::<String>(raw).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// Where the objects in every top-level `attachments` array are; `None` if the text is not a JSON object.
fn attachment_objects(json: &str) -> Option<Vec<Range<usize>>> {
    let whole = trimmed(json);
    let members = members(json, &whole)?;
    let mut objects = Vec::new();
    for member in members.iter().filter(|member| member.key == "attachments") {
        let text = json.get(member.value.clone())?;
        if !text.starts_with('[') {
            continue;
        }
        let elements: Vec<&RawValue> = collected(text, Elements(PhantomData))?;
        let positions = elements.into_iter().filter_map(|element| position(json, element.get()));
        objects.extend(positions.filter(|at| json.get(at.clone()).is_some_and(|text| text.starts_with('{'))));
    }
    Some(objects)
}

/// Where the text is without the white space around it, and without a byte order mark, which many parsers skip.
fn trimmed(json: &str) -> Range<usize> {
    let start = json.len() - json.strip_prefix('\u{feff}').unwrap_or(json).trim_start().len();
    start..json.trim_end().len().max(start)
}

/// The members of the object at `at`; `None` if it is not one whole valid object.
fn members(json: &str, at: &Range<usize>) -> Option<Vec<Member>> {
    let text = json.get(at.clone())?;
    if !text.starts_with('{') {
        return None;
    }
    let pairs: Vec<(&RawValue, &RawValue)> = collected(text, Pairs(PhantomData))?;
    pairs
        .into_iter()
        .map(|(key, value)| {
            let (key_at, value_at) = (position(json, key.get())?, position(json, value.get())?);
            let key = serde_json::from_str(key.get()).unwrap_or_default();
            Some(Member { key, whole: key_at.start..value_at.end, value: value_at })
        })
        .collect()
}

/// Where `part`, a slice of `json`, is in it.
fn position(json: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (json.get(start..end)? == part).then_some(start..end)
}

/// Parses one whole value. Its own values are skipped without recursion, however deep they nest.
fn collected<'j, V: Visitor<'j>>(text: &'j str, visitor: V) -> Option<V::Value> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = parser.deserialize_any(visitor).ok()?;
    parser.end().ok()?;
    Some(value)
}

struct Pairs<'j>(PhantomData<&'j str>);

impl<'j> Visitor<'j> for Pairs<'j> {
    type Value = Vec<(&'j RawValue, &'j RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'j>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

struct Elements<'j>(PhantomData<&'j str>);

impl<'j> Visitor<'j> for Elements<'j> {
    type Value = Vec<&'j RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = sequence.next_element()? {
            elements.push(element);
        }
        Ok(elements)
    }
}
