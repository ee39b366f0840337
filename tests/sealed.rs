//! Sealed roots: what the kernel then refuses to everybody, what is different, and what a crash leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use beneath::{ErrorKind, Root, Seal, Seat, ambient_authority};
use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::operations::{Effect, Leaf, OPERATIONS, Operation, RENAME_SOURCE};
use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::{Arena, child, kind, skip};
use cap_std::fs::Dir;
use nix::libc;
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

fn plain(path: impl AsRef<Path>) -> Root {
    Root::open_ambient(path, ambient_authority()).unwrap()
}

/// Runs `body` in an arena where mounts are nobody else's.
fn in_arena(body: impl FnOnce(&Arena, &Seat) + Send) {
    with_private_mounts(|| {
        let arena = Arena::new();
        let before = mounts();
        body(&arena, &arena.seat());
        assert_eq!(mounts(), before, "a mount was left behind");
    });
}

fn mounts() -> String {
    fs::read_to_string("/proc/thread-self/mountinfo").unwrap()
}

#[test]
fn a_seal_enforces_what_it_says_and_leaves_nothing_attached() {
    in_arena(|arena, seat| {
        arena.file("d/f", "content");
        let before = plain(arena.root());
        for (seal, read_only) in [(Seal::ReadWrite, false), (Seal::ReadOnly, true)] {
            let sealed = before.seal(seal, seat).unwrap();
            let found = sealed.enforced().unwrap();
            assert!(found.nodev && found.nosuid && found.noexec && found.nosymfollow && found.detached);
            assert_eq!(found.read_only, read_only);
            assert_eq!(sealed.read_contained("d/f", 99).unwrap(), b"content");
            assert_eq!(sealed.metadata(".").unwrap().ino(), before.metadata(".").unwrap().ino());
        }
        let found = before.enforced().unwrap();
        assert!(!found.nosymfollow && !found.read_only && !found.detached, "{found:?}");
    });
}

#[test]
fn links_are_dead_even_for_cap_std() {
    in_arena(|arena, seat| {
        arena.file("target", "through").link("link", "target").dir("d").link("up", "d");
        let sealed = Dir::from(plain(arena.root()).seal(Seal::ReadWrite, seat).unwrap());
        let loops = Some(Errno::LOOP.raw_os_error());
        assert_eq!(sealed.read("link").unwrap_err().raw_os_error(), loops);
        assert_eq!(sealed.read_dir("up").unwrap_err().raw_os_error(), loops);
        assert_eq!(sealed.read("target").unwrap(), b"through");
        // A link itself can still be looked at and listed.
        assert_eq!(sealed.read_link("link").unwrap(), Path::new("target"));
        let control = Dir::from(plain(arena.root()));
        assert_eq!(control.read("link").unwrap(), b"through");
    });
}

