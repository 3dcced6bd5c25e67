//! Every invariant of a layout, one named check each. They run on each conversion from outside, each commit and each test.
//!
//! The checks come in an order: a later one may count on the earlier ones. A layout from which segments were pruned passes:
//! a child may have lost parents (and keeps its stored fields), a sealed parent may have lost children.

use super::{Buckets, Epoch, HashRange, Parts, Segment, SegmentId, State, StoreName, find, ring};

/// The most segments that one layout lists: the bound of the status list.
pub const SEGMENTS_MAX: usize = 2_048;
/// The highest epoch and the highest next segment id.
pub const NUMBER_MAX: u64 = i64::MAX as u64;

/// The rule that a layout breaks, with both sides of the mismatch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name every field")]
pub enum Violation {
    #[error("the layout lists `{found}` segments, at most {SEGMENTS_MAX} are allowed")]
    TooManySegments { found: usize },
    #[error("`{field}` is `{found}`, at most `{NUMBER_MAX}` is allowed")]
    NumberTooLarge { field: &'static str, found: u64 },
    #[error("segment `{id}` is listed after segment `{before}`, ids must strictly increase")]
    IdOrder { before: SegmentId, id: SegmentId },
    #[error("segment `{id}` is listed, but the next id to be used is `{next}`")]
    IdNotIssued { id: SegmentId, next: SegmentId },
    #[error("the layout is at epoch `{epoch}`, the first is 1")]
    EpochZero { epoch: Epoch },
    #[error("segment `{id}` is created at epoch `{created}`, the layout is at `{layout}`")]
    CreatedOutside { id: SegmentId, created: Epoch, layout: Epoch },
    #[error("segment `{id}` is sealed at epoch `{sealed}`, created at `{created}`, the layout is at `{layout}`")]
    SealedOutside { id: SegmentId, sealed: Epoch, created: Epoch, layout: Epoch },
    #[error("segment `{id}` lists segment `{other}` twice")]
    EdgeRepeated { id: SegmentId, other: SegmentId },
    #[error("segment `{id}` lists segment `{other}`, which the layout does not list")]
    EdgeUnknown { id: SegmentId, other: SegmentId },
    #[error("segment `{id}` has parent `{parent}`, parents must be older")]
    ParentNotOlder { id: SegmentId, parent: SegmentId },
    #[error("segment `{child}` has parent `{parent}`, which does not list it as a child")]
    ChildNotListed { parent: SegmentId, child: SegmentId },
    #[error("segment `{parent}` has child `{child}`, which does not list it as a parent")]
    ParentNotListed { parent: SegmentId, child: SegmentId },
    #[error("segment `{id}` is active but has child `{child}`")]
    ActiveParent { id: SegmentId, child: SegmentId },
    #[error("segment `{parent}` is sealed at epoch `{sealed}`, its child `{child}` is created at `{created}`")]
    EpochsDiffer { parent: SegmentId, sealed: Epoch, child: SegmentId, created: Epoch },
    #[error("no active segment owns the hashes `{from:04x}` to `{to:04x}`")]
    Gap { from: u16, to: u16 },
    #[error("active segments `{left}` ({left_range}) and `{right}` ({right_range}) overlap")]
    Overlap { left: SegmentId, left_range: HashRange, right: SegmentId, right_range: HashRange },
    #[error("segment `{child}` ({child_range}) does not lie within its only parent `{parent}` ({parent_range})")]
    NotWithinParent { child: SegmentId, child_range: HashRange, parent: SegmentId, parent_range: HashRange },
    #[error("segment `{child}` has range, buckets ({buckets}) and store (`{store}`) of its only parent `{parent}`")]
    NothingChanged { child: SegmentId, parent: SegmentId, buckets: Buckets, store: StoreName },
    #[error("the parents of segment `{child}` ({child_range}) own {parents}, which is not its range")]
    NotUnion { child: SegmentId, child_range: HashRange, parents: alloc::string::String },
    #[error("segment `{id}` has merge depth `{found}`, its lineage gives `{expected}`")]
    MergeDepth { id: SegmentId, found: u32, expected: u32 },
    #[error("segment `{id}` of the first epoch has a parent `{parent}`")]
    RootWithParent { id: SegmentId, parent: SegmentId },
    #[error("segment `{id}` has `{found}` buckets, the ceiling is `{ceiling}`")]
    AboveCeiling { id: SegmentId, found: Buckets, ceiling: Buckets },
    #[error("the layout goes from epoch `{before}` to `{after}`, it must be the next")]
    EpochStep { before: Epoch, after: Epoch },
    #[error("the next segment id falls from `{before}` to `{after}`")]
    IdsFall { before: SegmentId, after: SegmentId },
    #[error("segment `{id}` is new but below the next id `{next}` of the layout before")]
    IdReused { id: SegmentId, next: SegmentId },
    #[error("segment `{id}` was sealed at epoch `{sealed}` and is not so any more")]
    Reopened { id: SegmentId, sealed: Epoch },
    #[error("segment `{id}` has another `{field}` than in the layout before")]
    FieldChanged { id: SegmentId, field: &'static str },
}

type Rule = fn(&Parts) -> Result<(), Violation>;

/// Every rule that one layout must keep; the first that is broken.
pub fn check(parts: &Parts) -> Result<(), Violation> {
    let rules: [Rule; 12] = [
        the_list_is_bounded,
        numbers_fit_a_status,
        ids_strictly_increase,
        epochs_lie_within_the_layouts,
        edges_name_listed_segments_once,
        parents_are_older,
        edges_are_symmetric,
        only_the_sealed_have_children,
        a_child_begins_where_its_parents_end,
        active_ranges_tile_the_ring,
        a_child_continues_the_range_of_its_parents,
        merge_depth_follows_the_lineage,
    ];
    rules.iter().try_for_each(|rule| rule(parts))
}

fn the_list_is_bounded(parts: &Parts) -> Result<(), Violation> {
    let found = parts.segments.len();
    if found > SEGMENTS_MAX { Err(Violation::TooManySegments { found }) } else { Ok(()) }
}

/// Ids and epochs are below 2^63: a status has no unsigned numbers, and there is always a next one.
fn numbers_fit_a_status(parts: &Parts) -> Result<(), Violation> {
    for (field, found) in [("nextSegmentId", parts.next_segment_id.0), ("epoch", parts.epoch.0)] {
        if found > NUMBER_MAX {
            return Err(Violation::NumberTooLarge { field, found });
        }
    }
    Ok(())
}

/// Ids strictly increase in the list and lie below the next one, so none is ever used twice.
fn ids_strictly_increase(parts: &Parts) -> Result<(), Violation> {
    for pair in parts.segments.windows(2) {
        if pair[0].id >= pair[1].id {
            return Err(Violation::IdOrder { before: pair[0].id, id: pair[1].id });
        }
    }
    match parts.segments.last() {
        Some(last) if last.id >= parts.next_segment_id => {
            Err(Violation::IdNotIssued { id: last.id, next: parts.next_segment_id })
        }
        _ => Ok(()),
    }
}

/// 1 <= created < sealed <= the layout's epoch.
fn epochs_lie_within_the_layouts(parts: &Parts) -> Result<(), Violation> {
    let layout = parts.epoch;
    if layout < Epoch(1) {
        return Err(Violation::EpochZero { epoch: layout });
    }
    for Segment { id, created_epoch: created, state, .. } in &parts.segments {
        let (id, created) = (*id, *created);
        if created < Epoch(1) || created > layout {
            return Err(Violation::CreatedOutside { id, created, layout });
        }
        if let State::Sealed { epoch: sealed, .. } = *state
            && (sealed <= created || sealed > layout)
        {
            return Err(Violation::SealedOutside { id, sealed, created, layout });
        }
    }
    Ok(())
}

fn edges_name_listed_segments_once(parts: &Parts) -> Result<(), Violation> {
    for segment in &parts.segments {
        for edges in [&segment.parents, &segment.children] {
            for (i, other) in edges.iter().enumerate() {
                let (id, other) = (segment.id, *other);
                if edges[..i].contains(&other) {
                    return Err(Violation::EdgeRepeated { id, other });
                }
                if find(&parts.segments, other).is_none() {
                    return Err(Violation::EdgeUnknown { id, other });
                }
            }
        }
    }
    Ok(())
}

/// A parent has a lower id than its child: so the graph has no cycle.
fn parents_are_older(parts: &Parts) -> Result<(), Violation> {
    for segment in &parts.segments {
        if let Some(parent) = segment.parents.iter().find(|parent| **parent >= segment.id) {
            return Err(Violation::ParentNotOlder { id: segment.id, parent: *parent });
        }
    }
    Ok(())
}

fn edges_are_symmetric(parts: &Parts) -> Result<(), Violation> {
    for segment in &parts.segments {
        let id = segment.id;
        for parent in parents(parts, segment) {
            if !parent.children.contains(&id) {
                return Err(Violation::ChildNotListed { parent: parent.id, child: id });
            }
        }
        for child in segment.children.iter().filter_map(|child| find(&parts.segments, *child)) {
            if !child.parents.contains(&id) {
                return Err(Violation::ParentNotListed { parent: id, child: child.id });
            }
        }
    }
    Ok(())
}

fn only_the_sealed_have_children(parts: &Parts) -> Result<(), Violation> {
    match parts.segments.iter().find(|segment| segment.is_active() && !segment.children.is_empty()) {
        Some(segment) => Err(Violation::ActiveParent { id: segment.id, child: segment.children[0] }),
        None => Ok(()),
    }
}

/// One epoch seals the parents and creates the child; the first epoch creates roots.
fn a_child_begins_where_its_parents_end(parts: &Parts) -> Result<(), Violation> {
    for segment in &parts.segments {
        let (child, created) = (segment.id, segment.created_epoch);
        for parent in parents(parts, segment) {
            if created == Epoch(1) {
                return Err(Violation::RootWithParent { id: child, parent: parent.id });
            }
            if let State::Sealed { epoch: sealed, .. } = parent.state
                && sealed != created
            {
                return Err(Violation::EpochsDiffer { parent: parent.id, sealed, child, created });
            }
        }
    }
    Ok(())
}

/// The ranges of the active segments cover 0..=65535 exactly: no gap, no overlap.
fn active_ranges_tile_the_ring(parts: &Parts) -> Result<(), Violation> {
    let ring = ring(&parts.segments);
    let mut next = 0u32;
    let mut before: Option<&Segment> = None;
    for segment in ring.into_iter().map(|i| &parts.segments[i]) {
        let start = u32::from(segment.range.start());
        if start > next {
            return Err(Violation::Gap { from: next as u16, to: (start - 1) as u16 });
        }
        if let Some(left) = before
            && start < next
        {
            return Err(Violation::Overlap {
                left: left.id,
                left_range: left.range,
                right: segment.id,
                right_range: segment.range,
            });
        }
        next = u32::from(segment.range.end()) + 1;
        before = Some(segment);
    }
    if next <= u32::from(u16::MAX) { Err(Violation::Gap { from: next as u16, to: u16::MAX }) } else { Ok(()) }
}

/// One parent: strictly within it (split), its range with other buckets (rebucket) or on another store (rollover), or all of
/// it and more (a merger whose other parents were pruned). Two or more: exactly their union (merge).
fn a_child_continues_the_range_of_its_parents(parts: &Parts) -> Result<(), Violation> {
    for segment in &parts.segments {
        let (child, child_range) = (segment.id, segment.range);
        match segment.parents.as_slice() {
            [] => {}
            [_] => {
                for parent in parents(parts, segment) {
                    if parent.range == child_range {
                        if parent.buckets == segment.buckets && parent.store == segment.store {
                            return Err(Violation::NothingChanged {
                                child,
                                parent: parent.id,
                                buckets: segment.buckets,
                                store: segment.store.clone(),
                            });
                        }
                    } else if !lies_within(child_range, parent.range) && !lies_within(parent.range, child_range) {
                        return Err(Violation::NotWithinParent {
                            child,
                            child_range,
                            parent: parent.id,
                            parent_range: parent.range,
                        });
                    }
                }
            }
            _ => {
                let mut ranges: alloc::vec::Vec<HashRange> =
                    parents(parts, segment).map(|parent| parent.range).collect();
                ranges.sort();
                let union = ranges[1..].iter().try_fold(ranges[0], |union, next| union.union(*next));
                if union != Some(child_range) {
                    let names: alloc::vec::Vec<_> = ranges.iter().map(alloc::string::ToString::to_string).collect();
                    return Err(Violation::NotUnion { child, child_range, parents: names.join(", ") });
                }
            }
        }
    }
    Ok(())
}

/// A root of the first epoch has 0, a merger one more than its deepest parent, every other child that of its parent. Where
/// parents were pruned the stored figure stands; a merger that lost some still lies above those that are left.
fn merge_depth_follows_the_lineage(parts: &Parts) -> Result<(), Violation> {
    for segment in &parts.segments {
        let (id, found) = (segment.id, segment.merge_depth);
        let deepest = parents(parts, segment).map(|parent| parent.merge_depth).max();
        let Some(deepest) = deepest else {
            if segment.created_epoch == Epoch(1) && found != 0 {
                return Err(Violation::MergeDepth { id, found, expected: 0 });
            }
            continue;
        };
        let is_merger = segment.parents.len() > 1;
        let lost_parents =
            !is_merger && parents(parts, segment).any(|parent| !lies_within(segment.range, parent.range));
        let expected = if is_merger || lost_parents { deepest.saturating_add(1) } else { deepest };
        if if lost_parents { found < expected } else { found != expected } {
            return Err(Violation::MergeDepth { id, found, expected });
        }
    }
    Ok(())
}

/// Whether `segments` keep to the ceiling. Only for those that an operation makes: a lowered ceiling must not make the
/// layouts of old topics unreadable.
pub fn buckets_keep_to_the_ceiling<'a>(
    segments: impl IntoIterator<Item = &'a Segment>,
    ceiling: Buckets,
) -> Result<(), Violation> {
    match segments.into_iter().find(|segment| segment.buckets > ceiling) {
        Some(Segment { id, buckets: found, .. }) => Err(Violation::AboveCeiling { id: *id, found: *found, ceiling }),
        None => Ok(()),
    }
}

/// What must hold between a layout and the one that replaces it: the next epoch, fresh ids, no change of what is fixed for
/// life, and nothing sealed is opened again. Segments may be missing after: those were pruned.
pub fn check_step(before: &Parts, after: &Parts) -> Result<(), Violation> {
    if after.epoch != before.epoch.next() {
        return Err(Violation::EpochStep { before: before.epoch, after: after.epoch });
    }
    if after.next_segment_id < before.next_segment_id {
        return Err(Violation::IdsFall { before: before.next_segment_id, after: after.next_segment_id });
    }
    for segment in &after.segments {
        match find(&before.segments, segment.id) {
            None if segment.id < before.next_segment_id => {
                return Err(Violation::IdReused { id: segment.id, next: before.next_segment_id });
            }
            None => {}
            Some(old) => only_the_end_of_a_segment_is_written(old, segment)?,
        }
    }
    Ok(())
}

fn only_the_end_of_a_segment_is_written(old: &Segment, new: &Segment) -> Result<(), Violation> {
    let id = old.id;
    if let State::Sealed { epoch: sealed, .. } = old.state
        && new.state != old.state
    {
        return Err(Violation::Reopened { id, sealed });
    }
    let fields = [
        ("range", old.range == new.range),
        ("buckets", old.buckets == new.buckets),
        ("merge_depth", old.merge_depth == new.merge_depth),
        ("created_epoch", old.created_epoch == new.created_epoch),
        ("created_at", old.created_at == new.created_at),
        ("store", old.store == new.store),
    ];
    match fields.into_iter().find(|(_, same)| !same) {
        Some((field, _)) => Err(Violation::FieldChanged { id, field }),
        None => Ok(()),
    }
}

fn parents<'a>(parts: &'a Parts, segment: &'a Segment) -> impl Iterator<Item = &'a Segment> {
    segment.parents.iter().filter_map(|parent| find(&parts.segments, *parent))
}

/// Whether `inner` lies in `outer`, equal ones included.
fn lies_within(inner: HashRange, outer: HashRange) -> bool {
    outer.start() <= inner.start() && inner.end() <= outer.end()
}
