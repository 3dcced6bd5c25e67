//! Every reason to change a topic's shape, and every reason not to. The names are those of status and conditions.

use core::fmt;

use super::metric::Metric;

/// Why a change is proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Split: more sessions than segments, and the busiest segment is over the split floor.
    ConsumerSurplus,
    /// Rebucket: more sessions than buckets, and no segment is busy enough to split.
    BelowSplitFloor,
    /// Rebucket: more sessions than buckets, and no further segment is allowed.
    AtMaxSegments,
    /// Split: this rate is furthest over its threshold.
    MessagesIn,
    /// Split: this rate is furthest over its threshold.
    BytesIn,
    /// Split: this rate is furthest over its threshold.
    MessagesOut,
    /// Split: this rate is furthest over its threshold.
    BytesOut,
    /// Merge: both have been cold for the merge window.
    Cold,
}

impl Reason {
    /// Its name, as status shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConsumerSurplus => "ConsumerSurplus",
            Self::BelowSplitFloor => "BelowSplitFloor",
            Self::AtMaxSegments => "AtMaxSegments",
            Self::MessagesIn => "MessagesIn",
            Self::BytesIn => "BytesIn",
            Self::MessagesOut => "MessagesOut",
            Self::BytesOut => "BytesOut",
            Self::Cold => "Cold",
        }
    }
}

impl From<Metric> for Reason {
    fn from(metric: Metric) -> Self {
        match metric {
            Metric::MessagesIn => Self::MessagesIn,
            Metric::BytesIn => Self::BytesIn,
            Metric::MessagesOut => Self::MessagesOut,
            Metric::BytesOut => Self::BytesOut,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a lane holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// All: the policy's mode.
    Off,
    /// All: an operation is under way.
    Busy,
    /// All: the home is silent, so nobody knows how many sessions there are.
    SessionsUnknown,
    /// Consumers: no known segment is busy enough to split, but one that is not known may be.
    LoadUnknown,
    /// Consumers, load: a split was not long ago.
    SplitCooldown,
    /// Consumers: a rebucket was not long ago.
    RebucketCooldown,
    /// Merge: a merge was not long ago.
    MergeCooldown,
    /// Consumers, load: one hash cannot be split.
    TooNarrow,
    /// Any: too many undrained sealed generations above the segment.
    UndrainedGenerations,
    /// Consumers: the buckets there are suffice.
    AbsorbedByBuckets,
    /// Consumers: every segment has as many buckets as it may.
    AtBucketCeiling,
    /// Load: a segment is too hot, and no further one is allowed.
    AtMaxSegments,
    /// Merge: a lane before would grow, and waits.
    ScaleUpPending,
    /// Merge: no fewer segments are allowed.
    AtMinSegments,
    /// Merge: no two neighbours have been cold for the merge window.
    NotCold,
    /// Merge: too many merges above.
    MergeDepthReached,
    /// Merge: it would take buckets that sessions use.
    CapacityInUse,
    /// Merge: the merger would make this topic grow again.
    WouldSplitAgain,
}

impl Hold {
    /// Its name, as status shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "Off",
            Self::Busy => "Busy",
            Self::SessionsUnknown => "SessionsUnknown",
            Self::LoadUnknown => "LoadUnknown",
            Self::SplitCooldown => "SplitCooldown",
            Self::RebucketCooldown => "RebucketCooldown",
            Self::MergeCooldown => "MergeCooldown",
            Self::TooNarrow => "TooNarrow",
            Self::UndrainedGenerations => "UndrainedGenerations",
            Self::AbsorbedByBuckets => "AbsorbedByBuckets",
            Self::AtBucketCeiling => "AtBucketCeiling",
            Self::AtMaxSegments => "AtMaxSegments",
            Self::ScaleUpPending => "ScaleUpPending",
            Self::AtMinSegments => "AtMinSegments",
            Self::NotCold => "NotCold",
            Self::MergeDepthReached => "MergeDepthReached",
            Self::CapacityInUse => "CapacityInUse",
            Self::WouldSplitAgain => "WouldSplitAgain",
        }
    }

    /// Whether a growing lane that holds for this will grow once the obstacle is gone.
    pub(super) const fn is_growing(self) -> bool {
        matches!(self, Self::LoadUnknown | Self::SplitCooldown | Self::RebucketCooldown | Self::UndrainedGenerations)
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
