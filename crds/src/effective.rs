//! The policy that is in force for a topic, as its status shows it.

use braid_model::scale::Policy;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{AutoscaleMode, RateValues};

/// All layers put together. It may contradict itself, though each layer is valid: a condition says so. Numbers are shown
/// up to 2^53 - 1.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EffectivePolicy {
    /// What happens to a verdict.
    pub mode: AutoscaleMode,
    /// The most buckets of a segment; the operator's alone.
    #[schemars(range(min = 0, max = 2147483647))]
    pub bucket_ceiling: i32,
    /// A merge never goes below this many active segments.
    #[schemars(range(min = 0, max = 2147483647))]
    pub min_segments: i32,
    /// A split never goes above this many active segments.
    #[schemars(range(min = 0, max = 2147483647))]
    pub max_segments: i32,
    /// Messages in per second of the busiest segment from which more consumers than segments bring a split; below it
    /// they bring more buckets.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub split_floor: i64,
    /// A segment with this many merges above it merges no more.
    #[schemars(range(min = 0, max = 2147483647))]
    pub max_merge_depth: i32,
    /// The most children of one split; a power of two.
    #[schemars(range(min = 0, max = 2147483647))]
    pub max_split_factor: i32,
    /// A segment with more generations above it that consumers still have to read takes no change.
    #[schemars(range(min = 0, max = 2147483647))]
    pub max_undrained_generations: i32,
    /// A load sample, or the home's word on sessions, that is older counts as unknown.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub sample_stale_seconds: i64,
    /// A sample is the least of so many one-second rates: growth needs a load that lasts.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub load_window_seconds: i64,
    /// No split sooner after the last one.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub split_cooldown_seconds: i64,
    /// No rebucket sooner after the last one.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub rebucket_cooldown_seconds: i64,
    /// No merge sooner after the last one.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub merge_cooldown_seconds: i64,
    /// How long both segments of a merge must have been cold.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub merge_window_seconds: i64,
    /// A segment with some rate over these splits.
    pub split: RateValues,
    /// A segment with all rates under these is cold.
    pub merge: RateValues,
}

impl From<&Policy> for EffectivePolicy {
    fn from(policy: &Policy) -> Self {
        Self {
            mode: policy.mode.into(),
            bucket_ceiling: small(policy.ceiling),
            min_segments: small(policy.min_segments),
            max_segments: small(policy.max_segments),
            split_floor: crate::scaling::shown(policy.split_floor),
            max_merge_depth: small(policy.max_merge_depth),
            max_split_factor: small(policy.max_split_factor),
            max_undrained_generations: small(policy.max_undrained_generations),
            sample_stale_seconds: crate::scaling::shown(policy.sample_stale_seconds),
            load_window_seconds: crate::scaling::shown(policy.load_window_seconds),
            split_cooldown_seconds: crate::scaling::shown(policy.split_cooldown_seconds),
            rebucket_cooldown_seconds: crate::scaling::shown(policy.rebucket_cooldown_seconds),
            merge_cooldown_seconds: crate::scaling::shown(policy.merge_cooldown_seconds),
            merge_window_seconds: crate::scaling::shown(policy.merge_window_seconds),
            split: (&policy.split).into(),
            merge: (&policy.merge).into(),
        }
    }
}

fn small(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
