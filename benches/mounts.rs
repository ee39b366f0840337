//! Ten requests judged and opened, beside a service that resolves paths and matches patterns over them; in turns:
//! `cargo bench --bench mounts --features mounts`. `TMPDIR` says where.
#![allow(missing_docs, clippy::unwrap_used, reason = "a program for people")]

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use beneath::mounts::{Base, Mode, Mounts, Request, Rules};
use beneath::{MountPoint, Root, ambient_authority, safe_name};
use beneath_kit::bench::{self, Ground, Line, OURS, Place, Ways};

const REQUESTS: u32 = 10;
const BLOCKED: [&str; 12] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".gcloud",
    ".kube",
    ".docker",
    ".env",
    ".netrc",
    ".npmrc",
    "id_rsa",
    "credentials",
];

/// As the studied system does it: the real path of base and request, a prefix, patterns over the whole path, and the path again.
fn naive(base: &Path, subpaths: &[String]) -> Vec<PathBuf> {
    let mut granted = Vec::new();
    for subpath in subpaths {
        let base = fs::canonicalize(base).unwrap();
        let real = fs::canonicalize(base.join(subpath)).unwrap();
        assert!(real.starts_with(&base));
        let text = real.to_str().unwrap().to_lowercase();
        assert!(!BLOCKED.iter().any(|blocked| text.contains(blocked)));
        assert!(fs::metadata(&real).unwrap().is_dir());
        granted.push(real);
    }
    granted
}

fn subpaths() -> Vec<String> {
    (0..REQUESTS).map(|number| format!("team/app-{number}/crates/core")).collect()
}

/// Makes the directories, and rules that grant them.
fn rules(ground: &Ground) -> Rules {
    subpaths().iter().for_each(|subpath| fs::create_dir_all(ground.dir.join(subpath)).unwrap());
    let root = Root::open_ambient(&ground.dir, ambient_authority()).unwrap();
    Rules::new().with_base(Base::new(safe_name("projects").unwrap(), root).for_everybody())
}

fn granted(rules: &Rules) -> Mounts {
    let aliases: Vec<String> = (0..REQUESTS).map(|number| format!("m{number}")).collect();
    let subpaths = subpaths();
    let requests: Vec<Request<'_>> = aliases
        .iter()
        .zip(&subpaths)
        .map(|(alias, subpath)| Request { alias, base: "projects", subpath, mode: Mode::ReadOnly })
        .collect();
    rules.grant("ada", &requests).unwrap()
}

fn grant(ground: &Ground) -> Ways {
    let (rules, dir) = (rules(ground), ground.dir.clone());
    Ok(vec![
        Line::many("real paths and patterns", ground, move || drop(black_box(naive(&dir, &subpaths())))),
        Line::many(OURS, ground, move || drop(black_box(granted(&rules)))),
    ])
}

fn resolve(ground: &Ground) -> Ways {
    let (mounts, at) = (granted(&rules(ground)), MountPoint::new("/mnt/host").unwrap());
    Ok(vec![Line::many(OURS, ground, move || {
        black_box(mounts.resolve(black_box("/mnt/host/m7/src/main.rs"), &at).unwrap());
    })])
}

fn main() -> ExitCode {
    bench::main("mounts", Place::temporary, &[("grant 10", grant), ("resolve", resolve)])
}
