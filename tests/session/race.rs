//! Session operations while a guest exchanges what they work on, as fast as it can.
//!
//! Each test runs a set number of operations (`BENEATH_RACE_OPS`, 2,000 if unset) with either resolver, and the same job
//! by path under the same attack until that is caught.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use beneath::session::{Attachment, Hardening, harden_tree};
use beneath::{Access, ErrorKind, MessageId, ResolverChoice, SessionId};
use rustix::fs::{Mode, OFlags, RenameFlags, renameat_with};

use crate::naive::{NaiveSession, remove_tree, secure_tree};
use crate::support::{RESOLVERS, SECRET, Stage, fifo};

/// How long a control may take to be caught.
const PATIENCE: Duration = Duration::from_secs(60);

fn operations() -> u64 {
    std::env::var("BENEATH_RACE_OPS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000)
}

fn held(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// A path into a directory that somebody else may be moving.
fn through(dir: &OwnedFd, path: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{path}", dir.as_raw_fd()))
}

/// Exchanges pairs of names over and over while `work` runs.
fn under_attack<T>(dir: BorrowedFd<'_>, pairs: &[(&str, &str)], work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                for (one, other) in pairs {
                    let _ = renameat_with(dir, *one, dir, *other, RenameFlags::EXCHANGE);
                    // Moments of different length, so that the work ends in either state.
                    round = round.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                    (0..round >> 20).for_each(|_| std::hint::spin_loop());
                }
            }
        });
        // Also when the work fails, or the attacker would be waited for in vain.
        let _stop = StopOnDrop(&stop);
        work()
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A link, which may be a directory again by the time the walk asks what was in its way.
fn is_exchange(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Symlink | ErrorKind::NotDirectory)
}

/// How a run went.
#[derive(Debug, Default)]
struct Tally {
    done: u64,
    refused: u64,
}

impl Tally {
    fn count(&mut self, done: bool) {
        if done {
            self.done += 1;
        } else {
            self.refused += 1;
        }
    }

    /// A run in which the guest never or always got in between has shown nothing.
    fn has_raced(&self) -> bool {
        let least = (self.done + self.refused) / 200;
        self.done > least && self.refused > least
    }

    /// Does the set number of rounds, and as many again while the guest sleeps in one state, as on a busy machine.
    fn run(&mut self, mut round: impl FnMut(u64, &mut Self)) {
        let mut numbers = 0..;
        for _ in 0..100 {
            numbers.by_ref().take(operations() as usize).for_each(|number| round(number, self));
            if self.has_raced() {
                return;
            }
        }
    }

    fn assert_raced(&self, what: &str) {
        println!("{what}: {} done, {} refused, 0 escapes", self.done, self.refused);
        assert!(self.has_raced(), "{what}: {self:?}");
    }
}

/// Runs a control until `caught`.
fn until_caught(what: &str, caught: impl Fn() -> bool, mut work: impl FnMut()) {
    let start = Instant::now();
    let mut rounds = 0_u64;
    while !caught() {
        assert!(start.elapsed() < PATIENCE, "{what}: the control was not caught in {rounds} rounds");
        work();
        rounds += 1;
    }
    println!("{what}: the control was caught in round {rounds}");
}

