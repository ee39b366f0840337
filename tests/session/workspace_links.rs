//! Links in a workspace: refused, or followed beneath it where something is read.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use beneath::session::ListOptions;
use beneath::{ErrorKind, FileType, Links, Policy, ResolverChoice, Root, Session, ambient_authority};

use crate::support::{SECRET, Stage, with_each_resolver};

/// The session of a stage whose root follows links, or none where the kernel cannot.
fn following(stage: &Stage) -> Option<Session> {
    let open = |path| Root::open_ambient(path, ambient_authority()).unwrap();
    let policy = Policy::default().with_links(Links::FollowBeneath).with_resolver(ResolverChoice::Openat2);
    let guest = open(stage.guest("")).with_policy(policy);
    match guest.metadata(".") {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            beneath_kit::skip(&error.to_string());
            None
        }
        _ => Some(Session::from_roots(guest, open(stage.host(""))).unwrap()),
    }
}

/// What `npm install` and `python -m venv` make.
fn tools(stage: &Stage) {
    let workspace = stage.guest("workspace");
    fs::create_dir_all(workspace.join("node_modules/.bin")).unwrap();
    fs::create_dir_all(workspace.join("node_modules/semver/bin")).unwrap();
    fs::write(workspace.join("node_modules/semver/bin/semver.js"), "// semver").unwrap();
    symlink("../semver/bin/semver.js", workspace.join("node_modules/.bin/semver")).unwrap();
    fs::create_dir_all(workspace.join(".venv/lib/python3")).unwrap();
    fs::write(workspace.join(".venv/lib/python3/site.py"), "site").unwrap();
    symlink("lib", workspace.join(".venv/lib64")).unwrap();
    fs::create_dir(workspace.join(".venv/bin")).unwrap();
    symlink("/usr/bin/python3", workspace.join(".venv/bin/python")).unwrap();
}

#[test]
fn links_of_a_package_manager_can_be_read_through_if_the_policy_follows() {
    let stage = Stage::new(ResolverChoice::Auto);
    tools(&stage);
    let Some(session) = following(&stage) else { return };
    let workspace = session.workspace();
    for (path, content) in [
        ("node_modules/.bin/semver", "// semver"),
        (".venv/lib64/python3/site.py", "site"),
        ("/session/workspace/.venv/lib64/python3/site.py", "site"),
    ] {
        assert!(workspace.exists(path).unwrap(), "{path}");
        assert!(workspace.metadata(path).unwrap().is_file(), "{path}");
        assert_eq!(workspace.read_contained(path, 99).unwrap(), content.as_bytes(), "{path}");
        assert_eq!(workspace.read_range(path, 0, 99).unwrap(), content.as_bytes(), "{path}");
        assert_eq!(workspace.tail(path).unwrap().next_chunk(99).unwrap().bytes, content.as_bytes());
    }
    let listing = workspace.list(".venv/lib64", ListOptions::default().recursive()).unwrap();
    assert_eq!(listing.entries.len(), 2);
    workspace.copy(".venv/lib64/python3/site.py", "copied", 99).unwrap();
    assert_eq!(workspace.read_contained("copied", 99).unwrap(), b"site");
    assert_eq!(
        workspace.read_link("node_modules/.bin/semver").unwrap().to_str(),
        Some("../semver/bin/semver.js")
    );
    assert_eq!(workspace.detect("node_modules/.bin/semver").unwrap_err().kind(), ErrorKind::Symlink);
}

#[test]
fn a_listing_shows_links_as_links_whatever_the_policy() {
    let stage = Stage::new(ResolverChoice::Auto);
    tools(&stage);
    let sessions = [Some(stage.session.clone()), following(&stage)];
    for session in sessions.into_iter().flatten() {
        let all = ListOptions::default().with_hidden().recursive();
        let listing = session.workspace().list("", all).unwrap();
        let is_link = |path: &str| {
            let entry = listing.entries.iter().find(|entry| entry.path() == std::path::Path::new(path));
            entry.unwrap().metadata().file_type() == FileType::Symlink
        };
        assert!(is_link("node_modules/.bin/semver") && is_link(".venv/lib64") && is_link(".venv/bin/python"));
        assert!(listing.is_complete());
        assert_eq!(listing.entries.len(), 13, "and none is entered");
    }
}

