//! The evaluator's answer.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::reason::{Hold, Reason};
use crate::{Buckets, SegmentId};

/// At most one change, and why the lanes that held did so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What to do now.
    pub change: Option<Change>,
    /// In the order of the lanes, at most one per lane; [`Lane::All`] stands alone.
    pub holds: Vec<(Lane, Hold)>,
}

/// A change of a topic's shape. Its preconditions hold on the layout it was decided for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Replace a segment by `into` narrower ones.
    Split {
        /// Which one; its range has at least `into` hashes.
        segment: SegmentId,
        /// How many; a power of two, at least 2.
        into: u32,
        /// Why.
        reason: Reason,
    },
    /// Give segments more buckets.
    Rebucket {
        /// Which ones, ids ascending; each has fewer than `buckets`.
        segments: Vec<SegmentId>,
        /// How many each has afterwards.
        buckets: Buckets,
        /// Why.
        reason: Reason,
    },
    /// Replace two neighbours by one.
    Merge {
        /// The one with the lower range.
        a: SegmentId,
        /// The one with the upper range.
        b: SegmentId,
        /// Why.
        reason: Reason,
    },
}

impl Change {
    /// `Split`, `Rebucket` or `Merge`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Split { .. } => "Split",
            Self::Rebucket { .. } => "Rebucket",
            Self::Merge { .. } => "Merge",
        }
    }

    /// Why.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Split { reason, .. } | Self::Rebucket { reason, .. } | Self::Merge { reason, .. } => *reason,
        }
    }
}

/// A part of the evaluator that may propose or hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Every lane at once.
    All,
    /// More sessions than segments.
    Consumers,
    /// A segment over a split threshold.
    Load,
    /// Two cold neighbours.
    Merge,
}

impl Lane {
    /// Its key among the holds of status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Consumers => "consumers",
            Self::Load => "load",
            Self::Merge => "merge",
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Verdict {
    pub(super) fn hold_all(hold: Hold) -> Self {
        Self { change: None, holds: vec![(Lane::All, hold)] }
    }

    pub(super) fn with(self, change: Change) -> Self {
        Self { change: Some(change), ..self }
    }

    /// Whether a lane would grow the topic as soon as it may.
    pub(super) fn is_growing(&self) -> bool {
        self.holds.iter().any(|(lane, hold)| *lane != Lane::Merge && hold.is_growing())
    }
}

/// What one lane says.
pub(super) enum Proposal {
    Change(Change),
    Hold(Hold),
    Nothing,
}
