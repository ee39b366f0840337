//! A read-only mount takes no change, by the handle and by the kernel; and blocked names.

use std::path::Path;

use beneath::mounts::{Mode, Mount};
use beneath::{ErrorKind, MountPoint, Result, Seal};
use beneath_kit::namespace::with_private_mounts;
use beneath_kit::operations::{Effect, OPERATIONS, RENAME_SOURCE};
use beneath_kit::{Arena, kind};

use crate::{path, request, rules};

type Change = fn(&Mount) -> Result<()>;

const CHANGES: [(&str, Change); 4] = [
    ("write_exclusive", |mount| mount.write_exclusive(&path("new"), "x")),
    ("replace", |mount| mount.replace(&path("f"), "x")),
    ("ensure_dir", |mount| mount.ensure_dir(&path("d/e")).map(drop)),
    ("remove_file", |mount| mount.remove_file(&path("f"))),
];

/// With the other end of each move and copy.
fn furnish(arena: &Arena) {
    for dir in ["data/shared", "data/shared/sub"].map(Path::new) {
        arena.file(dir.join("f"), "x").file(dir.join(RENAME_SOURCE), "y");
    }
}

fn refuses_all(arena: &Arena, mount: &Mount) {
    let before = arena.snapshot();
    for (name, change) in CHANGES {
        assert_eq!(kind(change(mount)), ErrorKind::Denied, "{name}");
    }
    for operation in OPERATIONS.iter().filter(|operation| operation.effect != Effect::Reads) {
        let at = if operation.effect == Effect::MakesDirectories { "new" } else { "f" };
        assert_eq!(kind(operation.run_on(mount.root(), at)), ErrorKind::Denied, "{operation:?}");
        let beneath = mount.root().descend("sub").unwrap();
        assert_eq!(kind(operation.run_on(&beneath, at)), ErrorKind::Denied, "{operation:?}");
    }
    before.assert_same(&arena.snapshot(), "changes through a read-only mount");
}

#[test]
fn a_read_only_mount_refuses_each_change() {
    let arena = Arena::new();
    furnish(&arena);
    let asked = |mode| [request("x", "data", "shared", mode)];
    let mounts = rules(&arena).grant("bob", &asked(Mode::ReadOnly)).unwrap();
    refuses_all(&arena, mounts.get("x").unwrap());
    let mounts = rules(&arena).grant("bob", &asked(Mode::ReadWrite)).unwrap();
    for (name, change) in CHANGES {
        assert!(change(mounts.get("x").unwrap()).is_ok(), "control: {name}");
    }
}

#[test]
fn a_sealed_mount_is_read_only_to_the_kernel_too() {
    with_private_mounts(|| {
        let arena = Arena::new();
        furnish(&arena);
        arena.dir("data/other");
        let asked = [
            request("ro", "data", "shared", Mode::ReadOnly),
            request("rw", "data", "other", Mode::ReadWrite),
        ];
        let mounts = rules(&arena).grant("bob", &asked).unwrap().sealed(&arena.seat()).unwrap();
        let [read_only, writable] = ["ro", "rw"].map(|alias| mounts.get(alias).unwrap());
        refuses_all(&arena, read_only);
        for mount in [read_only, writable] {
            let enforced = mount.root().enforced().unwrap();
            assert!(enforced.nosymfollow && enforced.nodev && enforced.detached, "{enforced:?}");
            assert_eq!(enforced.read_only, mount.mode() == Mode::ReadOnly);
        }
        writable.write_exclusive(&path("new"), "x").unwrap();
        assert!(arena.has("data/other/new"));
        let raw = rustix::fs::mkdirat(read_only.root(), "d", rustix::fs::Mode::RWXU);
        assert_eq!(raw, Err(rustix::io::Errno::ROFS));
    });
}

#[test]
fn a_handle_that_refuses_changes_cannot_be_sealed_into_one_that_takes_them() {
    with_private_mounts(|| {
        let arena = Arena::new();
        furnish(&arena);
        let asked = |mode| [request("x", "data", "shared", mode)];
        for (mode, refused) in [(Mode::ReadOnly, Some(ErrorKind::Denied)), (Mode::ReadWrite, None)] {
            let mounts = rules(&arena).grant("bob", &asked(mode)).unwrap();
            let handle = mounts.get("x").unwrap().root().seal(Seal::ReadWrite, &arena.seat()).unwrap();
            let written = handle.write_exclusive("new", "x").map_err(|error| error.kind());
            assert_eq!(written.err(), refused, "{mode:?}");
            assert_eq!(arena.has("data/shared/new"), refused.is_none(), "{mode:?}");
        }
    });
}

#[test]
fn a_blocked_name_within_a_mount_is_denied() {
    let arena = Arena::new();
    arena.file("data/shared/.env", "k").file("data/shared/a/id_rsa", "k").file("data/shared/private", "k");
    arena.file("data/shared/.env.example", "").file("data/shared/my-credentials-doc", "");
    let asked = [request("x", "data", "shared", Mode::ReadWrite)];
    let mounts = rules(&arena).grant("bob", &asked).unwrap();
    let mount = mounts.get("x").unwrap();
    for name in [".env", "a/id_rsa", "private", "a/ID_ed25519", ".ssh/config"] {
        assert_eq!(kind(mount.read_contained(&path(name), 9)), ErrorKind::Denied, "{name}");
        assert_eq!(kind(mount.write_exclusive(&path(name), "")), ErrorKind::Denied, "{name}");
    }
    for name in [".env.example", "my-credentials-doc"] {
        assert_eq!(mount.read_contained(&path(name), 9).unwrap(), b"", "{name}");
    }
}

#[test]
fn a_path_of_an_agent_is_found_in_its_mount() {
    let arena = Arena::new();
    arena.dir("data/shared").dir("data/other");
    let asked = ["doc", "docs", "a"].map(|alias| request(alias, "data", "shared", Mode::ReadOnly));
    let mounts = rules(&arena).grant("bob", &asked).unwrap();
    let at = MountPoint::new("/mnt/host").unwrap();
    let cases = [
        ("/mnt/host/docs/x/y", "docs", "x/y"),
        ("docs/x", "docs", "x"),
        ("./doc//x/../z", "doc", "z"),
        ("doc", "doc", "."),
        ("/mnt/host/a/", "a", "."),
    ];
    for (raw, alias, rest) in cases {
        let (mount, found) = mounts.resolve(raw, &at).unwrap();
        assert_eq!((mount.alias().as_str(), found.as_path().to_str().unwrap()), (alias, rest), "{raw}");
    }
    for (raw, expected) in [
        ("/mnt/host/unknown/x", ErrorKind::NotFound),
        ("docsX/x", ErrorKind::NotFound),
        ("Docs/x", ErrorKind::NotFound),
        ("", ErrorKind::NotFound),
        ("/etc/passwd", ErrorKind::Escape),
        ("docs/../../x", ErrorKind::Escape),
    ] {
        assert_eq!(kind(mounts.resolve(raw, &at)), expected, "{raw}");
    }
}
