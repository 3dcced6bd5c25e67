//! Would the topic grow again right after a merge? Answered per pair in constant time, from sums taken once.

use super::consumers::target;
use super::merge::capacity_with;
use super::metric::Rates;
use super::snapshot::Segment;
use super::survey::Survey;
use crate::Buckets;

/// The topic with any one pair replaced by its merger: one segment fewer, no cooldown running.
pub(super) struct Veto<'a> {
    survey: &'a Survey<'a>,
    /// m - 1.
    segments: u64,
    /// How many buckets the consumer lane would want per segment; the same whatever the pair.
    target: Buckets,
    /// How many segments that are not blocked have fewer.
    small: u64,
}

impl<'a> Veto<'a> {
    pub(super) fn of(survey: &'a Survey<'a>) -> Self {
        let segments = survey.segments.saturating_sub(1);
        let target = target(survey.consumers, segments.max(1), survey.policy.ceiling());
        let is_small = |segment: &&Segment| segment.buckets < target && !survey.is_blocked(segment);
        let small = survey.seen.segments.iter().filter(is_small).count() as u64;
        Self { survey, segments, target, small }
    }

    /// Whether lane A or lane B would act if `a` and `b`, both known and not blocked, were one segment with `merger`
    /// buckets. The merger's load is theirs and a tenth of margin; it is never blocked, never too narrow, and the youngest.
    pub(super) fn would_grow(&self, a: (&Segment, &Rates), b: (&Segment, &Rates), merger: Buckets) -> bool {
        let load = with_margin(a.1, b.1);
        self.consumers_would(a.0, b.0, merger, &load) || self.load_would(a.0, b.0, &load)
    }

    fn is_full(&self) -> bool {
        self.segments >= u64::from(self.survey.policy.max_segments)
    }

    /// Lane A.
    fn consumers_would(&self, a: &Segment, b: &Segment, merger: Buckets, load: &Rates) -> bool {
        let survey = self.survey;
        if survey.consumers <= self.segments {
            return false;
        }
        if !self.is_full() {
            // The merger has the highest id, so it is the busiest only if it is strictly busier.
            let other = survey.busiest_without(a, b).filter(|(messages_in, _)| *messages_in >= load.messages_in());
            let most = other.map_or_else(|| load.messages_in(), |(messages_in, _)| messages_in);
            if most >= survey.policy.split_floor {
                return other.is_none_or(|(_, busiest)| busiest.range.size() >= 2 && !survey.is_blocked(busiest));
            }
            if survey.load_unknown {
                return false;
            }
        }
        let small_pair = [a, b].into_iter().filter(|segment| segment.buckets < self.target).count() as u64;
        let small = self.small - small_pair + u64::from(merger < self.target);
        survey.consumers > capacity_with(survey, a, b, merger) && small > 0
    }

    /// Lane B.
    fn load_would(&self, a: &Segment, b: &Segment, load: &Rates) -> bool {
        let pair = [a, b].into_iter().filter(|segment| self.survey.may_split(segment)).count() as u64;
        !self.is_full() && (load.any_over(&self.survey.policy.split) || self.survey.splittable > pair)
    }
}

/// The load of a merger and a tenth, so that a merge is not undone by noise: `floor((a + b) * 11 / 10) + 1`, no more than
/// a sample can hold.
pub(super) fn with_margin(a: &Rates, b: &Rates) -> Rates {
    a.zip(b, |a, b| match a.checked_add(b).and_then(|sum| sum.checked_mul(11)) {
        Some(product) => product / 10 + 1,
        // A division of 128 bits costs more than the rest of the veto; only absurd rates need it.
        None => u64::try_from((u128::from(a) + u128::from(b)) * 11 / 10 + 1).unwrap_or(u64::MAX),
    })
}
