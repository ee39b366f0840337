//! Two sessions, one that has a tree and one that gets it.

use std::path::{Path, PathBuf};

use beneath::session::MessageLimits;
use beneath::{Root, Session, SessionId, Sessions, SessionsConfig, ambient_authority};
use tempfile::TempDir;

pub(crate) struct Yard {
    base: TempDir,
    pub(crate) one: Session,
    pub(crate) two: Session,
}

impl Yard {
    /// Where programs can be executed, which in memory they often cannot.
    pub(crate) fn new() -> Self {
        let base = tempfile::Builder::new().prefix("beneath-").tempdir_in(std::env::temp_dir()).unwrap();
        let root = Root::open_ambient(base.path(), ambient_authority()).unwrap();
        let limits = MessageLimits::default().with_files(1000).with_message_bytes(1 << 30);
        let sessions = Sessions::new(root, SessionsConfig::default().with_outbox(limits));
        let session = |id| sessions.create(&SessionId::new(id)).unwrap().0;
        let (one, two) = (session("one"), session("two"));
        Self { base, one, two }
    }

    /// The workspace of the first session, as its guest sees it.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.base.path().join("one/guest/workspace")
    }

    /// The workspace of the second.
    pub(crate) fn copy(&self) -> PathBuf {
        self.base.path().join("two/guest/workspace")
    }

    /// A place that belongs to neither.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.base.path().join("beside").join(name)
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        // The standard library removes no tree that is deeper than a path, or closed.
        let Ok(root) = Root::open_ambient(self.base.path(), ambient_authority()) else { return };
        for part in ["one/guest", "two/guest"] {
            let _ = root.remove_tree_contained(Path::new(part));
        }
    }
}
