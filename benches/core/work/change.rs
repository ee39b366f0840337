//! Names and modes.

use std::fs;
use std::path::Path;

use beneath::{Access, Execute};
use beneath_kit::bench::{Ground, Line, OURS, RAW, Ways};
use rustix::fs::{AtFlags, Mode, RenameFlags, fstat, openat2, renameat_with};

use super::{BENEATH, FromTo, PIN, capped, hold, ours};

/// Moves a file to a name that is free, in the same directory.
pub(super) fn rename(ground: &Ground) -> Ways {
    let dir = &ground.dir;
    let renaming = |name: &'static str, mut call: FromTo<str>| {
        let [mut from, mut to] = [".a", ".b"].map(|end| format!("{}{end}", name.replace(' ', "-")));
        fs::write(dir.join(&from), "x").unwrap();
        Line::many(name, ground, move || {
            call(&from, &to);
            std::mem::swap(&mut from, &mut to);
        })
    };
    let (plain, raw, root, cap) = (dir.clone(), hold(dir), ours(dir), capped(dir));
    let other = pathrs::Root::open(dir).unwrap();
    Ok(vec![
        renaming(
            "std, would replace",
            Box::new(move |from, to| fs::rename(plain.join(from), plain.join(to)).unwrap()),
        ),
        renaming(
            RAW,
            Box::new(move |from, to| {
                renameat_with(&raw, from, &raw, to, RenameFlags::NOREPLACE).unwrap();
            }),
        ),
        renaming(OURS, Box::new(move |from, to| root.rename(from, to).unwrap())),
        renaming("cap-std, would replace", Box::new(move |from, to| cap.rename(from, &cap, to).unwrap())),
        renaming(
            "pathrs",
            Box::new(move |from, to| {
                other.rename(from, to, pathrs::flags::RenameFlags::RENAME_NOREPLACE).unwrap();
            }),
        ),
    ])
}

/// The bare syscalls only look how many names the file has.
const PROOF: &[(&str, &str)] = &[
    ("statx", "the proof that the file has no other name, and that the mode stayed"),
    (
        "renameat2",
        "the same proof: the file is moved to its own name, which ends a race with the guest's unlink",
    ),
    ("listxattr", "access control lists are looked for, before and after"),
    ("openat", "the directory of descriptors of this thread"),
    ("fstatfs", "that this is procfs"),
    ("newfstatat", "that it leads to this very file"),
    ("fstat", "the same"),
    ("close", "the same directory"),
];

/// Changes the mode of a file back and forth.
pub(super) fn set_access(ground: &Ground) -> Ways {
    let dir = &ground.dir;
    let changing = |name: &'static str, mut call: Box<dyn FnMut(u32)>| {
        let mut turn = 0_u32;
        Line::many(name, ground, move || {
            turn += 1;
            call(if turn.is_multiple_of(2) { 0o600 } else { 0o640 });
        })
    };
    ["f", "same"].iter().for_each(|name| fs::write(dir.join(name), "x").unwrap());
    let (path, raw, root, unchanged, cap) = (dir.join("f"), hold(dir), ours(dir), ours(dir), capped(dir));
    let descriptors = hold(Path::new("/proc/self/fd"));
    Ok(vec![
        changing(
            "std",
            Box::new(move |mode| {
                let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
                fs::set_permissions(&path, permissions).unwrap();
            }),
        ),
        changing(
            RAW,
            Box::new(move |mode| {
                let pin = openat2(&raw, "f", PIN, Mode::empty(), BENEATH).unwrap();
                assert_eq!(fstat(&pin).unwrap().st_nlink, 1);
                let number = rustix::path::DecInt::from_fd(&pin);
                rustix::fs::chmodat(&descriptors, number, Mode::from_raw_mode(mode), AtFlags::empty())
                    .unwrap();
            }),
        ),
        changing(
            OURS,
            Box::new(move |mode| {
                root.set_access("f", Access::custom(mode, 0o700), Execute::Clear).unwrap();
            }),
        )
        .besides(PROOF),
        changing(
            "beneath, unchanged",
            Box::new(move |_| {
                unchanged.set_access("same", Access::custom(0o644, 0o700), Execute::Clear).unwrap();
            }),
        ),
        changing(
            "cap-std",
            Box::new(move |mode| {
                use cap_std::fs::PermissionsExt as _;
                cap.set_permissions("f", cap_std::fs::Permissions::from_mode(mode)).unwrap();
            }),
        ),
    ])
}
