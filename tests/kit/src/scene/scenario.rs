//! The operations as they are run in a scene, and the circumstances that make a row of their own.

use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::LazyLock;

use beneath::{Links, ResolverChoice, Result, Root};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::lack::Lack;
use super::{Leaf, data};
use crate::naive::{Attempt, Caught, FLAWED, Naive, Trust};
use crate::operations::{Effect, MOST, OPERATIONS, Operation, Success, Task, operation};

pub const LEAF: &str = "g/p/leaf";
const TARGET: &str = "dst/moved";
const SOURCE: &str = "src/item";

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
    pub call: Call,
}

/// What is called.
#[derive(Clone, Copy)]
pub enum Call {
    Crate(fn(&Task<'_>) -> Result<Success>),
    /// A control that checks first, or is flawed otherwise.
    Naive(Naive, Caught),
}

impl Scenario {
    const fn of(operation: &Operation) -> Self {
        Self {
            name: operation.name,
            path: LEAF,
            leaf: operation.leaf,
            effect: operation.effect,
            links: Links::Refuse,
            cold: false,
            opens_files: operation.opens_files,
            counts_names: operation.opens_files || matches!(operation.effect, Effect::SetsAccess),
            call: Call::Crate(operation.run),
        }
    }

    pub fn is_control(&self) -> bool {
        matches!(self.call, Call::Naive(..))
    }

    pub fn is_caught(&self, by: Caught) -> bool {
        matches!(self.call, Call::Naive(_, caught) if caught == by)
    }

    /// The resolvers it can be run with.
    pub fn resolvers(&self) -> &'static [ResolverChoice] {
        match self.links {
            // A control knows none; following links needs openat2.
            _ if self.is_control() => &[ResolverChoice::Openat2],
            Links::FollowBeneath => &[ResolverChoice::Openat2],
            _ => &[ResolverChoice::Openat2, ResolverChoice::Walk],
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
            Effect::MovesAway | Effect::MovesHere => &[Lack::Nothing, Lack::NoReplace],
            _ => &[Lack::Nothing],
        }
    }

    pub fn other(&self) -> &'static str {
        if self.effect == Effect::MovesHere { SOURCE } else { TARGET }
    }

    /// What a rename gives another name, and that name.
    pub fn moves(&self) -> Option<(&'static str, &'static str)> {
        match self.effect {
            Effect::MovesAway => Some(("leaf", "moved")),
            Effect::MovesHere => Some(("item", "leaf")),
            _ => None,
        }
    }

    pub(super) fn run(
        &self,
        run: fn(&Task<'_>) -> Result<Success>,
        root: &Root,
        host: &Root,
    ) -> Result<Success> {
        let data = data();
        let other = Path::new(self.other());
        run(&Task { root, path: Path::new(self.path), data: data.as_bytes(), host, other })
    }

    pub(super) fn attempt(&self, naive: Naive, root: &Path) -> std::io::Result<Success> {
        let data = data();
        naive(&Attempt {
            root,
            path: Path::new(self.path),
            data: data.as_bytes(),
            other: Path::new(self.other()),
            trust: Trust::Root,
            pause: &|| {},
        })
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
            opens_files: true,
            counts_names: true,
            call: Call::Crate(|task| {
                let inner = task.root.descend(task.path)?;
                inner.read_contained("a", MOST).map(|bytes| Success::read(&bytes))
            }),
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
            call: Call::Crate(|task| with_descriptors(3, || (operation("remove_tree_contained").run)(task))),
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
        controls.push(Scenario {
            name,
            opens_files: false,
            counts_names: false,
            call: Call::Naive(naive, caught),
            ..Scenario::of(operation)
        });
    }
    controls.extend(FLAWED.iter().map(|flawed| Scenario {
        name: flawed.name,
        leaf: flawed.leaf,
        effect: flawed.effect,
        opens_files: false,
        counts_names: false,
        call: Call::Naive(flawed.run, flawed.caught),
        ..Scenario::of(operation("read_contained"))
    }));
    controls
}

/// The scenario with this name.
pub fn scenario(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
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