#[test]
fn a_link_that_leads_out_of_the_workspace_is_refused_and_can_be_looked_at() {
    let stage = Stage::new(ResolverChoice::Auto);
    tools(&stage);
    fs::write(stage.guest("inbox/attachment"), "sent").unwrap();
    symlink("../inbox/attachment", stage.guest("workspace/sideways")).unwrap();
    symlink(stage.home.path().join(".ssh/id_rsa"), stage.guest("workspace/key")).unwrap();
    let Some(session) = following(&stage) else { return };
    let workspace = session.workspace();
    for out in ["sideways", "key", ".venv/bin/python"] {
        for refused in [
            workspace.read_contained(out, 99).map(drop).unwrap_err(),
            workspace.metadata(out).map(drop).unwrap_err(),
            workspace.exists(out).map(drop).unwrap_err(),
            workspace.copy(out, "stolen", 99).map(drop).unwrap_err(),
        ] {
            assert_eq!(refused.kind(), ErrorKind::Escape, "{out}: {refused}");
        }
        assert!(workspace.try_exists(out).unwrap(), "{out}");
        assert!(workspace.read_link(out).is_ok(), "{out}");
    }
    assert!(!workspace.try_exists("stolen").unwrap());
    assert!(stage.home.is_untouched() && stage.secret_is_nowhere());
    assert!(fs::read(stage.home.path().join(".ssh/id_rsa")).unwrap() == SECRET);
}

#[test]
fn nothing_is_changed_through_a_link_whatever_the_policy() {
    let stage = Stage::new(ResolverChoice::Auto);
    tools(&stage);
    let Some(session) = following(&stage) else { return };
    let workspace = session.workspace();
    let refused = [
        workspace.write_exclusive(".venv/lib64/new", "").unwrap_err(),
        workspace.replace(".venv/lib64/python3/site.py", "").unwrap_err(),
        workspace.new_file(".venv/lib64/new").map(drop).unwrap_err(),
        workspace.ensure_dir(".venv/lib64/new").map(drop).unwrap_err(),
        workspace.remove_file(".venv/lib64/python3/site.py").unwrap_err(),
        workspace.remove_tree_contained(".venv/lib64/python3").map(drop).unwrap_err(),
        workspace.rename(".venv/lib64/python3", "moved").unwrap_err(),
        workspace.rename("node_modules", ".venv/lib64/moved").unwrap_err(),
        workspace.symlink("x", ".venv/lib64/new").unwrap_err(),
        workspace.set_times(".venv/lib64", None, None).unwrap_err(),
        workspace.copy("node_modules/.bin/semver", ".venv/lib64/new", 99).map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Symlink, "{error}");
    }
    workspace.replace("node_modules/.bin/semver", "a file").unwrap();
    assert_eq!(fs::read(stage.guest("workspace/node_modules/semver/bin/semver.js")).unwrap(), b"// semver");
}

#[test]
fn a_workspace_that_is_a_link_is_refused_whatever_the_policy() {
    let stage = Stage::new(ResolverChoice::Auto);
    fs::write(stage.guest("inbox/diary.txt"), "inside").unwrap();
    for target in ["inbox".into(), stage.home.path().to_owned()] {
        let _ = fs::remove_file(stage.guest("workspace"));
        let _ = fs::remove_dir_all(stage.guest("workspace"));
        symlink(target, stage.guest("workspace")).unwrap();
        let Some(session) = following(&stage) else { return };
        let workspace = session.workspace();
        assert_eq!(workspace.read_contained("diary.txt", 99).unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.list("", ListOptions::default()).unwrap_err().kind(), ErrorKind::Symlink);
        assert_eq!(workspace.write_exclusive("x", "").unwrap_err().kind(), ErrorKind::Symlink);
    }
    assert!(stage.home.is_untouched());
}

