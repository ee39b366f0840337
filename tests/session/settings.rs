//! What a service sets once for all its sessions, and where that takes effect.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;

use beneath::session::{Claim, Disposition, ListOptions, Part};
use beneath::{
    Error, ErrorKind, GuestPath, HardLinks, Links, MessageId, MountPoint, Mounts, Policy, ResolverChoice,
    Root, Session, SessionId, SessionsConfig, Spelling, WalkLimits, ambient_authority, safe_name,
};
use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::{has_openat2, skip};
use rustix::mount::{MountFlags, mount};

use crate::support::{Stage, kinds};

fn id() -> MessageId {
    MessageId::new("42")
}

fn kind<T: std::fmt::Debug>(result: beneath::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn found(claim: &Claim, name: &str) -> Result<Vec<u8>, ErrorKind> {
    let file = claim.read([name]).unwrap().files.remove(0);
    file.content.map_err(|error| error.kind())
}

/// A workspace as `python -m venv` and `npm install` leave it, and the same links in a message.
fn with_links(config: SessionsConfig) -> Stage {
    let stage = Stage::with_config(config);
    fs::create_dir_all(stage.guest("workspace/node_modules/.bin")).unwrap();
    fs::create_dir_all(stage.guest("workspace/node_modules/tool")).unwrap();
    fs::write(stage.guest("workspace/node_modules/tool/cli.js"), "run").unwrap();
    symlink("../tool/cli.js", stage.guest("workspace/node_modules/.bin/tool")).unwrap();
    symlink("node_modules", stage.guest("workspace/modules")).unwrap();
    symlink(stage.home.path().join(".ssh"), stage.guest("workspace/keys")).unwrap();
    symlink("../outbox/42", stage.guest("workspace/sent")).unwrap();
    symlink("loop", stage.guest("workspace/loop")).unwrap();
    stage.send("42", &[("a", b"a")]);
    symlink("a", stage.guest("outbox/42/link")).unwrap();
    stage
}

#[test]
fn links_in_the_workspace_are_followed_by_reads_if_asked_and_stay_in_it() {
    if !has_openat2() {
        return skip("needs openat2");
    }
    let stage = with_links(SessionsConfig::default().with_links(Links::FollowBeneath));
    let workspace = stage.session.workspace();
    let tool = "node_modules/.bin/tool";
    assert_eq!(workspace.read_contained(tool, 9).unwrap(), b"run");
    assert_eq!(workspace.read_range("modules/.bin/tool", 1, 1).unwrap(), b"u");
    assert_eq!(workspace.open_contained(tool).unwrap().len_hint(), 3);
    assert!(workspace.metadata(tool).unwrap().is_file() && workspace.exists(tool).unwrap());
    assert_eq!(workspace.list("modules/tool", ListOptions::default()).unwrap().entries.len(), 1);
    assert_eq!(workspace.walk("modules/tool", WalkLimits::default()).unwrap().count(), 1);
    assert_eq!(workspace.tail(tool).unwrap().next_chunk(9).unwrap().bytes, b"run");
    let copy = stage.session.copy_db(tool, 9).unwrap();
    assert_eq!(stage.session.host().read_contained(copy, 9).unwrap(), b"run");

    for out in ["keys/id_rsa", "sent/a"] {
        assert_eq!(kind(workspace.read_contained(out, 99)), ErrorKind::Escape, "{out}");
        assert_eq!(kind(workspace.metadata(out)), ErrorKind::Escape, "{out}");
        assert_eq!(kind(workspace.tail(out).unwrap().next_chunk(9)), ErrorKind::Escape, "{out}");
    }
    assert_eq!(kind(workspace.read_contained("loop", 9)), ErrorKind::Symlink);
    assert_eq!(kind(workspace.write_exclusive("modules/new", "x")), ErrorKind::Symlink, "only reads follow");
    assert_eq!(kind(workspace.remove_tree_contained("modules/tool")), ErrorKind::Symlink);
    let report = stage.session.verify_db("modules/tool/cli.js", None).unwrap();
    assert_eq!(kinds(report.refused()), [ErrorKind::Symlink; 4], "SQLite would look beside another file");
    let claim = stage.session.outbox().claim(&id()).unwrap().unwrap();
    assert_eq!(found(&claim, "link"), Err(ErrorKind::Symlink), "no message follows one");
    assert!(stage.home.is_untouched());

    stage.replace_by_link("workspace", stage.home.path());
    assert_eq!(
        kind(workspace.read_contained("diary.txt", 99)),
        ErrorKind::Symlink,
        "nor is the workspace one"
    );
}

#[test]
fn links_in_the_workspace_are_refused_unless_asked() {
    let stage = with_links(SessionsConfig::default());
    let workspace = stage.session.workspace();
    assert_eq!(kind(workspace.read_contained("node_modules/.bin/tool", 9)), ErrorKind::Symlink);
    assert_eq!(kind(workspace.exists("modules/tool")), ErrorKind::Symlink);
    let walk = with_links(
        SessionsConfig::default().with_links(Links::FollowBeneath).with_resolver(ResolverChoice::Walk),
    );
    assert_eq!(kind(walk.session.workspace().read_contained("modules/x", 9)), ErrorKind::Unsupported);
}

#[test]
fn files_with_several_names_are_read_if_allowed() {
    for (policy, expected) in
        [(HardLinks::RefuseStrict, Err(ErrorKind::HardLinked)), (HardLinks::Allow, Ok(b"two".to_vec()))]
    {
        let stage = Stage::with_config(SessionsConfig::default().with_hard_links(policy));
        fs::write(stage.guest("workspace/one"), "two").unwrap();
        stage.send("42", &[]);
        for second in ["workspace/two", "outbox/42/a"] {
            fs::hard_link(stage.guest("workspace/one"), stage.guest(second)).unwrap();
        }
        let session = &stage.session;
        let workspace = session.workspace();
        let kinds_of = |result: beneath::Result<Vec<u8>>| result.map_err(|error| error.kind());
        assert_eq!(kinds_of(workspace.read_contained("one", 9)), expected);
        assert_eq!(kinds_of(workspace.tail("one").unwrap().next_chunk(9).map(|chunk| chunk.bytes)), expected);
        assert_eq!(session.copy_db("one", 9).is_ok(), expected.is_ok());
        assert_eq!(session.verify_db("one", None).unwrap().is_complete(), expected.is_ok());
        assert_eq!(session.heartbeat_age("one").is_ok(), expected.is_ok());
        let claim = session.outbox().claim(&id()).unwrap().unwrap();
        let other = session.outbox().pending().unwrap().entries.remove(0);
        for claim in [&claim, &other] {
            assert_eq!(found(claim, "a"), expected);
            assert_eq!(claim.open(["a"]).unwrap().is_complete(), expected.is_ok());
            let undeclared = claim.undeclared([""; 0]).unwrap().entries.remove(0);
            assert_eq!(undeclared.refusal, expected.as_ref().err().copied());
            let delivery = claim.forward(["a"], &session.inbox(), &id()).unwrap();
            assert_eq!(delivery.is_complete(), expected.is_ok());
        }
    }
}

#[test]
fn a_mount_in_the_workspace_is_entered_if_allowed() {
    with_private_mounts(|| {
        for (policy, enters) in [(Mounts::Refuse, false), (Mounts::Cross, true)] {
            let stage = Stage::with_config(SessionsConfig::default().with_mounts(policy));
            let point = stage.guest("workspace/data");
            fs::create_dir(&point).unwrap();
            mount("none", &point, "tmpfs", MountFlags::empty(), None).unwrap();
            let mounted = Mounted([point.clone()]);
            fs::write(point.join("a"), "a").unwrap();
            let workspace = stage.session.workspace();
            let read = workspace.read_contained("data/a", 9);
            assert_eq!(read.as_ref().map_err(Error::kind).is_ok(), enters, "{read:?}");
            assert_eq!(workspace.write_exclusive("data/b", "b").is_ok(), enters);
            assert_eq!(workspace.list("data", ListOptions::default()).is_ok(), enters);
            assert_eq!(stage.session.copy_db("data/a", 9).is_ok(), enters);
            drop(mounted);
        }
    });
}

#[test]
fn the_spelling_counts_for_every_path_that_an_agent_writes() {
    for (spelling, lenient) in [(Spelling::Lenient, true), (Spelling::Strict, false)] {
        let stage = Stage::with_config(SessionsConfig::default().with_spelling(spelling));
        fs::write(stage.guest("workspace/a"), "x").unwrap();
        stage.send("42", &[("a", b"sent")]);
        let (session, workspace) = (&stage.session, stage.session.workspace());
        let claim = session.outbox().claim(&id()).unwrap().unwrap();
        let loose = [
            ("read", workspace.read_contained("./a", 9).is_ok()),
            ("tail", workspace.tail("b/../a").is_ok()),
            ("list", workspace.list("", ListOptions::default()).is_ok()),
            ("database", session.copy_db(" a\n", 9).is_ok()),
            ("claim", found(&claim, "./a").is_ok()),
            ("forward", claim.forward(["b/../a"], &session.inbox(), &id()).unwrap().is_complete()),
        ];
        for (call, taken) in loose {
            assert_eq!(taken, lenient, "{call}");
        }
        assert_eq!(claim.undeclared(["./a"]).unwrap().entries.len(), usize::from(!lenient));
        // Both spellings have the path itself, and the one under the mount point.
        assert!(workspace.exists("/session/workspace/a").unwrap());
        assert_eq!(found(&claim, "/session/outbox/42/a"), Ok(b"sent".to_vec()));
        for elsewhere in ["/session/outbox/43/a", "/session/workspace/a", "/a", "/etc/passwd", "../42/a"] {
            assert!(found(&claim, elsewhere).is_err(), "{elsewhere}");
        }
        let twice = claim.read(["a", "a", "/session/outbox/42/a"]).unwrap();
        assert_eq!((twice.files.len(), twice.repeated), (1, 2), "one file, however it is spelled");
    }
}

#[test]
fn reserved_names_are_made_for_nobody_and_taken_from_nobody() {
    let stage =
        Stage::with_config(SessionsConfig::default().with_reserved(["Admin", "ſkills", "CLAUDE.md", "7"]));
    for taken in ["admin", "ADMIN", "Skills"] {
        assert_eq!(kind(stage.sessions.create(&SessionId::new(taken))), ErrorKind::InvalidName, "{taken}");
        assert_eq!(kind(stage.sessions.group(&safe_name(taken).unwrap())), ErrorKind::InvalidName, "{taken}");
    }
    assert!(stage.sessions.create(&SessionId::new("administrator")).is_ok());

    let attachment = || beneath::session::Attachment::from_bytes("planted").with_name("claude.md");
    let delivery = stage.session.inbox().deliver(&id(), [attachment()]);
    let file = delivery.files().next().unwrap();
    assert_eq!((file.name.as_str(), file.taken.as_ref().unwrap().as_str()), ("claude-2.md", "claude.md"));
    let again = stage.session.inbox().deliver(&id(), [attachment()]);
    assert_eq!(again.files().next().unwrap().name.as_str(), "claude-2.md", "a retry finds it");
    let refused = stage.session.inbox().deliver(&MessageId::new("7"), [attachment()]);
    assert_eq!(kinds(refused.refused()), [ErrorKind::InvalidName]);
    assert!(!stage.guest("inbox/7").exists());

    stage.send("ADMIN", &[("a", b"a")]);
    stage.send("42", &[("a", b"a")]);
    let outbox = stage.session.outbox();
    let messages = outbox.messages().unwrap();
    assert_eq!(
        (messages.entries, kinds(messages.refused.iter())),
        (vec![id()], vec![ErrorKind::InvalidName])
    );
    assert_eq!(kind(outbox.claim(&MessageId::new("admin"))), ErrorKind::InvalidName);
    let lock = stage.session.try_lock().unwrap();
    let report = outbox.collect(&lock, &mut HashSet::new(), |_| Ok::<_, Error>(Disposition::Done)).unwrap();
    assert_eq!((report.done, report.refused.total), (1, 1));
    assert!(stage.guest("outbox/ADMIN/a").exists());
    // What is the guest's own is its own.
    stage.session.workspace().write_exclusive("CLAUDE.md", "x").unwrap();
}

#[test]
fn a_mount_point_is_absolute_and_has_one_form() {
    assert_eq!(MountPoint::new("home/agent").unwrap_err().kind(), ErrorKind::InvalidPath);
    let mount = MountPoint::new("/home//agent").unwrap();
    assert_eq!(mount.as_str(), "/home/agent");
    let stage = Stage::with_config(SessionsConfig::default().with_mount_point(mount));
    let path = GuestPath::new("a").unwrap();
    for raw in ["/home/agent/workspace/a", "/home//agent/./workspace/a", "a"] {
        assert_eq!(stage.session.resolve(raw).unwrap(), (Part::Workspace, path.clone()));
    }
}

#[test]
fn removing_a_session_twice_is_no_error() {
    let stage = Stage::with_config(SessionsConfig::default());
    let id = SessionId::new("s");
    assert!(stage.sessions.remove(&id).unwrap().directories > 0);
    for _ in 0..2 {
        let again = stage.sessions.remove(&id).unwrap();
        assert!(again.is_complete() && again.directories == 0);
    }
    assert!(stage.sessions.remove(&SessionId::new("never")).unwrap().is_complete());
}

#[test]
fn the_name_of_an_id_is_read_back_and_never_given_to_it_again() {
    let id = SessionId::new("team/42");
    assert_eq!(SessionId::from_component(id.as_str()).unwrap(), id);
    assert_ne!(SessionId::new(id.as_str()), id, "or a tenant could choose the directory of another");
    assert_eq!(SessionId::new(SessionId::new("42").as_str()), SessionId::new("42"));
}

#[test]
fn a_part_is_not_taken_for_a_name_in_the_workspace() {
    let stage = Stage::with_config(SessionsConfig::default());
    let resolved = |raw: &str| stage.session.resolve(raw);
    for raw in ["/outbox", " /inbox", "//workspace/", "/./outbox"] {
        assert_eq!(resolved(raw).unwrap_err().kind(), ErrorKind::Escape, "{raw}");
    }
    assert_eq!(resolved("/session/outbox").unwrap(), (Part::Outbox, GuestPath::top()));
    // What an agent makes in its workspace may have any name.
    assert_eq!(resolved("outbox/a").unwrap(), (Part::Workspace, GuestPath::new("outbox/a").unwrap()));
    assert_eq!(resolved("/notes").unwrap(), (Part::Workspace, GuestPath::new("notes").unwrap()));
}

#[test]
fn a_session_laid_over_roots_takes_the_proof_of_a_single_name() {
    for (given, expected) in [
        (HardLinks::Refuse, HardLinks::RefuseStrict),
        (HardLinks::RefuseStrict, HardLinks::RefuseStrict),
        (HardLinks::Allow, HardLinks::Allow),
    ] {
        let stage = Stage::new(ResolverChoice::Auto);
        let open = |path| Root::open_ambient(path, ambient_authority()).unwrap();
        let guest = open(stage.guest("")).with_policy(Policy::default().with_hard_links(given));
        let session = Session::from_roots(guest, open(stage.host(""))).unwrap();
        assert_eq!(session.guest().policy().hard_links(), expected);
    }
}
