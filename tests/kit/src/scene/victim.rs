//! The calls under test, as the victim makes them.

use std::path::PathBuf;

use beneath::{Durability, Links, Policy, Result, Root, ambient_authority};
use serde::{Deserialize, Serialize};

use super::report::{Around, Report};
use super::scenario::scenario;
use crate::contender::Contender;
use crate::naive::Trust;
use crate::trace::marked;

/// What the controller asks of the victim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub scenario: String,
    pub contender: Contender,
    /// Whether with full durability.
    pub durable: bool,
    pub base: PathBuf,
}

/// Serves one request as the victim.
pub fn answer(request: &Request) -> Report {
    answer_around(request, &|part| marked(part))
}

/// Serves one request, with the call itself made inside `around`.
pub fn answer_around(request: &Request, around: &Around<'_>) -> Report {
    let scenario = scenario(&request.scenario);
    if scenario.is_control() {
        let trust = if scenario.links == Links::Refuse { Trust::Root } else { Trust::Links };
        let attempt = || scenario.attempt(&request.base.join("root"), trust, &|| {});
        return Report::of(around, |report| match attempt() {
            Ok(success) => report.add(success),
            Err(error) => report.errors.push(("Naive".into(), error.to_string())),
        });
    }
    let policy = Policy::default()
        .with_links(scenario.links)
        .with_resolver(request.contender.choice())
        .with_durability(if request.durable { Durability::Full } else { Durability::None });
    let open = |dir: &str| -> Result<Root> {
        Ok(Root::open_ambient(request.base.join(dir), ambient_authority())?.with_policy(policy.clone()))
    };
    let open = || -> Result<(Root, Root)> { Ok((open("root")?, open("host")?)) };
    let run = |(root, host): &(Root, Root)| {
        let before = root.resolver();
        let result = scenario.call(root, host);
        assert!(root.resolver() == before, "the resolver changed");
        result
    };
    if scenario.cold {
        let mut report = Report::of(around, |report| report.end(open().and_then(|site| run(&site))));
        let (before, after) = &mut report.descriptors;
        // One descriptor is opened for the life of the process, if it can be.
        *after -= usize::from(*after == *before + 1);
        return report;
    }
    match open() {
        Ok(site) => Report::of(around, |report| report.end(run(&site))),
        Err(error) => Report { panic: Some(format!("cannot open the scene: {error}")), ..Report::default() },
    }
}
