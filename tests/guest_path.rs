//! Paths of a guest's tree: every name that Linux allows, and every way in which an agent writes them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use beneath::{ErrorKind, GuestPath, MountPoint, Result, SafePath, Spelling, safe_name};

/// Names that a real tree has and that no strict rule would allow.
const ODD: [&[u8]; 17] = [
    b"Q3: plan?.md",
    b"aux.rs",
    b"...",
    b"..a",
    b"2026-11-16T08:00:00.log",
    b"a\nb",
    b" a ",
    b"-rf",
    b"~",
    b"a\\b",
    b"\"quoted\"",
    b"\xff\xfe",
    b"caf\xe9",
    b".env.",
    b"*",
    "\u{202e}gnp.exe".as_bytes(),
    "\u{feff}".as_bytes(),
];

fn path(raw: &str) -> GuestPath {
    GuestPath::new(raw).unwrap()
}

fn bytes(raw: &[u8]) -> Result<GuestPath> {
    GuestPath::try_from(raw)
}

fn mounts(paths: &[&str]) -> Vec<MountPoint> {
    paths.iter().map(|path| MountPoint::new(path).unwrap()).collect()
}

fn parse(raw: &[u8], paths: &[&str], spelling: Spelling) -> Result<GuestPath> {
    GuestPath::parse(OsStr::from_bytes(raw), &mounts(paths), spelling)
}

/// What the lenient spelling reads where the shared directory is at `/session`.
fn lenient(raw: &str) -> Result<String> {
    parse(raw.as_bytes(), &["/session"], Spelling::Lenient).map(|path| path.as_str().unwrap().to_owned())
}

#[test]
fn every_name_that_linux_allows_is_a_path_byte_for_byte() {
    for name in ODD {
        let alone = bytes(name).unwrap();
        assert_eq!(alone.as_bytes(), name);
        assert_eq!(alone.file_name(), Some(OsStr::from_bytes(name)));
        let deep = path("a").join(&alone).unwrap().join("b").unwrap();
        assert_eq!(deep.as_bytes(), [b"a/", name, b"/b"].concat());
        assert_eq!(GuestPath::new(deep.as_path()).unwrap(), deep);
    }
    assert!(GuestPath::new("x".repeat(300)).is_ok(), "how long a name may be is the kernel's to say");
    assert!(GuestPath::new(["x"; 2048].join("/")).is_ok());
}

