//! Cooldowns and windows: which run, and when the next one ends.

use super::merge::neighbours;
use super::policy::{Mode, Policy};
use super::snapshot::{Segment, Snapshot};
use crate::Micros;

pub(super) const US_PER_SECOND: u128 = 1_000_000;

/// Whether less than `seconds` have passed since `last`. A clock that went backwards counts as no time passed.
pub(super) fn within(last: Option<Micros>, seconds: u64, now: Micros) -> bool {
    last.is_some_and(|last| u128::from(now.since(last)) < u128::from(seconds) * US_PER_SECOND)
}

/// The earliest time after `now` at which a running cooldown, or the merge window of a pair of neighbours, is over: the
/// moment for which to set a timer, since a verdict may change then without any event.
///
/// `None` if no clock runs, or the policy is off.
#[must_use]
pub fn next_eligible(seen: &Snapshot, policy: &Policy, now: Micros) -> Option<Micros> {
    if policy.mode == Mode::Off {
        return None;
    }
    let cooldowns = [
        (seen.last.split, policy.split_cooldown_seconds),
        (seen.last.rebucket, policy.rebucket_cooldown_seconds),
        (seen.last.merge, policy.merge_cooldown_seconds),
    ];
    let cooldowns = cooldowns.into_iter().filter_map(|(last, seconds)| ends(last?, seconds, now));
    let windows = neighbours(&seen.segments).filter_map(|(a, b)| {
        // A pair is eligible when the later of the two is.
        ends(measured_cold(a)?.max(measured_cold(b)?), policy.merge_window_seconds, now)
    });
    cooldowns.chain(windows).min()
}

fn measured_cold(segment: &Segment) -> Option<Micros> {
    segment.sample.filter(|sample| !sample.estimated)?.cold_since
}

fn ends(start: Micros, seconds: u64, now: Micros) -> Option<Micros> {
    let end = u128::from(start.0) + u128::from(seconds) * US_PER_SECOND;
    within(Some(start), seconds, now).then(|| Micros(u64::try_from(end).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::scale::{LastChanges, Rates, Sample, decide};
    use crate::{Buckets, HashRange, SegmentId};

    const fn seconds(s: u64) -> Micros {
        Micros(s * 1_000_000)
    }

    fn topic(cold_since: [Option<u64>; 3]) -> Snapshot {
        let ranges = HashRange::initial(3).unwrap();
        let segments = ranges.zip(cold_since).enumerate().map(|(id, (range, cold_since))| Segment {
            id: SegmentId(id as u64),
            range,
            buckets: Buckets::ONE,
            merge_depth: 0,
            undrained_generations: 0,
            sample: Some(Sample {
                rates: Rates::default(),
                sampled_at: seconds(1000),
                cold_since: cold_since.map(seconds),
                estimated: false,
            }),
        });
        Snapshot { segments: segments.collect(), home_silent_us: Some(0), ..Snapshot::default() }
    }

    #[test]
    fn the_timer_is_set_for_the_first_clock_that_ends() {
        let check = |last: [Option<u64>; 3], cold_since: [Option<u64>; 3], expected: Option<u64>| {
            let [split, rebucket, merge] = last.map(|at| at.map(seconds));
            let seen = Snapshot { last: LastChanges { split, rebucket, merge }, ..topic(cold_since) };
            let found = next_eligible(&seen, &Policy::default(), seconds(1000));
            assert_eq!(found, expected.map(seconds), "last {last:?}, cold since {cold_since:?}");
        };
        check([None; 3], [None; 3], None);
        check([Some(940), Some(940), Some(700)], [None; 3], None);
        check([Some(941), None, None], [None; 3], Some(1001));
        check([Some(990), Some(970), Some(701)], [None; 3], Some(1001));
        check([Some(990), Some(970), Some(720)], [None; 3], Some(1020));
        // A clock ahead of us counts as no time passed, and ends when it says.
        check([Some(1010), None, None], [None; 3], Some(1070));
        // One cold segment alone can merge with nobody; of a pair the later counts; only neighbours are pairs.
        check([None; 3], [Some(900), None, Some(900)], None);
        check([None; 3], [Some(900), Some(950), None], Some(1250));
        check([None; 3], [Some(900), Some(950), Some(800)], Some(1250));
        check([None; 3], [Some(100), Some(700), None], None);
    }

    #[test]
    fn at_the_time_named_the_hold_is_gone_and_just_before_it_is_not() {
        let seen = topic([Some(750), Some(800), None]);
        let policy = Policy { sample_stale_seconds: 1_000_000, ..Policy::default() };
        let end = next_eligible(&seen, &policy, seconds(1000)).unwrap();
        assert_eq!(end, seconds(1100));
        assert!(decide(&seen, &policy, Micros(end.0 - 1)).change.is_none());
        assert!(decide(&seen, &policy, end).change.is_some());
    }

    #[test]
    fn a_policy_that_is_off_waits_for_no_clock() {
        let seen =
            Snapshot { last: LastChanges { split: Some(seconds(990)), ..LastChanges::default() }, ..topic([None; 3]) };
        let off = Policy { mode: Mode::Off, ..Policy::default() };
        assert_eq!(next_eligible(&seen, &off, seconds(1000)), None);
        assert_eq!(
            next_eligible(&Snapshot { segments: vec![], ..seen }, &Policy::default(), seconds(1000)),
            Some(seconds(1050))
        );
    }
}
