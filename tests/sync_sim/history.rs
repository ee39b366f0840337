//! What happens in one history: the workload, which is decided before anything is played.
//!
//! A step has a number of its own, and what goes wrong in it is drawn from a tape of that number. So a step can be left out,
//! and all others stay as they were.

use std::fmt;

use crate::tape::Tape;

/// Paths on both sides of `t/`, two cases of one letter, two forms of one letter, and names that no key has as they are.
pub(crate) const PATHS: [&[u8]; 13] = [
    b"a",
    b"A",
    "\u{e9}".as_bytes(),
    "e\u{301}".as_bytes(),
    b"t",
    b"t-1",
    b"t.x",
    b"t/a",
    b"t/b/c",
    b"d/b",
    b"q: ?.md",
    b"\xff",
    b"d/...",
];

const DIRECTORIES: [&[u8]; 5] = [b"t", b"t/b", b"d", b"e", b"t-1"];

/// How many contents both hosts write.
const SHARED: u64 = 3;

/// What a guest does to its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    Write {
        path: &'static [u8],
        content: Content,
        saved: Saved,
    },
    Delete(&'static [u8]),
    Rename(&'static [u8], &'static [u8]),
    /// A directory and all in it.
    RemoveTree(&'static [u8]),
    RenameTree(&'static [u8], &'static [u8]),
    /// The bit to execute is set, or taken away.
    Execute(&'static [u8]),
    Link(&'static [u8], &'static [u8]),
    Directory(&'static [u8]),
}

/// All contents have one size, so that no size gives a change away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Shared(u64),
    /// Nobody else writes it.
    Own(u64),
}

impl Content {
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Shared(number) => format!("shared{number:04}").into_bytes(),
            Self::Own(number) => format!("v{number:09}").into_bytes(),
        }
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    InPlace,
    /// Under another name, then renamed over it.
    Renamed,
    /// Through a mapping: the base has a stamp for it, and that stays.
    Mapped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accident {
    /// The workspace is empty, and another directory.
    Workspace,
    /// What the host knows is lost; the trash stays where people look for what they miss.
    State,
    /// The workspace is replaced by a copy of itself.
    Copied,
    /// The bucket is another one, and empty.
    Bucket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Pull,
    Mirror,
    Restore,
    Sync,
    Plan,
}

/// How a call ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its future is dropped. What it has begun in another thread goes on to its end.
    Dropped,
    /// Its process dies: what it has not begun is never done.
    Died,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) host: usize,
    pub(crate) which: Which,
    pub(crate) prefer_remote: bool,
    /// Whether every file is read.
    pub(crate) hash: bool,
    pub(crate) concurrency: usize,
    /// At which of its points, and how.
    pub(crate) ends: Option<(u32, End)>,
}

/// One call or two at a time, and what guests do meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) calls: Vec<Call>,
    /// At which point, in which workspace.
    pub(crate) meanwhile: Vec<(u32, usize, Edit)>,
    /// Whether the store misbehaves.
    pub(crate) rough: bool,
    /// Whether it lists what it had at first.
    pub(crate) stale: bool,
}

impl Calls {
    /// Whether the calls must stop at each of their points. Several requests at a time would else come in any order.
    pub(crate) fn is_stepped(&self) -> bool {
        let alone = |call: &Call| call.ends.is_none() && call.concurrency == 1;
        self.calls.len() > 1 || !self.meanwhile.is_empty() || !self.calls.iter().all(alone)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Edit {
        host: usize,
        edits: Vec<Edit>,
    },
    Accident {
        host: usize,
        what: Accident,
    },
    /// So much time passes that the stamps of the files can be trusted.
    Age {
        host: usize,
    },
    Calls(Calls),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// It stays the same when other steps are left out.
    pub(crate) number: u64,
    pub(crate) act: Act,
}

/// How the store names versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// By content, as S3 does.
    Content,
    /// By a count.
    Count,
}

/// What the store makes of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compares {
    InOneStep,
    /// It says that it does not compare, and does not.
    Never,
    /// It takes conditions and ignores them. That must be found out.
    Ignored,
}

