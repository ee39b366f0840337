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
use crate::naive::{Trust, read_counted};
use crate::operations::{Effect, Leaf, OPERATIONS, Operation, Success, Task, operation};
use crate::scene::Scene;
use crate::scene::scenario::Scenario;
use crate::strikes::exchange::{Bait, DEEP_LINK, GRANDPARENT_LINK, LEAF_FIFO, PARENT_LINK};

/// Calls per kind and resolver when nothing else is asked for.
const QUICK: u64 = 4_000;
/// The same for each operation of the kinds in which every operation gets the whole volume.
const QUICK_EACH: u64 = 1_500;

/// One attack.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    name: &'static str,
    /// It is aimed at the operations that fit one of these.
    fits: &'static [Fit],
    plan: Plan,
    /// What the naive host asks for before it uses a path.
    pub(super) trust: Trust<'static>,
    ground: Ground,
    /// Whether the mode bits are part of the attack.
    pub(super) needs_plain_user: bool,
    /// Whether the guest holds a second name of a file of the canary.
    shares_a_file: bool,
    never_refused: Option<&'static str>,
    /// A link that leads to another entry of the guest, and its text.
    linked: Option<(&'static str, &'static str)>,
    /// The directories that can be the leaf's parent, beneath the root.
    pub(super) homes: &'static [&'static str],
}

/// Which operations.
type Fit = fn(&Operation) -> bool;

const ALL: Fit = |_| true;
const ALL_BUT_RENAMES: Fit = |operation| !operation.effect.moves();
const OPENS_FILE: Fit = |operation| operation.opens_files;
const READS_FILE: Fit = |operation| operation.opens_files && operation.effect == Reads;
/// Makes a file where none is.
const MAKES_FILE: Fit = |operation| matches!(operation.effect, Creates | Effect::CopiesHere);
const CREATES: Fit = |operation| operation.effect == Creates;
const LINKS: Fit = |operation| operation.effect == Effect::Links;
const MAKES_DIRECTORIES: Fit = |operation| operation.effect == MakesDirectories;
const SETS_ACCESS: Fit = |operation| operation.effect == Effect::SetsAccess;
const REMOVES_TREE: Fit = |operation| operation.effect == RemovesTree;
const WALKS: Fit = |operation| operation.calls("walk");
/// A rename of no tree.
const RENAMES: Fit = |operation| operation.effect.moves() && operation.leaf != Leaf::Directory;
/// Reads or removes a tree.
const ON_TREE: Fit =
    |operation| operation.leaf == Leaf::Directory && matches!(operation.effect, Reads | RemovesTree);
/// Reads, copies or replaces a file.
const ON_FILE: Fit = |operation| operation.leaf == Leaf::File && (FOLLOWS(operation) || REPLACES(operation));
const REPLACES: Fit = |operation| operation.effect == Replaces;
const READS: Fit = |operation| operation.effect == Reads;
/// Reads or copies what a link at the path leads to.
const FOLLOWS: Fit =
    |operation| operation.leaf != Leaf::Link && matches!(operation.effect, Reads | Effect::CopiesAway);

use Effect::{Creates, MakesDirectories, Reads, RemovesTree, Replaces};

