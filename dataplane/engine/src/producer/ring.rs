//! Which segment takes the messages of which hashes now.
//!
//! The ring is the producer's own: a sealed segment keeps its hashes here until everything sent to it is settled, whatever the
//! layout says, so that no message overtakes another one.

use std::collections::BTreeMap;

use braid_model::{HashRange, SegmentId};

use crate::view::Segment;

/// Pieces of the ring in order, without holes once it was set.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pieces: Vec<(HashRange, SegmentId)>,
}

impl Ring {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Each of `segments` over its own range; together they tile the ring.
    pub(super) fn set<'a>(&mut self, segments: impl Iterator<Item = &'a Segment>) {
        self.pieces = segments.map(|segment| (segment.range, segment.id)).collect();
        self.pieces.sort();
    }

    /// The segment that owns a routing hash. The ring must not be empty.
    pub(super) fn owner(&self, hash: u16) -> SegmentId {
        let after = self.pieces.partition_point(|(range, _)| range.start() <= hash);
        self.pieces[after.saturating_sub(1)].1
    }

    /// One of the pieces' segments, by turn.
    pub(super) fn turn(&self, n: u64) -> SegmentId {
        self.pieces[(n % self.pieces.len() as u64) as usize].1
    }

    /// Hands each piece of `segment` to those of `successors` that cover it.
    pub(super) fn replace(&mut self, segment: SegmentId, successors: &[Segment]) {
        let mut pieces = Vec::with_capacity(self.pieces.len() + successors.len());
        for (range, owner) in std::mem::take(&mut self.pieces) {
            if owner != segment {
                pieces.push((range, owner));
                continue;
            }
            for successor in successors {
                let start = range.start().max(successor.range.start());
                let end = range.end().min(successor.range.end());
                pieces.extend(HashRange::new(start, end).map(|part| (part, successor.id)));
            }
        }
        pieces.sort();
        self.pieces = joined(pieces);
    }
}

/// Neighbours of one segment become one piece, so that a merge does not count twice in the round robin.
fn joined(pieces: Vec<(HashRange, SegmentId)>) -> Vec<(HashRange, SegmentId)> {
    let mut joined: Vec<(HashRange, SegmentId)> = Vec::with_capacity(pieces.len());
    for (range, owner) in pieces {
        match joined.last_mut() {
            Some((last, same)) if *same == owner && last.union(range).is_some() => {
                *last = last.union(range).expect("it was adjacent");
            }
            _ => joined.push((range, owner)),
        }
    }
    joined
}

/// What is known of every segment: from layouts and from seal answers, whichever came first.
#[derive(Debug, Default)]
pub(super) struct Known {
    segments: BTreeMap<SegmentId, Segment>,
    nodes: BTreeMap<String, Vec<String>>,
}

impl Known {
    pub(super) fn segment(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(&id)
    }

    pub(super) fn addresses(&self, store: &str) -> Vec<String> {
        self.nodes.get(store).cloned().unwrap_or_default()
    }

    /// A segment that was sealed stays so: an older layout does not reopen it.
    pub(super) fn learn(&mut self, segment: Segment) {
        let held = self.segments.entry(segment.id).or_insert_with(|| segment.clone());
        held.sealed |= segment.sealed;
        if held.children.is_empty() {
            held.children = segment.children;
        }
    }

    pub(super) fn learn_nodes(&mut self, nodes: impl IntoIterator<Item = (String, Vec<String>)>) {
        self.nodes.extend(nodes);
    }

    /// Segments that are in no layout any more and that nothing was sent to.
    pub(super) fn forget(&mut self, keep: impl Fn(SegmentId) -> bool) {
        self.segments.retain(|id, _| keep(*id));
    }

    pub(super) fn seal(&mut self, id: SegmentId, successors: Vec<Segment>) {
        if let Some(segment) = self.segments.get_mut(&id) {
            segment.sealed = true;
            segment.children = successors.iter().map(|successor| successor.id).collect();
        }
        for successor in successors {
            self.learn(successor);
        }
    }

    /// The segments that continue `id`; those that are not known are left out.
    pub(super) fn children(&self, id: SegmentId) -> Vec<Segment> {
        let children = self.segments.get(&id).map(|segment| segment.children.as_slice()).unwrap_or_default();
        children.iter().filter_map(|child| self.segments.get(child)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use braid_model::Buckets;

    use super::*;

    fn segment(id: u64, start: u16, end: u16) -> Segment {
        Segment {
            id: SegmentId(id),
            range: HashRange::new(start, end).unwrap(),
            buckets: Buckets::ONE,
            sealed: false,
            parents: Vec::new(),
            children: Vec::new(),
            store: String::new(),
        }
    }

    #[test]
    fn a_merge_takes_over_one_parent_at_a_time() {
        let mut ring = Ring::default();
        ring.set([segment(1, 0, 99), segment(2, 100, u16::MAX)].iter());
        let merged = [segment(3, 0, u16::MAX)];
        ring.replace(SegmentId(2), &merged);
        assert_eq!([0, 99, 100, u16::MAX].map(|hash| ring.owner(hash).0), [1, 1, 3, 3]);
        ring.replace(SegmentId(1), &merged);
        assert_eq!(ring.pieces, [(HashRange::FULL, SegmentId(3))]);
    }

    #[test]
    fn a_split_hands_each_hash_to_the_child_that_holds_it() {
        let mut ring = Ring::default();
        ring.set([segment(1, 0, u16::MAX)].iter());
        ring.replace(SegmentId(1), &[segment(3, 50, u16::MAX), segment(2, 0, 49)]);
        assert_eq!([0, 49, 50, u16::MAX].map(|hash| ring.owner(hash).0), [2, 2, 3, 3]);
        assert_eq!([0, 1, 2].map(|n| ring.turn(n).0), [2, 3, 2]);
    }
}
