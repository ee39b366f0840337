//! Listings: filtered before a directory is entered, sorted before they are cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use beneath::session::{Filter, ListOptions, Listing, Order};
use beneath::{Entry, ErrorKind, FileType, ResolverChoice, WalkLimits};

use crate::support::{Stage, fifo, with_each_resolver};

fn shown(listing: &Listing<Entry>) -> Vec<&Path> {
    listing.entries.iter().map(Entry::path).collect()
}

fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

fn touch(stage: &Stage, path: &str) {
    let path = stage.guest("workspace").join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "").unwrap();
}

#[test]
fn a_large_hidden_tree_hides_nothing_and_costs_nothing() {
    let stage = Stage::new(ResolverChoice::Auto);
    for fan in 0..161 {
        let dir = stage.guest("workspace").join(format!(".git/objects/{fan:02x}"));
        fs::create_dir_all(&dir).unwrap();
        for object in 0..100 {
            fs::write(dir.join(format!("{object}")), "").unwrap();
        }
    }
    for file in ["a.rs", "src/main.rs", "zz/last.txt"] {
        touch(&stage, file);
    }
    let workspace = stage.session.workspace();
    let visible = paths(&["a.rs", "src", "src/main.rs", "zz", "zz/last.txt"]);
    // Six names are looked at: those that are shown, and the hidden directory itself.
    let listing = workspace.list("", ListOptions::default().recursive().with_looked_at(6)).unwrap();
    assert_eq!(shown(&listing), visible);
    assert!(listing.is_complete());
    assert_eq!(listing.total, 5);

    let all = workspace.list("", ListOptions::default().recursive().with_hidden()).unwrap();
    assert_eq!((all.entries.len(), all.total), (1000, 16_100 + 161 + 2 + 5));
    assert!(!all.is_complete(), "sixteen thousand are not shown");
}

#[test]
fn a_listing_is_sorted_before_it_is_cut() {
    with_each_resolver(|stage| {
        for number in (0..200).rev() {
            touch(stage, &format!("{number:03}"));
        }
        let workspace = stage.session.workspace();
        let page = |offset, entries| {
            let options = ListOptions::default().with_offset(offset).with_entries(entries);
            let listing = workspace.list("", options).unwrap();
            let names: Vec<String> = shown(&listing).iter().map(|path| path.display().to_string()).collect();
            (names, listing.truncated, listing.total)
        };
        assert_eq!(page(0, 3), (vec!["000".into(), "001".into(), "002".into()], true, 200));
        assert_eq!(page(198, 3), (vec!["198".into(), "199".into()], false, 200));
        assert_eq!(page(200, 3), (vec![], false, 200));
        assert_eq!(page(u64::MAX, u64::MAX), (vec![], false, 200));
        assert_eq!(page(0, 0), (vec![], true, 200));
        let mut all = Vec::new();
        for offset in (0..200).step_by(7) {
            all.extend(page(offset, 7).0);
        }
        assert_eq!(all, (0..200).map(|number| format!("{number:03}")).collect::<Vec<_>>());
    });
}

#[test]
fn the_newest_come_first_if_asked() {
    with_each_resolver(|stage| {
        let workspace = stage.session.workspace();
        for (name, seconds) in [("a", 3), ("b", 9), ("d/c", 7), ("e", 9)] {
            touch(stage, name);
            let modified = UNIX_EPOCH + Duration::from_secs(seconds);
            workspace.set_times(name, None, Some(modified)).unwrap();
        }
        let files = Filter::default().with_kinds([FileType::File]);
        let newest = ListOptions::default().recursive().with_filter(files).with_order(Order::Newest);
        let listing = workspace.list("", newest.clone()).unwrap();
        assert_eq!(shown(&listing), paths(&["b", "e", "d/c", "a"]));
        let listing = workspace.list("", newest.with_offset(1).with_entries(2)).unwrap();
        assert_eq!(shown(&listing), paths(&["e", "d/c"]));
        assert!(listing.truncated);
    });
}

