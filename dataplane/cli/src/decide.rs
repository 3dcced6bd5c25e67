//! `braid decide`: what the evaluator would do, for policies that do not exist yet.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use braid_model::scale::{
    Change, LastChanges, Mode, Policy, PolicyLayer, Rates, Sample, Segment, Snapshot, Verdict, decide,
};
use braid_model::{Buckets, HashRange, Micros, SegmentId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Ask the evaluator what it would do: one verdict per row, as JSON lines {"name","change","holds"}, in row order.
///
/// FILE holds an object {"defaults": policy, "rows": [row, ..]}, or one row per line. A row is a topic at one moment:
///
///   name          text
///   segments      [{id, start, end, buckets, mergeDepth, undrained}]: the active ones; undrained: sealed generations above it
///   loads         {id: {rates: [messages in, bytes in, messages out, bytes out per second], ageSeconds, coldForSeconds or null, estimated}}
///   sessions      {subscription: sessions}
///   policy        fields of spec.autoscale and `ceiling`, over the defaults; thresholds as [four numbers]
///   busy          whether an operation is under way
///   homeSilentSeconds   how long ago the sessions were counted
///   secondsSince  {split, merge, rebucket}: since the last such change, or null
///
/// All but name and segments may be left out. `change` is null or {kind, segment or segments, into or buckets, reason}; `holds` is
/// {lane: reason}.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "Examples:
  braid decide rows.json
  echo '{\"name\":\"five consumers\",\"segments\":[{\"id\":0,\"start\":0,\"end\":65535,\"buckets\":4}],
         \"loads\":{\"0\":{\"rates\":[10,1000,10,1000]}},\"sessions\":{\"billing\":5}}' | tr -d '\\n' | braid decide -")]
