//! Untrusted text in messages.

use std::fmt::{self, Write as _};

/// Longest run of untrusted text that an error message repeats.
const SHOWN: usize = 160;

/// Renders untrusted bytes as one quoted, printable line of bounded length.
pub(crate) fn escaped(raw: &[u8]) -> Escaped<'_> {
    Escaped(raw)
}

pub(crate) struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let room = write_escaped(f, self.0, SHOWN)?;
        f.write_str(if room == 0 { "\"…" } else { "\"" })
    }
}

/// Renders all of `raw` as printable text that could be put between quotes.
pub(crate) fn escaped_whole(raw: &[u8]) -> String {
    let mut text = String::new();
    // A string takes all that is written to it.
    let _ = write_escaped(&mut text, raw, usize::MAX);
    text
}

/// Writes the first `room` characters of `raw`, and returns how many more there was room for.
fn write_escaped(f: &mut impl fmt::Write, raw: &[u8], mut room: usize) -> Result<usize, fmt::Error> {
    for chunk in raw.utf8_chunks() {
        for character in chunk.valid().chars().take(room) {
            room -= 1;
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                ' '..='~' => f.write_char(character)?,
                // Fillers and blanks are letters that show nothing.
                '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{13441}' | '\u{13442}' => {
                    write!(f, "{}", character.escape_unicode())?
                }
                letter if letter.is_alphanumeric() => f.write_char(letter)?,
                hidden => write!(f, "{}", hidden.escape_unicode())?,
            }
        }
        for byte in chunk.invalid().iter().take(room) {
            room -= 1;
            write!(f, "\\x{byte:02x}")?;
        }
    }
    Ok(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_escapes_what_could_deceive_a_reader() {
        let cases: [(&[u8], &str); 6] = [
            (b"a\nb", r#""a\u{a}b""#),
            (b"say \"hi\"", r#""say \"hi\"""#),
            (b"\xff\xfe", r#""\xff\xfe""#),
            ("photo\u{202e}gnp".as_bytes(), r#""photo\u{202e}gnp""#),
            ("\u{3164}".as_bytes(), r#""\u{3164}""#),
            ("報告é".as_bytes(), r#""報告é""#),
        ];
        for (raw, shown) in cases {
            assert_eq!(escaped(raw).to_string(), shown, "{raw:?}");
        }
    }

    #[test]
    fn display_is_bounded_whatever_the_subject() {
        assert!(escaped(&[b'x'; 100_000]).to_string().len() < SHOWN + 8);
        for raw in [vec![0xff; 100_000], b"x\xff".repeat(50_000), b"\xffxx".repeat(50_000)] {
            let shown = escaped(&raw).to_string();
            assert!(shown.len() < SHOWN * 4 + 8, "{shown}");
            assert!(shown.ends_with("\"…"), "what was cut off is said: {shown}");
        }
    }
}