#[test]
fn a_device_node_is_dead() {
    in_arena(|arena, seat| {
        if !arena.device("zero", FileType::CharacterDevice, 1, 5) {
            return skip("no device node can be made here");
        }
        let sealed = plain(arena.root()).seal(Seal::ReadWrite, seat).unwrap();
        let open =
            |root: &Root| rustix::fs::openat(root, "zero", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        assert_eq!(open(&sealed).unwrap_err(), Errno::ACCESS);
        assert_eq!(kind(sealed.read_contained("zero", 9)), ErrorKind::NotRegular);
        // The control is void where the machine's own mount has `nodev`.
        let control = plain(arena.root());
        match control.enforced().unwrap().nodev {
            true => skip("control: devices are dead on the plain mount too"),
            false => {
                let mut byte = [1];
                fs::File::from(open(&control).unwrap()).read_exact(&mut byte).unwrap();
                assert_eq!(byte, [0]);
            }
        }
    });
}

fn prepare(operation: &Operation, arena: &Arena) {
    match operation.leaf {
        Leaf::Absent => {}
        Leaf::File => drop(arena.file("x", "old")),
        Leaf::Link => drop(arena.file("y", "old").link("x", "y")),
        Leaf::EmptyDirectory => drop(arena.dir("x")),
        Leaf::Directory => drop(arena.file("x/a", "old").dir("x/sub")),
    }
    if operation.effect.brings() {
        arena.file(RENAME_SOURCE, "other");
    }
}

/// Copies of trees read their path and write to their other end, which is the same root here.
fn changes(operation: &Operation) -> bool {
    operation.effect != Effect::Reads || operation.name == "copy_tree_to"
}

#[test]
fn a_read_only_seal_refuses_every_write_primitive() {
    let rows = || OPERATIONS.iter().filter(|operation| changes(operation));
    assert!(rows().count() > 20);
    for operation in rows() {
        in_arena(|arena, seat| {
            prepare(operation, arena);
            let before = arena.snapshot();
            let root = plain(arena.root());
            let sealed = root.seal(Seal::ReadOnly, seat).unwrap();
            let refused = operation.run_on(&sealed, "x").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Denied, "{operation:?}: {refused}");
            assert!(
                refused.to_string().ends_with("is read-only through this handle"),
                "{operation:?}: {refused}"
            );
            before.assert_same(&arena.snapshot(), operation.name);
            // Control: the same call changes something through a seal that is not read-only.
            let writable = root.seal(Seal::ReadWrite, seat).unwrap();
            operation.run_on(&writable, "x").unwrap_or_else(|error| panic!("{operation:?}: {error}"));
        });
    }
    for operation in OPERATIONS.iter().filter(|operation| !changes(operation)) {
        in_arena(|arena, seat| {
            prepare(operation, arena);
            let sealed = plain(arena.root()).seal(Seal::ReadOnly, seat).unwrap();
            operation.run_on(&sealed, "x").unwrap_or_else(|error| panic!("{operation:?}: {error}"));
        });
    }
}

/// The calls as such, without this crate.
fn raw_writes(dir: impl AsFd) -> Vec<(&'static str, rustix::io::Result<()>)> {
    let dir = dir.as_fd();
    let mode = Mode::RUSR | Mode::WUSR;
    let open = |name, flags| rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, mode).map(drop);
    let file = format!("/proc/self/fd/{}/f", dir.as_raw_fd());
    let now = Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
        last_modification: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
    };
    vec![
        ("create", open("new", OFlags::CREATE | OFlags::WRONLY)),
        ("open to write", open("f", OFlags::WRONLY)),
        ("truncate", open("f", OFlags::RDWR | OFlags::TRUNC)),
        ("unnamed", open(".", OFlags::TMPFILE | OFlags::WRONLY)),
        ("mkdir", rustix::fs::mkdirat(dir, "d", mode)),
        ("mkfifo", rustix::fs::mkfifoat(dir, "p", mode)),
        ("symlink", rustix::fs::symlinkat("f", dir, "s")),
        ("link", rustix::fs::linkat(dir, "f", dir, "g", AtFlags::empty())),
        ("chmod", rustix::fs::chmodat(dir, "f", Mode::RUSR, AtFlags::empty())),
        ("chown", rustix::fs::chownat(dir, "f", None, None, AtFlags::empty())),
        ("times", rustix::fs::utimensat(dir, "f", &now, AtFlags::empty())),
        ("attribute", rustix::fs::setxattr(&*file, "trusted.x", b"1", XattrFlags::empty())),
        ("rename", rustix::fs::renameat(dir, "f", dir, "moved")),
        ("unlink", rustix::fs::unlinkat(dir, "moved", AtFlags::empty())),
        ("rmdir", rustix::fs::unlinkat(dir, "e", AtFlags::REMOVEDIR)),
    ]
}

