//! Which ids were answered.
//!
//! Problem: once a request is answered, its id is free, and a guest that uses it again has the handler run again.
//!
//! Defence: a file on the host's side to which every answered id is added before its state ends. It holds the last `most` ids at
//! least, and is written anew when it has twice as many. What another worker has added is read before each look.
//!
//! What remains: an id that is older than the last `most` is free again.

use std::collections::{HashSet, VecDeque};
use std::io::{Seek as _, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::disk::OPERATION;
use super::id::RequestId;
use crate::error::{Error, ErrorKind, Result};
use crate::root::{ContainedFile, Flock, Root};

const LEDGER: &str = "ledger";
const LOCK: &str = "ledger-lock";
/// No longer than another worker takes to write it anew.
const PATIENCE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(1);
/// The longest line.
const LINE: u64 = 65;

#[derive(Debug)]
pub(super) struct Ledger {
    most: usize,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The file that was read. While it is open, no other has its number.
    file: Option<ContainedFile>,
    read: u64,
    /// Whether a crash has cut off what follows.
    torn: bool,
    order: VecDeque<RequestId>,
    ids: HashSet<RequestId>,
}

impl Ledger {
    pub(super) fn open(host: &Root, most: usize) -> Result<Self> {
        let ledger = Self { most, known: Mutex::default() };
        ledger.contains(host, &RequestId::generate()?)?;
        Ok(ledger)
    }

    /// Whether the id is among the last that were answered.
    pub(super) fn contains(&self, host: &Root, id: &RequestId) -> Result<bool> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(host, &mut known)?;
        Ok(known.ids.contains(id))
    }

    /// Adds an id, unless it is there.
    pub(super) fn record(&self, host: &Root, id: &RequestId) -> Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let _lock = lock(host)?;
        self.refresh(host, &mut known)?;
        if known.ids.contains(id) {
            return Ok(());
        }
        if known.read >= 2 * LINE * self.most as u64 || known.order.len() >= 2 * self.most {
            let kept: Vec<&RequestId> = known.order.iter().rev().take(self.most).rev().collect();
            let text: String = kept.into_iter().chain([id]).map(|id| format!("{id}\n")).collect();
            return host.replace(LEDGER, text);
        }
        let begin = if known.torn { "\n" } else { "" };
        host.append(LEDGER, format!("{begin}{id}\n").as_bytes())
    }

    /// Reads what was added since.
    fn refresh(&self, host: &Root, known: &mut Known) -> Result<()> {
        let now = match host.metadata(LEDGER) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            now => now?,
        };
        let is_it = |file: &ContainedFile| file.metadata().ino() == now.ino() && known.read <= now.len();
        if !known.file.as_ref().is_some_and(is_it) {
            *known = Known { file: Some(host.open_contained(LEDGER)?), ..Known::default() };
        }
        let Some(file) = known.file.as_mut().filter(|_| now.len() > known.read) else { return Ok(()) };
        // Of a file that was written with a higher limit the end will do.
        let most = 4 * LINE * (self.most as u64 + 1);
        let begin = known.read.max(now.len().saturating_sub(most));
        file.seek(SeekFrom::Start(begin)).map_err(|error| Error::from_io("read", LEDGER, error))?;
        let text = file.read_to_limit(2 * most)?;
        // A line that a crash has cut off is not read; the next one begins on a line of its own.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let lines = text.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
        for line in lines.skip(usize::from(begin > known.read)) {
            if let Some(id) = str::from_utf8(line).ok().and_then(|line| line.parse::<RequestId>().ok())
                && known.ids.insert(id.clone())
            {
                known.order.push_back(id);
            }
        }
        while known.order.len() > 2 * self.most {
            if let Some(oldest) = known.order.pop_front() {
                known.ids.remove(&oldest);
            }
        }
        known.read = begin + whole as u64;
        known.torn = whole < text.len();
        Ok(())
    }
}

/// One writer at a time; all of them are the host's.
fn lock(host: &Root) -> Result<Option<Flock>> {
    let start = Instant::now();
    loop {
        match Flock::try_take(host, Path::new(LOCK), OPERATION) {
            Err(error) if error.kind() == ErrorKind::Busy && start.elapsed() < PATIENCE => {
                std::thread::sleep(POLL);
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(None),
            taken => return taken.map(Some),
        }
    }
}
