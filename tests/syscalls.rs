//! What the kernel is asked, seen from outside by strace.
//!
//! After the root is open no call may get an absolute path, a `..`, or a path of several components, with two
//! exceptions: `openat2` takes relative paths, and the process's own descriptors are reached through `/proc`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, unreachable_pub)]

use std::fs;
use std::process::Command;

use beneath::{Access, Durability, HardLinks, Policy, ResolverChoice, Root, ambient_authority};
use beneath_kit::operations::{Leaf, OPERATIONS, Operation, RENAME_SOURCE};
use beneath_kit::seccomp::{Denial, denied};
use beneath_kit::{Arena, child, skip, tree};

const BEGIN: &str = "beneath-region-begins";
const END: &str = "beneath-region-ends";
/// Begins the names of the operations that succeeded, after the end of a region.
const SUCCEEDED: &str = "beneath-succeeded: ";

/// A call that does nothing but show up in the trace.
fn mark(name: &str) {
    let _ = fs::symlink_metadata(name);
}

fn policies() -> [Policy; 3] {
    [
        Policy::default(),
        Policy::default().with_durability(Durability::Full).with_access(Access::shared()),
        Policy::default().with_hard_links(HardLinks::Allow),
    ]
}

/// Where an operation finds what it needs to succeed: what others do to the tree must not come before it.
fn scene(round: usize, op: &Operation) -> String {
    format!("scene-{round}-{}", op.name)
}

fn build_scenes(arena: &Arena) {
    for round in 0..policies().len() {
        for op in OPERATIONS {
            let scene = scene(round, op);
            let leaf = format!("{scene}/leaf");
            arena.file(format!("{scene}/{RENAME_SOURCE}"), "x");
            match op.leaf {
                Leaf::Absent => arena,
                Leaf::File => arena.file(leaf, "x"),
                Leaf::Link => arena.link(leaf, "../x"),
                Leaf::EmptyDirectory => arena.dir(leaf),
                Leaf::Directory => arena.file(format!("{leaf}/a/f"), "x"),
            };
        }
    }
}

/// Everything the core can do, on things that succeed and things that are refused.
fn exercise(root: &Root, round: usize) -> Vec<&'static str> {
    let succeeds = |op: &&Operation| {
        let own = root.descend(scene(round, op));
        own.is_ok_and(|own| op.run_on(&own, "leaf").is_ok())
    };
    let succeeded = OPERATIONS.iter().filter(succeeds).map(|op| op.name).collect();
    for op in OPERATIONS {
        for path in [
            "a/b/f",
            "a/b",
            "a/b/new",
            "a/l",
            "a/l/x",
            "a/out/secret",
            "p",
            "none/x",
            "deep",
            "s",
            "two",
            ".",
            "..",
            "/etc/passwd",
            "a/b/",
            "t",
        ] {
            let _ = op.run_on(root, path);
        }
    }
    let _ = root.new_file("dropped");
    let _ = root.try_clone();
    succeeded
}

/// Not a test of its own: the traced child.
#[test]
fn traced() {
    if !child::is("traced") {
        return;
    }
    let place = std::env::var_os("BENEATH_TEST_PLACE").unwrap();
    let choice = match std::env::var("BENEATH_TEST_RESOLVER").unwrap().as_str() {
        "walk" => ResolverChoice::Walk,
        _ => ResolverChoice::Auto,
    };
    let root = Root::open_ambient(place, ambient_authority()).unwrap();
    for (round, policy) in policies().into_iter().enumerate() {
        let root = root.try_clone().unwrap().with_policy(policy.with_resolver(choice));
        mark(BEGIN);
        let succeeded = exercise(&root, round);
        mark(END);
        succeeded.into_iter().for_each(|name| mark(&format!("{SUCCEEDED}{name}")));
    }
}

/// The quoted strings of one line of a trace.
fn strings(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find('"') {
        let body = &rest[start + 1..];
        let mut end = 0;
        let bytes = body.as_bytes();
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        found.push(body[..end.min(body.len())].to_owned());
        rest = body.get(end + 1..).unwrap_or("");
    }
    found
}

/// Whether a path names the process's own descriptors and nothing else.
fn is_own_descriptors(path: &str) -> bool {
    let Some(rest) = path.strip_prefix("/proc/self/fd").or_else(|| path.strip_prefix("/proc/thread-self/fd"))
    else {
        return false;
    };
    matches!(rest, "" | "/") || rest.strip_prefix('/').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

/// What is wrong with one traced call, if anything.
fn violation(line: &str) -> Option<&'static str> {
    let call = line.split('(').next().unwrap_or("").split_whitespace().last().unwrap_or("");
    // The text of a link is kept, and looked up by nobody.
    let text = ["symlinkat", "readlinkat"].iter().position(|of| *of == call);
    for (position, path) in strings(line).into_iter().enumerate() {
        if text == Some(position) || path == BEGIN || path == END || is_own_descriptors(&path) {
            continue;
        }
        if path.starts_with('/') {
            return Some("an absolute path");
        }
        if path.split('/').any(|component| component == "..") {
            return Some("a parent component");
        }
        if path.contains('/') && call != "openat2" {
            return Some("several components outside openat2");
        }
        if line.contains("AT_FDCWD") {
            return Some("the working directory");
        }
    }
    None
}

