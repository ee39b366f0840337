//! Writes of new files.

use std::fs::{self, File};
use std::io::Write as _;

use beneath_kit::bench::{Ground, Line, OURS, RAW, Ways};
use pathrs::flags::OpenFlags;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, linkat, openat};

use super::{capped, hold, ours, sealed};

pub(super) fn write(ground: &Ground, size: usize) -> Ways {
    let dir = &ground.dir;
    let bytes: &'static [u8] = Box::leak(vec![7; size].into_boxed_slice());
    // A fresh name each time; the directory is emptied outside of the timing.
    let writing = |name: &'static str, mut call: Box<dyn FnMut(&str)>| {
        let empty = {
            let dir = dir.clone();
            move || {
                fs::read_dir(&dir).unwrap().for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap())
            }
        };
        Line::many_after(name, ground, || {}, move |number| call(&format!("f{number}")), empty)
    };
    let (plain, raw, root) = (dir.clone(), hold(dir), ours(dir));
    let (cap, temporary, named) = (capped(dir), capped(dir), dir.clone());
    let other = pathrs::Root::open(dir).unwrap();
    let mut lines = vec![
        writing(
            "std, not atomic",
            Box::new(move |name| File::create_new(plain.join(name)).unwrap().write_all(bytes).unwrap()),
        ),
        writing(
            RAW,
            Box::new(move |name| {
                let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
                let file = openat(&raw, ".", flags, Mode::RUSR | Mode::WUSR).unwrap();
                assert_eq!(rustix::io::write(&file, bytes).unwrap(), bytes.len());
                fchmod(&file, Mode::RUSR | Mode::WUSR).unwrap();
                linkat(&file, "", &raw, name, AtFlags::EMPTY_PATH).unwrap();
            }),
        ),
        writing(OURS, Box::new(move |name| root.write_exclusive(name, bytes).unwrap())),
        writing(
            "cap-std, not atomic",
            Box::new(move |name| {
                let mut options = cap_std::fs::OpenOptions::new();
                cap.open_with(name, options.write(true).create_new(true)).unwrap().write_all(bytes).unwrap();
            }),
        ),
        writing(
            "cap-tempfile",
            Box::new(move |name| {
                let mut file = cap_tempfile::TempFile::new(&temporary).unwrap();
                file.write_all(bytes).unwrap();
                file.replace(name).unwrap();
            }),
        ),
        writing(
            "tempfile",
            Box::new(move |name| {
                let mut file = tempfile::NamedTempFile::new_in(&named).unwrap();
                file.write_all(bytes).unwrap();
                file.persist_noclobber(named.join(name)).unwrap();
            }),
        ),
        writing(
            "pathrs, not atomic",
            Box::new(move |name| {
                let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                let flags = OpenFlags::O_WRONLY | OpenFlags::O_EXCL;
                other.create_file(name, flags, &permissions).unwrap().write_all(bytes).unwrap();
            }),
        ),
    ];
    if let Ok(root) = sealed(ground) {
        lines.push(writing(
            "beneath, sealed",
            Box::new(move |name| root.write_exclusive(name, bytes).unwrap()),
        ));
    }
    Ok(lines)
}
