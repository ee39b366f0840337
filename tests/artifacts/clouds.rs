//! Azure, by an emulator that is started only if it is named, and GCS, by the bucket of this process.

use std::fs;

use beneath::artifacts::{Source, SyncOptions};

use crate::support::{self, Home};

/// Mirror, restore, conflict and deletion, with files in one request and in parts.
async fn round_trip(source: &Source) {
    let (one, two) = (Home::new(), Home::new());
    fs::create_dir(one.workspace("d")).unwrap();
    for (name, size) in [("d/caf\u{e9} + 1%.txt", 5), ("whole", 9 << 20), ("parts", 20 << 20)] {
        fs::write(one.workspace(name), vec![1; size]).unwrap();
    }
    let (first, second) = (one.artifacts(source), two.artifacts(source));
    let mirror = async |artifacts: &beneath::artifacts::Artifacts| {
        artifacts.mirror(&SyncOptions::default()).await.unwrap()
    };
    let report = mirror(&first).await;
    assert!(report.is_complete() && report.uploaded == 3, "{report:?}");
    let report = second.restore().await.unwrap();
    assert!(report.is_complete() && report.placed == 3, "{report:?}");
    assert!(one.tree() == two.tree());

    for (name, size) in [("whole", 10 << 20), ("parts", 21 << 20)] {
        fs::write(one.workspace(name), vec![1; size]).unwrap();
        fs::write(two.workspace(name), vec![2; size]).unwrap();
    }
    fs::remove_file(one.workspace("d/caf\u{e9} + 1%.txt")).unwrap();
    // The directory is empty now, and says so by an object of its own.
    let report = mirror(&first).await;
    assert_eq!((report.uploaded, report.deleted), (3, 1), "{report:?}");
    // What the second has is uploaded beside.
    let report = mirror(&second).await;
    assert_eq!((report.uploaded, report.conflicts.len()), (2, 2), "{report:?}");
    let mut objects = support::objects(source).await;
    objects.retain(|path, _| !path.contains(".ours-") && !path.ends_with("/%="));
    assert!(objects == one.tree());
}

#[cfg(feature = "azure")]
#[tokio::test]
async fn azure_takes_and_gives_back() {
    let Some(server) = crate::servers::azurite() else { return };
    round_trip(&server.container()).await;
}

#[cfg(feature = "gcp")]
#[tokio::test]
async fn gcs_takes_and_gives_back() {
    use crate::bucket::{Act, Bucket};

    round_trip(&Bucket::new(|_, _| Act::Serve).gcs()).await;
}
