//! How much undrained past lies above each active segment.

use alloc::collections::BTreeMap;

use super::Layout;
use crate::SegmentId;

impl Layout {
    /// For each active segment, its undrained sealed generations: the most undrained sealed segments on any one path up its
    /// lineage. `drained` says whether every ordered subscription has drained a sealed segment.
    ///
    /// A path is a chain child -> parent -> grandparent ...; the two parents of a merger lie on different paths, so a merge
    /// adds one generation, not two. 0 means that consumers may read the segment at once.
    #[must_use]
    pub fn undrained_generations(&self, drained: impl Fn(SegmentId) -> bool) -> BTreeMap<SegmentId, u32> {
        // Parents have lower ids, so one pass in id order sees every parent before its children.
        let mut above: BTreeMap<SegmentId, u32> = BTreeMap::new();
        for segment in self.segments() {
            let longest =
                segment.parents.iter().map(|parent| above.get(parent).copied().unwrap_or(0)).max().unwrap_or(0);
            // What a child inherits: the chain above this segment, and itself if it is one that consumers still read.
            let own = u32::from(!segment.is_active() && !drained(segment.id));
            above.insert(segment.id, longest + own);
        }
        self.active().map(|segment| (segment.id, above.get(&segment.id).copied().unwrap_or(0))).collect()
    }
}