#[test]
fn kinds_that_are_not_shown_are_still_entered() {
    with_each_resolver(|stage| {
        touch(stage, "d/e/f");
        fifo(&stage.guest("workspace/d/pipe"));
        std::os::unix::fs::symlink("f", stage.guest("workspace/d/e/link")).unwrap();
        let workspace = stage.session.workspace();
        let only = |kind: FileType, options: ListOptions| {
            let filter = Filter::default().with_kinds([kind]);
            let listing = workspace.list("", options.with_filter(filter)).unwrap();
            let paths: Vec<PathBuf> = shown(&listing).into_iter().map(Path::to_owned).collect();
            (paths, listing.is_complete())
        };
        let all = || ListOptions::default().recursive();
        assert_eq!(only(FileType::File, all()), (paths(&["d/e/f"]), true));
        assert_eq!(only(FileType::Fifo, all()), (paths(&["d/pipe"]), true));
        assert_eq!(only(FileType::Symlink, all()), (paths(&["d/e/link"]), true));
        assert_eq!(only(FileType::Directory, all()), (paths(&["d", "d/e"]), true));
        assert_eq!(only(FileType::File, ListOptions::default().with_depth(2)), (vec![], true));
        assert_eq!(only(FileType::File, ListOptions::default().with_depth(3)), (paths(&["d/e/f"]), true));
    });
}

#[test]
fn what_was_not_looked_at_is_reported() {
    with_each_resolver(|stage| {
        for number in 0..50 {
            touch(stage, &format!("{number}"));
        }
        let workspace = stage.session.workspace();
        let few = workspace.list("", ListOptions::default().with_looked_at(20)).unwrap();
        assert_eq!((few.entries.len(), few.total, few.is_complete()), (20, 20, false));
        let all = workspace.list("", ListOptions::default().with_looked_at(50)).unwrap();
        assert_eq!((all.total, all.is_complete()), (50, true));

        let deep = vec!["d"; 70].join("/");
        fs::create_dir_all(stage.guest("workspace/deep").join(&deep)).unwrap();
        let deep = workspace.list("deep", ListOptions::default().recursive()).unwrap();
        assert_eq!((deep.entries.len(), deep.is_complete()), (64, false));
        let asked = workspace.list("deep", ListOptions::default().with_depth(5)).unwrap();
        assert_eq!((asked.entries.len(), asked.is_complete()), (5, true));
    });
}

#[test]
fn a_directory_that_cannot_be_read_is_refused_by_name_and_the_rest_is_listed() {
    if rustix::process::geteuid().is_root() {
        return beneath_kit::skip("root reads every directory");
    }
    with_each_resolver(|stage| {
        use std::os::unix::fs::PermissionsExt;
        touch(stage, "closed/x");
        touch(stage, "open/y");
        let closed = stage.guest("workspace/closed");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let listing = stage.session.workspace().list("", ListOptions::default().recursive()).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(shown(&listing), paths(&["closed", "open", "open/y"]));
        let refused: Vec<_> =
            listing.refused().map(|(path, error)| (path.to_owned(), error.kind())).collect();
        assert_eq!(refused, [(PathBuf::from("closed"), ErrorKind::Denied)]);
    });
}

#[test]
fn a_walk_skips_what_its_caller_does_not_want() {
    with_each_resolver(|stage| {
        for file in ["a/1", "b/2", "c/3"] {
            touch(stage, file);
        }
        let mut walk = stage.session.workspace().walk("", WalkLimits::default()).unwrap();
        let mut seen = Vec::new();
        while let Some(entry) = walk.next() {
            let path = entry.unwrap().into_path();
            if path == Path::new("b") {
                walk.skip_dir();
            }
            seen.push(path);
        }
        seen.sort();
        assert_eq!(seen, paths(&["a", "a/1", "b", "c", "c/3"]));
        assert!(!walk.truncated());
    });
}