#[test]
fn deliver_while_the_inbox_or_the_message_is_exchanged_for_a_link() {
    // The inbox itself, and the message's directory in it.
    for (dir, pair) in [("", ("inbox", "decoy")), ("inbox", ("42", "decoy"))] {
        let prepare = |stage: &Stage| {
            fs::create_dir_all(stage.guest("inbox/42")).unwrap();
            symlink(stage.home.path(), stage.guest(dir).join("decoy")).unwrap();
            held(&stage.guest(dir))
        };
        for resolver in RESOLVERS {
            let stage = Stage::new(resolver);
            let dir = prepare(&stage);
            let mut tally = Tally::default();
            under_attack(dir.as_fd(), &[pair], || {
                tally.run(|number, tally| {
                    let name = format!("f{number}");
                    let attachment = Attachment::from_bytes("payload").with_name(&name);
                    let delivery = stage.session.inbox().deliver(&MessageId::new("42"), [attachment]);
                    tally.count(delivery.is_complete());
                    let refusals = delivery.refusals().all(|error| is_exchange(error.kind()));
                    assert!(refusals, "{delivery:?}");
                });
            });
            assert!(stage.home.is_untouched(), "escaped through {pair:?}");
            tally.assert_raced(&format!("deliver, {} exchanged, {resolver:?}", pair.0));
        }
        let stage = Stage::new(ResolverChoice::Auto);
        let dir = prepare(&stage);
        let control = NaiveSession { dir: stage.guest("") };
        let mut number = 0_u64;
        under_attack(dir.as_fd(), &[pair], || {
            until_caught(
                "deliver by path",
                || !stage.home.is_untouched(),
                || {
                    for _ in 0..100 {
                        number += 1;
                        let _ = control.deliver("42", &format!("f{number}"), b"payload", || {});
                    }
                },
            );
        });
    }
}

#[test]
fn claim_read_clear_while_the_outbox_is_exchanged_for_a_link() {
    let prepare = |stage: &mut Stage| {
        fs::create_dir(stage.home.path().join("42")).unwrap();
        fs::write(stage.home.path().join("42/f"), SECRET).unwrap();
        stage.home.seal();
        symlink(stage.home.path(), stage.guest("decoy")).unwrap();
        (held(&stage.guest("")), held(&stage.guest("outbox")))
    };
    let send = |outbox: &OwnedFd| {
        let _ = fs::create_dir(through(outbox, "42"));
        fs::write(through(outbox, "42/f"), "harmless").unwrap();
    };
    for resolver in RESOLVERS {
        let mut stage = Stage::new(resolver);
        let (dir, outbox) = prepare(&mut stage);
        let mut tally = Tally::default();
        under_attack(dir.as_fd(), &[("outbox", "decoy")], || {
            tally.run(|_, tally| {
                send(&outbox);
                match stage.session.outbox().claim(&MessageId::new("42")) {
                    Ok(claim) => {
                        let claim = claim.unwrap();
                        let collected = claim.read(["f"]).unwrap();
                        assert_eq!(collected.found().next().unwrap().1, b"harmless");
                        assert!(claim.clear().removed.complete);
                        tally.count(true);
                    }
                    Err(error) => {
                        assert!(is_exchange(error.kind()), "{error}");
                        tally.count(false);
                    }
                }
            });
        });
        assert!(stage.home.is_untouched() && stage.secret_is_nowhere());
        tally.assert_raced(&format!("claim, read, clear, {resolver:?}"));
    }
    let mut stage = Stage::new(ResolverChoice::Auto);
    let (dir, outbox) = prepare(&mut stage);
    let control = NaiveSession { dir: stage.guest("") };
    let mut leaked = false;
    under_attack(dir.as_fd(), &[("outbox", "decoy")], || {
        until_caught(
            "collect by path",
            || !stage.home.is_untouched(),
            || {
                send(&outbox);
                leaked |= control.collect("42", &["f"], || {}).iter().any(|(_, bytes)| bytes == SECRET);
                control.clear("42");
            },
        );
    });
    println!("collect by path: leaked the secret: {leaked}; deleted the host's directory");
}

#[test]
fn read_a_claim_while_its_files_are_exchanged_through_a_held_descriptor() {
    for resolver in RESOLVERS {
        let stage = Stage::new(resolver);
        stage.send("42", &[("f", b"harmless")]);
        symlink(stage.home.path().join(".ssh/id_rsa"), stage.guest("outbox/42/link")).unwrap();
        fifo(&stage.guest("outbox/42/fifo"));
        let dir = held(&stage.guest("outbox/42"));
        let mut tally = Tally::default();
        under_attack(dir.as_fd(), &[("f", "link"), ("f", "fifo")], || {
            tally.run(|_, tally| {
                let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
                let collected = claim.read(["f"]).unwrap();
                let file = &collected.files[0].content;
                tally.count(file.is_ok());
                match file {
                    Ok(bytes) => assert_eq!(bytes, b"harmless"),
                    Err(error) => {
                        let kind = error.kind();
                        assert!(matches!(kind, ErrorKind::Symlink | ErrorKind::NotRegular), "{error}");
                    }
                }
                claim.release().unwrap();
            });
        });
        assert!(stage.home.is_untouched());
        tally.assert_raced(&format!("read a claim, {resolver:?}"));
    }
}

