//! Every row of the evaluator's vectors, answered exactly: the change, and all that held.

#![allow(unused_crate_dependencies, reason = "dev-dependencies are shared by all test programs")]

use std::collections::BTreeMap;

use braid_model::scale::{
    Change, LastChanges, Mode, Policy, PolicyLayer, Rates, Sample, Segment, Snapshot, Verdict, decide,
};
use braid_model::{Buckets, HashRange, Micros, SegmentId};
use serde::Deserialize;
use serde_json::{Value, json};

/// The moment at which every row is judged; late enough that any age in a row lies after 1970.
const NOW: Micros = Micros(1_000_000_000_000_000);

#[derive(Deserialize)]
struct File {
    defaults: PolicyFields,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    name: String,
    segments: Vec<RowSegment>,
    loads: BTreeMap<u64, RowLoad>,
    sessions: BTreeMap<String, u64>,
    policy: PolicyFields,
    busy: bool,
    home_silent_seconds: u64,
    seconds_since: Since,
    expect: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RowSegment {
    id: u64,
    start: u16,
    end: u16,
    buckets: u32,
    merge_depth: u32,
    undrained: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RowLoad {
    rates: [u64; 4],
    age_seconds: u64,
    cold_for_seconds: Option<u64>,
    estimated: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Since {
    split: Option<u64>,
    merge: Option<u64>,
    rebucket: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
struct PolicyFields {
    mode: Option<String>,
    min_segments: Option<u32>,
    max_segments: Option<u32>,
    ceiling: Option<u32>,
    split_floor: Option<u64>,
    max_merge_depth: Option<u32>,
    max_split_factor: Option<u32>,
    max_undrained_generations: Option<u32>,
    sample_stale_seconds: Option<u64>,
    split_cooldown_seconds: Option<u64>,
    rebucket_cooldown_seconds: Option<u64>,
    merge_cooldown_seconds: Option<u64>,
    merge_window_seconds: Option<u64>,
    split: Option<[u64; 4]>,
    merge: Option<[u64; 4]>,
}

fn ago(seconds: u64) -> Micros {
    Micros(NOW.0 - seconds * 1_000_000)
}

impl PolicyFields {
    /// `below` with these fields put over it; the ceiling too, which in these rows stands for the operator's flag.
    fn over(&self, below: &Policy) -> Policy {
        let mode = self.mode.as_deref().map(|mode| match mode {
            "Auto" => Mode::Auto,
            "Recommend" => Mode::Recommend,
            "Off" => Mode::Off,
            other => panic!("unknown mode `{other}`"),
        });
        let layer = PolicyLayer {
            mode,
            min_segments: self.min_segments,
            max_segments: self.max_segments,
            split_floor: self.split_floor,
            max_merge_depth: self.max_merge_depth,
            max_split_factor: self.max_split_factor,
            max_undrained_generations: self.max_undrained_generations,
            sample_stale_seconds: self.sample_stale_seconds,
            load_window_seconds: None,
            split_cooldown_seconds: self.split_cooldown_seconds,
            rebucket_cooldown_seconds: self.rebucket_cooldown_seconds,
            merge_cooldown_seconds: self.merge_cooldown_seconds,
            merge_window_seconds: self.merge_window_seconds,
            split: self.split.map_or([None; 4], |thresholds| thresholds.map(Some)),
            merge: self.merge.map_or([None; 4], |thresholds| thresholds.map(Some)),
        };
        Policy { ceiling: self.ceiling.unwrap_or(below.ceiling), ..layer.over(below) }
    }
}

impl Row {
    fn snapshot(&self) -> Snapshot {
        let sample = |id: u64| {
            let load = self.loads.get(&id)?;
            Some(Sample {
                rates: Rates(load.rates),
                sampled_at: ago(load.age_seconds),
                cold_since: load.cold_for_seconds.map(ago),
                estimated: load.estimated,
            })
        };
        let segment = |row: &RowSegment| Segment {
            id: SegmentId(row.id),
            range: HashRange::new(row.start, row.end).unwrap(),
            buckets: Buckets::new(row.buckets).unwrap(),
            merge_depth: row.merge_depth,
            undrained_generations: row.undrained,
            sample: sample(row.id),
        };
        let since = &self.seconds_since;
        Snapshot {
            segments: self.segments.iter().map(segment).collect(),
            sessions: self.sessions.values().copied().collect(),
            busy: self.busy,
            home_silent_us: Some(self.home_silent_seconds * 1_000_000),
            last: LastChanges {
                split: since.split.map(ago),
                merge: since.merge.map(ago),
                rebucket: since.rebucket.map(ago),
            },
        }
    }
}

/// A verdict as the vectors write it.
fn answer(verdict: &Verdict) -> Value {
    let change = verdict.change.as_ref().map(|change| {
        let (kind, reason) = (change.kind(), change.reason().name());
        match change {
            Change::Split { segment, into, .. } => {
                json!({"kind": kind, "segment": segment.0, "into": into, "reason": reason})
            }
            Change::Rebucket { segments, buckets, .. } => {
                let segments: Vec<_> = segments.iter().map(|id| id.0).collect();
                json!({"kind": kind, "segments": segments, "buckets": buckets.count(), "reason": reason})
            }
            Change::Merge { a, b, .. } => json!({"kind": kind, "segments": [a.0, b.0], "reason": reason}),
        }
    });
    let holds: BTreeMap<_, _> = verdict.holds.iter().map(|(lane, hold)| (lane.name(), hold.name())).collect();
    json!({"change": change, "holds": holds})
}

fn check(file: &str, rows_expected: usize) {
    let file: File = serde_json::from_str(file).unwrap();
    assert_eq!(file.rows.len(), rows_expected);
    let defaults = file.defaults.over(&Policy::default());
    assert_eq!(defaults, Policy::default());
    let wrong: Vec<_> = file
        .rows
        .iter()
        .filter_map(|row| {
            let policy = row.policy.over(&defaults);
            assert_eq!(policy.validate(), Ok(()), "{}", row.name);
            let found = answer(&decide(&row.snapshot(), &policy, NOW));
            (found != row.expect).then(|| format!("{}: {found}, expected {}", row.name, row.expect))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {rows_expected} rows:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_worked_decisions_come_out_as_written() {
    check(include_str!("vectors/braid-evaluator-worked.json"), 51);
}

#[test]
fn two_thousand_random_topics_come_out_as_written() {
    check(include_str!("vectors/braid-evaluator.json"), 2000);
}