#[test]
fn a_read_only_seal_is_read_only_to_the_kernel() {
    in_arena(|arena, seat| {
        arena.file("f", "x").dir("e").file("moved", "y");
        let before = arena.snapshot();
        let root = plain(arena.root());
        for (call, result) in raw_writes(root.seal(Seal::ReadOnly, seat).unwrap()) {
            assert_eq!(result, Err(Errno::ROFS), "{call}");
        }
        before.assert_same(&arena.snapshot(), "raw writes");
        for (call, result) in raw_writes(root.seal(Seal::ReadWrite, seat).unwrap()) {
            // A file system may have no attributes of that kind.
            assert!(result.is_ok() || call == "attribute" || call == "chown", "control: {call}: {result:?}");
        }
    });
}

#[test]
fn what_is_read_only_stays_so_however_it_is_sealed() {
    in_arena(|arena, seat| {
        let point = arena.root().join("ro");
        arena.dir("ro").file("d/f", "x");
        mount_bind(arena.at("d"), &point).unwrap();
        let _mounted = Mounted([point.clone()]);
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        rustix::mount::mount_remount(&point, flags, c"").unwrap();
        let sealed = plain(&point).seal(Seal::ReadWrite, seat).unwrap();
        assert!(sealed.enforced().unwrap().read_only);
        assert_eq!(kind(sealed.write_exclusive("new", "")), ErrorKind::Denied);
        assert_eq!(raw_writes(&sealed)[0].1, Err(Errno::ROFS));
        assert!(
            plain(arena.at("d")).write_exclusive("new", "").is_ok(),
            "control: the other mount is writable"
        );
    });
}

#[test]
fn rename_between_seals_is_cross_device() {
    in_arena(|arena, seat| {
        arena.file("f", "x");
        let root = plain(arena.root());
        let [one, two] = [(), ()].map(|()| root.seal(Seal::ReadWrite, seat).unwrap());
        for (from, to) in [(&one, &two), (&one, &root), (&root, &one)] {
            assert_eq!(kind(from.rename_to("f", to, "g")), ErrorKind::CrossDevice);
        }
        assert!(arena.has("f") && !arena.has("g"));
        one.rename("f", "g").unwrap();
        one.try_clone().unwrap().rename_to("g", &one, "h").unwrap();
        assert!(arena.has("h"));
    });
}

#[test]
fn what_the_host_mounts_inside_is_not_seen() {
    in_arena(|arena, seat| {
        arena.file("m/beneath", "x").file("other/mounted", "y");
        let _mounted = Mounted([arena.at("m")]);
        mount_bind(arena.at("other"), arena.at("m")).unwrap();
        let sealed = plain(arena.root()).seal(Seal::ReadWrite, seat).unwrap();
        assert_eq!(sealed.read_contained("m/beneath", 9).unwrap(), b"x");
        assert_eq!(kind(sealed.metadata("m/mounted")), ErrorKind::NotFound);
        assert_eq!(kind(plain(arena.root()).metadata("m/mounted")), ErrorKind::CrossDevice);
    });
}

#[test]
fn a_sealed_handle_has_no_ambient_path() {
    in_arena(|arena, seat| {
        let root = plain(arena.root());
        let canonical = arena.root().canonicalize().unwrap();
        assert_eq!(root.ambient_path(ambient_authority()).unwrap(), canonical);
        let sealed = root.seal(Seal::ReadWrite, seat).unwrap();
        assert_eq!(kind(sealed.ambient_path(ambient_authority())), ErrorKind::Unsupported);
        // Control: what a library makes of the descriptor's path is the root of the host.
        let by_number = |root: &Root| {
            let number = root.as_fd().as_raw_fd();
            fs::canonicalize(format!("/proc/thread-self/fd/{number}")).unwrap()
        };
        assert_eq!(by_number(&sealed), Path::new("/"));
        assert_eq!(by_number(&root), canonical);
    });
}

