//! The suite on other file systems, each mounted for the purpose. Takes root, and `BENEATH_FILESYSTEMS=1` (or names, as
//! `xfs,fuse`) since it is the whole suite again for each.

use std::path::{Path, PathBuf};
use std::process::Command;

use beneath::{Budget, Root, ambient_authority};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, openat, renameat_with};
use tempfile::TempDir;

use beneath_kit::child::{self, rerun};
use beneath_kit::env::FILESYSTEMS;
use beneath_kit::namespace::with_private_mounts;
use beneath_kit::{Arena, kind, skip};

/// A file system to mount: how it is made in a scratch directory, and where it is then found.
struct FileSystem {
    name: &'static str,
    make: fn(&Path) -> Option<PathBuf>,
    /// Tests that it cannot pass, for the reasons beside them.
    except: &'static [&'static str],
}

/// A FUSE daemon works with paths, has no unnamed files, and lets the kernel cache what it reports for a second.
const NOT_ON_FUSE: &[&str] = &[
    "deep_trees",                     // no path is longer than 4095 bytes
    "longest_forms",                  // likewise, the daemon's own prefix included
    "a_root_that_was_removed",        // a removed directory cannot even be listed
    "a_killed_writer_leaves_nothing", // it leaves its temporary name, as the docs say
    "class_p_a_crash_leaves_nothing", // likewise
    "writes_whole_files",             // std gets a link count from the cache; `read_contained` asks anew
    "a_link_gets_the_owner",          // likewise
    "a_copy_has_the_bytes",           // likewise
    "hard_links_are_copied",          // likewise
    "takes_what_a_reader_gives",      // a hidden name stays until the daemon hears of the close
    "takes_the_place_itself",         // it exchanges nothing
    "change_places",                  // likewise
    "get_the_times_that_are_given",   // it sets a time that is to be kept
    "times_before_the_epoch",         // likewise
    "holes_stay",                     // the daemon knows of no holes, so all of them would be read
];

