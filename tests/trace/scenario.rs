//! The calls under test, as the victim makes them.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use beneath::{
    Access, Budget, Durability, Execute, Links, Policy, ResolverChoice, Result, Root, WalkLimits,
    ambient_authority,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::scene::{Leaf, data};
use super::{marked, naive};

/// What a call is meant to do, and so what may be different afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing changes.
    Reads,
    /// A file with the data appears at the leaf.
    Creates,
    /// A file with the data takes the leaf's place.
    Replaces,
    /// Directories appear at the leaf and in it.
    MakesDirectories,
    /// An entry with the first name gets the second.
    Moves(&'static str, &'static str),
    RemovesFile,
    /// The leaf gets [`ACCESS`].
    SetsAccess,
    /// Everything from this path on goes.
    RemovesTree(&'static str),
}

/// One call on the scene.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) leaf: Leaf,
    pub(crate) effect: Effect,
    pub(crate) links: Links,
    /// Opens its root itself, in a process that has made no other call of the crate.
    pub(crate) cold: bool,
    /// Reads a file's content, which is done differently where device nodes are dead.
    pub(crate) opens_files: bool,
    run: fn(&Site) -> Result<Success>,
}

/// The handles a call works with.
pub(crate) struct Site {
    pub(crate) root: Root,
    /// The host's own directory, out of the guest's reach.
    pub(crate) host: Root,
}

/// What a call that succeeded told.
#[derive(Debug, Default)]
pub(crate) struct Success {
    pub(crate) data: Option<String>,
    /// Paths and inodes.
    pub(crate) entries: Vec<(String, u64)>,
    pub(crate) incomplete: bool,
}

impl Success {
    fn done() -> Self {
        Self::default()
    }

    pub(crate) fn read(bytes: &[u8]) -> Self {
        Self { data: Some(String::from_utf8_lossy(bytes).into_owned()), ..Self::default() }
    }
}

/// Modes that nothing in a scene has by itself.
pub(crate) const ACCESS: Access = Access::custom(0o640, 0o750);

const LEAF: &str = "g/p/leaf";
const MOST: u64 = 1 << 20;

const fn scenario(
    name: &'static str,
    leaf: Leaf,
    effect: Effect,
    run: fn(&Site) -> Result<Success>,
) -> Scenario {
    Scenario { name, leaf, effect, links: Links::Refuse, opens_files: false, cold: false, run }
}

const fn reads(name: &'static str, leaf: Leaf, run: fn(&Site) -> Result<Success>) -> Scenario {
    Scenario { opens_files: true, ..scenario(name, leaf, Effect::Reads, run) }
}

