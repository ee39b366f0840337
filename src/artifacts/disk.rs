//! Work on the host's own directories, on the threads where it may block.

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::root::Root;
use crate::session::age;

/// Runs `work` where it may block. It goes on to its end even if nobody waits for it any more.
pub(crate) async fn blocking<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            Err(Error::new(operation, ".", ErrorKind::Io).with_source(std::io::Error::other(error)))
        }
    }
}

/// Removes a tree of the host's own if it is there.
pub(crate) fn discard(root: &Root, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    match root.remove_tree_contained(path) {
        Ok(removed) if removed.is_complete() => Ok(()),
        Ok(_) => Err(Error::new("remove", path, ErrorKind::Busy)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes a file of the host's own if it is there.
pub(crate) fn forget(root: &Root, path: impl AsRef<Path>) -> Result<()> {
    match root.remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// How long what was displaced is kept.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes what merges have displaced more than a day ago. What cannot be removed now is removed later.
pub(crate) fn sweep(trash: &Root) -> Result<()> {
    for entry in trash.list(".")? {
        let entry = entry?;
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(b"merge-");
        if is_ours && entry.metadata().is_dir() && age(entry.metadata()) > DAY {
            let _ = discard(trash, entry.path());
        }
    }
    Ok(())
}
