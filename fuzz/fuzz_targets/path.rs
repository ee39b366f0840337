//! `SafePath` against the oracle, and the promises of ids.
//!
//! The input is texts with 0xFF between them, a byte that UTF-8 never holds: the path, which is an id as well, then other
//! ids. Another such byte, 0xFE, means a thousand bytes of long components, so that short inputs reach the longest path.
#![no_main]

use beneath::{MessageId, SafePath, SessionId};
use beneath_fuzz::{agreed, oracle, stretched};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let input = stretched(input);
    let Ok(texts) = input.split(|byte| *byte == 0xff).map(str::from_utf8).collect::<Result<Vec<_>, _>>()
    else {
        return;
    };
    let [raw, others @ ..] = texts.as_slice() else { return };
    path(raw);
    let first = id(raw);
    for other in others {
        let second = MessageId::new(other);
        assert_eq!(first == second, raw == other, "{raw:?} and {other:?}");
    }
});

fn path(raw: &str) {
    let bytes = raw.as_bytes();
    let Some(path) = agreed(SafePath::new(raw), oracle::path(bytes), oracle::refusal(bytes)) else { return };
    assert_eq!(path.as_str(), raw);
    assert_eq!(path.components().collect::<Vec<_>>().join("/"), raw);
    if let Some(parent) = path.parent() {
        assert!(path.starts_with(&parent) && !parent.starts_with(&path));
        let last = path.strip_prefix(&parent).expect("a path lies under its parent");
        assert_eq!(parent.join(&last).expect("a path is no longer than itself"), path);
    }
}

fn id(raw: &str) -> MessageId {
    let id = MessageId::new(raw);
    let is_name = oracle::name(raw.as_bytes());
    assert_eq!(id.is_verbatim(), is_name && !oracle::looks_mapped(raw), "{raw:?}");
    assert_eq!(id.is_verbatim(), id.as_str() == raw);
    assert!(id.is_verbatim() || oracle::name(id.as_str().as_bytes()), "{id:?}");
    assert_eq!(oracle::looks_mapped(id.as_str()), !id.is_verbatim());
    assert_eq!(MessageId::from_component(id.as_str()).expect("an id's name reads back"), id);
    assert_eq!(SessionId::new(raw).as_str(), id.as_str());
    // The name of an id is another id, unless it is the id itself.
    assert_eq!(MessageId::new(id.as_str()) == id, id.as_str() == raw);
    if let Ok(read) = MessageId::from_component(raw) {
        assert_eq!(read.as_str(), raw);
        assert!(is_name);
    }
    id
}
