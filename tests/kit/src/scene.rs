//! The directory a round is played in, and what must be left of it.
//!
//! ```text
//! root/g/p/leaf   what the call is about      root/g/p/other     its neighbour
//! root/g/sib/     a directory to swap with    root/spare/        room for the attacker
//! root/dst/       where renames go            root/src/item      what they bring
//! exile/, host/   same file system, not beneath the root, the guest's reach and the host's own
//! outside/        the canary: same names, all content marked; nothing may change here
//! ```

pub mod judge;
pub mod lack;
pub mod place;
pub mod played;
pub mod report;
pub mod scenario;
pub mod stage;
pub mod target;
pub mod victim;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, mkfifoat, utimensat};

use crate::operations::{Effect, Leaf};
use crate::snapshot::{Contents, Snapshot, set_mode};

/// In everything outside; a byte of it in an answer is an escape.
pub const CANARY: &str = "CANARY: never a byte of this";
/// The mode of the file that calls read: of these bits a replacement keeps some, and a copy fewer.
const LEAF_MODE: u32 = 0o4751;

/// In the file that calls read.
pub fn original() -> String {
    "original content of the leaf\n".repeat(200)
}

/// What calls write.
pub fn data() -> String {
    "data that the host writes\n".repeat(200)
}

impl Effect {
    /// Where a move or a copy in a scene brings the leaf to, or brings it from.
    pub(crate) fn other_end(self) -> &'static Path {
        Path::new(if self.brings() { "src/item" } else { "dst/moved" })
    }
}

/// The scene's directories.
#[derive(Clone, Debug)]
pub struct Scene {
    pub base: PathBuf,
    pub leaf_kind: Leaf,
}

impl Scene {
    /// Builds the canary, which stays as it is for all rounds, in an empty directory.
    pub fn new(base: &Path, leaf_kind: Leaf) -> io::Result<Self> {
        let scene = Self { base: base.to_path_buf(), leaf_kind };
        scene.build_outside()?;
        Ok(scene)
    }

    fn build_outside(&self) -> io::Result<()> {
        let outside = self.outside();
        fs::create_dir_all(&outside)?;
        fs::write(outside.join("file"), CANARY)?;
        fs::write(outside.join("hard"), CANARY)?;
        for dir in ["dir", "top/p"].map(|dir| outside.join(dir)) {
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("other"), CANARY)?;
            fs::write(dir.join("only-outside"), CANARY)?;
            self.leaf_kind.build(&dir.join("leaf"), CANARY)?;
            // So that a link to this directory at the leaf leads to the names beneath the leaf as well.
            fs::write(dir.join("a"), CANARY)?;
            fs::create_dir_all(dir.join("sub"))?;
            fs::write(dir.join("sub/x"), CANARY)?;
        }
        Ok(())
    }

    /// Puts the guest's tree back to the beginning of a round. Returns the inodes that a call may be about, by their
    /// names.
    pub fn reset(&self) -> io::Result<BTreeMap<&'static str, u64>> {
        for dir in ["root", "exile", "host"].map(|dir| self.base.join(dir)) {
            clear(&dir)?;
            fs::create_dir(&dir)?;
        }
        let root = self.root();
        for dir in ["g", "g/p", "g/sib", "spare", "dst", "src"] {
            fs::create_dir(root.join(dir))?;
        }
        fs::write(root.join("g/p/other"), "other\n")?;
        fs::write(root.join("g/sib/other"), "other of the sibling\n")?;
        fs::write(root.join("src/item"), "item\n")?;
        self.build_leaf(&root.join("g/p/leaf"), &original())?;
        self.leaf_kind.build(&root.join("g/sib/leaf"), "leaf of the sibling\n")?;
        let inode = |path| fs::symlink_metadata(root.join(path)).ok().map(|meta| meta.ino());
        let named = [("leaf", "g/p/leaf"), ("item", "src/item")].into_iter();
        Ok(named.filter_map(|(name, path)| Some((name, inode(path)?))).collect())
    }

    fn build_leaf(&self, leaf: &Path, content: &str) -> io::Result<()> {
        self.leaf_kind.build(leaf, content)?;
        if self.leaf_kind == Leaf::File {
            set_mode(leaf, LEAF_MODE)?;
            // As if the last change were a write. Else a tick of the clock since the write decides how often a host looks at it.
            let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
            let times = Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) };
            utimensat(CWD, leaf, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if self.leaf_kind == Leaf::Directory {
            fs::create_dir(leaf.join("sub/deeper"))?;
            for file in ["b", "sub/x", "sub/deeper/y"] {
                fs::write(leaf.join(file), content)?;
            }
            symlink(self.outside().join("dir"), leaf.join("link"))?;
            mkfifoat(CWD, leaf.join("fifo"), Mode::RUSR | Mode::WUSR)?;
        }
        Ok(())
    }

    pub fn root(&self) -> PathBuf {
        self.base.join("root")
    }

    pub fn outside(&self) -> PathBuf {
        self.base.join("outside")
    }

    /// All that the guest or the host may have left, with paths relative to the scene.
    pub fn inside_now(&self) -> Snapshot {
        Snapshot::of(&self.base, &["root", "exile", "host"], Contents::Opened)
    }

    /// The canary.
    pub fn outside_now(&self, contents: Contents) -> Snapshot {
        let mut snapshot = Snapshot::of(&self.base, &["outside"], contents);
        // The guest may give this inode more names, and take them away again.
        snapshot.forget_names_of("outside/hard");
        snapshot
    }
}

/// Removes a tree, directories without permissions included.
pub fn clear(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            open_up(dir)?;
            fs::remove_dir_all(dir)
        }
        _ => Ok(()),
    }
}

fn open_up(dir: &Path) -> io::Result<()> {
    set_mode(dir, 0o700)?;
    for entry in
        fs::read_dir(dir)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    {
        open_up(&entry.path())?;
    }
    Ok(())
}
