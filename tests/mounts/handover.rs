//! Mounts in the hands of those who start the guest.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use beneath::mounts::{Bwrap, Difference, Mode, Mounts, OciMount};
use beneath::session::Parts;
use beneath::{
    ErrorKind, Links, MountPoint, Policy, Root, Session, SessionId, Sessions, SessionsConfig,
    ambient_authority, safe_name,
};
use beneath_kit::namespace::with_private_mounts;
use beneath_kit::{Arena, kind, skip};
use serde_json::{Value, json};

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

fn sessions(arena: &Arena) -> Sessions {
    let root = Root::open_ambient(arena.dir("sessions").at("sessions"), ambient_authority()).unwrap();
    let config = SessionsConfig::default().with_share(MountPoint::new("/share").unwrap());
    Sessions::new(root, config)
}

fn session(arena: &Arena) -> Session {
    sessions(arena).create(&SessionId::new("s")).unwrap().0
}

/// A script in a guest that sees the system's programs and what `args` mount; none where bubblewrap is missing.
fn start(bwrap: &Bwrap, args: &[&str], script: &str) -> Option<Child> {
    let help = Command::new("bwrap").arg("--help").output();
    if !help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--ro-bind-fd")) {
        skip("there is no bubblewrap that takes descriptors");
        return None;
    }
    let mut command = beneath_kit::bwrap::command();
    command.args(args).args(["/bin/sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(bwrap.spawn(&mut command).unwrap())
}

/// What it prints; none where bubblewrap cannot do it.
fn end(child: Child) -> Option<String> {
    let output = child.wait_with_output().unwrap();
    let [said, complained] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if complained.contains("namespace") || complained.contains("setting up uid map") {
        skip(&format!("bubblewrap may not do it here: {complained}"));
        return None;
    }
    assert!(output.status.success(), "{said}\n{complained}");
    Some(said)
}

fn in_guest(bwrap: &Bwrap, more: &[&str], script: &str) -> Option<String> {
    let args: Vec<&str> = more.iter().copied().chain(bwrap.args().iter().map(String::as_str)).collect();
    start(bwrap, &args, script).and_then(end)
}

#[test]
fn a_guest_in_bubblewrap_gets_what_was_granted_whatever_was_exchanged_since() {
    let arena = Arena::new();
    let (mounts, session) = (granted(&arena), session(&arena));
    let path = arena.at("projects/app");
    fs::rename(&path, arena.at("projects/was-app")).unwrap();
    arena.link("projects/app", arena.dir("foreign").file("foreign/f", "FOREIGN").at("foreign"));
    session.share().unwrap().write_exclusive("db", "shared").unwrap();
    let bwrap = session.bwrap(&mounts, &at()).unwrap();
    let numbers: Vec<&str> = bwrap.args().iter().skip(1).step_by(3).map(String::as_str).collect();
    let script = format!(
        "exec 2>&1; cat /mnt/host/src/f; echo; cat /control/f; echo; echo y >/mnt/host/d/new; cat /share/db; echo; \
         echo z >/session/workspace/made; for n in {}; do [ -e /proc/self/fd/$n ] && echo LEFT; done; \
         (echo x >/share/db); echo x >/mnt/host/src/new",
        numbers.join(" ")
    );
    let control = ["--bind", path.to_str().unwrap(), "/control"];
    let Some(said) = in_guest(&bwrap, &control, &format!("({script}); true")) else { return };
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..3], ["mine", "FOREIGN", "shared"], "the second is the control, by path: {said}");
    assert_eq!(lines.len(), 5, "{said}");
    assert!(lines[3..].iter().all(|line| line.ends_with("Read-only file system")), "{said}");
    assert_eq!(arena.content("sessions/s/share/db"), b"shared");
    assert_eq!(arena.content("data/shared/new"), b"y\n");
    assert_eq!(arena.content("sessions/s/guest/workspace/made"), b"z\n");
    assert!(!arena.has("projects/was-app/new"));
}

