//! Types of files, and which of them are taken from an outbox.

use std::os::unix::fs::symlink;

use beneath::session::SessionsConfig;
use beneath::{
    AllowedTypes, AttachmentHint, Detected, ErrorKind, MessageId, Mime, ResolverChoice, SessionId,
};
use proptest::prelude::*;

use crate::support::{Stage, fifo};

#[test]
fn a_type_and_an_extension_lead_to_each_other() {
    for (mime, extension) in [
        ("image/png", "png"),
        ("IMAGE/JPG", "jpg"),
        (" text/plain; charset=utf-8", "txt"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ] {
        let mime = Mime::new(mime).unwrap();
        assert_eq!(mime.extension(), Some(extension));
        assert_eq!(Mime::from_extension(extension), Some(mime));
        let hint = AttachmentHint { mime: Some(mime.as_str()), ..AttachmentHint::default() };
        assert_eq!(hint.to_name(0).as_str(), format!("attachment-0.{extension}"));
    }
    for unknown in ["", "png", "image/", "image/pgn", "image/png/x", "\u{202e}"] {
        assert_eq!(Mime::new(unknown), None, "{unknown:?}");
    }
    assert_eq!(Mime::from_path("a.JPEG").unwrap().as_str(), "image/jpeg");
    assert_eq!(Mime::from_path("png"), None);
}

#[test]
fn text_is_known_by_a_bounded_prefix() {
    let is_text = |start: &[u8]| Detected::new("x", start).is_text;
    assert!(is_text(b"") && is_text("grün\r\n\t".as_bytes()));
    assert!(!is_text(b"a\0b") && !is_text(b"\xff\xfe") && !is_text(b"caf\xe9"));
    let mut long = "ä".repeat(Detected::PREFIX).into_bytes();
    assert!(is_text(&long), "a character is cut at the end of the prefix");
    long[Detected::PREFIX] = 0;
    assert!(is_text(&long), "what follows is not looked at");
    long.insert(0, b'x');
    assert!(is_text(&long[..Detected::PREFIX]), "and so if it is cut in the middle");
}

#[test]
fn a_workspace_reports_the_type_of_a_file_and_never_of_what_a_link_leads_to() {
    let stage = Stage::new(ResolverChoice::Auto);
    let workspace = stage.session.workspace();
    workspace.write_exclusive("notes.md", "# Plan").unwrap();
    workspace.write_exclusive("odd.md", b"\x7fELF\x02\x01\x01\0").unwrap();
    let (notes, odd) = (workspace.detect("notes.md").unwrap(), workspace.detect("odd.md").unwrap());
    assert_eq!((notes.mime(), notes.is_consistent()), (Mime::new("text/markdown"), true));
    assert!(!odd.is_consistent() && !odd.is_text);
    symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/diary.txt")).unwrap();
    fifo(&stage.guest("workspace/fifo.txt"));
    assert_eq!(workspace.detect("diary.txt").unwrap_err().kind(), ErrorKind::Symlink);
    assert_eq!(workspace.detect("fifo.txt").unwrap_err().kind(), ErrorKind::NotRegular);
    let sparse = std::fs::File::create(stage.guest("workspace/huge.bin")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    assert!(!workspace.detect("huge.bin").unwrap().is_text, "of a terabyte a prefix is read");
}

fn accepting(types: &[&str]) -> Stage {
    Stage::with_config(SessionsConfig::default().with_types(AllowedTypes::new(types).unwrap()))
}

#[test]
fn only_accepted_types_are_taken_from_an_outbox() {
    let stage = accepting(&["text/*", "application/json"]);
    let files: [(&str, &[u8]); 5] = [
        ("notes.md", b"# Plan"),
        ("README", b"hello"),
        ("data.json", b"{}"),
        ("lies.txt", b"\0\x01\x02"),
        ("core", b"\0\x01\x02"),
    ];
    stage.send("7", &files);
    let claim = stage.session.outbox().claim(&MessageId::new("7")).unwrap().unwrap();
    let expected = [
        ("notes.md", None),
        ("README", None),
        ("data.json", None),
        ("lies.txt", Some(ErrorKind::InvalidData)),
        ("core", Some(ErrorKind::Denied)),
    ];
    let names = files.map(|(name, _)| name);
    let read = claim.read(names).unwrap();
    let opened = claim.open(names).unwrap();
    for (at, (name, kind)) in expected.into_iter().enumerate() {
        assert_eq!(read.files[at].content.as_ref().err().map(beneath::Error::kind), kind, "read {name}");
        assert_eq!(opened.files[at].content.as_ref().err().map(beneath::Error::kind), kind, "open {name}");
    }
    let mut text = String::new();
    let mut files = opened.files;
    std::io::Read::read_to_string(files[0].content.as_mut().unwrap(), &mut text).unwrap();
    assert_eq!(text, "# Plan", "reading begins at the start");
}

#[test]
fn only_accepted_types_are_forwarded() {
    let stage = accepting(&["text/markdown"]);
    let (other, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
    stage.send("7", &[("a.md", b"# A"), ("b.md", b"\0"), ("c.txt", b"c")]);
    let claim = stage.session.outbox().claim(&MessageId::new("7")).unwrap().unwrap();
    let delivery = claim.forward(["a.md", "b.md", "c.txt"], &other.inbox(), &MessageId::new("8")).unwrap();
    let refused: Vec<ErrorKind> = delivery.refused().map(|(_, error)| error.kind()).collect();
    assert_eq!(refused, [ErrorKind::InvalidData, ErrorKind::Denied]);
    let arrived = stage.sessions_path().join("other/guest/inbox/8/a.md");
    assert_eq!(std::fs::read(arrived).unwrap(), b"# A");
}

#[test]
fn a_list_of_types_with_a_mistake_is_refused() {
    for bad in ["image/pgn", "*", "*/*", "image", "image/*/*", ""] {
        assert_eq!(AllowedTypes::new([bad]).unwrap_err().kind(), ErrorKind::InvalidData, "{bad:?}");
    }
    let none = AllowedTypes::new([""; 0]).unwrap();
    assert_eq!(none.check("a.txt", b"a").unwrap_err().kind(), ErrorKind::Denied);
}

#[cfg(feature = "sniff")]
#[test]
fn content_that_is_not_what_its_extension_says_is_reported() {
    let png: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    let zip: &[u8] = b"PK\x03\x04\x14\0\0\0\0\0";
    for (name, start, consistent) in [
        ("a.png", png, true),
        ("a.jpg", png, false),
        ("a.txt", png, false),
        ("a", png, true),
        ("a.png", b"<script>", false),
        ("a.png", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02", false),
        ("a.png", b"", true),
        ("a.zip", zip, true),
        ("a.docx", zip, true),
        ("a.pdf", zip, false),
        ("a.pdf", b"%PDF-1.7", true),
        ("a.mp3", b"%PDF-1.7", false),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", true),
        ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", true),
        ("a.html", b"<html >", true),
    ] {
        let found = Detected::new(name, start);
        assert_eq!(found.is_consistent(), consistent, "{name}: {found:?}");
    }
    assert_eq!(Detected::new("a", png).mime().unwrap().as_str(), "image/png");
    let images = AllowedTypes::new(["image/*"]).unwrap();
    assert!(images.check("photo", png).is_ok());
    assert_eq!(images.check("photo.jpg", png).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(images.check("photo.pdf", b"%PDF-1.7").unwrap_err().kind(), ErrorKind::Denied);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_prefix_makes_the_detection_fail(
        mark in prop::sample::select(vec![
            &b""[..], b"PK\x03\x04", b"\x89PNG", b"\x7fELF", b"MZ", b"%PDF", b"RIFF\0\0\0\0", b"\0\0\0\x20ftyp", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
            b"OggS", b"\x1aE\xdf\xa3", b"II*\0", b"SQLite format 3\0", b"<?xml", b"\xef\xbb\xbf<html", b"!<arch>\n", b"\xca\xfe\xba\xbe", b"Rar!\x1a\x07",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..600),
        name in "[a-z]{0,3}\\.[a-z0-9]{0,4}",
    ) {
        for end in [rest.len(), rest.len() / 2, 1.min(rest.len())] {
            let found = Detected::new(&name, &[mark, &rest[..end]].concat());
            let _ = (found.mime(), found.is_consistent());
        }
    }
}
