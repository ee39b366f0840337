//! A guest that swaps what the service works on for links, FIFOs and directories.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use beneath_kit::Snapshot;
use rustix::fs::{CWD, Mode, RenameFlags, mkfifoat, renameat_with};

pub(crate) const SECRET: &str = "the host's secret";

/// Ends the guest's loops, also if the test fails.
pub(crate) struct Stops<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct Guest {
    dir: PathBuf,
    outside: PathBuf,
    before: Snapshot,
    leaked: AtomicU64,
}

/// What is swapped for what. What is missing is made again, since the clients remove and replace it.
const SWAPS: &[(&str, &str)] = &[
    ("workspace/f", "workspace/link"),
    ("workspace/f", "workspace/fifo"),
    ("workspace/d", "workspace/dir-link"),
    ("workspace/d", "workspace/f"),
    ("control/file", "control/link"),
    ("outbox", "outbox-link"),
    ("inbox", "inbox-link"),
    ("workspace", "workspace-link"),
];

impl Guest {
    /// In the directory of a session, with something to protect beside the sessions.
    pub(crate) fn new(place: &Path, dir: PathBuf) -> Self {
        let outside = place.join("outside");
        fs::create_dir_all(outside.join("42")).unwrap();
        for file in ["secret", "x", "42/secret"] {
            fs::write(outside.join(file), SECRET).unwrap();
        }
        let before = Snapshot::take(&outside);
        let guest = Self { dir: dir.canonicalize().unwrap(), outside, before, leaked: AtomicU64::new(0) };
        guest.furnish();
        guest
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    /// Makes what is missing; what is there stays.
    fn furnish(&self) {
        for dir in ["inbox", "outbox", "outbox/42", "workspace", "workspace/d", "control"] {
            self.make(dir, |path| fs::create_dir(path));
        }
        for link in ["workspace/link", "control/link"] {
            self.make(link, |path| symlink(self.outside.join("secret"), path));
        }
        for link in ["workspace/dir-link", "outbox-link", "inbox-link", "workspace-link"] {
            self.make(link, |path| symlink(&self.outside, path));
        }
        self.make("workspace/fifo", |path| Ok(mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?));
        for file in ["workspace/f", "control/file", "workspace/d/x", "outbox/42/secret"] {
            self.make(file, |path| fs::File::create_new(path)?.write_all(b"inside"));
        }
    }

    /// Makes an entry, or removes it, unless one of the guest's own links leads outside.
    fn make(&self, path: &str, make: impl FnOnce(&Path) -> io::Result<()>) {
        let path = self.at(path);
        let above = path.parent().and_then(|above| above.canonicalize().ok());
        if above.is_some_and(|above| above.starts_with(&self.dir)) {
            // It may be there already, or gone.
            let _ = make(&path);
        }
    }

    pub(crate) fn swap_until(&self, stop: &AtomicBool) {
        for turn in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let (one, other) = SWAPS[turn % SWAPS.len()];
            // A client may have written a file in place of the link.
            self.make(other, |path| fs::remove_file(path));
            self.furnish();
            for _ in 0..2 {
                // One of the two may be gone.
                let _ = renameat_with(CWD, self.at(one), CWD, self.at(other), RenameFlags::EXCHANGE);
            }
            // Now and then it stays swapped for a while.
            if turn % 3 == 0 {
                let _ = renameat_with(CWD, self.at(one), CWD, self.at(other), RenameFlags::EXCHANGE);
            }
        }
    }

    /// What a service does that trusts a path.
    pub(crate) fn naive_reads_until(&self, stop: &AtomicBool) -> u64 {
        use std::io::Read as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        const NONBLOCK: i32 = 0o4000;
        while !stop.load(Ordering::Relaxed) {
            let file = fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(self.at("control/file"));
            let mut text = String::new();
            let _ = file.and_then(|mut file| file.read_to_string(&mut text));
            self.leaked.fetch_add(u64::from(text == SECRET), Ordering::Relaxed);
        }
        self.leaked.load(Ordering::Relaxed)
    }

    pub(crate) fn has_leaked(&self) -> bool {
        self.leaked.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn outside_is_untouched(&self) -> bool {
        match self.before.difference(&Snapshot::take(&self.outside)) {
            Some(difference) => panic!("outside/{difference}"),
            None => true,
        }
    }
}
