//! All that the evaluator sees of a topic.

use alloc::vec::Vec;

use super::metric::Rates;
use crate::{Buckets, HashRange, Micros, SegmentId};

/// One topic at one moment, as far as it matters for its shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The active segments, in any order.
    pub segments: Vec<Segment>,
    /// How many sessions each *ordered* subscription has, idle ones included, in any order; only the most counts. Members
    /// of a queue and readers are none.
    pub sessions: Vec<u64>,
    /// An operation is planned or under way.
    pub busy: bool,
    /// Microseconds since the topic's home last reported its sessions; `None` if none ever did, which is unknown too.
    pub home_silent_us: Option<u64>,
    /// When the shape last changed.
    pub last: LastChanges,
}

/// An active segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its id, unique in the snapshot.
    pub id: SegmentId,
    /// What it owns of the routing ring.
    pub range: HashRange,
    /// Its N.
    pub buckets: Buckets,
    /// How many merges lie above it.
    pub merge_depth: u32,
    /// How many undrained sealed generations lie above it.
    pub undrained_generations: u32,
    /// Its last known load; `None` if it never had one, which is not the same as no load.
    pub sample: Option<Sample>,
}

/// What a node measured of a segment, or what we expect of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Each the least of the last seconds.
    pub rates: Rates,
    /// When it was measured, or, if estimated, when the segment's layout was committed.
    pub sampled_at: Micros,
    /// Since when all rates have been under their merge thresholds; `None` if some rate is not.
    pub cold_since: Option<Micros>,
    /// Derived from the parents, not measured: it counts for growing, never for merging.
    pub estimated: bool,
}

/// When each class of change was last committed, manual ones included; `None` if never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastChanges {
    /// The last split.
    pub split: Option<Micros>,
    /// The last merge.
    pub merge: Option<Micros>,
    /// The last rebucket.
    pub rebucket: Option<Micros>,
}
