//! The host of a bout: an operation of the table, or its naive form, called again and again.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use beneath::{ErrorKind, Links, Mounts, Policy, Root, ambient_authority};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, mkdirat, openat, readlinkat, statat, symlinkat, unlinkat,
};

use super::kinds::Kind;
use super::stage::chmod_pinned;
use super::{Contender, Host, Outcome};
use crate::canary::Canary;
use crate::naive::Trust;
use crate::operations::{Effect, Leaf, Success, TEXT, met_before_failing};
use crate::scene::scenario::Scenario;
use crate::scene::{CANARY, data, original};
use crate::strikes::exchange::{NEW, move_new, open_dir, reach};

pub(super) struct Caller {
    aim: Scenario,
    kind: Kind,
    contender: Contender,
    base: PathBuf,
    root: Root,
    /// May cross mounts, so that it reads through a pinned handle even where devices are dead.
    crossing: Root,
    host: Root,
    homes: Vec<OwnedFd>,
    ends: Ends,
    /// The leaf as it was built, whose mode is put back; the name may be another file's by then.
    leaf: Option<OwnedFd>,
    /// What the guest's own files hold.
    contents: Vec<String>,
}

/// The directories beside the leaf's that a rename has to do with.
struct Ends {
    src: OwnedFd,
    dst: OwnedFd,
    host: OwnedFd,
}

impl Caller {
    pub(super) fn new(aim: Scenario, kind: Kind, contender: Contender, base: &Path) -> io::Result<Self> {
        let links = if kind.trust == Trust::Links { Links::FollowBeneath } else { Links::Refuse };
        let policy = Policy::default().with_links(links).with_resolver(contender.choice());
        let open = |dir: &str| Root::open_ambient(base.join(dir), ambient_authority());
        let root = open("root")?.with_policy(policy.clone());
        let top = open_dir(CWD, base.join("root"))?;
        let homes =
            kind.homes.iter().map(|home| reach(&top, home)).collect::<rustix::io::Result<Vec<_>>>()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let leaf = (aim.effect == Effect::SetsAccess)
            .then(|| openat(&homes[0], "leaf", flags, Mode::empty()))
            .transpose()?;
        Ok(Self {
            aim,
            kind,
            contender,
            base: base.canonicalize()?,
            crossing: root.try_clone()?.with_policy(policy.with_mounts(Mounts::Cross)),
            root,
            host: open("host")?,
            homes,
            ends: Ends {
                src: reach(&top, "src")?,
                dst: reach(&top, "dst")?,
                host: open_dir(CWD, base.join("host"))?,
            },
            leaf,
            contents: contents(),
        })
    }

    fn judge(&self, success: &Success, canary: &Canary) -> Outcome {
        if let Some(escaped) = met_outside(&success.entries, canary) {
            return escaped;
        }
        match success.data.clone().or_else(|| self.copied()) {
            Some(data) if data.contains(CANARY) => Outcome::Escaped("read the canary".into()),
            Some(data) if !self.contents.contains(&data) && self.contender != Contender::Control => {
                Outcome::Wrong(format!("read {data:.40?}, which nobody wrote"))
            }
            _ if success.incomplete => Outcome::Refused,
            _ => Outcome::Ok,
        }
    }

    /// What the call has copied, read by the handles of the directories that the copy may be in.
    fn copied(&self) -> Option<String> {
        let (_, to) = self.aim.ends().filter(|_| self.aim.effect.copies())?;
        let places = self.homes.iter().chain([&self.ends.dst, &self.ends.host]);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut files = places.filter_map(|place| openat(place, to, flags, Mode::empty()).ok());
        io::read_to_string(File::from(files.next()?)).ok()
    }

    /// Makes a tree to remove, unless there is one.
    fn doom(&self, home: &OwnedFd) -> rustix::io::Result<()> {
        let _ = mkdirat(home, "leaf", Mode::RWXU);
        if self.kind.needs_plain_user {
            chmod_pinned(home, "leaf", Mode::RWXU)?;
        }
        let leaf = open_dir(home, "leaf")?;
        let _ = symlinkat(self.base.join("outside/dir"), &leaf, "link");
        let _ = openat(&leaf, "a", NEW, Mode::RUSR);
        mkdirat(&leaf, "sub", Mode::RWXU)?;
        let sub = open_dir(&leaf, "sub")?;
        openat(&sub, "x", NEW, Mode::RUSR)?;
        if self.kind.needs_plain_user { fchmod(&sub, Mode::empty()) } else { Ok(()) }
    }

    /// Puts what a rename has moved back to where it came from.
    fn moved_back(&self, from: &OwnedFd, name: &str, to: &OwnedFd, old: &str) -> bool {
        // Where it came from there is something again: what the guest had there meanwhile.
        move_new(from, name, to, old).is_ok() || unlink(from, name)
    }
}

