//! Mounts in the hands of those who start the guest.

use std::fs;
use std::path::Path;
use std::process::Command;

use beneath::mounts::{Bwrap, Mode, Mounts};
use beneath::{ErrorKind, MountPoint, Root, Session, SessionId, Sessions, SessionsConfig, ambient_authority};
use beneath_kit::namespace::with_private_mounts;
use beneath_kit::{Arena, kind, skip};

use crate::{request, rules};

fn at() -> MountPoint {
    MountPoint::new("/mnt/host").unwrap()
}

fn granted(arena: &Arena) -> Mounts {
    arena.file("projects/app/f", "mine").file("data/shared/f", "data");
    let asked =
        [request("src", "projects", "app", Mode::ReadOnly), request("d", "data", "shared", Mode::ReadWrite)];
    rules(arena).grant("ada", &asked).unwrap()
}

fn session(arena: &Arena) -> Session {
    let root = Root::open_ambient(arena.dir("sessions").at("sessions"), ambient_authority()).unwrap();
    Sessions::new(root, SessionsConfig::default()).create(&SessionId::new("s")).unwrap().0
}

/// What a script prints in a guest that sees the system's programs and what `bwrap` mounts; none where bubblewrap is missing.
fn in_guest(bwrap: &Bwrap, more: &[&str], script: &str) -> Option<String> {
    let help = Command::new("bwrap").arg("--help").output();
    if !help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--ro-bind-fd")) {
        skip("there is no bubblewrap that takes descriptors");
        return None;
    }
    let mut command = Command::new("bwrap");
    command.args(["--unshare-user", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--proc", "/proc"]);
    for dir in ["bin", "lib", "lib64"] {
        if Path::new("/usr").join(dir).exists() {
            command.args(["--symlink", &format!("usr/{dir}"), &format!("/{dir}")]);
        }
    }
    command.args(more).args(bwrap.args()).args(["/bin/sh", "-c", script]);
    bwrap.inherit().unwrap();
    let output = command.output().unwrap();
    let [said, complained] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if complained.contains("namespace") || complained.contains("setting up uid map") {
        skip(&format!("bubblewrap may not do it here: {complained}"));
        return None;
    }
    assert!(output.status.success(), "{said}\n{complained}");
    Some(said)
}

#[test]
fn a_guest_in_bubblewrap_gets_what_was_granted_whatever_was_exchanged_since() {
    let arena = Arena::new();
    let (mounts, session) = (granted(&arena), session(&arena));
    let path = arena.at("projects/app");
    fs::rename(&path, arena.at("projects/was-app")).unwrap();
    arena.link("projects/app", arena.dir("foreign").file("foreign/f", "FOREIGN").at("foreign"));
    let bwrap = session.bwrap(&mounts, &at()).unwrap();
    let numbers: Vec<&str> = bwrap.args().iter().skip(1).step_by(3).map(String::as_str).collect();
    let script = format!(
        "exec 2>&1; cat /mnt/host/src/f; echo; cat /control/f; echo; echo y >/mnt/host/d/new; \
         echo z >/session/workspace/made; for n in {}; do [ -e /proc/self/fd/$n ] && echo LEFT; done; \
         echo x >/mnt/host/src/new",
        numbers.join(" ")
    );
    let control = ["--bind", path.to_str().unwrap(), "/control"];
    let Some(said) = in_guest(&bwrap, &control, &format!("({script}); true")) else { return };
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["mine", "FOREIGN"], "the second is the control, by path: {said}");
    assert!(lines.len() == 3 && lines[2].ends_with("Read-only file system"), "{said}");
    assert_eq!(arena.content("data/shared/new"), b"y\n");
    assert_eq!(arena.content("sessions/s/guest/workspace/made"), b"z\n");
    assert!(!arena.has("projects/was-app/new"));
}

