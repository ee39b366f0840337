//! Mounts that a session keeps for the next start.

use std::fs;

use beneath::mounts::{Denial, Loaded, Mode, Mounts, Rules};
use beneath::{ErrorKind, Root, Session, SessionId, Sessions, SessionsConfig, ambient_authority};
use beneath_kit::{Arena, kind};

use crate::{base, request, rules};

const RECORD: &str = "sessions/s/host/state/mounts";

fn session(arena: &Arena) -> Session {
    let root = Root::open_ambient(arena.dir("sessions").at("sessions"), ambient_authority()).unwrap();
    Sessions::new(root, SessionsConfig::default()).create(&SessionId::new("s")).unwrap().0
}

fn saved(arena: &Arena) -> Session {
    arena.dir("projects/app").dir("data/shared");
    let session = session(arena);
    let asked =
        [request("src", "projects", "app", Mode::ReadOnly), request("d", "data", "shared", Mode::ReadWrite)];
    rules(arena).grant("ada", &asked).unwrap().save(&session).unwrap();
    session
}

fn aliases(loaded: &Loaded) -> Vec<&str> {
    loaded.mounts.iter().map(|mount| mount.alias().as_str()).collect()
}

#[test]
fn what_is_saved_is_granted_again() {
    let arena = Arena::new();
    let session = saved(&arena);
    let loaded = Mounts::load(&session, &rules(&arena), "ada").unwrap();
    assert_eq!((aliases(&loaded), loaded.refused.len(), loaded.changed.len()), (vec!["d", "src"], 0, 0));
    assert_eq!(loaded.mounts.get("src").unwrap().mode(), Mode::ReadOnly);
    assert_eq!(loaded.mounts.get("d").unwrap().mode(), Mode::ReadWrite);
}

#[test]
fn no_record_is_no_mounts() {
    let arena = Arena::new();
    let loaded = Mounts::load(&session(&arena), &rules(&arena), "ada").unwrap();
    assert!(aliases(&loaded).is_empty());
}

#[test]
fn the_rules_of_now_and_the_user_of_now_count() {
    let arena = Arena::new();
    let session = saved(&arena);
    let loaded = Mounts::load(&session, &rules(&arena), "bob").unwrap();
    assert_eq!(loaded.refused, [("src".to_owned(), Denial::NotAuthorized)]);
    assert_eq!(aliases(&loaded), ["d"]);
    let narrower = rules(&arena).with_base(base(&arena, "data").for_everybody());
    let loaded = Mounts::load(&session, &narrower, "ada").unwrap();
    assert_eq!(loaded.refused, [("d".to_owned(), Denial::ModeExceedsMax)]);
    let loaded = Mounts::load(&session, &Rules::disabled(), "ada").unwrap();
    assert_eq!((loaded.refused.len(), aliases(&loaded).len()), (2, 0));
}

#[test]
fn another_directory_at_the_same_path_is_not_the_one_that_was_granted() {
    let arena = Arena::new();
    let session = saved(&arena);
    fs::rename(arena.at("projects/app"), arena.at("projects/was-app")).unwrap();
    arena.dir("projects/app");
    let loaded = Mounts::load(&session, &rules(&arena), "ada").unwrap();
    assert_eq!(aliases(&loaded), ["d"]);
    assert_eq!(loaded.changed, ["src"]);
    fs::remove_dir(arena.at("projects/app")).unwrap();
    arena.link("projects/app", arena.outside());
    let loaded = Mounts::load(&session, &rules(&arena), "ada").unwrap();
    assert_eq!(loaded.refused, [("src".to_owned(), Denial::Symlink)]);
}

