//! Names, paths, ids and attachment names, case by case.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use beneath::{AttachmentHint, ErrorKind, MessageId, SafeName, SafePath, SessionId, safe_name};
use camino::Utf8Path;

const CORPORA: [(&str, &str); 2] = [
    ("names.jsonl", include_str!("corpus/names.jsonl")),
    ("names_more.jsonl", include_str!("corpus/names_more.jsonl")),
];

#[test]
fn every_corpus_case_is_judged_as_it_says() {
    let mut judged = 0;
    for (file, corpus) in CORPORA {
        for (line, case) in corpus.lines().enumerate() {
            let case: serde_json::Value = serde_json::from_str(case).unwrap();
            let field = |name: &str| case[name].as_str().unwrap();
            let raw = field("s");
            let accepted = match field("as") {
                "name" => safe_name(raw).inspect(|name| assert_eq!(name.as_str(), raw)).is_ok(),
                "key" => SafePath::new(raw).inspect(|path| assert_eq!(path.as_str(), raw)).is_ok(),
                "message_id" => {
                    let id = MessageId::new(raw);
                    assert_eq!(id.is_verbatim(), id.as_str() == raw, "{raw:?}");
                    assert!(safe_name(id.as_str()).is_ok(), "{id}");
                    id.is_verbatim()
                }
                other => panic!("{file}:{}: unknown class {other}", line + 1),
            };
            match field("expect") {
                "accept" => assert!(accepted, "{file}:{}: {raw:?} is refused: {}", line + 1, field("why")),
                "reject" => assert!(!accepted, "{file}:{}: {raw:?} is accepted: {}", line + 1, field("why")),
                _ => {}
            }
            judged += 1;
        }
    }
    assert!(judged >= 180 + 150, "{judged}");
}

#[test]
fn a_filter_that_only_strips_slashes_fails_the_corpus() {
    let control = |raw: &str| !raw.is_empty() && !raw.contains('/');
    let missed = CORPORA
        .iter()
        .flat_map(|(_, corpus)| corpus.lines())
        .map(|case| serde_json::from_str::<serde_json::Value>(case).unwrap())
        .filter(|case| {
            case["as"] == "name" && case["expect"] == "reject" && control(case["s"].as_str().unwrap())
        })
        .count();
    assert!(missed >= 100, "{missed}");
}

#[test]
fn refuses_bytes_that_are_not_utf8() {
    let cases: [&[u8]; 7] = [
        b"\xff",
        b"a\xc0\xafb",
        b"a\xed\xa0\x80",
        b"caf\xe9.txt",
        b"\x80",
        b"a\xf4\x90\x80\x80",
        b"a\xe2\x82",
    ];
    for raw in cases {
        assert_eq!(safe_name(raw).unwrap_err().kind(), ErrorKind::InvalidName, "{raw:?}");
        let repaired = SafeName::repair(raw);
        assert!(safe_name(repaired.as_str()).is_ok(), "{raw:?} became {repaired:?}");
    }
}

