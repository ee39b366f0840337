//! What real tools leave in a workspace survives: every entry is listed, read, copied to another session, sent, renamed and
//! removed, and the copy is as good as the original.
//!
//! A tool or a network that is missing makes its test skip, unless `BENEATH_REAL_TREE` is set.
#![cfg(feature = "session")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test says where")]

mod survives;
mod yard;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use beneath::{ErrorKind, TreeOptions};
use beneath_kit::tools::{self, Tool, succeeds};
use beneath_kit::{Likeness, is_root, odd, skip};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use survives::survives;
use yard::Yard;

#[test]
fn a_clone_of_a_repository_survives() {
    let Some(git) = Tool::find("git", &["--version"]) else { return };
    let yard = Yard::new();
    tools::clone_repository(&git, &yard.beside("origin"), &yard.workspace().join("repo"));
    survives(&yard, |copy| tools::repository_works(&git, &copy.join("repo")));
}

#[test]
fn installed_packages_survive() {
    let Some(npm) = Tool::find("npm", &["--version"]) else { return };
    let yard = Yard::new();
    let project = yard.workspace().join("project");
    if !tools::install_packages(&npm, &project, &yard.beside("npm")) {
        return;
    }
    let bin = project.join("node_modules/.bin/semver");
    assert!(fs::symlink_metadata(&bin).unwrap().is_symlink(), "the packages have no links in .bin");
    survives(&yard, |copy| tools::packages_work(&npm, &copy.join("project"), &yard.beside("npm")));
}

#[test]
fn a_virtual_environment_survives() {
    let Some(python) = Tool::find("python3", &["-c", "import venv"]) else { return };
    let yard = Yard::new();
    let venv = yard.workspace().join("venv");
    succeeds(&mut python.at(&yard.workspace(), &["-m", "venv", "--symlinks", "--without-pip", "venv"]));
    let outside = |path: &Path| fs::read_link(path).is_ok_and(|text| text.is_absolute());
    let mut links = fs::read_dir(venv.join("bin")).unwrap().map(|entry| entry.unwrap().path());
    assert!(links.any(|path| outside(&path)), "no link leads to the interpreter");
    survives(&yard, |copy| tools::environment_works(&copy.join("venv")));
}

#[test]
fn the_output_of_a_build_survives() {
    let Some(cargo) = Tool::find(env!("CARGO"), &["--version"]) else { return };
    let yard = Yard::new();
    let package = yard.workspace().join("tiny");
    tools::build_package(&cargo, &package);
    let program = fs::metadata(package.join("target/debug/tiny")).unwrap();
    assert!(program.nlink() > 1, "cargo gives its programs a second name in the same tree");
    survives(&yard, |copy| {
        tools::build_works(&copy.join("tiny"));
        let copied = fs::metadata(copy.join("tiny/target/debug/tiny")).unwrap();
        assert_eq!(copied.nlink(), 1, "each name has a file of its own");
    });
}

#[test]
fn every_name_and_mode_and_link_that_linux_allows_survives() {
    let yard = Yard::new();
    odd::names(&yard.workspace().join("names"));
    odd::long_names(&yard.workspace().join("names"));
    odd::modes(&yard.workspace().join("modes"));
    odd::links(&yard.workspace().join("links"));
    odd::sizes(&yard.workspace().join("sizes"));
    let (one, two) = (yard.one.workspace(), yard.two.workspace());
    let kept = one.copy_tree_to("modes", &two, "kept", TreeOptions::default().keep_modes()).unwrap();
    assert!(kept.is_complete(), "{:?}", kept.left);
    let exactly = |path: &Path| Likeness::of(path, 0o777);
    exactly(&yard.workspace().join("modes"))
        .assert_same(&exactly(&yard.copy().join("kept")), "with its modes");
    assert!(two.remove_tree_contained("kept").unwrap().is_complete());
    survives(&yard, |_| {});
}

#[test]
fn directories_deeper_than_any_path_survive() {
    let yard = Yard::new();
    odd::deep(&yard.workspace().join("deep"));
    survives(&yard, |_| {});
}

#[test]
fn pipes_sockets_and_devices_are_reported_and_not_copied() {
    let yard = Yard::new();
    let workspace = yard.workspace();
    fs::create_dir(workspace.join("special")).unwrap();
    fs::write(workspace.join("special/file"), "x").unwrap();
    let node = |name: &str, kind, device| {
        mknodat(CWD, workspace.join("special").join(name), kind, Mode::from_raw_mode(0o600), device)
    };
    node("pipe", FileType::Fifo, 0).unwrap();
    drop(UnixListener::bind(workspace.join("special/socket")).unwrap());
    let mut expected = vec!["special/pipe", "special/socket"];
    if is_root() && node("device", FileType::CharacterDevice, makedev(1, 3)).is_ok() {
        expected.insert(0, "special/device");
    } else {
        skip("the device: this user may make none");
    }
    let options = TreeOptions::default().into_existing();
    let copied = yard.one.workspace().copy_tree_to("", &yard.two.workspace(), "", options).unwrap();
    let mut left: Vec<_> =
        copied.refused().map(|(path, error)| (path.to_str().unwrap(), error.kind())).collect();
    left.sort_by_key(|(path, _)| *path);
    assert_eq!(left, expected.into_iter().map(|path| (path, ErrorKind::NotRegular)).collect::<Vec<_>>());
    assert_eq!(fs::read_dir(yard.copy().join("special")).unwrap().count(), 1);
    assert!(yard.one.workspace().remove_tree_contained("special").unwrap().is_complete());
}
