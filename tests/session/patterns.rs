//! Patterns, against git itself.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use beneath::{ErrorKind, Patterns};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngSeed, TestRunner};

fn new(lines: &[&str]) -> beneath::Result<Patterns> {
    Patterns::new(lines)
}

#[test]
fn the_last_match_decides_and_nothing_is_taken_out_of_a_directory_that_matches() {
    let patterns =
        new(&["*.log", "!keep.log", "build/", "!build/keep.log", "/only-top", "a/**/z", "doc/*.txt"])
            .unwrap();
    for (path, matches) in [
        ("x.log", true),
        ("deep/x.log", true),
        ("keep.log", false),
        ("build/keep.log", true),
        ("build", false),
        ("sub/build/x", true),
        ("only-top", true),
        ("sub/only-top", false),
        ("a/z", true),
        ("a/b/c/z", true),
        ("a/b/c/z/below", true),
        ("b/a/z", false),
        ("doc/a.txt", true),
        ("doc/b/a.txt", false),
    ] {
        assert_eq!(patterns.matches_file(path), matches, "{path}");
    }
    assert!(patterns.matches_dir("build") && patterns.matches_dir("sub/build"));
    assert!(!Patterns::new([""; 0]).unwrap().matches_file("a"));
}

#[test]
fn a_line_without_a_clear_meaning_is_refused_with_its_reason() {
    for (line, why) in [
        ("[a", "not closed"),
        ("a[", "not closed"),
        ("[!]", "not closed"),
        ("[[:alpha:]]", "named class"),
        ("[\\]]", "backslash in a class"),
        ("[é]", "ASCII"),
        ("[z-a]", "range"),
        ("[+-9]", "range"),
        ("a\\", "ends with a backslash"),
        ("a//b", "empty component"),
        ("/", "empty component"),
        ("!", "empty component"),
        ("../x", "no path has"),
        ("a/./b", "no path has"),
        ("a\nb", "line break"),
        ("a\0", "NUL"),
        ("a\t", "not a space"),
        ("a**/b", "two stars"),
        ("**a", "two stars"),
    ] {
        let error = new(&["fine", line]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{line:?}");
        assert!(error.to_string().contains(why), "{line:?}: {error}");
    }
    for line in ["", "   ", "# comment", "#", "\\#a", "\\!a", "[]a]", "[a-]", "[!a-z]", "{a,b}", "***", "\\ "]
    {
        new(&[line]).unwrap_or_else(|error| panic!("{line:?}: {error}"));
    }
    assert!(new(&["{a,b}"]).unwrap().matches_file("{a,b}"), "braces are no alternatives to git");
}

#[test]
fn count_and_length_are_bounded() {
    assert_eq!(Patterns::new(vec!["a"; 1001]).unwrap_err().kind(), ErrorKind::TooMany);
    assert_eq!(Patterns::new(std::iter::repeat("x")).unwrap_err().kind(), ErrorKind::TooMany);
    assert_eq!(Patterns::new(["a".repeat(1025)]).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(Patterns::new(vec!["a".repeat(1000); 66]).unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(Patterns::new(vec!["a".repeat(60); 1000]).is_ok());
    let long = new(&[&"é".repeat(2000)]).unwrap_err().to_string();
    assert!(long.len() < 1000, "the message is bounded too");
}

/// A matcher that tries every way to share out the stars would be busy for longer than the universe is old.
#[test]
fn a_catastrophic_pattern_is_compiled_and_matched_or_refused_at_once() {
    beneath_kit::within("a catastrophic pattern", try_nasty_patterns);
}

fn try_nasty_patterns() {
    let nasty = [
        format!("{}b", "a*".repeat(500)),
        format!("{}b", "*a".repeat(500)),
        format!("{}b", "**/a*/".repeat(160)),
        format!("{}/b", vec!["**/x"; 250].join("/")),
        format!("{}b", "?*".repeat(500)),
        format!("{}b", "[a-z]*".repeat(170)),
        "*".repeat(1024),
        vec!["**"; 300].join("/"),
        format!("{}{}", "{a,".repeat(250), "}".repeat(250)),
    ];
    let names = ["a".repeat(255), vec!["a"; 2000].join("/"), vec!["x"; 2000].join("/"), "ab".repeat(2000)];
    for line in &nasty {
        match Patterns::new([line]) {
            Ok(patterns) => {
                for name in &names {
                    let _ = patterns.matches_file(name);
                    let _ = patterns.matches_dir(name);
                }
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::InvalidData), "{error}")
            }
        }
    }
    // All of them at once.
    if let Ok(all) = Patterns::new(&nasty) {
        assert!(names.iter().all(|name| all.matches_file(name)), "one is a star");
    }
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "ab", "B", ".", "x.log", "-", "]", "!", "^", "#"]).prop_map(Vec::from),
        2 => prop::sample::select(vec![" ", "\n", "\t", "*", "?", "[", "{", "}", ",", "\\", "é"]).prop_map(Vec::from),
        1 => Just(vec![0xff]),
    ];
    prop::collection::vec(piece, 1..4)
        .prop_map(|pieces| pieces.concat())
        .prop_filter("no dot entry", |name| name != b"." && name != b"..")
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join(&b'/'))
}