/// A guest that had the descriptor of another's directory would open `..` of it.
#[test]
fn guests_that_are_started_at_once_inherit_nothing_of_each_other() {
    let arena = Arena::new();
    let at = at();
    let bwraps = ["one", "two"].map(|name| {
        let asked = [request(name, "data", name, Mode::ReadWrite)];
        arena.dir(Path::new("data").join(name));
        rules(&arena).grant("ada", &asked).unwrap().hand_over(&at).unwrap().bwrap().unwrap()
    });
    let seen_in = |bwrap: &Bwrap| {
        let mut command = Command::new("sh");
        command.args(["-c", "for fd in /proc/self/fd/*; do readlink $fd; done"]).stdout(Stdio::piped());
        let output = bwrap.spawn(&mut command).unwrap().wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        ["data/one", "data/two"].map(|dir| said.lines().any(|line| line.ends_with(dir)))
    };
    std::thread::scope(|scope| {
        for (bwrap, own) in bwraps.iter().zip([[true, false], [false, true]]) {
            scope.spawn(move || (0..100).for_each(|_| assert_eq!(seen_in(bwrap), own)));
        }
    });
    assert_eq!(seen_in(&Bwrap::default()), [false, false], "they stay inheritable");
    let control =
        rustix::io::fcntl_setfd(bwraps[1].descriptors().next().unwrap(), rustix::io::FdFlags::empty());
    control.unwrap();
    assert_eq!(seen_in(&bwraps[0]), [true, true], "control: what another thread has made inheritable");
}

