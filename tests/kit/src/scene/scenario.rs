//! The operations as they are run in a scene, and the circumstances that make a row of their own.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::LazyLock;

use beneath::{Links, Result, Root};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::lack::Lack;
use super::{Leaf, Scene, data};
use crate::contender::Contender;
use crate::naive::{Attempt, Caught, FLAWED, Naive, Trust};
use crate::operations::{Effect, MOST, OPERATIONS, Operation, Success, Task, operation};

pub const LEAF: &str = "g/p/leaf";

/// One call in a scene.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// Where the call is aimed at.
    pub path: &'static str,
    pub leaf: Leaf,
    pub effect: Effect,
    pub links: Links,
    /// Opens its root itself, in a process that has made no other call of the crate.
    pub cold: bool,
    /// Reads a file's content, which is done differently where device nodes are dead.
    pub opens_files: bool,
    /// Its answer depends on how many names a file has.
    pub counts_names: bool,
    /// Gives the file the mode of the one that it replaces.
    pub keeps_mode: bool,
    pub run: fn(&Task<'_>) -> Result<Success>,
    /// The same done by path.
    pub naive: Naive,
    /// What must catch it, if it is a control and so done by path.
    pub caught: Option<Caught>,
}

impl Scenario {
    pub(crate) const fn of(operation: &Operation) -> Self {
        Self {
            name: operation.name,
            path: LEAF,
            leaf: operation.leaf,
            effect: operation.effect,
            links: Links::Refuse,
            cold: false,
            opens_files: operation.opens_files,
            counts_names: operation.opens_files || matches!(operation.effect, Effect::SetsAccess),
            keeps_mode: operation.keeps_mode,
            run: operation.run,
            naive: operation.naive,
            caught: None,
        }
    }

    /// The same as a control, which must be caught.
    fn control(self, name: &'static str, caught: Caught) -> Self {
        Self { name, opens_files: false, counts_names: false, caught: Some(caught), ..self }
    }

    pub fn is_control(&self) -> bool {
        self.caught.is_some()
    }

    pub fn is_caught(&self, by: Caught) -> bool {
        self.caught == Some(by)
    }

    /// Who it can be run by.
    pub fn contenders(&self) -> &'static [Contender] {
        match self.links {
            _ if self.is_control() => &[Contender::Control],
            // Following links needs openat2.
            Links::FollowBeneath => &[Contender::Openat2],
            _ => Contender::RESOLVERS,
        }
    }

    /// What the kernel or the file system may lack for this call to take another way.
    pub fn lacks(&self) -> &'static [Lack] {
        match self.effect {
            _ if self.is_control() => &[Lack::Nothing],
            Effect::RemovesTree => &[Lack::Nothing, Lack::Moves],
            Effect::Creates | Effect::Replaces => {
                &[Lack::Nothing, Lack::UnnamedFiles, Lack::EmptyPath, Lack::HardLinks]
            }
            Effect::CopiesAway | Effect::CopiesHere => {
                &[Lack::Nothing, Lack::UnnamedFiles, Lack::EmptyPath, Lack::HardLinks, Lack::CopyRange]
            }
            Effect::MovesAway | Effect::MovesHere => &[Lack::Nothing, Lack::NoReplace],
            _ => &[Lack::Nothing],
        }
    }

    /// The names that a move or a copy has to do with: the one that it finds, and the one that it gives.
    pub fn ends(&self) -> Option<(&'static str, &'static str)> {
        match self.effect {
            effect if effect.brings() => Some(("item", "leaf")),
            Effect::MovesAway | Effect::CopiesAway => Some(("leaf", "moved")),
            _ => None,
        }
    }

    /// Whether what the call makes is there at this moment.
    pub fn is_published(&self, scene: &Scene) -> bool {
        let leaf = scene.root().join(LEAF);
        match self.effect {
            Effect::Creates | Effect::Replaces => {
                std::fs::read(leaf).is_ok_and(|now| now == data().as_bytes())
            }
            Effect::CopiesHere | Effect::Links => leaf.symlink_metadata().is_ok(),
            Effect::CopiesAway => {
                let host = scene.base.join("host/moved");
                host.exists() || scene.root().join(self.effect.other_end()).exists()
            }
            _ => false,
        }
    }

    pub(crate) fn call(&self, root: &Root, host: &Root) -> Result<Success> {
        let (path, other, data) = (Path::new(self.path), self.effect.other_end(), data());
        (self.run)(&Task { root, path, data: data.as_bytes(), host, other })
    }

    /// The call as a control makes it.
    pub(crate) fn attempt(&self, root: &Path, trust: Trust<'_>, pause: &dyn Fn()) -> io::Result<Success> {
        // Longer than the canary's files, so that one it is written over changes its size too.
        let (path, other, data) = (Path::new(self.path), self.effect.other_end(), data());
        (self.naive)(&Attempt { root, path, data: data.as_bytes(), other, trust, pause })
    }
}

