//! Restore, mirror and install as they are often written; the judges of the kills must catch each.

use std::fs;
use std::path::Path;

use beneath::artifacts::Source;

use crate::support;

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Takes a workspace that has anything in it for one that is restored.
pub(crate) async fn restore(home: &Path, source: &Source) {
    let workspace = support::place_at(home, "workspace");
    if fs::read_dir(&workspace).unwrap().next().is_some() {
        return;
    }
    let objects = support::objects(source).await;
    let all = tokio::task::spawn_blocking(move || {
        for (path, content) in objects {
            write(&workspace.join(path), &content);
        }
    });
    all.await.unwrap();
}

/// Notes what is in the store before it is there.
pub(crate) async fn mirror(home: &Path, source: &Source) {
    let (workspace, note) = (support::place_at(home, "workspace"), support::place_at(home, "state/note"));
    let (tree, before) = tokio::task::spawn_blocking(move || {
        let tree = support::tree_at(&workspace);
        let before = fs::read_to_string(&note).unwrap_or_default();
        let lines: String =
            tree.iter().map(|(path, content)| format!("{path} {}\n", content.escape_ascii())).collect();
        write(&note, lines.as_bytes());
        (tree, before)
    })
    .await
    .unwrap();
    for (path, content) in &tree {
        if !before.lines().any(|line| line == format!("{path} {}", content.escape_ascii())) {
            support::put_object(source, path, content).await;
        }
    }
    for path in before.lines().filter_map(|line| line.split(' ').next()) {
        if !tree.contains_key(path) {
            support::delete_key(source, &format!("{}{path}", support::prefix())).await;
        }
    }
    // What a progress bar would do once all is over.
    let done = support::place_at(home, "state/done");
    tokio::task::spawn_blocking(move || write(&done, b"done")).await.unwrap();
}

/// Writes the new version over the old one, in place.
pub(crate) async fn install(home: &Path, source: &Source, version: &str) {
    let area = support::place_at(home, "workspace/pdf tools");
    let mut files = Vec::new();
    let manifest = support::get_key(source, &format!("skills/pdf tools/{version}.sha256")).await;
    for line in String::from_utf8(manifest).unwrap().lines() {
        let path = line.split_once("  ").unwrap().1.to_owned();
        let content = support::get_key(source, &format!("skills/pdf tools/{version}/{path}")).await;
        files.push((path, content));
    }
    let all = tokio::task::spawn_blocking(move || {
        // The last run may have come no further than this.
        let _ = fs::remove_dir_all(&area);
        for (path, content) in files {
            write(&area.join(path), &content);
        }
    });
    all.await.unwrap();
}
