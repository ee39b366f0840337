//! Where the parts of a JSON text are, one at a time and without a copy.
//!
//! Nothing is kept of what was seen, so a text of millions of members costs no more memory than a text of one.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer as _;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Longest spelling of a key that is looked for: each of its characters as `\u0000`, and the quotes.
const KEY_MAX: usize = 6 * "attachments".len() + 2;

/// One `"key": value` of an object, as it is written.
#[derive(Clone, Copy)]
pub(super) struct Member<'j> {
    pub(super) raw_key: &'j str,
    pub(super) value: &'j str,
}

impl<'j> Member<'j> {
    /// The key without its escapes; nothing if it is none of the keys that are looked for.
    pub(super) fn key(&self) -> Cow<'j, str> {
        let raw = Some(self.raw_key).filter(|raw| raw.len() <= KEY_MAX);
        raw.and_then(string).unwrap_or_default()
    }
}

/// Visits the members of `object` in their order; `None` if it is not one whole valid object.
pub(super) fn each_member<'j>(object: &'j str, visit: impl FnMut(Member<'j>)) -> Option<()> {
    parsed(Some(object).filter(|text| text.starts_with('{'))?, Members(visit, PhantomData))
}

/// Visits the elements of `array` in their order; `None` if it is not one whole valid array.
pub(super) fn each_element<'j>(array: &'j str, visit: impl FnMut(&'j str)) -> Option<()> {
    parsed(Some(array).filter(|text| text.starts_with('['))?, Elements(visit, PhantomData))
}

/// The text of a JSON string, borrowed if it has no escapes; `None` if it is something else.
pub(super) fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str::<String>(raw).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// How many bytes of `text` are before `part`, which is a slice of it.
pub(super) fn offset(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

/// Parses one whole value. Its own values are skipped without recursion, however deep they nest.
fn parsed<'j, V: Visitor<'j, Value = ()>>(text: &'j str, visitor: V) -> Option<()> {
    let mut parser = serde_json::Deserializer::from_str(text);
    parser.deserialize_any(visitor).ok()?;
    parser.end().ok()
}

struct Members<'j, F>(F, PhantomData<&'j str>);

impl<'j, F: FnMut(Member<'j>)> Visitor<'j> for Members<'j, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'j>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            (self.0)(Member { raw_key: key.get(), value: value.get() });
        }
        Ok(())
    }
}

struct Elements<'j, F>(F, PhantomData<&'j str>);

impl<'j, F: FnMut(&'j str)> Visitor<'j> for Elements<'j, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'j>>(mut self, mut sequence: A) -> Result<(), A::Error> {
        while let Some(element) = sequence.next_element::<&RawValue>()? {
            (self.0)(element.get());
        }
        Ok(())
    }
}
