//! The directory that a guest may only read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use beneath::session::{MountAccess, PartState, SessionsConfig};
use beneath::{
    Ensured, ErrorKind, MountPoint, ResolverChoice, Root, Session, SessionId, Sessions, ambient_authority,
};

use crate::support::{RESOLVERS, Stage, mode, names};

fn sharing(resolver: ResolverChoice) -> SessionsConfig {
    SessionsConfig::default().with_resolver(resolver).with_share(MountPoint::new("/share").unwrap())
}

#[test]
fn a_session_has_a_share_only_if_the_config_asks_for_it() {
    for resolver in RESOLVERS {
        let plain = Stage::new(resolver);
        assert!(plain.session.share().is_none() && plain.session.verify().share.is_none());
        assert_eq!(names(&plain.sessions_path().join("s")), [".session", "guest", "host"]);

        let stage = Stage::with_config(sharing(resolver));
        let share = stage.session.share().unwrap();
        share.ensure_dir("dir").unwrap();
        share.write_exclusive("dir/ready", "x").unwrap();
        let path = stage.sessions_path().join("s/share");
        let modes = [mode(&path), mode(&path.join("dir")), mode(&path.join("dir/ready"))];
        assert_eq!(modes, [0o755, 0o755, 0o644]);
        assert_eq!(fs::metadata(&path).unwrap().uid(), rustix::process::geteuid().as_raw());
        assert_eq!(stage.sessions.list().unwrap(), [SessionId::new("s")]);
    }
}

#[test]
fn no_path_that_a_guest_writes_leads_to_the_share() {
    let stage = Stage::with_config(sharing(ResolverChoice::Auto));
    stage.session.share().unwrap().write_exclusive("ready", "x").unwrap();
    for raw in ["/share/ready", "../share/ready", "/session/../share/ready", "../../share/ready"] {
        let kind = stage.session.workspace().read_contained(raw, 10).unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Escape | ErrorKind::NotFound), "{raw}: {kind:?}");
    }
}

#[test]
fn the_share_is_mounted_read_only_and_the_rest_is_not() {
    let stage = Stage::with_config(sharing(ResolverChoice::Auto));
    let mounts = stage.session.to_mount(ambient_authority()).unwrap();
    let found: Vec<_> = mounts.iter().map(|mount| (mount.target.as_str(), mount.access)).collect();
    assert_eq!(found, [("/session", MountAccess::ReadWrite), ("/share", MountAccess::ReadOnly)]);
    assert_eq!(mounts[1].source, fs::canonicalize(stage.sessions_path().join("s/share")).unwrap());
}

#[test]
fn a_session_made_before_the_config_asked_gets_its_share_from_create_and_not_from_open() {
    for resolver in RESOLVERS {
        let stage = Stage::new(resolver);
        let root = Root::open_ambient(stage.sessions_path(), ambient_authority()).unwrap();
        let sessions = Sessions::new(root, sharing(resolver));
        let id = SessionId::new("s");
        let opened = sessions.open(&id).unwrap();
        assert!(opened.share().is_none());
        assert_eq!(opened.verify().share, Some(PartState::Missing));
        assert!(!opened.verify().is_sound());
        assert_eq!(opened.repair().unwrap_err().kind(), ErrorKind::NotFound);

        let (created, how) = sessions.create(&id).unwrap();
        assert_eq!(how, Ensured::Existed);
        assert!(created.share().is_some() && created.verify().is_sound());
        assert!(sessions.open(&id).unwrap().share().is_some());
    }
}

#[test]
fn verify_reports_a_share_that_is_gone_and_one_that_is_replaced_is_not_opened() {
    for resolver in RESOLVERS {
        let stage = Stage::with_config(sharing(resolver));
        let path = stage.sessions_path().join("s/share");
        fs::remove_dir(&path).unwrap();
        assert_eq!(stage.session.verify().share, Some(PartState::Missing));
        std::os::unix::fs::symlink(stage.home.path(), &path).unwrap();
        let id = SessionId::new("s");
        for error in [stage.sessions.open(&id).unwrap_err(), stage.sessions.create(&id).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Symlink);
        }
        assert!(stage.home.is_untouched());
    }
}

#[test]
fn remove_takes_the_share_along_and_empty_leaves_it() {
    for resolver in RESOLVERS {
        let stage = Stage::with_config(sharing(resolver));
        stage.session.share().unwrap().write_exclusive("inbound.db", "x").unwrap();
        assert!(stage.session.empty().unwrap().is_complete());
        assert!(stage.session.share().unwrap().try_exists("inbound.db").unwrap());
        let removed = stage.sessions.remove(&SessionId::new("s")).unwrap();
        assert!(removed.is_complete() && removed.files >= 2, "{removed:?}");
        assert!(stage.all().is_empty());
        assert_eq!(stage.session.verify().refused().count(), 4, "a removed session has no parts");
    }
}

#[test]
fn a_session_over_directories_may_be_given_a_share() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        fs::create_dir(dir.path().join(name)).unwrap();
        Root::open_ambient(dir.path().join(name), ambient_authority()).unwrap()
    };
    let session = Session::from_roots(open("guest"), open("host")).unwrap();
    assert!(session.share().is_none());
    let session = session.with_share(open("share"));
    assert_eq!(session.verify().share, Some(PartState::Sound));
}
