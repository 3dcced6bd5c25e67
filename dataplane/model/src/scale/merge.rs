//! Lane C: two neighbours that have been cold for long become one, unless someone would miss the second.

use alloc::vec::Vec;

use super::clock::US_PER_SECOND;
use super::metric::Rates;
use super::reason::{Hold, Reason};
use super::snapshot::{Sample, Segment};
use super::survey::Survey;
use super::verdict::{Change, Proposal};
use super::veto::would_grow;
use crate::Micros;

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
    let mut furthest = Stage::Cold;
    let mut coldest: Option<(u128, &Segment, &Segment)> = None;
    let mut before: Option<Half<'_>> = None;
    for b in by_range(&survey.seen.segments).map(|segment| Half::of(survey, segment)) {
        let Some(a) = before.replace(b).filter(|a| touch(a.segment, b.segment)) else { continue };
        match pass(survey, a, b) {
            Err(stage) => furthest = furthest.max(stage),
            // Pairs come by range start, so the first of equals is the lowest.
            Ok(warmth) if coldest.is_none_or(|(least, ..)| warmth < least) => {
                coldest = Some((warmth, a.segment, b.segment));
            }
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

/// One segment of a pair, with what both of its pairs ask of it.
#[derive(Clone, Copy)]
struct Half<'a> {
    segment: &'a Segment,
    /// Its rates and how warm they are relative to the merge thresholds, if it is known, by measure, to have been cold for
    /// the whole merge window.
    cold: Option<(&'a Rates, u128)>,
}

impl<'a> Half<'a> {
    fn of(survey: &Survey<'_>, segment: &'a Segment) -> Self {
        let window_us = u128::from(survey.policy.merge_window_seconds) * US_PER_SECOND;
        let lasted = |since: Micros| u128::from(survey.now.since(since)) >= window_us;
        let is_cold = |sample: &&Sample| !sample.estimated && sample.cold_since.is_some_and(lasted);
        let warmth = |sample: &'a Sample| (&sample.rates, sample.rates.score(&survey.policy.merge));
        Self { segment, cold: survey.known(segment).filter(is_cold).map(warmth) }
    }
}

/// How warm a pair that may merge is; or the first stage at which it failed.
fn pass(survey: &Survey<'_>, a: Half<'_>, b: Half<'_>) -> Result<u128, Stage> {
    let policy = survey.policy;
    let (Some((rates_a, warmth_a)), Some((rates_b, warmth_b))) = (a.cold, b.cold) else { return Err(Stage::Cold) };
    let (a, b) = (a.segment, b.segment);
    if a.merge_depth >= policy.max_merge_depth || b.merge_depth >= policy.max_merge_depth {
        return Err(Stage::MergeDepth);
    }
    if survey.is_blocked(a) || survey.is_blocked(b) {
        return Err(Stage::Undrained);
    }
    let both = u64::from(a.buckets.count()) + u64::from(b.buckets.count());
    let merger = both.min(u64::from(policy.ceiling().count()));
    if survey.capacity - both + merger < survey.consumers.min(survey.capacity) {
        return Err(Stage::Capacity);
    }
    if would_grow(survey, rates_a, rates_b) {
        return Err(Stage::Veto);
    }
    Ok(warmth_a + warmth_b)
}

/// Pairs of segments that touch, by range start, the lower one first.
pub(super) fn neighbours(segments: &[Segment]) -> impl Iterator<Item = (&Segment, &Segment)> {
    let order: Vec<&Segment> = by_range(segments).collect();
    let pairs = (1..order.len()).map(move |upper| (order[upper - 1], order[upper]));
    pairs.filter(|(a, b)| touch(a, b))
}

fn touch(lower: &Segment, upper: &Segment) -> bool {
    u32::from(lower.range.end()) + 1 == u32::from(upper.range.start())
}

/// Segments by range start.
fn by_range(segments: &[Segment]) -> impl Iterator<Item = &Segment> {
    // Sorting small keys costs a fraction of sorting references that must be followed to compare.
    let place = |(i, segment): (usize, &Segment)| u64::from(segment.range.start()) << 48 | i as u64;
    let mut order: Vec<u64> = segments.iter().enumerate().map(place).collect();
    order.sort_unstable();
    order.into_iter().map(|key| &segments[(key & 0xffff_ffff_ffff) as usize])
}
