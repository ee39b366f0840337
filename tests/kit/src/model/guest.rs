//! What a guest does to its own tree and to the model of it, and whether the two are the same.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, symlink};
use std::path::Path;

use beneath::{Root, WalkLimits};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use super::{Model, Node, SECRET, text};
use crate::strikes::exchange::exchange;

/// One thing that a guest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    MakeDirectory,
    WriteFile,
    Link,
    HardLink,
    /// A second name of the file outside.
    HardLinkSecret,
    Fifo,
    Rename,
    Exchange,
    Unlink,
}

impl Mutation {
    pub const ALL: [Self; 9] = {
        use Mutation::*;
        [MakeDirectory, WriteFile, Link, HardLink, HardLinkSecret, Fifo, Rename, Exchange, Unlink]
    };
}

/// What links say; the last leads to a directory outside, by its full path.
const TEXTS: [&str; 7] = ["a", ".", "..", "../outside", "../../outside/a", "b/a", "nowhere"];

impl Model {
    /// Makes the change in the tree at `dir` and in the model, if it can be made: by plain calls on paths that hold no link.
    ///
    /// The guest's secret is `secret`; `byte` chooses what is written, or what a link says.
    pub fn mutate(
        &mut self,
        mutation: Mutation,
        dir: &Path,
        secret: &Path,
        from: &Path,
        to: &Path,
        byte: u8,
    ) {
        if self.parent(from).is_err() || self.parent(to).is_err() {
            return;
        }
        let [old, new] = [from, to].map(|path| dir.join(path));
        let free = self.get(to).is_err();
        let made = match (mutation, self.get(from).ok().cloned()) {
            (Mutation::MakeDirectory, _) if free => fs::create_dir(new).map(|()| Node::Dir),
            (Mutation::WriteFile, _) if free => {
                let content = [byte; 9];
                self.contents.push(content.to_vec());
                fs::write(new, content).map(|()| Node::File(self.contents.len() - 1))
            }
            (Mutation::Link, _) if free => match TEXTS.get(usize::from(byte) % (TEXTS.len() + 1)) {
                Some(text) => symlink(text, new).map(|()| Node::Link(text.into())),
                None => {
                    let text = secret.with_file_name("sub");
                    symlink(&text, new).map(|()| Node::Link(text))
                }
            },
            (Mutation::HardLink, Some(Node::File(file))) if free => {
                fs::hard_link(old, new).map(|()| Node::File(file))
            }
            (Mutation::HardLinkSecret, _) if free => fs::hard_link(secret, new).map(|()| Node::File(SECRET)),
            (Mutation::Fifo, _) if free => {
                mkfifoat(CWD, new, Mode::RUSR | Mode::WUSR).unwrap();
                Ok(Node::Fifo)
            }
            (Mutation::Rename, Some(_)) if free && !to.starts_with(from) => {
                fs::rename(old, new).unwrap();
                let taken = self.take(from);
                return self.give(to, taken);
            }
            (Mutation::Exchange, Some(_)) if !free && !to.starts_with(from) && !from.starts_with(to) => {
                exchange(CWD, &*old, CWD, &*new).unwrap();
                return self.exchange(from, to);
            }
            (Mutation::Unlink, Some(node)) if node != Node::Dir => {
                self.take(from);
                return fs::remove_file(old).unwrap();
            }
            _ => return,
        };
        self.nodes.insert(to.to_path_buf(), made.unwrap());
    }

    /// Compares the whole tree at `dir`, seen by the walk and by plain calls, with the model.
    pub fn compare(&self, root: &Root, dir: &Path) {
        let walk = root.walk(".", WalkLimits::default()).unwrap();
        let walked: BTreeSet<String> = walk.map(|entry| text(entry.unwrap().path())).collect();
        assert_eq!(walked, self.nodes.keys().map(|path| text(path)).collect());
        for (path, node) in &self.nodes {
            let real = dir.join(path);
            let kind = || fs::symlink_metadata(&real).unwrap().file_type();
            match node {
                Node::File(file) => self.compare_file(&real, *file),
                Node::Dir => assert!(kind().is_dir(), "{path:?}"),
                Node::Link(text) => assert_eq!(fs::read_link(real).unwrap(), *text, "{path:?}"),
                Node::Fifo => assert!(kind().is_fifo(), "{path:?}"),
            }
        }
    }

    fn compare_file(&self, real: &Path, file: usize) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = File::from(rustix::fs::open(real, flags, Mode::empty()).unwrap());
        let entry = opened.metadata().unwrap();
        assert!(entry.is_file(), "{real:?}");
        assert_eq!(entry.nlink() as usize, self.names(file), "{real:?}");
        let mut bytes = [0; 512];
        let length = opened.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..length], self.contents[file], "{real:?}");
    }
}
