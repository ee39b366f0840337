//! Bits of a database that have changed.

use std::time::Duration;

use beneath::ErrorKind;
use beneath_kit::{child, env};

use crate::support::{Stage, cpu_time, database};

const MOST_MEMORY: u64 = 32 << 20;

/// What a damaged database is refused as.
const KINDS: [ErrorKind; 3] = [ErrorKind::InvalidData, ErrorKind::TooLarge, ErrorKind::TooMany];

/// Numbers that look drawn.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// Tables with indices, overflow pages, a free list, and rows of all types.
fn base() -> Vec<u8> {
    database(&format!(
        "PRAGMA page_size = 1024; {} {}
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
         INSERT INTO messages_out (id, seq, kind, content, thread) SELECT 'm' || i, 2 * i + 1, 'chat', hex(zeroblob(i * 30)), 't' FROM n;
         INSERT INTO acks VALUES ('a', 'completed', 1), ('b', 'processing', 2);
         INSERT INTO activity VALUES (1, 'build', 1000);
         CREATE TABLE filler(x); INSERT INTO filler VALUES (zeroblob(9000)); DELETE FROM filler;",
        "PRAGMA auto_vacuum = NONE;",
        beneath::mailbox::OUTBOUND_SCHEMA,
    ))
}

#[test]
fn flipped_bits_are_refused_or_read_and_never_more() {
    child::run("flips::flipped_bits_are_refused_or_read_and_never_more", || {
        let rounds = if env::FULL.is_set() { 100_000 } else { 1000 };
        let seed: u64 = env::SEED.number().unwrap_or(1);
        let (stage, base) = (Stage::new(), base());
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        stage.plant_bytes(&base);
        assert_eq!(stage.take().messages.len(), 41);
        let memory = child::peak_memory();
        let (mut refused, mut partly, mut whole, mut slowest) = (0, 0, 0, Duration::ZERO);
        for round in 0..rounds {
            let mut bytes = base.clone();
            // Half of them in the header of a page, where the structure is.
            for _ in 0..1 + draw.below(3) {
                let at = match draw.below(2) {
                    0 => draw.below(bytes.len() / 1024) * 1024 + draw.below(64),
                    _ => draw.below(bytes.len()),
                };
                bytes[at] ^= 1 << draw.below(8);
            }
            stage.plant_bytes(&bytes);
            let start = cpu_time();
            let taken = stage.take();
            let acks = stage.mailbox.acks();
            let stuck = stage.mailbox.stuck(std::time::SystemTime::now());
            slowest = slowest.max(cpu_time() - start);
            for error in [acks.err(), stuck.err()].into_iter().flatten() {
                assert!(KINDS.contains(&error.kind()), "round {round}: {error}");
            }
            match (taken.messages.len(), taken.refused.first.first()) {
                (0, Some(left)) => {
                    assert!(KINDS.contains(&left.error.kind()), "round {round}: {left:?}");
                    refused += 1;
                }
                (41, None) => whole += 1,
                _ => partly += 1,
            }
        }
        let grown = child::peak_memory().saturating_sub(memory);
        println!(
            "{rounds} rounds, seed {seed}: {refused} refused, {partly} in part, {whole} whole; slowest {slowest:?}; {} KiB",
            grown / 1024
        );
        assert!(refused > 0 && whole > 0, "the flips do not matter");
        assert!(slowest < Duration::from_millis(3600), "three reads took {slowest:?}");
        assert!(grown < MOST_MEMORY, "{grown} bytes");
    });
}
