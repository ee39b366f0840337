//! Inbox, outbox and workspace as three directories, each mounted by itself.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use beneath::session::{Armed, Attachment, Disposition, ListOptions, Part, PartState, Parts, Place, Watcher};
use beneath::{
    Access, Budget, Error, ErrorKind, Execute, GuestPath, Links, MessageId, MountPoint, Policy, Root,
    Session, SessionId, Sessions, SessionsConfig, WalkLimits, ambient_authority,
};
use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::{has_openat2, skip};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::support::{mode, names};

fn id() -> MessageId {
    MessageId::new("42")
}

fn mounts() -> Parts<MountPoint> {
    let point = |path| MountPoint::new(path).unwrap();
    Parts { inbox: point("/inbox"), outbox: point("/out"), workspace: point("/home/agent/work") }
}

fn config() -> SessionsConfig {
    SessionsConfig::default().with_places(mounts())
}

fn open(path: &Path) -> Root {
    fs::create_dir_all(path).unwrap();
    let policy = Policy::default().with_access(Access::shared());
    Root::open_ambient(path, ambient_authority()).unwrap().with_policy(policy)
}

/// A session over four directories that have nothing to do with each other.
fn over(dir: &Path, host: &Path) -> Session {
    let roots = Parts {
        inbox: open(&dir.join("from-host")),
        outbox: open(&dir.join("deep/to-host")),
        workspace: open(&dir.join("work")),
    };
    Session::from_places(roots, open(host)).unwrap().with_config(config())
}

fn send(outbox: &Path) {
    fs::create_dir(outbox.join("42")).unwrap();
    fs::write(outbox.join("42/a"), "sent").unwrap();
}

/// What a service does in a turn.
fn collect(session: &Session) -> Vec<(Vec<u8>, Place)> {
    let mut sent = Vec::new();
    let lock = session.try_lock().unwrap();
    let report = session.outbox().collect(&lock, &mut HashSet::new(), |claim| {
        let collected = claim.read(["a", "/out/42/a"])?;
        sent.extend(collected.found().map(|(_, bytes)| (bytes.clone(), claim.place())));
        Ok::<_, Error>(Disposition::Done)
    });
    assert!(report.unwrap().is_complete());
    sent
}

#[test]
fn inbox_outbox_and_workspace_are_three_host_directories() {
    let dir = TempDir::new().unwrap();
    let (inbox, outbox) = (dir.path().join("from-host"), dir.path().join("deep/to-host"));
    let session = over(dir.path(), &dir.path().join("host"));
    assert!(session.verify().is_sound());

    let delivery = session.inbox().deliver(&id(), [Attachment::from_bytes("hello").with_name("a")]);
    let file = delivery.files().next().unwrap();
    assert_eq!(
        (file.guest_path.as_str(), fs::read(inbox.join("42/a")).unwrap()),
        ("/inbox/42/a", b"hello".into())
    );
    let mut read = session.inbox().resolve_guest_path("/inbox/42/a").unwrap();
    assert_eq!(read.read_to_limit(9).unwrap(), b"hello");
    assert!(delivery.rollback().is_complete());
    assert_eq!(names(&inbox), [""; 0]);

    send(&outbox);
    assert_eq!(session.outbox().messages().unwrap().entries, [id()]);
    let claim = session.outbox().claim(&id()).unwrap().unwrap();
    assert_eq!((claim.place(), names(&outbox).len()), (Place::Moved, 0));
    claim.release().unwrap();
    assert_eq!(collect(&session), [(b"sent".to_vec(), Place::Moved)]);

    let workspace = session.workspace();
    workspace.write_exclusive("a", "1").unwrap();
    workspace.write_exclusive("/home/agent/work/src/b", "2").unwrap();
    assert_eq!(names(&dir.path().join("work")), ["a", "src"]);
    assert_eq!(workspace.list("", ListOptions::default()).unwrap().entries.len(), 2);
    assert_eq!(workspace.walk(".", WalkLimits::default()).unwrap().count(), 3);
    workspace.rename("a", "c").unwrap();
    assert_eq!(workspace.tail("c").unwrap().next_chunk(9).unwrap().bytes, b"1");
    assert!(workspace.remove_tree_contained("src").unwrap().is_complete());
    session.copy_db("/home/agent/work/c", 9).unwrap();
    assert_eq!(session.usage(WalkLimits::default()).unwrap().bytes, 1);
}

