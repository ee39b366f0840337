//! Keys against a reading of their rules by hand: a prefix and the exact way back, and the plan of a hostile listing.
//!
//! The input is lines: what says how much is allowed, a session, a user and a tenant, then one key each. A key that
//! starts with byte 1 is put under the prefix, one that starts with byte 2 and a number that many times four bytes further
//! down, and a key's last byte is its size.
#![no_main]

use beneath::artifacts::fuzzing::plan;
use beneath::artifacts::{ObjectLimits, Prefix};
use beneath::{ErrorKind, SafeName, SafePath, SessionId};
use beneath_fuzz::{check_shown, long_path, oracle};
use libfuzzer_sys::fuzz_target;

const KEYS: usize = 16;
const RESERVED: [&str; 3] = ["skills", "Straße", "\u{212a}"];

fuzz_target!(|input: &[u8]| {
    let mut lines = input.split(|byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (limits, session, user, tenant) = (line(), line(), line(), line());
    let (prefix, spelled) = prefix(session, user, tenant);
    assert_eq!(prefix.as_str(), spelled);

    let listing: Vec<(Vec<u8>, u64)> = lines.take(KEYS).map(|line| object(line, &spelled)).collect();
    for (key, _) in &listing {
        read(&prefix, &spelled, key);
    }
    planned(&prefix, &spelled, Limits::new(limits), listing);
});

/// A prefix of as many levels as there are good names for, built and spelled out.
fn prefix(session: &[u8], user: &[u8], tenant: &[u8]) -> (Prefix, String) {
    let id = SessionId::new(String::from_utf8_lossy(session));
    let (mut prefix, mut spelled) = (Prefix::session(&id), format!("sessions/{id}/"));
    if let Ok(user) = SafeName::new(user) {
        prefix = prefix.of_user(&user);
        spelled.insert_str(0, &format!("users/{user}/"));
    }
    if let Ok(tenant) = SafeName::new(tenant) {
        prefix = prefix.of_tenant(&tenant);
        spelled.insert_str(0, &format!("tenants/{tenant}/"));
    }
    (prefix, spelled)
}

fn object(line: &[u8], prefix: &str) -> (Vec<u8>, u64) {
    let key = match line {
        [1, rest @ ..] => [prefix.as_bytes(), rest].concat(),
        [2, fours, rest @ ..] => [prefix.as_bytes(), &long_path(6)[..usize::from(*fours) * 4], rest].concat(),
        _ => line.to_vec(),
    };
    match line.last() {
        Some(b'~') => (key, u64::MAX),
        last => (key, last.copied().unwrap_or_default().into()),
    }
}

/// The path in `key`, if it has one.
fn meant<'a>(key: &'a [u8], prefix: &str) -> Option<&'a [u8]> {
    let (start, rest) = key.split_at_checked(prefix.len())?;
    (start == prefix.as_bytes() && key.len() < 1025 && oracle::path(rest)).then_some(rest)
}

/// How a key that has none is refused: what follows the prefix may try to leave.
fn refusal(key: &[u8], prefix: &str) -> ErrorKind {
    match key.strip_prefix(prefix.as_bytes()) {
        Some(rest) if key.len() < 1025 && str::from_utf8(rest).is_ok() && !rest.ends_with(b"/") => {
            oracle::refusal(rest)
        }
        _ => ErrorKind::InvalidPath,
    }
}

fn read(prefix: &Prefix, spelled: &str, key: &[u8]) {
    match (prefix.path(key), meant(key, spelled)) {
        (Ok(path), Some(rest)) => {
            assert_eq!(path.as_str().as_bytes(), rest);
            assert_eq!(prefix.key(&path).expect("a key that was read is short enough").as_bytes(), key);
        }
        (Err(error), None) => {
            assert_eq!(error.kind(), refusal(key, spelled));
            check_shown(&error);
        }
        (read, meant) => panic!("{key:?} under {spelled:?} is {read:?}, meant {meant:?}"),
    }
    // The same text as a path: its key, if that is short enough, says the path and nothing else.
    if let Ok(path) = str::from_utf8(key).map_err(drop).and_then(|raw| SafePath::new(raw).map_err(drop)) {
        let whole = format!("{spelled}{path}");
        match prefix.key(&path) {
            Ok(key) => assert!(
                key == whole
                    && key.len() <= 1024
                    && prefix.path(key.as_bytes()).is_ok_and(|back| back == path)
            ),
            Err(error) => assert!(whole.len() > 1024 && error.kind() == ErrorKind::TooLarge),
        }
        assert_eq!(prefix.join(&path).as_str(), format!("{whole}/"));
    }
}

