//! Changing mode and owner of what is there: by its handle, only what has one name, and only if need be.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use beneath::{Access, Applied, ErrorKind, Execute, Policy, Root, ambient_authority};

use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::{child, for_each_policy, for_each_resolver, is_root, kind, skip};

#[test]
fn set_access_sets_the_mode_and_says_whether_it_had_to() {
    for_each_resolver(|root, arena| {
        arena.file("d/f", "x").mode("d/f", 0o4666).mode("d", 0o777);
        let access = Access::custom(0o640, 0o750);
        for (path, mode) in [("d/f", 0o640), ("d", 0o750), (".", 0o750)] {
            assert_eq!(root.set_access(path, access, Execute::Clear).unwrap(), Applied::Changed, "{path}");
            assert_eq!(arena.mode_of(path), mode, "{path}");
            let changed =
                || fs::metadata(arena.at(path)).map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap();
            let before = changed();
            assert_eq!(root.set_access(path, access, Execute::Clear).unwrap(), Applied::Unchanged, "{path}");
            assert_eq!(changed(), before, "{path} was touched");
        }
    });
}

#[test]
fn whoever_may_read_keeps_the_right_to_execute() {
    for_each_resolver(|root, arena| {
        let cases = [
            (0o755, 0o600, 0o700),
            (0o755, 0o640, 0o750),
            (0o711, 0o644, 0o755),
            (0o010, 0o644, 0o654),
            (0o755, 0o000, 0o000),
            (0o600, 0o660, 0o660),
            (0o4755, 0o600, 0o700),
            // What the new mode asks for itself stays, whatever was there.
            (0o755, 0o755, 0o755),
            (0o644, 0o711, 0o711),
        ];
        for (before, asked, after) in cases {
            arena.file("f", "x").mode("f", before);
            root.set_access("f", Access::custom(asked, 0o700), Execute::Keep).unwrap();
            assert_eq!(arena.mode_of("f"), after, "{before:o} under {asked:o}");
            arena.mode("f", before);
            root.set_access("f", Access::custom(asked, 0o700), Execute::Clear).unwrap();
            assert_eq!(arena.mode_of("f"), asked, "{before:o} under {asked:o}, cleared");
            fs::remove_file(arena.at("f")).unwrap();
        }
    });
}

#[test]
fn set_access_refuses_what_is_not_the_guests_alone() {
    for_each_resolver(|root, arena| {
        let canary = arena.throwaway().join("canary");
        arena.file("f", "x").link("l", "f").link("out", arena.outside().join("secret")).fifo("p").socket("s");
        arena.hard_link("stolen", &canary);
        let mode = fs::metadata(&canary).unwrap().mode();
        let before = arena.snapshot();
        for (path, expected) in [
            ("l", ErrorKind::Symlink),
            ("out", ErrorKind::Symlink),
            ("p", ErrorKind::NotRegular),
            ("s", ErrorKind::NotRegular),
            ("stolen", ErrorKind::HardLinked),
            ("none", ErrorKind::NotFound),
        ] {
            let access = Access::custom(0o777, 0o777);
            assert_eq!(kind(root.set_access(path, access, Execute::Clear)), expected, "{path}");
        }
        before.assert_same(&arena.snapshot(), "a refused change");
        assert_eq!(fs::metadata(&canary).unwrap().mode(), mode);
    });
}

#[test]
fn an_owner_that_is_right_already_is_not_set() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").mode("f", 0o600);
        let meta = fs::metadata(arena.at("f")).unwrap();
        let own = Access::private().with_owner(meta.uid()).with_group(meta.gid());
        assert_eq!(root.set_access("f", own, Execute::Clear).unwrap(), Applied::Unchanged);
        if !is_root() {
            for foreign in [own.with_owner(meta.uid() + 1), own.with_group(0)] {
                assert_eq!(kind(root.set_access("f", foreign, Execute::Clear)), ErrorKind::Denied);
            }
            return skip("giving files away needs privileges");
        }
        for (access, ids) in [
            (Access::private().with_owner(1234), (1234, meta.gid())),
            (Access::private().with_group(4321), (1234, 4321)),
            (own, (meta.uid(), meta.gid())),
        ] {
            assert_eq!(root.set_access("f", access, Execute::Clear).unwrap(), Applied::Changed);
            let given = fs::metadata(arena.at("f")).unwrap();
            assert_eq!((given.uid(), given.gid()), ids);
            assert_eq!(root.set_access("f", access, Execute::Clear).unwrap(), Applied::Unchanged);
        }
    });
}

fn has_acl(path: &Path) -> bool {
    ["system.posix_acl_access", "system.posix_acl_default"]
        .iter()
        .any(|list| rustix::fs::getxattr(path, *list, &mut [0_u8; 4096][..]).is_ok())
}

fn set_acl(arguments: &[&str], path: &Path) -> bool {
    let set = Command::new("setfacl").args(arguments).arg(path).status();
    set.is_ok_and(|status| status.success())
}

