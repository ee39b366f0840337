//! What the guest does, over and over, in a process of its own.
//!
//! Like the host's bookkeeping, the guest works by handles and single names: it must lead the *host* out of the root,
//! never go there itself.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, fchmod, linkat, mkdirat, mknodat, openat, renameat,
    renameat_with, symlinkat, unlinkat,
};

use crate::canary::MARKER;
use crate::plan::{Kind, Operation, Scenario};
#[cfg(feature = "session")]
use crate::session;
use crate::stage::{NEW, chmod_pinned, open_dir};

pub(crate) type Flip = Box<dyn FnMut(&mut Dice)>;

/// Attacks until the process that started this one is gone, with pauses of up to so many microseconds.
pub(crate) fn attack(scenario: Scenario, stage: &Path, pause: u64) -> io::Result<()> {
    let parent = rustix::process::getppid();
    let mut flip = plan(scenario, &Ground { stage: stage.to_path_buf() })?;
    println!("ready");
    io::stdout().flush()?;
    let mut dice = Dice(u64::from(std::process::id()) << 20 | 0x9E37_79B9);
    while rustix::process::getppid() == parent {
        // Bursts keep a second core busy. The pause hands a single core to the host, and its end takes the core away
        // at a moment the host cannot choose.
        for _ in 0..dice.below(16) + 1 {
            flip(&mut dice);
            if dice.below(4) == 0 {
                (0..dice.below(256)).for_each(|_| std::hint::spin_loop());
            }
        }
        std::thread::sleep(Duration::from_micros(dice.below(pause)));
    }
    Ok(())
}

#[derive(Clone)]
pub(crate) struct Ground {
    stage: PathBuf,
}

impl Ground {
    pub(crate) fn inside(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        open_dir(CWD, self.stage.join("root").join(path))
    }

    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.stage.join("outside").join(path)
    }

    /// Plants a link `x` to the outside beside `name`, and exchanges the two without end.
    fn exchange_for_link(&self, dir: &str, name: &'static str) -> rustix::io::Result<Flip> {
        let at = self.inside(dir)?;
        let target = if dir == "." { name.to_owned() } else { format!("{dir}/{name}") };
        symlinkat(self.outside(&target), &at, "x")?;
        Ok(Box::new(move |_| exchange(&at, name, &at, "x")))
    }
}

fn plan(scenario: Scenario, ground: &Ground) -> rustix::io::Result<Flip> {
    const C: &str = "a/b/c";
    match (scenario.kind, scenario.operation) {
        (Kind::DirLink(1) | Kind::InboxLink, _) => ground.exchange_for_link(".", "a"),
        (Kind::DirLink(2), _) => ground.exchange_for_link("a", "b"),
        (Kind::DirLink(3), _) => ground.exchange_for_link("a/b", "c"),
        (Kind::DirLink(_), _) => ground.exchange_for_link(C, "job"),
        (Kind::FileLink, Operation::Replace) => plant_over(ground, |at, secret| symlinkat(secret, at, "x")),
        (Kind::FileLink, _) => ground.exchange_for_link(C, "f"),
        (Kind::FileFifo, _) => exchange_for_fifo(ground, C),
        (Kind::FileDir, Operation::Remove) => {
            openat(ground.inside(C)?, "x", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR)?;
            exchange_three(ground, "job")
        }
        (Kind::FileDir, _) => {
            mkdirat(ground.inside(C)?, "x", Mode::RWXU)?;
            exchange_three(ground, "f")
        }
        (Kind::NameNothing, Operation::Read) => come_and_go_as_file_and_link(ground),
        (Kind::NameNothing, Operation::EnsureDir) => come_and_go(ground, "e", "a/b/c/job"),
        (Kind::NameNothing, _) => come_and_go(ground, "w", "a/b/c/f"),
        (Kind::DanglingLink, _) => come_and_go(ground, "w", "a/b/c/planted"),
        (Kind::HardLink, Operation::Replace) => {
            plant_over(ground, |at, secret| linkat(CWD, secret, at, "x", AtFlags::empty()))
        }
        (Kind::HardLink, _) => {
            let at = ground.inside(C)?;
            linkat(CWD, ground.outside("a/b/c/f"), &at, "x", AtFlags::empty())?;
            Ok(Box::new(move |_| exchange(&at, "f", &at, "x")))
        }
        (Kind::HardLinkRace(_), _) => link_and_unlink(ground, C),
        (Kind::RenameStorm, operation) => rename_storm(ground, operation),
        (Kind::DoomedLink, _) => {
            let at = ground.inside(C)?;
            Ok(Box::new(move |_| exchange_in_job(&at)))
        }
        (Kind::Chmod, Operation::Remove) => {
            let mut exchange_job = ground.exchange_for_link(C, "job")?;
            let at = ground.inside(C)?;
            Ok(Box::new(move |dice| match dice.below(4) {
                0 => drop(chmod_pinned(&at, "job", dice.mode())),
                1 => exchange_in_job(&at),
                _ => exchange_job(dice),
            }))
        }
        (Kind::Chmod, _) => {
            let mut exchange_c = ground.exchange_for_link("a/b", "c")?;
            let c = ground.inside(C)?;
            Ok(Box::new(move |dice| match dice.below(3) {
                0 => drop(fchmod(&c, dice.mode())),
                _ => exchange_c(dice),
            }))
        }
        #[cfg(feature = "session")]
        (Kind::Session(exchange), Operation::Session(call)) => session::attack::plan(call, exchange, ground),
        #[cfg(feature = "session")]
        (Kind::Session(_), _) => Err(rustix::io::Errno::INVAL),
        (Kind::CreateStorm, _) => create_storm(ground),
        (Kind::LinkText, operation) => rewrite_link(ground, operation),
        (Kind::Siblings, _) => {
            let at = ground.inside(C)?;
            symlinkat(ground.outside("a/b/c/to"), &at, "x")?;
            Ok(Box::new(move |dice| match dice.below(3) {
                0 => exchange(&at, "in", &at, "to"),
                1 => exchange(&at, "in", &at, "x"),
                _ => exchange(&at, "to", &at, "x"),
            }))
        }
    }
}

