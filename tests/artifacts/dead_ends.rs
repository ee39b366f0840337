//! States that two hosts, or a call that was cut off, can leave, and that the calls after it must end.

use std::fs;

use beneath::artifacts::{Artifacts, SyncOptions, SyncReport};

use crate::support::{self, Home};

async fn mirror(artifacts: &Artifacts) -> SyncReport {
    artifacts.mirror(&SyncOptions::default()).await.unwrap()
}

/// Each mirror compared the object with the version that the base knew, and there was another one with the same content.
#[tokio::test]
async fn object_that_was_put_again_goes_with_its_file() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    for name in ["a", "b", "c"] {
        fs::write(home.workspace(name), name).unwrap();
    }
    assert!(mirror(&artifacts).await.is_complete());
    support::put_object(&source, "a", b"a").await;
    fs::remove_file(home.workspace("a")).unwrap();
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.deleted == 1, "{report:?}");
    assert_eq!(support::objects(&source).await, home.tree());
}