/// A list that names another user grants beside the mode, and `chmod` leaves it there.
#[test]
fn access_control_lists_go_with_the_mode() {
    for_each_resolver(|root, arena| {
        arena.file("d/f", "x").mode("d/f", 0o660).mode("d", 0o770);
        if !set_acl(&["-m", "u:12345:rwx"], &arena.at("d/f"))
            || !set_acl(&["-m", "u:12345:rwx,d:u:12345:rwx"], &arena.at("d"))
        {
            return skip("setfacl is missing, or the file system has no lists");
        }
        for path in ["d", "d/f"] {
            assert!(has_acl(&arena.at(path)), "{path}");
            assert_eq!(root.set_access(path, Access::shared(), Execute::Clear).unwrap(), Applied::Changed);
            assert!(!has_acl(&arena.at(path)), "{path}");
            assert_eq!(root.set_access(path, Access::shared(), Execute::Clear).unwrap(), Applied::Unchanged);
        }
        assert_eq!((arena.mode_of("d/f"), arena.mode_of("d")), (0o660, 0o770));
    });
}

/// A default list of a directory is inherited by what the host makes in it.
#[test]
fn what_the_host_makes_inherits_no_list() {
    for access in [Access::shared(), Access::private()] {
        for_each_policy(&Policy::default().with_access(access), |root, arena| {
            arena.dir("d");
            if !set_acl(&["-m", "d:u:12345:rwx"], &arena.at("d")) {
                return skip("setfacl is missing, or the file system has no lists");
            }
            root.write_exclusive("d/written", "x").unwrap();
            root.replace("d/replaced", "x").unwrap();
            root.new_file("d/streamed").unwrap().commit().unwrap();
            root.ensure_dir("d/deep/down").unwrap();
            for path in ["d/deep", "d/deep/down"] {
                assert!(!has_acl(&arena.at(path)), "{path}");
                assert_eq!(arena.mode_of(path), access.dir_mode());
            }
            for path in ["d/written", "d/replaced", "d/streamed"] {
                assert_eq!(arena.mode_of(path), access.file_mode(), "{path}");
                // The bits of the group limit what a list grants, and here there are none.
                assert!(access == Access::private() || !has_acl(&arena.at(path)), "{path}");
            }
        });
    }
}

/// A guest whose own group is another one makes files that the host cannot read, unless the directory passes its group on.
#[test]
fn a_shared_group_reaches_what_the_guest_makes() {
    if !is_root() {
        return skip("acting for three users needs privileges");
    }
    const GROUP: u32 = 4321;
    let access = Access::shared().with_owner(2000).with_group(GROUP);
    for_each_policy(&Policy::default().with_access(access), |root, arena| {
        fs::set_permissions(arena.base(), fs::Permissions::from_mode(0o711)).unwrap();
        arena.mode(".", 0o711);
        root.ensure_dir("shared").unwrap();
        arena.dir("plain").mode("plain", 0o700);
        root.set_access("plain", access, Execute::Clear).unwrap();
        for dir in ["shared", "plain"] {
            let made = Command::new("setpriv")
                .args([
                    "--reuid",
                    "2001",
                    "--regid",
                    "2001",
                    "--groups",
                    "4321",
                    "sh",
                    "-c",
                    "umask 007; echo x > f; mkdir d; echo x > d/f",
                ])
                .current_dir(arena.at(dir))
                .status();
            if !made.is_ok_and(|status| status.success()) {
                return skip("setpriv is missing");
            }
            for path in ["f", "d", "d/f"] {
                let meta = fs::metadata(arena.at(dir).join(path)).unwrap();
                assert_eq!((meta.uid(), meta.gid()), (2001, GROUP), "{dir}/{path}");
            }
            let read = Command::new("setpriv")
                .args(["--reuid", "2000", "--regid", "2000", "--groups", "4321", "cat", "d/f"])
                .current_dir(arena.at(dir))
                .output()
                .unwrap();
            assert_eq!(read.stdout, b"x\n", "{dir}");
            assert_eq!(root.set_access(dir, access, Execute::Clear).unwrap(), Applied::Unchanged);
        }
    });
}

