//! The calls of the bare way and of this crate, counted by name in a process that a tracer stops at each.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Ground, Line, OURS, Place, RAW, Watch, Work};
use crate::trace::{Act, Tracer};

const PATIENCE: Duration = Duration::from_secs(30);

/// What a victim is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    title: String,
    way: String,
    dir: PathBuf,
}

/// A victim's work, which is prepared once for both ways.
#[derive(Default)]
pub(super) struct Stage(RefCell<(String, Vec<Line>)>);

impl Stage {
    /// Does a small form of the work in one way: once to open and probe what is opened and probed once, and once for the tracer.
    ///
    /// False if there is no such way.
    pub(super) fn play(&self, works: &[Work], asked: &Asked) -> bool {
        let played = || {
            let (title, lines) = &mut *self.0.borrow_mut();
            if *title != asked.title {
                let (_, ways) = works.iter().find(|(title, _)| *title == asked.title)?;
                *lines = ways(&Ground::new(asked.dir.clone(), true).ok()?).ok()?;
                title.clone_from(&asked.title);
            }
            let line = lines.iter_mut().find(|line| line.name == asked.way)?;
            line.run(Watch::Clock);
            line.run(Watch::Tracer);
            Some(())
        };
        played().is_some()
    }
}

/// The calls of a way in their order: each by its name, and spelled out.
pub type Made = Vec<(String, String)>;

/// The calls of both ways, or why they could not be counted.
#[derive(Debug)]
pub struct Compared(pub Result<[Made; 2], String>);

pub(super) fn compare(tracer: &mut Tracer, title: &str, place: &Place) -> Compared {
    // What the victim holds open is of a place that may be gone.
    tracer.renew();
    let mut calls = |way: &str| {
        let dir = place.ground(&format!("{title} traced"))?.dir;
        let asked = Asked { title: title.to_owned(), way: way.to_owned(), dir };
        let mut made = Made::new();
        let end = tracer.round::<bool>(&asked, PATIENCE, &mut |stop| {
            made.push((stop.call.name(), stop.describe()));
            Act::Go
        });
        match end.answer() {
            (Some(true), None) => Ok(made),
            (_, why) => Err(format!("{way}: {}", why.unwrap_or_else(|| "is not there".into()))),
        }
    };
    Compared(calls(RAW).and_then(|raw| Ok([raw, calls(OURS)?])))
}

/// What the difference comes to.
#[derive(Debug, Default)]
pub struct Judged {
    pub shown: String,
    pub reasons: Vec<String>,
    pub failures: Vec<String>,
    pub details: Vec<String>,
}

impl Compared {
    /// `besides` names the calls that may differ, each with the reason.
    pub fn judge(&self, besides: &[(&str, &str)]) -> Judged {
        let mut judged = Judged::default();
        let [raw, made] = match &self.0 {
            Ok(counts) => counts,
            Err(why) => {
                judged.failures.push(format!("the calls could not be compared: {why}"));
                return judged;
            }
        };
        let spelled = |way: &str, calls: &Made| {
            calls.iter().map(|(_, call)| format!("{way}: {call}")).collect::<Vec<_>>()
        };
        judged.details = [spelled(RAW, raw), spelled(OURS, made)].concat();
        let mut shown = Vec::new();
        for name in raw.iter().chain(made).map(|(name, _)| name).collect::<BTreeSet<_>>() {
            let count = |calls: &Made| calls.iter().filter(|(made, _)| made == name).count();
            let more = count(made) as isize - count(raw) as isize;
            if more == 0 {
                continue;
            }
            shown.push(format!("{more:+} {name}"));
            match besides.iter().find(|(call, _)| call == name) {
                Some((_, reason)) => judged.reasons.push(format!("`{name}`: {reason}")),
                None => judged.failures.push(format!(
                    "beneath makes {} {name} and raw {}, and the row gives no reason",
                    count(made),
                    count(raw)
                )),
            }
        }
        judged.shown = if shown.is_empty() { "as raw".to_owned() } else { shown.join(", ") };
        judged
    }
}
