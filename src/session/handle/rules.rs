//! What the host's own calls on a workspace must not do.
//!
//! Problem: a service offers file calls to an agent, and some of the workspace is not meant for them: skills that the host put
//! there, keys, the repository's own records. A prefix that is compared as text also protects `skillsX`, and one that is compared
//! before the spelling is read protects nothing.
//!
//! Defence: the path is compared component by component, after its spelling was read. What replaces or removes an entry is also
//! refused above a read-only path. Calls that change something never follow links, so the path that is compared is the one that is
//! changed.
//!
//! What remains: these rules bind the host's calls. The guest does with its files what it likes: it renames them, copies them to
//! another name, and reaches what is blocked by a link where reads follow links. To bind the guest, mount read-only.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
#[cfg(feature = "patterns")]
use crate::name::{Of, Patterns};
use crate::root::FileType;

/// What a call is about to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Act {
    /// Lists or describes it.
    Look,
    /// Reads its content.
    Read,
    /// Makes it as a directory, if it is not there.
    Make,
    /// Changes it, and nothing beneath it.
    Change,
    /// Makes, moves, replaces or removes it, with whatever is beneath it.
    Replace,
}

/// Which paths of the workspace the host's calls refuse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::session) struct Rules {
    read_only: Vec<GuestPath>,
    pub(in crate::session) lists: Lists,
}

impl Rules {
    pub(super) fn set_read_only(&mut self, paths: impl IntoIterator<Item = GuestPath>) {
        self.read_only = paths.into_iter().collect();
    }

    pub(super) fn read_only(&self) -> &[GuestPath] {
        &self.read_only
    }

    /// Whether nothing is refused.
    pub(in crate::session) fn is_empty(&self) -> bool {
        self.read_only.is_empty() && self.lists.is_empty()
    }

    /// Refuses what the rules do not let a call do with `path`, which is from the workspace.
    pub(in crate::session) fn check(&self, path: &GuestPath, act: Act) -> Result<()> {
        let refuse =
            |why: &'static str| Err(Error::new("check path", path, ErrorKind::Denied).with_detail(why));
        let within = || self.read_only.iter().any(|top| path.starts_with(top));
        let above = || self.read_only.iter().any(|top| top.starts_with(path));
        if self.lists.blocks(path) {
            return refuse("is blocked by a pattern of the host");
        }
        if matches!(act, Act::Read | Act::Change | Act::Replace) && !self.lists.allows(path) {
            return refuse("is allowed by no pattern of the host");
        }
        match act {
            Act::Make | Act::Change | Act::Replace if within() => refuse("is read-only for the host's calls"),
            Act::Replace if above() => refuse("contains what is read-only for the host's calls"),
            _ => Ok(()),
        }
    }
}

/// A list of what is left out, and one of what alone is let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::session) struct Lists {
    #[cfg(feature = "patterns")]
    pub(in crate::session) blocked: Option<Patterns>,
    #[cfg(feature = "patterns")]
    pub(in crate::session) allowed: Option<Patterns>,
}

#[cfg(feature = "patterns")]
impl Lists {
    /// Whether a path is left out, whatever is there: a pattern that means directories only counts too.
    pub(in crate::session) fn blocks(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        self.blocked.as_ref().is_some_and(|list| list.matches_file(path) || list.matches_dir(path))
    }

    /// Whether a path is let in.
    fn allows(&self, path: impl AsRef<Path>) -> bool {
        self.allowed.as_ref().is_none_or(|list| list.matches_file(path))
    }

    /// Whether an entry of a directory that is not left out is left out itself.
    pub(in crate::session) fn blocks_entry(&self, path: &Path, kind: FileType) -> bool {
        let of = if kind == FileType::Directory { Of::Directory } else { Of::File };
        self.blocked.as_ref().is_some_and(|list| list.matches_itself(path, of))
    }

    /// Whether an entry is let in; directories always are, since what they contain may be.
    pub(in crate::session) fn allows_entry(&self, path: &Path, kind: FileType) -> bool {
        kind == FileType::Directory || self.allows(path)
    }

    /// Whether nothing is asked of paths.
    pub(in crate::session) fn is_empty(&self) -> bool {
        self.blocked.is_none() && self.allowed.is_none()
    }
}

#[cfg(not(feature = "patterns"))]
impl Lists {
    pub(in crate::session) fn blocks(&self, _: impl AsRef<Path>) -> bool {
        false
    }

    fn allows(&self, _: impl AsRef<Path>) -> bool {
        true
    }

    pub(in crate::session) fn blocks_entry(&self, _: &Path, _: FileType) -> bool {
        false
    }

    pub(in crate::session) fn allows_entry(&self, _: &Path, _: FileType) -> bool {
        true
    }

    pub(in crate::session) fn is_empty(&self) -> bool {
        true
    }
}
