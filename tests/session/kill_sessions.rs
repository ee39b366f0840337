//! The host dies before each system call of making and of removing a session or a group, and the next host finds order.

use std::fs;
use std::path::Path;
use std::time::Duration;

use beneath::session::SessionsConfig;
use beneath::{ErrorKind, ResolverChoice, Root, SessionId, Sessions, ambient_authority, safe_name};

use crate::kill::{kill_everywhere, strace_works};
use crate::support::{RESOLVERS, names};

fn sessions(dir: &Path, resolver: ResolverChoice) -> Sessions {
    let root = Root::open_ambient(dir, ambient_authority()).unwrap();
    Sessions::new(root, SessionsConfig::default().with_resolver(resolver))
}

/// What the child does to the sessions, of which there is `s`.
pub(crate) fn work(work: &str, dir: &Path, resolver: ResolverChoice) {
    let sessions = sessions(dir, resolver);
    match work {
        "create" => drop(sessions.create(&SessionId::new("t")).unwrap()),
        "group" => drop(sessions.group(&safe_name("t").unwrap()).unwrap()),
        "remove" => assert!(sessions.remove(&SessionId::new("s")).unwrap().is_complete()),
        work => panic!("unknown work {work:?}"),
    }
}

fn prepare(dir: &Path) {
    sessions(dir, ResolverChoice::Auto).create(&SessionId::new("s")).unwrap();
    fs::create_dir(dir.join("s/guest/workspace/d")).unwrap();
    fs::write(dir.join("s/guest/workspace/d/f"), "x").unwrap();
}

/// Everything is a session or a group, whole, after what a service does anyway.
fn order(dir: &Path, resolver: ResolverChoice) -> Result<(), String> {
    let sessions = sessions(dir, resolver);
    let fail = |error: beneath::Error| error.to_string();
    let survey = sessions.survey().map_err(fail)?;
    if survey.refused.total > 0 {
        return Err(format!("refused {:?}", survey.refused));
    }
    for id in &survey.sessions {
        if !sessions.open(id).map_err(fail)?.verify().is_sound() {
            return Err(format!("{id} is not whole"));
        }
    }
    let swept = sessions.sweep(Duration::from_secs(3600)).map_err(fail)?;
    if swept.left.total > 0 || names(dir).iter().any(|name| name.starts_with(".removed-")) {
        return Err(format!("{swept:?} left {:?}", names(dir)));
    }
    Ok(())
}

fn kill_at_each_call(work: &str, judge: impl Fn(&Path, &Sessions) -> Result<(), String> + Sync) {
    for resolver in RESOLVERS {
        let judge = |dir: &Path| {
            order(dir, resolver)?;
            judge(dir, &sessions(dir, resolver))?;
            // Whatever is left of interrupted calls goes with the first sweep that finds it old.
            let swept = sessions(dir, resolver).sweep(Duration::ZERO).map_err(|error| error.to_string())?;
            let left: Vec<String> = names(dir).into_iter().filter(|name| name.starts_with('.')).collect();
            if swept.left.total > 0 || left.iter().any(|name| ![".clock", ".log"].contains(&name.as_str())) {
                return Err(format!("{swept:?} left {left:?}"));
            }
            Ok(())
        };
        let (calls, violations) = kill_everywhere(work, resolver, &prepare, &judge);
        println!("{work}, {resolver:?}: killed at each of {calls} calls");
        assert!(calls > 10 && violations.is_empty(), "{violations:#?}");
    }
}

#[test]
fn killed_anywhere_in_a_creation_leaves_a_whole_session_or_none() {
    if !strace_works() {
        return;
    }
    kill_at_each_call("create", |_, sessions| {
        let (session, _) = sessions.create(&SessionId::new("t")).map_err(|error| error.to_string())?;
        if session.verify().is_sound() { Ok(()) } else { Err("t is not whole".into()) }
    });
}

#[test]
fn killed_anywhere_in_making_a_group_leaves_a_group_or_none() {
    if !strace_works() {
        return;
    }
    kill_at_each_call("group", |_, sessions| {
        sessions.group(&safe_name("t").unwrap()).map_err(|error| error.to_string())?;
        match sessions.create(&SessionId::new("t")) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[test]
fn killed_anywhere_in_a_removal_leaves_the_whole_session_or_remains_without_a_name() {
    if !strace_works() {
        return;
    }
    kill_at_each_call("remove", |dir, sessions| {
        let id = SessionId::new("s");
        match sessions.exists(&id) {
            Ok(true) if dir.join("s/guest/workspace/d/f").exists() => match sessions.remove(&id) {
                Ok(removed) if removed.is_complete() => Ok(()),
                other => Err(format!("{other:?}")),
            },
            Ok(false) if !dir.join("s").exists() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}
