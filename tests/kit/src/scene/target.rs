//! Where in a scene a guest strikes.

use std::fs;
use std::io;
use std::path::Path;

use super::Scene;
use super::scenario::Scenario;
use crate::operations::Leaf;
use crate::snapshot::is_temporary;
use crate::strikes::{Aim, At, STRIKES, Strike};

/// A place that strikes are aimed at.
#[derive(Debug)]
pub struct Target {
    pub name: &'static str,
    pub aim: Aim,
    path: &'static str,
    /// The directory outside that has the names beneath it.
    twin: &'static str,
}

pub const TARGETS: &[Target] = &[
    Target { name: "leaf", aim: Aim::Leaf, path: "g/p/leaf", twin: "dir" },
    Target { name: "leaf", aim: Aim::FileLeaf, path: "g/p/leaf", twin: "dir" },
    Target { name: "in the leaf: file", aim: Aim::FileInLeaf, path: "g/p/leaf/a", twin: "dir" },
    Target { name: "in the leaf: directory", aim: Aim::DirectoryInLeaf, path: "g/p/leaf/sub", twin: "dir" },
    Target { name: "parent", aim: Aim::Parent, path: "g/p", twin: "dir" },
    Target { name: "grandparent", aim: Aim::Grandparent, path: "g", twin: "top" },
    Target { name: "rename target", aim: Aim::RenameDirectory, path: "dst", twin: "dir" },
    Target { name: "rename target: the name", aim: Aim::RenameName, path: "dst/moved", twin: "dir" },
    Target { name: "rename source", aim: Aim::RenameSource, path: "src/item", twin: "dir" },
    Target { name: "temporary", aim: Aim::Temporary, path: "", twin: "dir" },
];

impl Target {
    /// Whether there is anything to act on.
    pub fn makes_sense(&self, scenario: &Scenario, has_temporary: bool) -> bool {
        match self.aim {
            Aim::FileLeaf => matches!(scenario.leaf, Leaf::Absent | Leaf::File),
            Aim::FileInLeaf | Aim::DirectoryInLeaf => scenario.leaf == Leaf::Directory,
            Aim::RenameDirectory | Aim::RenameName | Aim::RenameSource => scenario.ends().is_some(),
            Aim::Temporary => has_temporary,
            Aim::Leaf | Aim::Parent | Aim::Grandparent => true,
            Aim::Session => false,
        }
    }
}

/// A strike at a target.
#[derive(Clone, Copy)]
pub struct Blow {
    pub strike: &'static Strike,
    pub target: &'static Target,
}

/// Every strike at every target that it is aimed at.
pub fn blows() -> impl Iterator<Item = Blow> {
    STRIKES.iter().flat_map(|strike| {
        let aimed = TARGETS.iter().filter(|target| strike.is_aimed_at(target.aim));
        aimed.map(move |target| Blow { strike, target })
    })
}

impl Blow {
    pub fn name(&self) -> String {
        format!("{}: {}", self.target.name, self.strike.name)
    }

    pub fn is(&self, aim: Aim, strike: &str) -> bool {
        self.target.aim == aim && self.strike.name == strike
    }

    /// Whether it is this strike, or a variation of it.
    pub fn is_like(&self, aim: Aim, strike: &str) -> bool {
        self.target.aim == aim && self.strike.name.starts_with(strike)
    }

    /// Strikes. It is no attack where there is nothing to act on.
    pub fn apply(&self, scene: &Scene) -> io::Result<()> {
        let root = scene.root();
        if self.target.aim != Aim::Temporary {
            return self.strike_at(scene, &root.join(self.target.path));
        }
        let mut met = false;
        for dir in ["g/p", "g", "g/sib", ".", "dst"] {
            for entry in fs::read_dir(root.join(dir)).into_iter().flatten() {
                let path = entry?.path();
                if is_temporary(&path) {
                    self.strike_at(scene, &path)?;
                    met = true;
                }
            }
        }
        if met { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn strike_at(&self, scene: &Scene, entry: &Path) -> io::Result<()> {
        let root = scene.root();
        self.strike.apply(&At {
            entry,
            guest: &root,
            spare: &root.join("spare/thing"),
            exile: &scene.base.join("exile/thing"),
            outside: &scene.outside(),
            twin: self.target.twin,
            sibling: &root.join("g/sib"),
            leaf: (&root.join("g/p/leaf"), scene.leaf_kind),
        })
    }
}
