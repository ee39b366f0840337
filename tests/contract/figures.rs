//! A bench notices a bare line that is not what it says, and the figures in the README are those of the evidence.

use std::fs;
use std::io::ErrorKind;

use beneath_kit::bench::calls::{Compared, Made};
use beneath_kit::bench::readme::{COMMAND, block, made, plot};
use beneath_kit::bench::slower;
use beneath_kit::skip;

const EVIDENCE: &str = "\
| | |
|---|---|
| commit | 0123456789abcdef, dirty |
| kernel | Linux 6.18 on x86_64 |
| processor | 2 x Any |
| date | 2026-01-01 00:00 UTC |

| work | file system | way | µs | spread | of plain | of raw | calls |
|---|---|---|---|---|---|---|---|
| list 20,000 | tmpfs nodev | std | 10.00 | 2 % | 1.00 | 1.25 |  |
| list 20,000 | tmpfs nodev | raw | 8.00 | 2 % | 0.80 | 1.00 |  |
| list 20,000 | tmpfs nodev | beneath | 9.00 | 2 % | 0.90 | 1.13 | as raw |
| list 20,000 | tmpfs nodev | jwalk, threads | 20.00 | 2 % | 2.00 | 2.50 |  |
| read 1 KiB, depth 8 | tmpfs nodev | std | 10.00 | 2 % | 1.00 | 1.25 |  |
| list 20,000 | tmpfs | std | 10.00 | 2 % | 1.00 |  |  |
| list 20,000 | ext4 | std | 10.00 | 2 % | 1.00 |  |  |
| list 20,000 | ext4 | beneath | 30.00 | 2 % | 3.00 |  |  |
";

#[test]
fn a_row_of_the_readme_is_a_work_on_a_file_system() {
    let block = block(EVIDENCE);
    let rows: Vec<&str> = block.lines().skip(4).take_while(|line| !line.is_empty()).collect();
    assert!(
        block.starts_with("Measured at commit 0123456 with changes on 2026-01-01 00:00 UTC: Linux"),
        "{block}"
    );
    assert_eq!(
        rows,
        [
            "| list 20,000 | tmpfs nodev | 0.80 | 0.90 | jwalk threads 2.00 |",
            "| list 20,000 | ext4 |  | 3.00 |  |"
        ]
    );
    for name in ["beneath: 0.90", "jwalk, threads: 2.00", "list 20,000 (ext4)"] {
        assert!(plot(EVIDENCE).contains(name), "{name}");
    }
}

#[test]
fn the_readme_has_the_figures_of_the_evidence() {
    let files = match made() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return skip("docs/evidence/ratios.md has not been written yet");
        }
        files => files.unwrap(),
    };
    for (path, made) in files {
        let is_there = fs::read_to_string(&path).unwrap_or_default() == made;
        assert!(is_there, "{} is not what docs/evidence/ratios.md says: {COMMAND}", path.display());
    }
}

fn made_of(names: &[&str]) -> Made {
    names.iter().map(|name| ((*name).to_owned(), format!("{name}()"))).collect()
}

#[test]
fn another_call_without_a_reason_is_a_failure() {
    let compared = |raw: &[&str], ours: &[&str]| {
        Compared(Ok([made_of(raw), made_of(ours)])).judge(&[("fstat", "looked at twice")])
    };
    let same = compared(&["openat2", "close"], &["close", "openat2"]);
    assert_eq!((same.shown.as_str(), same.failures.len()), ("as raw", 0));
    let declared = compared(&["openat2"], &["openat2", "fstat", "fstat"]);
    assert_eq!((declared.shown.as_str(), declared.failures.len()), ("+2 fstat", 0));
    assert_eq!(declared.reasons, ["`fstat`: looked at twice"]);
    for (raw, ours) in [(["openat2", "read"], ["openat2", "openat2"]), (["read", "read"], ["read", "close"])]
    {
        assert_eq!(compared(&raw, &ours).failures.len(), 2, "{raw:?} {ours:?}");
    }
}

#[test]
fn raw_that_takes_longer_in_three_rounds_of_four_is_a_failure() {
    let ours = [1.0; 12];
    let raw = |slow: usize| [vec![1.1; slow], vec![0.9; 12 - slow]].concat();
    assert!(slower(&raw(10), &ours).is_some());
    assert!(slower(&raw(8), &ours).is_none());
    assert!(slower(&ours, &ours).is_none());
}