#[test]
fn a_text_that_is_not_the_one_form_of_a_path_is_refused_and_the_rule_named() {
    let cases = [
        ("", ErrorKind::InvalidPath, "names no entry at byte 0"),
        ("a//b", ErrorKind::InvalidPath, "has an empty component at byte 2"),
        ("a/", ErrorKind::InvalidPath, "has an empty component at byte 2"),
        ("./a", ErrorKind::InvalidPath, r#"is the dot entry "." at byte 0"#),
        ("a/.", ErrorKind::InvalidPath, r#"is the dot entry "." at byte 2"#),
        ("a/b\0", ErrorKind::InvalidPath, "holds a NUL at byte 3"),
        ("..", ErrorKind::Escape, r#"is the dot entry ".." at byte 0"#),
        ("a/..", ErrorKind::Escape, r#"is the dot entry ".." at byte 2"#),
        ("/", ErrorKind::Escape, "is absolute at byte 0"),
        ("/a", ErrorKind::Escape, "is absolute at byte 0"),
    ];
    for (raw, kind, why) in cases {
        let error = GuestPath::new(raw).unwrap_err();
        assert_eq!(error.kind(), kind, "{raw:?}");
        assert!(error.to_string().ends_with(why), "{error}");
        assert_eq!(error.operation(), "check path");
    }
    let error = GuestPath::new("x".repeat(4096)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidPath);
}

#[test]
fn the_top_is_a_path_with_no_component() {
    let top = GuestPath::top();
    assert_eq!((top.as_path(), top.as_bytes(), top.to_string()), (Path::new("."), &b"."[..], ".".to_owned()));
    assert_eq!((top.depth(), top.file_name(), top.parent(), top.extension()), (0, None, None, None));
    assert_eq!(GuestPath::new(".").unwrap(), top);
    assert_eq!(GuestPath::default(), top);
    assert_eq!(PathBuf::from(top.clone()), Path::new("."));
    assert_eq!(path("a").parent(), Some(top.clone()));
    assert!(path("a").starts_with(&top) && top.starts_with(&top) && !top.starts_with(&path("a")));
    assert!(top < path("!") && top < path("-"), "the top comes before what it contains");
}

#[test]
fn a_path_takes_apart_and_together() {
    let long = path("a/b c/d.tar.gz");
    assert_eq!(long.components().collect::<Vec<_>>(), ["a", "b c", "d.tar.gz"]);
    assert_eq!(long.components().rev().collect::<Vec<_>>(), ["d.tar.gz", "b c", "a"]);
    assert_eq!((long.depth(), long.extension()), (3, Some(OsStr::new("gz"))));
    assert_eq!(long.parent(), Some(path("a/b c")));
    assert_eq!(long.strip_prefix(&path("a")), Some(path("b c/d.tar.gz")));
    assert_eq!(long.strip_prefix(&path("a/b")), None);
    assert_eq!(path("a.d/b").extension(), None);
    assert_eq!(path("a").join("b/c").unwrap(), path("a/b/c"));
    assert_eq!(path("a").join("../b").unwrap_err().kind(), ErrorKind::Escape);
    let most = path(&"x".repeat(4094));
    assert_eq!(most.join("y").unwrap_err().kind(), ErrorKind::InvalidPath);
    let mut sorted = [path("a/b"), path("a"), path("a-b"), GuestPath::top()];
    sorted.sort();
    assert_eq!(sorted.each_ref().map(GuestPath::as_bytes), [&b"."[..], b"a", b"a-b", b"a/b"]);
    assert_eq!(HashMap::from([(path("a"), 1)]).get(&path("a")), Some(&1));
}

#[test]
fn paths_come_from_and_go_to_the_usual_types() {
    assert_eq!(GuestPath::from(SafePath::new("a/b").unwrap()), path("a/b"));
    assert_eq!(GuestPath::from(&SafePath::new("a/b").unwrap()), path("a/b"));
    assert_eq!(GuestPath::from(safe_name("a").unwrap()), path("a"));
    assert_eq!(GuestPath::from(&safe_name("a").unwrap()), path("a"));
    assert_eq!("a/b".parse::<GuestPath>().unwrap(), path("a/b"));
    assert_eq!(GuestPath::try_from("a/b").unwrap(), path("a/b"));
    assert_eq!(GuestPath::try_from(OsStr::new("a/b")).unwrap(), path("a/b"));
    assert_eq!(GuestPath::try_from(Path::new("a/b")).unwrap(), path("a/b"));
    assert_eq!(GuestPath::try_from(PathBuf::from("a/b")).unwrap(), path("a/b"));
    assert_eq!(PathBuf::from(path("a/b")), Path::new("a/b"));
    assert_eq!(AsRef::<OsStr>::as_ref(&path("a")), "a");
    assert_eq!((path("é").as_str(), bytes(b"\xff").unwrap().as_str()), (Some("é"), None));
}

#[test]
fn what_is_shown_of_a_path_deceives_nobody() {
    let cases: [(&[u8], &str); 5] = [
        (b"src/main.rs", "src/main.rs"),
        (b"a\nb", r"a\u{a}b"),
        (b"caf\xe9", r"caf\xe9"),
        ("photo\u{202e}gnp".as_bytes(), r"photo\u{202e}gnp"),
        (b"a\\u{a}\"", r#"a\\u{a}\""#),
    ];
    for (raw, shown) in cases {
        let path = bytes(raw).unwrap();
        assert_eq!(path.to_string(), shown);
        assert_eq!(format!("{path:?}"), format!("GuestPath(\"{shown}\")"));
    }
    assert_eq!(format!("[{:>6}]", path("a")), "[     a]");
    let long = "x".repeat(4000);
    assert_eq!(path(&long).to_string(), long, "no part of it is left out");
}

#[test]
fn what_agents_write_for_one_file_is_one_path() {
    let cases = [
        ("a.txt", "a.txt"),
        ("./a.txt", "a.txt"),
        (".//./a.txt", "a.txt"),
        ("b/../a.txt", "a.txt"),
        ("b/c/../../a.txt", "a.txt"),
        ("a.txt/", "a.txt"),
        ("a.txt/.", "a.txt"),
        (" a.txt", "a.txt"),
        ("a.txt\r\n", "a.txt"),
        ("\u{a0}\u{3000}a.txt\u{2003}", "a.txt"),
        ("/a.txt", "a.txt"),
        ("//a.txt", "a.txt"),
        ("/./a.txt/", "a.txt"),
        ("/session/a.txt", "a.txt"),
        ("//session///a.txt/", "a.txt"),
        ("/session/./b/../a.txt", "a.txt"),
        ("/home/../session/a.txt", "a.txt"),
        ("/session/../session/a.txt", "a.txt"),
        (" /session/a.txt ", "a.txt"),
        ("src//lib.rs", "src/lib.rs"),
        ("/session/src/lib.rs", "src/lib.rs"),
        ("session/a.txt", "session/a.txt"),
        ("/session/session/a.txt", "session/a.txt"),
        ("/session/etc/passwd", "etc/passwd"),
        ("etc/passwd", "etc/passwd"),
        ("/.env", ".env"),
        ("/...", "..."),
        ("/Etc", "Etc"),
        ("/sessions", "sessions"),
    ];
    for (raw, read) in cases {
        assert_eq!(lenient(raw).unwrap(), read, "{raw:?}");
    }
}

#[test]
fn the_top_has_many_spellings() {
    for raw in [
        ".",
        "",
        "/",
        "//",
        "./",
        "/.",
        "/session",
        "/session/",
        "/session/.",
        "a/..",
        "/session/a/..",
        " . ",
    ] {
        assert_eq!(lenient(raw).unwrap(), ".", "{raw:?}");
    }
}

#[test]
fn only_slashes_and_dots_have_a_meaning() {
    for raw in
        ["~", "~/a", "~root/.ssh", "a\\b", "..\\a", "C:\\a", "$HOME/a", "*", "%2e%2e/a", "a b/ c", "file:a"]
    {
        assert_eq!(lenient(raw).unwrap(), raw, "{raw:?}");
    }
    assert_eq!(lenient("file:///a").unwrap(), "file:/a");
}

#[test]
fn a_name_with_blanks_at_its_ends_has_a_spelling() {
    assert_eq!(lenient("./ a").unwrap(), " a");
    assert_eq!(lenient("a /").unwrap(), "a ");
    assert_eq!(lenient("/session/ a /").unwrap(), " a ");
    assert_eq!(lenient(" ").unwrap(), " ", "blanks alone are a name");
    assert_eq!(parse(b" a ", &[], Spelling::Strict).unwrap().as_bytes(), b" a ");
    let read = parse(b" \xff ", &[], Spelling::Lenient).unwrap();
    assert_eq!(read.as_bytes(), b" \xff ", "what is not text has no blanks");
}

#[test]
fn what_would_leave_is_an_escape_in_both_spellings() {
    let cases = [
        "..",
        "../a",
        "a/../../a",
        "a/../..",
        "./../session/a",
        "/..",
        "/../session/a",
        "/session/..",
        "/session/../a",
        "/session/../etc",
        "/session/a/../../b",
        "/session/../../session/a",
        "/etc/passwd",
        "/data/a",
        "/sessions/a",
        "/Session/a",
        "/a/b",
        "/etc",
        "/tmp/",
        "//root",
        "/lost+found",
        " /proc ",
    ];
    for raw in cases {
        for spelling in [Spelling::Lenient, Spelling::Strict] {
            // With the blanks this is a relative path of the strict spelling.
            if raw.starts_with(' ') && spelling == Spelling::Strict {
                continue;
            }
            let error = parse(raw.as_bytes(), &["/session"], spelling).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Escape, "{raw:?} {spelling:?}");
        }
    }
}

#[test]
fn an_absolute_path_of_one_name_is_at_the_top_unless_the_guests_own_root_has_that_name() {
    assert_eq!(lenient("/notes.md").unwrap(), "notes.md");
    let parse = |raw: &str, paths: &[&str]| parse(raw.as_bytes(), paths, Spelling::Lenient);
    for system in ["/bin", "/boot", "/dev", "/home", "/lib64", "/mnt", "/opt", "/run", "/sys", "/usr", "/var"]
    {
        assert_eq!(parse(system, &["/session"]).unwrap_err().kind(), ErrorKind::Escape, "{system}");
        assert_eq!(parse(system, &[]).unwrap_err().kind(), ErrorKind::Escape, "{system}");
    }
    let error = parse("/work", &["/work/agent", "/data"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Escape, "the guest's root has what its mount point is in");
    assert_eq!(parse("/agent", &["/work/agent"]).unwrap(), path("agent"));
    assert_eq!(parse("/a", &[]).unwrap(), path("a"));
}

#[test]
fn the_longest_mount_point_counts_and_only_whole_components_match() {
    let paths = ["/work", "/work/deep", "/mnt/data"];
    let cases = [
        ("/work/a", "a"),
        ("/work/deep/a", "a"),
        ("/work/deep", "."),
        ("/work/deep/../deeper/a", "deeper/a"),
        ("/work/deeper/a", "deeper/a"),
        ("/mnt/data/work/a", "work/a"),
        ("/work/deep/../../mnt/data/a", "a"),
    ];
    for (raw, read) in cases {
        let found = parse(raw.as_bytes(), &paths, Spelling::Lenient).unwrap();
        assert_eq!(found.as_str(), Some(read), "{raw}");
    }
    for raw in ["/workX/a", "/mnt/a", "/mnt/dat/a", "/mnt"] {
        assert_eq!(parse(raw.as_bytes(), &paths, Spelling::Lenient).unwrap_err().kind(), ErrorKind::Escape);
    }
}

#[test]
fn under_the_root_directory_every_absolute_path_is_inside() {
    for spelling in [Spelling::Lenient, Spelling::Strict] {
        for (raw, read) in [("/", "."), ("/etc/passwd", "etc/passwd"), ("/tmp", "tmp"), ("a", "a")] {
            assert_eq!(parse(raw.as_bytes(), &["/"], spelling).unwrap(), path(read), "{raw}");
        }
        assert_eq!(parse(b"/../a", &["/"], spelling).unwrap_err().kind(), ErrorKind::Escape);
    }
}

#[test]
fn the_strict_spelling_is_one_and_the_refusal_says_it() {
    let parse = |raw: &str| parse(raw.as_bytes(), &["/session"], Spelling::Strict);
    for (raw, read) in [("a/b", "a/b"), (".", "."), ("/session", "."), ("/session/a/b", "a/b"), (" a", " a")]
    {
        assert_eq!(parse(raw).unwrap(), path(read), "{raw}");
    }
    let cases = [
        ("", "."),
        ("./a", "a"),
        ("a//b", "a/b"),
        ("a/", "a"),
        ("b/../a", "a"),
        ("/session/", "/session"),
        ("/session/.", "/session"),
        ("/session//a", "/session/a"),
        ("//session/a", "/session/a"),
        ("/session/b/../a", "/session/a"),
    ];
    for (raw, strict) in cases {
        let error = parse(raw).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{raw}");
        assert_eq!(error.to_string(), format!("check path {raw:?}: must be written {strict:?}"));
        assert!(parse(strict).is_ok());
    }
    for raw in ["/", "/a", "//a"] {
        assert_eq!(parse(raw).unwrap_err().kind(), ErrorKind::Escape, "{raw}");
    }
}

#[test]
fn a_refusal_names_what_and_where() {
    let parse = |raw: &[u8], paths: &[&str]| parse(raw, paths, Spelling::Lenient).unwrap_err().to_string();
    let cases: [(&[u8], &[&str], &str); 6] = [
        (b"/etc/x", &["/session"], r#""/etc/x": is absolute and not under "/session""#),
        (b"/etc/x", &["/a", "/b/c"], r#""/etc/x": is absolute and not under "/a" or "/b/c""#),
        (b"/etc/x", &[], r#""/etc/x": is absolute"#),
        (b"  a/../../b", &[], r#""  a/../../b": leads out by ".." at byte 7"#),
        (b"a\0b", &[], r#""a\u{0}b": holds a NUL at byte 1"#),
        (b"/a/\x1b\xff", &["/s\x07"], r#""/a/\u{1b}\xff": is absolute and not under "/s\u{7}""#),
    ];
    for (raw, paths, shown) in cases {
        assert_eq!(parse(raw, paths), format!("check path {shown}"));
    }
}

#[test]
fn a_nul_and_a_path_that_is_too_long_are_invalid_and_not_an_escape() {
    let long = ["x"; 2049].join("/");
    for raw in ["a\0", "\0", "a\0/../b", "/session/\0", "/\0", &long, &format!("/session/{long}")] {
        for spelling in [Spelling::Lenient, Spelling::Strict] {
            let error = parse(raw.as_bytes(), &["/session", "/"], spelling).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidPath, "{error}");
        }
    }
    assert_eq!(lenient("../\0").unwrap_err().kind(), ErrorKind::Escape, "it would leave as well");
    let most = ["x"; 2048].join("/");
    assert_eq!(lenient(&format!("/session/{most}")).unwrap(), most, "the result counts");
    assert_eq!(lenient(&format!("{}a", "./".repeat(1 << 20))).unwrap(), "a");
    let error = lenient(&"x/".repeat(1 << 20)).unwrap_err();
    assert!(error.to_string().len() < 4096 && error.subject().unwrap().as_os_str().len() <= 4096);
}

#[test]
fn a_mount_point_is_absolute_and_normalised() {
    let cases = [
        ("/session", "/session"),
        ("/home//agent", "/home/agent"),
        ("//home/./agent//", "/home/agent"),
        ("/", "/"),
        ("///", "/"),
        ("/a b/é", "/a b/é"),
    ];
    for (raw, normal) in cases {
        let mount: MountPoint = raw.parse().unwrap();
        assert_eq!((mount.as_str(), mount.to_string().as_str()), (normal, normal));
        assert_eq!(MountPoint::new(normal).unwrap(), mount);
        assert_eq!(mount.join(&GuestPath::top()), Path::new(normal));
    }
    for raw in ["home/agent", "", ".", "~", "/a/../b", "/..", "/a\0b", &format!("/{}", "x".repeat(4095))] {
        let error = MountPoint::new(raw).unwrap_err();
        assert_eq!(
            (error.kind(), error.operation()),
            (ErrorKind::InvalidPath, "check mount point"),
            "{raw:?}"
        );
    }
    let odd = bytes(b"\xff/b").unwrap();
    assert_eq!(MountPoint::new("/").unwrap().join(&odd).as_os_str().as_bytes(), b"/\xff/b");
    assert_eq!(MountPoint::new("/a").unwrap().join(&odd).as_os_str().as_bytes(), b"/a/\xff/b");
}

#[cfg(feature = "serde")]
#[test]
fn a_serialised_path_is_text_where_it_can_be_and_loses_no_byte() {
    let cases: [(&[u8], &str); 4] =
        [(b"a b/c", r#""a b/c""#), (b".", r#"".""#), (b"a\nb", r#""a\nb""#), (b"a\xff", "[97,255]")];
    for (raw, json) in cases {
        let path = bytes(raw).unwrap();
        assert_eq!(serde_json::to_string(&path).unwrap(), json);
        assert_eq!(serde_json::from_str::<GuestPath>(json).unwrap(), path);
    }
    assert_eq!(serde_json::from_str::<GuestPath>("[97]").unwrap(), path("a"));
    let long = format!("[{}]", ["97"; 5000].join(","));
    for bad in
        [r#""../a""#, r#""/a""#, r#""""#, "[]", "[0]", "[46,46]", "[256]", "[\"a\"]", "7", "null", &long]
    {
        assert!(serde_json::from_str::<GuestPath>(bad).is_err(), "{bad}");
    }
    let raw = serde::de::value::BytesDeserializer::<serde_json::Error>::new(b"a\xff");
    assert_eq!(<GuestPath as serde::Deserialize>::deserialize(raw).unwrap(), bytes(b"a\xff").unwrap());
    assert_eq!(serde_json::from_str::<MountPoint>(r#""/home//a""#).unwrap().as_str(), "/home/a");
    assert!(serde_json::from_str::<MountPoint>(r#""home/a""#).is_err());
}
