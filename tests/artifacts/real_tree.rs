//! The tree of an agent at work goes to each store and comes back on another host.
//!
//! It has what git, npm, python and cargo leave, and what no tool leaves and a guest may. Either all of it is there again, and
//! the tools go on working in it, or the reports name each thing that the store does not keep, and nothing is lost where it was.
//!
//! A tool or a network that is missing is left out, unless `BENEATH_REAL_TREE` is set; so is a server that is not installed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use beneath::ErrorKind;
use beneath::artifacts::{Source, SyncOptions, SyncReport};
use beneath_kit::odd;
use beneath_kit::rig::Table;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::origin::{Facts, Origin};
use crate::servers;
use crate::support::{self, Home, facts, prefix};

/// What of the tree comes back from a store.
#[derive(Clone, Copy)]
enum Comes {
    All,
    /// Not all, for this reason: whether a path with this fact is lost; none if that is chance.
    Without(&'static str, fn(&Path, &str) -> Option<bool>),
    /// None, for this reason: the store cannot be listed any more.
    Nothing(&'static str),
}

/// A store from which more or less comes back than is said here makes the test fail.
const STORES: [(&str, Comes); 10] = [
    ("memory", Comes::All),
    ("directory", Comes::All),
    ("bucket, as GCS", Comes::All),
    ("moto", Comes::All),
    ("SeaweedFS", Comes::All),
    ("Azurite", Comes::All),
    (
        "directory, as any store",
        Comes::Without("it keeps nothing of a file but its bytes", |_, fact| {
            Some(is_link(fact) || is_program(fact))
        }),
    ),
    (
        "s3s-fs",
        Comes::Without("it has no room for what is said of a file with a long key", |path, fact| {
            Some(path.starts_with("odd/deeper") && (is_link(fact) || is_program(fact)))
        }),
    ),
    (
        "rclone serve s3",
        Comes::Without("it keeps no links, and takes two spellings of a letter for one", |path, fact| {
            let is_one_of_two = ["/caf\u{e9}", "/cafe\u{301}"]
                .iter()
                .any(|name| path.to_str().is_some_and(|path| path.contains(name)));
            // It keeps modes for as long as it runs, and not always.
            let may = is_program(fact) || is_one_of_two;
            if is_link(fact) { Some(true) } else { (!may).then_some(false) }
        }),
    ),
    ("s3rver", Comes::Nothing("it fails to list more than one page")),
];

fn is_link(fact: &str) -> bool {
    fact.starts_with("link ")
}

fn is_program(fact: &str) -> bool {
    mode(fact).is_some_and(|mode| mode & 0o100 != 0)
}

/// The mode that the fact of a file begins with.
fn mode(fact: &str) -> Option<u32> {
    fact.split(' ').next().and_then(|mode| u32::from_str_radix(mode, 8).ok())
}

/// What a report vouches for where a store does not keep all: not the other bits of the mode, and not the time.
fn essence(fact: &str) -> (bool, &str) {
    (is_program(fact), if mode(fact).is_some() { fact.rsplit(' ').next().unwrap() } else { fact })
}

/// All stores, and the servers that are installed.
async fn stores() -> Vec<(&'static str, Source)> {
    let mut stores = vec![
        ("memory", support::memory()),
        ("directory", support::local().1),
        ("directory, as any store", support::directory()),
        #[cfg(feature = "gcp")]
        ("bucket, as GCS", crate::bucket::Bucket::new(|_, _| crate::bucket::Act::Serve).gcs()),
    ];
    for (name, server) in servers::S3 {
        if let Some(server) = server() {
            stores.push((name, server.bucket().await.1));
        }
    }
    #[cfg(feature = "azure")]
    if let Some(server) = servers::azurite() {
        stores.push(("Azurite", beneath::artifacts::Source::azure(server.container()).unwrap()));
    }
    stores
}

/// The paths that a report names.
fn named(report: &SyncReport) -> BTreeSet<PathBuf> {
    for leftovers in [&report.failed, &report.left] {
        assert_eq!(leftovers.total, leftovers.first.len() as u64, "not all of them have names");
    }
    let left = report.failed.iter().chain(report.left.iter()).map(|(subject, _)| {
        let raw = subject.as_os_str().as_bytes();
        let key = raw.strip_suffix(b"/%=").or_else(|| raw.strip_suffix(b"/")).unwrap_or(raw);
        prefix().path(key).map_or_else(|_| subject.to_owned(), |path| path.as_path().to_owned())
    });
    left.chain(report.conflicts.iter().map(|conflict| conflict.path.as_path().to_owned())).collect()
}

/// Files, links and empty directories. Any other directory follows from what is in it.
fn leaves(tree: &Facts) -> impl Iterator<Item = (&Path, &str)> {
    let above: BTreeSet<&Path> = tree.keys().filter_map(|path| path.parent()).collect();
    let all = tree.iter().map(|(path, fact)| (path.as_path(), fact.as_str()));
    all.filter(move |(path, _)| !above.contains(path))
}

/// What has not come from `here` to `there`. Of each, it or something above it is named.
fn lost<'h>(here: &'h Facts, there: &Facts, named: &BTreeSet<PathBuf>) -> BTreeSet<&'h Path> {
    let is_lost = |path, fact| there.get(path).map(|fact| essence(fact)) != Some(essence(fact));
    let lost = leaves(here).filter(|(path, fact)| is_lost(*path, fact)).map(|(path, _)| path);
    lost.inspect(|path| {
        assert!(path.ancestors().any(|above| named.contains(above)), "no report names {path:?}");
    })
    .collect()
}

