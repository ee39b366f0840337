//! What a base belongs to.
//!
//! Problem: the workspace was lost and is another directory now, the caller uses another bucket, or the rules of what is
//! mirrored have changed. Each makes files look deleted that nobody has deleted.
//!
//! Defence: a base names its store, its prefix, its rules, and the directory by inode, time of birth and file system, with a
//! random number that is made once on the host's side.
//!
//! What remains: a file system without times of birth may give a new directory the number of the old one.

use std::os::fd::AsFd as _;

use rustix::fs::fstatvfs;
use sha2::{Digest as _, Sha256};

use super::version::encode_version;
use crate::entropy::{hex, unguessable};
use crate::error::{Error, ErrorKind, Result};
use crate::root::Root;
use crate::tree::nanoseconds;

const ID: &str = "id";

/// A store, a prefix, rules and a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    file: String,
    line: String,
}

impl Binding {
    /// The binding of `workspace` to the objects of a store under a prefix, by these rules.
    pub(crate) fn of(
        state: &Root,
        workspace: &Root,
        (store, prefix): (&str, &str),
        rules: &str,
    ) -> Result<Self> {
        let (store, prefix) = (encode_version(Some(store)), encode_version(Some(prefix)));
        let name = Sha256::digest(format!("{store} {prefix}"));
        let directory = identity(workspace)?;
        let rules = hex(Sha256::digest(rules).into_iter().take(8));
        let line = format!("{} {store} {prefix} {directory} {rules}", own_id(state)?);
        Ok(Self { file: format!("base-{}", hex(name.into_iter().take(8))), line })
    }

    #[cfg(test)]
    pub(super) fn for_tests(line: &str) -> Self {
        Self { file: "base-0".to_owned(), line: line.to_owned() }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Where it is noted what is about to be put and deleted.
    pub(super) fn intents_file(&self) -> String {
        self.file.replacen("base", "push", 1)
    }

    /// Where the checksum of a whole base is.
    pub(super) fn whole_file(&self) -> String {
        self.file.replacen("base", "whole", 1)
    }

    pub(super) fn line(&self) -> &str {
        &self.line
    }
}

/// Which directory this is, as one word.
pub(crate) fn identity(workspace: &Root) -> Result<String> {
    let metadata = workspace.metadata(".")?;
    let born = metadata.created().map_or(0, nanoseconds);
    let system =
        fstatvfs(workspace.as_fd()).map_err(|errno| Error::from_errno("look at", ".", errno))?.f_fsid;
    Ok(format!("{}:{born}:{system:x}", metadata.ino()))
}

/// The random number of this host's state.
fn own_id(state: &Root) -> Result<String> {
    let read = || state.read_contained(ID, 64).map(|id| String::from_utf8_lossy(&id).trim().to_owned());
    match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let id = unguessable().map_err(|errno| Error::from_errno("open", ID, errno))?;
            match state.write_exclusive(ID, &id) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => read(),
                written => written.map(|()| id),
            }
        }
        id => id,
    }
}