#[test]
fn judges_every_character_as_the_unicode_data_says() {
    // Default_Ignorable_Code_Point, then what it leaves out of the format characters (Cf) that show nothing, then graphic
    // characters whose glyph is blank, then the other classes that the rules name.
    let ignorable = [
        (0xad, 0xad),
        (0x34f, 0x34f),
        (0x61c, 0x61c),
        (0x115f, 0x1160),
        (0x17b4, 0x17b5),
        (0x180b, 0x180f),
        (0x200b, 0x200f),
        (0x202a, 0x202e),
        (0x2060, 0x206f),
        (0x3164, 0x3164),
        (0xfe00, 0xfe0e),
        (0xfeff, 0xfeff),
        (0xffa0, 0xffa0),
        (0xfff0, 0xfff8),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0000, 0xe0fff),
    ];
    let layout = [(0x13430, 0x1343f)];
    let blank = [
        (0x2800, 0x2800),   // BRAILLE PATTERN BLANK
        (0xfffc, 0xfffc),   // OBJECT REPLACEMENT CHARACTER
        (0x13441, 0x13442), // EGYPTIAN HIEROGLYPH FULL BLANK, HALF BLANK
        (0x16fe4, 0x16fe4), // KHITAN SMALL SCRIPT FILLER
        (0x1d159, 0x1d159), // MUSICAL SYMBOL NULL NOTEHEAD
    ];
    let hidden = [&ignorable[..], &layout, &blank].concat();
    let other = [(0, 0x1f), (0x7f, 0x9f), (0x2028, 0x2029), (0xfff9, 0xfffb), (0xfdd0, 0xfdef)];
    for character in '\0'..=char::MAX {
        let code = u32::from(character);
        let refused = hidden.iter().chain(&other).any(|(first, last)| (*first..=*last).contains(&code))
            || code % 0x1_0000 >= 0xfffe
            || r#"/\<>:"|?*"#.contains(character);
        assert_eq!(safe_name(&format!("a{character}b")).is_err(), refused, "inside: U+{code:04X}");
        let refused = refused || character.is_whitespace() || character == '.';
        assert_eq!(safe_name(&format!("a{character}")).is_err(), refused, "last: U+{code:04X}");
        assert_eq!(safe_name(&format!("{character}a")).is_err(), refused, "first: U+{code:04X}");
    }
}

#[test]
fn a_name_that_shows_nothing_is_refused_and_mended() {
    for blank in
        ['\u{2800}', '\u{fffc}', '\u{13430}', '\u{13441}', '\u{13442}', '\u{16fe4}', '\u{1d159}', '\u{3164}']
    {
        let (alone, inside) = (blank.to_string(), format!("invoice{blank}.pdf"));
        let error = safe_name(&alone).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName);
        let code = u32::from(blank);
        let said = format!(
            r#"check name "\u{{{code:x}}}": holds the invisible character "\u{{{code:x}}}" at byte 0"#
        );
        assert_eq!(error.to_string(), said, "and the error shows it");
        assert_eq!(SafeName::repair(&alone).as_str(), "file");
        assert_eq!(SafeName::repair(&inside).as_str(), "invoice.pdf");
    }
    assert!(safe_name("\u{2764}\u{fe0f}.png").is_ok(), "the emoji form of a heart");
    assert!(safe_name("\u{600}1.txt").is_ok(), "ARABIC NUMBER SIGN is a format character that is seen");
}

/// What the rules are not for.
#[test]
fn a_safe_name_is_a_component_and_no_shell_argument() {
    for name in ["-rf", "--checkpoint-action=exec=sh x", "~root", "$(id)", "a;b", "%s", "&", "`x`"] {
        assert_eq!(safe_name(name).unwrap().as_str(), name);
    }
}

