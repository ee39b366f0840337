//! Changing mode and owner of what is there: by its handle, only what has one name, and only if need be.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use beneath::{Access, Applied, ErrorKind, Execute};

use crate::support::{for_each_resolver, is_root, kind, skip};

#[test]
fn set_access_sets_the_mode_and_says_whether_it_had_to() {
    for_each_resolver(|root, arena| {
        arena.file("d/f", "x").mode("d/f", 0o4666).mode("d", 0o777);
        let access = Access::custom(0o640, 0o750);
        for (path, mode) in [("d/f", 0o640), ("d", 0o750), (".", 0o750)] {
            assert_eq!(root.set_access(path, access, Execute::Clear).unwrap(), Applied::Changed, "{path}");
            assert_eq!(arena.mode_of(path), mode, "{path}");
            let changed =
                || fs::metadata(arena.at(path)).map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap();
            let before = changed();
            assert_eq!(root.set_access(path, access, Execute::Clear).unwrap(), Applied::Unchanged, "{path}");
            assert_eq!(changed(), before, "{path} was touched");
        }
    });
}

#[test]
fn whoever_may_read_keeps_the_right_to_execute() {
    for_each_resolver(|root, arena| {
        let cases = [
            (0o755, 0o600, 0o700),
            (0o755, 0o640, 0o750),
            (0o711, 0o644, 0o755),
            (0o010, 0o644, 0o654),
            (0o755, 0o000, 0o000),
            (0o600, 0o660, 0o660),
            (0o4755, 0o600, 0o700),
            // What the new mode asks for itself stays, whatever was there.
            (0o755, 0o755, 0o755),
            (0o644, 0o711, 0o711),
        ];
        for (before, asked, after) in cases {
            arena.file("f", "x").mode("f", before);
            root.set_access("f", Access::custom(asked, 0o700), Execute::Keep).unwrap();
            assert_eq!(arena.mode_of("f"), after, "{before:o} under {asked:o}");
            arena.mode("f", before);
            root.set_access("f", Access::custom(asked, 0o700), Execute::Clear).unwrap();
            assert_eq!(arena.mode_of("f"), asked, "{before:o} under {asked:o}, cleared");
            fs::remove_file(arena.at("f")).unwrap();
        }
    });
}

#[test]
fn set_access_refuses_what_is_not_the_guests_alone() {
    for_each_resolver(|root, arena| {
        let canary = arena.throwaway().join("canary");
        arena.file("f", "x").link("l", "f").link("out", arena.outside().join("secret")).fifo("p").socket("s");
        arena.hard_link("stolen", &canary);
        let mode = fs::metadata(&canary).unwrap().mode();
        let before = arena.snapshot();
        for (path, expected) in [
            ("l", ErrorKind::Symlink),
            ("out", ErrorKind::Symlink),
            ("p", ErrorKind::NotRegular),
            ("s", ErrorKind::NotRegular),
            ("stolen", ErrorKind::HardLinked),
            ("none", ErrorKind::NotFound),
        ] {
            let access = Access::custom(0o777, 0o777);
            assert_eq!(kind(root.set_access(path, access, Execute::Clear)), expected, "{path}");
        }
        before.assert_same(&arena.snapshot(), "a refused change");
        assert_eq!(fs::metadata(&canary).unwrap().mode(), mode);
    });
}

#[test]
fn an_owner_that_is_right_already_is_not_set() {
    for_each_resolver(|root, arena| {
        arena.file("f", "x").mode("f", 0o600);
        let meta = fs::metadata(arena.at("f")).unwrap();
        let own = Access::private().with_owner(meta.uid()).with_group(meta.gid());
        assert_eq!(root.set_access("f", own, Execute::Clear).unwrap(), Applied::Unchanged);
        if !is_root() {
            for foreign in [own.with_owner(meta.uid() + 1), own.with_group(0)] {
                assert_eq!(kind(root.set_access("f", foreign, Execute::Clear)), ErrorKind::Denied);
            }
            return skip("giving files away needs privileges");
        }
        for (access, ids) in [
            (Access::private().with_owner(1234), (1234, meta.gid())),
            (Access::private().with_group(4321), (1234, 4321)),
            (own, (meta.uid(), meta.gid())),
        ] {
            assert_eq!(root.set_access("f", access, Execute::Clear).unwrap(), Applied::Changed);
            let given = fs::metadata(arena.at("f")).unwrap();
            assert_eq!((given.uid(), given.gid()), ids);
            assert_eq!(root.set_access("f", access, Execute::Clear).unwrap(), Applied::Unchanged);
        }
    });
}
