//! Would the topic grow again right after a merge? Answered per pair in constant time, from what the survey holds.

use super::metric::Rates;
use super::survey::Survey;

/// Whether lane A or lane B would act, no cooldown running, if a pair with the rates `a` and `b` were one segment.
///
/// The pair is known, not blocked, and keeps the capacity that the sessions use; lanes A and B were asked before and do not
/// want to grow. Three things follow, and a property test that rebuilds the topic holds us to them:
/// - Lane A would not add buckets. It would need more sessions than the capacity left, so more than the capacity now. Then
///   it has answered already: with a change or a wait; at the ceiling, where every merger loses buckets; or with a hot
///   segment too narrow to split, which stays the busiest unless the merger is, and that one splits.
/// - The pair need not be taken out of the survey. The merger carries more than either, so where one of the pair is the
///   busiest, or over a threshold, the merger is too.
/// - The merger itself can always split: it is two hashes wide at least, and nothing undrained lies above it yet.
pub(super) fn would_grow(survey: &Survey<'_>, a: &Rates, b: &Rates) -> bool {
    let policy = survey.policy;
    let segments = survey.segments - 1;
    if segments >= u64::from(policy.max_segments) {
        return false;
    }
    let load: [u128; 4] = core::array::from_fn(|i| with_margin(a.0[i], b.0[i]));
    if survey.any_splittable || load.iter().zip(&policy.split.0).any(|(rate, split)| *rate > u128::from(*split)) {
        return true;
    }
    // The merger is the youngest, so of equals the other is the busiest.
    let busier = survey.busiest.filter(|(messages_in, _)| u128::from(*messages_in) >= load[0]);
    survey.consumers > segments
        && match busier {
            Some((messages_in, other)) => messages_in >= policy.split_floor && survey.is_free(other),
            None => load[0] >= u128::from(policy.split_floor),
        }
}

/// A rate of the merger and a tenth, so that no noise undoes a merge: `floor((a + b) * 11 / 10) + 1`.
fn with_margin(a: u64, b: u64) -> u128 {
    match a.checked_add(b).and_then(|sum| sum.checked_mul(11)) {
        Some(product) => u128::from(product / 10) + 1,
        // A division of 128 bits costs more than all the rest here; only absurd rates need it.
        None => (u128::from(a) + u128::from(b)) * 11 / 10 + 1,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::scale::{Change, Hold, Lane, Policy, Reason, Sample, Segment, Snapshot, Verdict, decide};
    use crate::{Buckets, HashRange, Micros, SegmentId};

    #[test]
    fn of_equally_busy_segments_the_merger_is_not_the_busiest() {
        // The pair merges at 454 + 455, with margin 1,000; its neighbour is one hash wide and cannot split.
        let check = |neighbour: u64, expected: Result<Change, Hold>| {
            let segment = |id: u64, start: u16, end: u16, messages_in: u64, cold_since: Option<Micros>| Segment {
                id: SegmentId(id),
                range: HashRange::new(start, end).unwrap(),
                buckets: Buckets::ONE,
                merge_depth: 0,
                undrained_generations: 0,
                sample: Some(Sample {
                    rates: Rates([messages_in, 0, 0, 0]),
                    sampled_at: Micros(0),
                    cold_since,
                    estimated: false,
                }),
            };
            let seen = Snapshot {
                segments: vec![
                    segment(0, 0, 0, neighbour, None),
                    segment(1, 1, 9, 454, Some(Micros(0))),
                    segment(2, 10, u16::MAX, 455, Some(Micros(0))),
                ],
                sessions: vec![3],
                home_silent_us: Some(0),
                ..Snapshot::default()
            };
            let policy = Policy { merge_window_seconds: 0, ..Policy::default() };
            let expected = match expected {
                Ok(change) => Verdict { change: Some(change), holds: vec![] },
                Err(hold) => Verdict { change: None, holds: vec![(Lane::Merge, hold)] },
            };
            assert_eq!(decide(&seen, &policy, Micros(0)), expected, "neighbour at {neighbour}");
        };
        let merge = Change::Merge { a: SegmentId(1), b: SegmentId(2), reason: Reason::Cold };
        check(999, Err(Hold::WouldSplitAgain));
        check(1_000, Ok(merge.clone()));
        check(1_001, Ok(merge));
    }

    #[test]
    fn the_margin_is_a_tenth_of_the_sum_floored_and_one() {
        let check = |a: u64, b: u64, expected: u128| assert_eq!(with_margin(a, b), expected, "{a} and {b}");
        check(0, 0, 1);
        check(454, 454, 999);
        check(454, 455, 1_000);
        check(5, 4, 10);
        check(1 << 60, 1 << 60, 2_536_427_310_135_063_348);
        check(u64::MAX, u64::MAX, 40_582_836_962_161_013_554);
    }
}
