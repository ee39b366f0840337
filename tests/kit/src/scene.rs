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
pub mod scenario;
pub mod stage;
pub mod target;
pub mod victim;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::operations::Leaf;
use crate::snapshot::{Contents, Snapshot, set_mode};

/// In everything outside; a byte of it in an answer is an escape.
pub const CANARY: &str = "CANARY: never a byte of this";
/// In the file that calls read.
pub const ORIGINAL_LINE: &str = "original content of the leaf\n";
/// What calls write.
pub const DATA_LINE: &str = "data that the host writes\n";

pub fn original() -> String {
    ORIGINAL_LINE.repeat(200)
}

pub fn data() -> String {
    DATA_LINE.repeat(200)
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
            self.build_lesser_leaf(&dir.join("leaf"), CANARY)?;
            // So that a link to this directory at the leaf leads to the names beneath the leaf as well.
            fs::write(dir.join("a"), CANARY)?;
            fs::create_dir_all(dir.join("sub"))?;
            fs::write(dir.join("sub/x"), CANARY)?;
        }
        Ok(())
    }

    /// Puts the guest's tree back to the beginning of a round. Returns the inodes that a rename may be about.
    pub fn reset(&self) -> io::Result<Vec<u64>> {
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
        self.build_lesser_leaf(&root.join("g/sib/leaf"), "leaf of the sibling\n")?;
        let inode = |path: &str| fs::symlink_metadata(root.join(path)).ok().map(|meta| meta.ino());
        Ok(["g/p/leaf", "src/item"].into_iter().filter_map(inode).collect())
    }

    fn build_leaf(&self, leaf: &Path, content: &str) -> io::Result<()> {
        match self.leaf_kind {
            Leaf::Absent => Ok(()),
            Leaf::File => fs::write(leaf, content),
            Leaf::EmptyDirectory => fs::create_dir(leaf),
            Leaf::Directory => {
                fs::create_dir_all(leaf.join("sub/deeper"))?;
                for file in ["a", "b", "sub/x", "sub/deeper/y"] {
                    fs::write(leaf.join(file), content)?;
                }
                symlink(self.outside().join("dir"), leaf.join("link"))?;
                fifo(&leaf.join("fifo"))
            }
        }
    }

    /// Of the same kind, with less in it.
    fn build_lesser_leaf(&self, leaf: &Path, content: &str) -> io::Result<()> {
        match self.leaf_kind {
            Leaf::Absent => Ok(()),
            Leaf::File => fs::write(leaf, content),
            Leaf::EmptyDirectory => fs::create_dir(leaf),
            Leaf::Directory => {
                fs::create_dir_all(leaf.join("sub"))?;
                fs::write(leaf.join("a"), content)
            }
        }
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

pub fn fifo(path: &Path) -> io::Result<()> {
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}

/// Removes a tree, directories without permissions included.
pub fn clear(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            open_up(dir)?;
            fs::remove_dir_all(dir)
        }
    }
}

fn open_up(dir: &Path) -> io::Result<()> {
    set_mode(dir, 0o700)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}