#[test]
fn an_ambient_path_is_that_of_the_directory_that_is_held() {
    let arena = Arena::new();
    arena.dir("a/b").dir("other");
    let held = plain(arena.at("a/b"));
    let found = || held.ambient_path(ambient_authority());
    let canonical = |path: &str| arena.at(path).canonicalize().unwrap();
    assert_eq!(found().unwrap(), canonical("a/b"));
    fs::rename(arena.at("a"), arena.at("moved")).unwrap();
    arena.link("a", arena.outside());
    assert_eq!(found().unwrap(), canonical("moved/b"), "the path of the place it was moved to");
    fs::remove_dir(arena.at("moved/b")).unwrap();
    assert_eq!(kind(found()), ErrorKind::NotFound);
    // Of what was removed, the kernel reports a path that somebody else can have.
    fs::create_dir(arena.at("moved/b (deleted)")).unwrap();
    assert_eq!(kind(found()), ErrorKind::Escape);
}

#[test]
fn an_ambient_path_that_a_mount_covers_is_an_escape() {
    in_arena(|arena, _| {
        arena.dir("a/b").dir("other/b");
        let held = plain(arena.at("a/b"));
        let _mounted = Mounted([arena.at("a")]);
        mount_bind(arena.at("other"), arena.at("a")).unwrap();
        assert_eq!(kind(held.ambient_path(ambient_authority())), ErrorKind::Escape);
    });
}

/// The calls of a seal, each with what it is known by. A process dies before the call is made.
const CALLS: [(&str, i64, u8, u64); 4] = [
    ("after the bind", libc::SYS_mount, 3, libc::MS_PRIVATE),
    ("after it was made private", libc::SYS_mount, 3, libc::MS_REMOUNT),
    ("after the flags were set", libc::SYS_open_tree, 2, 1),
    ("after it was cloned", libc::SYS_umount2, 1, libc::MNT_DETACH as u64),
];

fn die_at((_, call, argument, bits): (&str, i64, u8, u64)) {
    let like = SeccompCmpOp::MaskedEq(bits);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, like, bits).unwrap();
    let rules = BTreeMap::from([(call, vec![SeccompRule::new(vec![condition]).unwrap()])]);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::KillProcess, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Killed by the kernel between each two calls, as by `kill -9`: no code of the process runs any more.
#[test]
fn a_seat_left_by_a_crash_is_cleared() {
    const TEST: &str = "a_seat_left_by_a_crash_is_cleared";
    const PLACE: &str = "BENEATH_TEST_PLACE";
    const CALL: &str = "BENEATH_KILL_CALL";
    if child::is(TEST) {
        let base = PathBuf::from(std::env::var_os(PLACE).unwrap());
        let seat = Seat::open_ambient(base.join("test-seat"), ambient_authority()).unwrap();
        let root = plain(base.join("root"));
        die_at(CALLS[std::env::var(CALL).unwrap().parse::<usize>().unwrap()]);
        root.seal(Seal::ReadWrite, &seat).unwrap();
        unreachable!("the call was never made");
    }
    with_private_mounts(|| {
        for (number, (moment, ..)) in CALLS.iter().enumerate() {
            let arena = Arena::new();
            arena.file("f", "x");
            drop(arena.seat());
            let before = mounts();
            let mut command = child::command(TEST);
            let output = command.env(PLACE, arena.base()).env(CALL, number.to_string()).output().unwrap();
            assert!(!output.status.success(), "{moment}: {output:?}");
            assert_ne!(mounts(), before, "control: nothing is left {moment}: {output:?}");
            let left = arena.beside("seat").join("mount/f");
            assert!(left.exists(), "control: the tree is in the seat {moment}");
            let sealed = plain(arena.root()).seal(Seal::ReadWrite, &arena.seat()).unwrap();
            assert_eq!(mounts(), before, "{moment}");
            assert_eq!(sealed.read_contained("f", 9).unwrap(), b"x");
        }
    });
}

