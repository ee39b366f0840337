//! What a guest can do to a host that creates, hardens and writes by path. Each test first shows the flaw in the naive port.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use beneath::session::{Hardening, harden_tree};
use beneath::{
    Access, Ensured, ErrorKind, Execute, Policy, ResolverChoice, Root, SessionId, ambient_authority,
};

use crate::naive::{NaiveSession, secure_file_write, secure_tree, upload};
use crate::support::{Stage, mode, names, with_each_resolver};

#[test]
fn a_link_in_place_of_a_session_is_neither_accepted_nor_widened() {
    let stage = Stage::new(ResolverChoice::Auto);
    fs::create_dir(stage.home.path().join("workspace")).unwrap();
    symlink(stage.home.path(), stage.sessions_path().join("planted")).unwrap();
    NaiveSession::create(&stage.sessions_path(), "planted").unwrap();
    assert_eq!(mode(&stage.home.path().join("workspace")), 0o777, "the control opens it to everybody");

    with_each_resolver(|stage| {
        symlink(stage.home.path(), stage.sessions_path().join("planted")).unwrap();
        let id = SessionId::new("planted");
        let error = stage.sessions.create(&id).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::Symlink), "{error}");
        assert_eq!(stage.sessions.open(&id).unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(stage.sessions.remove(&id).unwrap_err().kind(), ErrorKind::Symlink);
    });
}

#[test]
fn an_existing_session_is_not_reused_silently() {
    with_each_resolver(|stage| {
        assert_eq!(stage.sessions.create(&SessionId::new("s")).unwrap().1, Ensured::Existed);
    });
}

#[test]
fn hardening_changes_no_host_file_through_a_hard_link() {
    let stage = Stage::new(ResolverChoice::Auto);
    let diary = stage.home.path().join("diary.txt");
    fs::set_permissions(&diary, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&diary, stage.guest("workspace/hard")).unwrap();
    secure_tree(&stage.guest("workspace"), &|_| {});
    assert_eq!(mode(&diary), 0o660, "the control changes it");

    with_each_resolver(|stage| {
        fs::hard_link(stage.home.path().join("diary.txt"), stage.guest("workspace/hard")).unwrap();
        stage.home.seal();
        // One that this process may give away, whoever runs it.
        let group = rustix::process::getegid().as_raw();
        let hardening = Hardening::new(Access::shared().with_group(group));
        let report = harden_tree(stage.session.guest(), ".", hardening).unwrap();
        assert_eq!(report.hard_links, 1);
    });
}

#[test]
fn hardening_changes_no_host_file_through_a_swapped_link() {
    let stage = Stage::new(ResolverChoice::Auto);
    let diary = stage.home.path().join("diary.txt");
    fs::set_permissions(&diary, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(stage.guest("workspace/f"), "").unwrap();
    secure_tree(&stage.guest("workspace"), &|path| {
        fs::remove_file(path).unwrap();
        symlink(&diary, path).unwrap();
    });
    assert_eq!(mode(&diary), 0o660, "the control follows");

    // What the guest does at any moment: `tests/race` covers the moments in between.
    with_each_resolver(|stage| {
        symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/f")).unwrap();
        symlink(stage.home.path(), stage.guest("workspace/d")).unwrap();
        let report = harden_tree(stage.session.guest(), ".", Hardening::new(Access::shared())).unwrap();
        assert_eq!((report.links, report.left.total), (2, 0));
    });
}

#[test]
fn hardening_keeps_scripts_executable_when_asked() {
    let stage = Stage::new(ResolverChoice::Auto);
    let script = stage.guest("workspace/venv");
    fs::write(&script, "#!/bin/sh").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    secure_tree(&stage.guest("workspace"), &|_| {});
    assert_eq!(mode(&script), 0o660, "the control breaks it");

    with_each_resolver(|stage| {
        let script = stage.guest("workspace/venv");
        fs::write(&script, "#!/bin/sh").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(stage.session.harden(Execute::Keep).unwrap().is_complete());
        assert_eq!(mode(&script), 0o770);
    });
}

#[test]
fn hardening_reports_its_failures() {
    with_each_resolver(|stage| {
        let mut deep = stage.guest("workspace");
        for _ in 0..70 {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        let report = harden_tree(stage.session.guest(), ".", Hardening::new(Access::shared())).unwrap();
        assert!(report.truncated && !report.is_complete());
        assert!(report.left.total > 0);
    });
}

#[test]
fn layout_parts_replaced_by_links_widen_nothing() {
    let stage = Stage::new(ResolverChoice::Auto);
    stage.replace_by_link("workspace", stage.home.path());
    fs::set_permissions(stage.guest("workspace"), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(mode(stage.home.path()), 0o777, "the control's chmod follows");

    with_each_resolver(|stage| {
        stage.replace_by_link("workspace", stage.home.path());
        stage.sessions.create(&SessionId::new("s")).unwrap();
        let _ = stage.session.repair().unwrap();
        assert!(stage.session.verify().is_sound());
    });
}

#[test]
fn writing_follows_no_link_at_the_name() {
    let stage = Stage::new(ResolverChoice::Auto);
    symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/report")).unwrap();
    secure_file_write(&stage.guest("workspace/report"), b"overwritten").unwrap();
    assert_eq!(fs::read(stage.home.path().join("diary.txt")).unwrap(), b"overwritten", "the control follows");

    with_each_resolver(|stage| {
        symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/report")).unwrap();
        stage.session.workspace().replace("report", "new").unwrap();
        assert_eq!(fs::read(stage.guest("workspace/report")).unwrap(), b"new");
    });
}

#[test]
fn uploading_uses_no_name_that_a_guest_can_guess() {
    let stage = Stage::new(ResolverChoice::Auto);
    symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/report.tmp")).unwrap();
    upload(&stage.guest("workspace/report"), b"overwritten").unwrap();
    assert_eq!(fs::read(stage.home.path().join("diary.txt")).unwrap(), b"overwritten", "the control follows");

    with_each_resolver(|stage| {
        symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/report.tmp")).unwrap();
        stage.session.workspace().write_exclusive("report", "new").unwrap();
        stage.session.workspace().replace("report", "newer").unwrap();
        assert_eq!(names(&stage.guest("workspace")), ["report", "report.tmp"]);
    });
}

#[test]
fn giving_a_file_away_reaches_no_file_that_was_swapped_in() {
    if !rustix::process::geteuid().is_root() {
        beneath_kit::skip("needs root");
        return;
    }
    let stage = Stage::new(ResolverChoice::Auto);
    let path = stage.guest("workspace/f");
    symlink(stage.home.path().join("diary.txt"), &path).unwrap();
    std::os::unix::fs::chown(&path, Some(1000), None).unwrap();
    assert!(!stage.home.is_untouched(), "the control gives away what the link points to");

    with_each_resolver(|stage| {
        let access = Access::private().with_owner(1000);
        let root = Root::open_ambient(stage.guest("workspace"), ambient_authority()).unwrap();
        let resolver = stage.session.guest().policy().resolver();
        let root = root.with_policy(Policy::default().with_resolver(resolver));
        symlink(stage.home.path().join("diary.txt"), stage.guest("workspace/f")).unwrap();
        let error = root.set_access("f", access, Execute::Clear).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Symlink);
    });
}
