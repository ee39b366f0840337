//! Sequences of operations against a model tree that lives in memory: same answers, same tree.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, unreachable_pub)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use beneath::{Ensured, ErrorKind, Policy, Root, WalkLimits};
use proptest::prelude::*;
use support::{Arena, resolvers};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    File(Vec<u8>),
    Link,
    Fifo,
}

/// The tree as it should be: every path but the root itself.
#[derive(Debug, Default)]
struct Model(BTreeMap<PathBuf, Node>);

impl Model {
    fn get(&self, path: &Path) -> Result<&Node, ErrorKind> {
        self.0.get(path).ok_or(ErrorKind::NotFound)
    }

    /// What resolving up to, and not including, the last component gives.
    fn parent(&self, path: &Path) -> Result<(), ErrorKind> {
        let ancestors: Vec<_> =
            path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
        ancestors.into_iter().rev().try_for_each(|above| self.directory(above))
    }

    fn directory(&self, path: &Path) -> Result<(), ErrorKind> {
        match self.get(path)? {
            Node::Dir => Ok(()),
            Node::Link => Err(ErrorKind::Symlink),
            _ => Err(ErrorKind::NotDirectory),
        }
    }

    fn children(&self, path: &Path) -> BTreeSet<PathBuf> {
        self.0.keys().filter(|key| key.parent() == Some(path)).cloned().collect()
    }

