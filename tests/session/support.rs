//! A session, and a host directory beside it that nothing may touch.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use beneath::session::{MessageLimits, SessionsConfig, SweepClock};
use beneath::{Error, ErrorKind, ResolverChoice, Root, Session, SessionId, Sessions, ambient_authority};
use beneath_kit::Snapshot;
pub(crate) use beneath_kit::snapshot::names;
use rustix::fs::{CWD, Mode, mkfifoat};

/// What the host keeps secret.
pub(crate) const SECRET: &[u8] = b"-----BEGIN PRIVATE KEY-----";

pub(crate) const RESOLVERS: [ResolverChoice; 2] = [ResolverChoice::Openat2, ResolverChoice::Walk];

/// A home directory of the host, with a key in it.
pub(crate) struct Home {
    path: PathBuf,
    before: Snapshot,
}

impl Home {
    fn new(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        fs::create_dir(path.join(".ssh")).unwrap();
        fs::write(path.join(".ssh/id_rsa"), SECRET).unwrap();
        fs::write(path.join("diary.txt"), "dear diary").unwrap();
        let before = Snapshot::take(&path);
        Self { path, before }
    }

    /// What is there now is what must stay.
    pub(crate) fn seal(&mut self) {
        self.before = Snapshot::take(&self.path);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_untouched(&self) -> bool {
        Snapshot::take(&self.path) == self.before
    }
}

/// One session and one home, in a directory of their own.
pub(crate) struct Stage {
    dir: tempfile::TempDir,
    pub(crate) sessions: Sessions,
    pub(crate) session: Session,
    pub(crate) home: Home,
}

impl Stage {
    pub(crate) fn new(resolver: ResolverChoice) -> Self {
        Self::with_config(SessionsConfig::default().with_resolver(resolver))
    }

    pub(crate) fn with_config(config: SessionsConfig) -> Self {
        let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
        let home = Home::new(dir.path().join("home"));
        fs::create_dir(dir.path().join("sessions")).unwrap();
        let root = Root::open_ambient(dir.path().join("sessions"), ambient_authority()).unwrap();
        let sessions = Sessions::new(root, config);
        let (session, _) = sessions.create(&SessionId::new("s")).unwrap();
        Self { dir, sessions, session, home }
    }

    pub(crate) fn sessions_path(&self) -> PathBuf {
        self.dir.path().join("sessions")
    }

    /// The same sessions, swept by the wall clock.
    pub(crate) fn by_wall_clock(&self) -> Sessions {
        let root = Root::open_ambient(self.sessions_path(), ambient_authority()).unwrap();
        Sessions::new(root, self.sessions.config().clone().with_sweep_clock(SweepClock::Wall))
    }

    /// What is among the sessions, but for the record of the clock.
    pub(crate) fn all(&self) -> Vec<String> {
        names(&self.sessions_path()).into_iter().filter(|name| name != ".clock").collect()
    }

    /// A path on the guest's side, as the guest's own tools see it.
    pub(crate) fn guest(&self, path: &str) -> PathBuf {
        self.dir.path().join("sessions/s/guest").join(path)
    }

    pub(crate) fn host(&self, path: &str) -> PathBuf {
        self.dir.path().join("sessions/s/host").join(path)
    }

    /// What the guest does with one of the three directories: away with it, and a link to `target` in its place.
    pub(crate) fn replace_by_link(&self, part: &str, target: impl AsRef<Path>) {
        fs::remove_dir_all(self.guest(part)).unwrap();
        symlink(target, self.guest(part)).unwrap();
    }

    /// What the guest sends.
    pub(crate) fn send(&self, id: &str, files: &[(&str, &[u8])]) {
        let dir = self.guest("outbox").join(id);
        fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in files {
            fs::write(dir.join(name), bytes).unwrap();
        }
    }

    /// Nothing of the guest's side or the host's holds the secret.
    pub(crate) fn secret_is_nowhere(&self) -> bool {
        Snapshot::take(&self.sessions_path()).iter().all(|(_, entry)| match &entry.content {
            Some(content) => !content.windows(SECRET.len()).any(|window| window == SECRET),
            None => !entry.is_file(),
        })
    }
}

/// Runs a story with either resolver, and looks after the home.
pub(crate) fn with_each_resolver(story: impl Fn(&mut Stage) + Sync) {
    let play = &|resolver| {
        let mut stage = Stage::new(resolver);
        story(&mut stage);
        assert!(stage.home.is_untouched(), "the host's home was touched ({resolver:?})");
    };
    // At the same time, since some stories wait for something to grow old.
    std::thread::scope(|scope| {
        let threads = RESOLVERS.map(|resolver| {
            beneath_kit::thread_of_this_test().spawn_scoped(scope, move || play(resolver)).unwrap()
        });
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// Small limits, so that tests of limits are small.
pub(crate) fn small() -> SessionsConfig {
    let limits = MessageLimits::default().with_file_bytes(100).with_message_bytes(250).with_files(4);
    SessionsConfig::default().with_inbox(limits).with_outbox(limits)
}

/// Why things were refused.
pub(crate) fn kinds<'a>(refused: impl Iterator<Item = (&'a Path, &'a Error)>) -> Vec<ErrorKind> {
    refused.map(|(_, error)| error.kind()).collect()
}

pub(crate) fn fifo(path: &Path) {
    mkfifoat(CWD, path, Mode::from_raw_mode(0o666)).unwrap();
}

/// Users of tests that need several; they share [`GROUP`].
pub(crate) const HOST: u32 = 2000;
pub(crate) const GUEST: u32 = 2001;
const GROUP: u32 = 3000;

/// Runs `work` on a thread that is `user` to the kernel; this process must be root's, or that user's already.
pub(crate) fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

    beneath_kit::on_a_thread(|| {
        let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(GROUP));
        // Saved as root's, so that a thread of this one can become another user.
        let root = Uid::ROOT;
        if rustix::process::geteuid() != root {
            set_thread_res_uid(root, root, root).unwrap();
        }
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, root).unwrap();
        work()
    })
}

/// Gives an entry to a user and to the common group.
pub(crate) fn own(path: &Path, user: u32, mode: u32) {
    use std::os::unix::fs::PermissionsExt;

    std::os::unix::fs::chown(path, Some(user), Some(GROUP)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}
