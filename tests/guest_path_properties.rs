//! Paths of a guest's tree for any input, against an oracle that was written from the rules alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use beneath::{ErrorKind, GuestPath, MountPoint, Result, Root, Spelling, ambient_authority};
use beneath_kit::rig::seed;
use beneath_kit::spelling as oracle;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngSeed, TestRunner};

fn bytes(raw: &[u8]) -> Result<GuestPath> {
    GuestPath::try_from(raw)
}

fn parse(raw: &[u8], paths: &[&str], spelling: Spelling) -> Result<GuestPath> {
    let mounts: Vec<MountPoint> = paths.iter().map(|path| MountPoint::new(path).unwrap()).collect();
    GuestPath::parse(OsStr::from_bytes(raw), &mounts, spelling)
}

/// Bytes of which the rules are made.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec!["/", "/", "..", ".", "//", "/../", "/./"]).prop_map(Vec::from),
        4 => prop::sample::select(vec!["a", "b", "session", "work", "etc", "tmp", "...", "..a", "~", "a\\b"])
            .prop_map(Vec::from),
        2 => prop::sample::select(vec![" ", "\n", "\u{a0}", "\u{3000}", "\u{200b}", "é"]).prop_map(Vec::from),
        1 => prop::sample::select(vec!["/session", "/session/", "/work/deep/", "/"]).prop_map(Vec::from),
        1 => prop::collection::vec(any::<u8>(), 1..4),
        1 => (1000usize..2000).prop_map(|length| b"y".repeat(length)),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn component() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no slash and no NUL", |byte| *byte != b'/' && *byte != 0);
    let odd = prop::sample::select(vec!["...", "..a", " a ", "~", "a\\b", "a\nb", "session", "etc", "*"])
        .prop_map(Vec::from);
    let any = prop::collection::vec(byte, 1..40);
    prop_oneof![any, odd].prop_filter("no dot entry", |name| name != b"." && name != b"..")
}

fn guest_path() -> impl Strategy<Value = GuestPath> {
    prop::collection::vec(component(), 0..6).prop_map(|components| match components.as_slice() {
        [] => GuestPath::top(),
        components => bytes(&components.join(&b'/')).unwrap(),
    })
}

fn mount_points() -> impl Strategy<Value = Vec<&'static str>> {
    let paths = vec!["/session", "/session/workspace", "/work/deep", "/work", "/a", "/a/b", "/", "/tmp/é"];
    prop::collection::vec(prop::sample::select(paths), 0..4)
}

/// The control: every absolute path is taken as one from the top, and a `..` at the top has no effect.
fn redirected(raw: &[u8]) -> Vec<u8> {
    let text = raw.strip_prefix(b"/session").unwrap_or(raw).trim_ascii();
    let mut kept: Vec<&[u8]> = Vec::new();
    for part in text.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(kept.pop()),
            name => kept.push(name),
        }
    }
    if kept.is_empty() { b".".to_vec() } else { kept.join(&b'/') }
}

#[test]
fn the_oracle_catches_a_reading_that_redirects_what_would_leave() {
    let mut runner = TestRunner::new(cases(1));
    let raws: Vec<Vec<u8>> = (0..1000).map(|_| hostile().new_tree(&mut runner).unwrap().current()).collect();
    let missed = raws.iter().filter(|raw| {
        oracle::lenient(raw, &["/session"]) == Err(ErrorKind::Escape) && oracle::is_plain(&redirected(raw))
    });
    let missed = missed.count();
    assert!(missed >= 100, "{missed}");
    let agreed = raws.iter().filter(|raw| oracle::lenient(raw, &["/session"]) == Ok(redirected(raw))).count();
    assert!(agreed >= 100, "{agreed}");
}