/// bubblewrap binds no mount that is attached nowhere.
#[test]
fn a_sealed_mount_is_handed_over_by_the_handle_of_before() {
    with_private_mounts(|| {
        let arena = Arena::new();
        let mounts = granted(&arena).sealed(&arena.seat()).unwrap();
        assert_eq!(mounts.oci(&at(), ambient_authority()).unwrap().len(), 2);
        let root = Root::open_ambient(arena.dir("sessions").at("sessions"), ambient_authority()).unwrap();
        let sessions = Sessions::new(root, SessionsConfig::default()).sealed(&arena.seat()).unwrap();
        let (session, _) = sessions.create(&SessionId::new("s")).unwrap();
        assert_eq!(kind(session.bwrap(&mounts, &at())), ErrorKind::Unsupported);
        let script = "exec 2>&1; cat /mnt/host/d/f /mnt/host/src/f; echo x >/mnt/host/src/new";
        let bwrap = mounts.bwrap(&at()).unwrap();
        let Some(said) = in_guest(&bwrap, &[], &format!("({script}); true")) else { return };
        assert!(said.starts_with("datamine") && said.trim_end().ends_with("Read-only file system"), "{said}");
    });
}

#[test]
fn a_mount_point_in_reach_of_the_guest_is_refused() {
    let arena = Arena::new();
    let (mounts, session) = (granted(&arena), session(&arena));
    for at in ["/session", "/session/workspace/mnt", "/"] {
        let at = MountPoint::new(at).unwrap();
        assert_eq!(kind(session.bwrap(&mounts, &at)), ErrorKind::InvalidPath, "{at}");
    }
    for at in ["/mnt", "/sessions", "/session2/x"] {
        let bwrap = session.bwrap(&mounts, &MountPoint::new(at).unwrap()).unwrap();
        assert_eq!((bwrap.args().len(), bwrap.descriptors().count()), (9, 3), "{at}");
    }
}

#[test]
fn engines_get_the_paths_of_now() {
    let arena = Arena::new();
    let mounts = granted(&arena);
    fs::rename(arena.at("projects/app"), arena.at("projects/moved")).unwrap();
    arena.link("projects/app", arena.outside());
    let [data, source] = ["data/shared", "projects/moved"]
        .map(|path| arena.at(path).canonicalize().unwrap().to_str().unwrap().to_owned());
    let entries = mounts.oci(&at(), ambient_authority()).unwrap();
    assert_eq!((&entries[0].source, &entries[1].source), (&data, &source));
    assert_eq!(entries[1].destination, "/mnt/host/src");
    assert_eq!(entries[1].options, ["bind", "private", "nosuid", "nodev", "nosymfollow", "ro"]);
    assert_eq!(entries[0].options.last(), Some(&"rw"));
    let args = mounts.engine_args(&at(), ambient_authority()).unwrap();
    let expected = [
        "--mount".to_owned(),
        format!("type=bind,src={data},dst=/mnt/host/d,bind-propagation=private"),
        "--mount".to_owned(),
        format!("type=bind,src={source},dst=/mnt/host/src,bind-propagation=private,readonly"),
    ];
    assert_eq!(args, expected);
}

#[test]
fn a_path_that_the_option_cannot_carry_is_refused() {
    for name in ["a,readonly=false", "a\"b", "a\nb"] {
        let arena = Arena::new();
        let mounts = granted(&arena);
        fs::rename(arena.at("projects/app"), arena.at("projects").join(name)).unwrap();
        assert_eq!(kind(mounts.engine_args(&at(), ambient_authority())), ErrorKind::InvalidPath, "{name}");
        assert!(mounts.oci(&at(), ambient_authority()).is_ok(), "control: JSON carries it");
    }
}

/// A guest that plants a link at a mount point has the engine mount elsewhere.
#[test]
fn what_the_engine_has_mounted_is_compared_with_what_was_granted() {
    with_private_mounts(|| {
        let arena = Arena::new();
        let mounts = granted(&arena);
        arena.dir("container/mnt/host/src").dir("container/mnt/host/d").dir("container/elsewhere");
        let points = ["src", "d"].map(|alias| arena.at("container/mnt/host").join(alias));
        let verify = || {
            let root = Root::open_ambient(arena.at("container"), ambient_authority()).unwrap();
            let wrong = mounts.verify_in(&root, &at()).unwrap();
            wrong.iter().map(|alias| alias.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(verify(), ["d", "src"]);
        let _mounted = beneath_kit::namespace::Mounted(points.clone());
        rustix::mount::mount_bind(arena.at("projects/app"), &points[0]).unwrap();
        rustix::mount::mount_bind(arena.at("data/shared"), &points[1]).unwrap();
        assert!(verify().is_empty());
        rustix::mount::mount_bind(arena.outside(), &points[0]).unwrap();
        assert_eq!(verify(), ["src"]);
        rustix::mount::unmount(&points[0], rustix::mount::UnmountFlags::DETACH).unwrap();
    });
}
