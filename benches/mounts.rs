//! Ten requests judged and opened, beside a service that resolves paths and matches patterns over them; in turns:
//! `cargo bench --bench mounts --features mounts`. `TMPDIR` says where. Prints lower quartiles and their ratio.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, reason = "a program for people")]

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use beneath::mounts::{Base, Mode, Request, Rules};
use beneath::{MountPoint, Root, ambient_authority, safe_name};

const ROUNDS: usize = 400;
const GRANTS: u32 = 20;
const RESOLVED: u32 = 2000;
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

fn each(times: u32, mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..times).for_each(|_| work());
    start.elapsed() / times
}

fn lower_quartile(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 4]
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let subpaths: Vec<String> = (0..10).map(|number| format!("team/app-{number}/crates/core")).collect();
    subpaths.iter().for_each(|subpath| fs::create_dir_all(dir.path().join(subpath)).unwrap());
    let aliases: Vec<String> = (0..10).map(|number| format!("m{number}")).collect();
    let root = Root::open_ambient(dir.path(), ambient_authority()).unwrap();
    let rules = Rules::new().with_base(Base::new(safe_name("projects").unwrap(), root).for_everybody());
    let requests: Vec<Request<'_>> = aliases
        .iter()
        .zip(&subpaths)
        .map(|(alias, subpath)| Request { alias, base: "projects", subpath, mode: Mode::ReadOnly })
        .collect();
    let mounts = rules.grant("ada", &requests).unwrap();
    let at = MountPoint::new("/mnt/host").unwrap();

    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        times[0].push(each(GRANTS, || drop(black_box(naive(dir.path(), &subpaths)))));
        times[1].push(each(GRANTS, || drop(black_box(rules.grant("ada", &requests).unwrap()))));
        times[2].push(each(RESOLVED, || {
            black_box(mounts.resolve(black_box("/mnt/host/m7/src/main.rs"), &at).unwrap());
        }));
    }
    let [naive, grant, resolve] = times.each_mut().map(|times| lower_quartile(times));
    println!("real paths and patterns, 10 requests: {naive:>10.2?}");
    println!(
        "grant, 10 requests:                   {grant:>10.2?}  {:.2}",
        grant.as_secs_f64() / naive.as_secs_f64()
    );
    println!("resolve:                              {resolve:>10.2?}");
}
