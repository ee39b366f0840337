//! Which attacks there are, and which operations each is aimed at.
//!
//! An operation is chosen by what it is meant to do, so that a new row of the table is raced without a line here. A kind
//! is aimed only at operations whose naive form it can lead out: unlinking or renaming a link by path follows nothing.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use beneath::{Budget, Result};

use super::attacks::{self, Flip, Yard};
use super::host::Caller;
use super::{Bout, Contender, Ground, Host, Script};
use crate::naive::{Naive, Trust, read_counted};
use crate::operations::{Effect, Leaf, OPERATIONS, Operation, Success, Task, operation};
use crate::scene::Scene;

/// Calls per kind and resolver when nothing else is asked for.
const QUICK: u64 = 8_000;
/// The same for each operation of the kinds in which every operation gets the whole volume.
const QUICK_EACH: u64 = 3_000;

/// One attack.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    name: &'static str,
    fits: fn(&Operation) -> bool,
    plan: fn(&Yard<'_>) -> rustix::io::Result<Flip>,
    /// What the naive host asks for before it uses a path.
    pub(super) trust: Trust<'static>,
    ground: Ground,
    needs_plain_user: bool,
    /// Whether the guest holds a second name of a file of the canary.
    shares_a_file: bool,
    never_refused: Option<&'static str>,
    /// The directories that can be the leaf's parent, beneath the root.
    pub(super) homes: &'static [&'static str],
}

