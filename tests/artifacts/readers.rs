//! Bundles that are read while they are replaced, listed, retained and swept.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use beneath::artifacts::{Bundles, Change, Manifest, ObjectLimits, Source};
use beneath::{ErrorKind, Root, SafeName, ambient_authority};
use beneath_kit::Ends;

use crate::bundle::{bundles_at, name, publish, version};
use crate::support::{self, Home};

const LONG: Duration = Duration::from_secs(3600);
const FILES: [&str; 3] = ["SKILL.md", "lib/a", "lib/b"];

/// Two versions, of which every file contains the version.
async fn two_versions(source: &Source) {
    for version in ["1", "2"] {
        publish(source, version, &FILES.map(|path| (path, version.as_bytes()))).await;
    }
}

fn bundles(home: &Home, source: &Source) -> Bundles {
    bundles_at(&home.path(""), source)
}

/// What a reader finds who looks each file up anew: none if a file is missing.
fn by_path(area: &Path) -> Option<Vec<Vec<u8>>> {
    FILES.iter().map(|path| fs::read(area.join("pdf tools").join(path)).ok()).collect()
}

/// What a reader finds through a handle.
fn by_handle(root: &Root) -> Vec<Vec<u8>> {
    FILES.iter().map(|path| root.read_contained(path, 9).unwrap()).collect()
}

fn is_whole(read: &[Vec<u8>]) -> bool {
    read.windows(2).all(|pair| pair[0] == pair[1])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_sees_one_version_whole_while_others_replace_it() {
    let (home, source) = (Home::new(), support::memory());
    two_versions(&source).await;
    let bundles = bundles(&home, &source);
    let [one, two] = [version(&bundles, "1").await, version(&bundles, "2").await];
    assert!(bundles.install(&one).await.unwrap().is_complete());
    let (stop, reads, wrong) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut installs = 0;
    let handle = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let open = handle.block_on(bundles.open(&name())).unwrap();
                let read = by_handle(open.root());
                let is_it = open.version().is_some_and(|version| read[0] == version.as_bytes());
                assert!(is_whole(&read) && is_it, "{open:?}: {read:?}");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        // The control: by path, as readers of the studied systems do.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let whole = by_path(&home.workspace("")).is_some_and(|read| is_whole(&read));
                wrong.fetch_add(usize::from(!whole), Ordering::Relaxed);
            }
        });
        while installs < 2000 && (reads.load(Ordering::Relaxed) < 300 || wrong.load(Ordering::Relaxed) < 3) {
            for wanted in [&two, &one] {
                let done = tokio::task::block_in_place(|| handle.block_on(bundles.install(wanted))).unwrap();
                assert!(done.is_complete(), "{done:?}");
                installs += 1;
            }
        }
        drop(ends);
    });
    let (reads, wrong) = (reads.into_inner(), wrong.into_inner());
    println!("{installs} installations, {reads} reads by handle, all whole; by path {wrong} were not");
    assert!(reads >= 300 && wrong >= 3, "the run is void: {reads} reads, {wrong} caught");
    let swept = bundles.sweep(Duration::ZERO).await.unwrap();
    assert!(swept.is_complete() && swept.kept == 0, "{swept:?}");
    home.assert_clean();
}

/// A guest reads through its own mount, and takes no lock.
#[tokio::test]
async fn a_version_that_was_replaced_stays_for_the_grace() {
    for (grace, stays) in [(LONG, true), (Duration::ZERO, false)] {
        let (home, source) = (Home::new(), support::memory());
        two_versions(&source).await;
        let bundles = bundles(&home, &source).with_grace(grace);
        assert!(bundles.install(&version(&bundles, "1").await).await.unwrap().is_complete());
        let guest = Root::open_ambient(home.workspace("pdf tools"), ambient_authority()).unwrap();
        assert!(bundles.install(&version(&bundles, "2").await).await.unwrap().is_complete());
        assert_eq!(home.tree()["pdf tools/SKILL.md"], b"2");
        let read = guest.read_contained("lib/a", 9);
        assert_eq!(read.as_deref().ok(), stays.then_some(&b"1"[..]), "the second is the control");
        // The next installation leaves it alone, and a sweep removes it once it is old enough.
        assert!(bundles.install(&version(&bundles, "1").await).await.unwrap().is_complete());
        assert_eq!(guest.read_contained("lib/a", 9).is_ok(), stays);
        assert_eq!(bundles.sweep(LONG).await.unwrap().kept, if stays { 2 } else { 0 });
        let swept = bundles.sweep(Duration::ZERO).await.unwrap();
        assert_eq!((swept.removed, swept.is_complete()), (if stays { 2 } else { 0 }, true));
        home.assert_clean();
    }
}

