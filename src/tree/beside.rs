//! Names for the second version of a file.
//!
//! Problem: a random name makes another copy at each run, a suffix changes the type of the file, and a long name has no room.
//!
//! Defence: the name has eight digits of the content's hash, before the extension, and is cut at a character.
//!
//! What remains: a guest can take the name. Then a number follows, and at last one that it cannot guess.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::error::Result;
use crate::name::GuestPath;

const NAME_MAX: usize = 255;
/// How many names are tried that a guest can know beforehand.
pub(crate) const TRIES: u32 = 4;

/// Whose version gets the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Theirs,
}

impl Whose {
    fn word(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Theirs => "theirs",
        }
    }
}

/// The `number`th name, from 0, beside `path` for the content with `tag`: `name.theirs-8hex.ext`.
pub(crate) fn beside(path: &GuestPath, whose: Whose, tag: &str, number: u32) -> Result<GuestPath> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let extension = path.extension().unwrap_or_default().as_bytes();
    let mark = match number {
        0 => format!(".{}-{tag}", whose.word()),
        _ => format!(".{}-{tag}-{number}", whose.word()),
    };
    // An extension that leaves no room for a name is none.
    let dotted = if extension.is_empty() { 0 } else { extension.len() + 1 };
    let dotted = if dotted + mark.len() + 4 > NAME_MAX { 0 } else { dotted };
    let (stem, extension) = name.split_at_checked(name.len().saturating_sub(dotted)).unwrap_or((name, &[]));
    let stem = cut(stem, NAME_MAX.saturating_sub(mark.len() + extension.len()));
    let name = [stem, mark.as_bytes(), extension].concat();
    path.parent().unwrap_or_default().join(OsStr::from_bytes(&name))
}

/// At most `room` bytes, and no half of a character.
fn cut(name: &[u8], room: usize) -> &[u8] {
    let mut end = name.len().min(room);
    while end > 0 && end < name.len() && name.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    name.get(..end).unwrap_or(name)
}

/// Whose version has the name `second` beside `path`, as [`beside`] or a directory beside one above it has made it.
#[cfg(feature = "artifacts")]
pub(crate) fn whose(path: &GuestPath, second: &GuestPath) -> Option<Whose> {
    let differs = path.components().zip(second.components()).find(|(one, other)| one != other);
    // At the top if there was no room beside it.
    let names = path.file_name().zip(second.file_name());
    let marked = |(name, second): (&OsStr, &OsStr)| {
        let (name, second) = (name.as_bytes(), second.as_bytes());
        let shared = name.iter().zip(second).take_while(|(one, other)| one == other).count();
        // The last one that follows nothing but the name: that may have such a mark itself, and so may its extension.
        let marks = |whose: Whose| format!(".{}-", whose.word());
        let is_at = |end: &usize, whose| {
            second.get(*end..).is_some_and(|rest| rest.starts_with(marks(whose).as_bytes()))
        };
        (0..=shared)
            .rev()
            .find_map(|end| [Whose::Ours, Whose::Theirs].into_iter().find(|whose| is_at(&end, *whose)))
    };
    differs.and_then(marked).or_else(|| names.and_then(marked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_version_keeps_directory_and_extension() {
        for (path, expected) in [
            ("a/b.txt", "a/b.theirs-0011aabb.txt"),
            ("README", "README.theirs-0011aabb"),
            (".env", ".env.theirs-0011aabb"),
            ("a.tar.gz", "a.tar.theirs-0011aabb.gz"),
            ("x.", "x..theirs-0011aabb"),
        ] {
            let path = GuestPath::new(path).unwrap();
            assert_eq!(
                beside(&path, Whose::Theirs, "0011aabb", 0).unwrap(),
                GuestPath::new(expected).unwrap()
            );
        }
    }

    #[test]
    #[cfg(feature = "artifacts")]
    fn name_says_whose_version_it_is() {
        let names = [
            "a/b.txt",
            "README",
            ".env",
            "x.",
            "x.ours-11111111",
            "x.theirs-11111111.txt",
            "x.ours-11111111.theirs-22222222.ours-33333333",
            &format!("a.ours-{}", "x".repeat(240)),
            &"\u{e9}".repeat(127),
        ];
        for (name, (made_for, expected)) in names
            .into_iter()
            .flat_map(|name| [Whose::Ours, Whose::Theirs].map(|whose| (name, (whose, Some(whose)))))
        {
            let path = GuestPath::new(name).unwrap();
            for number in [0, 2] {
                let second = beside(&path, made_for, "0011aabb", number).unwrap();
                assert_eq!(whose(&path, &second), expected, "{second}");
                let top = GuestPath::new(second.file_name().unwrap()).unwrap();
                assert_eq!(whose(&path, &top), expected, "{top}");
                let (below, second) = (path.join("c/d").unwrap(), second.join("c/d").unwrap());
                assert_eq!(whose(&below, &second), expected, "{second}");
            }
        }
        assert_eq!(whose(&GuestPath::new("a").unwrap(), &GuestPath::new("b").unwrap()), None);
    }

    #[test]
    fn name_of_a_second_version_always_fits() {
        for name in ["é".repeat(127), "x".repeat(255), format!("a.{}", "e".repeat(253)), "𝒳".repeat(63)] {
            let path = GuestPath::new(&name).unwrap();
            for number in [0, 3] {
                let made = beside(&path, Whose::Ours, "0011aabb", number).unwrap();
                let made = made.as_str().expect("no half of a character");
                assert!(made.len() <= NAME_MAX && made.contains(".ours-0011aabb"), "{made}");
            }
        }
    }
}
