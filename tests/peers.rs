//! What the usual ways to use a directory do when a guest strikes between two steps of the host.
//!
//! The README's comparison refers to these tests. Each lets the guest act at a fixed point, so nothing depends on timing,
//! and each asserts what every peer does: if one gets better, the test fails and the table is to be changed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use beneath::{Budget, ErrorKind, Root, ambient_authority};
use cap_std::fs::Dir;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::{NamedTempFile, TempDir};

const SECRET: &str = "the host's secret";
const DESCRIPTORS: u64 = 64;
const LEVELS: usize = 200;

/// A directory that a guest writes, beside one that it must not reach.
struct Place {
    place: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("root/inbox")).unwrap();
        fs::write(place.path().join("root/inbox/file"), "of the guest").unwrap();
        fs::create_dir(place.path().join("outside")).unwrap();
        fs::write(place.path().join("outside/file"), SECRET).unwrap();
        Self { place }
    }

    fn root(&self) -> PathBuf {
        self.place.path().join("root")
    }

    fn outside(&self) -> PathBuf {
        self.place.path().join("outside")
    }

    /// The guest exchanges its directory for a link that leads out.
    fn swap(&self) {
        fs::rename(self.root().join("inbox"), self.root().join("aside")).unwrap();
        symlink(self.outside(), self.root().join("inbox")).unwrap();
    }

    fn cap_std(&self) -> Dir {
        Dir::open_ambient_dir(self.root(), cap_std::ambient_authority()).unwrap()
    }

    fn pathrs(&self) -> pathrs::Root {
        pathrs::Root::open(self.root()).unwrap()
    }

    fn beneath(&self) -> Root {
        Root::open_ambient(self.root(), ambient_authority()).unwrap()
    }
}

fn read_by_pathrs(root: &pathrs::Root, path: &str) -> io::Result<String> {
    let mut text = String::new();
    let mut file = root.open_subpath(path, pathrs::flags::OpenFlags::O_RDONLY).map_err(io::Error::other)?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn a_link_swapped_in_after_the_check_leads_path_users_out_and_handle_users_nowhere() {
    let place = Place::new();
    let (path, root) = (place.root().join("inbox/file"), place.root().canonicalize().unwrap());
    let (cap_std, pathrs, beneath) = (place.cap_std(), place.pathrs(), place.beneath());

    // The check of strict-path, and of every host that checks a path and then uses it.
    assert!(path.canonicalize().unwrap().starts_with(&root));
    assert!(cap_std.metadata("inbox/file").unwrap().is_file());
    assert!(pathrs.resolve("inbox/file").is_ok());
    assert!(beneath.metadata("inbox/file").unwrap().is_file());
    place.swap();

    assert_eq!(fs::read_to_string(&path).unwrap(), SECRET, "std follows the link");
    let refused = cap_std.read_to_string("inbox/file").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "cap-std reports any escape so");
    // pathrs takes the link's text as a path inside the root, where there is no such file.
    read_by_pathrs(&pathrs, "inbox/file").unwrap_err();
    let refused = beneath.read_contained("inbox/file", 1024).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Symlink);
}

#[test]
fn a_link_swapped_in_before_publishing_makes_tempfile_write_outside() {
    let place = Place::new();
    let mut draft = NamedTempFile::new_in(place.root()).unwrap();
    draft.write_all(b"a report").unwrap();
    let beneath = place.beneath();
    let mut ours = beneath.new_file("inbox/ours").unwrap();
    ours.write_all(b"a report").unwrap();
    place.swap();

    draft.persist_noclobber(place.root().join("inbox/theirs")).unwrap();
    assert!(place.outside().join("theirs").exists(), "tempfile goes by path");
    ours.commit().unwrap();
    assert!(!place.outside().join("ours").exists());
    assert!(place.root().join("aside/ours").exists(), "the directory that was opened, wherever it is now");
}

#[test]
fn a_fifo_makes_all_but_beneath_wait_for_the_guest() {
    let place = Place::new();
    let fifo = place.root().join("inbox/fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();

    let (path, cap_std, pathrs) = (fifo.clone(), place.cap_std(), place.pathrs());
    assert_eq!(fed_by_the_guest(&fifo, move || fs::read_to_string(path)).unwrap(), "at last");
    assert_eq!(fed_by_the_guest(&fifo, move || cap_std.read_to_string("inbox/fifo")).unwrap(), "at last");
    assert_eq!(fed_by_the_guest(&fifo, move || read_by_pathrs(&pathrs, "inbox/fifo")).unwrap(), "at last");
    let beneath = place.beneath();
    let refused = fed_by_the_guest(&fifo, move || beneath.read_contained("inbox/fifo", 1024)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotRegular);
}

/// Runs `read` while a guest writes to the FIFO, as soon as somebody has it open for reading and not before. What was
/// written is returned only by a reader that waited for the guest.
fn fed_by_the_guest<T: Send + 'static>(fifo: &Path, read: impl FnOnce() -> T + Send + 'static) -> T {
    let reader = thread::spawn(read);
    while !reader.is_finished() {
        // ENXIO until there is a reader.
        match rustix::fs::open(fifo, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
            Ok(guest) => {
                File::from(guest).write_all(b"at last").unwrap();
                break;
            }
            Err(Errno::NXIO) => thread::yield_now(),
            Err(errno) => panic!("the guest cannot write: {errno}"),
        }
    }
    reader.join().unwrap()
}

