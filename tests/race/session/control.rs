//! The same calls by path, as the studied systems make them: each checks what it can see, then uses the path.
//!
//! Links of the guest's lead nowhere but to the canary, so neither does anything that is done here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use beneath_kit::naive::session::{NaiveSession, secure_tree};
use beneath_kit::naive::{self, Attempt, Trust, refused};
use beneath_kit::race::{Outcome, every_second};
use beneath_kit::scene::CANARY;
use beneath_kit::strikes::exchange::Bait;

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
        Ok(Self { play, session, target: root.join(play.call.places().target) })
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
            Call::Remove => naive::remove_by_path(&self.target, pause)?,
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
        let file = attempt(&self.target, "f", pause);
        let content = match self.play.exchange {
            Exchange::SecondNameRace => naive::read_counted(&file)?.data,
            Exchange::File(Bait::Fifo) => naive::read(&file)?.data,
            _ => {
                let content = self.session.collect(MESSAGE, &["f"], pause).pop().ok_or_else(refused)?.1;
                Some(String::from_utf8_lossy(&content).into_owned())
            }
        };
        if content.is_some_and(|content| content.starts_with(CANARY)) {
            return Ok(Outcome::Escaped("read outside".into()));
        }
        if !self.play.exchange.keeps_message() {
            self.clear(pause)?;
        }
        Ok(Outcome::Ok)
    }

    /// Removes the message's directory, level by level, if it is where it seems to be.
    fn clear(&self, pause: &dyn Fn()) -> io::Result<()> {
        let outbox = self.target.parent().unwrap_or(&self.target);
        naive::remove_tree(&attempt(outbox, MESSAGE, pause)).map(drop)
    }
}

fn attempt<'a>(root: &'a Path, name: &'a str, pause: &'a dyn Fn()) -> Attempt<'a> {
    let path = Path::new(name);
    Attempt { root, path, data: &[], other: path, trust: Trust::Root, pause }
}