/// Every primitive. Where a call takes a whole tree there are two rows: the attack at its top, and inside it.
pub(crate) const SCENARIOS: &[Scenario] = &[
    reads("read_contained", Leaf::File, |site| {
        site.root.read_contained(LEAF, MOST).map(|bytes| Success::read(&bytes))
    }),
    reads("open_contained", Leaf::File, |site| {
        let mut file = site.root.open_contained(LEAF)?;
        let mut bytes = vec![0; 4000];
        // The public error of `Read` is not ours to judge: what is left is read with the typed call.
        let first = file.read(&mut bytes).unwrap_or(0);
        bytes.truncate(first);
        bytes.extend(file.read_to_limit(MOST)?);
        Ok(Success::read(&bytes))
    }),
    Scenario {
        cold: true,
        ..scenario("open_ambient, then read", Leaf::File, Effect::Reads, |site| {
            site.root.read_contained(LEAF, MOST).map(|bytes| Success::read(&bytes))
        })
    },
    Scenario {
        links: Links::FollowBeneath,
        ..reads("read following links", Leaf::File, |site| {
            site.root.read_contained(LEAF, MOST).map(|bytes| Success::read(&bytes))
        })
    },
    scenario("metadata", Leaf::File, Effect::Reads, |site| {
        let metadata = site.root.metadata(LEAF)?;
        assert!(!metadata.is_symlink(), "metadata never describes a link");
        Ok(Success { entries: vec![(LEAF.into(), metadata.ino())], ..Success::default() })
    }),
    reads("descend", Leaf::Directory, |site| {
        let inner = site.root.descend(LEAF)?;
        inner.read_contained("a", MOST).map(|bytes| Success::read(&bytes))
    }),
    scenario("list", Leaf::Directory, Effect::Reads, |site| list(&site.root, LEAF)),
    scenario("list, inside", Leaf::File, Effect::Reads, |site| list(&site.root, "g/p")),
    scenario("walk", Leaf::Directory, Effect::Reads, |site| walk(&site.root, LEAF)),
    scenario("walk, inside", Leaf::Directory, Effect::Reads, |site| walk(&site.root, "g")),
    scenario("write_exclusive", Leaf::Absent, Effect::Creates, |site| {
        site.root.write_exclusive(LEAF, data()).map(|()| Success::done())
    }),
    scenario("new_file, commit", Leaf::Absent, Effect::Creates, |site| {
        let file = stream(&site.root)?;
        file.commit().map(|()| Success::done())
    }),
    scenario("new_file, commit_replace", Leaf::File, Effect::Replaces, |site| {
        let file = stream(&site.root)?;
        file.commit_replace().map(|()| Success::done())
    }),
    scenario("replace", Leaf::File, Effect::Replaces, |site| {
        site.root.replace(LEAF, data()).map(|()| Success::done())
    }),
    scenario("replace, nothing there", Leaf::Absent, Effect::Replaces, |site| {
        site.root.replace(LEAF, data()).map(|()| Success::done())
    }),
    scenario("ensure_dir", Leaf::Absent, Effect::MakesDirectories, |site| {
        site.root.ensure_dir("g/p/leaf/deep").map(|_| Success::done())
    }),
    scenario("set_access", Leaf::File, Effect::SetsAccess, |site| {
        site.root.set_access(LEAF, ACCESS, Execute::Clear).map(|_| Success::done())
    }),
    scenario("set_access, a directory", Leaf::Directory, Effect::SetsAccess, |site| {
        site.root.set_access(LEAF, ACCESS, Execute::Clear).map(|_| Success::done())
    }),
    scenario("rename, from", Leaf::File, Effect::Moves("leaf", "moved"), |site| {
        site.root.rename(LEAF, "dst/moved").map(|()| Success::done())
    }),
    scenario("rename, to", Leaf::Absent, Effect::Moves("item", "leaf"), |site| {
        site.root.rename("src/item", LEAF).map(|()| Success::done())
    }),
    scenario("rename_to, a directory", Leaf::Directory, Effect::Moves("leaf", "moved"), |site| {
        site.root.rename_to(LEAF, &site.host, "moved").map(|()| Success::done())
    }),
    scenario("remove_file", Leaf::File, Effect::RemovesFile, |site| {
        site.root.remove_file(LEAF).map(|()| Success::done())
    }),
    scenario("remove_tree", Leaf::Directory, Effect::RemovesTree(LEAF), |site| {
        site.root.remove_tree_contained(LEAF).map(|removed| removal(removed.is_complete()))
    }),
    scenario("remove_tree, inside", Leaf::Directory, Effect::RemovesTree("g"), |site| {
        site.root.remove_tree_contained("g").map(|removed| removal(removed.is_complete()))
    }),
    // Five levels, three of which can be open: the others are moved up, or closed and entered again.
    scenario("remove_tree, few descriptors", Leaf::Directory, Effect::RemovesTree("g"), |site| {
        let removed = with_descriptors(3, || site.root.remove_tree_contained("g"))?;
        Ok(removal(removed.is_complete()))
    }),
    scenario("remove_tree, quarantined", Leaf::Directory, Effect::RemovesTree(LEAF), |site| {
        let removed = site.root.remove_tree_quarantined(LEAF, &site.host, Budget::default())?;
        Ok(removal(removed.is_complete()))
    }),
];

/// Runs `body` with no more than `spare` descriptors left.
fn with_descriptors<T>(spare: u64, body: impl FnOnce() -> T) -> T {
    let limit = getrlimit(Resource::Nofile);
    let free = rustix::io::dup(std::io::stdout()).map_or(0, |free| free.as_raw_fd());
    let few = u64::try_from(free).ok().map(|free| free + spare);
    let few = Rlimit { current: few.min(limit.current.or(few)), ..limit };
    // Without it this row shows less, and no harm is done.
    let _ = setrlimit(Resource::Nofile, few);
    let outcome = body();
    let _ = setrlimit(Resource::Nofile, limit);
    outcome
}

fn removal(complete: bool) -> Success {
    Success { incomplete: !complete, ..Success::default() }
}

