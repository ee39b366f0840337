//! The host dies before each of its system calls with a session, and the next host finds order.
//!
//! A row is some work of a service. It is traced once undisturbed, then killed at each call that changes something, in a
//! fresh place each time; the next host takes over and judges what is there. The same work done by path runs in the same
//! rig and must be caught.
//!
//! `cargo test --test session_kill -- collect` runs the rows whose name contains `collect`.

// A broken rig must be loud.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod host;
mod judge;
#[cfg(feature = "mailbox")]
mod mail;
mod merge;
#[cfg(feature = "queue")]
mod queue;
mod works;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use beneath_kit::Contender;
use beneath_kit::rig::{self, Rig, Row, in_parallel};
use beneath_kit::scene::lack::Lack;
use beneath_kit::scene::place::Places;
use beneath_kit::scene::stage::PATIENCE;
use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::trace::{Act, End, Stop, Tracer, VICTIM, Which, be_victim, marked};
use host::{another_file_system, elsewhere, has_sent};
use judge::Verdict;
use nix::errno::Errno;
use nix::libc;
use tempfile::TempDir;
use works::{WORKS, Work};

/// Calls that change nothing a second host could see: dying before one of them leaves what dying before the next one leaves.
const EFFECTLESS: &[libc::c_long] =
    &[libc::SYS_close, libc::SYS_statx, libc::SYS_fstat, libc::SYS_getdents64];
/// What has changed within this time takes more calls to read.
const LATELY: Duration = Duration::from_millis(120);

/// The row, who plays it, and where.
type Request = (String, Contender, PathBuf);

/// All rows.
fn works() -> impl Iterator<Item = &'static Work> {
    let more: [&[Work]; 3] = [
        WORKS,
        #[cfg(feature = "mailbox")]
        mail::MAIL,
        #[cfg(not(feature = "mailbox"))]
        &[],
        #[cfg(feature = "queue")]
        queue::QUEUE_WORKS,
        #[cfg(not(feature = "queue"))]
        &[],
    ];
    more.into_iter().flatten()
}

/// Serves one request as the victim.
fn answer((name, contender, dir): &Request) {
    let work = works().find(|work| work.name == name).expect("a row");
    marked((work.work)(dir, contender.choice()));
}

/// Where a round is played. What it has put elsewhere goes with it.
struct Place(TempDir);

impl Place {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if another_file_system(self.path()).is_some() {
            // Most rounds have put nothing there.
            let _ = fs::remove_dir_all(elsewhere(self.path()));
        }
    }
}

/// A row that is played.
struct Player<'p> {
    places: &'p Places,
    work: &'static Work,
    contender: Contender,
    tracer: Tracer,
}

impl Player<'_> {
    /// So many fresh places in which nothing has changed lately.
    fn prepared(&self, count: usize) -> Vec<Place> {
        let places: Vec<Place> = (0..count).map(|_| Place(self.places.any_dir())).collect();
        places.iter().for_each(|place| (self.work.prepare)(place.path()));
        std::thread::sleep(LATELY);
        places
    }

    /// Has a victim that has done nothing yet do the work, and asks `act` before each call.
    fn round(&mut self, dir: &Path, act: &mut dyn FnMut(&Stop) -> Act) -> End<()> {
        let request: Request = (self.work.name.to_owned(), self.contender, dir.to_owned());
        let lack = self.work.lack;
        self.tracer.renew();
        self.tracer.round(&request, PATIENCE, &mut |stop| match lack.denies(stop) {
            Some(errno) => Act::Fail(errno),
            None => act(stop),
        })
    }

    /// Ends the work at that call in this place, or in another one if other calls were made there.
    fn end_at(&mut self, call: Which, place: Place) -> Option<Place> {
        let act = if self.work.fails.is_some() { Act::Fail(Errno::EIO) } else { Act::Kill };
        let mut place = Some(place);
        for _ in 0..5 {
            let place = place.take().or_else(|| self.prepared(1).pop())?;
            let mut met = false;
            let end = self.round(place.path(), &mut |stop| {
                let here = stop.which() == call;
                met |= here;
                if here { act } else { Act::Go }
            });
            if met && !matches!(end, End::Hung) {
                return Some(place);
            }
        }
        None
    }

    fn judge(&self, dir: &Path) -> Verdict {
        let judge = || (self.work.judge)(dir, self.contender.choice());
        match self.work.lack {
            Lack::NoReplace => denied(&[Denial::RenameNoReplace(rustix::io::Errno::INVAL)], judge),
            _ => judge(),
        }
    }

    fn play(mut self) -> Row {
        let mut stops: Vec<Stop> = Vec::new();
        let undisturbed = self.prepared(1).pop().expect("one was asked for");
        let end = self.round(undisturbed.path(), &mut |stop| {
            stops.push(*stop);
            Act::Go
        });
        // What shows nothing about the work, and so does not catch a control either.
        let mut void = Vec::new();
        if !matches!(end, End::Answered(_)) {
            void.push(format!("fails undisturbed: {end:?}"));
        }
        // The name that sends the message is the last that is made.
        let sends = stops.iter().rev().find(|stop| stop.call.is(libc::SYS_linkat));
        let sends = sends.map_or(0, |stop| stop.index);
        stops.retain(|stop| match self.work.fails {
            Some(call) => stop.call.is(call),
            None => !stop.call.is_any(EFFECTLESS) && self.work.lack.denies(stop).is_none(),
        });
        let (mut mattered, mut violations) = (0, Vec::new());
        for (stop, place) in stops.iter().zip(self.prepared(stops.len())) {
            let at = format!("at {stop}");
            match self.end_at(stop.which(), place) {
                Some(place) => {
                    mattered += usize::from((self.work.matters)(place.path()));
                    if self.work.fails.is_some() && stop.index < sends && has_sent(place.path()) {
                        violations.push(format!("{at}: sent although it failed"));
                    }
                    violations.extend(self.judge(place.path()).err().map(|why| format!("{at}: {why}")));
                }
                None => void.push(format!("{at}: never ended there")),
            }
        }
        if stops.len() < self.work.least || mattered < 2 {
            void.push(format!("{mattered} of {} ends matter", stops.len()));
        }
        let mut row = Row::of([self.work.name, self.contender.name()], &[stops.len(), violations.len()]);
        row.judge(self.contender == Contender::Control, violations);
        row.failures.extend(void);
        row
    }
}

fn main() -> ExitCode {
    let columns = &[("work", 36), ("resolver", 9), ("ends", 6), ("violations", 10)];
    rig::main("session_kill", columns, &[(VICTIM, &|_| be_victim(answer))], run)
}

fn run(rig: &mut Rig) {
    // First, while there is one thread: it may enter a mount namespace of its own.
    let places = Places::find();
    rig.place = places.any();
    if let Err(reason) = Tracer::start() {
        return rig.add(Row::skipped("all", reason));
    }
    let mut works: Vec<&Work> = works().filter(|work| rig.wants(work.name)).collect();
    if another_file_system(&rig.place).is_none() {
        for work in works.iter().filter(|work| work.is_elsewhere) {
            rig.add(Row::skipped(
                work.name,
                "needs a second file system, at /dev/shm or for temporary files",
            ));
        }
        works.retain(|work| !work.is_elsewhere);
    }
    let jobs = works.into_iter().flat_map(|work| work.contenders.iter().map(move |who| (work, *who)));
    rig.add_all(in_parallel(jobs.collect(), |(work, contender)| {
        Player { places: &places, work, contender, tracer: Tracer::start().expect("the first one did") }
            .play()
    }));
}
