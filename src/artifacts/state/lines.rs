//! Text in the host's own state: replaced as a whole, or added to line by line.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};

use crate::error::{Error, ErrorKind, Result};
use crate::root::{NewFile, Root};

/// Text held in memory before it is written.
const PIECE: usize = 1 << 16;

/// A file that takes its name, and the place of an earlier one, when it is complete.
#[derive(Debug)]
pub(super) struct NewLines {
    name: &'static str,
    file: NewFile,
    text: String,
}

impl NewLines {
    pub(super) fn new(state: &Root, name: &'static str) -> Result<Self> {
        Ok(Self { name, file: state.new_file(name)?, text: String::new() })
    }

    /// Adds what `write` appends.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut String)) -> Result<()> {
        write(&mut self.text);
        if self.text.len() > PIECE { self.flush() } else { Ok(()) }
    }

    pub(super) fn commit(mut self) -> Result<()> {
        self.flush()?;
        self.file.commit_replace()
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_all(self.text.as_bytes()).map_err(|error| failed("write", self.name, error))?;
        self.text.clear();
        Ok(())
    }
}

/// The lines of `name`, if there is such a file. A line without its end was being written when the host died, and is
/// left out.
pub(super) fn read(state: &Root, name: &str) -> Result<Option<impl Iterator<Item = Result<String>> + use<>>> {
    let name = name.to_owned();
    let mut file = match state.open_contained(&name) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(std::iter::from_fn(move || {
        let mut line = String::new();
        match file.read_line(&mut line) {
            Ok(_) if line.pop() == Some('\n') => Some(Ok(line)),
            Ok(_) => None,
            Err(error) => Some(Err(failed("read", &name, error))),
        }
    })))
}

/// Opens `name` for more lines.
pub(super) fn append(state: &Root, name: &str) -> Result<File> {
    let mut options = cap_std::fs::OpenOptions::new();
    options.append(true).create(true);
    let file = cap_std::fs::Dir::from(state.try_clone()?).open_with(name, &options);
    Ok(file.map_err(|error| failed("open", name, error))?.into_std())
}

/// Adds `text` to a file that was opened by [`append`].
pub(super) fn write(file: &mut File, name: &str, text: &str) -> Result<()> {
    file.write_all(text.as_bytes()).map_err(|error| failed("write", name, error))
}

pub(super) fn failed(operation: &'static str, name: &str, error: std::io::Error) -> Error {
    Error::new(operation, name, ErrorKind::Io).with_source(error)
}