#[test]
fn each_place_has_its_own_mount_point() {
    let dir = TempDir::new().unwrap();
    let session = over(dir.path(), &dir.path().join("host"));
    let path = |text| GuestPath::new(text).unwrap();
    let cases = [
        ("/inbox/42/a", Part::Inbox, "42/a"),
        ("//out/./42", Part::Outbox, "42"),
        ("/home/agent/work/x", Part::Workspace, "x"),
        ("x", Part::Workspace, "x"),
        ("/inbox", Part::Inbox, "."),
    ];
    for (raw, part, within) in cases {
        assert_eq!(session.resolve(raw).unwrap(), (part, path(within)), "{raw}");
        let absolute = session.guest_path(part, &path(within)).unwrap();
        assert_eq!(session.resolve(absolute.as_os_str()).unwrap(), (part, path(within)), "{raw}");
    }
    for raw in ["/session/workspace/x", "/home/agent", "/work/x", "/out/../etc"] {
        assert_eq!(session.resolve(raw).unwrap_err().kind(), ErrorKind::Escape, "{raw}");
    }
    let to_mount = session.to_mount(ambient_authority()).unwrap();
    let real = fs::canonicalize(dir.path()).unwrap();
    let found: Vec<(PathBuf, &str)> =
        to_mount.iter().map(|mount| (mount.source.clone(), mount.target.as_str())).collect();
    let sources = ["from-host", "deep/to-host", "work"].map(|name| real.join(name));
    assert_eq!(found, sources.into_iter().zip(["/inbox", "/out", "/home/agent/work"]).collect::<Vec<_>>());
}

#[test]
fn a_path_in_none_of_the_places_is_no_path_of_the_workspace() {
    let dir = TempDir::new().unwrap();
    let session = over(dir.path(), &dir.path().join("host")).with_config(SessionsConfig::default());
    fs::write(dir.path().join("work/a"), "x").unwrap();
    assert!(session.heartbeat_age("/session/workspace/a").unwrap().is_some());
    assert_eq!(session.heartbeat_age("/session/a").unwrap_err().kind(), ErrorKind::Escape);
    assert_eq!(session.copy_db("/session/a", 9).unwrap_err().kind(), ErrorKind::Escape);
}

