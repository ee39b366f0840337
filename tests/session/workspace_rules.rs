//! What the host's own calls refuse.

use std::fs;
use std::os::unix::fs::symlink;

use beneath::session::{ListOptions, SessionsConfig};
use beneath::{Error, ErrorKind, GuestPath, Rename, ResolverChoice, TreeOptions, WriteOptions};

use crate::support::Stage;

fn guarded(paths: &[&str]) -> Stage {
    let read_only = paths.iter().map(|path| GuestPath::new(path).unwrap());
    Stage::with_config(SessionsConfig::default().with_read_only(read_only))
}

fn put(stage: &Stage, path: &str) {
    let path = stage.guest("workspace").join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "content").unwrap();
}

/// Every call that would change what is at `path`.
fn changes(stage: &Stage, path: &str) -> Vec<(&'static str, Option<Error>)> {
    let workspace = stage.session.workspace();
    put(stage, "spare");
    let plain = WriteOptions::default();
    vec![
        ("write_exclusive", workspace.write_exclusive(path, "").err()),
        ("write_exclusive_with", workspace.write_exclusive_with(path, "", plain).err()),
        ("replace", workspace.replace(path, "").err()),
        ("replace_with", workspace.replace_with(path, "", plain.over_read_only()).err()),
        ("new_file", workspace.new_file(path).err()),
        ("new_file_with", workspace.new_file_with(path, plain).err()),
        ("remove_file", workspace.remove_file(path).err()),
        ("remove_tree_contained", workspace.remove_tree_contained(path).err()),
        ("rename from", workspace.rename(path, "elsewhere").err()),
        ("rename to", workspace.rename("spare", path).err()),
        ("replacing rename", workspace.rename_with("spare", path, Rename::Replace).err()),
        ("exchange", workspace.rename_with("spare", path, Rename::Exchange).err()),
        ("exchange back", workspace.rename_with(path, "spare", Rename::Exchange).err()),
        ("copy to", workspace.copy("spare", path, 99).err()),
        ("move_to from", workspace.move_to(path, &workspace, "elsewhere", 99).err()),
        ("move_to to", workspace.move_to("spare", &workspace, path, 99).err()),
        ("symlink", workspace.symlink("x", path).err()),
    ]
}

fn denied(calls: Vec<(&'static str, Option<Error>)>, path: &str) {
    for (call, error) in calls {
        let error = error.unwrap_or_else(|| panic!("{call} has changed {path}"));
        assert_eq!(error.kind(), ErrorKind::Denied, "{call} of {path}: {error}");
    }
}

#[test]
fn what_is_under_a_read_only_prefix_is_changed_by_no_call_in_any_spelling() {
    let stage = guarded(&["skills", ".claude/hooks"]);
    for file in ["skills/a.md", ".claude/hooks/run", ".claude/notes"] {
        put(&stage, file);
    }
    let workspace = stage.session.workspace();
    for path in [
        "skills",
        "skills/",
        "skills/a.md",
        "skills/new/deep",
        "./skills//a.md",
        "x/../skills/a.md",
        " /session/workspace/skills/a.md\n",
        ".claude/hooks/run",
    ] {
        denied(changes(&stage, path), path);
        assert_eq!(workspace.ensure_dir(path).unwrap_err().kind(), ErrorKind::Denied, "{path}");
        assert_eq!(workspace.set_times(path, None, None).unwrap_err().kind(), ErrorKind::Denied, "{path}");
    }
    assert_eq!(workspace.read_contained("skills/a.md", 99).unwrap(), b"content", "it can be read");
    workspace.copy("skills/a.md", "mine.md", 99).unwrap();
    assert_eq!(workspace.list("skills", ListOptions::default()).unwrap().entries.len(), 1);
}

#[test]
fn what_contains_a_read_only_prefix_is_not_moved_replaced_or_removed() {
    let stage = guarded(&["a/b/fixed"]);
    put(&stage, "a/b/fixed/file");
    for path in ["a", "a/b"] {
        denied(changes(&stage, path), path);
    }
    let workspace = stage.session.workspace();
    workspace.write_exclusive("a/b/beside", "").unwrap();
    workspace.ensure_dir("a/b/new").unwrap();
    workspace.set_times("a", None, None).unwrap();
    assert_eq!(fs::read(stage.guest("workspace/a/b/fixed/file")).unwrap(), b"content");
}

#[test]
fn a_prefix_is_compared_by_components_and_by_bytes() {
    let stage = guarded(&["skills"]);
    let workspace = stage.session.workspace();
    for free in ["skillsX", "skills-2/a", "skill", "Skills/a", "x/skills/a", "skills "] {
        let free = GuestPath::new(free).unwrap();
        workspace.write_exclusive(&free, "").unwrap();
        workspace.remove_file(&free).unwrap();
    }
}

#[test]
fn a_link_does_not_lead_a_change_past_a_read_only_prefix() {
    let stage = guarded(&["skills"]);
    put(&stage, "skills/a.md");
    symlink("skills", stage.guest("workspace/alias")).unwrap();
    let workspace = stage.session.workspace();
    for refused in [
        workspace.replace("alias/a.md", "").unwrap_err(),
        workspace.remove_file("alias/a.md").unwrap_err(),
        workspace.write_exclusive("alias/new", "").unwrap_err(),
        workspace.rename("alias/a.md", "b").unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Symlink, "{refused}");
    }
    assert_eq!(fs::read(stage.guest("workspace/skills/a.md")).unwrap(), b"content");
}

