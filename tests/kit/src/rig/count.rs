//! What the rounds of a row came to.

use serde::{Deserialize, Serialize};

use super::Row;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Count {
    /// How many faults were tried, and how many of them ended in success all the same.
    pub pairs: usize,
    pub succeeded: usize,
    pub violations: Vec<String>,
    /// What the rig itself could not do, which catches no control.
    pub broken: Vec<String>,
    pub note: String,
}

impl Count {
    pub fn row(self, title: String, is_control: bool) -> Row {
        let mut row = Row::of([&title], &[self.pairs, self.succeeded, self.violations.len()]);
        row.cells.push(self.note);
        row.judge(is_control, self.violations);
        row.failures.extend(self.broken);
        row
    }
}
