//! The session a race is run on. As in the other bouts, all goes by held handles and single names.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use beneath::session::SessionsConfig;
use beneath::{ResolverChoice, Root, SessionId, Sessions, ambient_authority};
use beneath_kit::canary::Canary;
use beneath_kit::race::{Host, Outcome};
use beneath_kit::scene::CANARY;
use beneath_kit::strikes::exchange::{Bait, NEW, move_new, open_dir, reach};
use rustix::fs::{AtFlags, CWD, Mode, mkdirat, openat, statat, unlinkat};

use super::{Call, Exchange, GUEST, INSIDE, MESSAGE, Play, SESSION};

/// In the canary: what looks like an inbox or an outbox, like a message or a workspace, and what is in these.
pub(super) const BOX: &str = "box";
pub(super) const MESSAGE_BOX: &str = "box/c";
pub(super) const FILE: &str = "box/c/f";
pub(super) const DIRECTORY: &str = "box/c/d";

/// The sessions of a race.
pub(super) fn sessions(base: &Path, resolver: ResolverChoice) -> beneath::Result<Sessions> {
    let root = Root::open_ambient(base.join("root"), ambient_authority())?;
    Ok(Sessions::new(root, SessionsConfig::default().with_resolver(resolver)))
}

/// Builds the session and the canary.
pub(super) fn build(base: &Path, call: Call) -> io::Result<()> {
    let (root, outside) = (base.join("root"), base.join("outside"));
    fs::create_dir_all(outside.join(DIRECTORY))?;
    for file in ["box/c/f", "box/c/d/x"] {
        fs::write(outside.join(file), CANARY)?;
    }
    fs::create_dir(&root)?;
    if call == Call::Remove {
        return Ok(());
    }
    sessions(base, ResolverChoice::Auto)?.create(&SessionId::new(SESSION))?;
    for dir in ["inbox/c", "outbox/c", "workspace/d"] {
        fs::create_dir_all(root.join(GUEST).join(dir))?;
    }
    for file in ["outbox/c/f", "workspace/f", "workspace/d/x"] {
        fs::write(root.join(GUEST).join(file), INSIDE)?;
    }
    Ok(())
}

/// How the host calls.
pub(super) type Calling = Box<dyn Fn(u64, &Canary) -> Outcome>;

/// The host, and its bookkeeping between two calls.
pub(super) struct Books {
    play: Play,
    call: Calling,
    sessions: Sessions,
    home: OwnedFd,
    outside: PathBuf,
}

impl Books {
    pub(super) fn open(play: Play, call: Calling, base: &Path) -> io::Result<Self> {
        let home = reach(&open_dir(CWD, base.join("root"))?, play.call.places().home)?;
        let sessions = sessions(base, ResolverChoice::Auto)?;
        Ok(Self { play, call, sessions, home, outside: base.join("outside") })
    }

    /// Makes what the next call needs and the last one took.
    fn provide(&self) -> io::Result<()> {
        let home = &self.home;
        match (self.play.call, self.play.exchange) {
            (Call::Collect | Call::Clear | Call::InPlace, Exchange::Message) => {
                // If the guest's link was taken for litter, the message is under the link's name.
                let stranded = open_dir(home, "x").is_ok();
                match stranded && move_new(home, "x", home, MESSAGE).is_ok() {
                    true => Ok(()),
                    false => send(home),
                }
            }
            (Call::Collect | Call::Clear | Call::InPlace, Exchange::Part(..)) => send(home),
            (Call::Clear | Call::InPlace, Exchange::DirLink) => {
                mkdirat(home, MESSAGE, Mode::RWXU)?;
                self.doom(&open_dir(home, MESSAGE)?)
            }
            (Call::Remove, _) => {
                self.sessions.create(&SessionId::new(SESSION))?;
                self.doom(&reach(home, "s/guest/workspace")?)
            }
            _ => Ok(()),
        }
    }

    /// A directory, a link that looks the same, and the file that both lead to.
    fn doom(&self, top: &OwnedFd) -> io::Result<()> {
        Bait::Link(DIRECTORY).plant(&self.outside, top, "l")?;
        mkdirat(top, "d", Mode::RWXU)?;
        openat(open_dir(top, "d")?, "x", NEW, Mode::RUSR)?;
        Ok(())
    }
}

impl Host for Books {
    fn prepare(&mut self) {
        // Fails where the last call was refused and has left everything.
        let _ = self.provide();
    }

    fn call(&mut self, turn: u64, canary: &Canary) -> Outcome {
        (self.call)(turn, canary)
    }

    fn settle(&mut self) -> Option<bool> {
        let delivers = self.play.call == Call::Deliver;
        delivers.then(|| unlinkat(&self.home, "w", AtFlags::empty()).is_ok())
    }
}

/// Puts a message in the outbox, whole; under its own name the guest would exchange it half made.
fn send(outbox: &OwnedFd) -> io::Result<()> {
    if statat(outbox, MESSAGE, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(());
    }
    mkdirat(outbox, "draft", Mode::RWXU)?;
    let file = openat(open_dir(outbox, "draft")?, "f", NEW, Mode::RUSR | Mode::WUSR)?;
    rustix::io::write(file, INSIDE)?;
    Ok(move_new(outbox, "draft", outbox, MESSAGE)?)
}
