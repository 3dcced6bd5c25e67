//! The layout of a topic: the DAG of its segments at one epoch, as an immutable snapshot.
//!
//! It knows which segment a hash belongs to and where every segment comes from. It never knows loads, consumers, nodes or
//! cursors, and nothing can hold a `Layout` that breaks a rule of [`rules`].

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::{Buckets, Epoch, HashRange, KeyHash, Micros, SegmentId, StoreName};

mod change;
mod lineage;
mod rebuild;
pub mod rules;

pub use change::{Child, INITIAL_SEGMENTS_MAX, INTO_MAX, INTO_MIN, Unfit, create};
pub use rebuild::{Found, Rebuilt, rebuild};
pub use rules::{SEGMENTS_MAX, Violation};

/// Whether a segment takes appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Takes appends.
    Active,
    /// Takes none any more, for ever.
    Sealed {
        /// The epoch of the layout that replaced it.
        epoch: Epoch,
        /// When that layout was committed.
        at: Micros,
    },
}

/// One node of the DAG: a log that owns a range of the routing ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number within the topic incarnation.
    pub id: SegmentId,
    /// The hashes it owns; fixed for life.
    pub range: HashRange,
    /// How many buckets it has; fixed for life.
    pub buckets: Buckets,
    /// Whether it takes appends.
    pub state: State,
    /// The segments it continues, in ring order; those that were pruned are gone from the list.
    pub parents: Vec<SegmentId>,
    /// The segments that continue it, in ring order; none while it is active.
    pub children: Vec<SegmentId>,
    /// The epoch of the first layout that holds it.
    pub created_epoch: Epoch,
    /// When the operation that made it was planned.
    pub created_at: Micros,
    /// A root has 0, the child of a merge one more than the deepest parent; split and rebucket inherit. Stored, so that
    /// pruning a parent does not change it (T45).
    pub merge_depth: u32,
    /// Where its data lies.
    pub store: StoreName,
}

impl Segment {
    /// Whether it takes appends.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        matches!(self.state, State::Active)
    }

    /// The epoch that replaced it; `None` while active.
    #[must_use]
    pub const fn sealed_epoch(&self) -> Option<Epoch> {
        match self.state {
            State::Active => None,
            State::Sealed { epoch, .. } => Some(epoch),
        }
    }

    /// When it was replaced; `None` while active.
    #[must_use]
    pub const fn sealed_at(&self) -> Option<Micros> {
        match self.state {
            State::Active => None,
            State::Sealed { at, .. } => Some(at),
        }
    }
}

/// What a layout is made of, unchecked: as it was read from a status, a wire or a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The version, from 1.
    pub epoch: Epoch,
    /// The id of the next segment to be made.
    pub next_segment_id: SegmentId,
    /// All segments, ascending by id.
    pub segments: Vec<Segment>,
}

/// The segments of a topic at one epoch; every rule of [`rules`] holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    parts: Parts,
    /// Indexes of the active segments, in ring order.
    ring: Vec<usize>,
}

impl Layout {
    /// The layout of `parts`, or the first rule that they break.
    pub fn new(parts: Parts) -> Result<Self, Violation> {
        rules::check(&parts)?;
        Ok(Self { ring: ring(&parts.segments), parts })
    }

    /// The version, from 1.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.parts.epoch
    }

    /// The id of the next segment to be made; above every id ever used.
    #[must_use]
    pub const fn next_segment_id(&self) -> SegmentId {
        self.parts.next_segment_id
    }

    /// All segments, ascending by id.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.parts.segments
    }

    /// What the layout is made of.
    #[must_use]
    pub const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// What the layout is made of, to be changed and checked again.
    #[must_use]
    pub fn into_parts(self) -> Parts {
        self.parts
    }

    /// The active segments in ring order; their ranges tile the ring.
    pub fn active(&self) -> impl ExactSizeIterator<Item = &Segment> + DoubleEndedIterator {
        self.ring.iter().map(|i| &self.parts.segments[*i])
    }

    /// The active segment that owns a key.
    #[must_use]
    pub fn segment_for(&self, key: KeyHash) -> &Segment {
        let after = self.ring.partition_point(|i| self.parts.segments[*i].range.start() <= key.route());
        // The first active range starts at 0, so at least one starts at or below any hash.
        &self.parts.segments[self.ring[after - 1]]
    }

    /// The segment of that id, or `None` if the layout does not list it.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Option<&Segment> {
        find(&self.parts.segments, id)
    }

    /// The segments without parents, ascending by id: those of the first epoch and those whose parents were all pruned.
    pub fn roots(&self) -> impl Iterator<Item = &Segment> {
        self.parts.segments.iter().filter(|segment| segment.parents.is_empty())
    }

    /// Every segment from which `id` descends, itself excluded; empty if the layout does not list it.
    #[must_use]
    pub fn ancestors(&self, id: SegmentId) -> BTreeSet<SegmentId> {
        let mut found = BTreeSet::new();
        let mut open: Vec<SegmentId> = self.segment(id).map(|segment| segment.parents.clone()).unwrap_or_default();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(self.segment(next).iter().flat_map(|segment| segment.parents.iter().copied()));
            }
        }
        found
    }

    /// The buckets of all active segments together: how many ordered consumers can be busy.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.active().map(|segment| u64::from(segment.buckets.count())).sum()
    }
}

/// The segment of that id in a list ascending by id.
fn find(segments: &[Segment], id: SegmentId) -> Option<&Segment> {
    segments.binary_search_by_key(&id, |segment| segment.id).ok().map(|i| &segments[i])
}

/// Indexes of the active segments by the start of their range.
fn ring(segments: &[Segment]) -> Vec<usize> {
    let mut ring: Vec<usize> = (0..segments.len()).filter(|i| segments[*i].is_active()).collect();
    ring.sort_by_key(|i| segments[*i].range);
    ring
}
