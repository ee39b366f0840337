//! Every operation against a guest that changes the tree meanwhile, beside a control that must be caught.
//!
//! `cargo test --test race -- link` runs only the rows whose kind or operation contains the text.
//! `BENEATH_RACE_OPS=1000000` sets the calls per kind and resolver, shared among the kind's operations;
//! `BENEATH_RACE_DIR` chooses where, `BENEATH_SEED` the guest's random numbers.
//!
//! A row fails on an escape, on an outcome the attack cannot explain, on a control that was not caught, and when the
//! race did not take place: fewer than a tenth of the calls succeeded or fewer than a tenth were refused.

#![allow(clippy::indexing_slicing)]

#[cfg(feature = "session")]
mod session;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use beneath_kit::env;
use beneath_kit::race::{self, Bout, COLUMNS, Contender, Ground, Volume, notes};
use beneath_kit::rig::{self, Rig, Row};

/// How long a row that has not shown both of its sides goes on: a busy machine may need it.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let bouts = bouts();
    if let Some(ended) = race::play_part(&bouts) {
        return ended;
    }
    // A long run, or one of some kinds, leaves the table of the short one alone.
    let name = match (env::RACE_OPS.is_set(), env::RACE_KIND.is_set()) {
        (true, _) => "race-long",
        (false, true) => "race-part",
        (false, false) => "race",
    };
    rig::main(name, COLUMNS, &[], |rig| run(rig, &bouts))
}

fn bouts() -> Vec<Bout> {
    let bouts = race::bouts().into_iter();
    #[cfg(feature = "session")]
    let bouts = bouts.chain(session::bouts());
    bouts.collect()
}

fn run(rig: &mut Rig, bouts: &[Bout]) {
    rig.place = Ground::Usual.path();
    let kind = env::RACE_KIND.text().unwrap_or_default();
    let wanted = |bout: &&Bout| bout.kind.contains(&kind) && rig.wants(&format!("{bout:?}"));
    let bouts: Vec<&Bout> = bouts.iter().filter(wanted).collect();
    for &bout in &bouts {
        match race::obstacle(bout) {
            Some(why) => rig.add(Row::skipped(format!("{bout:?}"), why)),
            None => match rows(bout, rig.seed) {
                Ok(rows) => rig.add_all(rows),
                Err(error) => rig.fail(format!("{bout:?}: the rig broke: {error}")),
            },
        }
    }
    notes(&bouts).into_iter().for_each(|note| rig.note(note));
}

/// The control runs once, and is compared with both resolvers.
fn rows(bout: &Bout, seed: u64) -> io::Result<Vec<Row>> {
    let asked: Option<u64> = env::RACE_OPS.number();
    let calls = asked.unwrap_or(bout.quick).div_ceil(bout.shares);
    let (share, demanded) = (10, if asked.is_some() { 100 } else { 0 });
    let volume = Volume { calls, patience: PATIENCE, share };
    // A naive call takes several times as long, and a tenth of the volume gives its rate well enough.
    let naive = Volume { calls: asked.map_or(1, |_| calls.div_ceil(10)), ..volume };
    let control = race::race(bout, Contender::Control, naive, seed, |_| {})?;
    let row = |contender| {
        let tally = race::race(bout, contender, volume, seed, |_| {})?;
        Ok(race::row(bout, contender, &tally, &control, volume, demanded))
    };
    bout.contenders().map(row).collect()
}
