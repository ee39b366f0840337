//! What the store has, and in which mood it is.

use std::collections::BTreeMap;

use beneath::artifacts::conformance::{Attributes, Kind, listed, silence};
use beneath::artifacts::{Listed, Prefix};
use beneath::{Result, SessionId};

use crate::books::{Books, Object};
use crate::disk::{Entry, Name};
use crate::history::{Compares, Versions};
use crate::tape::Tape;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It is not heard, or the server fails.
    Unheard,
    /// It is done, and the answer is lost.
    AnswerLost,
    /// No answer ever comes.
    Silent,
    /// The server says that somebody else is at it (409), and has done nothing.
    Refused,
    Denied,
    /// The body ends early, and nobody has said how long it is.
    Short,
}

/// The state of the store, and of its mood.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) books: Books,
    pub(crate) schedule: Tape,
    pub(crate) versions: Versions,
    pub(crate) compares: Compares,
    /// Whether anything goes wrong at all.
    pub(crate) rough: bool,
    /// Whether listings show what was there at first.
    pub(crate) stale: bool,
    /// Whether requests wait until they are let through.
    pub(crate) stepped: bool,
    /// Whether bodies may come without their length. Such a body has a thread of its own while it comes.
    pub(crate) shortens: bool,
    /// Which hosts have a request that waits.
    pub(crate) parked: [bool; 2],
    /// Whether a host was shown a listing that is not the truth.
    pub(crate) lied: [bool; 2],
    pub(crate) faults: u64,
    pub(crate) requests: u64,
    /// How often the bucket was replaced by another.
    pub(crate) bucket: u64,
    pub(crate) clock: u64,
    /// What is no file: directories, and trials.
    others: BTreeMap<String, Object>,
    /// What earlier listings have shown.
    past: Vec<Vec<Listed>>,
}

pub(crate) fn prefix() -> Prefix {
    Prefix::session(&SessionId::new("s"))
}

impl Stage {
    pub(crate) fn new(books: Books, versions: Versions, compares: Compares) -> Self {
        Self {
            books,
            schedule: Tape::new(0, 0),
            versions,
            compares,
            rough: false,
            stale: false,
            stepped: false,
            shortens: false,
            parked: [false; 2],
            lied: [false; 2],
            faults: 0,
            requests: 0,
            bucket: 0,
            clock: 0,
            others: BTreeMap::new(),
            past: Vec::new(),
        }
    }

    pub(crate) fn replace_bucket(&mut self) {
        self.bucket += 1;
        self.past.clear();
        self.others.clear();
        self.books.objects.clear();
        self.books.marked.clear();
    }

    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(crate) fn draw(&mut self) -> Fault {
        self.requests += 1;
        if !self.rough {
            return Fault::None;
        }
        let fault = match self.schedule.below(36) {
            0 | 1 => Fault::Unheard,
            2 | 3 => Fault::AnswerLost,
            4 => Fault::Silent,
            5 => Fault::Refused,
            6 => Fault::Denied,
            7 if self.shortens => Fault::Short,
            _ => Fault::None,
        };
        self.faults += u64::from(fault != Fault::None);
        fault
    }

    pub(crate) fn version(&self, content: &[u8]) -> String {
        match self.versions {
            Versions::Count => format!("\"{}\"", self.clock),
            Versions::Content => {
                let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
                format!("\"{:x}\"", content.iter().fold(0xcbf2_9ce4_8422_2325, mix))
            }
        }
    }

    fn listing(&self) -> Vec<Listed> {
        let item = |key: String, object: &Object| {
            let mut item = listed(key.into_bytes(), object.body.len() as u64, Some(object.etag.clone()));
            item.put_at = Some(object.when as i64);
            item
        };
        let files = self.books.objects.iter().map(|(name, object)| item(key_of(name), object));
        files.chain(self.others.iter().map(|(key, object)| item(key.clone(), object))).collect()
    }

    pub(crate) fn find(&self, key: &str) -> Option<&Object> {
        match name_of(key) {
            Some(name) => self.books.objects.get(&name),
            None => self.others.get(key),
        }
    }

    /// Puts an object, or removes it.
    pub(crate) fn change(&mut self, host: usize, key: &str, new: Option<Object>, apart: bool) {
        if let Some(name) = name_of(key) {
            return self.books.change(host, &name, new, apart);
        }
        // No file: a directory that says that it is one, or a trial.
        match new {
            Some(new) => drop(self.others.insert(key.to_owned(), new)),
            None => drop(self.others.remove(key)),
        }
        // Where a slash at the end is not kept, or nobody could find that out, something follows it.
        let directory = |key: &String| name_of(key.strip_suffix("/%=").or(key.strip_suffix('/'))?);
        self.books.marked = self.others.keys().filter_map(directory).collect();
    }

    /// What a listing shows, and whether it ends in silence.
    pub(crate) fn show(&mut self, host: usize) -> (Vec<Result<Listed>>, bool) {
        self.requests += 1;
        let truth = self.listing();
        let lie = match () {
            () if self.stale => 3,
            () if self.rough => self.schedule.below(16),
            () => 15,
        };
        self.faults += u64::from(lie < 8);
        let mut shown: Vec<Result<Listed>> = truth.iter().cloned().map(Ok).collect();
        match lie {
            // Cut short, and said to be whole.
            0 | 1 => {
                let length = self.schedule.below(shown.len() as u64 + 1) as usize;
                shown.truncate(length);
                self.lied[host] |= length < truth.len();
            }
            // As it was at some time.
            2 | 3 if !self.past.is_empty() => {
                let first = self.past.iter().position(|shown| !shown.is_empty()).unwrap_or(0);
                let any = self.schedule.below(self.past.len() as u64) as usize;
                let old = if self.stale { first } else { any };
                self.lied[host] |= self.past[old] != truth;
                shown = self.past[old].iter().cloned().map(Ok).collect();
            }
            // Two pages overlap, in one version or in two.
            4 => shown.extend(truth.iter().take(2).cloned().map(Ok)),
            5 => {
                let old = self.past.last().into_iter().flatten().take(2).cloned();
                shown.extend(old.map(Ok));
                self.lied[host] = true;
            }
            6 => shown.truncate(shown.len() / 2),
            7 => shown.reverse(),
            _ => {}
        }
        if lie == 6 {
            shown.push(Err(silence("list", prefix().as_str())));
        }
        if self.past.last() != Some(&truth) {
            self.past.push(truth);
        }
        (shown, lie == 7 && self.schedule.once_in(2))
    }
}

pub(crate) fn key_of(name: &[u8]) -> String {
    prefix().key(&beneath::GuestPath::try_from(name).unwrap()).unwrap()
}

/// The path of a file; none if it is the key of something else.
pub(crate) fn name_of(key: &str) -> Option<Name> {
    prefix().path(key.as_bytes()).ok().map(|path| path.as_bytes().to_vec())
}

pub(crate) fn entry_of(content: &[u8], attributes: &Attributes) -> Entry {
    match attributes.kind {
        Kind::Link => Entry::Link(content.to_vec()),
        _ => Entry::File {
            content: content.to_vec(),
            execute: attributes.mode.is_some_and(|mode| mode & 0o100 != 0),
        },
    }
}
