//! One look over a snapshot: the sums and extremes that the lanes share, so that no lane counts twice.

use super::clock::{US_PER_SECOND, within};
use super::policy::Policy;
use super::snapshot::{Sample, Segment, Snapshot};
use crate::Micros;

/// A snapshot, what it is judged by, and what one pass over its segments tells.
pub(super) struct Survey<'a> {
    pub(super) seen: &'a Snapshot,
    pub(super) policy: &'a Policy,
    pub(super) now: Micros,
    /// n: the most sessions of one ordered subscription.
    pub(super) consumers: u64,
    /// m: active segments.
    pub(super) segments: u64,
    /// The sum of all N.
    pub(super) capacity: u64,
    /// Some segment has no known sample.
    pub(super) load_unknown: bool,
    /// Some known segment is over a split threshold.
    pub(super) any_over: bool,
    /// How many known segments are over a split threshold and may split.
    pub(super) splittable: u64,
    /// The three known segments with the most messages in, ties by lowest id: without any two, one is still the busiest.
    busiest: [Option<(u64, &'a Segment)>; 3],
}

impl<'a> Survey<'a> {
    pub(super) fn of(seen: &'a Snapshot, policy: &'a Policy, now: Micros) -> Self {
        let mut survey = Self {
            seen,
            policy,
            now,
            consumers: seen.sessions.iter().copied().max().unwrap_or(0),
            segments: seen.segments.len() as u64,
            capacity: 0,
            load_unknown: false,
            any_over: false,
            splittable: 0,
            busiest: [None; 3],
        };
        for segment in &seen.segments {
            survey.capacity += u64::from(segment.buckets.count());
            match survey.known(segment) {
                None => survey.load_unknown = true,
                Some(sample) => {
                    survey.rank(sample.rates.messages_in(), segment);
                    survey.any_over |= sample.rates.any_over(&policy.split);
                    survey.splittable += u64::from(survey.may_split(segment));
                }
            }
        }
        survey
    }

    /// The segment's sample, unless it is missing or stale.
    pub(super) fn known<'s>(&self, segment: &'s Segment) -> Option<&'s Sample> {
        let stale_us = u128::from(self.policy.sample_stale_seconds) * US_PER_SECOND;
        segment.sample.as_ref().filter(|sample| u128::from(self.now.since(sample.sampled_at)) <= stale_us)
    }

    /// Too many undrained sealed generations lie above it.
    pub(super) fn is_blocked(&self, segment: &Segment) -> bool {
        segment.undrained_generations > self.policy.max_undrained_generations
    }

    /// Known to be over a split threshold, wide enough and not blocked: the load lane could take it.
    pub(super) fn may_split(&self, segment: &Segment) -> bool {
        self.known(segment).is_some_and(|sample| sample.rates.any_over(&self.policy.split))
            && segment.range.size() >= 2
            && !self.is_blocked(segment)
    }

    /// No further segment is allowed.
    pub(super) fn is_full(&self) -> bool {
        self.segments >= u64::from(self.policy.max_segments)
    }

    /// The known segment with the most messages in and how many, ties by lowest id; all known ones counted.
    pub(super) fn busiest(&self) -> Option<(u64, &'a Segment)> {
        self.busiest[0]
    }

    /// The same, when `a` and `b` are not counted.
    pub(super) fn busiest_without(&self, a: &Segment, b: &Segment) -> Option<(u64, &'a Segment)> {
        self.busiest.into_iter().flatten().find(|(_, segment)| segment.id != a.id && segment.id != b.id)
    }

    pub(super) fn in_split_cooldown(&self) -> bool {
        within(self.seen.last.split, self.policy.split_cooldown_seconds, self.now)
    }

    pub(super) fn in_rebucket_cooldown(&self) -> bool {
        within(self.seen.last.rebucket, self.policy.rebucket_cooldown_seconds, self.now)
    }

    pub(super) fn in_merge_cooldown(&self) -> bool {
        within(self.seen.last.merge, self.policy.merge_cooldown_seconds, self.now)
    }

    fn rank(&mut self, messages_in: u64, segment: &'a Segment) {
        let mut next = (messages_in, segment);
        for place in &mut self.busiest {
            match place {
                None => {
                    *place = Some(next);
                    return;
                }
                Some(held) if next.0 > held.0 || (next.0 == held.0 && next.1.id < held.1.id) => {
                    core::mem::swap(held, &mut next);
                }
                Some(_) => {}
            }
        }
    }
}
