//! What a topic's owner allows the evaluator to do.

use super::metric::{Metric, Rates};
use crate::buckets::{BUCKETS_MAX, Buckets};

/// The most active segments that a policy can allow.
pub const SEGMENTS_MAX: u32 = 1024;

/// What happens to a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It is carried out.
    #[default]
    Auto,
    /// It is published; nothing changes.
    Recommend,
    /// There is none.
    Off,
}

/// The effective policy of one topic. The defaults are those of DESIGN, section 6.
///
/// Signs need no check: nothing here can be negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether verdicts are made and carried out.
    pub mode: Mode,
    /// A merge never goes below it; 1..=max_segments.
    pub min_segments: u32,
    /// A split never goes above it; 1..=1024.
    pub max_segments: u32,
    /// The most buckets per segment, 1..=65536; the operator's alone (`--bucket-ceiling`), no layer sets it.
    pub ceiling: u32,
    /// Messages in per second from which a consumer surplus splits; below it, buckets are added.
    pub split_floor: u64,
    /// A segment with this many merges above it merges no more.
    pub max_merge_depth: u32,
    /// The most children of one split; a power of two, at least 2.
    pub max_split_factor: u32,
    /// A segment with more undrained sealed generations above it takes no change.
    pub max_undrained_generations: u32,
    /// A sample, or a home, silent for longer is unknown; at least 1.
    pub sample_stale_seconds: u64,
    /// How many one-second rates a node takes the least of; at least 1.
    pub load_window_seconds: u64,
    /// No split sooner after the last one.
    pub split_cooldown_seconds: u64,
    /// No rebucket sooner after the last one.
    pub rebucket_cooldown_seconds: u64,
    /// No merge sooner after the last one.
    pub merge_cooldown_seconds: u64,
    /// How long both segments of a merge must have been cold.
    pub merge_window_seconds: u64,
    /// A segment with some rate strictly over these splits; each above that of `merge`.
    pub split: Rates,
    /// A segment with all rates strictly under these is cold; each at least 1.
    pub merge: Rates,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            min_segments: 1,
            max_segments: 64,
            ceiling: 1024,
            split_floor: 1000,
            max_merge_depth: 10,
            max_split_factor: 8,
            max_undrained_generations: 4,
            sample_stale_seconds: 20,
            load_window_seconds: 5,
            split_cooldown_seconds: 60,
            rebucket_cooldown_seconds: 60,
            merge_cooldown_seconds: 300,
            merge_window_seconds: 300,
            split: Rates([10_000, 50_000_000, 50_000, 250_000_000]),
            merge: Rates([1_000, 5_000_000, 5_000, 25_000_000]),
        }
    }
}

impl Policy {
    /// Whether the fields agree with each other and keep their bounds.
    ///
    /// # Errors
    ///
    /// The first rule broken, with the fields, the values and the bound. Such a policy disables scaling of its topic.
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        at_least_1("minSegments", u64::from(self.min_segments))?;
        at_least_1("maxSegments", u64::from(self.max_segments))?;
        if self.max_segments > SEGMENTS_MAX {
            return Err(above("maxSegments", self.max_segments, SEGMENTS_MAX));
        }
        if self.min_segments > self.max_segments {
            return Err(InvalidPolicy::SegmentsInverted { min: self.min_segments, max: self.max_segments });
        }
        at_least_1("bucketCeiling", u64::from(self.ceiling))?;
        if self.ceiling > BUCKETS_MAX {
            return Err(above("bucketCeiling", self.ceiling, BUCKETS_MAX));
        }
        if self.max_split_factor < 2 || !self.max_split_factor.is_power_of_two() {
            return Err(InvalidPolicy::SplitFactor { value: self.max_split_factor });
        }
        at_least_1("sampleStaleSeconds", self.sample_stale_seconds)?;
        at_least_1("loadWindowSeconds", self.load_window_seconds)?;
        for metric in Metric::ALL {
            let (split, merge) = (self.split.of(metric), self.merge.of(metric));
            if split == 0 || merge == 0 {
                let side = if merge == 0 { "merge" } else { "split" };
                return Err(InvalidPolicy::ThresholdZero { side, metric });
            }
            if split <= merge {
                return Err(InvalidPolicy::NoDeadBand { metric, split, merge });
            }
        }
        Ok(())
    }

    /// The ceiling as a bucket count, brought within 1..=65536.
    pub(super) fn ceiling(&self) -> Buckets {
        Buckets::new(self.ceiling.clamp(1, BUCKETS_MAX)).expect("the count was brought within 1..=65536")
    }
}

