//! The core beside plain `std`, the bare syscalls, cap-std and pathrs: `cargo bench --bench core`.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, unreachable_pub)]

mod place;
mod work;

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use place::Place;

fn core(criterion: &mut Criterion) {
    for place in [Some(Place::plain()), Place::nodev(), Some(Place::disk())].into_iter().flatten() {
        let suffix = format!(" ({}{})", place.name, if place.nodev { ", nodev" } else { "" });
        for work in work::groups(place.path(), place.nodev) {
            let mut group = criterion.benchmark_group(work.name + &suffix);
            group.sample_size(20).warm_up_time(Duration::from_millis(300));
            group.measurement_time(Duration::from_secs(1));
            for mut line in work.lines {
                group.bench_function(line.name, |bench| {
                    bench.iter_custom(|times| (0..times).map(|_| (line.run)()).sum());
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, core);
criterion_main!(benches);
