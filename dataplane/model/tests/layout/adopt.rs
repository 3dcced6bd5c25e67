//! A topic whose status is lost comes back from its stores as it was.

use braid_model::layout::{Found, Segment, State, Violation};
use braid_model::operation::{Holding, Request, Start, Step, Subscription, SubscriptionKind, adopt};
use braid_model::{Buckets, Epoch, Incarnation, Micros, SegmentId};
use proptest::prelude::*;

use crate::world::{World, draws};

/// What the stores hold; a segment counts as told if the ledger's layout lists it and `told` says so.
fn holdings(world: &World, told: impl Fn(SegmentId) -> bool) -> Vec<Holding> {
    let holding = |kept: &crate::world::Kept| {
        let listed = world.ledger.layout.as_ref().and_then(|layout| layout.segment(kept.header.id));
        let (state, children) = match &kept.seal {
            None => (State::Active, vec![]),
            Some(successors) => {
                let at = listed.and_then(Segment::sealed_at).unwrap_or(Micros(0));
                let epoch = successors[0].created_epoch;
                (State::Sealed { epoch, at }, successors.iter().map(|successor| successor.id).collect())
            }
        };
        let committed = listed.is_some() && told(kept.header.id);
        let segment = Segment { state, children, ..kept.header.clone() };
        let (kind, start, since) = (SubscriptionKind::Ordered, Start::Earliest, Micros(0));
        let cursor = |(name, generation): (&String, &_)| Subscription {
            name: name.as_str().into(),
            kind,
            generation: *generation,
            start,
            since,
        };
        Holding { found: Found { segment, committed }, cursors: kept.cursors.iter().map(cursor).collect() }
    };
    world.stores.0.values().map(holding).collect()
}

fn n(buckets: u32) -> Buckets {
    Buckets::new(buckets).unwrap()
}

fn topic() -> World {
    let mut world = World::new(3);
    world.run(&Request::Create { segments: 2, budget: 8 });
    world.run(&Request::Subscribe { name: "s".into(), kind: SubscriptionKind::Ordered, start: Start::Earliest });
    world
}

proptest! {
    #[test]
    fn a_topic_at_rest_comes_back_as_it_was(draws in draws(16), mask in any::<u64>()) {
        let mut world = World::new(3);
        world.run(&Request::Create { segments: 2, budget: 4 });
        for draw in draws {
            if world.begin(&draw.request(world.layout()), None).is_ok() {
                prop_assert_eq!(world.lead(1, usize::MAX), Ok(true));
                world.now = Micros(world.now.0 + 10);
            }
        }
        // Seals vouch for segments whose stores were never told the layout.
        let adopted = adopt(Incarnation(7), world.ledger.op, &holdings(&world, |id| mask >> (id.0 % 64) & 1 == 1)).unwrap();
        prop_assert_eq!(adopted.ledger.layout.as_ref(), world.ledger.layout.as_ref());
        prop_assert_eq!(adopted.ledger.op, world.ledger.op + 1);
        let generations = |ledger: &braid_model::operation::Ledger| -> Vec<_> {
            ledger.subscriptions.values().map(|s| (s.name.clone(), s.generation)).collect()
        };
        prop_assert_eq!(generations(&adopted.ledger), generations(&world.ledger));
        prop_assert!(adopted.ledger.pending.is_empty() && adopted.orphans.is_empty() && adopted.seals.is_empty());
    }
}

#[test]
fn children_of_an_operation_that_sealed_nothing_are_orphans() {
    let mut world = topic();
    let at_rest = world.ledger.layout.clone().unwrap();
    world.begin(&Request::Split { segment: SegmentId(0), into: 2 }, None).unwrap();
    assert_eq!(world.lead(1, 2), Ok(false));
    let adopted = adopt(Incarnation(7), 3, &holdings(&world, |_| true)).unwrap();
    assert_eq!(adopted.orphans, [SegmentId(2), SegmentId(3)]);
    let layout = adopted.ledger.layout.unwrap();
    assert_eq!(layout.segments(), at_rest.segments());
    assert_eq!(layout.next_segment_id(), SegmentId(4), "ids of orphans are not used again");
}

#[test]
fn an_operation_cut_off_after_its_first_seal_goes_on() {
    let mut world = topic();
    world.begin(&Request::Merge { a: SegmentId(0), b: SegmentId(1) }, None).unwrap();
    assert_eq!(world.lead(1, 2), Ok(false), "one create, one of two seals");
    let adopted = adopt(Incarnation(7), 3, &holdings(&world, |_| true)).unwrap();
    let layout = adopted.ledger.layout.unwrap();
    assert_eq!(layout.epoch(), Epoch(2));
    assert_eq!(layout.active().map(|segment| segment.id).collect::<Vec<_>>(), [SegmentId(2)]);
    let [Step::Seal { segment, epoch, successors, .. }] = adopted.seals.as_slice() else {
        panic!("{:?}", adopted.seals)
    };
    assert_eq!((*segment, *epoch, successors.len(), successors[0].id), (SegmentId(1), Epoch(2), 1, SegmentId(2)));
    for step in &adopted.seals {
        world.stores.carry_out(step);
    }
    let again = adopt(Incarnation(7), 3, &holdings(&world, |_| true)).unwrap();
    assert_eq!((again.seals.len(), again.ledger.layout.map(|layout| layout.epoch())), (0, Some(Epoch(2))));
}

#[test]
fn a_batch_cut_off_between_its_seals_keeps_what_was_sealed() {
    let mut world = topic();
    world.begin(&Request::Rebucket { segments: vec![SegmentId(0), SegmentId(1)], buckets: n(8) }, None).unwrap();
    assert_eq!(world.lead(1, 3), Ok(false), "two creates, one of two seals");
    let adopted = adopt(Incarnation(7), 3, &holdings(&world, |_| true)).unwrap();
    let active: Vec<SegmentId> = adopted.ledger.layout.unwrap().active().map(|segment| segment.id).collect();
    assert_eq!((active, adopted.orphans), (vec![SegmentId(2), SegmentId(1)], vec![SegmentId(3)]));
}

#[test]
fn a_missing_cursor_is_pending() {
    let mut world = topic();
    world
        .begin(&Request::Subscribe { name: "t".into(), kind: SubscriptionKind::Ordered, start: Start::Earliest }, None)
        .unwrap();
    assert_eq!(world.lead(1, 1), Ok(false));
    let adopted = adopt(Incarnation(7), 3, &holdings(&world, |_| true)).unwrap();
    let owed: Vec<_> =
        adopted.ledger.pending.iter().map(|pending| (pending.op, pending.step.store().0.as_str())).collect();
    assert_eq!(owed, [(3, "node-1")]);
    assert_eq!(adopted.ledger.subscriptions.len(), 2);
}

#[test]
fn a_missing_store_is_a_gap_in_the_ring() {
    let world = topic();
    let mut holdings = holdings(&world, |_| true);
    holdings.retain(|holding| holding.found.segment.store.0 != "node-1");
    assert_eq!(adopt(Incarnation(7), 3, &holdings).unwrap_err(), Violation::Gap { from: 0x8000, to: 0xffff });
}
