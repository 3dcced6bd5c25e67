//! How a policy is put together: operator defaults, then the namespace, then the topic.

use super::metric::Rates;
use super::policy::{Mode, Policy};

/// What one layer says; what it leaves out, the layer below decides. It has no ceiling: that is the operator's alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyLayer {
    /// See [`Policy::mode`].
    pub mode: Option<Mode>,
    /// See [`Policy::min_segments`].
    pub min_segments: Option<u32>,
    /// See [`Policy::max_segments`].
    pub max_segments: Option<u32>,
    /// See [`Policy::split_floor`].
    pub split_floor: Option<u64>,
    /// See [`Policy::max_merge_depth`].
    pub max_merge_depth: Option<u32>,
    /// See [`Policy::max_split_factor`].
    pub max_split_factor: Option<u32>,
    /// See [`Policy::max_undrained_generations`].
    pub max_undrained_generations: Option<u32>,
    /// See [`Policy::sample_stale_seconds`].
    pub sample_stale_seconds: Option<u64>,
    /// See [`Policy::load_window_seconds`].
    pub load_window_seconds: Option<u64>,
    /// See [`Policy::split_cooldown_seconds`].
    pub split_cooldown_seconds: Option<u64>,
    /// See [`Policy::rebucket_cooldown_seconds`].
    pub rebucket_cooldown_seconds: Option<u64>,
    /// See [`Policy::merge_cooldown_seconds`].
    pub merge_cooldown_seconds: Option<u64>,
    /// See [`Policy::merge_window_seconds`].
    pub merge_window_seconds: Option<u64>,
    /// Split thresholds, each on its own, in the order of [`super::Metric::ALL`].
    pub split: [Option<u64>; 4],
    /// Merge thresholds, each on its own, in the order of [`super::Metric::ALL`].
    pub merge: [Option<u64>; 4],
}

impl PolicyLayer {
    /// `below`, with every field that this layer sets put over it.
    #[must_use]
    pub fn over(&self, below: &Policy) -> Policy {
        let thresholds = |set: [Option<u64>; 4], below: Rates| {
            Rates(core::array::from_fn(|metric| set[metric].unwrap_or(below.0[metric])))
        };
        Policy {
            mode: self.mode.unwrap_or(below.mode),
            min_segments: self.min_segments.unwrap_or(below.min_segments),
            max_segments: self.max_segments.unwrap_or(below.max_segments),
            ceiling: below.ceiling,
            split_floor: self.split_floor.unwrap_or(below.split_floor),
            max_merge_depth: self.max_merge_depth.unwrap_or(below.max_merge_depth),
            max_split_factor: self.max_split_factor.unwrap_or(below.max_split_factor),
            max_undrained_generations: self.max_undrained_generations.unwrap_or(below.max_undrained_generations),
            sample_stale_seconds: self.sample_stale_seconds.unwrap_or(below.sample_stale_seconds),
            load_window_seconds: self.load_window_seconds.unwrap_or(below.load_window_seconds),
            split_cooldown_seconds: self.split_cooldown_seconds.unwrap_or(below.split_cooldown_seconds),
            rebucket_cooldown_seconds: self.rebucket_cooldown_seconds.unwrap_or(below.rebucket_cooldown_seconds),
            merge_cooldown_seconds: self.merge_cooldown_seconds.unwrap_or(below.merge_cooldown_seconds),
            merge_window_seconds: self.merge_window_seconds.unwrap_or(below.merge_window_seconds),
            split: thresholds(self.split, below.split),
            merge: thresholds(self.merge, below.merge),
        }
    }
}

impl Policy {
    /// The effective policy: `self` are the operator's defaults; per field, the last layer that sets it wins.
    ///
    /// The result may be invalid though each layer is valid on its own: [`Policy::validate`] says.
    #[must_use]
    pub fn resolve<'a>(&self, layers: impl IntoIterator<Item = &'a PolicyLayer>) -> Self {
        layers.into_iter().fold(self.clone(), |below, layer| layer.over(&below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::{InvalidPolicy, Metric};

    #[test]
    fn the_most_specific_layer_that_sets_a_field_decides_it() {
        let operator = Policy { ceiling: 16, ..Policy::default() };
        let namespace = PolicyLayer {
            mode: Some(Mode::Off),
            max_segments: Some(8),
            merge: [Some(5_000), None, None, None],
            ..PolicyLayer::default()
        };
        let topic = PolicyLayer {
            mode: Some(Mode::Auto),
            min_segments: Some(2),
            split: [Some(2_000), None, None, Some(300_000_000)],
            ..PolicyLayer::default()
        };
        let found = operator.resolve([&namespace, &topic]);
        let expected = Policy {
            mode: Mode::Auto,
            min_segments: 2,
            max_segments: 8,
            ceiling: 16,
            split: Rates([2_000, 50_000_000, 50_000, 300_000_000]),
            merge: Rates([5_000, 5_000_000, 5_000, 25_000_000]),
            ..Policy::default()
        };
        assert_eq!(found, expected);
        // Each layer is valid alone; together they drifted apart.
        let refused = InvalidPolicy::NoDeadBand { metric: Metric::MessagesIn, split: 2_000, merge: 5_000 };
        assert_eq!(found.validate(), Err(refused));
    }

    #[test]
    fn every_field_of_a_layer_reaches_the_policy() {
        let layer = PolicyLayer {
            mode: Some(Mode::Recommend),
            min_segments: Some(101),
            max_segments: Some(102),
            split_floor: Some(103),
            max_merge_depth: Some(104),
            max_split_factor: Some(105),
            max_undrained_generations: Some(106),
            sample_stale_seconds: Some(107),
            load_window_seconds: Some(108),
            split_cooldown_seconds: Some(109),
            rebucket_cooldown_seconds: Some(110),
            merge_cooldown_seconds: Some(111),
            merge_window_seconds: Some(112),
            split: [Some(113), Some(114), Some(115), Some(116)],
            merge: [Some(117), Some(118), Some(119), Some(120)],
        };
        let expected = Policy {
            mode: Mode::Recommend,
            min_segments: 101,
            max_segments: 102,
            ceiling: 1024,
            split_floor: 103,
            max_merge_depth: 104,
            max_split_factor: 105,
            max_undrained_generations: 106,
            sample_stale_seconds: 107,
            load_window_seconds: 108,
            split_cooldown_seconds: 109,
            rebucket_cooldown_seconds: 110,
            merge_cooldown_seconds: 111,
            merge_window_seconds: 112,
            split: Rates([113, 114, 115, 116]),
            merge: Rates([117, 118, 119, 120]),
        };
        assert_eq!(Policy::default().resolve([&layer]), expected);
        assert_eq!(Policy::default().resolve([&PolicyLayer::default()]), Policy::default());
    }
}