/// Everything that is decided beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) seed: u64,
    pub(crate) versions: Versions,
    pub(crate) compares: Compares,
    pub(crate) steps: Vec<Step>,
    /// Whether the hosts come to rest at the end.
    pub(crate) settles: bool,
}

impl History {
    pub(crate) fn of(seed: u64) -> Self {
        let mut tape = Tape::new(seed, 1);
        let versions = if tape.once_in(3) { Versions::Count } else { Versions::Content };
        let compares = match tape.below(8) {
            0 => Compares::Never,
            1 => Compares::Ignored,
            _ => Compares::InOneStep,
        };
        // Most are short, so that many are played; some go on until states come about that take long.
        let length = match tape.below(16) {
            0 => 24 + tape.below(24),
            1..=4 => 10 + tape.below(10),
            _ => 3 + tape.below(6),
        };
        // One tree that both have: trees that were never one do not meet.
        let mut steps = vec![
            Act::Edit { host: 0, edits: (0..8).map(|_| edit(&mut tape)).collect() },
            calls(call(0, Which::Mirror)),
            calls(call(1, Which::Restore)),
        ];
        steps.extend((0..length).flat_map(|_| acts(&mut tape)));
        let settles = tape.once_in(4);
        let mut steps: Vec<Step> =
            steps.into_iter().enumerate().map(|(n, act)| Step { number: n as u64, act }).collect();
        steps.iter_mut().for_each(Step::number_contents);
        Self { seed, versions, compares, steps, settles }
    }
}

impl Step {
    /// Gives each content that only one guest writes a number of its own.
    fn number_contents(&mut self) {
        let edits: Vec<&mut Edit> = match &mut self.act {
            Act::Edit { edits, .. } => edits.iter_mut().collect(),
            Act::Calls(calls) => calls.meanwhile.iter_mut().map(|(.., edit)| edit).collect(),
            _ => Vec::new(),
        };
        for (n, edit) in edits.into_iter().enumerate() {
            if let Edit::Write { content: Content::Own(number), .. } = edit {
                *number = self.number * 100 + n as u64;
            }
        }
    }
}

/// One act, or two guests at the same path: changes that never meet show nothing.
fn acts(tape: &mut Tape) -> Vec<Act> {
    if !tape.once_in(6) {
        return vec![act(tape)];
    }
    let path = tape.pick(&PATHS);
    let meet = |host| {
        let write = Edit::Write { path, content: content(tape), saved: Saved::InPlace };
        let edit = tape.pick(&[write, write, Edit::Delete(path), Edit::Rename(path, b"d/b")]);
        Act::Edit { host, edits: vec![edit] }
    };
    [0, 1].map(meet).to_vec()
}

fn content(tape: &mut Tape) -> Content {
    if tape.once_in(4) { Content::Shared(tape.below(SHARED)) } else { Content::Own(0) }
}

fn act(tape: &mut Tape) -> Act {
    let host = tape.below(2) as usize;
    match tape.below(28) {
        0..=11 => Act::Edit { host, edits: (0..=tape.below(3)).map(|_| edit(tape)).collect() },
        12 => {
            let all = [Accident::Workspace, Accident::State, Accident::Copied, Accident::Bucket];
            Act::Accident { host, what: tape.pick(&all) }
        }
        13 | 14 => Act::Age { host },
        _ => Act::Calls(some_calls(tape, host)),
    }
}

fn some_calls(tape: &mut Tape, host: usize) -> Calls {
    let mut calls = vec![some_call(tape, host)];
    if tape.once_in(4) {
        calls.push(some_call(tape, 1 - host));
    }
    // A process that dies takes its clock with it, which two calls share here.
    if calls.len() == 1 && tape.once_in(4) {
        let end = if tape.once_in(2) { End::Died } else { End::Dropped };
        calls[0].ends = Some((1 + tape.below(24) as u32, end));
    } else if tape.once_in(8) {
        calls[0].ends = Some((1 + tape.below(24) as u32, End::Dropped));
    }
    let count = if tape.once_in(4) { 1 + tape.below(3) } else { 0 };
    let meanwhile = (0..count).map(|_| (1 + tape.below(20) as u32, tape.below(2) as usize, edit(tape)));
    let meanwhile = meanwhile.collect();
    let rough = tape.below(5) < 2;
    Calls { calls, meanwhile, rough, stale: rough && tape.once_in(6) }
}

