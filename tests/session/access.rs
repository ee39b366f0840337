use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use beneath::session::{Attachment, Hardening, SessionsConfig, harden_tree};
use beneath::{Access, ErrorKind, Execute, MessageId, ResolverChoice, SessionId, WalkLimits};

use crate::support::{Stage, fifo, mode, with_each_resolver};

fn set_mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn hardens_by_handle_and_reports_what_it_left() {
    with_each_resolver(|stage| {
        let top = stage.guest("workspace");
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("a/loose"), "x").unwrap();
        fs::write(top.join("a/b/run.sh"), "#!/bin/sh").unwrap();
        set_mode(&top.join("a/loose"), 0o4666);
        set_mode(&top.join("a/b/run.sh"), 0o755);
        set_mode(&top.join("a/b"), 0);
        symlink(stage.home.path().join("diary.txt"), top.join("link")).unwrap();
        fs::hard_link(stage.home.path().join("diary.txt"), top.join("hard")).unwrap();
        stage.home.seal();
        fifo(&top.join("fifo"));
        let _socket = std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();

        let hardening = Hardening::new(Access::shared()).with_execute(Execute::Keep);
        let report = harden_tree(stage.session.guest(), "workspace", hardening).unwrap();
        assert_eq!((report.directories, report.files), (3, 2));
        assert_eq!((report.links, report.hard_links, report.special), (1, 1, 2));
        let mut refused: Vec<_> = report.refused().map(|(path, error)| (path, error.kind())).collect();
        refused.sort_unstable_by_key(|(path, _)| *path);
        let special = ErrorKind::NotRegular;
        let expected = [("fifo", special), ("hard", ErrorKind::HardLinked), ("socket", special)];
        assert_eq!(refused, expected.map(|(path, kind)| (std::path::Path::new(path), kind)));
        assert!(!report.is_complete(), "these three do not have the access");
        assert_eq!(mode(&top.join("a/loose")), 0o660);
        assert_eq!(mode(&top.join("a/b/run.sh")), 0o770);
        assert_eq!(mode(&top.join("a/b")), 0o770);

        for left in ["fifo", "hard", "socket"] {
            fs::remove_file(top.join(left)).unwrap();
        }
        stage.home.seal();
        let again = harden_tree(stage.session.guest(), "workspace", hardening).unwrap();
        assert!(again.is_complete(), "a link has no access of its own: {again:?}");
        assert_eq!((again.links, again.changed), (1, 0));
        let strict = Hardening::new(Access::private());
        let _ = harden_tree(stage.session.guest(), "workspace", strict).unwrap();
        assert_eq!(mode(&top.join("a/b/run.sh")), 0o600);
    });
}

#[test]
fn hardening_refuses_a_linked_top_and_says_when_it_was_cut_short() {
    with_each_resolver(|stage| {
        let hardening = Hardening::new(Access::shared());
        fs::write(stage.guest("workspace/a"), "").unwrap();
        fs::write(stage.guest("workspace/b"), "").unwrap();
        let cut = hardening.with_limits(WalkLimits::default().with_entries(1));
        let report = harden_tree(stage.session.guest(), "workspace", cut).unwrap();
        assert!(report.truncated && !report.is_complete());

        stage.replace_by_link("workspace", stage.home.path());
        let error = harden_tree(stage.session.guest(), "workspace", hardening).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Symlink);
    });
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    for umask in [0o000, 0o077, 0o777] {
        // The umask belongs to the whole process, so a process of its own tries it.
        let exe = std::env::current_exe().unwrap();
        let status = std::process::Command::new(exe)
            .args(["--exact", "access::delivers_under_a_umask", "--nocapture"])
            .env("BENEATH_TEST_UMASK", format!("{umask:o}"))
            .status()
            .unwrap();
        assert!(status.success(), "umask {umask:o}");
    }
}

#[test]
fn delivers_under_a_umask() {
    let Ok(umask) = std::env::var("BENEATH_TEST_UMASK") else { return };
    let stage = Stage::with_config(SessionsConfig::default());
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(u32::from_str_radix(&umask, 8).unwrap()));
    let attachment = Attachment::from_bytes("hello").with_name("a.txt");
    assert!(stage.session.inbox().deliver(&MessageId::new("1"), [attachment]).is_complete());
    assert_eq!(mode(&stage.guest("inbox/1")), 0o770);
    assert_eq!(mode(&stage.guest("inbox/1/a.txt")), 0o660);
    let (_, _) = stage.sessions.create(&SessionId::new("other")).unwrap();
    assert_eq!(mode(&stage.sessions_path().join("other/guest")), 0o770);
    assert_eq!(mode(&stage.sessions_path().join("other/host")), 0o700);
}

#[test]
fn a_root_host_gives_everything_to_the_guests_user() {
    if !rustix::process::geteuid().is_root() {
        beneath_kit::skip("needs root");
        return;
    }
    let access = Access::private().with_owner(1000).with_group(1000);
    let stage = Stage::with_config(SessionsConfig::default().with_access(access));
    let attachment = Attachment::from_bytes("hello").with_name("a.txt");
    assert!(stage.session.inbox().deliver(&MessageId::new("1"), [attachment]).is_complete());
    for path in ["", "inbox", "outbox", "workspace", "inbox/1", "inbox/1/a.txt"] {
        let entry = fs::symlink_metadata(stage.guest(path)).unwrap();
        assert_eq!((entry.uid(), entry.gid()), (1000, 1000), "{path}");
    }
    assert_eq!(mode(&stage.guest("inbox/1/a.txt")), 0o600);
    assert_eq!(fs::symlink_metadata(stage.host("")).unwrap().uid(), 0);

    fs::write(stage.guest("workspace/by-root"), "").unwrap();
    let report = stage.session.harden(Execute::Keep).unwrap();
    assert!(report.is_complete() && report.changed == 1, "{report:?}");
    assert_eq!(fs::symlink_metadata(stage.guest("workspace/by-root")).unwrap().uid(), 1000);
}

/// A guest that moves a file to where the walk has been, and back, keeps it out of every listing.
#[test]
fn a_file_that_moves_back_and_forth_is_not_called_hardened() {
    let stage = Stage::new(ResolverChoice::Auto);
    let top = stage.guest("workspace");
    let (here, there) = (top.join("a/f"), top.join("b/f"));
    for dir in ["a", "b"] {
        fs::create_dir(top.join(dir)).unwrap();
    }
    fs::write(&here, "x").unwrap();
    let file = fs::File::open(&here).unwrap();
    let over = AtomicBool::new(false);
    let (mut missed, mut claimed) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for _ in 0..8 {
                    let _ = fs::rename(&here, &there);
                    let _ = fs::rename(&there, &here);
                }
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
        let _ends = beneath_kit::Ends(&over);
        let mut rounds = 0;
        while rounds < 4_000 || missed == 0 && rounds < 40_000 {
            rounds += 1;
            file.set_permissions(fs::Permissions::from_mode(0o4777)).unwrap();
            let report =
                harden_tree(stage.session.guest(), "workspace", Hardening::new(Access::shared())).unwrap();
            let open = file.metadata().unwrap().mode() & 0o7777 == 0o4777;
            missed += u32::from(open);
            claimed += u32::from(open && report.is_complete());
        }
    });
    assert_eq!(claimed, 0, "{missed} were missed, and {claimed} of them called complete");
    assert!(missed > 0, "the guest hid the file in no round: the race is not one");
    let report = harden_tree(stage.session.guest(), "workspace", Hardening::new(Access::shared())).unwrap();
    assert!(report.is_complete(), "complete once the guest rests: {report:?}");
}
