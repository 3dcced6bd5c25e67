//! A ledger from what stores hold: after a topic with retained data is applied again, or its status was lost.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Home, Ledger, Pending, Step, Subscription, SubscriptionName};
use crate::layout::{Found, Rebuilt, Segment, Violation, rebuild};
use crate::placement::StoreName;
use crate::{Incarnation, SegmentId};

/// What a store holds of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The segment.
    pub found: Found,
    /// Its cursors.
    pub cursors: Vec<Subscription>,
}

/// A topic put together from its stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The ledger to store.
    pub ledger: Ledger,
    /// Segments that nothing vouches for: to be reported, never served.
    pub orphans: Vec<SegmentId>,
    /// Seals to be sent before anything is told, under a fence with the ledger's op.
    pub seals: Vec<Step>,
}

/// The ledger of a topic incarnation, from the holdings of every store and the highest op that any of them has seen.
///
/// Of each subscription the newest generation found anywhere is taken, so no position is lost; where a segment has no
/// cursor of it, that cursor is pending. Clocks and finished requests are not on disks and start empty. Errors: the
/// segments do not make a layout, for example because a store is missing.
pub fn adopt(incarnation: Incarnation, highest_op: u64, holdings: &[Holding]) -> Result<Adopted, Violation> {
    let Rebuilt { layout, orphans, unsealed } = rebuild(holdings.iter().map(|holding| holding.found.clone()))?;
    let listed = || holdings.iter().filter(|holding| layout.segment(holding.found.segment.id).is_some());
    let mut subscriptions: BTreeMap<SubscriptionName, Subscription> = BTreeMap::new();
    for cursor in listed().flat_map(|holding| &holding.cursors) {
        let newest = subscriptions.entry(cursor.name.clone()).or_insert_with(|| cursor.clone());
        if newest.generation < cursor.generation {
            *newest = cursor.clone();
        }
    }
    let mut pending = Vec::new();
    for subscription in subscriptions.values() {
        let has = |holding: &&Holding| {
            let same = |cursor: &Subscription| {
                cursor.name == subscription.name && cursor.generation == subscription.generation
            };
            holding.cursors.iter().any(same)
        };
        let mut missing: BTreeMap<StoreName, Vec<SegmentId>> = BTreeMap::new();
        for holding in listed().filter(|holding| !has(holding)) {
            missing.entry(holding.found.segment.store.clone()).or_default().push(holding.found.segment.id);
        }
        pending.extend(missing.into_iter().map(|(store, mut segments)| {
            segments.sort_unstable();
            let step = Step::OpenCursors { store, segments, subscription: subscription.clone() };
            Pending { op: subscription.generation.0, step }
        }));
    }
    let header =
        |id: &SegmentId| holdings.iter().map(|holding| &holding.found.segment).find(|segment| segment.id == *id);
    let seal = |segment: &Segment| Step::Seal {
        store: segment.store.clone(),
        segment: segment.id,
        epoch: segment.sealed_epoch().unwrap_or_else(|| layout.epoch()),
        successors: segment.children.iter().filter_map(header).cloned().collect(),
    };
    let seals = unsealed.iter().filter_map(|id| layout.segment(*id)).map(seal).collect();
    let op = highest_op.saturating_add(1);
    // No home term was ever written to a disk; the op is above every one that a session of this topic can have seen, but for
    // a home that moved more often than the topic changed, whose sessions ended with the topic.
    let home = layout.active().next().map(|segment| Home { store: segment.store.clone(), term: op });
    let ledger = Ledger { op, layout: Some(layout), subscriptions, pending, home, ..Ledger::new(incarnation) };
    Ok(Adopted { ledger, orphans, seals })
}