fn stream(root: &Root) -> Result<beneath::NewFile> {
    let mut file = root.new_file(LEAF)?;
    let data = data();
    let (first, second) = data.split_at(data.len() / 3);
    // A write that failed is told again, typed, by the commit.
    let _ = file.write_all(first.as_bytes()).and_then(|()| file.write_all(second.as_bytes()));
    Ok(file)
}

fn list(root: &Root, path: &str) -> Result<Success> {
    gather(root.list(path)?)
}

fn walk(root: &Root, path: &str) -> Result<Success> {
    gather(root.walk(path, WalkLimits::default())?)
}

fn gather(found: impl Iterator<Item = Result<beneath::Entry>>) -> Result<Success> {
    let mut entries = Vec::new();
    for entry in found {
        let entry = entry?;
        entries.push((entry.path().to_string_lossy().into_owned(), entry.metadata().ino()));
    }
    entries.sort();
    Ok(Success { entries, ..Success::default() })
}

/// Whether the scenario needs a process of its own each time.
pub(crate) fn is_cold(name: &str) -> bool {
    SCENARIOS.iter().any(|scenario| scenario.name == name && scenario.cold)
}

/// What the controller asks of the victim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) scenario: &'a str,
    pub(crate) base: &'a Path,
    pub(crate) resolver: ResolverChoice,
    pub(crate) durability: Durability,
}

impl Request<'_> {
    pub(crate) fn line(&self) -> String {
        let resolver = if self.resolver == ResolverChoice::Walk { "walk" } else { "openat2" };
        let durability = if self.durability == Durability::Full { "full" } else { "none" };
        format!("{}\t{resolver}\t{durability}\t{}", self.scenario, self.base.display())
    }
}

/// Serves one request as the victim.
pub(crate) fn answer(request: &str) -> String {
    answer_around(request, &|part| marked(part))
}

/// Serves one request, with the call itself made inside `around`.
pub(crate) fn answer_around(request: &str, around: &dyn Fn(&mut dyn FnMut())) -> String {
    let fields: Vec<&str> = request.split('\t').collect();
    let [name, resolver, durability, base] = fields[..] else { return "{}".into() };
    let base = PathBuf::from(base);
    if let Some(control) = naive::CONTROLS.iter().find(|control| control.name == name) {
        return answer_control(control, &base);
    }
    let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name) else { return "{}".into() };
    let policy = Policy::default()
        .with_links(scenario.links)
        .with_resolver(if resolver == "walk" { ResolverChoice::Walk } else { ResolverChoice::Openat2 })
        .with_durability(if durability == "full" { Durability::Full } else { Durability::None });
    let open = || -> Result<Site> {
        let open = |dir: &str| -> Result<Root> {
            Ok(Root::open_ambient(base.join(dir), ambient_authority())?.with_policy(policy.clone()))
        };
        Ok(Site { root: open("root")?, host: open("host")? })
    };
    let run = |site: &Site| {
        let before = site.root.resolver();
        let result = (scenario.run)(site);
        (result, site.root.resolver() == before)
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
            told(result)
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

fn told(result: Result<Success>) -> Value {
    match result {
        Ok(success) => json!({
            "ok": true, "data": success.data, "entries": success.entries, "incomplete": success.incomplete,
        }),
        Err(error) => {
            json!({ "ok": false, "kind": format!("{:?}", error.kind()), "error": error.to_string() })
        }
    }
}

fn answer_control(control: &naive::Control, base: &Path) -> String {
    let before = descriptors();
    let result = marked(|| (control.run)(&base.join("root")));
    let after = descriptors();
    let mut report = match result {
        Ok(success) => told(Ok(success)),
        Err(error) => json!({ "ok": false, "kind": "Naive", "error": error.to_string() }),
    };
    report["descriptors"] = json!([before, after]);
    report["same_resolver"] = json!(true);
    report.to_string()
}

/// How many descriptors this process holds.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The victim's answer, parsed.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) result: std::result::Result<Success, (String, String)>,
    pub(crate) panic: Option<String>,
    pub(crate) descriptors: (u64, u64),
    pub(crate) same_resolver: bool,
}

impl Report {
    pub(crate) fn parse(line: &str) -> Self {
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
    pub(crate) fn verdict(&self) -> String {
        match (&self.panic, &self.result) {
            (Some(_), _) => "panic".into(),
            (None, Ok(success)) if success.incomplete => "incomplete".into(),
            (None, Ok(_)) => "ok".into(),
            (None, Err((kind, _))) => kind.clone(),
        }
    }
}
