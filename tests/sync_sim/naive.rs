//! How it is often done: list both sides, copy what differs over what is there, delete what the other side lacks.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use beneath::GuestPath;
use beneath::artifacts::Source;
use beneath::artifacts::conformance::{Attributes, Condition};

use crate::world::{files, objects, prefix};

pub(crate) async fn sync(workspace: &Path, source: &Source, which: u64) {
    let there = objects(source).await;
    let key = |path: &[u8]| prefix().key(&GuestPath::try_from(path).unwrap()).unwrap();
    if which != 1 {
        for (path, content) in &there {
            let path = workspace.join(OsStr::from_bytes(path));
            let _ = fs::create_dir_all(path.parent().unwrap());
            let _ = fs::write(path, content);
        }
    }
    if which == 0 {
        return;
    }
    let here = files(workspace);
    for (path, content) in &here {
        source
            .backend()
            .put(&key(path), content.clone().into(), &Attributes::NONE, Condition::Always)
            .await
            .unwrap();
    }
    for path in there.keys().filter(|path| !here.contains_key(*path)) {
        source.backend().delete(&key(path)).await.unwrap();
    }
}
