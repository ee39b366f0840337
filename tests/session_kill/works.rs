//! What is killed, and how the next host judges it.

use std::fs;
use std::path::Path;

use beneath::tree::MergeOptions;
use beneath::{ErrorKind, MessageId, ResolverChoice, safe_name};
use beneath_kit::Contender;
use beneath_kit::naive::session::NaiveSession;
use beneath_kit::scene::lack::Lack;
use nix::libc;

use crate::host::*;
use crate::judge::*;
use crate::merge::*;

/// Some work of a service that is killed at each call.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) contenders: &'static [Contender],
    /// What this kernel is made to lack, for the one that dies and for the next one.
    pub(crate) lack: Lack,
    /// Whether the host's side is on another file system.
    pub(crate) is_elsewhere: bool,
    /// Calls fail with an error of the device instead of being the last.
    pub(crate) fails: Option<libc::c_long>,
    /// How many ends there are at the very least.
    pub(crate) least: usize,
    pub(crate) prepare: fn(&Path),
    /// Opens what is needed, and returns what is killed.
    pub(crate) work: fn(&Path, ResolverChoice) -> Box<dyn FnOnce()>,
    /// Whether an end is one that the row is about; some must be.
    pub(crate) matters: fn(&Path) -> bool,
    pub(crate) judge: fn(&Path, ResolverChoice) -> Verdict,
}

pub(crate) const COLLECT: Work = Work {
    name: "collect",
    contenders: Contender::RESOLVERS,
    lack: Lack::Nothing,
    is_elsewhere: false,
    fails: None,
    least: 20,
    prepare: prepare_message,
    work: |dir, resolver| {
        let session = session(dir, resolver);
        Box::new(move || assert!(collect_all(&session).is_complete()))
    },
    matters: |_| true,
    judge: |dir, resolver| judge_loop(dir, &session(dir, resolver), &dir.join("s/host")),
};
pub(crate) const DELIVER: Work = Work {
    name: "deliver",
    least: 10,
    prepare: |dir| drop(session(dir, ResolverChoice::Auto)),
    work: |dir, resolver| {
        let session = session(dir, resolver);
        Box::new(move || {
            assert!(session.inbox().deliver(&MessageId::new("42"), attachments()).is_complete());
        })
    },
    judge: |dir, resolver| {
        no_torn_file(&dir.join("s/guest/inbox/42"))?;
        let retry = session(dir, resolver).inbox().deliver(&MessageId::new("42"), attachments());
        let renamed = retry.files().any(|file| file.taken.is_some());
        match (retry.is_complete(), renamed, names(&dir.join("s/guest/inbox/42")).len()) {
            (true, false, 2) => Ok(()),
            _ => Err(format!("the retry gave {retry:?}")),
        }
    },
    ..COLLECT
};
pub(crate) const ONE: Work = Work { contenders: &[Contender::Openat2], ..COLLECT };

const SYNC_FAILS: Work = Work {
    name: "collect, a sync fails",
    fails: Some(libc::SYS_fsync),
    least: 4,
    work: |dir, _| {
        let session = durable_session(dir);
        Box::new(move || drop(collect_all(&session)))
    },
    matters: |dir| names(&dir.join("s/host/claimed")).len() == 1 && !has_sent(dir),
    judge: |dir, _| judge_loop(dir, &durable_session(dir), &dir.join("s/host")),
    ..ONE
};

