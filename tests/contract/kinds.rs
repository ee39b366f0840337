//! What is reported where the file system or a policy of the system is in the way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use beneath::{ErrorKind, Policy, Root, ambient_authority};
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _,
};
use rustix::mount::{MountFlags, mount, mount_remount};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use beneath_kit::child::wait_until;
use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::{Arena, for_each_resolver, is_root, kind, skip};

#[test]
fn a_read_only_file_system_is_not_a_full_one() {
    with_private_mounts(|| {
        for_each_resolver(|root, arena| {
            arena.dir("mnt");
            let point = arena.at("mnt");
            let mounted = mount("none", &point, "tmpfs", MountFlags::empty(), c"size=1m");
            if let Err(errno) = mounted {
                return skip(&format!("no mount: {errno}"));
            }
            let _mounted = Mounted([point.clone()]);
            fs::write(point.join("f"), "x").unwrap();
            fs::create_dir(point.join("d")).unwrap();
            // A child that another test forks holds this one's files until it has exec'd.
            wait_until("remount", Duration::from_secs(10), || {
                mount_remount(&point, MountFlags::RDONLY, c"").is_ok()
            });
            let inner = Root::open_ambient(&point, ambient_authority()).unwrap();
            let inner = inner.with_policy(root.policy().clone());
            let refused = inner.write_exclusive("new", "x").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ReadOnly);
            assert_eq!(refused.to_string(), r#"write "new": the file system is read-only"#);
            assert_eq!(std::io::Error::from(refused).kind(), std::io::ErrorKind::ReadOnlyFilesystem);
            assert_eq!(kind(inner.replace("f", "y")), ErrorKind::ReadOnly);
            assert_eq!(kind(inner.ensure_dir("e")), ErrorKind::ReadOnly);
            assert_eq!(kind(inner.rename("f", "g")), ErrorKind::ReadOnly);
            assert_eq!(kind(inner.remove_file("f")), ErrorKind::ReadOnly);
            assert_eq!(kind(inner.remove_dir("d")), ErrorKind::ReadOnly);
            assert_eq!(inner.read_contained("f", 9).unwrap(), b"x");
        });
    });
}

#[test]
fn a_directory_is_not_moved_into_itself() {
    for_each_resolver(|root, arena| {
        arena.dir("a/b").file("a/f", "x");
        let error = root.rename("a", "a/b/c").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath);
        assert_eq!(error.to_string(), r#"rename "a": cannot be moved into itself"#);
        let other = root.descend("a/b").unwrap();
        assert_eq!(kind(root.rename_to("a", &other, "c")), ErrorKind::InvalidPath);
        assert_eq!(fs::read_dir(arena.at("a/b")).unwrap().count(), 0, "nothing is left of the try");
    });
}

/// Forbids this thread to move anything from one directory to another, as a sandboxed host may be.
fn forbid_moves_between_directories() -> Result<(), String> {
    let all = AccessFs::from_all(ABI::V1);
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)
        .and_then(|ruleset| ruleset.create())
        .and_then(|ruleset| ruleset.add_rule(PathBeneath::new(PathFd::new("/").unwrap(), all)))
        .and_then(|ruleset| ruleset.restrict_self());
    restricted.map(drop).map_err(|error| error.to_string())
}

#[test]
fn a_move_that_landlock_forbids_is_denied_and_not_on_another_mount() {
    for_each_resolver(|root, arena| {
        arena.file("a/f", "x").dir("a/d").dir("b");
        std::thread::scope(|scope| {
            let forbidden = scope.spawn(|| -> Result<(), String> {
                forbid_moves_between_directories()?;
                for entry in ["f", "d"] {
                    let error = root.rename(format!("a/{entry}"), format!("b/{entry}")).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Denied);
                    let said = format!(r#"rename "a/{entry}": may not be moved between these directories"#);
                    assert_eq!(error.to_string(), said);
                }
                root.rename("a/f", "a/g").unwrap();
                Ok(())
            });
            if let Err(reason) = forbidden.join().unwrap() {
                skip(&format!("no Landlock: {reason}"));
            }
        });
        assert!(!arena.at("b/f").exists() && !arena.at("b/d").exists());
    });
}

/// A file system on an image, mounted by a daemon.
fn mounted_by(scratch: &Path, make: &[&str], daemon: &[&str]) -> Option<PathBuf> {
    let (image, point) = (scratch.join("image"), scratch.join("mount"));
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    fs::create_dir(&point).unwrap();
    let run = |program: &[&str], arguments: &[&Path]| {
        let output = Command::new(program[0]).args(&program[1..]).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    (run(make, &[&image]) && run(daemon, &[&image, &point])).then_some(point)
}

#[test]
fn a_file_system_without_exclusive_names_is_unsupported_and_not_forbidden() {
    if !is_root() {
        return skip("mounting needs privileges");
    }
    with_private_mounts(|| {
        let scratch = tempfile::tempdir().unwrap();
        let daemon = ["mount", "-t", "exfat-fuse", "-o", "loop"];
        let Some(point) = mounted_by(scratch.path(), &["mkfs.exfat"], &daemon) else {
            return skip("exfat-fuse or exfatprogs is missing");
        };
        let _mounted = Mounted([point.clone()]);
        fs::write(point.join("old"), "x").unwrap();
        let root = Root::open_ambient(&point, ambient_authority()).unwrap();
        let error = root.write_exclusive("new", "x").unwrap_err();
        // Either way may come with a later version of the daemon, and then there is nothing to see here.
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let said = "the file system has neither hard links nor a rename that does not replace";
        assert_eq!(error.to_string(), format!(r#"write "new": {said}"#));
        assert_eq!(kind(root.rename("old", "other")), ErrorKind::Unsupported);
        // A child that another test has just forked may still hold what was removed, and FUSE then hides it for so long.
        beneath_kit::child::wait_until("nothing is left of the tries", Duration::from_secs(20), || {
            fs::read_dir(&point).unwrap().all(|entry| entry.unwrap().file_name() == "old")
        });
    });
}

#[test]
fn a_file_system_of_another_kind_is_used_as_far_as_it_goes() {
    if !is_root() {
        return skip("mounting needs privileges");
    }
    with_private_mounts(|| {
        let scratch = tempfile::tempdir().unwrap();
        let Some(point) = mounted_by(scratch.path(), &["mkfs.ntfs", "-q", "-F", "-f"], &["ntfs-3g"]) else {
            return skip("ntfs-3g is missing");
        };
        let _mounted = Mounted([point.clone()]);
        let root = Root::open_ambient(&point, ambient_authority()).unwrap();
        root.write_exclusive("new", "x").unwrap();
        assert_eq!(kind(root.write_exclusive("new", "y")), ErrorKind::AlreadyExists);
        root.replace("new", "z").unwrap();
        root.ensure_dir("d").unwrap();
        root.rename("new", "d/moved").unwrap();
        assert_eq!(root.read_contained("d/moved", 9).unwrap(), b"z");
        assert!(root.remove_tree_contained("d").unwrap().is_complete());
    });
}

#[test]
fn a_resource_that_the_system_lacks_is_named() {
    let arena = Arena::new();
    arena.file("f", "x");
    let root = arena.open(Policy::default());
    let test = "kinds::a_resource_that_the_system_lacks_is_named";
    beneath_kit::child::run(test, || {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
        let error = root.read_contained("f", 9).unwrap_err();
        setrlimit(Resource::Nofile, before).unwrap();
        assert_eq!(error.kind(), ErrorKind::TooMany);
        assert_eq!(error.to_string(), r#"read "f": no descriptor is left"#);
    });
}
