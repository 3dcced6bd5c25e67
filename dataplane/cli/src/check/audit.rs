//! The promises, checked record by record. Knows no files.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use super::seen::{ACKED, DELIVERED, Messages, Numbers};
use crate::record::{Happened, Record};

/// Violations shown of each kind.
const EXAMPLES_MAX: u64 = 5;

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    Lost,
    Duplicated,
    OutOfOrder,
    TwoMembers,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Lost, Self::Duplicated, Self::OutOfOrder, Self::TwoMembers];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Duplicated => "duplicated",
            Self::OutOfOrder => "out of order",
            Self::TwoMembers => "two members",
        }
    }
}

/// A violation, as far as the records tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Example {
    pub(super) kind: Kind,
    pub(super) segment: u64,
    pub(super) offset: Option<u64>,
    pub(super) key: Option<String>,
    pub(super) seq: Option<u64>,
    pub(super) member: Option<String>,
    /// The member that had the key, or the number that came before.
    pub(super) against: Option<String>,
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: segment {}", self.kind.name(), self.segment)?;
        let number = |f: &mut fmt::Formatter<'_>, name, value: Option<u64>| match value {
            Some(value) => write!(f, ", {name} {value}"),
            None => Ok(()),
        };
        number(f, "offset", self.offset)?;
        if let Some(key) = &self.key {
            write!(f, ", key `{key}`")?;
        }
        number(f, "seq", self.seq)?;
        if let Some(member) = &self.member {
            write!(f, ", member `{member}`")?;
        }
        match &self.against {
            Some(against) => write!(f, ", {against}"),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) acked: u64,
    pub(super) delivered: u64,
    pub(super) redelivered: u64,
    pub(super) done: u64,
    pub(super) taken_over: u64,
    pub(super) keys: u64,
}

pub(super) struct Verdict {
    pub(super) counts: Counts,
    violations: HashMap<Kind, u64>,
    pub(super) examples: Vec<Example>,
}

impl Verdict {
    pub(super) fn of(&self, kind: Kind) -> u64 {
        self.violations.get(&kind).copied().unwrap_or_default()
    }

    pub(super) fn is_ok(&self) -> bool {
        self.violations.is_empty()
    }
}

/// What is known of one key.
#[derive(Debug, Default)]
struct Key {
    numbers: Numbers,
    /// The highest number delivered for the first time.
    highest: Option<u64>,
    /// Who has deliveries that are not done: member, segment, offset.
    working: Vec<(Box<str>, u64, u64)>,
}

/// Reads records in order of time.
#[derive(Default)]
pub(super) struct Audit {
    messages: Messages,
    keys: HashMap<Box<str>, Key>,
    /// Acked without an offset: key and number stand for it.
    unplaced: Vec<(Box<str>, u64)>,
    counts: Counts,
    violations: HashMap<Kind, u64>,
    examples: Vec<Example>,
}

impl Audit {
    pub(super) fn see(&mut self, record: &Record<'_>) {
        match record.event {
            Happened::Acked => self.acked(record),
            Happened::Delivered => self.delivered(record),
            Happened::Done => self.done(record),
        }
    }

    pub(super) fn finish(mut self) -> Verdict {
        let lost: Vec<_> = self.messages.with_exactly(ACKED).collect();
        for (segment, offset) in lost {
            self.violated(Example { offset: Some(offset), ..example(Kind::Lost, segment) });
        }
        for (key, seq) in std::mem::take(&mut self.unplaced) {
            let is_delivered = self.keys.get_mut(&key).is_some_and(|key| !key.numbers.insert(seq));
            if !is_delivered {
                let lost = example(Kind::Lost, 0);
                self.violated(Example { key: Some(key.into()), seq: Some(seq), ..lost });
            }
        }
        self.counts.keys = self.keys.len() as u64;
        Verdict { counts: self.counts, violations: self.violations, examples: self.examples }
    }

    fn acked(&mut self, record: &Record<'_>) {
        self.counts.acked += 1;
        match (record.offset, &record.key, record.seq) {
            (Some(offset), ..) => drop(self.messages.set(record.segment, offset, ACKED)),
            (None, Some(key), Some(seq)) => self.unplaced.push((key.as_ref().into(), seq)),
            _ => {}
        }
    }