impl Host for Caller {
    fn prepare(&mut self) {
        let private = Mode::RUSR | Mode::WUSR;
        if let Some(leaf) = &self.leaf {
            let _ = fchmod(leaf, private);
        }
        let (effect, leaf) = (self.aim.effect, self.aim.leaf);
        for home in &self.homes {
            let _ = match (effect, leaf) {
                (Effect::RemovesTree, _) => self.doom(home),
                (Effect::RemovesEntry | Effect::MovesAway, Leaf::EmptyDirectory | Leaf::Directory) => {
                    mkdirat(home, "leaf", Mode::RWXU)
                }
                (Effect::RemovesEntry | Effect::MovesAway, _) => openat(home, "leaf", NEW, private).map(drop),
                // Where the directory that it comes from may be, and again if a naive host has moved it out.
                (Effect::MovesHere | Effect::MovesOver | Effect::Exchanges, _) => {
                    let _ = openat(&self.ends.src, "item", NEW, private);
                    if effect != Effect::MovesHere {
                        let _ = openat(&self.ends.src, "leaf", NEW, private);
                        let _ = openat(home, "leaf", NEW, private);
                    }
                    openat(home, "item", NEW, private).map(drop)
                }
                _ => Ok(()),
            };
        }
    }

    fn call(&mut self, turn: u64, canary: &Canary) -> Outcome {
        if self.contender == Contender::Control {
            let attempt = self.aim.attempt(&self.base.join("root"), self.kind.trust, &every_second(turn));
            return attempt.map_or(Outcome::Refused, |success| self.judge(&success, canary));
        }
        let root = if turn % 4 == 2 { &self.crossing } else { &self.root };
        match self.aim.call(root, &self.host) {
            Ok(success) => self.judge(&success, canary),
            Err(error) => met_outside(&met_before_failing(), canary).unwrap_or_else(|| refusal(&error)),
        }
    }

    fn settle(&mut self) -> Option<bool> {
        let undo: &dyn Fn(&OwnedFd) -> bool = match self.aim.effect {
            Effect::Creates | Effect::CopiesHere => &|home| is_file(home, "leaf") && unlink(home, "leaf"),
            Effect::Links => &|home| {
                let text = readlinkat(home, "leaf", Vec::new());
                text.is_ok_and(|text| text.as_bytes() == TEXT.as_bytes()) && unlink(home, "leaf")
            },
            Effect::CopiesAway => {
                &|home| [&self.ends.dst, &self.ends.host, home].iter().any(|end| unlink(end, "moved"))
            }
            Effect::MakesDirectories => &take_directories,
            Effect::MovesAway => &|home| {
                // Into this directory too, if it was the other end at that moment.
                [&self.ends.dst, &self.ends.host, home]
                    .iter()
                    .any(|end| self.moved_back(end, "moved", home, "leaf"))
            },
            Effect::MovesHere => &|home| self.moved_back(home, "leaf", &self.ends.src, "item"),
            _ => return None,
        };
        // No short cut: every home is tidied.
        Some(self.homes.iter().filter(|home| undo(home)).count() > 0)
    }
}

/// The moment between check and use.
///
/// Hosts that do their file work asynchronously give up the processor there; so does every second call here, which makes
/// the controls work on a busy machine too.
pub fn every_second(turn: u64) -> impl Fn() {
    move || {
        if !turn.is_multiple_of(2) {
            std::thread::sleep(Duration::from_micros(1));
        }
    }
}

fn met_outside(entries: &[(String, u64)], canary: &Canary) -> Option<Outcome> {
    let (path, _) = entries.iter().find(|(_, ino)| canary.holds_inode(*ino))?;
    Some(Outcome::Escaped(format!("met an inode outside as {path:?}")))
}

/// What the guest's own files and links hold.
fn contents() -> Vec<String> {
    let mut contents = vec![original(), data(), "leaf of the sibling\n".into(), "item\n".into()];
    let lines: Vec<String> =
        contents.iter().filter_map(|file| Some(file.lines().next()?.to_owned())).collect();
    contents.extend(lines);
    contents
}

fn unlink(at: &OwnedFd, name: &str) -> bool {
    unlinkat(at, name, AtFlags::empty()).is_ok()
}

fn is_file(at: &OwnedFd, name: &str) -> bool {
    statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|entry| FileType::from_raw_mode(entry.st_mode) == FileType::RegularFile)
}

fn take_directories(home: &OwnedFd) -> bool {
    let Ok(made) = open_dir(home, "leaf") else { return false };
    let _ = unlinkat(&made, "deep", AtFlags::REMOVEDIR);
    unlinkat(home, "leaf", AtFlags::REMOVEDIR).is_ok()
}

fn refusal(error: &beneath::Error) -> Outcome {
    match error.kind() {
        ErrorKind::Symlink
        | ErrorKind::Escape
        | ErrorKind::NotRegular
        | ErrorKind::NotDirectory
        | ErrorKind::HardLinked
        | ErrorKind::AlreadyExists
        | ErrorKind::NotEmpty
        | ErrorKind::NotFound
        | ErrorKind::Denied
        | ErrorKind::Busy => Outcome::Refused,
        kind => Outcome::Wrong(format!("{error} ({kind:?})")),
    }
}
