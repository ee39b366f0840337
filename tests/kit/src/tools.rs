//! The real tools, or why they are not here.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::env::REAL_TREE;
use crate::skip;

/// Packages with programs in `.bin`, and without dependencies.
const PACKAGES: [&str; 2] = ["semver@7.6.3", "mkdirp@3.0.1"];

/// Skips, or fails if everything was asked for.
#[track_caller]
fn missing(why: &str) {
    assert!(!REAL_TREE.is_set(), "{} is set, and {why}", REAL_TREE.name);
    skip(why);
}

/// A program of this machine.
#[derive(Debug)]
pub struct Tool(OsString);

impl Tool {
    /// A program that succeeds with these arguments.
    #[track_caller]
    pub fn find(program: &str, arguments: &[&str]) -> Option<Self> {
        let tool = Self(program.into());
        match tool.at(Path::new("/"), arguments).output() {
            Ok(output) if output.status.success() => return Some(tool),
            Ok(output) => missing(&format!("{program} {arguments:?}: {}", last_line(&output.stderr))),
            Err(error) => missing(&format!("{program}: {error}")),
        }
        None
    }

    pub fn at_path(program: &Path) -> Self {
        Self(program.into())
    }

    /// The program with arguments, in a directory, without what a person or cargo has set for others.
    pub fn at(&self, dir: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(arguments).current_dir(dir).stdin(Stdio::null());
        for (name, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "Guest"),
            ("GIT_AUTHOR_EMAIL", "guest@localhost"),
            ("GIT_COMMITTER_NAME", "Guest"),
            ("GIT_COMMITTER_EMAIL", "guest@localhost"),
            ("npm_config_update_notifier", "false"),
        ] {
            command.env(name, value);
        }
        for name in [
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_TARGET",
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTC_WRAPPER",
        ] {
            command.env_remove(name);
        }
        command
    }
}

fn last_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).trim().lines().last().unwrap_or_default().to_owned()
}

/// What a command prints, once it has succeeded.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

#[track_caller]
pub fn succeeds(command: &mut Command) {
    run(command);
}

/// Makes a repository with packed and loose objects, tags, hooks, a link and a program, and clones it.
pub fn clone_repository(git: &Tool, origin: &Path, clone: &Path) {
    fs::create_dir_all(origin.join("src")).unwrap();
    let git = |dir: &Path, arguments: &[&str]| succeeds(&mut git.at(dir, arguments));
    git(origin, &["init", "-q", "-b", "main"]);
    let commit = |dir: &Path, message: &str| {
        git(dir, &["add", "-A"]);
        git(dir, &["commit", "-q", "-m", message]);
    };
    for number in 0..50 {
        fs::write(origin.join(format!("src/{number}.txt")), format!("{number}\n").repeat(number)).unwrap();
    }
    commit(origin, "first");
    fs::write(origin.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(origin.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("src/1.txt", origin.join("latest")).unwrap();
    fs::write(origin.join("Q3: plan?.md"), "# Plan\n").unwrap();
    commit(origin, "second");
    git(origin, &["tag", "-a", "v1.0", "-m", "one"]);
    git(origin, &["gc", "-q"]);
    // By a URL, since git gives the objects of a path a second name.
    let url = format!("file://{}", origin.display());
    git(clone.parent().unwrap(), &["clone", "-q", &url, clone.to_str().unwrap()]);
    fs::write(clone.join("later.txt"), "later").unwrap();
    commit(clone, "third");
    git(clone, &["tag", "light"]);
    fs::write(clone.join(".git/hooks/pre-push"), "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(clone.join(".git/hooks/pre-push"), fs::Permissions::from_mode(0o755)).unwrap();
    let packs: Vec<PathBuf> =
        fs::read_dir(clone.join(".git/objects/pack")).unwrap().map(|pack| pack.unwrap().path()).collect();
    let read_only = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777 == 0o444;
    assert!(packs.iter().any(read_only), "{packs:?}");
}

/// The repository is whole, nothing in it has changed, and its history can be read.
#[track_caller]
pub fn repository_works(git: &Tool, repo: &Path) {
    succeeds(&mut git.at(repo, &["fsck", "--strict", "--full"]));
    assert_eq!(run(&mut git.at(repo, &["status", "--porcelain"])), "");
    assert_eq!(run(&mut git.at(repo, &["describe", "--tags", "HEAD~1"])), "v1.0\n");
    assert_eq!(run(&mut git.at(repo, &["log", "--format=%s"])), "third\nsecond\nfirst\n");
}

/// Installs the packages; false if there is no registry, or no network to it.
pub fn install_packages(npm: &Tool, project: &Path, cache: &Path) -> bool {
    fs::create_dir_all(project).unwrap();
    fs::write(project.join("package.json"), r#"{ "name": "project", "version": "1.0.0", "private": true }"#)
        .unwrap();
    let flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0", "--fetch-timeout=20000"];
    let mut install = npm.at(project, &["install", "--save-exact"]);
    install.args(flags).args(PACKAGES).env("npm_config_cache", cache);
    let output = install.output().unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let why =
            said.lines().find(|line| line.contains("code") || line.contains("ERR")).unwrap_or("no reason");
        missing(&format!("npm cannot install the packages: {why}"));
    }
    output.status.success()
}

/// The packages are all there, and the link to a program leads to one.
#[track_caller]
pub fn packages_work(npm: &Tool, project: &Path, cache: &Path) {
    let listed = run(npm.at(project, &["ls", "--all"]).env("npm_config_cache", cache));
    assert!(listed.contains("semver@7.6.3") && listed.contains("mkdirp@3.0.1"), "{listed}");
    let semver = Tool::at_path(&project.join("node_modules/.bin/semver"));
    assert_eq!(run(&mut semver.at(project, &["1.2.3"])), "1.2.3\n");
}

/// The interpreter of a virtual environment runs, and takes that environment for its own.
#[track_caller]
pub fn environment_works(venv: &Path) {
    let python = Tool::at_path(&venv.join("bin/python"));
    let says = run(&mut python.at(venv, &["-c", "import sys, json; print(sys.prefix)"]));
    assert_eq!(fs::canonicalize(says.trim()).unwrap(), fs::canonicalize(venv).unwrap());
}

/// Makes a package without dependencies and builds it.
pub fn build_package(cargo: &Tool, package: &Path) {
    fs::create_dir_all(package.join("src")).unwrap();
    let manifest = "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    fs::write(package.join("src/main.rs"), "fn main() { println!(\"still here\"); }\n").unwrap();
    succeeds(&mut cargo.at(package, &["build", "--quiet", "--offline"]));
}

/// The program that was built runs.
#[track_caller]
pub fn build_works(package: &Path) {
    let program = Tool::at_path(&package.join("target/debug/tiny"));
    assert_eq!(run(&mut program.at(package, &[])), "still here\n");
}