#[test]
fn a_loop_of_links_is_an_error_and_no_hang() {
    let plant = |stage: &Stage| {
        symlink("two", stage.guest("workspace/one")).unwrap();
        symlink("one", stage.guest("workspace/two")).unwrap();
        symlink(".", stage.guest("workspace/self")).unwrap();
    };
    with_each_resolver(|stage| {
        plant(stage);
        let workspace = stage.session.workspace();
        for path in ["one", "one/x", "self/self/self"] {
            assert_eq!(workspace.read_contained(path, 9).unwrap_err().kind(), ErrorKind::Symlink, "{path}");
            assert_eq!(workspace.exists(path).unwrap_err().kind(), ErrorKind::Symlink, "{path}");
        }
        let listing = workspace.list("", ListOptions::default().recursive()).unwrap();
        assert_eq!((listing.entries.len(), listing.is_complete()), (3, true));
    });
    let stage = Stage::new(ResolverChoice::Auto);
    plant(&stage);
    let Some(session) = following(&stage) else { return };
    let workspace = session.workspace();
    assert_eq!(workspace.read_contained("one", 9).unwrap_err().kind(), ErrorKind::Symlink);
    assert_eq!(workspace.metadata("one/x").unwrap_err().kind(), ErrorKind::Symlink);
    assert!(workspace.metadata("self/self/self").unwrap().is_dir());
    // More than the kernel follows in one lookup.
    let many = vec!["self"; 60].join("/");
    assert_eq!(workspace.metadata(&many).unwrap_err().kind(), ErrorKind::Symlink);
    let listing = workspace.list("self", ListOptions::default().recursive()).unwrap();
    assert_eq!((listing.entries.len(), listing.is_complete()), (3, true));
}

/// The guest exchanges a link to its own file for one to the inbox and one to the host's key while the host reads.
#[test]
fn a_link_that_is_swapped_during_a_read_never_leads_out_of_the_workspace() {
    const ROUNDS: u32 = 3000;
    let stage = Stage::new(ResolverChoice::Auto);
    fs::write(stage.guest("inbox/other"), SECRET).unwrap();
    fs::create_dir(stage.guest("workspace/d")).unwrap();
    fs::write(stage.guest("workspace/d/own"), "own").unwrap();
    let targets = ["own".into(), "../../inbox/other".into(), stage.home.path().join(".ssh/id_rsa")];
    let place = stage.guest("workspace/d");
    symlink(&targets[0], place.join("link")).unwrap();
    let Some(session) = following(&stage) else { return };
    let workspace = session.workspace();
    let done = AtomicBool::new(false);
    let (mut own, mut control) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for target in targets.iter().cycle() {
                symlink(target, place.join("next")).unwrap();
                fs::rename(place.join("next"), place.join("link")).unwrap();
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let _ends = beneath_kit::Ends(&done);
        // On a busy machine it takes longer until both sides were seen.
        for round in 0..100 * ROUNDS {
            if round >= ROUNDS && own > 0 && control > 0 {
                break;
            }
            match workspace.read_contained("d/link", 99) {
                Ok(bytes) => {
                    assert_eq!(bytes, b"own");
                    own += 1;
                }
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Escape | ErrorKind::Busy), "{error}"),
            }
            control += u32::from(fs::read(place.join("link")).is_ok_and(|bytes| bytes == SECRET));
        }
    });
    assert!(control > 0, "the guest has not swapped, or a read by path has become safe");
    assert!(own > 0, "no read has succeeded");
    assert!(stage.home.is_untouched());
}

#[test]
fn a_move_takes_no_link_for_the_file_it_leads_to() {
    let stage = Stage::new(ResolverChoice::Auto);
    let Some(session) = following(&stage) else { return };
    let workspace = session.workspace();
    fs::create_dir(stage.guest("workspace/dir")).unwrap();
    fs::write(stage.guest("workspace/dir/real"), "x").unwrap();
    symlink("dir/real", stage.guest("workspace/link")).unwrap();
    symlink("dir", stage.guest("workspace/through")).unwrap();
    for from in ["link", "through/real"] {
        let refused = workspace.move_to(from, &workspace, "moved", 99).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Symlink, "{from}");
        assert!(!workspace.try_exists("moved").unwrap(), "{from}: nothing is left half moved");
    }
    assert!(workspace.try_exists("link").unwrap());
}