    fn delivered(&mut self, record: &Record<'_>) {
        self.counts.delivered += 1;
        self.counts.redelivered += u64::from(record.redelivered);
        let Some(offset) = record.offset else { return };
        let is_first = self.messages.set(record.segment, offset, DELIVERED) & DELIVERED == 0;
        if !is_first && !record.redelivered {
            self.violated(of(record, Kind::Duplicated, None));
        }
        let Some(name) = record.key.as_deref() else { return };
        if !self.keys.contains_key(name) {
            self.keys.insert(name.into(), Key::default());
        }
        let key = self.keys.get_mut(name).expect("it was just put there");
        let mut found = Vec::new();
        if let (true, Some(seq)) = (is_first, record.seq) {
            let is_new = key.numbers.insert(seq);
            if !is_new {
                found.push(of(record, Kind::Duplicated, Some("at another offset before".into())));
            } else if let Some(highest) = key.highest.filter(|highest| seq < *highest) {
                found.push(of(record, Kind::OutOfOrder, Some(format!("after {highest}"))));
            }
            key.highest = key.highest.max(Some(seq));
        }
        // A redelivery takes the key over from whoever had this message, or a later one of the segment.
        let others = key.working.len();
        if record.redelivered {
            key.working.retain(|(member, segment, at)| {
                **member == *record.member || *segment != record.segment || *at < offset
            });
        }
        let taken_over = others - key.working.len();
        if let Some((other, ..)) = key.working.iter().find(|(member, ..)| **member != *record.member) {
            found.push(of(record, Kind::TwoMembers, Some(format!("member `{other}` is not done"))));
        }
        if !key.working.iter().any(|held| (&*held.0, held.1, held.2) == (&*record.member, record.segment, offset)) {
            key.working.push((record.member.as_ref().into(), record.segment, offset));
        }
        self.counts.taken_over += taken_over as u64;
        found.into_iter().for_each(|example| self.violated(example));
    }

    fn done(&mut self, record: &Record<'_>) {
        self.counts.done += 1;
        if let Some(key) = record.key.as_deref().and_then(|name| self.keys.get_mut(name)) {
            key.working.retain(|(member, segment, offset)| {
                **member != *record.member || *segment != record.segment || Some(*offset) != record.offset
            });
        }
    }

    fn violated(&mut self, example: Example) {
        let count = self.violations.entry(example.kind).or_default();
        *count += 1;
        if *count <= EXAMPLES_MAX {
            self.examples.push(example);
        }
    }
}

const fn example(kind: Kind, segment: u64) -> Example {
    Example { kind, segment, offset: None, key: None, seq: None, member: None, against: None }
}

fn of(record: &Record<'_>, kind: Kind, against: Option<String>) -> Example {
    Example {
        kind,
        segment: record.segment,
        offset: record.offset,
        key: record.key.as_deref().map(str::to_owned),
        seq: record.seq,
        member: Some(record.member.clone().into_owned()),
        against,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a` acked, `>` delivered, `+` redelivered, `.` done; then member, offset, number, of key `k` in segment 0.
    fn check(story: &str, expected: [u64; 4]) {
        let mut audit = Audit::default();
        for word in story.split_whitespace() {
            let (event, rest) = word.split_at(1);
            let mut rest = rest.split('/');
            let member = rest.next().unwrap();
            let mut number = || rest.next().map(|n| n.parse().unwrap());
            let (offset, seq) = (number(), number());
            let (event, redelivered) = match event {
                "a" => (Happened::Acked, false),
                ">" => (Happened::Delivered, false),
                "+" => (Happened::Delivered, true),
                _ => (Happened::Done, false),
            };
            let seq = seq.or(offset);
            let key = Some("k".into());
            audit.see(&Record { t: 0, event, member: member.into(), segment: 0, offset, key, seq, redelivered });
        }
        let verdict = audit.finish();
        assert_eq!(Kind::ALL.map(|kind| verdict.of(kind)), expected, "{story}: {:?}", verdict.examples);
    }

    #[test]
    fn each_broken_promise_is_counted_as_what_it_is() {
        // [lost, duplicated, out of order, two members]
        check("ap/0 ap/1 >x/0 .x/0 >x/1 .x/1", [0, 0, 0, 0]);
        check("ap/0 ap/1 ap/2 >x/1 .x/1", [2, 0, 0, 0]);
        check(">x/0 .x/0 >x/0 .x/0", [0, 1, 0, 0]);
        check(">x/0 .x/0 >y/0 .y/0", [0, 1, 0, 0]);
        check(">x/0/7 .x/0 >x/1/7 .x/1", [0, 1, 0, 0]);
        check(">x/1 .x/1 >x/0 .x/0", [0, 0, 1, 0]);
        check(">x/1 .x/1 +x/0 .x/0", [0, 0, 1, 0]);
        check(">x/0 >y/1 .x/0 .y/1", [0, 0, 0, 1]);
        check(">x/0 >x/1 .x/0 .x/1", [0, 0, 0, 0]);
    }

    #[test]
    fn a_redelivery_after_a_crash_breaks_nothing() {
        // x has done 0, whose ack was lost, and dies over 1.
        check("ap/0 ap/1 >x/0 .x/0 >x/1 +y/0 .y/0 +y/1 .y/1 >y/2 .y/2", [0, 0, 0, 0]);
        check(">x/0 .x/0 +x/0 .x/0", [0, 0, 0, 0]);
    }

    #[test]
    fn a_message_that_skips_the_one_in_work_takes_nothing_over() {
        check(">x/0 +y/1 .y/1", [0, 0, 0, 1]);
    }
}