#[test]
fn the_whole_workspace_can_be_read_only() {
    let stage = guarded(&["."]);
    put(&stage, "a");
    let workspace = stage.session.workspace();
    assert_eq!(workspace.replace("a", "").unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(workspace.ensure_dir("b").unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(workspace.read_contained("a", 99).unwrap(), b"content");
}

#[test]
fn without_rules_nothing_is_denied() {
    let stage = Stage::new(ResolverChoice::Auto);
    assert!(stage.session.config().read_only().is_empty());
    for (call, error) in changes(&stage, "a") {
        assert!(error.is_none_or(|error| error.kind() != ErrorKind::Denied), "{call}");
    }
}

#[cfg(feature = "patterns")]
mod patterns {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use beneath::session::Filter;
    use beneath::{Patterns, WalkLimits};

    use super::*;

    fn patterns(lines: &[&str]) -> Patterns {
        Patterns::new(lines).unwrap()
    }

    fn paths(entries: impl Iterator<Item = beneath::Result<beneath::Entry>>) -> Vec<String> {
        let mut paths: Vec<String> =
            entries.map(|entry| entry.unwrap().into_path().display().to_string()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn what_a_pattern_blocks_is_neither_read_nor_changed_nor_listed() {
        let config = SessionsConfig::default().with_blocked(patterns(&["*.key", ".secrets/", "/top"]));
        let stage = Stage::with_config(config);
        for file in ["a/x.key", ".secrets/y", "top/z", "sub/top/z", "fine"] {
            put(&stage, file);
        }
        let workspace = stage.session.workspace();
        for path in ["a/x.key", "./a//x.key", ".secrets", ".secrets/y", "top", "top/z", "x.key/below"] {
            denied(changes(&stage, path), path);
            denied(
                vec![
                    ("read_contained", workspace.read_contained(path, 9).err()),
                    ("read_range", workspace.read_range(path, 0, 9).err()),
                    ("open_contained", workspace.open_contained(path).err()),
                    ("tail", workspace.tail(path).err()),
                    ("detect", workspace.detect(path).err()),
                    ("metadata", workspace.metadata(path).err()),
                    ("exists", workspace.exists(path).err()),
                    ("try_exists", workspace.try_exists(path).err()),
                    ("read_link", workspace.read_link(path).err()),
                    ("list", workspace.list(path, ListOptions::default()).err()),
                    ("walk", workspace.walk(path, WalkLimits::default()).err()),
                    ("copy from", workspace.copy(path, "copied", 99).err()),
                    ("ensure_dir", workspace.ensure_dir(path).err()),
                    ("set_times", workspace.set_times(path, None, None).err()),
                ],
                path,
            );
        }
        let walk = workspace.walk("", WalkLimits::default()).unwrap();
        assert_eq!(paths(walk), ["a", "fine", "spare", "sub", "sub/top", "sub/top/z"]);
        let all = workspace.list("", ListOptions::default().recursive().with_hidden()).unwrap();
        assert_eq!((all.total, all.is_complete()), (6, true));
    }

    #[test]
    fn a_pattern_that_matches_every_name_does_not_match_the_workspace_itself() {
        for line in ["*", ".*", "**", "?", "/*", "./"] {
            let Ok(blocked) = Patterns::new([line]) else { continue };
            assert!(!blocked.matches_dir(GuestPath::top()), "{line}");
            let stage = Stage::with_config(SessionsConfig::default().with_blocked(blocked));
            let listing = stage.session.workspace().list("", ListOptions::default()).unwrap();
            assert!(listing.is_complete(), "{line}");
        }
    }

    #[test]
    fn only_what_a_pattern_allows_is_read_or_changed() {
        let config = SessionsConfig::default().with_allowed(patterns(&["*.md", "/docs/"]));
        let stage = Stage::with_config(config);
        for file in ["a.md", "a.txt", "docs/x.txt", "src/b.md", "src/b.rs"] {
            put(&stage, file);
        }
        let workspace = stage.session.workspace();
        for path in ["a.md", "docs/x.txt", "src/b.md"] {
            assert_eq!(workspace.read_contained(path, 99).unwrap(), b"content", "{path}");
            workspace.replace(path, "new").unwrap();
        }
        for path in ["a.txt", "src/b.rs", "new.txt", "src"] {
            assert_eq!(workspace.read_contained(path, 99).unwrap_err().kind(), ErrorKind::Denied, "{path}");
            assert_eq!(workspace.replace(path, "").unwrap_err().kind(), ErrorKind::Denied, "{path}");
        }
        assert_eq!(workspace.rename("a.md", "a.exe").unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(workspace.remove_tree_contained("src").unwrap_err().kind(), ErrorKind::Denied);
        workspace.ensure_dir("src/more").unwrap();
        let walk = workspace.walk("", WalkLimits::default()).unwrap();
        assert_eq!(paths(walk), ["a.md", "docs", "docs/x.txt", "src", "src/b.md", "src/more"]);
    }

    #[test]
    fn a_filter_of_patterns_is_applied_before_a_directory_is_entered() {
        let stage = Stage::new(ResolverChoice::Auto);
        for number in 0..300 {
            put(&stage, &format!("web/node_modules/{number}/index.js"));
        }
        for file in ["web/app.js", "web/app.css", "web/build/app.js", "keep/build/x"] {
            put(&stage, file);
        }
        let workspace = stage.session.workspace();
        let filter = Filter::default().without(patterns(&["node_modules/", "/web/build"]));
        let options = ListOptions::default().recursive().with_filter(filter.clone()).with_looked_at(8);
        let listing = workspace.list("", options).unwrap();
        assert!(listing.is_complete(), "the packages are not looked at");
        let walk = workspace.walk_with("", WalkLimits::default(), filter.clone()).unwrap();
        assert_eq!(paths(walk), ["keep", "keep/build", "keep/build/x", "web", "web/app.css", "web/app.js"]);

        // Patterns are about paths from the workspace, also if the walk begins elsewhere.
        let walk = workspace.walk_with("web", WalkLimits::default(), filter.clone()).unwrap();
        assert_eq!(paths(walk), ["app.css", "app.js"]);
        assert_eq!(workspace.walk_with("web/build", WalkLimits::default(), filter).unwrap().count(), 0);

        let only = Filter::default().without(patterns(&["node_modules"])).only(patterns(&["*.js"]));
        let listing = workspace.list("web", ListOptions::default().with_filter(only)).unwrap();
        let names: Vec<_> = listing.entries.iter().map(|entry| entry.file_name().to_str().unwrap()).collect();
        assert_eq!(names, ["app.js", "build"]);
    }

    #[test]
    fn names_that_are_no_text_are_matched_byte_by_byte() {
        let config = SessionsConfig::default().with_blocked(patterns(&["*.key", "x?y", "end\\ ", "a\\*b"]));
        let stage = Stage::with_config(config);
        let workspace = stage.session.workspace();
        let path = |name: &[u8]| GuestPath::new(OsStr::from_bytes(name)).unwrap();
        for name in [&b"\xff\xfe.key"[..], b"new\nline.key", b".key", b"x\xffy", b"x\ny", b"end ", b"a*b"] {
            let path = path(name);
            assert_eq!(workspace.write_exclusive(&path, "").unwrap_err().kind(), ErrorKind::Denied, "{path}");
        }
        for name in [&b"a.KEY"[..], b"a.key ", b"a.key\n", b"x\xc3\xa9y", b"end", b"end  ", b"aXb", b"X?Y"] {
            let path = path(name);
            workspace.write_exclusive(&path, "").unwrap();
        }
        let all = workspace.list("", ListOptions::default().with_hidden()).unwrap();
        assert_eq!(all.total, 8);
    }
}

#[test]
fn a_copy_of_a_tree_leaves_what_is_read_only_as_it_is() {
    let stage = guarded(&["kept/docs", "skills"]);
    for file in ["from/docs/a", "from/docs/sub/b", "from/src/c", "skills/d"] {
        put(&stage, file);
    }
    fs::create_dir_all(stage.guest("workspace/kept/docs")).unwrap();
    let (workspace, options) = (stage.session.workspace(), TreeOptions::default().into_existing());
    let copied = workspace.copy_tree_to("from", &workspace, "kept", options).unwrap();
    let left: Vec<_> = copied.refused().map(|(path, error)| (path.to_str().unwrap(), error.kind())).collect();
    assert_eq!(left, [("docs", ErrorKind::Denied)]);
    assert_eq!((copied.files, copied.directories), (1, 1));
    assert_eq!(fs::read_dir(stage.guest("workspace/kept/docs")).unwrap().count(), 0);
    for to in ["skills/new", "skills"] {
        let error = workspace.copy_tree_to("from", &workspace, to, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{to}");
    }
    // What is read-only can be read.
    assert!(workspace.copy_tree_to("skills", &workspace, "made/here", options).unwrap().is_complete());
}