fn line() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "ab", "x.log", ".", "-", "é", "{", "}", ",", "#", "!"]),
        8 => prop::sample::select(vec!["*", "?", "**", "***", "/", "/", "**/", "/**", "/**/"]),
        4 => prop::sample::select(vec!["[a-b]", "[!a]", "[^b]", "[]a]", "[!]a]", "[a-]", "[-a]", "[a!]", "[!^]", "[*]", "[?!]"]),
        3 => prop::sample::select(vec!["\\a", "\\*", "\\?", "\\[", "\\!", "\\#", "\\ ", "\\\\", " ", "  ", "[", "]", "\\", "\t"]),
    ];
    let start = prop::sample::select(vec!["", "", "", "!", "/", "!/", "#"]);
    let end = prop::sample::select(vec!["", "", "/", " ", "/ ", "\\ "]);
    (start, prop::collection::vec(piece, 1..5), end)
        .prop_map(|(start, pieces, end)| format!("{start}{}{end}", pieces.concat()))
}

/// What git ignores of `paths`; those with a trailing slash are directories to it.
fn ignored_by_git(repository: &Path, lines: &[String], paths: &[Vec<u8>]) -> Vec<bool> {
    std::fs::write(repository.join(".git/info/exclude"), lines.join("\n")).unwrap();
    let mut git = Command::new("git")
        .args(["-c", "core.excludesFile=/dev/null", "-c", "core.ignoreCase=false"])
        .args(["check-ignore", "--stdin", "-z", "-v", "-n", "--no-index"])
        .current_dir(repository)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", repository)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input: Vec<u8> = Vec::new();
    for path in paths {
        input.extend(path);
        input.push(0);
    }
    let mut stdin = git.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = git.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    // For each path: source, line number, pattern, path.
    let fields: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
    let verdicts: Vec<bool> =
        fields.chunks_exact(4).map(|fields| !fields[2].is_empty() && !fields[2].starts_with(b"!")).collect();
    assert_eq!(verdicts.len(), paths.len(), "git has answered for each path");
    verdicts
}

fn repository() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in(beneath_kit::arena::ground()).unwrap();
    let made =
        Command::new("git").args(["init", "-q"]).current_dir(dir.path()).env("HOME", dir.path()).status();
    match made {
        Ok(status) if status.success() => Some(dir),
        failed => {
            beneath_kit::skip(&format!("git init: {failed:?}"));
            None
        }
    }
}

#[test]
fn git_and_the_patterns_agree_on_every_path() {
    let Some(repository) = repository() else { return };
    let config = ProptestConfig {
        rng_seed: RngSeed::Fixed(beneath_kit::rig::seed::of_properties()),
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    let (mut accepted, mut matched) = (0, 0);
    for _ in 0..150 {
        let lines = prop::collection::vec(line(), 1..5).new_tree(&mut runner).unwrap().current();
        let paths = prop::collection::vec(path(), 40).new_tree(&mut runner).unwrap().current();
        // What is refused has no meaning to compare.
        let lines: Vec<String> = lines.into_iter().filter(|line| Patterns::new([line]).is_ok()).collect();
        let patterns = Patterns::new(&lines).unwrap();
        let verdicts = ignored_by_git(repository.path(), &lines, &paths);
        for (path, by_git) in paths.iter().zip(verdicts) {
            let ours = patterns.matches_file(OsStr::from_bytes(path));
            assert_eq!(ours, by_git, "lines {lines:?}, path {:?}", path.escape_ascii().to_string());
            matched += u32::from(by_git);
        }
        accepted += lines.len();
    }
    assert!(accepted > 100 && matched > 100, "the inputs are too tame: {accepted} lines, {matched} matches");
}

#[test]
fn git_and_the_patterns_agree_on_directories() {
    let Some(repository) = repository() else { return };
    for dir in ["build/out", "sub/build", "a/b", "keep"] {
        std::fs::create_dir_all(repository.path().join(dir)).unwrap();
    }
    let paths: Vec<Vec<u8>> = ["build", "build/out", "sub", "sub/build", "a", "a/b", "keep"]
        .map(|path| path.as_bytes().to_vec())
        .into();
    for lines in [
        &["build/"][..],
        &["/build/"],
        &["a/*/"],
        &["*/", "!keep/"],
        &["**/build"],
        &["a/**"],
        &["/*", "!/a/"],
    ] {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let patterns = Patterns::new(&lines).unwrap();
        let verdicts = ignored_by_git(repository.path(), &lines, &paths);
        for (path, by_git) in paths.iter().zip(verdicts) {
            assert_eq!(
                patterns.matches_dir(OsStr::from_bytes(path)),
                by_git,
                "{lines:?}: {}",
                path.escape_ascii()
            );
        }
    }
}