#[test]
fn error_names_rule_and_offset_and_escapes_the_text() {
    let cases = [
        ("", r#"check name "": is empty at byte 0"#),
        ("..", r#"check name "..": is the dot entry ".." at byte 0"#),
        ("a\u{202e}b", r#"check name "a\u{202e}b": holds the invisible character "\u{202e}" at byte 1"#),
        ("é\nb", r#"check name "é\u{a}b": holds the control character "\u{a}" at byte 2"#),
        ("a:b", r#"check name "a:b": holds the reserved character ":" at byte 1"#),
        ("a\u{2028}", r#"check name "a\u{2028}": holds the line separator "\u{2028}" at byte 1"#),
        (" a", r#"check name " a": starts with white space at byte 0"#),
        ("a \u{a0}", r#"check name "a \u{a0}": ends with white space at byte 1"#),
        (".env", r#"check name ".env": starts with a dot at byte 0"#),
        ("a.", r#"check name "a.": ends with a dot at byte 1"#),
        ("Nul .txt", r#"check name "Nul .txt": is the device "Nul" at byte 0"#),
    ];
    for (raw, shown) in cases {
        let error = safe_name(raw).unwrap_err();
        assert_eq!(error.to_string(), shown);
        assert_eq!(error.kind(), ErrorKind::InvalidName);
    }
    let error = safe_name(b"ab\xffc").unwrap_err();
    assert_eq!(error.to_string(), r#"check name "ab\xffc": is not UTF-8 "\xffc" at byte 2"#);
}

#[test]
fn path_error_counts_from_the_start_of_what_was_given() {
    let cases = [
        ("", r#"check path "": names no entry at byte 0"#),
        ("ab/c:d", r#"check path "ab/c:d": holds the reserved character ":" at byte 4"#),
        ("ab/../c", r#"check path "ab/../c": is the dot entry ".." at byte 3"#),
        ("a//b", r#"check path "a//b": has an empty component at byte 2"#),
        ("a/", r#"check path "a/": has an empty component at byte 2"#),
        ("a/aux.c/b", r#"check path "a/aux.c/b": is the device "aux" at byte 2"#),
    ];
    for (raw, shown) in cases {
        let error = SafePath::new(raw).unwrap_err();
        assert_eq!(error.to_string(), shown);
        let leaves = raw.contains("..");
        assert_eq!(error.kind(), if leaves { ErrorKind::Escape } else { ErrorKind::InvalidPath });
    }
    assert_eq!(SafePath::new("/a").unwrap_err().to_string(), r#"check path "/a": is absolute at byte 0"#);
}

#[test]
fn error_for_a_huge_text_stays_small() {
    let raw = "x\n".repeat(1 << 20);
    for error in [safe_name(&raw).unwrap_err(), SafePath::new(&raw).unwrap_err()] {
        assert!(error.to_string().len() < 4096);
        assert!(error.subject().unwrap().as_os_str().len() <= 4096);
    }
}

#[test]
fn prefix_is_a_matter_of_components() {
    let path = |raw| SafePath::new(raw).unwrap();
    assert!(path("a/b/c").starts_with(&path("a/b")));
    assert!(path("a/b").starts_with(&path("a/b")));
    assert!(!path("a/bc").starts_with(&path("a/b")));
    assert!(!path("a").starts_with(&path("a/b")));
    assert_eq!(path("a/b/c").strip_prefix(&path("a")), Some(path("b/c")));
    assert_eq!(path("ab/c").strip_prefix(&path("a")), None);
}

#[test]
fn a_path_has_parts() {
    let path = SafePath::new("a/.b/c.tar.gz").unwrap();
    assert_eq!(path.components().collect::<Vec<_>>(), ["a", ".b", "c.tar.gz"]);
    assert_eq!((path.depth(), path.file_name()), (3, "c.tar.gz"));
    assert_eq!(path.parent(), Some(SafePath::new("a/.b").unwrap()));
    let name = SafePath::new("c").unwrap();
    assert_eq!((name.depth(), name.file_name(), name.parent()), (1, "c", None));
}

#[test]
fn a_name_has_stem_and_extension() {
    let cases = [("a.tar.gz", "a.tar", Some("gz")), ("README", "README", None), ("a. b", "a", Some(" b"))];
    for (raw, stem, extension) in cases {
        let name = safe_name(raw).unwrap();
        assert_eq!((name.stem(), name.extension()), (stem, extension), "{raw}");
    }
}

/// Whichever way it is used, what is used is the text that was checked.
#[test]
fn every_view_of_a_checked_text_is_that_text() {
    fn views<T>(checked: &T, text: &str)
    where
        T: AsRef<str> + AsRef<OsStr> + AsRef<Path> + AsRef<Utf8Path> + Borrow<str> + Display,
    {
        assert_eq!(AsRef::<str>::as_ref(checked), text);
        assert_eq!(AsRef::<OsStr>::as_ref(checked), text);
        assert_eq!(AsRef::<Path>::as_ref(checked), Path::new(text));
        assert_eq!(AsRef::<Utf8Path>::as_ref(checked), text);
        assert_eq!(Borrow::<str>::borrow(checked), text);
        assert_eq!(format!("{checked:>8}"), format!("{text:>8}"));
    }
    let (name, path) = (safe_name("a.txt").unwrap(), SafePath::new("a/b").unwrap());
    views(&name, "a.txt");
    views(&path, "a/b");
    views(&MessageId::new("m-1"), "m-1");
    views(&SessionId::new("s-1"), "s-1");
    assert_eq!(path.as_utf8_path(), "a/b");
    assert_eq!(MessageId::new("m-1").as_name().as_str(), "m-1");
    assert_eq!(SessionId::new("s-1").as_name().as_str(), "s-1");
    assert_eq!(SafePath::from(&name).as_str(), "a.txt");
    assert_eq!(SafePath::from(&path), path);
    assert_eq!(String::from(name), "a.txt");
    assert_eq!(String::from(path), "a/b");
}

#[test]
fn every_way_in_checks() {
    for (raw, safe) in [("a.txt", true), ("..", false), ("a\nb", false)] {
        assert_eq!(SafeName::new(raw).is_ok(), safe, "{raw:?}");
        assert_eq!(raw.parse::<SafeName>().is_ok(), safe, "{raw:?}");
        assert_eq!(SafeName::try_from(raw).is_ok(), safe, "{raw:?}");
        assert_eq!(SafeName::try_from(raw.to_owned()).is_ok(), safe, "{raw:?}");
        assert_eq!(raw.parse::<SafePath>().is_ok(), safe, "{raw:?}");
        assert_eq!(SafePath::try_from(raw).is_ok(), safe, "{raw:?}");
        assert_eq!(SafePath::try_from(raw.to_owned()).is_ok(), safe, "{raw:?}");
    }
}

#[test]
fn the_longest_path_is_taken() {
    let longest = &vec!["x".repeat(255); 16].join("/");
    assert_eq!(longest.len(), 4095);
    assert!(SafePath::new(longest).is_ok());
    assert!(SafePath::new(&format!("{}/y", &longest[..4094])).is_err());
}

#[test]
fn join_refuses_what_grows_too_long() {
    let long = SafePath::new(&vec!["x".repeat(255); 16].join("/")[..4094]).unwrap();
    assert_eq!(long.join(safe_name("a").unwrap()).unwrap_err().kind(), ErrorKind::InvalidPath);
    let joined = SafePath::new("inbox").unwrap().join(&MessageId::new("a/b")).unwrap();
    assert_eq!(joined.depth(), 2);
    assert_eq!(joined.parent().unwrap().as_str(), "inbox");
}

#[test]
fn repair_keeps_what_can_be_kept() {
    let long = "x".repeat(300);
    let cases = [
        ("plain.txt", "plain.txt".to_owned()),
        ("../../evil.png", "evil.png".to_owned()),
        ("..\\..\\evil.png", "evil.png".to_owned()),
        ("/etc/passwd", "etc_passwd".to_owned()),
        ("AC/DC.mp3", "AC_DC.mp3".to_owned()),
        ("C:\\fakepath\\cat.png", "C__fakepath_cat.png".to_owned()),
        ("docs/", "docs".to_owned()),
        ("what?.pdf", "what_.pdf".to_owned()),
        ("a\r\nb.txt", "a  b.txt".to_owned()),
        ("\u{1b}[2Jx", "[2Jx".to_owned()),
        ("re\u{200b}port.p\u{200d}df", "report.pdf".to_owned()),
        ("\u{200b}.png", "_.png".to_owned()),
        (".png", "_.png".to_owned()),
        ("..a", "_.a".to_owned()),
        (" . .a", "_.a".to_owned()),
        ("  a.txt\u{3000}", "a.txt".to_owned()),
        ("a.txt...", "a.txt".to_owned()),
        ("CON.txt", "_CON.txt".to_owned()),
        ("c\u{ad}on", "_con".to_owned()),
        ("con/", "_con".to_owned()),
        ("", "file".to_owned()),
        (".. / . /\u{200b}", "file".to_owned()),
        (&format!("{long}.tar.gz"), format!("{}.gz", &long[..252])),
        (&format!("{}.png", "é".repeat(200)), format!("{}.png", "é".repeat(125))),
        (&format!("a.{long}"), format!("a.{}", &long[..253])),
        (&format!("ab.{}", &long[..254]), format!("ab.{}", &long[..252])),
        (&format!("😀.{}", &long[..253]), format!("_.{}", &long[..253])),
        (&format!("CONs.{}", &long[..251]), format!("_CO.{}", &long[..251])),
    ];
    for (raw, repaired) in cases {
        assert_eq!(SafeName::repair(raw).as_str(), repaired, "{raw:?}");
    }
}

#[test]
fn ids_that_could_meet_stay_apart() {
    let mapped = MessageId::new("a/b");
    let twice = MessageId::new(mapped.as_str());
    let shouted = mapped.as_str().to_ascii_uppercase();
    let raws = [
        "",
        "id",
        " ",
        ".",
        "..",
        "a/b",
        "a\\b",
        "a-b",
        "A-B",
        "a/B",
        "a//b",
        "/a/b",
        "a/b/",
        "a\0b",
        "a\u{200b}b",
        "con",
        "CON",
        "é/",
        "e\u{301}/",
        mapped.as_str(),
        twice.as_str(),
        &shouted,
    ];
    let names: HashSet<String> = raws.iter().map(|raw| MessageId::new(raw).as_str().to_owned()).collect();
    assert_eq!(names.len(), raws.len(), "{names:#?}");
}

#[test]
fn mapped_id_shows_a_slug_and_the_digest_of_the_whole_id() {
    let cases = [
        ("", "id~e3b0c44298fc1c149afbf4c8996fb924"),
        ("..", "id~5ec1f7e700f37c3d0b2981d04855fc34"),
        ("abc/", "abc~ee08f01097d67f8734bf38a4b893a8fc"),
        ("/-x_y..z-/", "x_y-z~69746a9eb0eba25db5023b1d8c04d8c5"),
        ("con.txt:1", "con-txt-1~de8c858ef67b49350bf22b014d183381"),
    ];
    for (raw, name) in cases {
        assert_eq!(MessageId::new(raw).as_str(), name, "{raw:?}");
        assert_eq!(SessionId::new(raw).as_str(), name, "{raw:?}");
        assert!(!MessageId::new(raw).is_verbatim() && !SessionId::new(raw).is_verbatim(), "{raw:?}");
    }
    let long = MessageId::new("é/x".repeat(1000));
    assert!(long.as_str().len() <= 80 + 1 + 32, "{long}");
}

#[test]
fn on_disk_names_that_no_id_has_are_refused() {
    let digest = "0123456789abcdef0123456789abcdef";
    assert!(MessageId::from_component(&format!("slug~{digest}")).is_ok());
    let cases = [
        "".to_owned(),
        "..".to_owned(),
        ".ssh".to_owned(),
        "a/b".to_owned(),
        format!("~{digest}"),
        format!("a.b~{digest}"),
        format!("-a~{digest}"),
        format!("a-~{digest}"),
        format!("a--b~{digest}"),
        format!("a~b~{digest}"),
        format!("é~{digest}"),
        format!("{}~{digest}", "x".repeat(81)),
        format!("slug~{}", digest.to_uppercase()),
    ];
    for name in &cases {
        assert_eq!(MessageId::from_component(name).unwrap_err().kind(), ErrorKind::InvalidName, "{name:?}");
        assert!(SessionId::from_component(name).is_err(), "{name:?}");
    }
}

#[test]
fn generated_session_ids_are_verbatim_distinct_and_sorted_by_time() {
    let ids: HashSet<SessionId> = (0..1000).map(|_| SessionId::generate().unwrap()).collect();
    assert_eq!(ids.len(), 1000);
    assert!(ids.iter().all(|id| id.is_verbatim() && id.as_str().len() == 32));
    let at = |seconds| SessionId::generate_at(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    assert!(at(1) < at(2) && at(86_399) < at(86_400) && at(2_000_000_000) < at(u64::MAX >> 20));
    assert!(SessionId::from_component(at(5).as_str()).is_ok_and(|id| id.is_verbatim()));
}

#[test]
fn attachment_name_prefers_given_then_mime_then_kind() {
    let cases = [
        (Some("cat.gif"), Some("image/png"), Some("voice"), "cat.gif"),
        (Some("photo"), Some("image/png"), None, "photo"),
        (Some("../cat:1.gif"), None, None, "cat_1.gif"),
        (Some(""), Some("image/png"), None, "attachment-7.png"),
        (Some(" .. "), Some("image/png"), None, "attachment-7.png"),
        (Some("\u{200b}"), None, Some("photo"), "attachment-7.jpg"),
        (None, Some(" IMAGE/JPEG ; charset=x"), None, "attachment-7.jpg"),
        (None, Some("audio/ogg;codecs=opus"), Some("video"), "attachment-7.ogg"),
        (None, Some("application/octet-stream"), Some("Photo"), "attachment-7.jpg"),
        (None, Some("application/octet-stream"), None, "attachment-7"),
        (None, Some(""), Some("STICKER"), "attachment-7.webp"),
        (None, None, Some("voice"), "attachment-7.ogg"),
        (None, None, Some("audio"), "attachment-7.mp3"),
        (None, None, Some("video"), "attachment-7.mp4"),
        (None, None, Some("animation"), "attachment-7.mp4"),
        (None, None, Some("image"), "attachment-7.jpg"),
        (None, None, Some("../etc"), "attachment-7"),
        (None, Some("image/../../x"), None, "attachment-7"),
        (None, None, None, "attachment-7"),
    ];
    for (name, mime, kind, expected) in cases {
        let hint = AttachmentHint { name, mime, kind };
        assert_eq!(hint.to_name(7).as_str(), expected, "{hint:?}");
    }
}

#[test]
fn mime_types_of_chat_systems_have_their_extension() {
    let cases = [
        ("image/jpeg", "jpg"),
        ("image/jpg", "jpg"),
        ("image/png", "png"),
        ("image/webp", "webp"),
        ("image/gif", "gif"),
        ("image/heic", "heic"),
        ("image/heif", "heif"),
        ("image/avif", "avif"),
        ("image/bmp", "bmp"),
        ("image/tiff", "tiff"),
        ("image/svg+xml", "svg"),
        ("audio/ogg", "ogg"),
        ("audio/opus", "opus"),
        ("audio/mpeg", "mp3"),
        ("audio/mp3", "mp3"),
        ("audio/wav", "wav"),
        ("audio/x-wav", "wav"),
        ("audio/mp4", "m4a"),
        ("audio/x-m4a", "m4a"),
        ("audio/aac", "aac"),
        ("audio/flac", "flac"),
        ("audio/amr", "amr"),
        ("video/mp4", "mp4"),
        ("video/webm", "webm"),
        ("video/quicktime", "mov"),
        ("video/3gpp", "3gp"),
        ("video/x-matroska", "mkv"),
        ("text/plain", "txt"),
        ("text/csv", "csv"),
        ("text/html", "html"),
        ("text/markdown", "md"),
        ("text/calendar", "ics"),
        ("text/vcard", "vcf"),
        ("text/xml", "xml"),
        ("application/xml", "xml"),
        ("application/json", "json"),
        ("application/pdf", "pdf"),
        ("application/rtf", "rtf"),
        ("text/rtf", "rtf"),
        ("application/zip", "zip"),
        ("application/gzip", "gz"),
        ("application/x-tar", "tar"),
        ("application/x-7z-compressed", "7z"),
        ("application/epub+zip", "epub"),
        ("application/msword", "doc"),
        ("application/vnd.ms-excel", "xls"),
        ("application/vnd.ms-powerpoint", "ppt"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
        ("application/vnd.openxmlformats-officedocument.presentationml.presentation", "pptx"),
        ("application/vnd.oasis.opendocument.text", "odt"),
        ("application/vnd.oasis.opendocument.spreadsheet", "ods"),
        ("application/vnd.oasis.opendocument.presentation", "odp"),
    ];
    for (mime, extension) in cases {
        let hint = AttachmentHint { mime: Some(mime), ..AttachmentHint::default() };
        assert_eq!(hint.to_name(0).as_str(), format!("attachment-0.{extension}"), "{mime}");
    }
}

#[test]
fn numbered_names_fit_even_where_nothing_is_free() {
    let cases = [
        (format!("{}-2.png", "x".repeat(249)), format!("{}-2.png", "x".repeat(248))),
        (format!("{}.png", "😀".repeat(62)), format!("{}-2.png", "😀".repeat(62))),
        (format!("a.{}", "y".repeat(253)), format!("a.{}-2", "y".repeat(251))),
        ("z".repeat(255), format!("{}-2", "z".repeat(253))),
        (format!("{}-2", "z".repeat(253)), format!("{}-2", "z".repeat(252))),
    ];
    for (name, second) in cases {
        assert_eq!(safe_name(&name).unwrap().numbered(2).as_str(), second);
    }
    let name = safe_name("photo.png").unwrap();
    let names = [0, 1, 2, 3, 10].map(|n| name.numbered(n).to_string());
    assert_eq!(names, ["photo.png", "photo.png", "photo-2.png", "photo-3.png", "photo-10.png"]);
}

#[cfg(feature = "serde")]
#[test]
fn deserialising_checks_and_serialising_gives_the_plain_text() {
    fn round<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(
        value: T,
        json: &str,
    ) {
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        assert_eq!(serde_json::from_str::<T>(json).unwrap(), value);
    }
    round(safe_name("a b.txt").unwrap(), r#""a b.txt""#);
    round(SafePath::new("a/.b").unwrap(), r#""a/.b""#);
    round(MessageId::new("m-1"), r#""m-1""#);
    round(MessageId::new(""), r#""id~e3b0c44298fc1c149afbf4c8996fb924""#);
    round(SessionId::new("s-1"), r#""s-1""#);
    assert!(serde_json::from_str::<SafeName>(r#""a/b""#).is_err());
    assert!(serde_json::from_str::<SafePath>(r#""../b""#).is_err());
    assert!(serde_json::from_str::<MessageId>(r#""a/b""#).is_err());
    assert!(serde_json::from_str::<SessionId>(r#""..""#).is_err());
    let error = serde_json::from_str::<MessageId>("\"a\\u202eb\"").unwrap_err();
    assert!(error.to_string().contains(r"\u{202e}"), "{error}");
}

#[test]
fn a_safe_path_is_read_from_bytes_and_from_paths() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    let path = SafePath::new("src/.config/a").unwrap();
    assert_eq!(SafePath::try_from(b"src/.config/a".as_slice()).unwrap(), path);
    assert_eq!(SafePath::try_from(Path::new("src/.config/a")).unwrap(), path);
    assert_eq!(SafePath::try_from(OsStr::new("src/.config/a")).unwrap(), path);
    let refused = SafePath::try_from(Path::new(OsStr::from_bytes(b"a/\xff"))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidPath);
    assert_eq!(SafePath::try_from(Path::new("../a")).unwrap_err().kind(), ErrorKind::Escape);
}

#[test]
fn every_directory_name_has_an_id_and_only_the_ids_own_name_shares_it() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let names: [&[u8]; 7] = [b"42", b"msg:agent-1", b"msg/agent-1", b"\xff", b"\xfe", b"", b".."];
    let ids = names.map(|name| MessageId::of_directory(OsStr::from_bytes(name)));
    for (index, id) in ids.iter().enumerate() {
        assert_eq!(MessageId::of_directory(id.as_str()), *id);
        assert!(ids.iter().skip(index + 1).all(|other| other != id), "{id}");
        if let Ok(text) = std::str::from_utf8(names[index]) {
            assert_eq!(MessageId::new(text), *id);
        }
    }
}
