//! What a reader found who tried to lose a version, or to be told that all is well.

use std::fs;
use std::os::unix::fs::symlink;

use beneath::GuestPath;
use beneath::artifacts::SyncOptions;

use crate::support::{self, Home};

fn path(raw: &str) -> GuestPath {
    GuestPath::new(raw).unwrap()
}

#[tokio::test]
async fn materialise_where_it_cannot_be_is_not_complete() {
    for way in ["directory", "link", "below a link", "below a file"] {
        let (home, source) = (Home::new(), support::memory());
        support::seed(&source, &[("d/a", b"theirs")]).await;
        fs::create_dir(home.workspace("real")).unwrap();
        match way {
            "directory" => fs::create_dir_all(home.workspace("d/a/b")).unwrap(),
            "link" => {
                fs::create_dir(home.workspace("d")).unwrap();
                symlink(home.path("outside/canary"), home.workspace("d/a")).unwrap();
            }
            "below a link" => symlink(home.path("outside"), home.workspace("d")).unwrap(),
            _ => fs::write(home.workspace("d"), "ours").unwrap(),
        }
        let report = home.artifacts(&source).materialise(&path("d/a"), &SyncOptions::default()).await;
        let report = report.unwrap().unwrap();
        assert!(!report.is_complete(), "{way}: {report:?}");
        home.assert_contained();
    }
}
