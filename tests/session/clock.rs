//! Ages count what the host has watched. What the clocks may do is in the unit tests beside the record; here is what they
//! mean for sessions, with a record as a clock that was set would have left it.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::{Stage, with_each_resolver};

const SECOND: Duration = Duration::from_secs(1);

fn wait_for_a_change_to_age() {
    std::thread::sleep(Duration::from_millis(1100));
}

#[test]
fn a_session_that_nobody_watched_is_not_old() {
    with_each_resolver(|stage| {
        wait_for_a_change_to_age();
        fs::remove_file(stage.sessions_path().join(".clock")).unwrap();
        assert_eq!(stage.sessions.sweep(SECOND).unwrap().kept, 1, "it has not been watched for a second");
        wait_for_a_change_to_age();
        assert_eq!(stage.sessions.sweep(SECOND).unwrap().removed, 1, "now it has");
    });
}

#[test]
fn the_wall_clock_counts_where_it_is_asked_for() {
    with_each_resolver(|stage| {
        wait_for_a_change_to_age();
        fs::remove_file(stage.sessions_path().join(".clock")).unwrap();
        let sessions = stage.by_wall_clock();
        assert_eq!(sessions.sweep(Duration::from_secs(3600)).unwrap().kept, 1);
        assert_eq!(sessions.sweep(SECOND).unwrap().removed, 1);
    });
}

#[test]
fn a_clock_that_was_set_ahead_sweeps_no_session() {
    let stage = Stage::new(beneath::ResolverChoice::Auto);
    let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    std::thread::sleep(Duration::from_secs(3));
    // By the other clock no time has passed: those three seconds are what somebody has set the wall clock ahead.
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let text = format!("beneath clock 1\n{}{:09} 0\n{made} 0\n", up.tv_sec, up.tv_nsec);
    fs::write(stage.sessions_path().join(".clock"), text).unwrap();

    let idle = Duration::from_secs(2);
    assert_eq!(stage.sessions.sweep(idle).unwrap().kept, 1);
    assert_eq!(stage.sessions.sweep(idle).unwrap().kept, 1, "nor by the next sweep");
    assert_eq!(stage.by_wall_clock().sweep(idle).unwrap().removed, 1, "the wall clock says otherwise");
}

#[test]
fn a_record_that_is_damaged_begins_anew() {
    with_each_resolver(|stage| {
        for damaged in ["", "\0\0\0\0", "beneath clock 9\n1 1\n1 1\n", "beneath clock 1\nx"] {
            fs::write(stage.sessions_path().join(".clock"), damaged).unwrap();
            assert_eq!(stage.sessions.sweep(SECOND).unwrap().kept, 1, "{damaged:?}");
        }
        wait_for_a_change_to_age();
        assert_eq!(stage.sessions.sweep(SECOND).unwrap().removed, 1);
    });
}

#[test]
fn a_draft_is_swept_once_it_was_watched_for_long_enough() {
    with_each_resolver(|stage| {
        fs::create_dir(stage.sessions_path().join(".new-0")).unwrap();
        assert_eq!(stage.sessions.sweep(Duration::from_secs(3600)).unwrap().removed, 0);
        wait_for_a_change_to_age();
        let _ = stage.sessions.sweep(SECOND).unwrap();
        assert!(stage.all().is_empty());
    });
}