#[test]
fn mounts_in_a_pile_are_cleared() {
    in_arena(|arena, seat| {
        let point = arena.beside("seat").join("mount");
        for _ in 0..5 {
            mount_bind(arena.outside(), &point).unwrap();
        }
        drop(arena.seat());
        mount_bind(arena.outside(), &point).unwrap();
        plain(arena.root()).seal(Seal::ReadWrite, seat).unwrap();
    });
}

#[test]
fn a_seat_is_used_by_one_at_a_time() {
    in_arena(|arena, seat| {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = rustix::fs::openat(CWD, arena.beside("seat"), flags, Mode::empty()).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let root = plain(arena.root());
        assert_eq!(kind(root.seal(Seal::ReadWrite, seat)), ErrorKind::Busy);
        drop(held);
        root.seal(Seal::ReadWrite, seat).unwrap();
    });
}

#[test]
fn a_seat_that_lets_others_in_is_refused() {
    let arena = Arena::new();
    let path = arena.beside("open");
    fs::create_dir(&path).unwrap();
    for (mode, refused) in [(0o755, true), (0o710, true), (0o701, true), (0o700, false)] {
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let opened = Seat::open_ambient(&path, ambient_authority()).map_err(|error| error.kind());
        assert_eq!(opened.err(), refused.then_some(ErrorKind::Denied), "{mode:o}");
    }
}

#[test]
fn a_seat_of_somebody_else_is_refused() {
    let arena = Arena::new();
    let path = arena.beside("theirs");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    drop(Seat::open_ambient(&path, ambient_authority()).unwrap());
    if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
        return skip("files cannot be given away here");
    }
    assert_eq!(kind(Seat::open_ambient(&path, ambient_authority())), ErrorKind::Denied);
}