fn cases(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(seed::of_properties());
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn both_spellings_are_read_as_the_rules_say(raw in hostile(), paths in mount_points()) {
        let read = |spelling| {
            parse(&raw, &paths, spelling).map(|path| path.as_bytes().to_owned()).map_err(|error| error.kind())
        };
        prop_assert_eq!(read(Spelling::Lenient), oracle::lenient(&raw, &paths));
        prop_assert_eq!(read(Spelling::Strict), oracle::strict(&raw, &paths));
        prop_assert_eq!(bytes(&raw).is_ok(), oracle::is_plain(&raw));
    }

    #[test]
    fn what_is_read_has_the_one_form_and_stays_inside(raw in hostile(), paths in mount_points()) {
        for spelling in [Spelling::Lenient, Spelling::Strict] {
            match parse(&raw, &paths, spelling) {
                Ok(path) => {
                    prop_assert!(oracle::is_plain(path.as_bytes()), "{}", path);
                    prop_assert!(path.components().all(|name| name != ".." && name != "." && !name.is_empty()));
                }
                Err(error) => prop_assert!(!error.to_string().contains(char::is_control), "{}", error),
            }
        }
    }

    #[test]
    fn what_is_strict_means_the_same_in_the_lenient_spelling(raw in hostile(), paths in mount_points()) {
        // Blanks at the ends are part of a name only in the strict spelling.
        let blank = str::from_utf8(&raw).is_ok_and(|text| text.trim() != text);
        if let (Ok(path), false) = (parse(&raw, &paths, Spelling::Strict), blank) {
            prop_assert_eq!(parse(&raw, &paths, Spelling::Lenient).unwrap(), path);
        }
    }

    #[test]
    fn a_path_is_read_as_itself_alone_and_under_each_mount_point(path in guest_path(), mount in "/[a-z]{1,9}(/[a-z]{1,9}){0,2}") {
        let mounts = [MountPoint::new(&mount).unwrap()];
        let under = mounts[0].join(&path);
        prop_assert_eq!(&GuestPath::new(path.as_path()).unwrap(), &path);
        prop_assert_eq!(&bytes(path.as_bytes()).unwrap(), &path);
        for raw in [path.as_path(), &under] {
            prop_assert_eq!(&GuestPath::parse(raw, &mounts, Spelling::Strict).unwrap(), &path);
            // A slash at the end keeps a blank before it; `./` keeps one at the start.
            let mut kept = if raw.is_absolute() { OsString::new() } else { OsString::from("./") };
            kept.push(raw);
            kept.push("/");
            prop_assert_eq!(&GuestPath::parse(kept, &mounts, Spelling::Lenient).unwrap(), &path);
        }
    }

    #[test]
    fn a_plain_text_is_shown_as_it_is_and_read_back(raw in "[a-z0-9 ._-]{1,8}(/[a-zé0-9 ._-]{1,8}){0,4}") {
        if let Ok(path) = GuestPath::new(&raw) {
            let shown = path.to_string();
            prop_assert_eq!(GuestPath::parse(&shown, &[], Spelling::Strict).unwrap(), path);
        }
    }

    #[test]
    fn paths_take_apart_and_together(path in guest_path(), other in guest_path()) {
        let together = path.components().try_fold(GuestPath::top(), |above, name| above.join(name)).unwrap();
        prop_assert_eq!(&together, &path);
        prop_assert_eq!(path.depth(), path.components().count());
        let below = other.join(&path).unwrap();
        prop_assert!(below.starts_with(&other));
        prop_assert_eq!(below.strip_prefix(&other).unwrap(), path.clone());
        prop_assert_eq!(path.starts_with(&other), path.as_path().starts_with(other.as_path()) || other.is_top());
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => prop_assert_eq!(parent.join(name).unwrap(), path),
            (parent, name) => prop_assert!(path.is_top() && parent.is_none() && name.is_none()),
        }
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn whatever_a_guest_calls_its_files_is_read_by_the_name_that_is_listed(
        names in prop::collection::btree_set(component().prop_filter("fits", |name| name.len() < 250), 1..20),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
        for name in &names {
            let place = dir.path().join(OsStr::from_bytes(name));
            std::fs::create_dir(&place).unwrap();
            std::fs::write(place.join(OsString::from_vec(name.clone())), name).unwrap();
        }
        let mut found = BTreeSet::new();
        for entry in root.list(GuestPath::top()).unwrap() {
            let above = GuestPath::new(entry.unwrap().path()).unwrap();
            for entry in root.list(&above).unwrap() {
                let path = above.join(entry.unwrap().path()).unwrap();
                let content = root.read_contained(&path, 1000).unwrap();
                prop_assert_eq!(path.file_name().map(OsStr::as_bytes), Some(content.as_slice()));
                root.remove_file(&path).unwrap();
                found.insert(content);
            }
            root.remove_dir(&above).unwrap();
        }
        prop_assert_eq!(found, names);
    }
}