struct Limits {
    objects: u64,
    bytes: u64,
    file_bytes: u64,
    depth: usize,
}

impl Limits {
    /// Each is tight if its bit is set.
    fn new(line: &[u8]) -> Self {
        let bits = line.first().copied().unwrap_or_default();
        let tight = |bit: u8| bits >> bit & 1 == 1;
        Self {
            objects: if tight(0) { 4 } else { 1000 },
            bytes: if tight(1) { 300 } else { u64::MAX - 1 },
            file_bytes: if tight(2) { 110 } else { u64::MAX },
            depth: if tight(3) { 3 } else { 1000 },
        }
    }
}

/// The one name for all that differ in case alone, letter by letter.
fn fold(name: &str) -> String {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Why the plan refuses a key, or the path it keeps.
fn judged<'a>(key: &'a [u8], size: u64, prefix: &str, limits: &Limits) -> Result<&'a str, ErrorKind> {
    let path = meant(key, prefix).and_then(|path| str::from_utf8(path).ok()).ok_or(refusal(key, prefix))?;
    let components: Vec<&str> = path.split('/').collect();
    if ["skills", "strasse", "k"].contains(&fold(components[0]).as_str()) {
        return Err(ErrorKind::InvalidPath);
    }
    if components.len() > limits.depth {
        return Err(ErrorKind::TooMany);
    }
    if size > limits.file_bytes { Err(ErrorKind::TooLarge) } else { Ok(path) }
}

fn planned(prefix: &Prefix, spelled: &str, limits: Limits, listing: Vec<(Vec<u8>, u64)>) {
    let mut refused: Vec<(Vec<u8>, ErrorKind)> = Vec::new();
    let mut good: Vec<(&str, u64)> = Vec::new();
    for (key, size) in &listing {
        match judged(key, *size, spelled, &limits) {
            Ok(path) => good.push((path, *size)),
            Err(kind) => refused.push((key[..key.len().min(1024)].to_vec(), kind)),
        }
    }
    good.sort_by_key(|(path, _)| *path);
    let mut kept: Vec<(&str, u64)> = Vec::new();
    for (path, size) in &good {
        let is_above = |other: &str| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        let mut refuse = |kind| refused.push((format!("{spelled}{path}").into_bytes(), kind));
        if good.iter().filter(|(other, _)| other == path).count() > 1 {
            refuse(ErrorKind::AlreadyExists);
        } else if good.iter().any(|(other, _)| is_above(other)) {
            refuse(ErrorKind::NotRegular);
        } else {
            kept.push((path, *size));
        }
    }
    let bytes: u128 = kept.iter().map(|(_, size)| u128::from(*size)).sum();
    let expected = if listing.len() as u64 > limits.objects {
        Err(ErrorKind::TooMany)
    } else if bytes > u128::from(limits.bytes) {
        Err(ErrorKind::TooLarge)
    } else {
        Ok((kept, refused))
    };

    let reserved = RESERVED.map(|name| SafeName::new(name).expect("reserved names are good ones"));
    let bounds = ObjectLimits::default()
        .with_objects(limits.objects)
        .with_bytes(limits.bytes)
        .with_file_bytes(limits.file_bytes)
        .with_depth(limits.depth);
    let got = plan(listing.clone(), prefix, &bounds, &reserved);
    let kinds = match &got {
        Ok((objects, refused)) => Ok((
            objects.iter().map(|(path, size)| (path.as_str(), *size)).collect::<Vec<_>>(),
            refused.iter().map(|(raw, error)| (raw.clone(), error.kind())).collect::<Vec<_>>(),
        )),
        Err(error) => Err(error.kind()),
    };
    assert_eq!(kinds, expected);
    // The others were shown when their key was read.
    if let Some((_, error)) = got.iter().find_map(|(_, refused)| refused.last()) {
        check_shown(error);
    }
}
