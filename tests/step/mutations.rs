//! What a guest does between two calls of the host.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::libc;
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, fchmod, mknodat, openat, renameat_with};

use beneath_kit::trace::scene::{self, Leaf, Scene};

/// One thing a guest can do in an instant.
pub(crate) struct Mutation {
    pub(crate) name: &'static str,
    pub(crate) aim: Aim,
    apply: fn(&Site) -> io::Result<()>,
}

/// What there must be for a mutation to mean anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    Anything,
    /// A leaf that is a directory.
    InLeaf,
    /// A leaf that is no directory.
    FileLeaf,
    /// The other end of a rename.
    Rename,
    /// A temporary name of the host's.
    Temporary,
}

/// The places an attack is about.
///
/// Nothing here names a place outside the scene, and nothing acts through a link: the rig must spare the host even if
/// the crate, or an earlier strike, does not do what is expected of it.
pub(crate) struct Site {
    pub(crate) scene: Scene,
}

impl Site {
    fn root(&self, path: &str) -> PathBuf {
        self.scene.root().join(path)
    }

    fn leaf(&self) -> PathBuf {
        self.root("g/p/leaf")
    }

    fn parent(&self) -> PathBuf {
        self.root("g/p")
    }

    fn grand(&self) -> PathBuf {
        self.root("g")
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.scene.outside().join(path)
    }