#[test]
fn a_command_that_cannot_be_started_is_an_error_and_leaves_nothing_inheritable() {
    let arena = Arena::new();
    let bwrap = granted(&arena).hand_over(&at()).unwrap().bwrap().unwrap();
    assert_eq!(kind(bwrap.spawn(&mut Command::new("/nowhere/bwrap"))), ErrorKind::NotFound);
    for held in bwrap.descriptors() {
        assert!(rustix::io::fcntl_getfd(held).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}

/// bubblewrap binds no mount that is attached nowhere.
#[test]
fn what_is_sealed_is_handed_over_by_the_handle_of_before() {
    with_private_mounts(|| {
        let arena = Arena::new();
        let seat = arena.seat();
        let mounts = granted(&arena).sealed(&seat).unwrap();
        let sessions = sessions(&arena).sealed(&seat).unwrap();
        let group = sessions.group(&safe_name("team").unwrap()).unwrap().sealed(&seat).unwrap();
        for (sessions, path) in [(sessions, "sessions/s"), (group, "sessions/team/s")] {
            let (session, _) = sessions.create(&SessionId::new("s")).unwrap();
            assert!(session.guest().enforced().unwrap().detached);
            let handed = session.hand_over(&mounts, &at()).unwrap();
            let entries = handed.oci(ambient_authority()).unwrap();
            let canonical = |path: &Path| path.canonicalize().unwrap().to_str().unwrap().to_owned();
            assert_eq!(entries[0].source, canonical(&arena.at(path).join("guest")));
            assert_eq!(entries[1].source, canonical(&arena.at(path).join("share")));
            assert_eq!(
                session.to_mount(ambient_authority()).unwrap()[0].source.to_str(),
                Some(&*entries[0].source)
            );
            let script = "exec 2>&1; cat /mnt/host/d/f /mnt/host/src/f; echo z >/session/workspace/made; \
                          echo x >/mnt/host/src/new";
            let Some(said) = in_guest(&handed.bwrap().unwrap(), &[], &format!("({script}); true")) else {
                return;
            };
            assert!(
                said.starts_with("datamine") && said.trim_end().ends_with("Read-only file system"),
                "{said}"
            );
            assert_eq!(session.workspace().read_contained("made", 9).unwrap(), b"z\n");
        }
    });
}

/// The plain directory may have changed since the sealed one was opened.
#[test]
fn a_sealed_session_hands_over_no_other_directory() {
    with_private_mounts(|| {
        let arena = Arena::new();
        let sessions = sessions(&arena).sealed(&arena.seat()).unwrap();
        let (session, _) = sessions.create(&SessionId::new("s")).unwrap();
        let guest = arena.at("sessions/s/guest");
        let _mounted = beneath_kit::namespace::Mounted([guest.clone()]);
        rustix::mount::mount_bind(arena.outside(), &guest).unwrap();
        assert_eq!(kind(session.hand_over(&Mounts::default(), &at())), ErrorKind::NotFound);
        assert_eq!(kind(session.to_mount(ambient_authority())), ErrorKind::NotFound);
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
        assert_eq!((bwrap.args().len(), bwrap.descriptors().count()), (12, 4), "{at}");
    }
}

/// The guest makes `/session/share` a link, and the engine mounts the share wherever it leads.
#[test]
fn a_mount_point_of_the_session_in_a_directory_that_the_guest_writes_to_is_refused() {
    let point = |path: &str| MountPoint::new(path).unwrap();
    let places = |workspace: &str, inbox: &str| {
        let places = Parts { inbox: point(inbox), outbox: point("/out"), workspace: point(workspace) };
        SessionsConfig::default().with_places(places)
    };
    let cases = [
        (SessionsConfig::default().with_share(point("/session/share")), true),
        (SessionsConfig::default().with_share(point("/session")), true),
        (places("/work", "/work/in"), true),
        (places("/work", "/in").with_share(point("/work/share")), true),
        (places("/work", "/work"), true),
        (places("/work", "/worker/in").with_share(point("/share")), false),
    ];
    for (config, refused) in cases {
        let arena = Arena::new();
        let root = Root::open_ambient(arena.root(), ambient_authority()).unwrap();
        let (session, _) = Sessions::new(root, config.clone()).create(&SessionId::new("s")).unwrap();
        let handed = session.hand_over(&Mounts::default(), &point("/mnt"));
        match refused {
            true => assert_eq!(kind(handed), ErrorKind::InvalidPath, "{config:?}"),
            false => assert!(handed.is_ok(), "{config:?}: {handed:?}"),
        }
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
    let handed = mounts.hand_over(&at()).unwrap();
    let entries = handed.oci(ambient_authority()).unwrap();
    assert_eq!((&entries[0].source, &entries[1].source), (&data, &source));
    assert_eq!(entries[1].destination, "/mnt/host/src");
    assert_eq!(entries[0].options, ["bind", "private", "nosuid", "nodev", "rw", "nosymfollow"]);
    assert_eq!(entries[1].options, ["bind", "private", "nosuid", "nodev", "ro", "nosymfollow"]);
    let expected = |how: &str| {
        let how = format!("bind-propagation=private,{how}");
        [
            "--mount".to_owned(),
            format!("type=bind,src={data},dst=/mnt/host/d,{how}"),
            "--mount".to_owned(),
            format!("type=bind,src={source},dst=/mnt/host/src,{how},readonly"),
        ]
    };
    let docker = handed.docker_args(ambient_authority()).unwrap();
    assert_eq!(docker, expected("bind-recursive=disabled"));
    let podman = handed.podman_args(ambient_authority()).unwrap();
    assert_eq!(podman, expected("bind-nonrecursive,nosuid,nodev"));
    let expected = [
        format!("--bind={data}:/mnt/host/d:norbind,idmap"),
        format!("--bind-ro={source}:/mnt/host/src:norbind,idmap"),
    ];
    assert_eq!(handed.nspawn_args(ambient_authority()).unwrap(), expected);
}

/// Without a daemon: the client reads its options first.
#[test]
fn docker_understands_its_arguments() {
    let arena = Arena::new();
    let args = granted(&arena).hand_over(&at()).unwrap().docker_args(ambient_authority()).unwrap();
    let complaint = |args: &[String]| {
        let mut command = Command::new("docker");
        command.env("DOCKER_HOST", "unix:///nowhere/docker.sock").arg("create").args(args).arg("image");
        command.output().ok().map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let Some(said) = complaint(&args) else { return skip("there is no docker") };
    assert!(said.contains("daemon") && !said.contains("invalid argument"), "{said}");
    let unknown = [args[0].clone(), format!("{},no-such-option", args[1])];
    let said = complaint(&unknown).unwrap();
    assert!(said.contains("no-such-option"), "control: an option that it does not know: {said}");
}

#[test]
fn a_path_that_the_option_cannot_carry_is_refused() {
    let names = [("a,readonly=false", true, false), ("a\"b", true, false), ("a\nb", true, true)];
    for (name, engine, nspawn) in names.into_iter().chain([("a:b", false, true), ("a\\b", false, true)]) {
        let arena = Arena::new();
        let mounts = granted(&arena);
        fs::rename(arena.at("projects/app"), arena.at("projects").join(name)).unwrap();
        let handed = mounts.hand_over(&at()).unwrap();
        let refused = |result: beneath::Result<Vec<String>>| {
            result.is_err_and(|error| error.kind() == ErrorKind::InvalidPath)
        };
        assert_eq!(refused(handed.docker_args(ambient_authority())), engine, "{name}");
        assert_eq!(refused(handed.podman_args(ambient_authority())), engine, "{name}");
        assert_eq!(refused(handed.nspawn_args(ambient_authority())), nspawn, "{name}");
        assert!(handed.oci(ambient_authority()).is_ok(), "control: JSON carries it");
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
        let handed = mounts.hand_over(&at()).unwrap();
        let verify = || {
            let root = Root::open_ambient(arena.at("container"), ambient_authority()).unwrap();
            handed.verify_in(&root).unwrap()
        };
        let [d, src] = ["d", "src"].map(|alias| format!("/mnt/host/{alias}"));
        assert_eq!(verify(), [(d.clone(), Difference::Another), (src.clone(), Difference::Another)]);
        let _mounted = beneath_kit::namespace::Mounted(points.clone());
        rustix::mount::mount_bind(arena.at("projects/app"), &points[0]).unwrap();
        rustix::mount::mount_bind(arena.at("data/shared"), &points[1]).unwrap();
        assert_eq!(verify(), [(src.clone(), Difference::Writable)]);
        let flags = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
        rustix::mount::mount_remount(&points[0], flags, c"").unwrap();
        assert!(verify().is_empty());
        rustix::mount::mount_bind(arena.outside(), &points[0]).unwrap();
        assert_eq!(verify(), [(src, Difference::Another)]);
        rustix::mount::unmount(&points[0], rustix::mount::UnmountFlags::DETACH).unwrap();
        rustix::mount::unmount(&points[1], rustix::mount::UnmountFlags::DETACH).unwrap();
        fs::remove_dir(&points[1]).unwrap();
        arena.link("container/mnt/host/d", "../../elsewhere");
        assert_eq!(verify(), [(d.clone(), Difference::Missing)]);
        // A link that leads there now can lead elsewhere later, whatever the caller's root follows.
        rustix::mount::mount_bind(arena.at("data/shared"), arena.at("container/elsewhere")).unwrap();
        let _elsewhere = beneath_kit::namespace::Mounted([arena.at("container/elsewhere")]);
        let following = Root::open_ambient(arena.at("container"), ambient_authority()).unwrap();
        let following = following.with_policy(Policy::default().with_links(Links::FollowBeneath));
        assert_eq!(handed.verify_in(&following).unwrap(), [(d, Difference::Missing)]);
    });
}

/// The first process of a guest in bubblewrap, which waits for its input to end.
fn first_process(child: &mut Child) -> Option<Root> {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let pid = child.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let root = children.split_whitespace().next().map(|pid| format!("/proc/{pid}/root"))?;
    Root::open_ambient(root, ambient_authority()).ok()
}

#[test]
fn a_guest_in_bubblewrap_sees_what_was_handed_over() {
    let arena = Arena::new();
    let (mounts, session) = (granted(&arena), session(&arena));
    let handed = session.hand_over(&mounts, &at()).unwrap();
    let bwrap = handed.bwrap().unwrap();
    // What an engine that forgets a flag, or mounts elsewhere, would do.
    let mut args = bwrap.args().to_vec();
    let at_source = args.iter().position(|arg| arg == "/mnt/host/src").unwrap();
    args[at_source - 2] = "--bind-fd".to_owned();
    let [data, path] = ["/mnt/host/d".to_owned(), arena.at("data").to_str().unwrap().to_owned()];
    args.extend(["--bind".to_owned(), path, data.clone()]);
    let wrong = [(data, Difference::Another), ("/mnt/host/src".to_owned(), Difference::Writable)];
    for (args, expected) in [(bwrap.args(), &[][..]), (&args, &wrong)] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let Some(mut child) = start(&bwrap, &args, "echo; exec cat") else { return };
        let seen = first_process(&mut child).map(|root| handed.verify_in(&root).unwrap());
        drop(child.stdin.take());
        let mut complained = String::new();
        child.stderr.as_mut().unwrap().read_to_string(&mut complained).unwrap();
        child.wait().unwrap();
        match seen {
            None => return skip(&format!("the guest cannot be looked at: {complained}")),
            Some(seen) => assert_eq!(seen, expected),
        }
    }
}

/// A script in a guest of runc; none, with the reason printed, where it cannot run.
fn in_runc(arena: &Arena, entries: &[OciMount], script: &str) -> Option<String> {
    let spec = Command::new("runc").arg("spec").current_dir(arena.dir("bundle").at("bundle")).output();
    if !spec.is_ok_and(|spec| spec.status.success()) || !Path::new("/bin/busybox").exists() {
        skip("there is no runc, or no busybox for its guest");
        return None;
    }
    let path = arena.at("bundle/config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    arena.dir("bundle/rootfs/bin").dir("bundle/rootfs/proc");
    fs::copy("/bin/busybox", arena.at("bundle/rootfs/bin/sh")).unwrap();
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["/bin/sh", "-c", script]);
    config["root"]["readonly"] = json!(false);

    config["mounts"].as_array_mut().unwrap().retain(|mount| mount["destination"] == "/proc");
    for entry in entries {
        config["mounts"].as_array_mut().unwrap().push(json!({
            "destination": entry.destination, "type": entry.kind, "source": entry.source, "options": entry.options,
        }));
    }
    config["linux"]["namespaces"] =
        json!([{ "type": "pid" }, { "type": "mount" }, { "type": "ipc" }, { "type": "uts" }]);
    config["linux"].as_object_mut().unwrap().remove("resources");
    fs::write(&path, config.to_string()).unwrap();
    let state = arena.dir("runc").at("runc");
    let id = format!("beneath-{}", std::process::id());
    let mut command = Command::new("runc");
    command.arg("--root").arg(state).args(["run", "--bundle"]).arg(arena.at("bundle")).arg(id);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !said.starts_with("started\n") {
        skip(&format!("runc starts no guest here: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    Some(said)
}

#[test]
fn a_guest_of_an_oci_runtime_gets_what_was_handed_over() {
    let arena = Arena::new();
    let (mounts, session) = (granted(&arena), session(&arena));
    arena.link("projects/app/link", "f").link("sessions/s/guest/workspace/link", "made");
    session.share().unwrap().write_exclusive("db", "shared").unwrap();
    let entries = session.hand_over(&mounts, &at()).unwrap().oci(ambient_authority()).unwrap();
    let script = "exec 2>&1; echo started; cat /mnt/host/src/f; echo; cat /share/db; echo; echo z >/session/workspace/made; \
                  cat /session/workspace/link; echo y >/mnt/host/d/new; cat /mnt/host/src/link; (echo x >/share/db); \
                  echo x >/mnt/host/src/new";
    let Some(said) = in_runc(&arena, &entries, script) else { return };
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..4], ["started", "mine", "shared", "z"], "{said}");
    assert!(lines[4].ends_with("Too many levels of symbolic links"), "{said}");
    assert!(
        lines.len() == 7 && lines[5..].iter().all(|line| line.ends_with("Read-only file system")),
        "{said}"
    );
    assert_eq!(arena.content("data/shared/new"), b"y\n");
}

#[test]
fn a_guest_of_nspawn_gets_what_was_handed_over() {
    let arena = Arena::new();
    let (mounts, session) = (granted(&arena), session(&arena));
    session.share().unwrap().write_exclusive("db", "shared").unwrap();
    if !Path::new("/bin/busybox").exists() {
        return skip("there is no busybox for the guest");
    }
    for dir in ["bin", "usr", "proc", "sys", "dev", "etc", "run", "tmp"] {
        arena.dir(Path::new("image").join(dir));
    }
    fs::copy("/bin/busybox", arena.at("image/bin/sh")).unwrap();
    let args = session.hand_over(&mounts, &at()).unwrap().nspawn_args(ambient_authority()).unwrap();
    let script = "exec 2>&1; echo started; cat /mnt/host/src/f; echo; cat /share/db; echo; echo z >/session/workspace/made; \
                  echo y >/mnt/host/d/new; (echo x >/share/db); echo x >/mnt/host/src/new";
    let mut command = Command::new("systemd-nspawn");
    command.args([
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--machine=beneath-test",
        "--private-users=pick",
    ]);
    command.arg("--directory").arg(arena.at("image")).args(args).args(["/bin/sh", "-c", script]);
    let Ok(output) = command.stdin(Stdio::null()).output() else {
        return skip("there is no systemd-nspawn");
    };
    let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    if !said.starts_with("started\n") {
        return skip(&format!(
            "systemd-nspawn starts no guest here: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..3], ["started", "mine", "shared"], "{said}");
    assert!(
        lines.len() == 5 && lines[3..].iter().all(|line| line.ends_with("Read-only file system")),
        "{said}"
    );
    assert_eq!(arena.content("data/shared/new"), b"y\n");
    assert_eq!(arena.content("sessions/s/guest/workspace/made"), b"z\n");
}
