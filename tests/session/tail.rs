use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;

use beneath::ErrorKind;
use beneath::session::TailEvent;

use crate::support::{fifo, with_each_resolver};

#[test]
fn gives_each_byte_once_in_bounded_chunks() {
    with_each_resolver(|stage| {
        let path = stage.guest("workspace/log");
        let mut tail = stage.session.workspace().tail("log").unwrap();
        let mut log = fs::File::create(&path).unwrap();
        let mut expected = Vec::new();
        let mut read = Vec::new();
        for line in 0..500 {
            let line = format!("line {line} äöü\n").into_bytes();
            log.write_all(&line).unwrap();
            expected.extend(line);
            loop {
                let chunk = tail.next_chunk(7).unwrap();
                assert!(chunk.bytes.len() <= 7 && chunk.event.is_none());
                read.extend(chunk.bytes);
                if !chunk.more {
                    break;
                }
            }
        }
        assert_eq!(read, expected);
        let position = tail.position();
        let mut resumed = stage.session.workspace().tail("log").unwrap().resume(position);
        log.write_all(b"more").unwrap();
        assert_eq!(resumed.next_chunk(100).unwrap().bytes, b"more");
    });
}

#[test]
fn reports_truncation_replacement_and_removal() {
    with_each_resolver(|stage| {
        let path = stage.guest("workspace/log");
        let mut tail = stage.session.workspace().tail("log").unwrap();
        fs::write(&path, "first").unwrap();
        let _skipped = tail.next_chunk(100).unwrap();

        fs::write(&path, "new").unwrap();
        let chunk = tail.next_chunk(100).unwrap();
        assert_eq!((chunk.event, &*chunk.bytes), (Some(TailEvent::Truncated), b"new".as_slice()));

        fs::write(stage.guest("workspace/next"), "rotated and longer").unwrap();
        fs::rename(stage.guest("workspace/next"), &path).unwrap();
        let chunk = tail.next_chunk(100).unwrap();
        assert_eq!((chunk.event, chunk.bytes.len()), (Some(TailEvent::Replaced), 18));

        fs::remove_file(&path).unwrap();
        assert_eq!(tail.next_chunk(100).unwrap().event, Some(TailEvent::Removed));
        assert_eq!(tail.next_chunk(100).unwrap().event, None);
    });
}

#[test]
fn refuses_what_is_not_a_log() {
    with_each_resolver(|stage| {
        let path = stage.guest("workspace/log");
        let mut tail = stage.session.workspace().tail("log").unwrap();
        symlink(stage.home.path().join(".ssh/id_rsa"), &path).unwrap();
        assert_eq!(tail.next_chunk(100).unwrap_err().kind(), ErrorKind::Symlink);
        fs::remove_file(&path).unwrap();
        fifo(&path);
        assert_eq!(tail.next_chunk(100).unwrap_err().kind(), ErrorKind::NotRegular);
        assert!(stage.session.workspace().tail("../log").is_err());
    });
}

#[cfg(feature = "serde")]
#[test]
fn a_position_can_be_kept_as_text() {
    with_each_resolver(|stage| {
        fs::write(stage.guest("workspace/log"), "one").unwrap();
        let workspace = stage.session.workspace();
        let mut tail = workspace.tail("log").unwrap();
        assert_eq!(tail.next_chunk(2).unwrap().bytes, b"on");
        let kept = serde_json::to_string(&tail.position()).unwrap();
        let position = serde_json::from_str(&kept).unwrap();
        assert_eq!(tail.position(), position);
        assert_eq!(workspace.tail("log").unwrap().resume(position).next_chunk(9).unwrap().bytes, b"e");
    });
}