/// The right to give files away without the right to change those of others.
#[test]
fn an_owner_is_given_last() {
    const TEST: &str = "access::an_owner_is_given_last";
    if !child::is(TEST) {
        if !is_root() {
            return skip("giving files away needs privileges");
        }
        return child::run_as(
            TEST,
            &[
                "--reuid",
                "2000",
                "--regid",
                "2000",
                "--clear-groups",
                "--inh-caps=-all,+chown",
                "--ambient-caps=-all,+chown",
                "--bounding-set=-all,+chown",
            ],
        );
    }
    for_each_resolver(|root, arena| {
        arena.file("f", "x").mode("f", 0o600).dir("d");
        let given = Access::custom(0o640, 0o750).with_owner(2001);
        for path in ["f", "d"] {
            assert_eq!(root.set_access(path, given, Execute::Clear).unwrap(), Applied::Changed, "{path}");
            let meta = fs::metadata(arena.at(path)).unwrap();
            assert_eq!(meta.uid(), 2001);
        }
        assert_eq!((arena.mode_of("f"), arena.mode_of("d")), (0o640, 0o750));
        // A bit that is there already need not be set by somebody who may no longer.
        arena.dir("g");
        let group = fs::metadata(arena.at("g")).unwrap().gid();
        let shared = Access::shared().with_owner(2001).with_group(group);
        assert_eq!(root.set_access("g", shared, Execute::Clear).unwrap(), Applied::Changed);
        assert_eq!(arena.mode_of("g"), 0o2770);
        // What is another's by now stays as it is.
        assert_eq!(kind(root.set_access("f", given.with_owner(2002), Execute::Clear)), ErrorKind::Denied);
        assert_eq!(arena.mode_of("f"), 0o640);
        assert_eq!(fs::metadata(arena.at("f")).unwrap().uid(), 2001);
        // Given back, so that the arena can be removed.
        for path in ["f", "d", "g"] {
            std::os::unix::fs::chown(arena.at(path), Some(2000), None).unwrap();
        }
    });
}

#[test]
fn a_mode_that_may_not_go_with_an_owner_is_put_back() {
    child::run_unprivileged("access::a_mode_that_may_not_go_with_an_owner_is_put_back", || {
        for_each_resolver(|root, arena| {
            arena.file("f", "x").mode("f", 0o600);
            let uid = fs::metadata(arena.at("f")).unwrap().uid();
            let foreign = Access::shared().with_owner(uid + 1);
            assert_eq!(kind(root.set_access("f", foreign, Execute::Clear)), ErrorKind::Denied);
            assert_eq!(arena.mode_of("f"), 0o600);
        });
    });
}

/// ntfs-3g without permissions says yes to every chmod and keeps none.
#[test]
fn a_file_system_without_modes_is_not_said_to_have_them() {
    with_private_mounts(|| {
        let scratch = tempfile::tempdir().unwrap();
        let (image, point) = (scratch.path().join("image"), scratch.path().join("mount"));
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        fs::create_dir(&point).unwrap();
        let run = |program: &str, arguments: &[&OsStr]| {
            Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
        };
        let made = run("mkfs.ntfs", &["-F".as_ref(), "-q".as_ref(), image.as_ref()])
            && run("ntfs-3g", &[image.as_ref(), point.as_ref()]);
        if !made {
            return skip("ntfs-3g is missing, or may not be mounted");
        }
        let mounted = Mounted([point.clone()]);
        let root = Root::open_ambient(&point, ambient_authority()).unwrap();
        // Not by the root, whose draft the daemon keeps as a second name while a child of another test holds it open.
        fs::write(point.join("f"), "x").unwrap();
        let error = root.set_access("f", Access::private(), Execute::Clear).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        drop(mounted);
    });
}

/// A guest that ends with this value, also if the test fails.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A guest that owns the file sets another list until the file is no longer its own.
#[test]
fn no_list_outlives_the_change_of_owner() {
    if !is_root() {
        return skip("giving files away needs privileges");
    }
    for_each_resolver(|root, arena| {
        fs::set_permissions(arena.base(), fs::Permissions::from_mode(0o711)).unwrap();
        arena.mode(".", 0o711).file("f", "x");
        if !set_acl(&["-m", "u:12345:rw"], &arena.at("f")) {
            return skip("setfacl is missing, or the file system has no lists");
        }
        let guest = Command::new("setpriv")
            .args(["--reuid", "2001", "--regid", "2001", "--clear-groups", "sh", "-c"])
            .arg("while :; do setfacl -m u:12345:rw f 2>/dev/null; done")
            .current_dir(arena.root())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(guest) = guest.map(Ended) else { return skip("setpriv is missing") };
        let mut done = 0;
        for _ in 0..20_000 {
            std::os::unix::fs::chown(arena.at("f"), Some(2001), Some(2001)).unwrap();
            if root.set_access("f", Access::shared().with_owner(0).with_group(0), Execute::Clear).is_ok() {
                done += 1;
                assert!(!has_acl(&arena.at("f")), "a list has outlived the change");
            }
        }
        drop(guest);
        assert!(done > 2_000, "{done} of 20,000 succeeded");
    });
}

#[test]
fn modes_are_shown_in_octal() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").mode("f", 0o640);
        let shown = format!("{:?}", root.metadata("f").unwrap());
        assert!(shown.contains("mode: 0o640"), "{shown}");
    });
    let shown = format!("{:?}", Access::shared().with_group(7));
    assert_eq!(shown, "Access { file_mode: 0o660, dir_mode: 0o2770, owner: None, group: Some(7) }");
}
