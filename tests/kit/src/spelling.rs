//! The rules for paths of a guest, written a second time from their description.
//!
//! Nothing here calls the crate. A text is judged in two passes: from the left, by the depth after each component, whether it
//! leaves; from the right, counting what each `..` takes back, what it means.

use beneath::ErrorKind::{self, Escape, InvalidPath};

/// PropList.txt, White_Space.
const WHITE: [char; 25] = [
    '\t', '\n', '\u{b}', '\u{c}', '\r', ' ', '\u{85}', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}',
    '\u{2002}', '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}', '\u{2008}', '\u{2009}',
    '\u{200a}', '\u{2028}', '\u{2029}', '\u{202f}', '\u{205f}', '\u{3000}',
];

const SYSTEM: &str = " bin boot dev etc home lib lib32 lib64 libx32 lost+found media mnt opt proc root run sbin snap srv \
                      sys tmp usr var ";

/// Whether `raw` is the one form of a path of a guest.
pub fn is_plain(raw: &[u8]) -> bool {
    let plain = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    raw == b"." || raw.len() < 4096 && !raw.contains(&0) && parts(raw).into_iter().all(plain)
}

/// What an agent means by `raw`, in its one form, where the shared directory is at each of `mounts`, which are normalised.
pub fn lenient(raw: &[u8], mounts: &[&str]) -> Result<Vec<u8>, ErrorKind> {
    let text = without_blanks(raw);
    let path = match under(text, mounts)? {
        Some(path) => path,
        None => match meant(text).as_slice() {
            [] if !has_climb(text) => Vec::new(),
            [name] if !has_climb(text) && !is_known(name, mounts) => vec![*name],
            _ => return Err(Escape),
        },
    };
    spelled(text, &path)
}

/// The same, where only the strict spelling is read.
pub fn strict(raw: &[u8], mounts: &[&str]) -> Result<Vec<u8>, ErrorKind> {
    let path = spelled(raw, &under(raw, mounts)?.ok_or(Escape)?)?;
    let mut rest = vec![raw];
    for mount in mounts {
        if raw == mount.as_bytes() {
            return Ok(path);
        }
        let start = format!("{}/", mount.trim_end_matches('/'));
        rest.extend(raw.strip_prefix(start.as_bytes()).filter(|rest| *rest != b"."));
    }
    if rest.into_iter().any(is_plain) { Ok(path) } else { Err(InvalidPath) }
}

/// The components that `text` means from the top, unless it is absolute and under no mount point.
fn under<'a>(text: &'a [u8], mounts: &[&str]) -> Result<Option<Vec<&'a [u8]>>, ErrorKind> {
    let mut depth = 0i64;
    for part in parts(text) {
        depth += match part {
            b"" | b"." => 0,
            b".." => -1,
            _ => 1,
        };
        if depth < 0 {
            return Err(Escape);
        }
    }
    let meant = meant(text);
    if text.first() != Some(&b'/') {
        return Ok(Some(meant));
    }
    let matching = mounts.iter().filter_map(|mount| {
        let mount: Vec<&[u8]> = parts(mount.as_bytes()).into_iter().filter(|part| !part.is_empty()).collect();
        meant.starts_with(&mount).then_some(mount.len())
    });
    Ok(matching.max().map(|longest| meant[longest..].to_vec()))
}

/// The components that are left of `text` once each `..` has taken back one before it.
fn meant(text: &[u8]) -> Vec<&[u8]> {
    let mut taken_back = 0;
    let mut left = Vec::new();
    for part in parts(text).into_iter().rev() {
        match part {
            b"" | b"." => {}
            b".." => taken_back += 1,
            _ if taken_back > 0 => taken_back -= 1,
            name => left.insert(0, name),
        }
    }
    left
}

fn spelled(text: &[u8], path: &[&[u8]]) -> Result<Vec<u8>, ErrorKind> {
    let joined = if path.is_empty() { b".".to_vec() } else { path.join(&b'/') };
    if text.contains(&0) || joined.len() > 4095 { Err(InvalidPath) } else { Ok(joined) }
}

fn is_known(name: &[u8], mounts: &[&str]) -> bool {
    let is_system = || str::from_utf8(name).is_ok_and(|name| SYSTEM.contains(&format!(" {name} ")));
    mounts.iter().any(|mount| parts(mount.as_bytes()).get(1) == Some(&name)) || is_system()
}

fn has_climb(text: &[u8]) -> bool {
    parts(text).contains(&b"..".as_slice())
}

fn without_blanks(raw: &[u8]) -> &[u8] {
    let Ok(text) = str::from_utf8(raw) else { return raw };
    let inner: Vec<(usize, char)> =
        text.char_indices().filter(|(_, letter)| !WHITE.contains(letter)).collect();
    match (inner.first(), inner.last()) {
        (Some((first, _)), Some((last, letter))) => &raw[*first..*last + letter.len_utf8()],
        _ => raw,
    }
}

fn parts(text: &[u8]) -> Vec<&[u8]> {
    text.split(|byte| *byte == b'/').collect()
}