fn some_call(tape: &mut Tape, host: usize) -> Call {
    use Which::{Mirror, Plan, Pull, Restore, Sync};
    let which = tape.pick(&[Pull, Pull, Mirror, Mirror, Restore, Sync, Sync, Sync, Sync, Sync, Sync, Plan]);
    Call {
        prefer_remote: tape.once_in(4),
        hash: tape.once_in(4),
        concurrency: if tape.once_in(4) { 3 } else { 1 },
        ..call(host, which)
    }
}

pub(crate) fn call(host: usize, which: Which) -> Call {
    Call { host, which, prefer_remote: false, hash: false, concurrency: 1, ends: None }
}

fn calls(call: Call) -> Act {
    Act::Calls(Calls { calls: vec![call], meanwhile: Vec::new(), rough: false, stale: false })
}

fn edit(tape: &mut Tape) -> Edit {
    let path = tape.pick(&PATHS);
    match tape.below(24) {
        0..=2 => Edit::Delete(path),
        3..=5 => Edit::Rename(path, tape.pick(&PATHS)),
        6 => Edit::RemoveTree(tape.pick(&DIRECTORIES)),
        7 => Edit::RenameTree(tape.pick(&DIRECTORIES), tape.pick(&DIRECTORIES)),
        8 => Edit::Execute(path),
        9 => Edit::Link(path, tape.pick(&[b"a".as_slice(), b"../../../outside/secret", b"nowhere"])),
        10 => Edit::Directory(tape.pick(&DIRECTORIES)),
        _ => {
            let content = content(tape);
            let saved = match tape.below(8) {
                0 | 1 => Saved::Renamed,
                2 => Saved::Mapped,
                _ => Saved::InPlace,
            };
            Edit::Write { path, content, saved }
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, versions by {:?}, compares {:?}", self.seed, self.versions, self.compares)?;
        for step in &self.steps {
            writeln!(f, "  {:3} {:?}", step.number, Shown(&step.act))?;
        }
        if self.settles { writeln!(f, "  and comes to rest") } else { Ok(()) }
    }
}

/// An act with its paths as text.
struct Shown<'a>(&'a Act);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Act::Edit { host, edits } => {
                write!(f, "guest {host}")?;
                edits.iter().try_for_each(|edit| write!(f, ", {edit}"))
            }
            Act::Calls(Calls { calls, meanwhile, rough, stale }) => {
                for call in calls {
                    write!(f, "host {} calls {:?} ", call.host, call.which)?;
                    let words = [(call.prefer_remote, "preferring theirs "), (call.hash, "reading all ")];
                    words.iter().filter(|word| word.0).try_for_each(|word| f.write_str(word.1))?;
                    if let Some((point, end)) = call.ends {
                        write!(f, "({end:?} at point {point}) ")?;
                    }
                }
                for (point, host, edit) in meanwhile {
                    write!(f, "[at {point} guest {host} {edit}] ")?;
                }
                let words = [(*stale, "with old listings "), (*rough, "with faults")];
                words.iter().filter(|word| word.0).try_for_each(|word| f.write_str(word.1))
            }
            other => write!(f, "{other:?}"),
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |path: &[u8]| path.escape_ascii().to_string();
        match self {
            Self::Write { path, content, saved } => {
                write!(f, "writes {} to {} {saved:?}", content.bytes().escape_ascii(), show(path))
            }
            Self::Delete(path) => write!(f, "deletes {}", show(path)),
            Self::Rename(from, to) => write!(f, "renames {} to {}", show(from), show(to)),
            Self::RemoveTree(path) => write!(f, "removes {}/", show(path)),
            Self::RenameTree(from, to) => write!(f, "renames {}/ to {}/", show(from), show(to)),
            Self::Execute(path) => write!(f, "turns the bit to execute of {}", show(path)),
            Self::Link(path, to) => write!(f, "links {} to {}", show(path), show(to)),
            Self::Directory(path) => write!(f, "makes {}/", show(path)),
        }
    }
}
