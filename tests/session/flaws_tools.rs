//! What goes wrong with file tools that are a shell, and logs that are read whole. Each test first shows it in the naive
//! port.

use std::fs;

use beneath::session::{ListOptions, TailEvent};
use beneath::{ErrorKind, ResolverChoice};

use crate::naive::{NaiveTail, NaiveTools};
use crate::support::{Stage, names, with_each_resolver};

fn naive() -> (Stage, NaiveTools) {
    let stage = Stage::new(ResolverChoice::Auto);
    let dir = stage.guest("workspace");
    (stage, NaiveTools { dir })
}

#[test]
fn a_path_executes_nothing() {
    let (stage, tools) = naive();
    tools.write("$(touch owned)", "x");
    assert!(stage.guest("workspace/owned").exists(), "the control runs it");

    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        for path in ["$(touch owned)", "`touch owned`", "'; touch owned; '"] {
            workspace.write_exclusive(path, path).unwrap();
            assert_eq!(workspace.read_contained(path, 100).unwrap(), path.as_bytes());
        }
        assert!(!stage.guest("workspace/owned").exists());
    });
}

#[test]
fn content_executes_nothing_and_stays_as_it_is() {
    let (stage, tools) = naive();
    tools.write("f", "one\nEOF\ntouch owned");
    assert!(stage.guest("workspace/owned").exists(), "the control runs it");
    assert_ne!(tools.read("f"), "one\nEOF\ntouch owned");

    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        let contents: [&[u8]; 4] = [b"one\nEOF\ntouch owned", b"it's \"quoted\"", b"\0\x80\xff", b""];
        for content in contents {
            workspace.replace("f", content).unwrap();
            assert_eq!(workspace.read_contained("f", 100).unwrap(), content);
        }
        assert_eq!(names(&stage.guest("workspace")), ["f"]);
    });
}

#[test]
fn renaming_overwrites_nothing_and_moves_into_nothing() {
    let (stage, tools) = naive();
    fs::write(stage.guest("workspace/a"), "a").unwrap();
    fs::write(stage.guest("workspace/b"), "b").unwrap();
    tools.rename("a", "b");
    assert_eq!(fs::read(stage.guest("workspace/b")).unwrap(), b"a", "the control overwrites");

    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        workspace.write_exclusive("a", "a").unwrap();
        workspace.write_exclusive("b", "b").unwrap();
        workspace.ensure_dir("dir").unwrap();
        for target in ["b", "dir"] {
            assert_eq!(workspace.rename("a", target).unwrap_err().kind(), ErrorKind::AlreadyExists);
        }
        assert_eq!(workspace.read_contained("b", 10).unwrap(), b"b");
    });
}

#[test]
fn listing_shows_names_as_they_are() {
    let odd = ["new\nline", " leading", "a  b"];
    let (stage, tools) = naive();
    for name in odd {
        fs::write(stage.guest("workspace").join(name), "").unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", stage.guest("workspace/link")).unwrap();
    let shown = tools.list();
    assert!(odd.iter().filter(|name| shown.iter().any(|shown| shown == *name)).count() < odd.len());
    assert!(shown.iter().any(|shown| shown.contains("->")), "the control shows a link's target as its name");

    with_each_resolver(|stage| {
        for name in odd {
            fs::write(stage.guest("workspace").join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", stage.guest("workspace/link")).unwrap();
        let listing = stage.session.workspace().list("", ListOptions::default()).unwrap();
        let shown: Vec<_> = listing.entries.iter().map(|entry| entry.path().to_str().unwrap()).collect();
        assert_eq!(shown, [" leading", "a  b", "link", "new\nline"]);
    });
}

#[test]
fn a_log_that_was_truncated_is_not_taken_for_a_quiet_one() {
    let (stage, _) = naive();
    let path = stage.guest("workspace/log");
    let mut control = NaiveTail::default();
    fs::write(&path, "a long first line\n").unwrap();
    control.next(&path);
    fs::write(&path, "restarted\n").unwrap();
    assert_eq!(control.next(&path), "", "the control misses it");

    with_each_resolver(|stage| {
        let path = stage.guest("workspace/log");
        let mut tail = stage.session.workspace().tail("log").unwrap();
        fs::write(&path, "a long first line\n").unwrap();
        let _skipped = tail.next_chunk(1000).unwrap();
        fs::write(&path, "restarted\n").unwrap();
        let chunk = tail.next_chunk(1000).unwrap();
        assert_eq!((chunk.event, &*chunk.bytes), (Some(TailEvent::Truncated), b"restarted\n".as_slice()));
    });
}

#[test]
fn a_log_cut_inside_a_character_loses_no_byte() {
    let (stage, _) = naive();
    let path = stage.guest("workspace/log");
    let mut control = NaiveTail::default();
    let text = "ä".as_bytes();
    fs::write(&path, &text[..1]).unwrap();
    let mut shown = control.next(&path);
    fs::write(&path, text).unwrap();
    shown += &control.next(&path);
    assert_ne!(shown, "ä", "the control garbles it");

    with_each_resolver(|stage| {
        let path = stage.guest("workspace/log");
        let mut tail = stage.session.workspace().tail("log").unwrap();
        fs::write(&path, &text[..1]).unwrap();
        let mut bytes = tail.next_chunk(100).unwrap().bytes;
        let mut log = fs::File::options().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut log, &text[1..]).unwrap();
        bytes.extend(tail.next_chunk(100).unwrap().bytes);
        assert_eq!(bytes, text);
    });
}
