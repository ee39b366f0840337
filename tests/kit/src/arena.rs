//! A root to work in and a canary beside it that no call may touch.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use beneath::{ErrorKind, Policy, Root, Seal, Seat, ambient_authority};
use rustix::fs::{CWD, FileType, Mode};
use tempfile::TempDir;

use crate::Snapshot;

/// A temporary directory with `root/` (the [`Root`]), `outside/` (the canary: everything in it, and its place in
/// the directory above, must be the same at the end) and `throwaway/` (what naive controls may ruin).
#[derive(Debug)]
pub struct Arena {
    base: TempDir,
    before: Snapshot,
    /// One seal for all roots of an arena: between two, nothing can be moved.
    sealed: OnceLock<Root>,
}

/// The name of the variable by which a run of a suite asks for sealed roots.
pub const SEALED: &str = "BENEATH_TEST_SEALED";

fn memory() -> Option<&'static Path> {
    let memory = Path::new("/dev/shm");
    (crate::rig::file_system(memory) == "tmpfs").then_some(memory)
}

/// Where a test makes its files: where `TMPDIR` says; else in memory, if that is to be had, since a disk takes several
/// times as long to make and remove them.
pub fn ground() -> PathBuf {
    match memory() {
        Some(memory) if std::env::var_os("TMPDIR").is_none() => memory.into(),
        _ => std::env::temp_dir(),
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl Arena {
    pub fn new() -> Self {
        Self::within(&ground())
    }

    /// An arena in memory, or none where `/dev/shm` is not a tmpfs.
    pub fn on_tmpfs() -> Option<Self> {
        memory().map(Self::within)
    }

    /// In memory where that can be had, for tests that make many entries and ask nothing of the file system.
    pub fn quick() -> Self {
        Self::on_tmpfs().unwrap_or_default()
    }

    pub fn within(parent: &Path) -> Self {
        let base = tempfile::Builder::new().prefix("beneath-").tempdir_in(parent).unwrap();
        let outside = base.path().join("outside");
        for dir in ["outside/sub", "throwaway", "root"] {
            fs::create_dir_all(base.path().join(dir)).unwrap();
        }
        fs::write(outside.join("secret"), "SECRET").unwrap();
        fs::write(outside.join("sub/x"), "x").unwrap();
        let before = Snapshot::take(&outside);
        Self { base, before, sealed: OnceLock::new() }
    }

    pub fn open(&self, policy: Policy) -> Root {
        let plain = || Root::open_ambient(self.root(), ambient_authority()).unwrap();
        let root = match std::env::var_os(SEALED) {
            Some(_) => self.sealed.get_or_init(|| self.seal(plain())).try_clone().unwrap(),
            None => plain(),
        };
        root.with_policy(policy)
    }

    /// A seat for the mounts of this arena.
    pub fn seat(&self) -> Seat {
        let path = self.beside("seat");
        if fs::create_dir(&path).is_ok() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        Seat::open_ambient(path, ambient_authority()).unwrap()
    }

    /// A test body that has given up its privileges works on the plain root.
    fn seal(&self, plain: Root) -> Root {
        match plain.seal(Seal::ReadWrite, &self.seat()) {
            Ok(sealed) => sealed,
            Err(error) if error.kind() == ErrorKind::Denied => plain,
            Err(error) => panic!("{error}"),
        }
    }

    pub fn base(&self) -> &Path {
        self.base.path()
    }

    pub fn root(&self) -> PathBuf {
        self.base.path().join("root")
    }

    pub fn outside(&self) -> PathBuf {
        self.base.path().join("outside")
    }

    /// A directory beside the root that controls may change; made anew with `canary` in it on each call.
    pub fn throwaway(&self) -> PathBuf {
        let path = self.base.path().join("throwaway");
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("canary"), "CANARY").unwrap();
        path
    }

    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root().join(path)
    }

    fn with_parents(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    pub fn file(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> &Self {
        fs::write(self.with_parents(path), content).unwrap();
        self
    }

    pub fn dir(&self, path: impl AsRef<Path>) -> &Self {
        fs::create_dir_all(self.at(path)).unwrap();
        self
    }

    pub fn link(&self, path: impl AsRef<Path>, to: impl AsRef<Path>) -> &Self {
        symlink(to, self.with_parents(path)).unwrap();
        self
    }

    pub fn hard_link(&self, path: impl AsRef<Path>, to: impl AsRef<Path>) -> &Self {
        fs::hard_link(to, self.with_parents(path)).unwrap();
        self
    }

    pub fn fifo(&self, path: impl AsRef<Path>) -> &Self {
        rustix::fs::mkfifoat(CWD, self.with_parents(path), Mode::from_raw_mode(0o666)).unwrap();
        self
    }

    pub fn socket(&self, path: impl AsRef<Path>) -> &Self {
        drop(UnixListener::bind(self.with_parents(path)).unwrap());
        self
    }

    /// A device node; false where this user may make none.
    pub fn device(&self, path: impl AsRef<Path>, kind: FileType, major: u32, minor: u32) -> bool {
        let node = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, self.with_parents(path), kind, Mode::from_raw_mode(0o666), node).is_ok()
    }

    pub fn mode(&self, path: impl AsRef<Path>, mode: u32) -> &Self {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    pub fn mode_of(&self, path: impl AsRef<Path>) -> u32 {
        fs::symlink_metadata(self.at(path)).unwrap().permissions().mode() & 0o7777
    }

    pub fn content(&self, path: impl AsRef<Path>) -> Vec<u8> {
        fs::read(self.at(path)).unwrap()
    }

    /// Whether the name is there, as anything.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        fs::symlink_metadata(self.at(path)).is_ok()
    }

    pub fn names(&self, dir: impl AsRef<Path>) -> BTreeSet<OsString> {
        fs::read_dir(self.at(dir)).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    /// Everything beneath the root as it is now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.root())
    }

    /// Panics if anything outside the root changed.
    #[track_caller]
    pub fn verify(&self) {
        self.before.assert_same(&Snapshot::take(&self.outside()), "the canary outside the root changed");
        let mut beside = self.names(self.base());
        beside.retain(|name| !name.to_string_lossy().starts_with("test-"));
        let expected = ["outside", "root", "throwaway"].map(OsString::from);
        assert_eq!(beside, expected.into(), "something appeared or vanished beside the root");
    }

    /// A path beside the root that a test may use for its own ends.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.base().join(format!("test-{name}"))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.verify();
        }
        // std cannot remove what these tests build, too deep or of mode 000, and takes the other threads' descriptors.
        let removed = Root::open_ambient(self.base(), ambient_authority())
            .and_then(|base| base.remove_tree_contained("root"));
        if !removed.is_ok_and(|removed| removed.is_complete()) {
            let _ = Command::new("chmod").arg("-R").arg("u+rwx").arg(self.root()).output();
            let _ = Command::new("rm").arg("-rf").arg(self.root()).output();
        }
    }
}