/// What a file system can do, asked of it directly.
#[derive(Debug, PartialEq, Eq)]
struct Abilities {
    tmpfile: bool,
    no_replace: bool,
    hard_links: bool,
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Tests run as another user, too, and must get there.
fn open_to_all(dir: &Path, mode: u32) {
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

pub(crate) fn on_loop(scratch: &Path, megabytes: u64, make: &[&str]) -> Option<PathBuf> {
    let (image, point) = (scratch.join("image"), scratch.join("mount"));
    std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
    std::fs::create_dir(&point).unwrap();
    let (program, options) = make.split_first()?;
    let made = run(program, &[options, &[text(&image)]].concat());
    (made && run("mount", &["-o", "loop", text(&image), text(&point)])).then_some(point)
}

pub(crate) fn mount_kind(scratch: &Path, kind: &str, options: &str) -> Option<PathBuf> {
    let point = scratch.join("mount");
    std::fs::create_dir(&point).unwrap();
    run("mount", &["-t", kind, "-o", options, "none", text(&point)]).then_some(point)
}

/// Mounts what `make` makes in a scratch directory, and runs `body` there; prints why not where it cannot be had.
pub(crate) fn mounted(test: &str, make: fn(&Path) -> Option<PathBuf>, body: fn(&Path)) {
    child::run(test, || {
        with_private_mounts(|| {
            let scratch = TempDir::new().unwrap();
            let Some(point) = make(scratch.path()) else {
                return skip("the file system cannot be made or mounted here");
            };
            body(&point);
            let _ = run("umount", &["-R", "-l", text(&point)]);
        });
    });
}

fn overlay(scratch: &Path) -> Option<PathBuf> {
    let base = mount_kind(scratch, "tmpfs", "rw")?;
    let dirs = ["lower", "upper", "work", "merged"].map(|name| base.join(name));
    dirs.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let [lower, upper, work, merged] = dirs;
    let options = format!("lowerdir={},upperdir={},workdir={}", text(&lower), text(&upper), text(&work));
    run("mount", &["-t", "overlay", "-o", &options, "none", text(&merged)]).then_some(merged)
}

fn fuse(scratch: &Path) -> Option<PathBuf> {
    let (real, point) = (scratch.join("real"), scratch.join("mount"));
    std::fs::create_dir(&real).unwrap();
    std::fs::create_dir(&point).unwrap();
    open_to_all(&real, 0o1777);
    run("bindfs", &["-o", "allow_other,dev,suid", text(&real), text(&point)]).then_some(point)
}

const FILE_SYSTEMS: &[FileSystem] = &[
    FileSystem {
        name: "ext4",
        make: |at| on_loop(at, 512, &["mkfs.ext4", "-q", "-O", "^has_journal"]),
        except: &[],
    },
    FileSystem { name: "xfs", make: |at| on_loop(at, 512, &["mkfs.xfs", "-q", "-f"]), except: &[] },
    FileSystem { name: "btrfs", make: |at| on_loop(at, 512, &["mkfs.btrfs", "-q", "-f"]), except: &[] },
    FileSystem { name: "tmpfs", make: |at| mount_kind(at, "tmpfs", "rw"), except: &[] },
    FileSystem { name: "overlay", make: overlay, except: &[] },
    FileSystem { name: "fuse", make: fuse, except: NOT_ON_FUSE },
];

fn abilities(dir: &Path) -> Abilities {
    let name = |name: &str| dir.join(name);
    std::fs::write(name("a"), "a").unwrap();
    let temporary = openat(CWD, dir, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR);
    let found = Abilities {
        tmpfile: temporary.is_ok(),
        hard_links: linkat(CWD, name("a"), CWD, name("b"), AtFlags::empty()).is_ok(),
        no_replace: renameat_with(CWD, name("a"), CWD, name("c"), RenameFlags::NOREPLACE).is_ok(),
    };
    for left in ["a", "b", "c"] {
        let _ = std::fs::remove_file(name(left));
    }
    found
}

/// The file systems with these names, or all.
fn chosen(text: &str) -> Vec<&'static FileSystem> {
    let known: Vec<&str> = FILE_SYSTEMS.iter().map(|system| system.name).collect();
    let names: Vec<&str> = if text == "1" { known.clone() } else { text.split(',').map(str::trim).collect() };
    let unknown = names.iter().find(|name| !known.contains(name));
    assert!(unknown.is_none(), "{}={text}: {unknown:?} is none of {known:?}", FILESYSTEMS.name);
    FILE_SYSTEMS.iter().filter(|system| names.contains(&system.name)).collect()
}

#[test]
#[should_panic(expected = "is none of")]
fn a_misspelt_file_system_is_not_passed_over() {
    chosen("xfs,brtfs");
}

#[test]
fn suite_passes_on_other_file_systems() {
    if !FILESYSTEMS.is_set() {
        return skip("set BENEATH_FILESYSTEMS=1 to run the suite on every file system");
    }
    with_private_mounts(|| {
        for system in chosen(&FILESYSTEMS.text().unwrap_or_default()) {
            let scratch = TempDir::new().unwrap();
            let Some(point) = (system.make)(scratch.path()) else {
                skip(&format!("{} cannot be made or mounted here", system.name));
                continue;
            };
            open_to_all(&point, 0o1777);
            open_to_all(scratch.path(), 0o755);
            let found = abilities(&point);
            rerun(system.name, &[crate::NOT_AGAIN, system.except].concat(), |command| {
                command.env("TMPDIR", &point);
                if system.name == "fuse" {
                    // A child that another test starts holds open for a moment what this one has unlinked, and the daemon
                    // keeps that under a second name until then: `HardLinked`.
                    command.arg("--test-threads=1");
                }
            });
            println!("{}: passed; {found:?}", system.name);
            if system.name == "fuse" {
                assert!(!found.tmpfile, "the file system that is used as one without O_TMPFILE has it");
            }
            let _ = run("umount", &["-R", "-l", text(&point)]);
        }
    });
}

/// A guest without privileges can make both on btrfs. They can be entered, and nothing in them can be removed.
#[test]
fn read_only_subvolumes_are_left_at_once_and_the_rest_goes() {
    const TEST: &str = "filesystems::read_only_subvolumes_are_left_at_once_and_the_rest_goes";
    let make = |at: &Path| on_loop(at, 256, &["mkfs.btrfs", "-q", "-f"]);
    mounted(TEST, make, |point| {
        let arena = Arena::within(point);
        arena.dir("t").dir("source/d/e").file("t/a/f", "x").file("t/z/f", "x");
        for number in 0..500 {
            arena.file(format!("source/d/{number}"), "").file(format!("source/{number}/f"), "");
        }
        let [source, writable, read_only] =
            ["source-volume", "t/writable", "t/read-only"].map(|name| text(&arena.at(name)).to_owned());
        let made = run("btrfs", &["subvolume", "create", &source])
            && run("btrfs", &["subvolume", "create", &writable])
            && run("cp", &["-r", text(&arena.at("source")), &source])
            && run("btrfs", &["subvolume", "snapshot", "-r", &source, &read_only]);
        if !made {
            return skip("no subvolume can be made here");
        }
        arena.file("t/writable/f", "x");
        let root = Root::open_ambient(arena.root(), ambient_authority()).unwrap();
        let before = arena.snapshot();
        let refusal = kind(root.write_exclusive("t/read-only/new", ""));
        let removed = root.remove_tree_contained_within("t", Budget::unlimited().with_entries(100)).unwrap();
        assert!(!removed.is_complete() && removed.left.total < 10, "{removed:?}");
        assert!(removed.left.first.iter().all(|left| left.error.kind() == refusal), "{removed:?}");
        assert!(removed.left.first.iter().all(|left| left.subject.starts_with("read-only")), "{removed:?}");
        assert_eq!((removed.files, removed.directories), (3, 3), "{removed:?}");
        assert_eq!(arena.names("t").len(), 1);
        let kept = |path: &Path| path.starts_with("t/read-only");
        assert!(before.paths().filter(|path| kept(path)).all(|path| arena.has(path)));
        assert!(run("btrfs", &["property", "set", &read_only, "ro", "false"]));
        assert!(root.remove_tree_contained("t").unwrap().is_complete());
    });
}