#[test]
fn an_edited_record_is_judged_like_any_request() {
    let arena = Arena::new();
    let session = saved(&arena);
    let good = String::from_utf8(arena.content(RECORD)).unwrap();
    let edits = [
        ("app\tro", "app\trw", Denial::ModeExceedsMax),
        ("\tapp\t", "\t../outside\t", Denial::DangerousPattern),
        ("\tprojects\t", "\tnobody\t", Denial::NotAuthorized),
        ("src\t", "inbox\t", Denial::AliasReserved),
        ("\tapp\t", "\t.ssh\t", Denial::GlobalBlocked),
    ];
    for (from, to, denial) in edits {
        let edited = good.replacen(from, to, 1);
        assert_ne!(edited, good, "{from}");
        fs::write(arena.at(RECORD), edited).unwrap();
        let loaded = Mounts::load(&session, &rules(&arena), "ada").unwrap();
        assert_eq!(loaded.refused.iter().map(|(_, why)| *why).collect::<Vec<_>>(), [denial], "{to}");
        assert_eq!(aliases(&loaded), ["d"], "{to}");
    }
    for damage in ["", "beneath mounts 2\n", &good.replace("\tro\t", "\trx\t"), &good.replace('\t', " ")] {
        fs::write(arena.at(RECORD), damage).unwrap();
        assert_eq!(kind(Mounts::load(&session, &rules(&arena), "ada")), ErrorKind::InvalidData, "{damage}");
    }
}

/// A record that ends early is not a shorter record.
#[test]
fn a_part_of_a_record_is_damaged() {
    let arena = Arena::new();
    let session = saved(&arena);
    let good = arena.content(RECORD);
    for bytes in 0..good.len() {
        fs::write(arena.at(RECORD), &good[..bytes]).unwrap();
        let loaded = Mounts::load(&session, &rules(&arena), "ada");
        assert_eq!(kind(loaded), ErrorKind::InvalidData, "{bytes} bytes");
    }
    fs::write(arena.at(RECORD), &good).unwrap();
    assert!(Mounts::load(&session, &rules(&arena), "ada").unwrap().is_complete());
}

#[test]
fn what_is_gone_from_an_optional_base_is_reported() {
    let arena = Arena::new();
    arena.dir("maybe/there");
    let session = session(&arena);
    let asked =
        [request("x", "maybe", "there", Mode::ReadOnly), request("y", "maybe", "nothing", Mode::ReadOnly)];
    let mounts = rules(&arena).grant("ada", &asked).unwrap();
    assert_eq!(mounts.missing().iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["y"]);
    mounts.save(&session).unwrap();
    assert!(Mounts::load(&session, &rules(&arena), "ada").unwrap().is_complete());
    fs::remove_dir(arena.at("maybe/there")).unwrap();
    let loaded = Mounts::load(&session, &rules(&arena), "ada").unwrap();
    assert_eq!(loaded.refused, [("x".to_owned(), Denial::PathNotFound)]);
    assert!(!loaded.is_complete() && aliases(&loaded).is_empty());
}

#[test]
fn those_that_are_denied_do_not_count_among_the_most() {
    let arena = Arena::new();
    let session = saved(&arena);
    let loaded = Mounts::load(&session, &rules(&arena).with_most(1), "ada").unwrap();
    assert_eq!(
        (aliases(&loaded), &loaded.refused[..]),
        (vec!["d"], &[("src".to_owned(), Denial::TooManyMounts)][..])
    );
    let narrower = rules(&arena).with_base(base(&arena, "data")).with_most(1);
    let loaded = Mounts::load(&session, &narrower, "ada").unwrap();
    assert_eq!(
        (aliases(&loaded), &loaded.refused[..]),
        (vec!["src"], &[("d".to_owned(), Denial::NotAuthorized)][..])
    );
}

#[test]
fn a_session_that_was_removed_has_no_record() {
    let arena = Arena::new();
    let session = saved(&arena);
    let mounts = Mounts::load(&session, &rules(&arena), "ada").unwrap().mounts;
    fs::rename(arena.at("sessions/s"), arena.at("sessions/.removed-s")).unwrap();
    assert_eq!(kind(mounts.save(&session)), ErrorKind::NotFound);
    assert_eq!(kind(Mounts::load(&session, &rules(&arena), "ada")), ErrorKind::NotFound);
}
