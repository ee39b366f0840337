//! What attack and real use have found, each as a test that failed before.

use std::fs;

use beneath::artifacts::{Deletions, Overwrites};

use crate::support::{self, Home};

/// Copies a directory of files.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A3: the handle of the old directory saw nothing in it, and all objects were deleted.
#[tokio::test]
async fn workspace_replaced_by_a_copy_of_itself_deletes_nothing() {
    let (home, source) = (Home::new(), support::memory());
    let artifacts = home.artifacts(&source);
    for n in 0..10 {
        fs::write(home.workspace(&format!("f{n}")), format!("{n}")).unwrap();
    }
    assert!(artifacts.mirror(Deletions::Propagate, Overwrites::Refuse).await.unwrap().is_complete());
    let (old, aside) = (home.path("workspace"), home.path("guest/aside"));
    fs::rename(&old, &aside).unwrap();
    copy(&aside, &old);
    fs::remove_dir_all(&aside).unwrap();
    let report = artifacts.mirror(Deletions::Propagate, Overwrites::Refuse).await.unwrap();
    assert_eq!(report.deleted(), 0, "{report:?}");
    assert_eq!(support::objects(&source).await, home.tree());
}