/// Every operation, then the variations, then the controls.
pub static SCENARIOS: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
    let variations = variations();
    let varied = |operation: &&Operation| variations.iter().any(|scenario| scenario.name == operation.name);
    let mut scenarios: Vec<Scenario> =
        OPERATIONS.iter().filter(|operation| !varied(operation)).map(Scenario::of).collect();
    scenarios.extend(variations);
    scenarios.extend(controls());
    scenarios
});

/// The same calls under other circumstances. Where one takes a whole tree, the attack is also inside it.
fn variations() -> Vec<Scenario> {
    let of = |name: &'static str, operation_name: &str| Scenario {
        name,
        ..Scenario::of(operation(operation_name))
    };
    vec![
        Scenario {
            cold: true,
            opens_files: false,
            counts_names: false,
            ..of("open_ambient, then read", "read_contained")
        },
        Scenario { links: Links::FollowBeneath, ..of("read following links", "read_contained") },
        Scenario {
            links: Links::FollowBeneath,
            leaf: Leaf::Link,
            ..of("read through a link", "read_contained")
        },
        Scenario {
            opens_files: true,
            counts_names: true,
            run: |task| {
                let inner = task.root.descend(task.path)?;
                inner.read_contained("a", MOST).map(|bytes| Success::read(&bytes))
            },
            ..of("descend, then read", "descend")
        },
        Scenario { path: "g/p", leaf: Leaf::File, ..of("list, inside", "list") },
        Scenario { path: "g", ..of("walk, inside", "walk") },
        Scenario { leaf: Leaf::Absent, ..of("replace, nothing there", "replace") },
        Scenario { path: "g/p/leaf/deep", ..of("ensure_dir, two levels", "ensure_dir") },
        Scenario {
            leaf: Leaf::Directory,
            counts_names: false,
            ..of("set_access, a directory", "set_access")
        },
        Scenario { leaf: Leaf::EmptyDirectory, ..of("rename, a directory", "rename, from") },
        // The same code as `remove_tree_contained`, so here it starts further up.
        Scenario { path: "g", ..of("remove_tree_contained_within", "remove_tree_contained_within") },
        // Five levels, three of which can be open: the others are moved up, or closed and entered again.
        Scenario {
            path: "g",
            run: |task| with_descriptors(3, || (operation("remove_tree_contained").run)(task)),
            ..of("remove_tree_contained, few descriptors", "remove_tree_contained")
        },
    ]
}

fn controls() -> Vec<Scenario> {
    let mut known: Vec<Naive> = Vec::new();
    let mut controls = Vec::new();
    for operation in OPERATIONS {
        let naive = operation.naive;
        // Several operations may be done in one naive way, which is judged once.
        if known.iter().any(|known| std::ptr::fn_addr_eq(*known, naive)) {
            continue;
        }
        known.push(naive);
        let caught = if operation.effect == Effect::SetsAccess { Caught::ByNames } else { Caught::ByStrike };
        // Named once for the life of the process.
        let name = Box::leak(format!("control: {}", operation.name).into_boxed_str());
        controls.push(Scenario::of(operation).control(name, caught));
    }
    let read = Scenario::of(operation("read_contained"));
    let through = Scenario { links: Links::FollowBeneath, leaf: Leaf::Link, ..read };
    controls.push(through.control("control: read through a link", Caught::ByStrike));
    controls.extend(FLAWED.iter().map(|&(name, leaf, effect, caught, naive)| {
        Scenario { leaf, effect, naive, ..read }.control(name, caught)
    }));
    controls
}

/// The scenario with this name.
pub(super) fn scenario(name: &str) -> &'static Scenario {
    SCENARIOS.iter().find(|scenario| scenario.name == name).expect("a request names a scenario")
}

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
