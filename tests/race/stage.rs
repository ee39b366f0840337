//! The tree a race is run in: a root that the guest changes, and the place of the canary beside it.
//!
//! The host's own bookkeeping (making what a removal took, taking what a write made) goes by handles that were opened
//! before the guest started, and by single names that are not followed. So it cannot be raced itself.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, chmodat, mkdirat, openat, renameat_with, statat,
    symlinkat, unlinkat,
};
use tempfile::TempDir;

use crate::plan::{Ground, Kind, Operation, Scenario};
#[cfg(feature = "session")]
use crate::session;

/// What the guest's own files hold.
pub(crate) const INSIDE: &[u8] = b"work of the guest";

/// Makes a file that must not be there yet.
pub(crate) const NEW: OFlags =
    OFlags::CREATE.union(OFlags::EXCL).union(OFlags::WRONLY).union(OFlags::CLOEXEC);

pub(crate) struct Stage {
    scenario: Scenario,
    dir: TempDir,
    /// Every real directory that the target's parent can be.
    homes: Vec<OwnedFd>,
}

impl Stage {
    pub(crate) fn build(scenario: Scenario) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("beneath-race-").tempdir_in(ground_of(scenario))?;
        let root = dir.path().join("root");
        let c = root.join("a/b/c");
        fs::create_dir_all(&c)?;
        fs::write(c.join("f"), INSIDE)?;
        fs::write(c.join("r"), INSIDE)?;
        let homes = match (scenario.kind, scenario.operation) {
            (Kind::RenameStorm, _) => {
                let other = root.join("z/p/c");
                fs::create_dir_all(&other)?;
                fs::write(other.join("f"), INSIDE)?;
                vec![c, other]
            }
            (Kind::Siblings, _) => {
                let ends = [c.join("in"), c.join("to")];
                for end in &ends {
                    fs::create_dir(end)?;
                    fs::write(end.join("r"), INSIDE)?;
                }
                ends.to_vec()
            }
            (Kind::DirLink(4), Operation::EnsureDir | Operation::Walk) => {
                fs::create_dir_all(c.join("job/d"))?;
                vec![c.join("job")]
            }
            #[cfg(feature = "session")]
            (_, Operation::Session(call)) => vec![session::stage::build(&root, call)?],
            _ => vec![c],
        };
        let homes = homes.iter().map(|home| open_dir(CWD, home)).collect::<rustix::io::Result<_>>()?;
        let stage = Self { scenario, dir, homes };
        stage.prepare();
        Ok(stage)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path().join("root")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.path().join("outside")
    }

    /// Makes what the next call needs. What the guest has in the way just now is left there.
    pub(crate) fn prepare(&self) {
        for home in &self.homes {
            match self.scenario.operation {
                Operation::Remove => drop(self.build_doomed(home)),
                // A naive host may have moved it out.
                Operation::Rename => drop(openat(home, "r", NEW, Mode::RUSR)),
                #[cfg(feature = "session")]
                Operation::Session(call) => {
                    if let Kind::Session(exchange) = self.scenario.kind {
                        // Fails where the last call was refused and has left everything.
                        let _ = session::stage::prepare(call, exchange, home, &self.outside());
                    }
                }
                _ => {}
            }
        }
    }

    fn build_doomed(&self, home: &OwnedFd) -> rustix::io::Result<()> {
        let _ = mkdirat(home, "job", Mode::RWXU);
        if self.scenario.kind == Kind::Chmod {
            chmod_pinned(home, "job", Mode::RWXU)?;
        }
        let job = open_dir(home, "job")?;
        if matches!(self.scenario.kind, Kind::DoomedLink | Kind::Chmod | Kind::CreateStorm) {
            let _ = symlinkat(self.outside().join("a/b/c/job/d"), &job, "l");
        }
        mkdirat(&job, "d", Mode::RWXU)?;
        let d = open_dir(&job, "d")?;
        openat(&d, "x", NEW, Mode::RUSR)?;
        match self.scenario.kind {
            Kind::Chmod => rustix::fs::fchmod(&d, Mode::empty()),
            _ => Ok(()),
        }
    }

    /// Undoes what the call did inside. Says whether it had done anything there, where that can be told.
    pub(crate) fn settle(&self) -> Option<bool> {
        let each = |undo: &dyn Fn(usize, &OwnedFd) -> bool| {
            // No short cut: every home is tidied.
            Some(self.homes.iter().enumerate().filter(|(index, home)| undo(*index, home)).count() > 0)
        };
        match self.scenario.operation {
            Operation::Write => {
                each(&|_, home| is_file(home, "w") && unlinkat(home, "w", AtFlags::empty()).is_ok())
            }
            Operation::EnsureDir => each(&|_, home| take_dirs(home)),
            Operation::Rename => each(&|index, home| {
                // It came from the other end, or from this one if the two changed places between the lookups.
                let ends = [&self.homes[(index + 1) % self.homes.len()], home];
                ends.iter().any(|end| renameat_with(home, "t", end, "r", RenameFlags::NOREPLACE).is_ok())
            }),
            #[cfg(feature = "session")]
            Operation::Session(call) => {
                self.homes.first().and_then(|home| session::stage::settle(call, home))
            }
            Operation::Read
            | Operation::Replace
            | Operation::Remove
            | Operation::Walk
            | Operation::SetAccess => None,
        }
    }
}

impl Drop for Stage {
    /// Opens up what the guest has closed, which the temporary directory's own removal does not.
    fn drop(&mut self) {
        if let Ok(dir) = beneath::Root::open_ambient(self.path(), beneath::ambient_authority()) {
            let _ = dir.remove_tree_contained("root");
        }
    }
}

/// Where the trees are made: in memory if that is to be had, else where temporary files go.
pub(crate) fn ground() -> PathBuf {
    match std::env::var_os("BENEATH_RACE_DIR") {
        Some(chosen) => chosen.into(),
        None if Path::new("/dev/shm").is_dir() => "/dev/shm".into(),
        None => std::env::temp_dir(),
    }
}

fn ground_of(scenario: Scenario) -> PathBuf {
    match scenario.ground() {
        Ground::Usual => ground(),
        Ground::Disk => disk(),
    }
}

/// Where temporary files go.
pub(crate) fn disk() -> PathBuf {
    std::env::temp_dir()
}

/// Opens a real directory for everything, never a link to one.
pub(crate) fn open_dir(at: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    openat(at, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Changes the mode of a directory that may not be opened, and of nothing else.
pub(crate) fn chmod_pinned(at: impl AsFd, name: &str, mode: Mode) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pin = openat(at, name, flags, Mode::empty())?;
    let number = rustix::path::DecInt::from_fd(&pin);
    let own = openat(CWD, "/proc/self/fd", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    chmodat(own, number.as_c_str(), mode, AtFlags::empty())
}

fn is_file(at: &OwnedFd, name: &str) -> bool {
    statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|entry| FileType::from_raw_mode(entry.st_mode) == FileType::RegularFile)
}

fn take_dirs(home: &OwnedFd) -> bool {
    let Ok(made) = open_dir(home, "e") else { return false };
    let _ = unlinkat(&made, "e", AtFlags::REMOVEDIR);
    unlinkat(home, "e", AtFlags::REMOVEDIR).is_ok()
}
