//! The control: requests served by path, as the studied system does it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A directory with `requests` and `responses`.
pub struct NaiveQueue {
    pub dir: PathBuf,
}

impl NaiveQueue {
    /// Lists all, sorts all; then reads, handles, answers under a temporary name that can be guessed, renames, and removes.
    pub fn serve(&self, mut handle: impl FnMut(&str, &[u8]) -> Vec<u8>) -> io::Result<usize> {
        let names = self.list()?;
        for name in &names {
            let request = self.dir.join("requests").join(name);
            let answer = handle(name.trim_end_matches(".json"), &fs::read(&request)?);
            let response = self.dir.join("responses").join(name);
            if !response.exists() {
                let temporary = response.with_extension("json.tmp");
                fs::write(&temporary, answer)?;
                fs::rename(temporary, response)?;
            }
            remove(&request)?;
        }
        Ok(names.len())
    }

    /// The names of all requests, sorted.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.dir.join("requests"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_file() && name.ends_with(".json") {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Whatever it is by now.
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|_| fs::remove_dir_all(path))
}
