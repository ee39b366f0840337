//! `GuestPath` and `MountPoint` against the oracle.
//!
//! The input is texts with a line feed and 0xFF between them: the path, then mount points. The byte 0xFE means a thousand
//! bytes of long components, so that short inputs reach the longest path.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use beneath::{ErrorKind, GuestPath, MountPoint, Spelling};
use beneath_fuzz::oracle::{refusal, spelling as oracle};
use beneath_fuzz::{agreed, check_shown, stretched};
use libfuzzer_sys::fuzz_target;

const BETWEEN: &[u8] = b"\n\xff";

fuzz_target!(|input: &[u8]| {
    let input = stretched(input);
    let mut texts = texts(&input).into_iter();
    let raw = texts.next().unwrap_or_default();
    let mounts: Vec<MountPoint> = texts.filter_map(mount).collect();
    if let Some(path) = agreed(GuestPath::try_from(raw), oracle::is_plain(raw), refusal(raw)) {
        parts(&path, raw);
    }
    let paths: Vec<&str> = mounts.iter().map(MountPoint::as_str).collect();
    spelled(raw, &mounts, Spelling::Lenient, oracle::lenient(raw, &paths));
    spelled(raw, &mounts, Spelling::Strict, oracle::strict(raw, &paths));
});

fn texts(input: &[u8]) -> Vec<&[u8]> {
    let mut texts = Vec::new();
    let mut rest = input;
    while let Some(end) = rest.windows(BETWEEN.len()).position(|bytes| bytes == BETWEEN) {
        texts.push(&rest[..end]);
        rest = &rest[end + BETWEEN.len()..];
    }
    texts.push(rest);
    texts
}

/// A mount point, if `raw` is one, and it is then what the components of `raw` say.
fn mount(raw: &[u8]) -> Option<MountPoint> {
    let raw = str::from_utf8(raw).ok()?;
    let parts: Vec<&str> = raw.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let normal = format!("/{}", parts.join("/"));
    let fine = raw.starts_with('/') && !raw.contains('\0') && !parts.contains(&"..") && normal.len() < 4096;
    let mount = agreed(MountPoint::new(raw), fine, ErrorKind::InvalidPath)?;
    assert_eq!(mount.as_str(), normal, "{raw:?}");
    Some(mount)
}

fn parts(path: &GuestPath, raw: &[u8]) {
    assert_eq!(path.as_bytes(), raw);
    let shown = path.to_string();
    assert!(shown.len() < 1 << 16 && !shown.contains(char::is_control), "{shown:?}");
    let together = path.components().try_fold(GuestPath::top(), |above, name| above.join(name));
    assert_eq!(together.as_ref(), Ok(path));
    if let Some(parent) = path.parent() {
        assert!(path.starts_with(&parent) && !parent.starts_with(path));
        let last = path.strip_prefix(&parent).expect("a path lies under its parent");
        assert_eq!(last.file_name(), path.file_name());
        assert_eq!(parent.join(&last).as_ref(), Ok(path));
    }
}

fn spelled(raw: &[u8], mounts: &[MountPoint], spelling: Spelling, expected: Result<Vec<u8>, ErrorKind>) {
    let read = GuestPath::parse(OsStr::from_bytes(raw), mounts, spelling);
    match (&read, &expected) {
        (Ok(path), Ok(bytes)) => assert_eq!(path.as_bytes(), bytes, "{raw:?} under {mounts:?}"),
        (Err(error), Err(kind)) => assert_eq!(error.kind(), *kind, "{raw:?} under {mounts:?}"),
        _ => panic!("{raw:?} under {mounts:?}: {read:?}, and not {expected:?}"),
    }
    match read {
        Ok(path) => {
            assert!(oracle::is_plain(path.as_bytes()));
            for mount in mounts {
                let under =
                    GuestPath::parse(mount.join(&path), mounts, Spelling::Strict).expect("it is strict");
                // A longer mount point may have taken the first components.
                assert!(under.is_top() || path.as_bytes().ends_with(under.as_bytes()), "{under} of {path}");
            }
        }
        Err(error) => check_shown(&error),
    }
}
