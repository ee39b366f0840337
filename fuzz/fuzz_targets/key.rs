//! Keys against a reading of their rules by hand: a prefix and the exact way back, and the plan of a hostile listing.
//!
//! The input is lines: what says how much is allowed, a session, a user and a tenant, then one key each. A key that
//! starts with byte 1 is put under the prefix, one that starts with byte 2 and a number that many times four bytes further
//! down, and a key's last byte is its size.
#![no_main]

use beneath::artifacts::fuzzing::read_listing;
use beneath::artifacts::{ObjectLimits, Prefix};
use beneath::{ErrorKind, GuestPath, SafeName, SafePath, SessionId};
use std::os::unix::ffi::OsStrExt as _;

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

/// A prefix of three levels, built and spelled out.
fn prefix(session: &[u8], user: &[u8], tenant: &[u8]) -> (Prefix, String) {
    let [session, user, tenant] = [session, user, tenant].map(String::from_utf8_lossy);
    let prefix = Prefix::session(&SessionId::new(&session)).of_user(&user).of_tenant(&tenant);
    let [session, user, tenant] = [session, user, tenant].map(SessionId::new);
    (prefix, format!("tenants/{tenant}/users/{user}/sessions/{session}/"))
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

/// The path in `key`, if it has one and nothing in it is escaped.
fn meant<'a>(key: &'a [u8], prefix: &str) -> Option<&'a [u8]> {
    let (start, rest) = key.split_at_checked(prefix.len())?;
    (start == prefix.as_bytes() && key.len() < 1025 && oracle::path(rest)).then_some(rest)
}

/// Whether something in `key` may be escaped. Then only the way back is judged.
fn is_marked(key: &[u8]) -> bool {
    key.windows(2).any(|pair| pair == b"%=")
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
        (Ok(path), _) if is_marked(key) => {
            assert_eq!(prefix.key(&path).expect("a key that was read is short enough").as_bytes(), key);
        }
        (Err(error), _) if is_marked(key) => check_shown(&error),
        (Ok(path), Some(rest)) => {
            assert_eq!(path.as_bytes(), rest);
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
        let guest = GuestPath::from(&path);
        match prefix.key(&guest) {
            Ok(key) => assert!(
                (key == whole || is_marked(whole.as_bytes()))
                    && key.len() <= 1024
                    && prefix.path(key.as_bytes()).is_ok_and(|back| back == guest)
            ),
            Err(error) => assert!(key_is_long(&whole) && error.kind() == ErrorKind::TooLarge),
        }
        assert_eq!(prefix.join(&path).as_str(), format!("{whole}/"));
    }
    // Any bytes as a path have a key, and that says the path and nothing else.
    if let Ok(path) = GuestPath::try_from(key)
        && !path.is_top()
        && let Ok(key) = prefix.key(&path)
    {
        assert_eq!(prefix.path(key.as_bytes()).expect("a key that was made is read"), path);
    }
}

/// What is escaped has up to three times as many bytes, and a mark.
fn key_is_long(whole: &str) -> bool {
    whole.len() > if is_marked(whole.as_bytes()) { 300 } else { 1024 }
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
    // A key that ends in a slash says that there is a directory, which is no object of a file.
    let listing = listing.into_iter().filter(|(key, _)| !is_marked(key));
    let (markers, listing): (Vec<_>, Vec<_>) = listing.partition(|(key, _)| key.ends_with(b"/"));
    let mut refused: Vec<(Vec<u8>, ErrorKind)> = Vec::new();
    let mut good: Vec<(&str, u64)> = Vec::new();
    let (mut room, mut twice) = (limits.bytes, Vec::new());
    for (at, (key, size)) in (0_u64..).zip(&listing) {
        if at >= limits.objects {
            refused.push((spelled.as_bytes().to_vec(), ErrorKind::TooMany));
            break;
        }
        match judged(key, *size, spelled, &limits) {
            Ok(_) if *size > room => refused.push((key.clone(), ErrorKind::TooLarge)),
            Ok(path) => match good.iter().find(|(other, _)| *other == path) {
                Some((_, other)) if other == size => {}
                Some(_) => twice.push(path),
                None => {
                    room -= size;
                    good.push((path, *size));
                }
            },
            Err(kind) => refused.push((key[..key.len().min(1024)].to_vec(), kind)),
        }
    }
    good.sort_by_key(|(path, _)| *path);
    twice.sort_unstable();
    twice.dedup();
    let mut refuse = |path: &str, kind| refused.push((format!("{spelled}{path}").into_bytes(), kind));
    twice.iter().for_each(|path| refuse(path, ErrorKind::AlreadyExists));
    good.retain(|(path, _)| !twice.contains(path));
    let is_above = |path: &str| {
        let beneath = |other: &str| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        good.iter().any(|(other, _)| beneath(other))
    };
    let (above, kept): (Vec<_>, Vec<_>) = good.iter().copied().partition(|(path, _)| is_above(path));
    above.iter().for_each(|(path, _)| refuse(path, ErrorKind::NotRegular));

    let reserved = RESERVED.map(|name| SafeName::new(name).expect("reserved names are good ones"));
    let bounds = ObjectLimits::default()
        .with_objects(limits.objects)
        .with_bytes(limits.bytes)
        .with_file_bytes(limits.file_bytes)
        .with_depth(limits.depth);
    let (objects, left) = read_listing(markers.clone(), prefix, &bounds, &reserved);
    assert!(objects.is_empty(), "a directory is no file");
    let is_refused = |key: &[u8]| left.iter().any(|(other, _)| other.as_os_str().as_bytes() == key);
    let is_cut = left.iter().any(|(_, error)| error.kind() == ErrorKind::TooMany);
    for (key, _) in markers.iter().filter(|(_, size)| *size > 0) {
        assert!(is_cut || is_refused(&key[..key.len().min(1024)]), "a directory with content is refused");
    }
    let (objects, got) = read_listing(listing.clone(), prefix, &bounds, &reserved);
    let objects: Vec<_> =
        objects.iter().map(|(path, size)| (path.as_str().unwrap_or_default(), *size)).collect();
    let kinds: Vec<_> =
        got.iter().map(|(key, error)| (key.as_os_str().as_bytes().to_vec(), error.kind())).collect();
    assert_eq!((objects, kinds), (kept, refused));
    // The others were shown when their key was read.
    if let Some((_, error)) = got.last() {
        check_shown(error);
    }
}
