//! Work on the host's own directories, on the threads where it may block.

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::root::Root;
use crate::session::age;
use crate::tree::is_displaced;

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

/// Removes what was displaced longer ago than `kept`. What cannot be removed now is removed later.
pub(crate) fn sweep(trash: &Root, kept: Duration) -> Result<()> {
    for entry in trash.list(".")? {
        let entry = entry?;
        let is_ours = is_displaced(entry.file_name()) && entry.metadata().is_dir();
        if is_ours && age(entry.metadata()) > kept {
            let _ = discard(trash, entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::KEPT;

    #[test]
    fn sweep_spares_what_is_young_and_what_is_not_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let trash = Root::open_ambient(dir.path(), crate::ambient_authority()).unwrap();
        for path in ["merge-1", "merged", "other"] {
            trash.ensure_dir(path).unwrap();
            trash.write_exclusive(format!("{path}/displaced"), "x").unwrap();
        }
        let left = || trash.list(".").unwrap().count();
        sweep(&trash, KEPT).unwrap();
        assert_eq!(left(), 3);
        // A file system may stamp whole seconds.
        std::thread::sleep(Duration::from_millis(10));
        sweep(&trash, Duration::ZERO).unwrap();
        assert_eq!((left(), trash.try_exists("merge-1").unwrap()), (2, false));
    }
}