#[test]
fn what_is_apart_is_verified_hardened_and_emptied_and_never_removed() {
    let dir = TempDir::new().unwrap();
    let session = over(dir.path(), &dir.path().join("host"));
    session.workspace().write_exclusive("a", "1").unwrap();
    send(&dir.path().join("deep/to-host"));
    let loose = fs::Permissions::from_mode(0o666);
    fs::set_permissions(dir.path().join("deep/to-host/42/a"), loose).unwrap();
    let hardened = session.harden(Execute::Clear).unwrap();
    assert_eq!((hardened.directories, hardened.files), (4, 2), "{hardened:?}");
    assert_eq!(mode(&dir.path().join("deep/to-host/42/a")), 0o660);

    drop(session.outbox().claim(&id()).unwrap());
    send(&dir.path().join("deep/to-host"));
    let emptied = session.empty().unwrap();
    assert!(emptied.is_complete(), "{emptied:?}");
    for given in ["from-host", "deep/to-host", "work", "host/claimed", "host/trash"] {
        assert_eq!(names(&dir.path().join(given)), [""; 0], "{given}");
    }
    let lock = session.try_lock().unwrap();
    assert_eq!(session.empty().unwrap_err().kind(), ErrorKind::Busy);
    drop(lock);
    fs::remove_dir(dir.path().join("from-host")).unwrap();
    let layout = session.verify();
    assert_eq!(layout.unsound().collect::<Vec<_>>(), [(Part::Inbox, &PartState::Missing)]);
    assert_eq!(session.repair().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(session.to_mount(ambient_authority()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn an_outbox_on_another_mount_than_the_host_is_read_in_place() {
    let (dir, host) = (TempDir::new().unwrap(), TempDir::new_in("/dev/shm"));
    let Ok(host) = host else { return skip("needs a second file system at /dev/shm") };
    let session = over(dir.path(), host.path());
    let outbox = dir.path().join("deep/to-host");
    send(&outbox);
    let probe = session.outbox().claim(&id()).unwrap().unwrap();
    if probe.place() == Place::Moved {
        return skip("/dev/shm is on the same mount as the temporary directory");
    }
    assert_eq!(names(&outbox), [format!(".beneath-{}", probe.ticket())]);
    assert_eq!(session.outbox().pending().unwrap().entries.len(), 1);
    probe.release().unwrap();
    assert_eq!(names(&outbox), ["42"]);
    assert_eq!(collect(&session), [(b"sent".to_vec(), Place::InPlace(ErrorKind::CrossDevice))]);
    assert_eq!((names(&outbox).len(), names(&host.path().join("trash")).len()), (0, 0));
}

#[test]
fn a_workspace_of_its_own_may_follow_links_and_stays_the_boundary() {
    if !has_openat2() {
        return skip("needs openat2");
    }
    let dir = TempDir::new().unwrap();
    let follow = |root: Root| {
        let policy = root.policy().clone().with_links(Links::FollowBeneath);
        root.with_policy(policy)
    };
    let [inbox, outbox, workspace] = ["in", "out", "work"].map(|name| follow(open(&dir.path().join(name))));
    let session =
        Session::from_places(Parts { inbox, outbox, workspace }, open(&dir.path().join("host"))).unwrap();
    fs::write(dir.path().join("work/a"), "a").unwrap();
    symlink("a", dir.path().join("work/inside")).unwrap();
    symlink("../in", dir.path().join("work/outside")).unwrap();
    fs::create_dir(dir.path().join("real")).unwrap();
    symlink("../real", dir.path().join("in/42")).unwrap();
    assert_eq!(session.workspace().read_contained("inside", 9).unwrap(), b"a");
    let refused = session.workspace().metadata("outside/42").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Escape);
    let delivery = session.inbox().deliver(&id(), [Attachment::from_bytes("x")]);
    assert_eq!(delivery.refused().next().unwrap().1.kind(), ErrorKind::Symlink, "an inbox follows none");
}

#[test]
fn sessions_with_places_hold_what_is_mounted_there_and_empty_it_at_the_end() {
    with_private_mounts(|| {
        let dir = TempDir::new().unwrap();
        let sessions = Sessions::new(open(dir.path()), config());
        let session = SessionId::new("s");
        sessions.create(&session).unwrap();
        let outbox = dir.path().join("s/guest/outbox");
        mount("none", &outbox, "tmpfs", MountFlags::empty(), None).unwrap();
        let (opened, _) = sessions.create(&session).unwrap();
        send(&outbox);
        assert_eq!(collect(&opened), [(b"sent".to_vec(), Place::InPlace(ErrorKind::CrossDevice))]);
        send(&outbox);
        assert_eq!(sessions.open(&session).unwrap().outbox().messages().unwrap().entries, [id()]);
        assert_eq!(sessions.sweep(Duration::from_secs(3600)).unwrap().kept, 1);

        let removed = sessions.remove(&session).unwrap();
        assert!(!removed.is_complete(), "the mount is the host's");
        assert!(!sessions.exists(&session).unwrap());
        let left = names(dir.path()).into_iter().find(|name| name.starts_with(".removed-")).unwrap();
        let left = find_outbox(&dir.path().join(left)).unwrap();
        let _mounted = Mounted([left.clone()]);
        assert_eq!(names(&left), [""; 0], "what it contained is gone");
        drop(opened);
        // A child that another test has just forked may still hold a descriptor of it.
        unmount(&left, UnmountFlags::DETACH).unwrap();
        assert!(sessions.sweep(Duration::from_secs(3600)).unwrap().is_complete());
        assert_eq!(names(dir.path()), [".clock"]);
    });
}

#[test]
fn a_place_is_emptied_within_the_budget() {
    with_private_mounts(|| {
        let dir = TempDir::new().unwrap();
        let config = config().with_budget(Budget::unlimited().with_time(Duration::ZERO));
        let sessions = Sessions::new(open(dir.path()), config);
        let session = SessionId::new("s");
        sessions.create(&session).unwrap();
        let outbox = dir.path().join("s/guest/outbox");
        mount("none", &outbox, "tmpfs", MountFlags::empty(), None).unwrap();
        for name in 0..100 {
            fs::write(outbox.join(name.to_string()), "").unwrap();
        }
        let removed = sessions.remove(&session).unwrap();
        let left = names(dir.path()).into_iter().find(|name| name.starts_with(".removed-")).unwrap();
        let left = find_outbox(&dir.path().join(left)).unwrap();
        let _mounted = Mounted([left.clone()]);
        assert!(!removed.is_complete());
        assert_eq!(names(&left).len(), 100, "there was no time for any of them");
        assert!(removed.refused().any(|(_, error)| error.to_string().contains("budget")));
    });
}

/// The directory called `outbox` somewhere beneath `dir`.
fn find_outbox(dir: &Path) -> Option<PathBuf> {
    fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).find_map(
        |path| match path.ends_with("outbox") {
            true => Some(path),
            false => find_outbox(&path),
        },
    )
}

#[test]
fn a_guest_that_is_given_three_places_cannot_make_one_lead_elsewhere() {
    let dir = TempDir::new().unwrap();
    let sessions = Sessions::new(open(dir.path()), config());
    let (session, _) = sessions.create(&SessionId::new("s")).unwrap();
    let secret = dir.path().join("secret");
    fs::create_dir(&secret).unwrap();
    // Only a host that mounts the directory above lets it do this.
    fs::rename(dir.path().join("s/guest/inbox"), dir.path().join("s/guest/old")).unwrap();
    symlink(&secret, dir.path().join("s/guest/inbox")).unwrap();
    let delivery = session.inbox().deliver(&id(), [Attachment::from_bytes("x")]);
    assert!(delivery.is_complete());
    assert_eq!((names(&secret).len(), names(&dir.path().join("s/guest/old")).len()), (0, 1));
    assert_eq!(sessions.open(&SessionId::new("s")).unwrap_err().kind(), ErrorKind::Symlink);
}

#[test]
fn what_is_in_none_of_the_places_is_not_watched_either() {
    let dir = TempDir::new().unwrap();
    let session = over(dir.path(), &dir.path().join("host")).with_config(SessionsConfig::default());
    let watcher = Watcher::new();
    // Where the other calls say `Escape`, no directory of the workspace is taken for it.
    let mut watch = watcher.watch_path(&session, "/session/logs").unwrap();
    let Armed::Timer(error) = watch.arm().unwrap() else { panic!("it is on a directory") };
    assert_eq!(error.kind(), ErrorKind::Escape);
    assert_ne!(watcher.watch(&session, Part::Workspace).arm().unwrap(), &Armed::Timer(error.clone()));
}

/// The guest sees the outbox, and not what the workspace has at that place, by whatever path it goes there.
#[test]
fn a_place_in_another_is_one_part_by_every_spelling() {
    let dir = tempfile::tempdir().unwrap();
    let point = |path| MountPoint::new(path).unwrap();
    let nested = |inbox, outbox| {
        let mounts = Parts { inbox: point(inbox), outbox: point(outbox), workspace: point("/work") };
        over(dir.path(), &dir.path().join("host")).with_config(SessionsConfig::default().with_places(mounts))
    };
    let path = |path| GuestPath::new(path).unwrap();
    let session = nested("/work/out/in", "/work/out");
    for (raw, meant) in [
        ("out/42/a", (Part::Outbox, path("42/a"))),
        ("./x/../out/42/a", (Part::Outbox, path("42/a"))),
        ("/work/out/42/a", (Part::Outbox, path("42/a"))),
        ("out", (Part::Outbox, GuestPath::top())),
        ("out/in/a", (Part::Inbox, path("a"))),
        ("/work/out/in/a", (Part::Inbox, path("a"))),
        ("outer/a", (Part::Workspace, path("outer/a"))),
        ("/work/outer/a", (Part::Workspace, path("outer/a"))),
    ] {
        assert_eq!(session.resolve(raw).unwrap(), meant, "{raw}");
    }
    let error = session.workspace().write_exclusive("out/a", "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Escape, "the guest would not see it");
    // Nothing is in the workspace where it is the one that is in another.
    let session = nested("/", "/out");
    assert_eq!(session.resolve("out/a").unwrap(), (Part::Workspace, path("out/a")));
    // What a listing of the workspace has is a file of the workspace.
    assert_eq!(session.resolve(path("out/a")).unwrap(), (Part::Workspace, path("out/a")));
}
