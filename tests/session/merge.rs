//! Changes of a copy come back to a workspace.

use std::fs;

use beneath::session::SessionsConfig;
use beneath::tree::{MergeOptions, TreeLimits};
use beneath::{ErrorKind, GuestPath, ResolverChoice, SessionId};

use crate::support::*;

#[test]
fn what_the_rules_protect_is_refused_and_the_rest_is_merged() {
    let config = SessionsConfig::default().with_read_only([GuestPath::new("skills").unwrap()]);
    let stage = Stage::with_config(config);
    let (child, _) = stage.sessions.create(&SessionId::new("child")).unwrap();
    fs::create_dir(stage.guest("workspace/skills")).unwrap();
    fs::write(stage.guest("workspace/skills/a.md"), "the host's").unwrap();
    let base = stage.session.workspace().tree(TreeLimits::default()).unwrap();
    for path in ["skills/a.md", "skills/b.md", "own.md"] {
        let path = stage.sessions_path().join("child/guest/workspace").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "the child's").unwrap();
    }
    let source = child.workspace().open().unwrap();
    for _ in 0..2 {
        let merged = stage.session.workspace().merge_from(&source, &base, &MergeOptions::default()).unwrap();
        let refused: Vec<_> = merged.refused().map(|(path, error)| (path.to_owned(), error.kind())).collect();
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused.iter().all(|(path, kind)| path.starts_with("skills") && *kind == ErrorKind::Denied));
        assert_eq!(fs::read(stage.guest("workspace/skills/a.md")).unwrap(), b"the host's");
        assert_eq!(fs::read(stage.guest("workspace/own.md")).unwrap(), b"the child's");
        assert!(!stage.guest("workspace/skills/b.md").exists());
    }
    assert!(stage.home.is_untouched());
}

#[test]
fn a_workspace_that_was_replaced_is_refused() {
    for resolver in RESOLVERS {
        let stage = Stage::new(resolver);
        let (child, _) = stage.sessions.create(&SessionId::new("child")).unwrap();
        child.workspace().write_exclusive("diary.txt", "overwritten").unwrap();
        let source = child.workspace().open().unwrap();
        stage.replace_by_link("workspace", stage.home.path());
        let refused =
            stage.session.workspace().merge_from(&source, &Default::default(), &MergeOptions::default());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Symlink);
        assert!(stage.home.is_untouched());
    }
}

#[test]
fn what_was_displaced_is_in_the_trash_and_new_files_have_the_access_of_the_session() {
    let stage = Stage::new(ResolverChoice::Auto);
    let workspace = stage.session.workspace();
    workspace.write_exclusive("a", "old").unwrap();
    let base = workspace.tree(TreeLimits::default()).unwrap();
    let (child, _) = stage.sessions.create(&SessionId::new("child")).unwrap();
    child.workspace().write_exclusive("a", "new").unwrap();
    child.workspace().write_exclusive("b", "new").unwrap();
    let merged =
        workspace.merge_from(&child.workspace().open().unwrap(), &base, &MergeOptions::default()).unwrap();
    assert!(merged.is_complete(), "{merged:?}");
    let modes = ["a", "b"].map(|path| workspace.metadata(path).unwrap().mode());
    assert_eq!(modes, [child.workspace().metadata("b").unwrap().mode(); 2]);
    let trash = names(&stage.host("trash"));
    assert_eq!(trash.len(), 1, "{trash:?}");
    assert_eq!(fs::read(stage.host("trash").join(&trash[0]).join("0")).unwrap(), b"old");
}
