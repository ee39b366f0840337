//! Writing over what is there.
//!
//! Problem: the host writes a file that the guest has changed meanwhile, and nobody has seen that version.
//!
//! Defence: the new file is exchanged with what has the name, and what came out stays in the trash like all that a merge displaces,
//! unless it is what both sides had.
//!
//! What remains: where the file system cannot exchange, nothing has the name for a moment.

use std::path::PathBuf;

use super::disk::discard;
use super::state::Places;
use crate::entropy::unguessable;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::{Rename, Root, WriteOptions};
use crate::tree::{Leaf, displaced_name};

/// How often a name is tried that the guest takes and frees again.
const TRIES: u32 = 16;
const OPERATION: &str = "put";
/// The new file, and what it was exchanged with.
const NEW: &str = "displaced";
/// What had the name, where nothing can be exchanged.
const OLD: &str = "old";

/// Puts `bytes` at `path`. What was there is kept unless it is `known`.
pub(super) fn write_over(
    places: &Places,
    trash: &Root,
    path: &GuestPath,
    bytes: &[u8],
    known: Option<&Leaf>,
) -> Result<()> {
    let workspace = &places.workspace;
    let options = options_over(workspace, path)?;
    let number = unguessable().map_err(|errno| Error::from_errno(OPERATION, path, errno))?;
    let kept = PathBuf::from(displaced_name(&number));
    trash.ensure_dir(&kept)?;
    // What is written there gets the modes and the owner of the workspace.
    let policy = trash.policy().clone().with_access(workspace.policy().access());
    let kept_in = trash.descend(&kept)?.with_policy(policy);
    let placed = kept_in.write_exclusive_with(NEW, bytes, options).and_then(|()| {
        (0..TRIES).find_map(|_| place(&kept_in, workspace, path).transpose()).unwrap_or_else(|| {
            Err(Error::new(OPERATION, path, ErrorKind::Busy).with_detail("changes without end"))
        })
    });
    let is_known = |found: &str| {
        let found = known.map(|known| Leaf::at(&kept_in, found.as_ref(), known.size()));
        found.is_some_and(|found| found.is_ok_and(|found| found.as_ref() == known))
    };
    match placed {
        // Nobody misses these. What cannot be removed now goes with the rest of the trash.
        Ok(None) => drop(discard(trash, &kept)),
        Ok(Some(found)) if is_known(found) => drop(discard(trash, &kept)),
        Ok(Some(_)) => {}
        Err(error) => {
            // What had the name gets it back, or stays in the trash.
            let _ = kept_in.rename_to(OLD, workspace, path);
            let _ = kept_in.remove_file(NEW);
            let _ = trash.remove_dir(&kept);
            return Err(error);
        }
    }
    Ok(())
}

/// The mode of a regular file stays. A directory is not replaced, nor a file that nobody may write.
fn options_over(workspace: &Root, path: &GuestPath) -> Result<WriteOptions> {
    let refuse = |kind, why| Err(Error::new(OPERATION, path, kind).with_detail(why));
    let options = WriteOptions::default();
    match workspace.metadata(path) {
        Ok(file) if file.is_dir() => refuse(ErrorKind::NotRegular, "is a directory"),
        Ok(file) if file.is_file() && file.mode() & 0o222 == 0 => refuse(ErrorKind::Denied, "is read-only"),
        Ok(file) if file.is_file() => Ok(options.with_mode(file.mode() & 0o777)),
        _ => Ok(options),
    }
}

/// Gives the new file its name, and returns where what had it is now, if anything had; none if it is to be tried again.
fn place(kept: &Root, workspace: &Root, path: &GuestPath) -> Result<Option<Option<&'static str>>> {
    let old = match kept.rename_with(NEW, workspace, path, Rename::Exchange) {
        Ok(()) if kept.metadata(NEW).is_ok_and(|found| found.is_dir()) => {
            // The guest has put a directory there just now.
            kept.rename_with(NEW, workspace, path, Rename::Exchange)?;
            return Err(Error::new(OPERATION, path, ErrorKind::NotRegular).with_detail("is a directory"));
        }
        Ok(()) => return Ok(Some(Some(NEW))),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) if error.kind() == ErrorKind::Unsupported => match workspace.rename_to(path, kept, OLD) {
            Ok(()) => Some(OLD),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        },
        Err(error) => return Err(error),
    };
    match kept.rename_to(NEW, workspace, path) {
        Ok(()) => Ok(Some(old)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && old.is_none() => Ok(None),
        Err(error) => Err(error),
    }
}
