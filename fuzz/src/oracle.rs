//! The rules for names and paths, written a second time from their description.
//!
//! Nothing here calls the crate or shares its tables: code points are decoded by hand and looked up in lists, and devices
//! are spelled out, so that a slip in one of the two shows as a difference.

use std::sync::LazyLock;

pub use beneath_kit::model::refusal;

/// Code points that no name holds, as closed ranges.
const FORBIDDEN: &[(u32, u32)] = &[
    // C0, then the characters that Windows reserves, then DEL and C1.
    (0x00, 0x1f),
    (0x22, 0x22),
    (0x2a, 0x2a),
    (0x2f, 0x2f),
    (0x3a, 0x3a),
    (0x3c, 0x3c),
    (0x3e, 0x3f),
    (0x5c, 0x5c),
    (0x7c, 0x7c),
    (0x7f, 0x9f),
    // DerivedCoreProperties.txt, Default_Ignorable_Code_Point, without FE0F.
    (0x00ad, 0x00ad),
    (0x034f, 0x034f),
    (0x061c, 0x061c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180d),
    (0x180e, 0x180e),
    (0x180f, 0x180f),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x2064),
    (0x2065, 0x2065),
    (0x2066, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0e),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
    // UnicodeData.txt, Cf that is neither default-ignorable nor a Prepended_Concatenation_Mark.
    (0x13430, 0x1343f),
    // Characters that the code charts show as blank: braille, object, Egyptian, Khitan, notehead.
    (0x2800, 0x2800),
    (0xfffc, 0xfffc),
    (0x13441, 0x13442),
    (0x16fe4, 0x16fe4),
    (0x1d159, 0x1d159),
    // Line and paragraph separators, annotation marks, noncharacters of the Arabic block.
    (0x2028, 0x2029),
    (0xfff9, 0xfffb),
    (0xfdd0, 0xfdef),
];

/// PropList.txt, White_Space, without what is forbidden anyway.
const WHITE: &[u32] = &[
    0x20, 0xa0, 0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008, 0x2009,
    0x200a, 0x202f, 0x205f, 0x3000,
];

const DEVICES: &[&str] = &[
    "con",
    "prn",
    "aux",
    "nul",
    "conin$",
    "conout$",
    "com0",
    "com1",
    "com2",
    "com3",
    "com4",
    "com5",
    "com6",
    "com7",
    "com8",
    "com9",
    "com\u{b9}",
    "com\u{b2}",
    "com\u{b3}",
    "lpt0",
    "lpt1",
    "lpt2",
    "lpt3",
    "lpt4",
    "lpt5",
    "lpt6",
    "lpt7",
    "lpt8",
    "lpt9",
    "lpt\u{b9}",
    "lpt\u{b2}",
    "lpt\u{b3}",
];

/// What the lists above say of each code point, spread out once so that asking is one load.
static CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| {
    let mut classes = vec![Class::Plain; 0x11_0000];
    for point in WHITE {
        classes[*point as usize] = Class::White;
    }
    for (first, last) in FORBIDDEN {
        classes[*first as usize..=*last as usize].fill(Class::Forbidden);
    }
    for plane in 0..=0x10 {
        classes[plane << 16 | 0xfffe..=plane << 16 | 0xffff].fill(Class::Forbidden);
    }
    classes
});

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Plain,
    White,
    Forbidden,
}

/// Whether `raw` is a safe name.
pub fn name(raw: &[u8]) -> bool {
    component(raw) && raw[0] != b'.'
}

/// Whether `raw` is a safe component of a path.
pub fn component(raw: &[u8]) -> bool {
    // A component of dots alone ends with one.
    matches!(raw.len(), 1..256) && raw.last() != Some(&b'.') && shown(raw) && !device(raw)
}

/// Whether `raw` is a safe relative path.
pub fn path(raw: &[u8]) -> bool {
    raw.len() < 4096 && raw.split(|byte| *byte == b'/').all(component)
}

/// The path that a guest means by `raw` where `roots` are mount points, if it is a safe one.
pub fn guest(raw: &str, roots: &[&str]) -> Option<String> {
    let mut parts: Vec<&str> = raw.split('/').collect();
    if parts.len() > 1 && parts[0].is_empty() {
        parts.remove(0);
        let matching = |root: &&str| {
            let root: Vec<&str> = root.split('/').filter(|part| !part.is_empty()).collect();
            (parts.len() >= root.len() && parts[..root.len()] == root[..]).then_some(root.len())
        };
        let longest = roots.iter().filter_map(matching).max().unwrap_or(0);
        parts.drain(..longest);
    }
    let joined = parts.join("/");
    path(joined.as_bytes()).then_some(joined)
}

/// Whether `raw` ends as mapped ids do.
pub fn looks_mapped(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    bytes.len() >= 33
        && bytes[bytes.len() - 33] == b'~'
        && bytes[bytes.len() - 32..].iter().all(|byte| b"0123456789abcdefABCDEF".contains(byte))
}

/// Whether `raw` is UTF-8 in which nothing is forbidden and no white space is first or last.
fn shown(raw: &[u8]) -> bool {
    let classes = CLASSES.as_slice();
    let mut rest = raw;
    while !rest.is_empty() {
        let Some((point, tail)) = decode(rest) else { return false };
        match classes[point as usize] {
            Class::Plain => {}
            Class::White if rest.len() < raw.len() && !tail.is_empty() => {}
            Class::White | Class::Forbidden => return false,
        }
        rest = tail;
    }
    true
}

fn device(raw: &[u8]) -> bool {
    let end = raw.iter().position(|byte| *byte == b'.').unwrap_or(raw.len());
    let blanks = raw[..end].iter().rev().take_while(|byte| **byte == b' ').count();
    let stem = &raw[..end - blanks];
    matches!(stem.len(), 3..8) && DEVICES.iter().any(|device| device.as_bytes().eq_ignore_ascii_case(stem))
}

/// The first code point of `raw` and what follows it, or `None` if it is not UTF-8: overlong forms, surrogates and what
/// is past U+10FFFF included.
fn decode(raw: &[u8]) -> Option<(u32, &[u8])> {
    let (lead, tail) = raw.split_first()?;
    let (more, least, bits) = match lead {
        0x00..=0x7f => return Some((u32::from(*lead), tail)),
        0xc0..=0xdf => (1, 0x80, lead & 0x1f),
        0xe0..=0xef => (2, 0x800, lead & 0x0f),
        0xf0..=0xf7 => (3, 0x1_0000, lead & 0x07),
        _ => return None,
    };
    let (tail, rest) = tail.split_at_checked(more)?;
    let mut point = u32::from(bits);
    for byte in tail {
        if byte & 0xc0 != 0x80 {
            return None;
        }
        point = point << 6 | u32::from(byte & 0x3f);
    }
    let fine = point >= least && point <= 0x10_ffff && !(0xd800..0xe000).contains(&point);
    fine.then_some((point, rest))
}
