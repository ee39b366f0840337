//! Directories that arrive as a whole.
//!
//! Problem: a workspace that is restored has nothing yet, and each of its files would take a rename of its own.
//!
//! Defence: where all of a directory is new, and everything beneath it has arrived and is to come, the directory itself is
//! renamed. Like the rename of a file that replaces nothing; a guest sees all of it or none.
//!
//! What remains: if the guest makes the directory meanwhile, its files come one by one.

use std::collections::HashMap;

use crate::name::GuestPath;
use crate::root::Root;

/// The host's own copy of what arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged<'p> {
    pub(crate) root: &'p Root,
    /// What is in it, or should have come there, in order.
    pub(crate) all: &'p [GuestPath],
}

/// Which directories have come as a whole.
#[derive(Debug, Default)]
pub(super) struct Wholes {
    /// What comes to names that nothing has, in order.
    plain: Vec<GuestPath>,
    /// By directory, whether it has come.
    tried: HashMap<GuestPath, bool>,
}

impl Wholes {
    pub(super) fn new(mut plain: Vec<GuestPath>) -> Self {
        plain.sort();
        Self { plain, tried: HashMap::new() }
    }

    /// Whether `path` has come, or comes now, with a directory above it.
    pub(super) fn bring(&mut self, staged: Staged<'_>, ours: &Root, path: &GuestPath) -> bool {
        let mut above: Vec<GuestPath> =
            std::iter::successors(path.parent(), GuestPath::parent).filter(|above| !above.is_top()).collect();
        above.reverse();
        above.into_iter().any(|directory| match self.tried.get(&directory) {
            Some(has_come) => *has_come,
            None => {
                let is_all = beneath(staged.all, &directory).len() == beneath(&self.plain, &directory).len();
                let has_come = is_all && staged.root.rename_to(&directory, ours, &directory).is_ok();
                self.tried.insert(directory, has_come);
                has_come
            }
        })
    }
}

/// Those of the sorted `paths` that are in `directory`.
fn beneath<'p>(paths: &'p [GuestPath], directory: &GuestPath) -> &'p [GuestPath] {
    // The character after the slash.
    let [first, last] = [b"/", b"0"].map(|end| [directory.as_bytes(), end].concat());
    let from = paths.partition_point(|path| path.as_bytes() < first.as_slice());
    let to = paths.partition_point(|path| path.as_bytes() < last.as_slice());
    paths.get(from..to).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(raw: &[&str]) -> Vec<GuestPath> {
        raw.iter().map(|raw| GuestPath::new(raw).unwrap()).collect()
    }

    #[test]
    fn directory_comes_whole_only_if_all_of_it_is_to_come() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open_ambient(dir.path(), crate::ambient_authority()).unwrap();
        let all = ["a-b", "a/x", "a/y", "b/in/x", "b/in/y", "b/late", "c/x", "d0/x", "d/x"];
        for path in all.iter().filter(|path| **path != "b/late") {
            let path = GuestPath::new(path).unwrap();
            let path = GuestPath::new("from").unwrap().join(&path).unwrap();
            root.ensure_dir(path.parent().unwrap()).unwrap();
            root.write_exclusive(&path, "x").unwrap();
        }
        // The guest has made one, and one has something that is not to come.
        root.ensure_dir("to/d").unwrap();
        let (from, to) = (root.descend("from").unwrap(), root.descend("to").unwrap());
        let mut sorted = paths(&all);
        sorted.sort();
        let staged = Staged { root: &from, all: &sorted };
        let plain: Vec<&str> = all.into_iter().filter(|path| !["b/late", "c/x"].contains(path)).collect();
        let mut wholes = Wholes::new(paths(&plain));
        for path in &plain {
            let came = wholes.bring(staged, &to, &GuestPath::new(path).unwrap());
            assert_eq!(came, ["a/x", "a/y", "d0/x"].contains(path), "{path}");
            assert_eq!(to.try_exists(path).unwrap(), came, "{path}");
        }
        assert!(!wholes.bring(staged, &to, &GuestPath::new("c/x").unwrap()));
        assert!(from.try_exists("c/x").unwrap());
    }
}
