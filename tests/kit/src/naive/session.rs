//! The control: the same jobs done by path, as the studied systems do them. Every flaw test must catch one of these.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name check of a session manager: right about names, silent about directories.
pub fn is_safe_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|entry| entry.is_dir())
}

/// Whether `path` leads to a place beneath `root`, by what both are now.
fn is_inside(root: &Path, path: &Path) -> bool {
    matches!((fs::canonicalize(root), fs::canonicalize(path)), (Ok(root), Ok(path)) if path.starts_with(&root))
}

/// Sessions under a directory, each with `inbox` and `outbox`.
pub struct NaiveSession {
    pub dir: PathBuf,
}

impl NaiveSession {
    /// Joins whatever id it is given.
    pub fn create(sessions: &Path, id: &str) -> io::Result<Self> {
        let dir = sessions.join(id);
        fs::create_dir_all(dir.join("outbox"))?;
        fs::create_dir_all(dir.join("workspace"))?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o770))?;
        fs::set_permissions(dir.join("workspace"), fs::Permissions::from_mode(0o777))?;
        Ok(Self { dir })
    }

    /// Checks the message's directory, then writes by path. `between` is what a guest does meanwhile.
    pub fn deliver(
        &self,
        id: &str,
        name: &str,
        bytes: &[u8],
        between: impl FnOnce(),
    ) -> io::Result<Option<PathBuf>> {
        if !is_safe_name(id) || !is_safe_name(name) {
            return Ok(None);
        }
        let inbox = self.dir.join("inbox");
        let dir = inbox.join(id);
        if dir.exists() && !is_directory(&dir) {
            return Ok(None);
        }
        fs::create_dir_all(&dir)?;
        if !is_inside(&inbox, &dir) {
            return Ok(None);
        }
        between();
        match fs::OpenOptions::new().write(true).create_new(true).open(dir.join(name)) {
            Ok(mut file) => {
                file.write_all(bytes)?;
                Ok(Some(dir.join(name)))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks each declared file, then reads it by path.
    pub fn collect(&self, id: &str, declared: &[&str], between: impl Fn()) -> Vec<(String, Vec<u8>)> {
        let dir = self.dir.join("outbox").join(id);
        if !is_safe_name(id) || !is_directory(&dir) {
            return Vec::new();
        }
        let mut files = Vec::new();
        for name in declared {
            let path = dir.join(name);
            let regular = fs::symlink_metadata(&path).is_ok_and(|entry| entry.is_file());
            if !is_safe_name(name) || !regular || !is_inside(&dir, &path) {
                continue;
            }
            between();
            if let Ok(bytes) = fs::read(path) {
                files.push(((*name).to_owned(), bytes));
            }
        }
        files
    }

    pub fn clear(&self, id: &str) {
        let outbox = self.dir.join("outbox");
        let dir = outbox.join(id);
        if is_safe_name(id) && is_directory(&dir) && is_inside(&outbox, &dir) {
            let _ = fs::canonicalize(dir).and_then(fs::remove_dir_all);
        }
    }

    /// The name for an attachment that has none: the clock's milliseconds.
    pub fn derived_name(millis: u64, extension: &str) -> String {
        format!("attachment-{millis}.{extension}")
    }
}

/// Ignores what is not base64, as lenient decoders do.
pub fn lenient_base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|byte| ALPHABET.iter().position(|digit| *digit == byte));
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for digit in digits {
        bits = (bits << 6 | digit as u32) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// Walks by path, looks at each entry, then changes it by path.
pub fn secure_tree(dir: &Path, between: &dyn Fn(&Path)) {
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o770));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if found.is_symlink() {
            continue;
        }
        between(&path);
        if found.is_dir() {
            secure_tree(&path, between);
        } else {
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o660));
        }
    }
}

/// Writes, then sets the mode; both follow links.
pub fn secure_file_write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))
}

/// Writes to a name that anybody can guess, and renames.
pub fn upload(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = PathBuf::from(format!("{}.tmp", path.display()));
    fs::write(&temporary, bytes)?;
    fs::rename(temporary, path)
}

fn shell(dir: &Path, script: &str) -> String {
    let output = Command::new("sh").arg("-c").arg(script).current_dir(dir).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// File tools of a sandbox, by way of a shell.
pub struct NaiveTools {
    pub dir: PathBuf,
}

impl NaiveTools {
    pub fn write(&self, path: &str, content: &str) {
        shell(
            &self.dir,
            &format!("mkdir -p \"$(dirname \"{path}\")\" && cat > \"{path}\" << 'EOF'\n{content}\nEOF"),
        );
    }

    pub fn read(&self, path: &str) -> String {
        shell(&self.dir, &format!("cat \"{path}\""))
    }

    pub fn rename(&self, from: &str, to: &str) {
        shell(&self.dir, &format!("mv \"{from}\" \"{to}\""));
    }

    /// One name per line, the ninth column on.
    pub fn list(&self) -> Vec<String> {
        shell(&self.dir, "ls -l")
            .lines()
            .filter(|line| !line.starts_with("total"))
            .map(|line| line.split_whitespace().skip(8).collect::<Vec<_>>().join(" "))
            .collect()
    }
}

/// New text is whatever lies beyond the characters seen so far.
#[derive(Default)]
pub struct NaiveTail {
    seen: usize,
}

impl NaiveTail {
    pub fn next(&mut self, path: &Path) -> String {
        let whole = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let new = whole.chars().skip(self.seen).collect();
        self.seen = whole.chars().count();
        new
    }
}