pub(crate) const WORKS: &[Work] = &[
    DELIVER,
    COLLECT,
    Work { name: "collect without reserving names", lack: Lack::NoReplace, ..ONE },
    Work {
        name: "collect in place",
        is_elsewhere: true,
        prepare: |dir| {
            session_in_place(dir, ResolverChoice::Auto);
            send_message(dir);
        },
        work: |dir, resolver| {
            let session = session_in_place(dir, resolver);
            Box::new(move || assert!(collect_all(&session).is_complete()))
        },
        judge: |dir, resolver| judge_loop(dir, &session_in_place(dir, resolver), &elsewhere(dir)),
        ..ONE
    },
    // What an earlier host has claimed is counted, and then sent.
    Work { name: "collect pending", prepare: prepare_pending, ..COLLECT },
    // It has not said whether its claim was durable.
    Work { name: "collect pending, a sync fails", prepare: prepare_pending, ..SYNC_FAILS },
    // A move may be done although its sync has failed. Then the message is claimed, and is sent only once it is durable.
    SYNC_FAILS,
    Work {
        name: "create a session",
        work: |dir, resolver| sessions_work(dir, resolver, |all| drop(all.create(&id("t")).unwrap())),
        judge: |dir, resolver| {
            orderly(dir, resolver, |all| {
                let (session, _) = all.create(&id("t")).map_err(text)?;
                if session.verify().is_sound() { Ok(()) } else { Err("t is not whole".into()) }
            })
        },
        ..SESSIONS
    },
    Work {
        name: "make a group",
        work: |dir, resolver| {
            sessions_work(dir, resolver, |all| drop(all.group(&safe_name("t").unwrap()).unwrap()))
        },
        judge: |dir, resolver| {
            orderly(dir, resolver, |all| {
                all.group(&safe_name("t").unwrap()).map_err(text)?;
                match all.create(&id("t")) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })
        },
        ..SESSIONS
    },
    Work {
        name: "remove a session",
        work: |dir, resolver| {
            sessions_work(dir, resolver, |all| assert!(all.remove(&id("s")).unwrap().is_complete()))
        },
        judge: |dir, resolver| {
            orderly(dir, resolver, |all| match all.exists(&id("s")) {
                Ok(true) if dir.join("s/guest/workspace/d/f").exists() => match all.remove(&id("s")) {
                    Ok(removed) if removed.is_complete() => Ok(()),
                    other => Err(format!("{other:?}")),
                },
                Ok(false) if !dir.join("s").exists() => Ok(()),
                other => Err(format!("{other:?}")),
            })
        },
        ..SESSIONS
    },
    MERGE,
    // Where the file system cannot exchange, a name is free for a moment.
    Work {
        name: "merge without exchanging",
        lack: Lack::Exchange,
        contenders: &[Contender::Openat2],
        ..MERGE
    },
    Work {
        name: "control: merge",
        contenders: &[Contender::Control],
        least: 8,
        work: |dir, _| {
            let dir = dir.to_path_buf();
            Box::new(move || copy_over(&dir))
        },
        judge: |dir, _| versions_survive(dir),
        ..MERGE
    },
    Work {
        name: "control: deliver",
        contenders: &[Contender::Control],
        prepare: DELIVER.prepare,
        work: |dir, _| {
            let naive = NaiveSession { dir: dir.join("s/guest") };
            Box::new(move || {
                for (name, byte, length) in FILES {
                    naive.deliver("42", name, &vec![byte; length], || {}).unwrap();
                }
            })
        },
        judge: |dir, _| no_torn_file(&dir.join("s/guest/inbox/42")),
        ..ONE
    },
    Work {
        name: "control: collect",
        contenders: &[Contender::Control],
        work: |dir, _| {
            let naive = NaiveSession { dir: dir.join("s/guest") };
            Box::new(move || {
                let files = naive.collect("42", &FILES.map(|(name, ..)| name), || {});
                assert_eq!(files.len(), 2);
                naive.clear("42");
            })
        },
        judge: |dir, _| visible_messages_are_whole(dir, &dir.join("s/host")),
        ..ONE
    },
];

/// The guest and another copy have both changed the workspace.
pub(crate) const MERGE: Work = Work {
    name: "merge",
    least: 20,
    prepare: prepare_merge,
    work: |dir, resolver| {
        let (session, source, base) = (session(dir, resolver), source(dir), base(dir));
        let options = MergeOptions::default();
        Box::new(move || {
            assert!(session.workspace().merge_from(&source, &base, &options).unwrap().left.is_empty());
        })
    },
    judge: |dir, resolver| {
        versions_survive(dir)?;
        let session = session(dir, resolver);
        for _ in 0..2 {
            let merged = session.workspace().merge_from(&source(dir), &base(dir), &MergeOptions::default());
            let merged = merged.map_err(text)?;
            if !merged.left.is_empty() || !merged.held.is_empty() {
                return Err(format!("{merged:?}"));
            }
            versions_survive(dir)?;
        }
        merged_once(dir)
    },
    ..COLLECT
};

pub(crate) const SESSIONS: Work = Work {
    prepare: |dir| {
        sessions(dir, ResolverChoice::Auto).create(&id("s")).unwrap();
        fs::create_dir(dir.join("s/guest/workspace/d")).unwrap();
        fs::write(dir.join("s/guest/workspace/d/f"), "x").unwrap();
    },
    ..COLLECT
};
