//! How long the evaluator takes: `cargo bench -p braid-model --bench decide`. It prints figures and asserts nothing of them.

#![allow(unused_crate_dependencies, reason = "dev-dependencies are shared by all test programs")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use braid_model::scale::{Policy, Rates, Sample, Segment, Snapshot, decide};
use braid_model::{Buckets, HashRange, Micros, SegmentId};

const NOW: Micros = Micros(1_000_000_000_000);
const RUNS: usize = 2_000;

fn main() {
    println!("{:>8} {:>8}  {:<44} {:>9} {:>9} {:>9}", "segments", "sessions", "verdict", "min us", "median", "max");
    for segments in [1_000, 10_000] {
        for case in &CASES {
            run(case, segments, 1_000);
        }
    }
}

struct Case {
    name: &'static str,
    rates: fn(u64) -> [u64; 4],
    buckets: u32,
    cold: bool,
    /// Of a topic with so many segments.
    policy: fn(u32) -> Policy,
}

/// No case is decided by its first segments: each looks at all of them.
const CASES: [Case; 5] = [
    Case { name: "acts: merge, every pair may", rates: cool, buckets: 4, cold: true, policy: roomy },
    Case { name: "acts: split, every segment is too hot", rates: hot, buckets: 4, cold: true, policy: roomy },
    Case {
        name: "acts: rebucket of all",
        rates: cool,
        buckets: 1,
        cold: true,
        policy: |n| Policy { max_segments: n, ..roomy(n) },
    },
    Case { name: "holds: no pair is cold", rates: warm, buckets: 4, cold: false, policy: roomy },
    Case { name: "holds: every pair is vetoed", rates: nearly_warm, buckets: 4, cold: true, policy: tight },
];

fn cool(i: u64) -> [u64; 4] {
    [i * 7919 % 300, i * 104_729 % 2_000_000, i * 1_299_709 % 1_000, i * 15_485_863 % 9_000_000]
}

fn nearly_warm(i: u64) -> [u64; 4] {
    [800 + i % 100, 4_000_000 + i, 4_000 + i % 100, 20_000_000 + i]
}

fn warm(i: u64) -> [u64; 4] {
    [2_000 + i % 100, 10_000_000, 10_000, 50_000_000]
}

fn hot(i: u64) -> [u64; 4] {
    [20_000 + i % 1000, 60_000_000 + i, 70_000, 300_000_000 + i]
}

/// Twice the segments are allowed and nobody is surplus, so only load and cold decide.
fn roomy(segments: u32) -> Policy {
    Policy { max_segments: segments * 2, split_floor: u64::MAX, ..Policy::default() }
}

/// A merger of any two would be over this threshold.
fn tight(segments: u32) -> Policy {
    Policy { split: Rates([1_700, 50_000_000, 50_000, 250_000_000]), ..roomy(segments) }
}

fn run(case: &Case, segments: u32, sessions: u64) {
    let seen = topic(case, segments, if case.buckets == 1 { u64::from(segments) + sessions } else { sessions });
    let policy = (case.policy)(segments);
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            black_box(decide(black_box(&seen), black_box(&policy), NOW));
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let verdict = decide(&seen, &policy, NOW);
    let said = match &verdict.change {
        Some(change) => format!("{} {}", change.kind(), change.reason()),
        None => verdict.holds.iter().map(|(lane, hold)| format!("{lane} {hold}")).collect::<Vec<_>>().join(", "),
    };
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let (min, median, max) = (us(times[0]), us(times[RUNS / 2]), us(times[RUNS - 1]));
    println!("{segments:>8} {sessions:>8}  {:<44} {min:>9.1} {median:>9.1} {max:>9.1}   {said}", case.name);
}

/// Segments in the order of ids, which is not that of ranges.
fn topic(case: &Case, segments: u32, sessions: u64) -> Snapshot {
    let ranges: Vec<HashRange> = HashRange::initial(segments).expect("1..=65536").collect();
    let segment = |i: u32| {
        let sample = Sample {
            rates: Rates((case.rates)(u64::from(i))),
            sampled_at: Micros(NOW.0 - 1_000_000),
            cold_since: case.cold.then_some(Micros(NOW.0 - 400_000_000)),
            estimated: false,
        };
        Segment {
            id: SegmentId(u64::from(i)),
            // 7919 is prime and divides neither count: every range is taken once.
            range: ranges[(u64::from(i) * 7919 % u64::from(segments)) as usize],
            buckets: Buckets::new(case.buckets).expect("at least 1"),
            merge_depth: 0,
            undrained_generations: 0,
            sample: Some(sample),
        }
    };
    Snapshot {
        segments: (0..segments).map(segment).collect(),
        sessions: vec![sessions; 4],
        home_silent_us: Some(0),
        ..Snapshot::default()
    }
}