const fn kind(
    name: &'static str,
    fits: fn(&Operation) -> bool,
    plan: fn(&Yard<'_>) -> rustix::io::Result<Flip>,
) -> Kind {
    Kind {
        name,
        fits,
        plan,
        trust: Trust::Root,
        ground: Ground::Usual,
        needs_plain_user: false,
        shares_a_file: false,
        never_refused: None,
        homes: &["g/p"],
    }
}

impl Kind {
    pub(super) fn is_about_modes(&self) -> bool {
        self.needs_plain_user
    }

    /// Whether the names of a file are what the race is about.
    fn counts_names(&self) -> bool {
        self.shares_a_file && self.name != "hard-link"
    }
}

const COMES_AND_GOES: Kind = Kind {
    shares_a_file: true,
    ..kind(
        "hard-link-race",
        |operation| operation.opens_files || operation.effect == Effect::SetsAccess,
        attacks::second_name_comes_and_goes,
    )
};

const KINDS: &[Kind] = &[
    kind("dir-link-1", |_| true, attacks::grandparent_for_link),
    kind("dir-link-2", |_| true, attacks::parent_for_link),
    kind("dir-link-3", on_tree, attacks::leaf_for_link),
    // As the first, against a control that trusts the real path of the directory itself.
    Kind {
        trust: Trust::Directory("g"),
        ..kind(
            "inbox-link",
            |operation| operation.opens_files || makes_file(operation) || removes_tree(operation),
            attacks::grandparent_for_link,
        )
    },
    kind("file-link", on_file, attacks::leaf_for_link),
    kind("file-fifo", |operation| operation.opens_files, attacks::leaf_for_fifo),
    kind(
        "file-dir",
        |operation| operation.opens_files || removes_tree(operation),
        attacks::leaf_for_another_type,
    ),
    kind(
        "name-nothing",
        |operation| operation.opens_files || makes_file(operation) || makes_directory(operation),
        attacks::leaf_comes_and_goes,
    ),
    Kind { trust: Trust::Reach, ..kind("dangling-link", makes_file, attacks::dangling_link_comes_and_goes) },
    Kind {
        shares_a_file: true,
        ..kind(
            "hard-link",
            |operation| operation.opens_files || operation.effect == Effect::Replaces,
            attacks::leaf_for_second_name,
        )
    },
    COMES_AND_GOES,
    Kind { name: "hard-link-disk", ground: Ground::Disk, ..COMES_AND_GOES },
    Kind {
        homes: &["g/p", "g/sib"],
        ..kind("rename-storm", |operation| !renames(operation), attacks::rename_storm)
    },
    Kind {
        never_refused: Some("a link inside the tree is unlinked or listed, which is no refusal"),
        ..kind(
            "doomed-link",
            |operation| removes_tree(operation) || walks(operation),
            attacks::inner_for_link,
        )
    },
    Kind {
        needs_plain_user: true,
        ..kind("chmod", |operation| operation.opens_files || removes_tree(operation), attacks::modes)
    },
    Kind {
        never_refused: Some("what is created meanwhile is removed with the rest"),
        ..kind("create-storm", removes_tree, attacks::create_storm)
    },
    Kind {
        trust: Trust::Links,
        homes: &["g/sib"],
        ..kind("link-text", |operation| operation.opens_files || makes_file(operation), attacks::rewrite_link)
    },
    Kind {
        homes: &["g/p", "src", "dst"],
        ..kind(
            "siblings",
            |operation| renames(operation) && operation.leaf != Leaf::Directory,
            attacks::exchange_ends,
        )
    },
];

fn makes_file(operation: &Operation) -> bool {
    operation.effect == Effect::Creates
}

fn makes_directory(operation: &Operation) -> bool {
    operation.effect == Effect::MakesDirectories
}

fn removes_tree(operation: &Operation) -> bool {
    operation.effect == Effect::RemovesTree
}

fn renames(operation: &Operation) -> bool {
    matches!(operation.effect, Effect::MovesAway | Effect::MovesHere)
}

fn walks(operation: &Operation) -> bool {
    operation.calls("walk")
}

fn on_tree(operation: &Operation) -> bool {
    operation.leaf == Leaf::Directory && matches!(operation.effect, Effect::Reads | Effect::RemovesTree)
}

fn on_file(operation: &Operation) -> bool {
    operation.leaf == Leaf::File && matches!(operation.effect, Effect::Reads | Effect::Replaces)
}

/// An operation and the path it is called with.
#[derive(Clone, Copy)]
pub(super) struct Aim {
    verb: &'static str,
    pub(super) operation: &'static Operation,
    pub(super) path: &'static str,
    pub(super) run: fn(&Task<'_>) -> Result<Success>,
}

impl Aim {
    fn of(operation: &'static Operation) -> Self {
        // Two levels, so that the guest can strike between them.
        let path = if makes_directory(operation) { "g/p/leaf/deep" } else { "g/p/leaf" };
        Self { verb: operation.name, operation, path, run: operation.run }
    }
}

/// What meets the guest of a kind in another way when it is called differently.
fn variation(kind: &Kind) -> Option<Aim> {
    match kind.name {
        "dir-link-1" | "dir-link-2" | "rename-storm" => {
            Some(Aim { verb: "walk, from the top", path: ".", ..Aim::of(operation("walk")) })
        }
        "create-storm" => {
            let whole = operation("remove_tree_contained_within");
            Some(Aim { verb: "remove_tree, in parts", run: remove_in_parts, ..Aim::of(whole) })
        }
        _ => None,
    }
}

/// Every other call stops in the middle, and the next one meets what the guest has added.
fn remove_in_parts(task: &Task<'_>) -> Result<Success> {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let budget = match TURN.fetch_add(1, Ordering::Relaxed) % 2 {
        0 => Budget::default().with_entries(4),
        _ => Budget::default(),
    };
    let removed = task.root.remove_tree_contained_within(task.path, budget)?;
    Ok(Success { incomplete: !removed.is_complete(), ..Success::default() })
}

/// Every attack on every operation that it can be aimed at.
pub fn bouts() -> Vec<Bout> {
    KINDS.iter().flat_map(|kind| bouts_of(*kind)).collect()
}

fn bouts_of(kind: Kind) -> Vec<Bout> {
    let operations = OPERATIONS.iter().filter(|operation| (kind.fits)(operation));
    let aims: Vec<Aim> = operations.map(Aim::of).chain(variation(&kind)).collect();
    // What is left to chance where names are counted is so rare that each gets the whole volume.
    let (shares, quick) = match kind.counts_names() {
        true => (1, QUICK_EACH),
        false => (aims.len() as u64, QUICK),
    };
    let bout = |aim: Aim| Bout {
        kind: kind.name,
        verb: aim.verb,
        shares,
        quick,
        never_refused: kind.never_refused.or_else(|| never_refused(&kind, &aim)),
        without_walk: (kind.trust == Trust::Links)
            .then_some("following links needs openat2; the walk answers Unsupported to every call"),
        obstacle: None,
        ground: kind.ground,
        needs_plain_user: kind.needs_plain_user,
        shared: kind.shares_a_file.then_some("hard"),
        script: Box::new(Play { kind, aim }),
    };
    aims.into_iter().map(bout).collect()
}

fn never_refused(kind: &Kind, aim: &Aim) -> Option<&'static str> {
    let at_the_leaf = matches!(kind.name, "file-link" | "hard-link");
    if aim.path == "." {
        return Some("a link that a walk comes across is listed, which is no refusal");
    }
    (at_the_leaf && aim.operation.effect == Effect::Replaces)
        .then_some("replace takes the place of whatever entry has the name, a link included")
}

struct Play {
    kind: Kind,
    aim: Aim,
}

impl Play {
    /// The same operation done by path.
    fn naive(&self) -> Option<Naive> {
        match self.kind.counts_names() && self.aim.operation.opens_files {
            true => Some(read_counted),
            false => Some(self.aim.operation.naive),
        }
    }
}

impl Script for Play {
    fn build(&self, base: &Path) -> io::Result<()> {
        let scene = Scene::new(base, self.aim.operation.leaf)?;
        scene.reset()?;
        if self.kind.trust == Trust::Links {
            let parent = scene.root().join("g/p");
            fs::rename(&parent, scene.root().join("spare/p"))?;
            symlink("sib", parent)?;
        }
        Ok(())
    }

    fn host(&self, contender: Contender, base: &Path) -> io::Result<Box<dyn Host>> {
        Ok(Box::new(Caller::new(self.aim, self.kind, self.naive(), contender, base)?))
    }

    fn guest(&self, base: &Path) -> io::Result<Flip> {
        Ok((self.kind.plan)(&Yard { base, operation: self.aim.operation })?)
    }
}
