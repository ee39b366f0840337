//! Directories of the host that a guest asks for: codes, handles, records, races.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod handover;
mod kept;
mod patterns;
mod race;
mod read_only;
mod table;

use beneath::mounts::{Base, Mode, NamePatterns, Request, Rules};
use beneath::{GuestPath, Policy, ResolverChoice, Root, ambient_authority, safe_name};
use beneath_kit::Arena;

fn names(patterns: &[&str]) -> NamePatterns {
    NamePatterns::new(patterns).unwrap()
}

fn path(text: &str) -> GuestPath {
    GuestPath::new(text).unwrap()
}

fn base(arena: &Arena, name: &str) -> Base {
    base_by(arena, name, ResolverChoice::Auto)
}

fn base_by(arena: &Arena, name: &str, resolver: ResolverChoice) -> Base {
    let root = Root::open_ambient(arena.dir(name).at(name), ambient_authority()).unwrap();
    Base::new(safe_name(name).unwrap(), root.with_policy(Policy::default().with_resolver(resolver)))
}

/// The rules that all tests use.
fn rules(arena: &Arena) -> Rules {
    rules_by(arena, ResolverChoice::Auto)
}

/// The same, with bases that are looked up by this resolver.
fn rules_by(arena: &Arena, resolver: ResolverChoice) -> Rules {
    let base = |arena, name: &str| base_by(arena, name, resolver);
    Rules::new()
        .with_reserved(["Mine"])
        .with_base(base(arena, "projects").with_users(["ada"]))
        .with_base(
            base(arena, "data")
                .for_everybody()
                .with_max_mode(Mode::ReadWrite)
                .with_block(names(&["private*"]))
                .with_exceptions(names(&["private-ok"])),
        )
        .with_base(base(arena, "listed").with_users(["ada"]).with_allow(names(&["open*"])))
        .with_base(base(arena, "shallow").with_users(["ada"]).with_depth(2))
        .with_base(base(arena, "maybe").with_users(["ada"]).optional())
        .with_base(base(arena, "nobody"))
}

fn request<'a>(alias: &'a str, base: &'a str, subpath: &'a str, mode: Mode) -> Request<'a> {
    Request { alias, base, subpath, mode }
}
