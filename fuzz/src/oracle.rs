//! The rules for names and paths, written a second time from their description.
//!
//! Nothing here calls the crate or shares its tables: code points are decoded by hand and looked up in lists, and devices
//! are spelled out, so that a slip in one of the two shows as a difference.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

pub use beneath_kit::model::refusal;
pub use beneath_kit::spelling;

/// Code points that no name holds, and closed ranges of them, in hexadecimal.
const FORBIDDEN: [&str; 5] = [
    // C0, then the characters that Windows reserves, then DEL and C1.
    "00-1f 22 2a 2f 3a 3c 3e-3f 5c 7c 7f-9f",
    // DerivedCoreProperties.txt, Default_Ignorable_Code_Point, without FE0F.
    "00ad 034f 061c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0e feff ffa0 fff0-fff8 \
     1bca0-1bca3 1d173-1d17a e0000-e0fff",
    // UnicodeData.txt, Cf that is neither default-ignorable nor a Prepended_Concatenation_Mark.
    "13430-1343f",
    // Characters that the code charts show as blank: braille, object, Egyptian, Khitan, notehead.
    "2800 fffc 13441-13442 16fe4 1d159",
    // Line and paragraph separators, annotation marks, noncharacters of the Arabic block.
    "2028-2029 fff9-fffb fdd0-fdef",
];

/// PropList.txt, White_Space, without what is forbidden anyway.
const WHITE: &str = "20 a0 1680 2000-200a 202f 205f 3000";

const DEVICES: &str = "con prn aux nul conin$ conout$ \
    com0 com1 com2 com3 com4 com5 com6 com7 com8 com9 com\u{b9} com\u{b2} com\u{b3} \
    lpt0 lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9 lpt\u{b9} lpt\u{b2} lpt\u{b3}";

/// What the lists above say of each code point, spread out once so that asking is one load.
static CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| {
    let mut classes = vec![Class::Plain; 0x11_0000];
    points(WHITE).for_each(|points| classes[points].fill(Class::White));
    FORBIDDEN.into_iter().flat_map(points).for_each(|points| classes[points].fill(Class::Forbidden));
    for plane in 0..=0x10 {
        classes[plane << 16 | 0xfffe..=plane << 16 | 0xffff].fill(Class::Forbidden);
    }
    classes
});

fn points(list: &str) -> impl Iterator<Item = RangeInclusive<usize>> {
    let number = |text| usize::from_str_radix(text, 16).expect("a code point in hexadecimal");
    list.split_whitespace().map(move |points| {
        let (first, last) = points.split_once('-').unwrap_or((points, points));
        number(first)..=number(last)
    })
}

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
    matches!(stem.len(), 3..8)
        && DEVICES.split(' ').any(|device| device.as_bytes().eq_ignore_ascii_case(stem))
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