/// Neither host has anything to do.
async fn assert_settled(homes: [&Home; 2], source: &Source) {
    for home in homes {
        let again = home.artifacts(source).sync(&SyncOptions::default()).await.unwrap();
        let done = (again.placed, again.removed, again.uploaded, again.deleted);
        assert_eq!((done, again.is_complete()), ((0, 0, 0, 0), true), "{again:?}");
    }
}

/// Mirrors the tree, restores it on a new host, and compares. Returns how much has come, and how long each took.
async fn travel(origin: &Origin, name: &str, source: &Source, comes: Comes) -> (usize, [Duration; 2]) {
    let (two, options) = (Home::new(), SyncOptions::default());
    let (first, second) = (origin.home.artifacts(source), two.artifacts(source));
    let began = Instant::now();
    let mirrored = first.mirror(&options).await.unwrap();
    let mirroring = began.elapsed();
    let restored = second.restore().await;
    let times = [mirroring, began.elapsed() - mirroring];
    let (here, there) = (&origin.facts, facts(&two.workspace("")));
    match comes {
        Comes::All => {
            let restored = restored.unwrap();
            assert!(mirrored.is_complete() && restored.is_complete(), "{name}: {mirrored:#?} {restored:#?}");
            for (path, fact) in here {
                assert_eq!(Some(fact), there.get(path), "{name}: {path:?}");
            }
            assert_eq!(there.len(), here.len(), "{name}: more than there was");
            assert_settled([&origin.home, &two], source).await;
            println!("{name}: the tools go on");
            origin.works_on(&two);
            assert!(origin.assert_nothing_lost(name).is_empty(), "{name}");
        }
        Comes::Without(_, is_lost) => {
            assert!(!mirrored.is_complete(), "{name}: {mirrored:#?}");
            let again = first.sync(&options).await.unwrap();
            assert!(!again.is_complete(), "{name}: {again:#?}");
            let named = [&mirrored, &restored.unwrap(), &again].map(named).into_iter().flatten().collect();
            let lost = lost(here, &there, &named);
            for (path, fact) in leaves(here) {
                let found = lost.contains(path);
                assert_eq!(found, is_lost(path, fact).unwrap_or(found), "{name}: {path:?}");
            }
            let more = there.keys().filter(|path| !here.contains_key(*path)).cloned();
            for path in more.chain(origin.assert_nothing_lost(name)) {
                assert_eq!(is_lost(&path, "0 0 0"), None, "{name}: {path:?} has appeared");
            }
        }
        Comes::Nothing(_) => {
            assert_eq!(restored.unwrap_err().kind(), ErrorKind::Io, "{name}");
            assert_eq!(first.mirror(&options).await.unwrap_err().kind(), ErrorKind::Io, "{name}");
            assert!(there.is_empty(), "{name}: half of it");
            assert!(origin.assert_nothing_lost(name).is_empty(), "{name}");
        }
    }
    two.assert_clean();
    (here.iter().filter(|(path, fact)| there.get(*path) == Some(fact)).count(), times)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_comes_back_whole_or_each_thing_that_is_lost_is_reported() {
    let origin = Origin::new();
    let mut table = Table::new("real_tree", &["store", "comes back", "why not all", "mirror", "restore"]);
    let stores = stores().await;
    for (name, source) in &stores {
        let known = STORES.iter().find(|(known, _)| known == name);
        let comes = known.unwrap_or_else(|| panic!("nobody says what {name} does")).1;
        let (came, times) = travel(&origin, name, source, comes).await;
        let why = match comes {
            Comes::All => "",
            Comes::Without(why, _) | Comes::Nothing(why) => why,
        };
        let [mirror, restore] = times.map(|time| format!("{:.1} s", time.as_secs_f64()));
        let row = [
            (*name).to_owned(),
            format!("{came} of {}", origin.facts.len()),
            why.to_owned(),
            mirror,
            restore,
        ];
        println!("{}", row.join(", "));
        table.row(&row);
    }
    table.note("Of each entry the kind, the content, the permission bits and the time are compared, of a link the text.");
    let result = format!("{} stores, no surprise", stores.len());
    println!("{result}: {:?}", table.write(&std::env::temp_dir(), 0, &result).unwrap());
}

/// What has no key, or is no file of the guest's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_store_can_have_is_reported_and_stops_nothing() {
    let (one, two, beside) = (Home::new(), Home::new(), tempfile::tempdir().unwrap());
    let at = |name: &str| one.workspace(name);
    let put = |path: PathBuf| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    };
    odd::long_names(&at("names"));
    put(at("long").join(["n".repeat(250).as_str(); 4].join("/")).join("file"));
    put(at(&["level"; 32].join("/")).join("file"));
    put(at("skills/mine"));
    put(at("twice/one"));
    fs::hard_link(at("twice/one"), at("twice/two")).unwrap();
    put(beside.path().join("theirs"));
    fs::hard_link(beside.path().join("theirs"), at("theirs")).unwrap();
    fs::create_dir(at("special")).unwrap();
    mknodat(CWD, at("special/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    drop(UnixListener::bind(at("special/socket")).unwrap());
    put(at("special/file"));
    let source = support::memory();
    let mirrored = one.artifacts(&source).mirror(&SyncOptions::default()).await.unwrap();
    let restored = two.artifacts(&source).restore().await.unwrap();
    let top = |path: &Path| path.iter().next().unwrap().to_str().unwrap().to_owned();
    let mut said: Vec<_> = mirrored.left.iter().map(|(path, error)| (top(path), error.kind())).collect();
    said.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("level", ErrorKind::TooMany),
        ("long", ErrorKind::TooLarge),
        ("names", ErrorKind::TooLarge),
        ("skills", ErrorKind::InvalidPath),
        ("special", ErrorKind::NotRegular),
        ("special", ErrorKind::NotRegular),
        ("theirs", ErrorKind::HardLinked),
        ("twice", ErrorKind::HardLinked),
        ("twice", ErrorKind::HardLinked),
    ];
    assert_eq!(said, expected.map(|(top, kind)| (top.to_owned(), kind)));
    assert!(mirrored.failed.is_empty() && restored.is_complete(), "{mirrored:?} {restored:?}");
    // What is named is lost, and nothing else.
    let (here, there) = (facts(&at("")), facts(&two.workspace("")));
    assert_eq!(lost(&here, &there, &named(&mirrored)).len(), said.len());
    two.assert_clean();
}
