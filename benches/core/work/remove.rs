//! Removal of trees.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use beneath_kit::bench::{Ground, Line, OURS, RAW, Ways};
use rustix::fs::{AtFlags, FileType, Mode, RawDir, openat2, unlinkat};

use super::{BENEATH, DIRECTORY, capped, hold, ours};

/// How many directories, what is in each before the files, and how many files.
type Tree = (usize, &'static str, usize);
pub(super) const SQUARE: Tree = (100, "", 100);
pub(super) const DEEP: Tree = (2000, "a/b", 5);
pub(super) const WIDE: Tree = (1, "", 20_000);

pub(super) fn remove(ground: &Ground, (outer, between, inner): Tree) -> Ways {
    let dir = &ground.dir;
    let (outer, inner) = (ground.size(outer), ground.size(inner));
    let removing = |name: &'static str, mut call: Box<dyn FnMut(&Path)>| {
        let top = dir.join("top");
        Line::new(name, move |watch| {
            for number in 0..outer {
                let dir = top.join(format!("d{number}")).join(between);
                fs::create_dir_all(&dir).unwrap();
                (0..inner).for_each(|number| drop(fs::File::create(dir.join(format!("f{number}"))).unwrap()));
            }
            let taken = watch.over(|| call(&top));
            assert!(!top.exists());
            taken
        })
    };
    let (raw, root, cap) = (hold(dir), ours(dir), capped(dir));
    let other = pathrs::Root::open(dir).unwrap();
    Ok(vec![
        removing("std", Box::new(|top| fs::remove_dir_all(top).unwrap())),
        removing(RAW, Box::new(move |_| raw_remove(&raw, c"top".to_owned()))),
        removing(OURS, Box::new(move |_| assert!(root.remove_tree_contained("top").unwrap().is_complete()))),
        removing("cap-std", Box::new(move |_| cap.remove_dir_all("top").unwrap())),
        removing("pathrs", Box::new(move |_| other.remove_all("top").unwrap())),
        removing("remove_dir_all", Box::new(|top| remove_dir_all::remove_dir_all(top).unwrap())),
        removing(
            "rm -rf",
            Box::new(|top| assert!(Command::new("rm").arg("-rf").arg(top).status().unwrap().success())),
        ),
    ])
}

fn raw_remove(parent: impl AsFd, name: CString) {
    let dir = openat2(&parent, &name, DIRECTORY, Mode::empty(), BENEATH).unwrap();
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        match (entry.file_name().to_bytes(), entry.file_type()) {
            (b"." | b"..", _) => {}
            (_, FileType::Directory) => raw_remove(&dir, entry.file_name().to_owned()),
            _ => unlinkat(&dir, entry.file_name(), AtFlags::empty()).unwrap(),
        }
    }
    unlinkat(&parent, &name, AtFlags::REMOVEDIR).unwrap();
}