    /// Applies the mutation, unless an earlier one has left nothing for it to act on.
    ///
    /// A guest cannot follow its own links out of its mount, so neither must we: every directory on the way is real.
    pub(crate) fn apply(&self, mutation: &Mutation) -> io::Result<()> {
        let ways: &[&str] = match mutation.aim {
            Aim::InLeaf => &["g", "g/p", "g/p/leaf"],
            Aim::Rename => &["src", "dst"],
            _ => &["g", "g/p"],
        };
        for way in ways {
            if !fs::symlink_metadata(self.root(way))?.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        (mutation.apply)(self)
    }

    /// A name nobody has used.
    fn spare(&self) -> PathBuf {
        self.root("spare/thing")
    }

    fn exile(&self) -> PathBuf {
        self.scene.base.join("exile/thing")
    }

    /// An ancestor of the root, as `/` would be.
    fn top(&self) -> &Path {
        &self.scene.base
    }

    /// Takes away whatever is at the leaf.
    fn vacate(&self) -> io::Result<PathBuf> {
        let leaf = self.leaf();
        fs::symlink_metadata(self.parent())?;
        match fs::rename(&leaf, self.root("spare/old")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(leaf),
        }
    }

    fn link_leaf(&self, to: impl AsRef<Path>) -> io::Result<()> {
        symlink(to, self.vacate()?)
    }

    fn link_parent(&self, to: impl AsRef<Path>) -> io::Result<()> {
        fs::rename(self.parent(), self.spare())?;
        symlink(to, self.parent())
    }

    fn node(&self, kind: FileType, device: u64) -> io::Result<()> {
        Ok(mknodat(CWD, self.vacate()?, kind, Mode::RUSR | Mode::WUSR, device)?)
    }

    /// Does something to each temporary name; it is no attack where there is none.
    fn each_temporary(&self, act: impl Fn(&Self, &Path) -> io::Result<()>) -> io::Result<()> {
        let mut met = false;
        for dir in ["g/p", "g", "g/sib", ".", "dst"] {
            for entry in fs::read_dir(self.root(dir)).into_iter().flatten() {
                let entry = entry?;
                if entry.file_name().as_encoded_bytes().starts_with(b".beneath-") {
                    act(self, &entry.path())?;
                    met = true;
                }
            }
        }
        if met { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// By handle and without following: struck second, this may meet a link.
fn close_up(path: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    // Another name of an outside file is not the guest's to close.
    if meta.is_symlink() || (meta.is_file() && meta.nlink() > 1) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let entry = openat(CWD, path, flags, Mode::empty())?;
    Ok(fchmod(entry, Mode::empty())?)
}

/// A file open for writing; never through a link, never waiting for a reader.
fn writable(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() && meta.nlink() == 1 { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

const fn attack(name: &'static str, apply: fn(&Site) -> io::Result<()>) -> Mutation {
    Mutation { name, aim: Aim::Anything, apply }
}

const fn aimed(aim: Aim, name: &'static str, apply: fn(&Site) -> io::Result<()>) -> Mutation {
    Mutation { name, aim, apply }
}

/// A host's file gets a second name at the leaf, and loses it again.
pub(crate) const LINKED: &str = "leaf: hard link to an outside file";
pub(crate) const UNLINKED: &str = "leaf: removed";

pub(crate) const MUTATIONS: &[Mutation] = &[
    attack("leaf: link to an outside file", |site| site.link_leaf(site.outside("file"))),
    attack("leaf: link to an outside directory", |site| site.link_leaf(site.outside("dir"))),
    attack("leaf: dangling link to the outside", |site| site.link_leaf(site.outside("nothing"))),
    attack("leaf: relative link to the outside", |site| site.link_leaf("../../../outside/file")),
    attack("leaf: link to its neighbour", |site| site.link_leaf("other")),
    attack("leaf: link to itself", |site| site.link_leaf("leaf")),
    attack("leaf: link to ..", |site| site.link_leaf("..")),
    attack("leaf: link to an ancestor", |site| site.link_leaf(site.top())),
    // A magic link that leads nowhere: one that leads somewhere could lead to the host.
    attack("leaf: link through /proc", |site| site.link_leaf("/proc/self/fd/99")),
    attack("leaf: FIFO", |site| scene::fifo(&site.vacate()?)),
    attack("leaf: socket", |site| site.node(FileType::Socket, 0)),
    attack("leaf: device", |site| site.node(FileType::CharacterDevice, rustix::fs::makedev(1, 3))),
    attack("leaf: empty directory", |site| fs::create_dir(site.vacate()?)),
    attack("leaf: full directory", |site| {
        let leaf = site.vacate()?;
        fs::create_dir(&leaf)?;
        fs::write(leaf.join("a"), "planted\n")?;
        symlink(site.outside("dir"), leaf.join("sub"))
    }),
    attack(UNLINKED, |site| match fs::remove_file(site.leaf()) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => fs::remove_dir_all(site.leaf()),
        result => result,
    }),
    attack(LINKED, |site| fs::hard_link(site.outside("hard"), site.vacate()?)),
    attack("leaf: removed, another file there", |site| {
        fs::remove_file(site.leaf())?;
        fs::write(site.leaf(), "another\n")
    }),
    aimed(Aim::FileLeaf, "leaf: grown", |site| writable(&site.leaf())?.write_all(&[b'+'; 10_000])),
    aimed(Aim::FileLeaf, "leaf: truncated", |site| writable(&site.leaf())?.set_len(100)),
    attack("leaf: another file", |site| {
        let leaf = site.vacate()?;
        fs::write(leaf, "another\n")
    }),
    attack("leaf: exchanged with a link", |site| {
        symlink(site.outside("file"), site.spare())?;
        exchange(&site.leaf(), &site.spare())
    }),
    attack("leaf: exchanged with the sibling", |site| exchange(&site.leaf(), &site.root("g/sib"))),
    attack("leaf: exchanged with a directory link", |site| {
        symlink(site.outside("dir"), site.spare())?;
        exchange(&site.leaf(), &site.spare())
    }),
    attack("leaf: mode 000", |site| close_up(&site.leaf())),
    aimed(Aim::FileLeaf, "leaf: second name beside it", |site| {
        fs::hard_link(site.leaf(), site.root("g/p/second"))
    }),
    attack("leaf: moved to exile", |site| fs::rename(site.leaf(), site.exile())),
    aimed(Aim::InLeaf, "in the leaf: directory exchanged with a link", |site| {
        symlink(site.outside("dir"), site.spare())?;
        exchange(&site.leaf().join("sub"), &site.spare())
    }),
    aimed(Aim::InLeaf, "in the leaf: file exchanged with a directory", |site| {
        fs::create_dir(site.spare())?;
        fs::write(site.spare().join("inner"), "inner\n")?;
        exchange(&site.leaf().join("a"), &site.spare())
    }),
    aimed(Aim::InLeaf, "in the leaf: directory mode 000", |site| close_up(&site.leaf().join("sub"))),
    aimed(Aim::InLeaf, "in the leaf: directory moved up", |site| {
        fs::rename(site.leaf().join("sub"), site.root("g/p/escaped"))
    }),
    aimed(Aim::InLeaf, "in the leaf: directory exchanged with its child", |site| {
        let sub = site.leaf().join("sub");
        fs::rename(sub.join("deeper"), site.spare())?;
        exchange(&sub, &site.spare())
    }),
    attack("parent: link to the outside", |site| site.link_parent(site.outside("dir"))),
    attack("parent: relative link to the outside", |site| site.link_parent("../../outside/dir")),
    attack("parent: link to .", |site| site.link_parent(".")),
    attack("parent: link to ..", |site| site.link_parent("..")),
    attack("parent: link to an ancestor", |site| site.link_parent(site.top())),
    attack("parent: link to itself", |site| site.link_parent("p")),
    attack("parent: exchanged with a link", |site| {
        symlink(site.outside("dir"), site.spare())?;
        exchange(&site.parent(), &site.spare())
    }),
    attack("parent: exchanged with the sibling", |site| exchange(&site.parent(), &site.root("g/sib"))),
    attack("parent: a file", |site| {
        fs::rename(site.parent(), site.spare())?;
        fs::write(site.parent(), "a file\n")
    }),
    attack("parent: moved away", |site| fs::rename(site.parent(), site.root("away"))),
    attack("parent: moved to exile", |site| fs::rename(site.parent(), site.exile())),
    attack("parent: removed", |site| fs::remove_dir_all(site.parent())),
    attack("parent: mode 000", |site| close_up(&site.parent())),
    attack("parent: made anew", |site| {
        fs::rename(site.parent(), site.spare())?;
        fs::create_dir(site.parent())?;
        match site.scene.leaf_kind {
            Leaf::Absent => Ok(()),
            Leaf::File => fs::write(site.leaf(), "made anew\n"),
            Leaf::Directory => {
                fs::create_dir(site.leaf())?;
                fs::write(site.leaf().join("a"), "made anew\n")
            }
        }
    }),
    attack("parent: new entry", |site| fs::write(site.root("g/p/new"), "new\n")),
    attack("parent: many new entries", |site| {
        (0..40).try_for_each(|n| fs::write(site.root(&format!("g/p/new-{n}")), "new\n"))
    }),
    attack("grandparent: link to the outside", |site| {
        fs::rename(site.grand(), site.spare())?;
        symlink(site.outside("top"), site.grand())
    }),
    attack("grandparent: exchanged with a link", |site| {
        symlink(site.outside("top"), site.spare())?;
        exchange(&site.grand(), &site.spare())
    }),
    attack("grandparent: moved away", |site| fs::rename(site.grand(), site.root("away"))),
    attack("grandparent: moved to exile", |site| fs::rename(site.grand(), site.exile())),
    attack("grandparent: a file", |site| {
        fs::rename(site.grand(), site.spare())?;
        fs::write(site.grand(), "a file\n")
    }),
    attack("grandparent: mode 000", |site| close_up(&site.grand())),
    aimed(Aim::Rename, "rename target: link to the outside", |site| {
        fs::rename(site.root("dst"), site.spare())?;
        symlink(site.outside("dir"), site.root("dst"))
    }),
    aimed(Aim::Rename, "rename target: taken", |site| fs::write(site.root("dst/moved"), "taken\n")),
    aimed(Aim::Rename, "rename source: link to an outside file", |site| {
        fs::rename(site.root("src/item"), site.spare())?;
        symlink(site.outside("file"), site.root("src/item"))
    }),
    aimed(Aim::Temporary, "temporary: link to an outside file", |site| {
        site.each_temporary(|site, name| {
            fs::rename(name, site.spare())?;
            symlink(site.outside("file"), name)
        })
    }),
    aimed(Aim::Temporary, "temporary: removed", |site| site.each_temporary(|_, name| fs::remove_file(name))),
    aimed(Aim::Temporary, "temporary: a directory", |site| {
        site.each_temporary(|site, name| {
            fs::rename(name, site.spare())?;
            fs::create_dir(name)
        })
    }),
    aimed(Aim::Temporary, "temporary: another file", |site| {
        site.each_temporary(|site, name| {
            fs::rename(name, site.spare())?;
            fs::write(name, "another\n")
        })
    }),
    aimed(Aim::Temporary, "temporary: hard link to an outside file", |site| {
        site.each_temporary(|site, name| {
            fs::rename(name, site.spare())?;
            fs::hard_link(site.outside("hard"), name)
        })
    }),
    aimed(Aim::Temporary, "temporary: moved to the leaf", |site| {
        site.each_temporary(|site, name| fs::rename(name, site.leaf()))
    }),
    aimed(Aim::Temporary, "temporary: second name at the leaf", |site| {
        site.each_temporary(|site, name| {
            let leaf = site.vacate()?;
            fs::hard_link(name, leaf)
        })
    }),
];