/// On a mount that is shared, a mount in the seat appears elsewhere too, and goes there too.
#[test]
fn nothing_stays_where_the_seat_is_shared() {
    in_arena(|arena, _| {
        let [base, peer] = ["base", "peer"].map(|name| arena.beside(name));
        [&base, &peer].iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let _mounted = Mounted([base.clone(), peer.clone()]);
        mount("tmpfs", &base, "tmpfs", MountFlags::empty(), None).unwrap();
        mount_change(&base, MountPropagationFlags::SHARED).unwrap();
        mount_bind(&base, &peer).unwrap();
        fs::create_dir(base.join("seat")).unwrap();
        fs::set_permissions(base.join("seat"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let seat = Seat::open_ambient(base.join("seat"), ambient_authority()).unwrap();
        let before = mounts();
        let sealed = plain(arena.root()).seal(Seal::ReadWrite, &seat).unwrap();
        assert_eq!(mounts(), before);
        assert!(sealed.enforced().unwrap().detached);
    });
}

/// As under a profile of a container engine.
#[test]
fn a_profile_that_forbids_a_call_leaves_nothing_mounted() {
    in_arena(|arena, seat| {
        arena.file("f", "x").link("link", "f");
        let root = plain(arena.root());
        for errno in [Errno::NOSYS, Errno::PERM] {
            let before = mounts();
            let sealed = denied(&[Denial::OpenTree(errno)], || root.seal(Seal::ReadWrite, seat)).unwrap();
            assert!(sealed.enforced().unwrap().detached, "{errno}");
            let followed = Dir::from(sealed.try_clone().unwrap()).read("link");
            assert_eq!(followed.unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()), "{errno}");
            assert_eq!(sealed.read_contained("f", 9).unwrap(), b"x", "{errno}");
            for denial in [Denial::Statx(errno), Denial::Mount(errno)] {
                let refused = denied(&[denial], || root.seal(Seal::ReadWrite, seat)).unwrap_err().kind();
                assert!(
                    matches!(refused, ErrorKind::Unsupported | ErrorKind::Denied),
                    "{denial:?}: {refused}"
                );
            }
            assert_eq!(mounts(), before, "{errno}");
        }
    });
}

#[test]
fn an_ordinary_user_is_denied() {
    child::run_unprivileged("an_ordinary_user_is_denied", || {
        let arena = Arena::new();
        let refused = plain(arena.root()).seal(Seal::ReadWrite, &arena.seat());
        assert_eq!(kind(refused), ErrorKind::Denied);
    });
}

#[cfg(feature = "session")]
#[test]
fn a_claim_moves_within_one_seal() {
    use beneath::session::{Place, SessionsConfig};
    use beneath::{MessageId, SessionId, Sessions};

    in_arena(|arena, seat| {
        let sessions = Sessions::new(plain(arena.root()), SessionsConfig::default()).sealed(seat).unwrap();
        let id = SessionId::new("s");
        let session = sessions.create_new(&id).unwrap();
        arena.file("s/guest/outbox/42/f", "answer");
        let claim = session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
        assert_eq!(claim.place(), Place::Moved);
        let collected = claim.read(["f"]).unwrap();
        assert_eq!(collected.found().map(|(_, bytes)| bytes.to_vec()).collect::<Vec<_>>(), [b"answer"]);
        drop(claim);
        // A link that the guest plants is dead to whoever gets a handle from the session.
        arena.file("s/guest/workspace/real", "x").link("s/guest/workspace/link", "real");
        let guest = Dir::from(sessions.open(&id).unwrap().guest().try_clone().unwrap());
        assert_eq!(
            guest.read("workspace/link").unwrap_err().raw_os_error(),
            Some(Errno::LOOP.raw_os_error())
        );
        assert!(sessions.remove(&id).unwrap().is_complete());
        assert!(!arena.has("s"));
    });
}

/// Through a seal the directory beneath a mount point shows, and the guest would never see what is delivered there.
#[cfg(feature = "session")]
#[test]
fn a_session_that_has_a_file_system_of_its_own_is_not_used_sealed() {
    use beneath::session::Parts;
    use beneath::{MountPoint, SafeName, SessionId, Sessions, SessionsConfig};

    let point = |path: &str| MountPoint::new(path).unwrap();
    let places = Parts { inbox: point("/in"), outbox: point("/out"), workspace: point("/work") };
    let configs = [
        (SessionsConfig::default().with_share(point("/share")), ["guest", "host", "share"]),
        (SessionsConfig::default().with_places(places), ["guest/inbox", "guest/outbox", "guest"]),
    ];
    for (config, mounted_at) in configs {
        in_arena(|arena, seat| {
            let sessions = Sessions::new(plain(arena.root()), config.clone());
            let (team, id) = (SafeName::new("team").unwrap(), SessionId::new("s"));
            sessions.group(&team).unwrap().create(&id).unwrap();
            let sealed = sessions.clone().sealed(seat).unwrap();
            let group = sealed.group(&team).unwrap();
            for part in mounted_at {
                let at = arena.at("team/s").join(part);
                let mounted = Mounted([at.clone()]);
                mount("tmpfs", &at, "tmpfs", MountFlags::empty(), None).unwrap();
                sessions.group(&team).unwrap().create(&id).unwrap();
                assert_eq!(kind(group.open(&id)), ErrorKind::Unsupported, "{part}");
                assert_eq!(kind(group.create(&id)), ErrorKind::Unsupported, "{part}");
                // What is beneath the mount point is old, whatever the guest does.
                assert_eq!(kind(group.remove(&id)), ErrorKind::Unsupported, "{part}");
                let swept = group.sweep(std::time::Duration::ZERO).unwrap();
                assert_eq!((swept.removed, swept.is_complete()), (0, false), "{part}: {swept:?}");
                drop(mounted);
                let session = group.open(&id).unwrap();
                assert!(session.verify().is_sound(), "{part}");
            }
            let _mounted = Mounted([arena.at("team")]);
            mount("tmpfs", arena.at("team"), "tmpfs", MountFlags::empty(), None).unwrap();
            assert_eq!(kind(sealed.group(&team)), ErrorKind::Unsupported);
        });
    }
}