/// Puts a fresh trap at `f`, or a plain file for the naive to approve of.
fn plant_over(
    ground: &Ground,
    make: impl Fn(&OwnedFd, &Path) -> rustix::io::Result<()> + 'static,
) -> rustix::io::Result<Flip> {
    let (at, secret) = (ground.inside("a/b/c")?, ground.outside("a/b/c/f"));
    Ok(Box::new(move |dice| {
        let _ = match dice.below(2) {
            0 => make(&at, &secret),
            _ => openat(&at, "x", NEW, Mode::RUSR | Mode::WUSR).map(drop),
        };
        let _ = renameat(&at, "x", &at, "f");
        // Renaming over another name of the same file leaves both.
        let _ = unlinkat(&at, "x", AtFlags::empty());
    }))
}

pub(crate) fn exchange_for_fifo(ground: &Ground, dir: &str) -> rustix::io::Result<Flip> {
    let at = ground.inside(dir)?;
    mknodat(&at, "x", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    // Held open for both, so that a naive reader gets an answer instead of waiting for ever.
    let fifo = openat(&at, "x", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Box::new(move |_| {
        let _ = rustix::io::write(&fifo, MARKER);
        exchange(&at, "f", &at, "x");
    }))
}

/// In place of `f`, a second name of a host's file comes and goes at once. Whoever opens it then and counts the names later
/// finds one.
pub(crate) fn link_and_unlink(ground: &Ground, dir: &str) -> rustix::io::Result<Flip> {
    let (at, secret) = (ground.inside(dir)?, ground.outside("a/b/c/f"));
    Ok(Box::new(move |dice| {
        let _ = move_new(&at, "f", &at, "away");
        for _ in 0..=dice.below(24) {
            let _ = linkat(CWD, &secret, &at, "f", AtFlags::empty());
            (0..dice.below(64)).for_each(|_| std::hint::spin_loop());
            let _ = unlinkat(&at, "f", AtFlags::empty());
        }
        let _ = move_new(&at, "away", &at, "f");
        // As long as the names came and went, so that there is something to succeed with.
        (0..dice.below(20_000)).for_each(|_| std::hint::spin_loop());
    }))
}

/// `x` is planted already; `y` becomes the link.
fn exchange_three(ground: &Ground, name: &'static str) -> rustix::io::Result<Flip> {
    let at = ground.inside("a/b/c")?;
    symlinkat(ground.outside("a/b/c").join(name), &at, "y")?;
    Ok(Box::new(move |dice| {
        let other = *dice.pick(&["x", "y"]);
        exchange(&at, name, &at, other);
    }))
}

fn come_and_go(ground: &Ground, name: &'static str, secret: &str) -> rustix::io::Result<Flip> {
    let at = ground.inside("a/b/c")?;
    symlinkat(ground.outside(secret), &at, "x")?;
    Ok(Box::new(move |_| {
        // One of the two fails, and so do both while the host's own entry has the name.
        if move_new(&at, "x", &at, name).is_err() {
            let _ = move_new(&at, name, &at, "x");
        }
    }))
}

fn come_and_go_as_file_and_link(ground: &Ground) -> rustix::io::Result<Flip> {
    let at = ground.inside("a/b/c")?;
    symlinkat(ground.outside("a/b/c/f"), &at, "x")?;
    Ok(Box::new(move |dice| {
        if move_new(&at, "away", &at, "f").is_ok() {
            return;
        }
        match dice.below(2) {
            0 => exchange(&at, "f", &at, "x"),
            _ => drop(move_new(&at, "f", &at, "away")),
        }
    }))
}

fn rename_storm(ground: &Ground, operation: Operation) -> rustix::io::Result<Flip> {
    let [a, z] = [ground.inside("a")?, ground.inside("z")?];
    let [left, right] = [ground.inside("a/b")?, ground.inside("z/p")?];
    symlinkat(ground.outside("a/b"), &z, "q")?;
    Ok(Box::new(move |dice| match dice.below(6) {
        0 => exchange(&a, "b", &z, "p"),
        1 | 2 => exchange(&a, "b", &z, "q"),
        3 => exchange(&z, "p", &z, "q"),
        5 if operation != Operation::EnsureDir => {
            // For an instant there is nothing at the name, which ensure_dir would rightly fill.
            let _ = move_new(&left, "c", &z, "c");
            let _ = move_new(&z, "c", &left, "c");
        }
        _ => exchange(&left, "c", &right, "c"),
    }))
}

fn create_storm(ground: &Ground) -> rustix::io::Result<Flip> {
    let at = ground.inside("a/b/c")?;
    let secret = ground.outside("a/b/c/job/d");
    let mut turn = 0_u32;
    Ok(Box::new(move |dice| {
        turn = (turn + 1) % 16;
        let Ok(job) = open_dir(&at, "job") else { return };
        match dice.below(5) {
            0 => drop(mkdirat(&job, format!("d{turn}"), Mode::RWXU)),
            1 => drop(openat(&job, format!("f{turn}"), NEW, Mode::RUSR)),
            2 => drop(symlinkat(&secret, &job, "l")),
            3 => drop(open_dir(&job, "d").and_then(|d| openat(d, format!("f{turn}"), NEW, Mode::RUSR))),
            _ => exchange(&job, "d", &job, "l"),
        }
    }))
}

fn rewrite_link(ground: &Ground, operation: Operation) -> rustix::io::Result<Flip> {
    let at = ground.inside("a/b/c")?;
    let end = if operation == Operation::Read { "f" } else { "." };
    let texts = [
        PathBuf::from(end),
        PathBuf::from("../c").join(end),
        ground.outside("a/b/c").join(end),
        PathBuf::from("../../../../outside/a/b/c").join(end),
    ];
    symlinkat(end, &at, "l")?;
    Ok(Box::new(move |dice| {
        let _ = symlinkat(dice.pick(&texts), &at, "x");
        let _ = renameat(&at, "x", &at, "l");
    }))
}

/// Every step may fail, since the host makes and removes meanwhile: that is the race.
pub(crate) fn exchange(from: &OwnedFd, left: &str, to: &OwnedFd, right: &str) {
    let _ = renameat_with(from, left, to, right, RenameFlags::EXCHANGE);
}

fn exchange_in_job(at: &OwnedFd) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(job) = openat(at, "job", flags, Mode::empty()) {
        exchange(&job, "d", &job, "l");
    }
}

fn move_new(from: impl AsFd, old: &str, to: impl AsFd, new: &str) -> rustix::io::Result<()> {
    renameat_with(from, old, to, new, RenameFlags::NOREPLACE)
}

/// A small generator of random numbers (xorshift).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    fn mode(&mut self) -> Mode {
        *self.pick(&[Mode::empty(), Mode::RUSR, Mode::RWXU, Mode::RWXU, Mode::RWXU, Mode::RWXU])
    }
}