    fn beneath(&self, path: &Path) -> Vec<PathBuf> {
        self.0.keys().filter(|key| key.starts_with(path)).cloned().collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    EnsureDir(PathBuf),
    Write(PathBuf, Vec<u8>),
    Replace(PathBuf, Vec<u8>),
    Read(PathBuf),
    Describe(PathBuf),
    List(PathBuf),
    Rename(PathBuf, PathBuf),
    RemoveFile(PathBuf),
    RemoveTree(PathBuf),
    /// The guest plants a link out, or a FIFO, where the name is free.
    Plant(PathBuf, bool),
}

fn path() -> impl Strategy<Value = PathBuf> {
    let name = prop::sample::select(vec!["a", "b", "é"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.into_iter().collect())
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..9);
    prop_oneof![
        4 => path().prop_map(Step::EnsureDir),
        4 => (path(), bytes()).prop_map(|(path, bytes)| Step::Write(path, bytes)),
        2 => (path(), bytes()).prop_map(|(path, bytes)| Step::Replace(path, bytes)),
        3 => path().prop_map(Step::Read),
        2 => path().prop_map(Step::Describe),
        2 => path().prop_map(Step::List),
        4 => (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => path().prop_map(Step::RemoveFile),
        2 => path().prop_map(Step::RemoveTree),
        1 => (path(), any::<bool>()).prop_map(|(path, link)| Step::Plant(path, link)),
    ]
}

fn kinds<T>(result: beneath::Result<T>) -> Result<T, ErrorKind> {
    result.map_err(|error| error.kind())
}

/// Takes one step on both sides and compares the answers.
fn take(step: &Step, root: &Root, arena: &Arena, model: &mut Model) {
    match step {
        Step::EnsureDir(path) => {
            let expected = model.parent(path).and_then(|()| model.directory(path));
            let missing = !model.0.contains_key(path);
            let got = kinds(root.ensure_dir(path));
            match expected {
                Ok(()) => assert_eq!(got, Ok(Ensured::Existed)),
                Err(ErrorKind::NotFound) => {
                    assert_eq!(got, Ok(Ensured::Created));
                    assert!(missing);
                    for level in path.ancestors().filter(|level| !level.as_os_str().is_empty()) {
                        model.0.entry(level.to_path_buf()).or_insert(Node::Dir);
                    }
                }
                Err(kind) => assert_eq!(got, Err(kind)),
            }
        }
        Step::Write(path, bytes) => {
            let expected = model.parent(path).and_then(|()| match model.get(path) {
                Ok(_) => Err(ErrorKind::AlreadyExists),
                Err(_) => Ok(()),
            });
            assert_eq!(kinds(root.write_exclusive(path, bytes)), expected);
            if expected.is_ok() {
                model.0.insert(path.clone(), Node::File(bytes.clone()));
            }
        }
        Step::Replace(path, bytes) => {
            let expected = model.parent(path).and_then(|()| match model.get(path) {
                Ok(Node::Dir) => Err(ErrorKind::NotRegular),
                _ => Ok(()),
            });
            assert_eq!(kinds(root.replace(path, bytes)).is_ok(), expected.is_ok());
            if expected.is_ok() {
                model.0.insert(path.clone(), Node::File(bytes.clone()));
            }
        }
        Step::Read(path) => {
            let expected = model.parent(path).and_then(|()| match model.get(path)? {
                Node::File(bytes) => Ok(bytes.clone()),
                Node::Link => Err(ErrorKind::Symlink),
                Node::Dir | Node::Fifo => Err(ErrorKind::NotRegular),
            });
            assert_eq!(kinds(root.read_contained(path, 99)), expected);
        }
        Step::Describe(path) => {
            let expected = model.parent(path).and_then(|()| match model.get(path)? {
                Node::Link => Err(ErrorKind::Symlink),
                node => Ok((matches!(node, Node::Dir), matches!(node, Node::File(_)))),
            });
            let got = kinds(root.metadata(path)).map(|meta| (meta.is_dir(), meta.is_file()));
            assert_eq!(got, expected);
        }
        Step::List(path) => {
            let expected =
                model.parent(path).and_then(|()| model.directory(path)).map(|()| model.children(path));
            let got = kinds(root.list(path))
                .map(|list| list.map(|entry| path.join(entry.unwrap().path())).collect());
            assert_eq!(got, expected);
        }
        Step::Rename(from, to) => {
            let parents = model.parent(from).and_then(|()| model.parent(to));
            let got = kinds(root.rename(from, to));
            let expected =
                parents.and_then(|()| model.get(from).map(drop)).and_then(|()| match model.get(to) {
                    Ok(_) => Err(ErrorKind::AlreadyExists),
                    Err(_) if to.starts_with(from) => Err(ErrorKind::InvalidPath),
                    Err(_) => Ok(()),
                });
            assert_eq!(got, expected);
            if expected.is_ok() {
                for old in model.beneath(from) {
                    let node = model.0.remove(&old).unwrap();
                    let rest = old.strip_prefix(from).unwrap();
                    let new = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    model.0.insert(new, node);
                }
            }
        }
        Step::RemoveFile(path) => {
            let expected = model.parent(path).and_then(|()| match model.get(path)? {
                Node::Dir => Err(ErrorKind::NotRegular),
                _ => Ok(()),
            });
            assert_eq!(kinds(root.remove_file(path)), expected);
            if expected.is_ok() {
                model.0.remove(path);
            }
        }
        Step::RemoveTree(path) => {
            let expected = model.parent(path).and_then(|()| model.directory(path));
            let got = kinds(root.remove_tree_contained(path));
            match expected {
                Err(kind) => assert_eq!(got.map(drop), Err(kind)),
                Ok(()) => {
                    let removed = got.unwrap();
                    let gone: Vec<_> =
                        model.beneath(path).into_iter().map(|path| model.0.remove(&path).unwrap()).collect();
                    let dirs = gone.iter().filter(|node| **node == Node::Dir).count() as u64;
                    assert!(removed.is_complete());
                    assert_eq!((removed.directories, removed.files), (dirs, gone.len() as u64 - dirs));
                }
            }
        }
        Step::Plant(path, link) => {
            if model.parent(path).is_ok() && model.get(path).is_err() {
                if *link {
                    arena.link(path, arena.outside());
                } else {
                    arena.fifo(path);
                }
                model.0.insert(path.clone(), if *link { Node::Link } else { Node::Fifo });
            }
        }
    }
}

/// The whole tree, seen by the walk and by plain calls, is the model's.
fn compare(root: &Root, arena: &Arena, model: &Model) {
    let walked: BTreeSet<_> = root
        .walk(".", WalkLimits::default())
        .unwrap()
        .map(|entry| entry.unwrap().path().to_path_buf())
        .collect();
    assert_eq!(walked, model.0.keys().cloned().collect());
    let snapshot = arena.snapshot();
    assert!(snapshot.paths().eq(model.0.keys().map(PathBuf::as_path)));
    for (path, node) in &model.0 {
        if let Node::File(bytes) = node {
            assert_eq!(&arena.content(path), bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_agrees_with_the_model(steps in prop::collection::vec(step(), 1..40)) {
        for choice in resolvers() {
            let arena = Arena::quick();
            let root = arena.open(Policy::default().with_resolver(choice));
            let mut model = Model::default();
            for step in &steps {
                take(step, &root, &arena, &mut model);
            }
            compare(&root, &arena, &model);
            arena.verify();
        }
    }

    #[test]
    fn no_bytes_as_a_path_panic_or_escape(raw in prop::collection::vec(any::<u8>(), 0..40)) {
        use std::os::unix::ffi::OsStrExt as _;
        let arena = Arena::quick();
        let path = Path::new(std::ffi::OsStr::from_bytes(&raw));
        for choice in resolvers() {
            let root = arena.open(Policy::default().with_resolver(choice));
            for op in support::Op::ALL {
                let _ = op.run(&root, path);
            }
        }
        arena.verify();
    }

    #[test]
    fn no_path_made_of_traps_escapes(
        parts in prop::collection::vec(
            prop::sample::select(vec!["a", "..", ".", "", "out", "rel", "loop", "/", "secret", "sub", "\0"]),
            0..6,
        )
    ) {
        let raw = parts.join("/");
        for choice in resolvers() {
            let arena = Arena::quick();
            arena.dir("a").link("out", arena.outside()).link("rel", "../outside").link("a/rel", "../../outside");
            arena.link("loop", "loop").link("a/out", arena.outside()).file(support::op::RENAME_SOURCE, "");
            let root = arena.open(Policy::default().with_resolver(choice));
            for op in support::Op::ALL {
                let _ = op.run(&root, &raw);
            }
            arena.verify();
        }
    }
}
