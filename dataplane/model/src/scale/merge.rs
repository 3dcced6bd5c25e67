//! Lane C: two neighbours that have been cold for long become one, unless someone would miss the second.

use alloc::vec::Vec;

use super::clock::US_PER_SECOND;
use super::reason::{Hold, Reason};
use super::snapshot::{Sample, Segment};
use super::survey::Survey;
use super::verdict::{Change, Proposal};
use super::veto::Veto;
use crate::{Buckets, Micros};

pub(super) fn propose(survey: &Survey<'_>, growing: bool) -> Proposal {
    if growing {
        return Proposal::Hold(Hold::ScaleUpPending);
    }
    if survey.segments <= u64::from(survey.policy.min_segments) {
        return Proposal::Hold(Hold::AtMinSegments);
    }
    if survey.in_merge_cooldown() {
        return Proposal::Hold(Hold::MergeCooldown);
    }
    let veto = Veto::of(survey);
    let mut furthest = Stage::Cold;
    let mut coldest: Option<(u128, &Segment, &Segment)> = None;
    for (a, b) in neighbours(&survey.seen.segments) {
        match pass(survey, &veto, a, b) {
            Err(stage) => furthest = furthest.max(stage),
            // Pairs come by range start, so the first of equals is the lowest.
            Ok(heat) if coldest.is_none_or(|(least, ..)| heat < least) => coldest = Some((heat, a, b)),
            Ok(_) => {}
        }
    }
    match coldest {
        Some((_, a, b)) => Proposal::Change(Change::Merge { a: a.id, b: b.id, reason: Reason::Cold }),
        None => Proposal::Hold(furthest.hold()),
    }
}

/// What a pair must pass, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Cold,
    MergeDepth,
    Undrained,
    Capacity,
    Veto,
}

impl Stage {
    const fn hold(self) -> Hold {
        match self {
            Self::Cold => Hold::NotCold,
            Self::MergeDepth => Hold::MergeDepthReached,
            Self::Undrained => Hold::UndrainedGenerations,
            Self::Capacity => Hold::CapacityInUse,
            Self::Veto => Hold::WouldSplitAgain,
        }
    }
}

/// How warm a pair that may merge is, relative to the merge thresholds; or the first stage at which it failed.
fn pass(survey: &Survey<'_>, veto: &Veto<'_>, a: &Segment, b: &Segment) -> Result<u128, Stage> {
    let policy = survey.policy;
    let (Some(cold_a), Some(cold_b)) = (cold(survey, a), cold(survey, b)) else { return Err(Stage::Cold) };
    if a.merge_depth >= policy.max_merge_depth || b.merge_depth >= policy.max_merge_depth {
        return Err(Stage::MergeDepth);
    }
    if survey.is_blocked(a) || survey.is_blocked(b) {
        return Err(Stage::Undrained);
    }
    let merger = merged(a.buckets, b.buckets, policy.ceiling());
    if capacity_with(survey, a, b, merger) < survey.consumers.min(survey.capacity) {
        return Err(Stage::Capacity);
    }
    if veto.would_grow((a, &cold_a.rates), (b, &cold_b.rates), merger) {
        return Err(Stage::Veto);
    }
    Ok(cold_a.rates.score(&policy.merge) + cold_b.rates.score(&policy.merge))
}

/// The sample of a segment that is known, by measure, to have been cold for the whole merge window.
fn cold<'a>(survey: &Survey<'_>, segment: &'a Segment) -> Option<&'a Sample> {
    let window_us = u128::from(survey.policy.merge_window_seconds) * US_PER_SECOND;
    let lasted = |since: Micros| u128::from(survey.now.since(since)) >= window_us;
    survey.known(segment).filter(|sample| !sample.estimated && sample.cold_since.is_some_and(lasted))
}

/// How many buckets the merger of two segments has.
pub(super) fn merged(a: Buckets, b: Buckets, ceiling: Buckets) -> Buckets {
    Buckets::new(a.count() + b.count()).map_or(ceiling, |sum| sum.min(ceiling))
}

/// The topic's capacity when `a` and `b` are one segment of `merger` buckets.
pub(super) fn capacity_with(survey: &Survey<'_>, a: &Segment, b: &Segment, merger: Buckets) -> u64 {
    let [a, b, merger] = [a.buckets, b.buckets, merger].map(|buckets| u64::from(buckets.count()));
    survey.capacity - a - b + merger
}

/// Pairs of segments that touch, by range start, the lower one first.
pub(super) fn neighbours(segments: &[Segment]) -> impl Iterator<Item = (&Segment, &Segment)> {
    // Sorting small keys costs a fraction of sorting references that must be followed to compare.
    let mut order: Vec<u64> = (0..segments.len() as u64).collect();
    for (key, segment) in order.iter_mut().zip(segments) {
        *key |= u64::from(segment.range.start()) << 48;
    }
    order.sort_unstable();
    let at = move |key: u64| &segments[(key & 0xffff_ffff_ffff) as usize];
    let pairs = (1..order.len()).map(move |i| (at(order[i - 1]), at(order[i])));
    pairs.filter(|(a, b)| u32::from(a.range.end()) + 1 == u32::from(b.range.start()))
}
