//! What is asked for, and the code of the answer.

use std::fs;

use beneath::ResolverChoice;
use beneath::mounts::{Denial, Mode, Rules};
use beneath_kit::namespace::{Mounted, with_private_mounts};
use beneath_kit::{Arena, for_each_resolver, resolvers};

use crate::{path, request, rules, rules_by};

const REQUESTS: &str = include_str!("requests.tsv");

fn furnish(arena: &Arena) {
    for dir in [
        "projects/app/src",
        "projects/app/my-credentials-doc",
        "projects/app/..x",
        "projects/app/a..b",
        "projects/app/.env.example",
        "projects/app/.ssh/keys",
        "projects/.ssh",
        "projects/credentials",
        "projects/.aws",
        "projects/id_rsa",
        "data/shared",
        "data/private",
        "data/private-ok",
        "listed/open-1",
        "listed/OPEN-2/sub",
        "listed/closed",
        "shallow/a/b/c",
        "maybe/there",
        "nobody/app",
    ] {
        arena.dir(dir);
    }
    arena.link("projects/link-out", arena.outside()).link("projects/link-in", "app");
    arena.link("projects/dangling", "nowhere").link("maybe/dangling", "nowhere");
    arena.file("projects/file", "x").fifo("projects/fifo");
}

fn plain(text: &str) -> String {
    text.replace("\\0", "\0").replace("\\s", " ").replace("\\\\", "\\")
}

fn mode(text: &str) -> Mode {
    if text == "rw" { Mode::ReadWrite } else { Mode::ReadOnly }
}

#[test]
fn every_request_gets_its_code() {
    resolvers().into_iter().for_each(every_request_gets_its_code_by);
}

fn every_request_gets_its_code_by(resolver: ResolverChoice) {
    let arena = Arena::new();
    furnish(&arena);
    let (rules, before) = (rules_by(&arena, resolver), arena.snapshot());
    let rows: Vec<Vec<&str>> = REQUESTS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
        .collect();
    assert!(rows.len() >= 60, "{}", rows.len());
    let mut seen = std::collections::BTreeSet::new();
    for row in &rows {
        let [user, alias, base, subpath, wanted, code] = row[..] else { panic!("{row:?}") };
        let (alias, subpath) = (plain(alias), plain(subpath));
        let found = match rules.grant(user, &[request(&alias, base, &subpath, mode(wanted))]) {
            Ok(mounts) if mounts.missing().is_empty() => {
                let mount = mounts.get(&alias).unwrap();
                assert_eq!(mount.mode(), mode(wanted), "{row:?}");
                "OK"
            }
            Ok(mounts) => {
                assert!(mounts.get(&alias).is_none(), "{row:?}");
                "MISSING"
            }
            Err(denials) => denials.iter().next().unwrap().1.code(),
        };
        assert_eq!(found, code, "{resolver:?}: {row:?}");
        seen.insert(found);
    }
    // Those that no single request can show have tests of their own; neither resolver ever says that a path has left.
    let elsewhere = [
        Denial::Disabled,
        Denial::TooManyMounts,
        Denial::AliasDuplicate,
        Denial::CrossDevice,
        Denial::PathEscape,
        Denial::ResolutionFailed,
    ];
    for denial in Denial::ALL {
        assert!(seen.contains(denial.code()) != elsewhere.contains(&denial), "{denial}");
    }
    before.assert_same(&arena.snapshot(), "a grant changes nothing on disk");
}

#[test]
fn disabled_rules_deny_everything_first() {
    let arena = Arena::new();
    let asked = [request("../x", "unknown", "/etc", Mode::ReadWrite)];
    for (rules, denial) in [(Rules::disabled(), Denial::Disabled), (rules(&arena), Denial::AliasInvalid)] {
        let denials = rules.grant("ada", &asked).unwrap_err();
        assert_eq!(denials.iter().collect::<Vec<_>>(), [(0, denial)]);
    }
    let denials = Rules::new().grant("ada", &[request("x", "projects", "", Mode::ReadOnly)]).unwrap_err();
    assert_eq!(denials.to_string(), "grant mounts: request 0 is BASE_NOT_FOUND");
}

#[test]
fn one_denied_request_denies_the_set_and_all_are_listed() {
    let arena = Arena::new();
    furnish(&arena);
    let good = request("a", "projects", "app", Mode::ReadOnly);
    let asked = [
        good,
        request("A", "projects", "app/src", Mode::ReadOnly),
        request("b", "projects", "link-out", Mode::ReadOnly),
        request("c", "projects", "app", Mode::ReadWrite),
    ];
    let denials = rules(&arena).grant("ada", &asked).unwrap_err();
    let expected = [(1, Denial::AliasDuplicate), (2, Denial::Symlink), (3, Denial::ModeExceedsMax)];
    assert_eq!(denials.iter().collect::<Vec<_>>(), expected);
    assert_eq!(rules(&arena).grant("ada", &[good]).unwrap().iter().len(), 1);
}

#[test]
fn more_than_the_most_is_denied_from_there_on() {
    let arena = Arena::new();
    furnish(&arena);
    let aliases: Vec<String> = (0..12).map(|number| format!("m{number}")).collect();
    let asked: Vec<_> =
        aliases.iter().map(|alias| request(alias, "projects", "app", Mode::ReadOnly)).collect();
    let denials = rules(&arena).grant("ada", &asked).unwrap_err();
    assert_eq!(
        denials.iter().collect::<Vec<_>>(),
        [(10, Denial::TooManyMounts), (11, Denial::TooManyMounts)]
    );
    assert_eq!(rules(&arena).grant("ada", &asked[..10]).unwrap().iter().len(), 10);
    assert_eq!(rules(&arena).with_most(12).grant("ada", &asked).unwrap().iter().len(), 12);
}

#[test]
fn what_is_mounted_in_a_base_is_not_entered() {
    with_private_mounts(|| {
        let arena = Arena::new();
        furnish(&arena);
        let _mounted = Mounted([arena.at("projects/app/src")]);
        rustix::mount::mount_bind(arena.outside(), arena.at("projects/app/src")).unwrap();
        let spelled =
            ["app/src", "app/src/sub"].map(|subpath| resolvers().into_iter().map(move |by| (by, subpath)));
        for (resolver, subpath) in spelled.into_iter().flatten() {
            let denials =
                rules_by(&arena, resolver).grant("ada", &[request("x", "projects", subpath, Mode::ReadOnly)]);
            assert_eq!(denials.unwrap_err().iter().next().unwrap().1, Denial::CrossDevice);
        }
    });
}

#[test]
fn a_link_swapped_in_after_the_grant_changes_nothing() {
    for_each_resolver(|root, arena| {
        furnish(arena);
        arena.file("projects/app/src/secret", "mine");
        let mounts = rules_by(arena, root.policy().resolver())
            .grant("ada", &[request("x", "projects", "app/src", Mode::ReadOnly)])
            .unwrap();
        let naive = arena.at("projects/app/src").canonicalize().unwrap();
        assert!(naive.starts_with(arena.at("projects").canonicalize().unwrap()));
        fs::rename(arena.at("projects/app/src"), arena.at("projects/app/away")).unwrap();
        arena.link("projects/app/src", arena.outside());
        let mount = mounts.get("x").unwrap();
        assert_eq!(mount.read_contained(&path("secret"), 99).unwrap(), b"mine");
        assert_eq!(fs::read(naive.join("secret")).unwrap(), b"SECRET", "control: the path leads out");
    });
}