#[test]
fn a_hard_link_to_a_host_file_is_read_by_all_but_beneath() {
    let place = Place::new();
    let path = place.root().join("inbox/linked");
    fs::hard_link(place.outside().join("file"), &path).unwrap();

    assert_eq!(fs::read_to_string(&path).unwrap(), SECRET);
    assert_eq!(place.cap_std().read_to_string("inbox/linked").unwrap(), SECRET);
    assert_eq!(read_by_pathrs(&place.pathrs(), "inbox/linked").unwrap(), SECRET);
    let refused = place.beneath().read_contained("inbox/linked", 1024).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HardLinked);
}

#[test]
fn a_new_file_is_seen_before_it_is_complete_unless_it_is_published() {
    let place = Place::new();
    let content = |name: &str| fs::read_to_string(place.root().join("inbox").join(name)).ok();

    let mut file = File::create_new(place.root().join("inbox/std")).unwrap();
    file.write_all(b"the first half").unwrap();
    assert_eq!(content("std").as_deref(), Some("the first half"));

    let mut options = cap_std::fs::OpenOptions::new();
    let mut file = place.cap_std().open_with("inbox/cap-std", options.write(true).create_new(true)).unwrap();
    file.write_all(b"the first half").unwrap();
    assert_eq!(content("cap-std").as_deref(), Some("the first half"));

    let (flags, mode) = (pathrs::flags::OpenFlags::O_WRONLY, fs::Permissions::from_mode(0o600));
    let exclusive = flags | pathrs::flags::OpenFlags::O_EXCL;
    let mut file = place.pathrs().create_file("inbox/pathrs", exclusive, &mode).unwrap();
    file.write_all(b"the first half").unwrap();
    assert_eq!(content("pathrs").as_deref(), Some("the first half"));

    let mut file = NamedTempFile::new_in(place.root().join("inbox")).unwrap();
    file.write_all(b"the first half").unwrap();
    assert_eq!(content("tempfile"), None);
    file.persist_noclobber(place.root().join("inbox/tempfile")).unwrap();
    assert_eq!(content("tempfile").as_deref(), Some("the first half"));

    let beneath = place.beneath();
    let mut file = beneath.new_file("inbox/beneath").unwrap();
    file.write_all(b"the first half").unwrap();
    assert_eq!(content("beneath"), None);
    file.write_all(b" and the second").unwrap();
    file.commit().unwrap();
    assert_eq!(content("beneath").as_deref(), Some("the first half and the second"));
}

#[test]
fn a_tree_deeper_than_the_descriptors_is_removed_by_beneath_only() {
    let name = "removes_with_few_descriptors";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&child.stderr)
    );
}

#[test]
#[ignore = "limits the descriptors of its whole process, so the test above runs it in one of its own"]
fn removes_with_few_descriptors() {
    let place = Place::new();
    let doomed = place.root().join("doomed");
    let deep: PathBuf = std::iter::repeat_n("d", LEVELS).collect();
    fs::create_dir_all(doomed.join(&deep)).unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..before }).unwrap();

    let too_many = |error: io::Error| error.raw_os_error() == Some(Errno::MFILE.raw_os_error());
    assert!(too_many(fs::remove_dir_all(&doomed).unwrap_err()), "std, and so tempfile and strict-path");
    assert!(too_many(place.cap_std().remove_dir_all("doomed").unwrap_err()), "cap-std");
    // pathrs 0.2.6 returns an error or panics, by which of its calls the descriptors run out.
    let pathrs = std::panic::catch_unwind(|| place.pathrs().remove_all("doomed").map_err(drop));
    assert!(!matches!(pathrs, Ok(Ok(()))), "pathrs");
    assert!(doomed.join(&deep).is_dir());
    let removed = place.beneath().remove_tree_contained_within("doomed", Budget::unlimited()).unwrap();
    assert!(removed.is_complete() && !doomed.exists());
    setrlimit(Resource::Nofile, before).unwrap();
}