#[test]
fn harden_while_files_and_directories_are_exchanged_for_links() {
    let prepare = |stage: &mut Stage| {
        let diary = stage.home.path().join("diary.txt");
        fs::set_permissions(&diary, fs::Permissions::from_mode(0o600)).unwrap();
        stage.home.seal();
        fs::write(stage.guest("workspace/f"), "").unwrap();
        symlink(&diary, stage.guest("workspace/link")).unwrap();
        fs::create_dir(stage.guest("workspace/d")).unwrap();
        fs::write(stage.guest("workspace/d/diary.txt"), "").unwrap();
        symlink(stage.home.path(), stage.guest("workspace/dirlink")).unwrap();
        held(&stage.guest("workspace"))
    };
    let pairs = [("f", "link"), ("d", "dirlink")];
    for resolver in RESOLVERS {
        let mut stage = Stage::new(resolver);
        let dir = prepare(&mut stage);
        let mut tally = Tally::default();
        under_attack(dir.as_fd(), &pairs, || {
            tally.run(|number, tally| {
                let access = if number % 2 == 0 { Access::shared() } else { Access::private() };
                let report = harden_tree(stage.session.guest(), "workspace", Hardening::new(access)).unwrap();
                tally.done += report.changed;
                tally.refused += report.links;
            });
        });
        assert!(stage.home.is_untouched());
        tally.assert_raced(&format!("harden, {resolver:?}"));
    }
    let mut stage = Stage::new(ResolverChoice::Auto);
    let dir = prepare(&mut stage);
    under_attack(dir.as_fd(), &pairs, || {
        until_caught(
            "harden by path",
            || !stage.home.is_untouched(),
            || {
                for _ in 0..100 {
                    secure_tree(&stage.guest("workspace"), &|_| {});
                }
            },
        );
    });
}

#[test]
fn remove_a_session_while_its_directories_are_exchanged_for_links() {
    let fill = |workspace: &Path, home: &Path| {
        fs::create_dir(workspace.join("d")).unwrap();
        for number in 0..20 {
            fs::write(workspace.join(format!("d/{number}")), "").unwrap();
        }
        symlink(home, workspace.join("link")).unwrap();
        held(workspace)
    };
    // The host has files of the same names, so that every removal by path is a chance.
    let prepare = |resolver| {
        let mut stage = Stage::new(resolver);
        for number in 0..20 {
            fs::write(stage.home.path().join(number.to_string()), "precious").unwrap();
        }
        stage.home.seal();
        stage
    };
    for resolver in RESOLVERS {
        let stage = prepare(resolver);
        let id = SessionId::new("doomed");
        for _ in 0..operations().div_ceil(20) {
            stage.sessions.create_new(&id).unwrap();
            let dir = fill(&stage.sessions_path().join("doomed/guest/workspace"), stage.home.path());
            let removed = under_attack(dir.as_fd(), &[("d", "link")], || stage.sessions.remove(&id).unwrap());
            assert!(removed.complete, "{removed:?}");
        }
        assert!(stage.home.is_untouched());
        println!("remove session, {resolver:?}: {} removed, 0 escapes", operations().div_ceil(20));
    }
    let stage = prepare(ResolverChoice::Auto);
    until_caught(
        "remove by path",
        || !stage.home.is_untouched(),
        || {
            let doomed = stage.sessions_path().join("doomed");
            fs::create_dir(&doomed).unwrap();
            let dir = fill(&doomed, stage.home.path());
            under_attack(dir.as_fd(), &[("d", "link")], || {
                while doomed.exists() {
                    remove_tree(&doomed);
                }
            });
        },
    );
}
