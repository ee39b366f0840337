//! Sessions among mounts, unreadable directories, and on file systems that lack something.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use beneath::session::{Attachment, SessionsConfig};
use beneath::{
    Ensured, ErrorKind, MessageId, ResolverChoice, Root, SessionId, Sessions, ambient_authority, safe_name,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::kit::child::run_unprivileged;
use crate::kit::namespace::{Mounted, with_private_mounts};
use crate::kit::skip;
use crate::support::{RESOLVERS, kinds, names, with_each_resolver};

fn id(raw: &str) -> SessionId {
    SessionId::new(raw)
}

fn sessions_at(path: &Path, resolver: ResolverChoice) -> Sessions {
    let root = Root::open_ambient(path, ambient_authority()).unwrap();
    Sessions::new(root, SessionsConfig::default().with_resolver(resolver))
}

fn tmpfs(point: &Path) {
    mount("none", point, "tmpfs", MountFlags::empty(), None).unwrap();
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_directory_that_cannot_be_entered_costs_one_entry() {
    run_unprivileged("mounts::a_directory_that_cannot_be_entered_costs_one_entry", || {
        with_each_resolver(|stage| {
            let closed = stage.sessions_path().join("lost+found");
            fs::create_dir(&closed).unwrap();
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
            stage.sessions.group(&safe_name("team").unwrap()).unwrap();

            assert_eq!(stage.sessions.list().unwrap(), [id("s")]);
            assert_eq!(stage.sessions.groups().unwrap(), [safe_name("team").unwrap()]);
            let survey = stage.sessions.survey().unwrap();
            assert_eq!((survey.sessions.len(), survey.groups.len(), survey.refused.total), (1, 1, 1));
            assert_eq!(survey.refused.first[0].subject, Path::new("lost+found"));
            assert_eq!(survey.refused.first[0].error.kind(), ErrorKind::Denied);
            let swept = stage.sessions.sweep(Duration::ZERO).unwrap();
            assert_eq!(
                (swept.removed, swept.left.total, swept.left.first[0].error.kind()),
                (1, 1, ErrorKind::Denied)
            );
            assert!(closed.exists());
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        });
    });
}

#[test]
fn a_mount_among_the_sessions_costs_nobody_else() {
    with_private_mounts(|| {
        with_each_resolver(|stage| {
            let point = stage.sessions_path().join("b");
            fs::create_dir(&point).unwrap();
            let mounted = Mounted([point.clone()]);
            tmpfs(&point);
            fs::write(point.join("kept"), "x").unwrap();
            stage.sessions.group(&safe_name("team").unwrap()).unwrap();

            assert_eq!(stage.sessions.list().unwrap(), [id("s")]);
            assert_eq!(stage.sessions.groups().unwrap(), [safe_name("team").unwrap()]);
            assert_eq!(stage.sessions.create(&id("b")).unwrap_err().kind(), ErrorKind::AlreadyExists);
            assert_eq!(stage.sessions.remove(&id("b")).unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(stage.sessions.sweep(Duration::ZERO).unwrap().removed, 1);
            assert!(point.join("kept").exists());
            drop(mounted);
        });
    });
}

#[test]
fn a_session_works_on_a_file_system_of_its_own() {
    with_private_mounts(|| {
        with_each_resolver(|stage| {
            let guest = stage.guest("");
            let mounted = Mounted([guest.clone()]);
            tmpfs(&guest);
            let (session, how) = stage.sessions.create(&id("s")).unwrap();
            assert_eq!(how, Ensured::Existed);
            assert!(session.verify().is_sound(), "what the file system lacked was made");
            let one = || [Attachment::from_bytes(b"x").with_name("a")];
            let delivery = session.inbox().deliver(&MessageId::new("1"), one());
            assert_eq!(kinds(delivery.refusals()), []);
            assert!(guest.join("inbox/1/a").exists());
            stage.send("7", &[("a", b"a")]);
            let claim = session.outbox().claim(&MessageId::new("7")).unwrap().unwrap();
            assert_eq!(claim.read(["a"]).unwrap().found().count(), 1);
            assert_eq!(stage.sessions.list().unwrap(), [id("s")]);
            assert_eq!(stage.sessions.sweep(Duration::from_secs(3600)).unwrap().kept, 1);

            let removed = stage.sessions.remove(&id("s")).unwrap();
            assert!(
                !removed.is_complete() && removed.left.total > 0,
                "what is mounted cannot go: {removed:?}"
            );
            assert!(!stage.sessions.exists(&id("s")).unwrap());
            drop(mounted);
            let doomed = names(&stage.sessions_path()).into_iter().find(|name| name.starts_with(".removed-"));
            unmount(stage.sessions_path().join(doomed.unwrap()).join("guest"), UnmountFlags::DETACH).unwrap();
            let swept = stage.sessions.sweep(Duration::from_secs(3600)).unwrap();
            assert_eq!((swept.removed, swept.left.total), (1, 0), "{swept:?}");
        });
    });
}

#[test]
fn a_session_that_is_a_mount_itself_opens_and_is_removed_once_it_is_unmounted() {
    with_private_mounts(|| {
        with_each_resolver(|stage| {
            let whole = stage.sessions_path().join("s");
            let mounted = Mounted([whole.clone()]);
            mount_bind(&whole, &whole).unwrap();
            let session = stage.sessions.open(&id("s")).unwrap();
            assert!(session.try_lock().is_ok());
            assert_eq!(stage.sessions.list().unwrap(), [id("s")]);
            assert_eq!(stage.sessions.remove(&id("s")).unwrap_err().kind(), ErrorKind::Busy);
            let swept = stage.sessions.sweep(Duration::ZERO).unwrap();
            assert_eq!((swept.removed, swept.left.total), (0, 1));
            assert!(session.verify().is_sound(), "nothing of it went");
            drop(mounted);
            assert!(stage.sessions.remove(&id("s")).unwrap().is_complete());
        });
    });
}

/// Sessions in a lower layer, as an image brings them, and the way to them.
fn overlay(base: &Path) -> Option<PathBuf> {
    tmpfs(base);
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| base.join(name));
    for dir in [&lower, &upper, &work, &merged] {
        fs::create_dir(dir).unwrap();
    }
    for name in ["a", "b", "kept"] {
        sessions_at(&lower, ResolverChoice::Auto).create(&id(name)).unwrap();
        fs::create_dir(lower.join(name).join("guest/workspace/d")).unwrap();
        fs::write(lower.join(name).join("guest/workspace/d/f"), "x").unwrap();
    }
    let layers = format!(
        "lowerdir={},upperdir={},workdir={},redirect_dir=off",
        text(&lower),
        text(&upper),
        text(&work)
    );
    run("mount", &["-t", "overlay", "-o", &layers, "none", text(&merged)]).then_some(merged)
}

#[test]
fn a_session_of_a_lower_layer_is_removed_in_place() {
    with_private_mounts(|| {
        for resolver in RESOLVERS {
            let dir = tempfile::tempdir().unwrap();
            let mounted = Mounted([dir.path().join("merged"), dir.path().to_path_buf()]);
            let Some(merged) = overlay(dir.path()) else { return skip("no overlay can be mounted here") };
            let sessions = sessions_at(&merged, resolver);
            let old = sessions.open(&id("a")).unwrap();
            let lock = old.try_lock().unwrap();
            assert_eq!(sessions.remove(&id("a")).unwrap_err().kind(), ErrorKind::Busy);
            drop(lock);
            let removed = sessions.remove(&id("a")).unwrap();
            assert!(removed.is_complete(), "{removed:?}");
            assert!(!merged.join("a").exists());
            assert_eq!(old.try_lock().unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(sessions.create(&id("a")).unwrap().1, Ensured::Created);
            assert!(sessions.remove(&id("kept")).unwrap().is_complete());
            assert_eq!(sessions.list().unwrap(), [id("a"), id("b")]);
            drop(mounted);
        }
    });
}

#[test]
fn a_removal_in_place_that_was_cut_short_is_finished_by_a_sweep() {
    with_private_mounts(|| {
        for resolver in RESOLVERS {
            let dir = tempfile::tempdir().unwrap();
            let mounted = Mounted([dir.path().join("merged"), dir.path().to_path_buf()]);
            let Some(merged) = overlay(dir.path()) else { return skip("no overlay can be mounted here") };
            let root = Root::open_ambient(&merged, ambient_authority()).unwrap();
            let small = SessionsConfig::default()
                .with_resolver(resolver)
                .with_budget(beneath::Budget::default().with_entries(2));
            let hasty = Sessions::new(root, small);
            let old = hasty.open(&id("a")).unwrap();
            assert!(!hasty.remove(&id("a")).unwrap().is_complete());

            let sessions = sessions_at(&merged, resolver);
            assert_eq!(sessions.list().unwrap(), [id("b"), id("kept")]);
            assert!(!sessions.exists(&id("a")).unwrap());
            assert_eq!(sessions.open(&id("a")).unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(old.try_lock().unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(sessions.create(&id("a")).unwrap_err().kind(), ErrorKind::Busy);
            let swept = sessions.sweep(Duration::from_secs(3600)).unwrap();
            assert_eq!((swept.removed, swept.kept, swept.left.total), (1, 2, 0), "{swept:?}");
            assert!(!merged.join("a").exists());
            assert_eq!(sessions.create(&id("a")).unwrap().1, Ensured::Created);
            drop(mounted);
        }
    });
}

/// FUSE keeps a file that is unlinked while it is open, under another name in the same directory.
#[test]
fn a_session_is_removed_where_open_files_are_hidden() {
    with_private_mounts(|| {
        let dir = tempfile::tempdir().unwrap();
        let [real, point] = ["real", "point"].map(|name| dir.path().join(name));
        fs::create_dir(&real).unwrap();
        fs::create_dir(&point).unwrap();
        if !run("bindfs", &[text(&real), text(&point)]) {
            return skip("bindfs is missing or cannot mount here");
        }
        let mounted = Mounted([point.clone()]);
        for resolver in RESOLVERS {
            let sessions = sessions_at(&point, resolver);
            let (session, _) = sessions.create(&id("s")).unwrap();
            drop(session.try_lock().unwrap());
            let delivery =
                session.inbox().deliver(&MessageId::new("1"), [Attachment::from_bytes(b"x").with_name("a")]);
            assert_eq!(kinds(delivery.refusals()), []);
            let removed = sessions.remove(&id("s")).unwrap();
            assert!(removed.is_complete(), "{removed:?}");
            let left: Vec<String> = names(&real).into_iter().filter(|name| name != ".clock").collect();
            assert!(left.is_empty(), "{left:?}");
        }
        drop(mounted);
    });
}

/// A file system on which several spellings name one directory.
fn folding(dir: &Path) -> Option<PathBuf> {
    let [image, point] = ["image", "point"].map(|name| dir.join(name));
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    fs::create_dir(&point).unwrap();
    let made = run("mkntfs", &["-F", "-Q", "-q", text(&image)])
        && run("lowntfs-3g", &["-o", "ignore_case", text(&image), text(&point)]);
    if !made {
        return None;
    }
    fs::create_dir(point.join("abc")).unwrap();
    let folds = point.join("ABC").exists();
    fs::remove_dir(point.join("abc")).unwrap();
    folds.then_some(point)
}

#[test]
fn on_a_file_system_that_folds_case_one_id_does_not_reach_anothers_session() {
    with_private_mounts(|| {
        for resolver in RESOLVERS {
            let dir = tempfile::tempdir().unwrap();
            let mounted = Mounted([dir.path().join("point")]);
            let Some(point) = folding(dir.path()) else {
                return skip("no file system that folds case can be made here");
            };
            let sessions = sessions_at(&point, resolver);
            // On a busy machine the daemon has been seen to lose a directory that it has just made.
            let (bob, how) = (0..5).find_map(|_| sessions.create(&id("bob")).ok()).unwrap();
            assert_eq!(how, Ensured::Created);
            assert_eq!(sessions.create(&id("BOB")).unwrap_err().kind(), ErrorKind::AlreadyExists);
            assert_eq!(sessions.open(&id("BOB")).unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(sessions.remove(&id("BOB")).unwrap_err().kind(), ErrorKind::NotFound);
            assert!(!sessions.exists(&id("BOB")).unwrap());
            assert!(bob.verify().is_sound());
            sessions.group(&safe_name("acme").unwrap()).unwrap();
            let error = sessions.group(&safe_name("ACME").unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            assert_eq!(sessions.list().unwrap(), [id("bob")]);
            assert!(sessions.remove(&id("bob")).unwrap().is_complete());
            drop(mounted);
        }
    });
}
