//! Reads of a small file.

use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use beneath::{HardLinks, Policy};
use beneath_kit::bench::{Ground, Line, OURS, RAW, Ways};
use pathrs::flags::OpenFlags;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, openat2};

use super::{BENEATH, PIN, READ, capped, hold, ours, sealed};

const SIZE: usize = 1024;
const LIMIT: u64 = 1 << 20;

/// Waits until a file that was just made is read as one that has not just changed, which has a line of its own.
pub(super) fn get_old() {
    std::thread::sleep(Duration::from_millis(2200));
}

/// What the root of this crate and the bare syscalls is on.
pub(super) enum Mount {
    AsIs,
    Sealed,
}

pub(super) fn read(ground: &Ground, depth: usize, mount: Mount) -> Ways {
    let dir = &ground.dir;
    let path: &'static str = Box::leak(format!("{}f", "d/".repeat(depth - 1)).into_boxed_str());
    let absolute = dir.join(path);
    fs::create_dir_all(absolute.parent().unwrap()).unwrap();
    fs::write(&absolute, [7; SIZE]).unwrap();
    get_old();
    let many = |name: &'static str, call: Box<dyn FnMut()>| Line::many(name, ground, call);

    let (root, is_nodev) = match mount {
        Mount::AsIs => (ours(dir), ground.is_nodev()),
        Mount::Sealed => (sealed(ground)?, true),
    };
    let held = root.as_fd().try_clone_to_owned().unwrap();
    let (cap, other) = (capped(dir), pathrs::Root::open(dir).unwrap());
    let plain = absolute.clone();
    let mut lines = vec![
        many("std", Box::new(move || assert_eq!(fs::read(&plain).unwrap().len(), SIZE))),
        many(RAW, raw(held, path, is_nodev)),
        many(OURS, Box::new(move || assert_eq!(root.read_contained(path, LIMIT).unwrap().len(), SIZE))),
        many("cap-std", Box::new(move || assert_eq!(cap.read(path).unwrap().len(), SIZE))),
        many(
            "pathrs",
            Box::new(move || {
                let mut bytes = Vec::new();
                let mut file = other.open_subpath(path, OpenFlags::O_RDONLY).unwrap();
                file.read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes.len(), SIZE);
            }),
        ),
    ];
    if matches!(mount, Mount::AsIs) {
        let strict = ours(dir).with_policy(Policy::default().with_hard_links(HardLinks::RefuseStrict));
        let call = move || assert_eq!(strict.read_contained(path, LIMIT).unwrap().len(), SIZE);
        lines.push(many("beneath, strict", Box::new(call)));
        lines.push(just_changed(ground, &absolute, format!("{path}.recent")));
    }
    if !is_nodev {
        lines.extend(never_a_device(ground, path));
    }
    Ok(lines)
}

fn raw(root: OwnedFd, path: &'static str, is_nodev: bool) -> Box<dyn FnMut()> {
    let descriptors = hold(Path::new("/proc/self/fd"));
    Box::new(move || {
        let (file, found) = open(&root, &descriptors, path, is_nodev);
        assert_eq!(read_all(&file, found.st_size as usize), SIZE);
        // Once more: what is another file, has changed or has got another name meanwhile is not returned.
        let after = fstat(&file).unwrap();
        assert_eq!((after.st_ino, after.st_ctime, after.st_nlink), (found.st_ino, found.st_ctime, 1));
    })
}

/// Opens a regular file; where there may be devices it is pinned and looked at first, and then that very inode is opened.
pub(super) fn open(root: &OwnedFd, descriptors: &OwnedFd, path: &str, is_nodev: bool) -> (OwnedFd, Stat) {
    let flags = if is_nodev { READ } else { PIN };
    let found = openat2(root, path, flags | OFlags::NOFOLLOW, Mode::empty(), BENEATH).unwrap();
    let stat = fstat(&found).unwrap();
    if is_nodev {
        return (found, stat);
    }
    let file = openat(descriptors, rustix::path::DecInt::from_fd(&found), READ, Mode::empty()).unwrap();
    (file, stat)
}

fn read_all(fd: impl AsFd, size: usize) -> usize {
    let mut bytes = Vec::with_capacity(size + 1);
    // Less than there is room for, so that it is all there is.
    assert_eq!(rustix::io::read(&fd, rustix::buffer::spare_capacity(&mut bytes)).unwrap(), size);
    bytes.len()
}

/// The file is changed before every stretch, so that it never gets old.
fn just_changed(ground: &Ground, path: &Path, relative: String) -> Line {
    let file = fs::File::create(path.with_file_name("f.recent")).unwrap();
    let root = ours(&ground.dir);
    let change = move || file.set_len(SIZE as u64).unwrap();
    let call = move |_| assert_eq!(root.read_contained(&relative, LIMIT).unwrap().len(), SIZE);
    Line::many_after("beneath, just changed", ground, change, call, || {})
}

/// What it takes the others never to open a device node, which their plain lines do not prevent.
fn never_a_device(ground: &Ground, path: &'static str) -> [Line; 2] {
    use cap_std::fs::OpenOptionsExt as _;
    let (cap, other) = (capped(&ground.dir), pathrs::Root::open(&ground.dir).unwrap());
    [
        Line::many("cap-std, pinned", ground, move || {
            let mut options = cap_std::fs::OpenOptions::new();
            options.read(true).custom_flags((OFlags::PATH | OFlags::NOFOLLOW).bits() as i32);
            let pin = cap.open_with(path, &options).unwrap();
            assert!(pin.metadata().unwrap().is_file());
            let own = format!("/proc/self/fd/{}", pin.as_raw_fd());
            let file = openat(CWD, own, READ, Mode::empty()).unwrap();
            assert_eq!(read_all(&file, SIZE), SIZE);
        }),
        Line::many("pathrs, pinned", ground, move || {
            let pin = other.resolve(path).unwrap();
            assert!(FileType::from_raw_mode(fstat(&pin).unwrap().st_mode).is_file());
            let mut bytes = Vec::new();
            pin.reopen(OpenFlags::O_RDONLY | OpenFlags::O_NONBLOCK).unwrap().read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len(), SIZE);
        }),
    ]
}
