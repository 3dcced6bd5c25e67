//! What each structural change makes of a layout: the children with their ranges, buckets and depth. Pure arithmetic; it
//! knows no stores and no times.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::{Layout, Segment};
use crate::{Buckets, HashRange, SegmentId};

/// The least children of a split.
pub const INTO_MIN: u32 = 2;
/// The most children of a split.
pub const INTO_MAX: u32 = 64;
/// The most segments that a topic can start with.
pub const INITIAL_SEGMENTS_MAX: u32 = 1_024;

/// A segment to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its id; the ids of one change follow each other.
    pub id: SegmentId,
    /// The hashes it will own.
    pub range: HashRange,
    /// How many buckets it will have.
    pub buckets: Buckets,
    /// The segments it continues, in ring order.
    pub parents: Vec<SegmentId>,
    /// Merges in its lineage.
    pub merge_depth: u32,
}

/// Why a layout cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name every field")]
pub enum Unfit {
    #[error("segment `{id}` is not in the layout")]
    SegmentUnknown { id: SegmentId },
    #[error("segment `{id}` is sealed")]
    SegmentSealed { id: SegmentId },
    #[error("segment `{id}` already has `{buckets}` buckets")]
    BucketsUnchanged { id: SegmentId, buckets: Buckets },
    #[error("`{buckets}` buckets are above the ceiling of `{ceiling}`")]
    AboveCeiling { buckets: Buckets, ceiling: Buckets },
    #[error("segments `{a}` ({a_range}) and `{b}` ({b_range}) are not adjacent")]
    NotAdjacent { a: SegmentId, a_range: HashRange, b: SegmentId, b_range: HashRange },
    #[error("segment `{id}` owns `{size}` hashes, too few for `{into}` children")]
    TooNarrow { id: SegmentId, size: u32, into: u32 },
    #[error("a split into `{into}`, it must be {INTO_MIN} to {INTO_MAX}")]
    IntoOutOfBounds { into: u32 },
    #[error("`{segments}` initial segments, there must be 1 to {INITIAL_SEGMENTS_MAX}")]
    InitialOutOfBounds { segments: u32 },
    #[error("the rebucket names no segment")]
    NoSegment,
}

impl Unfit {
    /// The reason as conditions show it.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::SegmentUnknown { .. } => "SegmentUnknown",
            Self::SegmentSealed { .. } => "SegmentSealed",
            Self::BucketsUnchanged { .. } => "BucketsUnchanged",
            Self::AboveCeiling { .. } => "AboveCeiling",
            Self::NotAdjacent { .. } => "NotAdjacent",
            Self::TooNarrow { .. } => "TooNarrow",
            Self::IntoOutOfBounds { .. } => "IntoOutOfBounds",
            Self::InitialOutOfBounds { .. } => "InitialOutOfBounds",
            Self::NoSegment => "NoSegment",
        }
    }
}

/// The segments of a new topic: `n` ranges of `floor(65536 / n)`, the last takes the rest; each has
/// `max(1, floor(budget / n))` buckets, at most `ceiling`.
pub fn create(n: u32, budget: u32, ceiling: Buckets) -> Result<Vec<Child>, Unfit> {
    let out_of_bounds = Unfit::InitialOutOfBounds { segments: n };
    if n > INITIAL_SEGMENTS_MAX {
        return Err(out_of_bounds);
    }
    let ranges = HashRange::initial(n).ok_or(out_of_bounds)?;
    let buckets = clamp(budget / n, ceiling);
    let child = |(i, range)| Child { id: SegmentId(i), range, buckets, parents: Vec::new(), merge_depth: 0 };
    Ok((0..).zip(ranges).map(child).collect())
}

impl Layout {
    /// The `k` children of a split: child `i` starts at `start + ceil(i * size / k)` and has `max(1, floor(N / k))` buckets,
    /// at most `ceiling`.
    pub fn split(&self, id: SegmentId, k: u32, ceiling: Buckets) -> Result<Vec<Child>, Unfit> {
        let parent = self.changeable(id)?;
        if !(INTO_MIN..=INTO_MAX).contains(&k) {
            return Err(Unfit::IntoOutOfBounds { into: k });
        }
        let ranges =
            parent.range.split(k).ok_or_else(|| Unfit::TooNarrow { id, size: parent.range.size(), into: k })?;
        let buckets = clamp(parent.buckets.count() / k, ceiling);
        let merge_depth = parent.merge_depth;
        let child = |(i, range)| Child { id: SegmentId(i), range, buckets, parents: vec![id], merge_depth };
        Ok((self.next_segment_id().0..).zip(ranges).map(child).collect())
    }

    /// The one child of a merge: the union with `min(Na + Nb, ceiling)` buckets, one merge deeper than the deeper parent. The
    /// order of `a` and `b` does not matter.
    ///
    /// The reference counts the distinct merges among all ancestors, so two merged cousins may add more than 1; the stored
    /// figure is the longest chain of merges, which needs no look at ancestors that may have been pruned.
    pub fn merge(&self, a: SegmentId, b: SegmentId, ceiling: Buckets) -> Result<Child, Unfit> {
        let (left, right) = (self.changeable(a)?, self.changeable(b)?);
        let (left, right) = if left.range <= right.range { (left, right) } else { (right, left) };
        let not_adjacent = Unfit::NotAdjacent { a: left.id, a_range: left.range, b: right.id, b_range: right.range };
        let range = left.range.union(right.range).ok_or(not_adjacent)?;
        Ok(Child {
            id: self.next_segment_id(),
            range,
            buckets: clamp(left.buckets.count() + right.buckets.count(), ceiling),
            parents: vec![left.id, right.id],
            merge_depth: left.merge_depth.max(right.merge_depth).saturating_add(1),
        })
    }

    /// A successor with `n` buckets and the same range for each of `ids`, in the order of their ids; one named twice counts
    /// once.
    pub fn rebucket(&self, ids: &[SegmentId], n: Buckets, ceiling: Buckets) -> Result<Vec<Child>, Unfit> {
        if n > ceiling {
            return Err(Unfit::AboveCeiling { buckets: n, ceiling });
        }
        let ids: BTreeSet<SegmentId> = ids.iter().copied().collect();
        if ids.is_empty() {
            return Err(Unfit::NoSegment);
        }
        let successor = |(next, id): (u64, SegmentId)| {
            let parent = self.changeable(id)?;
            if parent.buckets == n {
                return Err(Unfit::BucketsUnchanged { id, buckets: n });
            }
            let merge_depth = parent.merge_depth;
            Ok(Child { id: SegmentId(next), range: parent.range, buckets: n, parents: vec![id], merge_depth })
        };
        (self.next_segment_id().0..).zip(ids).map(successor).collect()
    }

    fn changeable(&self, id: SegmentId) -> Result<&Segment, Unfit> {
        let segment = self.segment(id).ok_or(Unfit::SegmentUnknown { id })?;
        if segment.is_active() { Ok(segment) } else { Err(Unfit::SegmentSealed { id }) }
    }
}

/// `n` buckets, at least 1 and at most `ceiling`.
fn clamp(n: u32, ceiling: Buckets) -> Buckets {
    Buckets::new(n.clamp(1, ceiling.count())).unwrap_or(ceiling)
}
