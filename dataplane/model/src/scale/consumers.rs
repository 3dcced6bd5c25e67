//! Lane A: more sessions than segments. A busy topic splits; a quiet one gets more buckets.

use alloc::vec::Vec;

use super::load::children;
use super::reason::{Hold, Reason};
use super::snapshot::Segment;
use super::survey::Survey;
use super::verdict::{Change, Proposal};
use crate::Buckets;

pub(super) fn propose(survey: &Survey<'_>) -> Proposal {
    if survey.consumers <= survey.segments || survey.segments == 0 {
        return Proposal::Nothing;
    }
    if survey.is_full() {
        return more_buckets(survey, Reason::AtMaxSegments);
    }
    match survey.busiest {
        Some((messages_in, busiest)) if messages_in >= survey.policy.split_floor => split(survey, busiest),
        // A segment of which we know nothing may be the busy one.
        _ if survey.load_unknown => Proposal::Hold(Hold::LoadUnknown),
        _ => more_buckets(survey, Reason::BelowSplitFloor),
    }
}

fn split(survey: &Survey<'_>, busiest: &Segment) -> Proposal {
    if survey.in_split_cooldown() {
        Proposal::Hold(Hold::SplitCooldown)
    } else if busiest.range.size() < 2 {
        Proposal::Hold(Hold::TooNarrow)
    } else if survey.is_blocked(busiest) {
        Proposal::Hold(Hold::UndrainedGenerations)
    } else {
        let over = busiest.sample.filter(|sample| sample.rates.any_over(&survey.policy.split));
        let into = over.map_or(2, |sample| children(survey, busiest, &sample.rates));
        Proposal::Change(Change::Split { segment: busiest.id, into, reason: Reason::ConsumerSurplus })
    }
}

fn more_buckets(survey: &Survey<'_>, reason: Reason) -> Proposal {
    if survey.consumers <= survey.capacity {
        return Proposal::Hold(Hold::AbsorbedByBuckets);
    }
    if survey.in_rebucket_cooldown() {
        return Proposal::Hold(Hold::RebucketCooldown);
    }
    let buckets = target(survey.consumers, survey.segments, survey.policy.ceiling());
    let small = || survey.seen.segments.iter().filter(|segment| segment.buckets < buckets);
    if small().next().is_none() {
        return Proposal::Hold(Hold::AtBucketCeiling);
    }
    let mut segments: Vec<_> =
        small().filter(|segment| !survey.is_blocked(segment)).map(|segment| segment.id).collect();
    if segments.is_empty() {
        return Proposal::Hold(Hold::UndrainedGenerations);
    }
    segments.sort_unstable();
    Proposal::Change(Change::Rebucket { segments, buckets, reason })
}

/// How many buckets each of `segments` (at least 1) needs for `consumers`: a power of two, or the ceiling.
fn target(consumers: u64, segments: u64, ceiling: Buckets) -> Buckets {
    // No power of two at or above a share beyond the ceiling is under it: cutting the share first cannot overflow.
    let share = consumers.div_ceil(segments).min(u64::from(ceiling.count()));
    Buckets::new(share.next_power_of_two() as u32).map_or(ceiling, |buckets| buckets.min(ceiling))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_segment_gets_the_next_power_of_two_of_its_share_up_to_the_ceiling() {
        let check = |consumers, segments, ceiling, expected| {
            let found = target(consumers, segments, Buckets::new(ceiling).unwrap()).count();
            assert_eq!(found, expected, "{consumers} over {segments}, ceiling {ceiling}");
        };
        for (consumers, segments, expected) in [
            (5, 1, 8),
            (5, 2, 4),
            (5, 3, 2),
            (9, 8, 2),
            (17, 4, 8),
            (33, 3, 16),
            (100, 3, 64),
            (200, 64, 4),
            (1000, 1, 1024),
            (1000, 64, 16),
        ] {
            check(consumers, segments, 1024, expected);
        }
        check(5000, 1, 12, 12);
        check(9, 1, 12, 12);
        check(8, 1, 12, 8);
        check(u64::MAX, 1, 65_536, 65_536);
        check(40_000, 1, 65_535, 65_535);
        check(2, 1, 1, 1);
    }
}
