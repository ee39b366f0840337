//! The rules for names and paths, written a second time from their description.
//!
//! Nothing here calls the crate or shares its tables: code points are decoded by hand and looked up in lists, and devices
//! are spelled out, so that a slip in one of the two shows as a difference.

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

/// Whether `raw` is a safe name.
pub fn name(raw: &[u8]) -> bool {
    component(raw) && raw[0] != b'.'
}

/// Whether `raw` is a safe component of a path.
pub fn component(raw: &[u8]) -> bool {
    let Some(points) = decode(raw) else { return false };
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    raw.len() < 256
        && points.iter().any(|point| *point != u32::from(b'.'))
        && !points.iter().any(|point| forbidden(*point))
        && !WHITE.contains(first)
        && !WHITE.contains(last)
        && *last != u32::from(b'.')
        && !device(raw)
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

fn forbidden(point: u32) -> bool {
    point & 0xffff >= 0xfffe || FORBIDDEN.iter().any(|(first, last)| *first <= point && point <= *last)
}

fn device(raw: &[u8]) -> bool {
    let end = raw.iter().position(|byte| *byte == b'.').unwrap_or(raw.len());
    let mut stem = raw[..end].to_vec();
    while stem.last() == Some(&b' ') {
        stem.pop();
    }
    stem.make_ascii_lowercase();
    DEVICES.iter().any(|device| device.as_bytes() == stem)
}

/// The code points of `raw`, or `None` if it is not UTF-8: overlong forms, surrogates and what is past U+10FFFF
/// included.
fn decode(raw: &[u8]) -> Option<Vec<u32>> {
    let mut points = Vec::new();
    let mut rest = raw;
    while let [lead, tail @ ..] = rest {
        let (more, least, bits) = match lead {
            0x00..=0x7f => (0, 0, *lead),
            0xc0..=0xdf => (1, 0x80, lead & 0x1f),
            0xe0..=0xef => (2, 0x800, lead & 0x0f),
            0xf0..=0xf7 => (3, 0x1_0000, lead & 0x07),
            _ => return None,
        };
        if tail.len() < more {
            return None;
        }
        let mut point = u32::from(bits);
        for byte in &tail[..more] {
            if byte & 0xc0 != 0x80 {
                return None;
            }
            point = point << 6 | u32::from(byte & 0x3f);
        }
        if point < least || point > 0x10_ffff || (0xd800..0xe000).contains(&point) {
            return None;
        }
        points.push(point);
        rest = &tail[more..];
    }
    Some(points)
}