type Plan = fn(&Yard<'_>) -> rustix::io::Result<Flip>;

const fn kind(name: &'static str, fits: &'static [Fit], plan: Plan) -> Kind {
    Kind {
        name,
        fits,
        plan,
        trust: Trust::Root,
        ground: Ground::Usual,
        needs_plain_user: false,
        shares_a_file: false,
        never_refused: None,
        linked: None,
        homes: &["g/p"],
    }
}

impl Kind {
    fn is_deep(&self) -> bool {
        self.homes == [DEEP]
    }

    /// Whether the names of a file are what the race is about.
    fn counts_names(&self) -> bool {
        self.shares_a_file && self.name != "hard-link"
    }
}

const COMES_AND_GOES: Kind = Kind {
    shares_a_file: true,
    ..kind("hard-link-race", &[OPENS_FILE, SETS_ACCESS], |yard| {
        Ok(attacks::link_and_unlink(yard.dir("g/p")?, "leaf", yard.outside("hard")))
    })
};

const KINDS: &[Kind] = &[
    kind("dir-link-1", &[ALL], |yard| yard.endless(&GRANDPARENT_LINK)),
    kind("dir-link-2", &[ALL], |yard| yard.endless(&PARENT_LINK)),
    kind("dir-link-3", &[ON_TREE], attacks::leaf_for_link),
    Kind {
        homes: &[DEEP],
        ..kind("dir-link-4", &[REMOVES_TREE, MAKES_DIRECTORIES, WALKS], |yard| yard.endless(&DEEP_LINK))
    },
    // As the first, against a control that trusts the real path of the directory itself.
    Kind {
        trust: Trust::Directory("g"),
        ..kind("inbox-link", &[READS_FILE, CREATES, LINKS, REMOVES_TREE], |yard| {
            yard.endless(&GRANDPARENT_LINK)
        })
    },
    kind("file-link", &[ON_FILE], attacks::leaf_for_link),
    kind("file-fifo", &[OPENS_FILE], |yard| yard.endless(&LEAF_FIFO)),
    kind("file-dir", &[OPENS_FILE, REMOVES_TREE], attacks::leaf_for_another_type),
    kind("name-nothing", &[OPENS_FILE, MAKES_FILE, MAKES_DIRECTORIES], attacks::leaf_comes_and_goes),
    Kind {
        trust: Trust::Reach,
        ..kind("dangling-link", &[MAKES_FILE], |yard| attacks::comes_and_goes(yard, Bait::Link("nothing")))
    },
    Kind { shares_a_file: true, ..kind("hard-link", &[OPENS_FILE, REPLACES], attacks::leaf_for_second_name) },
    COMES_AND_GOES,
    Kind { name: "hard-link-disk", ground: Ground::Disk, ..COMES_AND_GOES },
    Kind { homes: &["g/p", "g/sib"], ..kind("rename-storm", &[ALL_BUT_RENAMES], attacks::rename_storm) },
    Kind {
        never_refused: Some("a link inside the tree is unlinked or listed, which is no refusal"),
        ..kind("doomed-link", &[REMOVES_TREE, WALKS], attacks::inner_for_link)
    },
    Kind { needs_plain_user: true, ..kind("chmod", &[OPENS_FILE, REMOVES_TREE], attacks::modes) },
    Kind {
        never_refused: Some("what is created meanwhile is removed with the rest"),
        ..kind("create-storm", &[REMOVES_TREE], attacks::create_storm)
    },
    // Links are followed beneath the root: one above the leaf, then one at the leaf itself.
    Kind {
        trust: Trust::Links,
        linked: Some(("g/p", "sib")),
        homes: &["g/sib"],
        ..kind("link-text", &[READS, OPENS_FILE, MAKES_FILE, LINKS], attacks::rewrite_link)
    },
    Kind {
        trust: Trust::Links,
        linked: Some(("g/p/leaf", "../sib/leaf")),
        ..kind("link-swap", &[FOLLOWS], attacks::leaf_for_link)
    },
    Kind { homes: &["g/p", "src", "dst"], ..kind("siblings", &[RENAMES], attacks::exchange_ends) },
];

/// The parent of the leaf where links are exchanged at the fourth level.
const DEEP: &str = "g/sib/deep/p";

/// An operation as it is called under a kind of attack.
fn aim(kind: &Kind, operation: &Operation) -> Scenario {
    // Two levels where directories are made, so that the guest can strike between them.
    let path = match (kind.is_deep(), operation.effect) {
        (false, MakesDirectories) => "g/p/leaf/deep",
        (false, _) => "g/p/leaf",
        (true, MakesDirectories) => "g/sib/deep/p/leaf/deep",
        (true, _) => "g/sib/deep/p/leaf",
    };
    let naive = if kind.counts_names() && operation.opens_files { read_counted } else { operation.naive };
    Scenario { path, naive, ..Scenario::of(operation) }
}

/// What meets the guest of a kind in another way when it is called differently.
fn variation(kind: &Kind) -> Option<Scenario> {
    match kind.name {
        "dir-link-1" | "dir-link-2" | "rename-storm" => {
            Some(Scenario { name: "walk, from the top", path: ".", ..aim(kind, operation("walk")) })
        }
        "create-storm" => {
            let whole = aim(kind, operation("remove_tree_contained_within"));
            Some(Scenario { name: "remove_tree, in parts", run: remove_in_parts, ..whole })
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
    let operations = OPERATIONS.iter().filter(|operation| kind.fits.iter().any(|fit| fit(operation)));
    let aims: Vec<Scenario> =
        operations.map(|operation| aim(&kind, operation)).chain(variation(&kind)).collect();
    // What is left to chance where names are counted is so rare that each gets the whole volume.
    let (shares, quick) = match kind.counts_names() {
        true => (1, QUICK_EACH),
        false => (aims.len() as u64, QUICK),
    };
    let bout = |aim: Scenario| Bout {
        kind: kind.name,
        verb: aim.name,
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

fn never_refused(kind: &Kind, aim: &Scenario) -> Option<&'static str> {
    let at_the_leaf = matches!(kind.name, "file-link" | "hard-link");
    if aim.path == "." {
        return Some("a link that a walk comes across is listed, which is no refusal");
    }
    (at_the_leaf && aim.effect == Replaces)
        .then_some("replace takes the place of whatever entry has the name, a link included")
}

struct Play {
    kind: Kind,
    aim: Scenario,
}

impl Script for Play {
    fn build(&self, base: &Path) -> io::Result<()> {
        let scene = Scene::new(base, self.aim.leaf)?;
        scene.reset()?;
        if let Some((link, text)) = self.kind.linked {
            fs::rename(scene.root().join(link), scene.root().join("spare/linked"))?;
            symlink(text, scene.root().join(link))?;
        }
        if self.kind.is_deep() {
            fs::create_dir(scene.root().join("g/sib/deep"))?;
            fs::rename(scene.root().join("g/p"), scene.root().join(DEEP))?;
        }
        Ok(())
    }

    fn host(&self, contender: Contender, base: &Path) -> io::Result<Box<dyn Host>> {
        Ok(Box::new(Caller::new(self.aim, self.kind, contender, base)?))
    }

    fn guest(&self, base: &Path) -> io::Result<Flip> {
        Ok((self.kind.plan)(&Yard { base, aim: &self.aim })?)
    }
}