#[test]
fn the_judge_knows_a_violation() {
    for (line, wrong) in [
        (r#"7 openat2(3, "a/b", {flags=O_PATH}, 24) = 4"#, false),
        (r#"7 openat(3, "b", O_PATH) = 4"#, false),
        (r#"7 openat(4, ".", O_WRONLY|O_TMPFILE, 0600) = 5"#, false),
        (r#"7 linkat(5, "", 4, "f", AT_EMPTY_PATH) = 0"#, false),
        (r#"7 openat(AT_FDCWD, "/proc/self/fd/5", O_RDONLY) = 6"#, false),
        (r#"7 openat(3, "a/b", O_PATH) = 4"#, true),
        (r#"7 openat2(3, "../b", {flags=O_PATH}, 24) = 4"#, true),
        (r#"7 openat2(3, "/b", {flags=O_PATH}, 24) = 4"#, true),
        (r#"7 renameat2(3, "a", 4, "l/b", RENAME_NOREPLACE) = 0"#, true),
        (r#"7 openat(AT_FDCWD, "/proc/self/fd/5/../../x", O_RDONLY) = 6"#, true),
        (r#"7 openat(AT_FDCWD, "b", O_RDONLY) = 6"#, true),
        (r#"7 openat(3, "b/", O_PATH) = 4"#, true),
        (r#"7 symlinkat("../b", 3, "l") = 0"#, false),
        (r#"7 symlinkat("b", 3, "../l") = 0"#, true),
        (r#"7 readlinkat(4, "", "/etc/passwd", 128) = 11"#, false),
        (r#"7 readlinkat(4, "a/l", "b", 128) = 1"#, true),
    ] {
        assert_eq!(violation(line).is_some(), wrong, "{line}");
    }
}

fn trace(resolver: &str) -> Option<String> {
    let arena = Arena::new();
    arena.file("a/b/f", "x").link("a/l", "b").link("a/out", arena.outside()).fifo("p").socket("s");
    arena.file("one", "x").hard_link("two", arena.at("one")).file(RENAME_SOURCE, "x");
    arena.file("t/a/f", "x").dir("t/closed").mode("t/closed", 0).dir("deep");
    build_scenes(&arena);
    drop(tree::deep(fs::File::open(arena.at("deep")).unwrap(), "d", 100));
    let log = arena.beside("trace");
    let output = Command::new("strace")
        .args(["-f", "-s", "9999", "-e", "trace=%file,?openat2,?fchmodat2", "-o"])
        .arg(&log)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "traced", "--nocapture", "--test-threads=1"])
        .env("BENEATH_TEST_CHILD", "traced")
        .env("BENEATH_TEST_PLACE", arena.root())
        .env("BENEATH_TEST_RESOLVER", resolver)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            skip(&format!("strace cannot be run: {error}"));
            return None;
        }
    };
    let Ok(text) = fs::read_to_string(&log) else {
        skip(&format!("strace cannot trace: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    };
    if !text.contains(BEGIN) {
        skip(&format!("strace saw nothing: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Some(text)
}

/// Judges every call between the marks; returns how many there were.
fn judge(text: &str) -> usize {
    let (mut inside, mut judged) = (false, 0);
    for line in text.lines() {
        if line.contains(BEGIN) {
            inside = true;
        } else if line.contains(END) {
            inside = false;
        } else if inside && line.contains('(') {
            judged += 1;
            if let Some(wrong) = violation(line) {
                panic!("{wrong}: {line}");
            }
        }
    }
    judged
}

#[test]
fn no_call_gets_a_path_that_could_lead_elsewhere() {
    for resolver in ["auto", "walk"] {
        let Some(text) = trace(resolver) else { return };
        let judged = judge(&text);
        assert!(judged > 300, "only {judged} calls seen");
        assert!(text.contains("openat2("), "{resolver}");
        let succeeded = |op: &&Operation| text.contains(&format!("\"{SUCCEEDED}{}\"", op.name));
        let refused: Vec<_> = OPERATIONS.iter().filter(|op| !succeeded(op)).collect();
        assert!(refused.is_empty(), "{resolver}: never seen to succeed: {refused:?}");
        for call in ["openat(", "linkat(", "symlinkat(", "renameat", "mkdirat(", "unlinkat(", "statx("] {
            assert!(text.contains(call), "{resolver}: {call} was never seen");
        }
    }
}

#[test]
fn the_fallbacks_are_no_exception() {
    use rustix::io::Errno;
    let denials = [
        Denial::Openat2(Errno::NOSYS),
        Denial::Tmpfile(Errno::OPNOTSUPP),
        Denial::LinkEmptyPath(Errno::NOENT),
        Denial::RenameNoReplace(Errno::INVAL),
    ];
    let Some(text) = denied(&denials, || trace("auto")) else { return };
    assert!(judge(&text) > 300);
}