#[tokio::test]
async fn what_is_open_is_kept_when_it_is_removed() {
    let (home, source) = (Home::new(), support::memory());
    two_versions(&source).await;
    let bundles = bundles(&home, &source);
    assert_eq!(bundles.open(&name()).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(bundles.install(&version(&bundles, "1").await).await.unwrap().is_complete());
    let open = bundles.open(&name()).await.unwrap();
    assert_eq!(open.version(), Some("1"));
    assert!(bundles.remove(&name()).await.unwrap());
    assert!(home.tree().is_empty());
    let swept = bundles.sweep(Duration::ZERO).await.unwrap();
    assert_eq!((swept.kept, swept.removed), (1, 0));
    assert!(is_whole(&by_handle(open.root())));
    drop(open);
    assert_eq!(bundles.sweep(Duration::ZERO).await.unwrap().removed, 1);
    home.assert_clean();
}

#[tokio::test]
async fn what_a_guest_has_put_there_has_no_version() {
    let (home, source) = (Home::new(), support::memory());
    two_versions(&source).await;
    let bundles = bundles(&home, &source);
    assert!(bundles.install(&version(&bundles, "1").await).await.unwrap().is_complete());
    fs::rename(home.workspace("pdf tools"), home.workspace("away")).unwrap();
    fs::create_dir(home.workspace("pdf tools")).unwrap();
    assert_eq!(bundles.open(&name()).await.unwrap().version(), None);
    fs::remove_dir(home.workspace("pdf tools")).unwrap();
    std::os::unix::fs::symlink("away", home.workspace("pdf tools")).unwrap();
    assert_eq!(bundles.open(&name()).await.unwrap_err().kind(), ErrorKind::Symlink);
    let done = bundles.install_if_changed(&version(&bundles, "1").await).await.unwrap();
    assert_eq!(done.change, Change::Replaced { version: Some("1".into()) });
    home.assert_clean();
}

#[tokio::test]
async fn bundles_are_listed_and_those_that_nobody_wants_are_removed() {
    let (home, source) = (Home::new(), support::memory());
    let bundles = bundles(&home, &source);
    assert!(bundles.list().await.unwrap().entries.is_empty());
    let names = ["b", "a b", "c"].map(|name| SafeName::new(name).unwrap());
    for name in &names {
        support::put_key(&source, &format!("skills/{name}/7/f"), b"x").await;
        let bundle = bundles.bundle(name, &SafeName::new("7").unwrap()).await.unwrap();
        assert!(bundles.install(&bundle).await.unwrap().is_complete());
    }
    fs::create_dir(home.workspace("not ours")).unwrap();
    let listed = || async {
        let listing = bundles.list().await.unwrap();
        let found = listing.entries.iter().map(|bundle| format!("{} {}", bundle.name, bundle.version));
        (found.collect::<Vec<_>>(), listing.refused.total)
    };
    assert_eq!(listed().await, (vec!["a b 7".into(), "b 7".into(), "c 7".into()], 0));
    let swept = bundles.retain([names[1].clone()]).await.unwrap();
    assert_eq!((swept.removed, swept.kept, swept.is_complete()), (2, 1, true));
    assert_eq!(listed().await, (vec!["a b 7".into()], 0));
    assert!(home.workspace("not ours").is_dir() && !home.workspace("c").exists());
    home.assert_clean();
    // One note that cannot be read costs one line.
    let note = fs::read_dir(home.path("state")).unwrap().map(|entry| entry.unwrap().path());
    let note = note.into_iter().find(|path| path.extension().is_none()).unwrap();
    fs::write(&note, "beneath-bundle 9\n").unwrap();
    assert_eq!(listed().await, (vec![], 1));
    let swept = bundles.retain([]).await.unwrap();
    assert_eq!((swept.removed, swept.left.total), (0, 1));
    assert!(home.workspace("a b").exists());
}

#[tokio::test]
async fn a_manifest_is_made_where_the_store_has_none() {
    for (store, source) in support::every_store().await {
        publish(&source, "1", &[("SKILL.md", b"one"), ("lib/big", &vec![3; 300_000])]).await;
        let home = Home::new();
        let bundles = bundles(&home, &source);
        let wanted = version(&bundles, "1").await;
        support::delete_key(&source, "skills/pdf tools/1.sha256").await;
        let made = version(&bundles, "1").await;
        assert_eq!(made, wanted, "{store}");
        assert_eq!(bundles.install_if_changed(&made).await.unwrap().change, Change::New, "{store}");
        let none = bundles.bundle(&name(), &SafeName::new("2").unwrap()).await;
        assert_eq!(none.unwrap_err().kind(), ErrorKind::NotFound, "{store}");
        let limits = [ObjectLimits::default().with_objects(1), ObjectLimits::default().with_file_bytes(9)];
        for (limits, kind) in limits.into_iter().zip([ErrorKind::TooMany, ErrorKind::TooLarge]) {
            let limited = bundles.clone().with_limits(limits);
            let refused = limited.bundle(&name(), &wanted.version).await.unwrap_err();
            assert_eq!(refused.kind(), kind, "{store}");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_no_path_makes_no_manifest() {
    let (home, source) = (Home::new(), support::memory());
    let bundles = bundles(&home, &source);
    support::put_key(&source, "skills/pdf tools/1/ok", b"x").await;
    support::put_key(&source, "skills/pdf tools/1/a:b", b"x").await;
    let refused = bundles.bundle(&name(), &SafeName::new("1").unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidPath, "{refused}");
    assert!(Manifest::parse("").is_ok(), "a bundle may be empty, if its manifest says so");
}

/// What was set aside then has a time from the future.
#[tokio::test]
async fn a_clock_that_is_set_back_takes_no_version_from_its_readers() {
    let (home, source) = (Home::new(), support::memory());
    two_versions(&source).await;
    let bundles = bundles(&home, &source).with_grace(LONG);
    assert!(bundles.install(&version(&bundles, "1").await).await.unwrap().is_complete());
    let open = bundles.open(&name()).await.unwrap();
    let guest = Root::open_ambient(home.workspace("pdf tools"), ambient_authority()).unwrap();
    assert!(bundles.install(&version(&bundles, "2").await).await.unwrap().is_complete());
    let slot = fs::read_dir(home.path("staging")).unwrap().next().unwrap().unwrap().path();
    let aside = fs::read_dir(&slot).unwrap().next().unwrap().unwrap();
    let name = aside.file_name().into_string().unwrap();
    let [old, time, random] = name.splitn(3, '-').collect::<Vec<_>>().try_into().unwrap();
    let later = time.parse::<u64>().unwrap() + 60;
    fs::rename(aside.path(), slot.join(format!("{old}-{later}-{random}"))).unwrap();
    assert_eq!(bundles.sweep(LONG).await.unwrap().kept, 1);
    assert!(is_whole(&by_handle(open.root())) && guest.read_contained("lib/a", 9).is_ok());
    // Whoever has it open keeps it, whatever its age.
    assert_eq!(bundles.sweep(Duration::ZERO).await.unwrap().kept, 1);
    drop(open);
    assert_eq!(bundles.sweep(Duration::ZERO).await.unwrap().removed, 1);
}

/// A power cut leaves a part of a note, or nothing of it.
#[tokio::test]
async fn a_note_that_is_damaged_keeps_no_version_from_being_installed() {
    for damaged in ["", "\0\0\0\0", "beneath-bundle 2\nname\tpdf", "beneath-bundle 2\nswapping\t1\n"] {
        let (home, source) = (Home::new(), support::memory());
        two_versions(&source).await;
        let bundles = bundles(&home, &source);
        assert!(bundles.install(&version(&bundles, "1").await).await.unwrap().is_complete());
        let notes = fs::read_dir(home.path("state")).unwrap().map(|entry| entry.unwrap().path());
        let note = notes.into_iter().find(|path| path.extension().is_none()).unwrap();
        fs::write(&note, damaged).unwrap();
        let installed = bundles.install_if_changed(&version(&bundles, "1").await).await;
        assert_eq!(installed.unwrap().change, Change::Unchanged, "{damaged:?}");
        fs::write(&note, damaged).unwrap();
        let done = bundles.install(&version(&bundles, "2").await).await.unwrap();
        assert!(
            done.is_complete() && done.change == Change::Replaced { version: None },
            "{damaged:?}: {done:?}"
        );
        assert_eq!(bundles.list().await.unwrap().entries.len(), 1, "{damaged:?}");
        home.assert_clean();
    }
}
