//! The same calls by path, as the studied systems make them: each checks what it can see, then uses the path.
//!
//! Links of the guest's lead nowhere but to the canary, so neither does anything that is done here.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use beneath_kit::naive::session::{NaiveSession, secure_tree};
use beneath_kit::naive::{open_counted, refused, remove_by_path};
use beneath_kit::race::{Outcome, every_second};
use beneath_kit::scene::CANARY;
use rustix::fs::OFlags;

use super::{Call, Exchange, GUEST, INSIDE, MESSAGE, Play};

pub(super) struct Control {
    play: Play,
    session: NaiveSession,
    target: PathBuf,
}

impl Control {
    pub(super) fn new(play: Play, base: &Path) -> io::Result<Self> {
        let root = base.canonicalize()?.join("root");
        let session = NaiveSession { dir: root.join(GUEST) };
        Ok(Self { play, session, target: root.join(play.call.target()) })
    }

    pub(super) fn call(&self, turn: u64) -> Outcome {
        self.run(&every_second(turn)).unwrap_or(Outcome::Refused)
    }

    /// What it did outside shows at the canary, unless it has only read.
    fn run(&self, pause: &dyn Fn()) -> io::Result<Outcome> {
        match self.play.call {
            Call::Deliver => drop(self.session.deliver(MESSAGE, "w", INSIDE, pause)?.ok_or_else(refused)?),
            Call::Clear => self.clear(pause)?,
            // It knows of no other place.
            Call::InPlace if self.play.exchange == Exchange::DirLink => self.clear(pause)?,
            Call::Collect | Call::InPlace => return self.collect(pause),
            Call::Remove => remove_by_path(&self.target, pause)?,
            Call::Harden => {
                if fs::symlink_metadata(&self.target)?.is_symlink() {
                    return Err(refused());
                }
                pause();
                secure_tree(&self.target, &|_| pause());
            }
        }
        Ok(Outcome::Ok)
    }

    fn collect(&self, pause: &dyn Fn()) -> io::Result<Outcome> {
        let content = match self.play.exchange {
            Exchange::HardLinkRace => {
                let mut content = Vec::new();
                open_counted(&self.target.join("f"), OFlags::RDONLY, pause)?.read_to_end(&mut content)?;
                content
            }
            // Behind the path may be a FIFO that somebody holds open, which has no end.
            Exchange::FileFifo => {
                let mut content = vec![0; CANARY.len()];
                approved_file(&self.target, pause)?.read_exact(&mut content)?;
                content
            }
            _ => self.session.collect(MESSAGE, &["f"], pause).pop().ok_or_else(refused)?.1,
        };
        if content.starts_with(CANARY.as_bytes()) {
            return Ok(Outcome::Escaped("read outside".into()));
        }
        if !self.play.exchange.keeps_message() {
            self.clear(pause)?;
        }
        Ok(Outcome::Ok)
    }

    /// Removes the message's directory, level by level, if it is where it seems to be.
    fn clear(&self, pause: &dyn Fn()) -> io::Result<()> {
        let dir = &self.target;
        let outbox = dir.parent().unwrap_or(dir);
        let real = fs::canonicalize(dir)?;
        if !fs::symlink_metadata(dir)?.is_dir() || !real.starts_with(fs::canonicalize(outbox)?) {
            return Err(refused());
        }
        pause();
        remove_by_path(&real, pause)
    }
}

fn approved_file(dir: &Path, pause: &dyn Fn()) -> io::Result<fs::File> {
    let path = dir.join("f");
    if !fs::symlink_metadata(&path)?.is_file() {
        return Err(refused());
    }
    pause();
    fs::File::open(path)
}
