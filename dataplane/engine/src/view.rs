//! A topic as a client knows it: the segments of the newest layout it was told, and where their nodes are.
//!
//! It knows nothing of channels. What a node or operator says is checked here, once.

use std::collections::BTreeMap;

use braid_model::{BucketIndex, Buckets, HashRange, SegmentId};
use braid_wire::proto;

/// What a client must know of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub id: SegmentId,
    pub range: HashRange,
    pub buckets: Buckets,
    /// Takes no more entries, for ever.
    pub sealed: bool,
    pub parents: Vec<SegmentId>,
    pub children: Vec<SegmentId>,
    /// The store that holds it.
    pub store: String,
}

impl Segment {
    /// A hash pair (routing, bucket) of the segment's own for messages without a key.
    #[must_use]
    pub fn hash_in(&self, bucket: BucketIndex) -> (u16, u16) {
        (self.range.start(), self.buckets.start(bucket) as u16)
    }
}

/// Why a layout or a list of successors is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    #[error("segment `{id}` has the range {start}..={end}, bounds are 0..=65535 and must not be inverted")]
    Range { id: u64, start: u32, end: u32 },
    #[error("segment `{id}` has {buckets} buckets, it must have 1..=65536")]
    Buckets { id: u64, buckets: u32 },
    #[error("hash {hash} belongs to {owners} active segments, it must belong to one")]
    Tiling { hash: u32, owners: usize },
}

impl TryFrom<&proto::Segment> for Segment {
    type Error = ViewError;

    fn try_from(wire: &proto::Segment) -> Result<Self, ViewError> {
        let (id, start, end) = (wire.id, wire.start, wire.end);
        let range = u16::try_from(start)
            .ok()
            .zip(u16::try_from(end).ok())
            .and_then(|(start, end)| HashRange::new(start, end))
            .ok_or(ViewError::Range { id, start, end })?;
        Ok(Self {
            id: SegmentId(id),
            range,
            buckets: Buckets::new(wire.buckets).ok_or(ViewError::Buckets { id, buckets: wire.buckets })?,
            sealed: wire.sealed,
            parents: wire.parents.iter().copied().map(SegmentId).collect(),
            children: wire.children.iter().copied().map(SegmentId).collect(),
            store: wire.store.clone(),
        })
    }
}

/// The newest layout, checked: its active segments tile the ring (unless the topic is being deleted).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub topic: proto::TopicRef,
    /// (term, sequence): the higher one is newer.
    pub version: (u64, u64),
    pub epoch: u64,
    pub segments: BTreeMap<SegmentId, Segment>,
    /// Store name to addresses.
    pub nodes: BTreeMap<String, Vec<String>>,
    /// The store whose node coordinates the topic's groups, and the term of that choice.
    pub home: (String, u64),
    pub deleted: bool,
}

impl TryFrom<&proto::TopicLayout> for View {
    type Error = ViewError;

    fn try_from(wire: &proto::TopicLayout) -> Result<Self, ViewError> {
        let segments = wire.segments.iter().map(|s| Segment::try_from(s).map(|s| (s.id, s)));
        let view = Self {
            topic: wire.topic.clone().unwrap_or_default(),
            version: (wire.term, wire.sequence),
            epoch: wire.epoch,
            segments: segments.collect::<Result<_, _>>()?,
            nodes: wire.nodes.iter().map(|node| (node.store.clone(), node.addresses.clone())).collect(),
            home: (wire.home_store.clone(), wire.home_term),
            deleted: wire.deleted,
        };
        if !view.deleted {
            tiles(HashRange::FULL, view.active())?;
        }
        Ok(view)
    }
}

impl View {
    /// The segments that take entries.
    pub fn active(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values().filter(|segment| !segment.sealed)
    }
}

/// Whether every hash of `range` lies in exactly one of `segments`.
pub fn tiles<'a>(range: HashRange, segments: impl Iterator<Item = &'a Segment>) -> Result<(), ViewError> {
    let mut ranges: Vec<_> = segments.map(|segment| segment.range).collect();
    ranges.sort();
    let mut next = u32::from(range.start());
    for part in ranges {
        let (start, end) = (u32::from(part.start()), u32::from(part.end()));
        if end < u32::from(range.start()) || start > u32::from(range.end()) {
            continue;
        }
        if start > next {
            return Err(ViewError::Tiling { hash: next, owners: 0 });
        }
        if start < next && start.max(u32::from(range.start())) < next {
            return Err(ViewError::Tiling { hash: start.max(u32::from(range.start())), owners: 2 });
        }
        next = end + 1;
    }
    if next <= u32::from(range.end()) { Err(ViewError::Tiling { hash: next, owners: 0 }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(ranges: &[(u32, u32)]) -> proto::TopicLayout {
        let segment = |(id, (start, end)): (usize, &(u32, u32))| proto::Segment {
            id: id as u64,
            start: *start,
            end: *end,
            buckets: 4,
            ..proto::Segment::default()
        };
        proto::TopicLayout {
            segments: ranges.iter().enumerate().map(segment).collect(),
            ..proto::TopicLayout::default()
        }
    }

    #[test]
    fn a_layout_counts_only_if_its_active_segments_tile_the_ring() {
        let hole = |hash| Err(ViewError::Tiling { hash, owners: 0 });
        type Row = (&'static [(u32, u32)], Result<(), ViewError>);
        let rows: &[Row] = &[
            (&[(0, 65_535)], Ok(())),
            (&[(30_000, 65_535), (0, 29_999)], Ok(())),
            (&[], hole(0)),
            (&[(0, 65_534)], hole(65_535)),
            (&[(0, 9), (11, 65_535)], hole(10)),
            (&[(0, 9), (9, 65_535)], Err(ViewError::Tiling { hash: 9, owners: 2 })),
            (&[(9, 8)], Err(ViewError::Range { id: 0, start: 9, end: 8 })),
            (&[(0, 65_536)], Err(ViewError::Range { id: 0, start: 0, end: 65_536 })),
        ];
        for (ranges, expected) in rows {
            assert_eq!(View::try_from(&layout(ranges)).map(|_| ()), *expected, "{ranges:?}");
        }
    }
}
