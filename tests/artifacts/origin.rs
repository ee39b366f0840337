//! The host on which an agent has worked: with what git, npm, python and cargo leave, and what no tool leaves and a guest may.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use beneath::{Root, ambient_authority};
use beneath_kit::odd;
use beneath_kit::tools::{self, Tool, run, succeeds};

use crate::support::{Home, facts};

/// What is at each path.
pub(crate) type Facts = BTreeMap<PathBuf, String>;

/// As many entries as a listing of S3 does not show at once, though some of them are no objects.
const SEVERAL_PAGES: usize = 2000;

/// The tools that are here.
struct Tools {
    git: Option<Tool>,
    npm: Option<Tool>,
    python: Option<Tool>,
    cargo: Option<Tool>,
}

/// The host on which the tree was made.
pub(crate) struct Origin {
    pub(crate) home: Home,
    tools: Tools,
    /// What belongs to no workspace.
    beside: tempfile::TempDir,
    /// What the tree is.
    pub(crate) facts: Facts,
}

impl Origin {
    pub(crate) fn new() -> Self {
        let tools = Tools {
            git: Tool::find("git", &["--version"]),
            npm: Tool::find("npm", &["--version"]),
            python: Tool::find("python3", &["-c", "import venv, ensurepip"]),
            cargo: Tool::find(env!("CARGO"), &["--version"]),
        };
        let (home, beside) = (Home::new(), tempfile::tempdir().unwrap());
        let mut origin = Self { home, tools, beside, facts: Facts::new() };
        origin.mount(&origin.home);
        origin.use_tools();
        plant(&origin.home.workspace("odd"));
        // Whichever tools are missing.
        for number in facts(&origin.home.workspace("")).len()..SEVERAL_PAGES {
            fs::write(origin.home.workspace(&format!("odd/{number}")), "x").unwrap();
        }
        origin.facts = facts(&origin.home.workspace(""));
        origin
    }

    /// Where a guest finds its workspace, whichever host it is on: some tools leave absolute paths.
    fn mounted(&self) -> PathBuf {
        self.beside.path().join("mounted")
    }

    /// From now on it is that of `home`.
    fn mount(&self, home: &Home) {
        let _ = fs::remove_file(self.mounted());
        symlink(home.path("workspace"), self.mounted()).unwrap();
    }

    fn use_tools(&mut self) {
        let (top, beside) = (self.mounted(), self.beside.path().to_owned());
        let Tools { git, npm, python, cargo } = &mut self.tools;
        if let Some(git) = git {
            tools::clone_repository(git, &beside.join("origin"), &top.join("repo"));
            // A clone of a path gives the objects a second name.
            succeeds(&mut git.at(&top, &["clone", "-q", "repo", "second"]));
            assert!(has_several_names(&top.join("second/.git/objects")), "no object has two names");
        }
        npm.take_if(|npm| !tools::install_packages(npm, &top.join("project"), &beside.join("npm")));
        if let Some(python) = python {
            let venv = top.join("venv");
            succeeds(&mut python.at(&top, &["-m", "venv", "--symlinks", venv.to_str().unwrap()]));
        }
        if let Some(cargo) = cargo {
            tools::build_package(cargo, &top.join("tiny"));
            assert!(has_several_names(&top.join("tiny/target/debug")), "the program has one name");
        }
    }

    /// The tools go on working on the host `home`.
    pub(crate) fn works_on(&self, home: &Home) {
        self.mount(home);
        let (top, Tools { git, npm, python, cargo }) = (self.mounted(), &self.tools);
        if let Some(git) = git {
            ["repo", "second"].iter().for_each(|repo| tools::repository_works(git, &top.join(repo)));
        }
        if let Some(npm) = npm {
            tools::packages_work(npm, &top.join("project"), &self.beside.path().join("npm"));
        }
        if python.is_some() {
            let venv = top.join("venv");
            tools::environment_works(&venv);
            // A program that names its interpreter by an absolute path.
            let says = run(&mut Tool::at_path(&venv.join("bin/pip")).at(&top, &["--version"]));
            assert!(says.contains(venv.to_str().unwrap()), "{says}");
        }
        if let Some(cargo) = cargo {
            tools::build_works(&top.join("tiny"));
            // It sees by the times of modification that there is nothing to build.
            let built = cargo.at(&top.join("tiny"), &["build", "--offline", "--verbose"]).output().unwrap();
            let says = String::from_utf8_lossy(&built.stderr);
            assert!(built.status.success() && says.contains("Fresh tiny"), "{says}");
        }
    }

    /// All that was here is here as it was. Returns what else there is, and removes it.
    pub(crate) fn assert_nothing_lost(&self, store: &str) -> Vec<PathBuf> {
        let mut now = facts(&self.home.workspace(""));
        for (path, fact) in &self.facts {
            assert_eq!(now.remove(path).as_ref(), Some(fact), "{store}: {path:?} has changed");
        }
        now.keys().for_each(|path| fs::remove_file(self.home.workspace("").join(path)).unwrap());
        now.into_keys().collect()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // The standard library does not empty a directory that is closed.
        if let Ok(root) = Root::open_ambient(self.home.path("guest"), ambient_authority()) {
            let _ = root.remove_tree_contained("workspace");
        }
    }
}

/// Whether a file beneath `top` has several names.
fn has_several_names(top: &Path) -> bool {
    let mut entries = walkdir::WalkDir::new(top).into_iter().map(|entry| entry.unwrap().metadata().unwrap());
    entries.any(|entry| entry.is_file() && entry.nlink() > 1)
}

/// What no tool leaves.
fn plant(top: &Path) {
    odd::names(&top.join("names"));
    odd::modes(&top.join("modes"));
    odd::links(&top.join("links"));
    odd::sizes(&top.join("sizes"));
    let deep = top.join(["deeper"; 30].join("/"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "deep").unwrap();
    fs::write(deep.join("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(deep.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("../file", deep.join("link")).unwrap();
}
