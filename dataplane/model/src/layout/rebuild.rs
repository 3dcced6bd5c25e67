//! The layout from what stores hold, when the status is lost: each segment's header is its own DAG node.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Layout, Parts, Segment, State, Violation};
use crate::{Epoch, Micros, SegmentId};

/// A segment as its store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its header; state and children as its seal recorded them.
    pub segment: Segment,
    /// Whether its store was told a layout that lists it.
    pub committed: bool,
}

/// A layout put together from stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The segments that count.
    pub layout: Layout,
    /// Segments that no commit and no seal vouch for: made for an operation that never sealed a parent. To be reported,
    /// never served; their ids are not used again.
    pub orphans: Vec<SegmentId>,
    /// Segments that the layout lists as sealed, though their stores still hold them open: the operation was cut off between
    /// the seals of its parents. They must be sealed, with their children as successors, before anything is served.
    pub unsealed: Vec<SegmentId>,
}

/// The layout that the stores of one topic incarnation hold together.
///
/// A segment counts if it is a root, if a parent's seal names it, or if its commit was told to it. Edges to segments that
/// nobody holds are dropped, as after a prune; if such a segment was active, the gap in the ring is the error.
pub fn rebuild(found: impl IntoIterator<Item = Found>) -> Result<Rebuilt, Violation> {
    let mut found: Vec<Found> = found.into_iter().collect();
    found.sort_by_key(|found| found.segment.id);
    let named: BTreeSet<SegmentId> = found.iter().flat_map(|found| found.segment.children.iter().copied()).collect();
    let next_segment_id = found.last().map_or(SegmentId(0), |last| SegmentId(last.segment.id.0.saturating_add(1)));
    let (counted, orphans): (Vec<Found>, Vec<Found>) = found
        .into_iter()
        .partition(|found| found.committed || found.segment.parents.is_empty() || named.contains(&found.segment.id));
    let mut segments: Vec<Segment> = counted.into_iter().map(|found| found.segment).collect();

    let ids: BTreeSet<SegmentId> = segments.iter().map(|segment| segment.id).collect();
    let mut continued: BTreeMap<SegmentId, (Epoch, Micros, Vec<SegmentId>)> = BTreeMap::new();
    for segment in &segments {
        for parent in &segment.parents {
            let end = (segment.created_epoch, segment.created_at, Vec::new());
            continued.entry(*parent).or_insert(end).2.push(segment.id);
        }
    }
    let mut unsealed = Vec::new();
    for segment in &mut segments {
        segment.parents.retain(|id| ids.contains(id));
        segment.children.retain(|id| ids.contains(id));
        if segment.is_active()
            && let Some((epoch, at, children)) = continued.remove(&segment.id)
        {
            segment.state = State::Sealed { epoch, at };
            segment.children = children;
            unsealed.push(segment.id);
        }
    }
    let epoch = segments.iter().map(|segment| segment.sealed_epoch().unwrap_or(segment.created_epoch)).max();
    let parts = Parts { epoch: epoch.unwrap_or(Epoch(1)), next_segment_id, segments };
    let orphans = orphans.into_iter().map(|found| found.segment.id).collect();
    Ok(Rebuilt { layout: Layout::new(parts)?, orphans, unsealed })
}
