//! The calls under test, as the victim makes them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use beneath::{Durability, Policy, ResolverChoice, Result, Root, ambient_authority};
use serde_json::{Value, json};

use super::scenario::{Call, Scenario, scenario};
use crate::naive::Naive;
use crate::operations::Success;
use crate::trace::marked;

/// What the controller asks of the victim.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub scenario: &'a str,
    pub base: &'a Path,
    pub resolver: ResolverChoice,
    pub durability: Durability,
}

impl Request<'_> {
    pub fn line(&self) -> String {
        let resolver = if self.resolver == ResolverChoice::Walk { "walk" } else { "openat2" };
        let durability = if self.durability == Durability::Full { "full" } else { "none" };
        format!("{}\t{resolver}\t{durability}\t{}", self.scenario, self.base.display())
    }
}

/// Serves one request as the victim.
pub fn answer(request: &str) -> String {
    answer_around(request, &|part| marked(part))
}

/// Serves one request, with the call itself made inside `around`.
pub fn answer_around(request: &str, around: &dyn Fn(&mut dyn FnMut())) -> String {
    let fields: Vec<&str> = request.split('\t').collect();
    let [name, resolver, durability, base] = fields[..] else { return "{}".into() };
    let base = PathBuf::from(base);
    let Some(scenario) = scenario(name) else { return "{}".into() };
    let call = match scenario.call {
        Call::Crate(call) => call,
        Call::Naive(naive, _) => return answer_control(scenario, naive, &base),
    };
    let policy = Policy::default()
        .with_links(scenario.links)
        .with_resolver(if resolver == "walk" { ResolverChoice::Walk } else { ResolverChoice::Openat2 })
        .with_durability(if durability == "full" { Durability::Full } else { Durability::None });
    let open = || -> Result<(Root, Root)> {
        let open = |dir: &str| -> Result<Root> {
            Ok(Root::open_ambient(base.join(dir), ambient_authority())?.with_policy(policy.clone()))
        };
        Ok((open("root")?, open("host")?))
    };
    let run = |(root, host): &(Root, Root)| {
        let before = root.resolver();
        let result = scenario.run(call, root, host);
        (result, root.resolver() == before)
    };
    let mut result = None;
    let (before, after);
    if scenario.cold {
        before = descriptors();
        around(&mut || {
            result = Some(catch_unwind(AssertUnwindSafe(|| match open() {
                Ok(site) => run(&site),
                Err(error) => (Err(error), true),
            })));
        });
        // One descriptor is opened for the life of the process, if it can be.
        let now = descriptors();
        after = if now == before + 1 { before } else { now };
    } else {
        let site = match open() {
            Ok(site) => site,
            Err(error) => return json!({ "panic": format!("cannot open the scene: {error}") }).to_string(),
        };
        before = descriptors();
        around(&mut || result = Some(catch_unwind(AssertUnwindSafe(|| run(&site)))));
        after = descriptors();
    }
    let mut same_resolver = true;
    let mut report = match result {
        None => json!({ "panic": "the call was not made" }),
        Some(Ok((result, same))) => {
            same_resolver = same;
            shown(result)
        }
        Some(Err(panic)) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            json!({ "panic": text.unwrap_or_default() })
        }
    };
    report["descriptors"] = json!([before, after]);
    report["same_resolver"] = json!(same_resolver);
    report.to_string()
}

fn shown(result: Result<Success>) -> Value {
    match result {
        Ok(success) => json!({
            "ok": true, "data": success.data, "entries": success.entries, "incomplete": success.incomplete,
        }),
        Err(error) => {
            json!({ "ok": false, "kind": format!("{:?}", error.kind()), "error": error.to_string() })
        }
    }
}

fn answer_control(scenario: &Scenario, naive: Naive, base: &Path) -> String {
    let before = descriptors();
    let result = marked(|| scenario.attempt(naive, &base.join("root")));
    let after = descriptors();
    let mut report = match result {
        Ok(success) => shown(Ok(success)),
        Err(error) => json!({ "ok": false, "kind": "Naive", "error": error.to_string() }),
    };
    report["descriptors"] = json!([before, after]);
    report["same_resolver"] = json!(true);
    report.to_string()
}

/// How many descriptors this process holds.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The victim's answer, parsed.
#[derive(Debug)]
pub struct Report {
    pub result: std::result::Result<Success, (String, String)>,
    pub panic: Option<String>,
    pub descriptors: (u64, u64),
    pub same_resolver: bool,
}

impl Report {
    pub fn parse(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let entries = value["entries"].as_array().into_iter().flatten();
        let result = if value["ok"] == true {
            Ok(Success {
                data: value["data"].as_str().map(str::to_owned),
                entries: entries
                    .map(|entry| {
                        (entry[0].as_str().unwrap_or_default().to_owned(), entry[1].as_u64().unwrap_or(0))
                    })
                    .collect(),
                incomplete: value["incomplete"] == true,
                ..Success::default()
            })
        } else {
            Err((text("kind"), text("error")))
        };
        let count = |index: usize| value["descriptors"][index].as_u64().unwrap_or(0);
        Self {
            result,
            panic: value.get("panic").map(|panic| panic.as_str().unwrap_or_default().to_owned()),
            descriptors: (count(0), count(1)),
            same_resolver: value["same_resolver"] == true,
        }
    }

    /// `ok` or the kind.
    pub fn verdict(&self) -> String {
        match (&self.panic, &self.result) {
            (Some(_), _) => "panic".into(),
            (None, Ok(success)) if success.incomplete => "incomplete".into(),
            (None, Ok(_)) => "ok".into(),
            (None, Err((kind, _))) => kind.clone(),
        }
    }
}
