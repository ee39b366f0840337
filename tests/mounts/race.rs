//! Another guest exchanges a component of a base for a link without pause, while requests are granted.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use beneath::ResolverChoice;
use beneath::mounts::Mode;
use beneath_kit::env::MOUNT_OPS;
use beneath_kit::{Arena, Ends, resolvers};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{request, rules_by};

/// Looks at the real path, approves it, and opens the path.
fn naive(arena: &Arena) -> Option<(u64, u64)> {
    let base = arena.at("projects").canonicalize().ok()?;
    let asked = base.join("app/src");
    let real = asked.canonicalize().ok().filter(|real| real.starts_with(&base));
    real.and_then(|_| fs::metadata(asked).ok()).map(|found| (found.dev(), found.ino()))
}

#[test]
fn no_foreign_directory_is_granted_while_a_component_is_exchanged() {
    resolvers().into_iter().for_each(race);
}

fn race(resolver: ResolverChoice) {
    let rounds = MOUNT_OPS.number().unwrap_or(4000_usize);
    let arena = Arena::quick();
    arena.dir("projects/app/src").dir("foreign/src").link("projects/link", "../foreign");
    let identity = |path: &str| fs::metadata(arena.at(path)).map(|found| (found.dev(), found.ino())).unwrap();
    let (own, foreign) = (identity("projects/app/src"), identity("foreign/src"));
    let rules = rules_by(&arena, resolver);
    let (stop, exchanges) = (AtomicBool::new(false), AtomicUsize::new(0));
    let [app, link] = ["projects/app", "projects/link"].map(|name| arena.at(name));
    let mut counts = [0_usize; 3];
    let mut caught = 0;
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &app, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                exchanges.fetch_add(1, Ordering::Relaxed);
            }
        });
        let asked = [request("x", "projects", "app/src", Mode::ReadOnly)];
        for _ in 0..rounds {
            match rules.grant("ada", &asked) {
                Ok(mounts) if mounts.get("x").unwrap().identity() == own => counts[0] += 1,
                Ok(_) => counts[1] += 1,
                Err(_) => counts[2] += 1,
            }
        }
        // Until it is caught: how often depends on the machine.
        for _ in 0..100 * rounds {
            caught += usize::from(naive(&arena) == Some(foreign));
            if caught >= 100 {
                break;
            }
        }
        drop(ends);
    });
    let [granted, wrong, denied] = counts;
    let exchanges = exchanges.into_inner();
    println!(
        "{resolver:?}, {rounds} rounds, {exchanges} exchanges: {granted} granted, {denied} denied, {wrong} foreign; control: {caught}"
    );
    assert_eq!(wrong, 0, "a foreign directory was granted");
    assert!(granted > 0, "nothing was granted, so the run is void");
    assert!(caught >= 100, "the control was not caught, so the run is void");
}
