//! The core beside plain `std`, the bare syscalls, cap-std and pathrs, in turns: `cargo bench --bench ratios`.
//!
//! On a shared machine the ways of one group see the same noise this way; the lower quartile of each is compared.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, unreachable_pub)]

mod place;
mod work;

use std::time::{Duration, Instant};

use place::Place;

const ROUNDS: usize = 15;
const TIME: Duration = Duration::from_secs(4);

fn main() {
    let filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    for place in [Some(Place::plain()), Place::nodev(), Some(Place::disk())].into_iter().flatten() {
        println!("\n{}, {}", place.name, if place.nodev { "nodev" } else { "not nodev" });
        println!("{:<24} {:<20} {:>12} {:>10} {:>8}", "work", "way", "time", "of plain", "of raw");
        for mut group in work::groups(place.path(), place.nodev) {
            if filter.as_ref().is_some_and(|filter| !group.name.contains(filter)) {
                continue;
            }
            let mut times = vec![Vec::new(); group.lines.len()];
            let start = Instant::now();
            while times[0].len() < ROUNDS || start.elapsed() < TIME {
                for (line, times) in group.lines.iter_mut().zip(&mut times) {
                    times.push((line.run)().as_secs_f64());
                }
            }
            let taken: Vec<f64> = times.into_iter().map(lower_quartile).collect();
            for (line, time) in group.lines.iter().zip(&taken) {
                let (plain, raw) = (time / taken[0], time / taken[1]);
                println!(
                    "{:<24} {:<20} {:>9.2} µs {plain:>10.2} {raw:>8.2}",
                    group.name,
                    line.name,
                    time * 1e6
                );
            }
        }
    }
}

fn lower_quartile(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 4]
}