pub(crate) struct Args {
    /// Rows, `-` for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The moment at which every row is judged; late enough for any age.
const NOW: Micros = Micros(1 << 62);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    #[serde(default, rename = "note")]
    _note: Option<String>,
    #[serde(default)]
    defaults: PolicyFields,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    #[serde(default)]
    name: String,
    segments: Vec<RowSegment>,
    #[serde(default)]
    loads: BTreeMap<u64, RowLoad>,
    #[serde(default)]
    sessions: BTreeMap<String, u64>,
    #[serde(default)]
    policy: PolicyFields,
    #[serde(default)]
    busy: bool,
    #[serde(default)]
    home_silent_seconds: u64,
    #[serde(default)]
    seconds_since: Since,
    /// What the writer of a vector file expects; for tests to compare.
    #[serde(default, rename = "expect")]
    _expect: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RowSegment {
    id: u64,
    start: u16,
    end: u16,
    buckets: u32,
    #[serde(default)]
    merge_depth: u32,
    #[serde(default)]
    undrained: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RowLoad {
    rates: [u64; 4],
    #[serde(default)]
    age_seconds: u64,
    #[serde(default)]
    cold_for_seconds: Option<u64>,
    #[serde(default)]
    estimated: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Since {
    split: Option<u64>,
    merge: Option<u64>,
    rebucket: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
enum ModeName {
    Auto,
    Recommend,
    Off,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PolicyFields {
    mode: Option<ModeName>,
    min_segments: Option<u32>,
    max_segments: Option<u32>,
    ceiling: Option<u32>,
    split_floor: Option<u64>,
    max_merge_depth: Option<u32>,
    max_split_factor: Option<u32>,
    max_undrained_generations: Option<u32>,
    sample_stale_seconds: Option<u64>,
    load_window_seconds: Option<u64>,
    split_cooldown_seconds: Option<u64>,
    rebucket_cooldown_seconds: Option<u64>,
    merge_cooldown_seconds: Option<u64>,
    merge_window_seconds: Option<u64>,
    split: Option<[u64; 4]>,
    merge: Option<[u64; 4]>,
}

/// One line of output.
#[derive(Serialize)]
struct Answer<'a> {
    name: &'a str,
    change: Option<Value>,
    holds: BTreeMap<&'static str, &'static str>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let reader: Box<dyn Read> = if args.file == std::path::Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(&args.file).with_context(|| format!("`{}`", args.file.display()))?)
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    answer_all(BufReader::new(reader), |answer| {
        serde_json::to_writer(&mut out, answer)?;
        out.write_all(b"\n").context("stdout")
    })?;
    out.flush().context("stdout")?;
    Ok(ExitCode::SUCCESS)
}

/// Answers each row of either form, in order.
fn answer_all(mut input: impl BufRead, mut say: impl FnMut(&Answer<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    // Values one after the other: a single object with rows, or rows.
    let mut text = String::new();
    input.read_to_string(&mut text).context("input")?;
    for (i, value) in serde_json::Deserializer::from_str(&text).into_iter::<Value>().enumerate() {
        let value = value.with_context(|| format!("value {}", i + 1))?;
        if value.get("rows").is_some() {
            let rows: Rows = serde_json::from_value(value).with_context(|| format!("value {}", i + 1))?;
            let defaults = rows.defaults.over(&Policy::default());
            rows.rows.iter().try_for_each(|row| row.answer(&defaults, &mut say))?;
        } else {
            let row: Row = serde_json::from_value(value).with_context(|| format!("row {}", i + 1))?;
            row.answer(&Policy::default(), &mut say)?;
        }
    }
    Ok(())
}

impl Row {
    fn answer(&self, defaults: &Policy, say: &mut impl FnMut(&Answer<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let policy = self.policy.over(defaults);
        policy.validate().with_context(|| format!("row `{}`: policy", self.name))?;
        let seen = self.snapshot().with_context(|| format!("row `{}`", self.name))?;
        let Verdict { change, holds } = decide(&seen, &policy, NOW);
        let holds = holds.iter().map(|(lane, hold)| (lane.name(), hold.name())).collect();
        say(&Answer { name: &self.name, change: change.as_ref().map(shown), holds })
    }

    fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let sample = |id: u64| {
            let load = self.loads.get(&id)?;
            Some(Sample {
                rates: Rates(load.rates),
                sampled_at: ago(load.age_seconds),
                cold_since: load.cold_for_seconds.map(ago),
                estimated: load.estimated,
            })
        };
        let segment = |row: &RowSegment| {
            let RowSegment { id, start, end, buckets, merge_depth, undrained } = *row;
            Ok(Segment {
                id: SegmentId(id),
                range: HashRange::new(start, end)
                    .with_context(|| format!("segment `{id}`: {start}..={end} is inverted"))?,
                buckets: Buckets::new(buckets)
                    .with_context(|| format!("segment `{id}`: buckets `{buckets}` must be 1..=65536"))?,
                merge_depth,
                undrained_generations: undrained,
                sample: sample(id),
            })
        };
        let since = &self.seconds_since;
        Ok(Snapshot {
            segments: self.segments.iter().map(segment).collect::<anyhow::Result<_>>()?,
            sessions: self.sessions.values().copied().collect(),
            busy: self.busy,
            home_silent_us: Some(self.home_silent_seconds.saturating_mul(1_000_000)),
            last: LastChanges {
                split: since.split.map(ago),
                merge: since.merge.map(ago),
                rebucket: since.rebucket.map(ago),
            },
        })
    }
}

impl PolicyFields {
    /// `below` with these fields put over it; the ceiling too, which elsewhere is the operator's flag.
    fn over(&self, below: &Policy) -> Policy {
        let layer = PolicyLayer {
            mode: self.mode.map(|mode| match mode {
                ModeName::Auto => Mode::Auto,
                ModeName::Recommend => Mode::Recommend,
                ModeName::Off => Mode::Off,
            }),
            min_segments: self.min_segments,
            max_segments: self.max_segments,
            split_floor: self.split_floor,
            max_merge_depth: self.max_merge_depth,
            max_split_factor: self.max_split_factor,
            max_undrained_generations: self.max_undrained_generations,
            sample_stale_seconds: self.sample_stale_seconds,
            load_window_seconds: self.load_window_seconds,
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

fn ago(seconds: u64) -> Micros {
    Micros(NOW.0.saturating_sub(seconds.saturating_mul(1_000_000)))
}

fn shown(change: &Change) -> Value {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(input: &str) -> Vec<Value> {
        let mut answers = Vec::new();
        answer_all(input.as_bytes(), |answer| {
            answers.push(serde_json::to_value(answer)?);
            Ok(())
        })
        .unwrap();
        answers
    }

    /// As an object with rows, and again with one row per line.
    fn check(file: &str, rows: usize) {
        let whole: Value = serde_json::from_str(file).unwrap();
        let expected: Vec<_> = whole["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| json!({"name": row["name"], "change": row["expect"]["change"], "holds": row["expect"]["holds"]}))
            .collect();
        assert_eq!(expected.len(), rows);
        assert_eq!(answers(file), expected);
        let lines: Vec<_> = whole["rows"].as_array().unwrap().iter().map(Value::to_string).collect();
        assert_eq!(answers(&lines.join("\n")), expected);
    }

    #[test]
    fn every_row_of_the_vectors_is_answered_as_expected() {
        check(include_str!("../../model/tests/vectors/braid-evaluator-worked.json"), 51);
        check(include_str!("../../model/tests/vectors/braid-evaluator.json"), 2000);
    }

    #[test]
    fn a_row_needs_only_its_segments() {
        let row = r#"{"name":"x","segments":[{"id":0,"start":0,"end":65535,"buckets":4}],
            "loads":{"0":{"rates":[10,1000,10,1000]}},"sessions":{"billing":5}}"#;
        let change = json!({"kind": "Rebucket", "segments": [0], "buckets": 8, "reason": "BelowSplitFloor"});
        assert_eq!(answers(row), [json!({"name": "x", "change": change, "holds": {}})]);
    }

    #[test]
    fn a_wrong_row_is_named() {
        let row = r#"{"name":"x","segments":[{"id":3,"start":9,"end":8,"buckets":4}]}"#;
        let error = answer_all(row.as_bytes(), |_| Ok(())).unwrap_err();
        assert_eq!(format!("{error:#}"), "row `x`: segment `3`: 9..=8 is inverted");
    }
}