/// A policy that contradicts itself or leaves its bounds. Fields are named as users write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// A field below its bound.
    #[error("`{field}` is {value}, the least is {least}")]
    BelowLeast {
        /// Its name.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// Its bound.
        least: u64,
    },
    /// A field above its bound.
    #[error("`{field}` is {value}, the most is {most}")]
    AboveMost {
        /// Its name.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// Its bound.
        most: u64,
    },
    /// No number of segments satisfies both.
    #[error("`minSegments` {min} is above `maxSegments` {max}")]
    SegmentsInverted {
        /// `minSegments`.
        min: u32,
        /// `maxSegments`.
        max: u32,
    },
    /// A threshold that no rate is under, or every rate is over.
    #[error("`{side}.{metric}` is 0, the least is 1")]
    ThresholdZero {
        /// `split` or `merge`.
        side: &'static str,
        /// Of which metric.
        metric: Metric,
    },
    /// A segment could be cold and hot at once, and would split and merge for ever.
    #[error("`split.{metric}` {split} is not above `merge.{metric}` {merge}")]
    NoDeadBand {
        /// Of which metric.
        metric: Metric,
        /// The split threshold.
        split: u64,
        /// The merge threshold.
        merge: u64,
    },
    /// A split factor that is not a power of two, or is less than 2.
    #[error("`maxSplitFactor` is {value}, it must be a power of two and at least 2")]
    SplitFactor {
        /// What it holds.
        value: u32,
    },
}

fn at_least_1(field: &'static str, value: u64) -> Result<(), InvalidPolicy> {
    if value == 0 { Err(InvalidPolicy::BelowLeast { field, value, least: 1 }) } else { Ok(()) }
}

fn above(field: &'static str, value: u32, most: u32) -> InvalidPolicy {
    InvalidPolicy::AboveMost { field, value: u64::from(value), most: u64::from(most) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_policy_that_breaks_a_rule_is_refused_with_its_fields_and_values() {
        let check = |change: fn(&mut Policy), expected: Option<&str>| {
            let mut policy = Policy::default();
            change(&mut policy);
            let found = policy.validate().err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected);
        };
        check(|_| {}, None);
        check(|p| p.min_segments = 0, Some("`minSegments` is 0, the least is 1"));
        check(|p| p.max_segments = 0, Some("`maxSegments` is 0, the least is 1"));
        check(|p| p.max_segments = 1024, None);
        check(|p| p.max_segments = 1025, Some("`maxSegments` is 1025, the most is 1024"));
        check(|p| p.min_segments = 64, None);
        check(|p| p.min_segments = 65, Some("`minSegments` 65 is above `maxSegments` 64"));
        check(|p| p.ceiling = 0, Some("`bucketCeiling` is 0, the least is 1"));
        check(|p| p.ceiling = 65_536, None);
        check(|p| p.ceiling = 65_537, Some("`bucketCeiling` is 65537, the most is 65536"));
        for (factor, valid) in [(0, false), (1, false), (2, true), (3, false), (4, true), (12, false), (1 << 31, true)]
        {
            let policy = Policy { max_split_factor: factor, ..Policy::default() };
            let expected = if valid { Ok(()) } else { Err(InvalidPolicy::SplitFactor { value: factor }) };
            assert_eq!(policy.validate(), expected);
        }
        check(|p| p.max_split_factor = 6, Some("`maxSplitFactor` is 6, it must be a power of two and at least 2"));
        check(|p| p.sample_stale_seconds = 0, Some("`sampleStaleSeconds` is 0, the least is 1"));
        check(|p| p.load_window_seconds = 0, Some("`loadWindowSeconds` is 0, the least is 1"));
        check(|p| p.merge.0[3] = 0, Some("`merge.bytesOutPerSecond` is 0, the least is 1"));
        check(|p| p.split.0[0] = 0, Some("`split.messagesInPerSecond` is 0, the least is 1"));
        check(
            |p| p.split.0[0] = 1_000,
            Some("`split.messagesInPerSecond` 1000 is not above `merge.messagesInPerSecond` 1000"),
        );
        check(
            |p| p.merge.0[2] = 60_000,
            Some("`split.messagesOutPerSecond` 50000 is not above `merge.messagesOutPerSecond` 60000"),
        );
        check(|p| p.split.0[1] = 5_000_001, None);
        check(
            |p| {
                p.split_floor = 0;
                p.split_cooldown_seconds = 0;
                p.rebucket_cooldown_seconds = 0;
                p.merge_cooldown_seconds = 0;
                p.merge_window_seconds = 0;
                p.max_merge_depth = 0;
                p.max_undrained_generations = 0;
            },
            None,
        );
    }
}
