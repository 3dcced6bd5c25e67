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
    /// Some known segment is over a split threshold and free to split.
    pub(super) any_splittable: bool,
    /// The known segment with the most messages in, ties by lowest id, and how many.
    pub(super) busiest: Option<(u64, &'a Segment)>,
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
            any_splittable: false,
            busiest: None,
        };
        for segment in &seen.segments {
            survey.capacity += u64::from(segment.buckets.count());
            match survey.known(segment) {
                None => survey.load_unknown = true,
                Some(sample) => {
                    let messages_in = sample.rates.messages_in();
                    let is_busier = |(most, busiest): (u64, &Segment)| {
                        messages_in > most || (messages_in == most && segment.id < busiest.id)
                    };
                    if survey.busiest.is_none_or(is_busier) {
                        survey.busiest = Some((messages_in, segment));
                    }
                    let is_over = sample.rates.any_over(&policy.split);
                    survey.any_over |= is_over;
                    survey.any_splittable |= is_over && survey.is_free(segment);
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

    /// Wide enough to split, and not blocked.
    pub(super) fn is_free(&self, segment: &Segment) -> bool {
        segment.range.size() >= 2 && !self.is_blocked(segment)
    }

    /// No further segment is allowed.
    pub(super) fn is_full(&self) -> bool {
        self.segments >= u64::from(self.policy.max_segments)
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
}
