//! Which segments an ordered subscription may read now.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::{Buckets, HashRange, SegmentId};

/// One segment of a layout, as far as consumers care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id; parents have lower ones.
    pub id: SegmentId,
    /// What it owns of the routing ring.
    pub range: HashRange,
    /// How many can share it.
    pub buckets: Buckets,
    /// Whether it takes no more appends.
    pub sealed: bool,
    /// Its parents in the layout; one that is not in the layout was pruned, so it is drained.
    pub parents: Vec<SegmentId>,
}

/// The positions in `nodes` of the segments that may be read: every ancestor drained, itself not. By (range, id).
///
/// `is_drained` tells whether a segment's own messages are all acked. It is asked of sealed segments only, and alone it is
/// not enough: an empty middle generation has nothing to ack while its parent has, so what counts is drained *and* every
/// parent so too, all the way up.
#[must_use]
pub fn frontier(nodes: &[Node], is_drained: impl Fn(SegmentId) -> bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|&i| nodes[i].id);
    let mut undrained = BTreeSet::new();
    let mut open = Vec::new();
    for i in order {
        let node = &nodes[i];
        let is_open = !node.parents.iter().any(|parent| undrained.contains(parent));
        if is_open && node.sealed && is_drained(node.id) {
            continue;
        }
        undrained.insert(node.id);
        if is_open {
            open.push(i);
        }
    }
    open.sort_by_key(|&i| (nodes[i].range.start(), nodes[i].range.end(), nodes[i].id));
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of (id, parents, sealed); those drained; those that may be read.
    fn check(rows: &[(u64, &[u64], bool)], drained: &[u64], expected: &[u64]) {
        let nodes: Vec<Node> = rows
            .iter()
            .map(|&(id, parents, sealed)| Node {
                id: SegmentId(id),
                range: HashRange::FULL,
                buckets: Buckets::ONE,
                sealed,
                parents: parents.iter().map(|&id| SegmentId(id)).collect(),
            })
            .collect();
        let read = frontier(&nodes, |id| drained.contains(&id.0));
        let read: Vec<u64> = read.into_iter().map(|i| nodes[i].id.0).collect();
        assert_eq!(read, expected, "{rows:?} drained {drained:?}");
    }

    #[test]
    fn a_segment_is_read_once_every_ancestor_is_drained_and_until_it_is() {
        let chain: &[(u64, &[u64], bool)] = &[(0, &[], true), (1, &[0], true), (3, &[1], false)];
        check(chain, &[], &[0]);
        check(chain, &[0], &[1]);
        check(chain, &[0, 1], &[3]);
        check(chain, &[0, 1, 3], &[3]); // an active segment is never drained
        check(&[(0, &[], false)], &[0], &[0]);
    }

    #[test]
    fn an_empty_middle_generation_lets_nobody_past_its_parent() {
        let chain: &[(u64, &[u64], bool)] = &[(0, &[], true), (1, &[0], true), (2, &[1], true), (3, &[2], false)];
        check(chain, &[1], &[0]);
        check(chain, &[1, 2], &[0]);
        check(chain, &[0, 1, 2], &[3]);
    }

    #[test]
    fn a_merge_child_waits_for_every_parent() {
        let merge: &[(u64, &[u64], bool)] = &[(1, &[], true), (2, &[], true), (3, &[1, 2], false)];
        check(merge, &[], &[1, 2]);
        check(merge, &[1], &[2]);
        check(merge, &[2], &[1]);
        check(merge, &[1, 2], &[3]);
    }

    #[test]
    fn a_pruned_parent_counts_as_drained() {
        check(&[(5, &[2], true), (6, &[5], false)], &[], &[5]);
    }
}
