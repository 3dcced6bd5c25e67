//! An operation may be stopped after any step and taken up by another leader: the end is the same.

use braid_model::layout::{Segment, State};
use braid_model::operation::{
    CommitError, Confirmed, Kind, Ledger, Next, Outcome, Refusal, Request, Start, Step, SubscriptionKind, next, steps,
};
use braid_model::{Buckets, Epoch, Fence, Generation, Micros, SegmentId, StoreName};
use proptest::prelude::*;

use crate::world::{World, draws};

fn n(buckets: u32) -> Buckets {
    Buckets::new(buckets).unwrap()
}

fn subscribe(name: &str) -> Request {
    Request::Subscribe { name: name.into(), kind: SubscriptionKind::Ordered, start: Start::Latest }
}

/// Four segments on three stores, two of them sealed parents of a merger, with one subscription.
fn topic() -> World {
    let mut world = World::new(3);
    world.run(&Request::Create { segments: 4, budget: 8 });
    world.run(&subscribe("orders"));
    world.run(&Request::Merge { a: SegmentId(0), b: SegmentId(1) });
    world
}

/// One of each kind of operation, on the topic of `topic` (Create: on a new one).
fn every_operation() -> Vec<(World, Request)> {
    vec![
        (World::new(3), Request::Create { segments: 5, budget: 8 }),
        (topic(), Request::Split { segment: SegmentId(2), into: 5 }),
        (topic(), Request::Merge { a: SegmentId(3), b: SegmentId(2) }),
        (topic(), Request::Rebucket { segments: vec![SegmentId(4), SegmentId(2), SegmentId(3)], buckets: n(8) }),
        (topic(), subscribe("audit")),
        (topic(), Request::Unsubscribe { name: "orders".into() }),
        (topic(), Request::Delete),
    ]
}

#[test]
fn an_operation_stopped_after_any_step_ends_the_same() {
    for (world, request) in every_operation() {
        let mut straight = world.clone();
        straight.begin(&request, Some("uid-1")).unwrap();
        let all = steps(&straight.ledger).len();
        assert!(all > 0, "{request:?}");
        assert_eq!(straight.lead(1, usize::MAX), Ok(true));
        for k in 0..=all {
            let mut stopped = world.clone();
            stopped.begin(&request, Some("uid-1")).unwrap();
            assert_eq!(stopped.lead(1, k), Ok(false), "{request:?} after {k} steps");
            let stored = stopped.ledger.clone();
            assert_eq!(stopped.lead(2, usize::MAX), Ok(true), "{request:?} after {k} steps");
            assert_ne!(stored, stopped.ledger);
            assert_eq!(stopped.ledger, straight.ledger, "{request:?} after {k} steps");
            assert_eq!(stopped.stores, straight.stores, "{request:?} after {k} steps");
        }
        if request != Request::Delete {
            straight.agrees();
        }
    }
}

proptest! {
    #[test]
    fn leaders_that_die_all_the_time_lose_nothing(
        draws in draws(10), stops in prop::collection::vec(0usize..6, 40),
    ) {
        let mut world = topic();
        let mut stops = stops.into_iter();
        for draw in draws {
            let request = draw.request(world.layout());
            if world.begin(&request, None).is_err() {
                continue;
            }
            let mut straight = world.clone();
            prop_assert_eq!(straight.lead(1, usize::MAX), Ok(true));
            let mut term = 2;
            while !world.lead(term, stops.next().unwrap_or(usize::MAX)).unwrap() {
                term += 1;
            }
            prop_assert_eq!(&world.ledger, &straight.ledger);
            prop_assert_eq!(&world.stores, &straight.stores);
            world.agrees();
            world.now = Micros(world.now.0 + 10);
        }
    }
}

#[test]
fn steps_come_in_one_order_for_every_leader() {
    let names = |world: &World| -> Vec<String> {
        let name = |step: &Step| match step {
            Step::Create { segment, subscriptions } => {
                let cursors: Vec<_> = subscriptions.iter().map(|s| format!("{}@{}", s.name, s.generation)).collect();
                format!("create {} on {} with {}", segment.id, segment.store, cursors.join(" "))
            }
            Step::Seal { store, segment, epoch, successors } => {
                let ids: Vec<String> = successors.iter().map(|s| s.id.to_string()).collect();
                format!("seal {segment} on {store} for epoch {epoch}: {}", ids.join(" "))
            }
            Step::OpenCursors { store, segments, subscription } => {
                format!("open {}@{} on {store}: {segments:?}", subscription.name, subscription.generation)
            }
            other => format!("{other:?}"),
        };
        steps(&world.ledger).iter().map(name).collect()
    };
    let mut world = topic();
    world.begin(&Request::Rebucket { segments: vec![SegmentId(4), SegmentId(2)], buckets: n(8) }, None).unwrap();
    assert_eq!(
        names(&world),
        [
            "create 5 on node-2 with orders@2",
            "create 6 on node-0 with orders@2",
            "seal 2 on node-2 for epoch 3: 5",
            "seal 4 on node-0 for epoch 3: 6",
        ]
    );
    let mut world = topic();
    world.begin(&subscribe("audit"), None).unwrap();
    assert_eq!(
        names(&world),
        [
            "open audit@4 on node-0: [SegmentId(0), SegmentId(3), SegmentId(4)]",
            "open audit@4 on node-1: [SegmentId(1)]",
            "open audit@4 on node-2: [SegmentId(2)]",
        ]
    );
}

#[test]
fn a_batch_of_segments_is_one_epoch_and_stamps_one_clock() {
    let mut world = topic();
    let before = world.ledger.clone();
    world.run(&Request::Rebucket { segments: vec![SegmentId(2), SegmentId(3), SegmentId(4)], buckets: n(8) });
    assert_eq!(world.layout().epoch(), Epoch(3));
    assert_eq!(world.layout().active().map(|s| s.buckets.count()).collect::<Vec<_>>(), [8, 8, 8]);
    assert_eq!(world.ledger.clocks.rebucket, Some(Micros(32)));
    assert_eq!((world.ledger.clocks.split, world.ledger.clocks.merge), (before.clocks.split, before.clocks.merge));
}

#[test]
fn each_class_stamps_its_own_clock_at_the_commit_and_not_before() {
    let mut world = topic();
    let merged = world.ledger.clocks.merge;
    assert_eq!(merged, Some(Micros(22)));
    world.begin(&Request::Split { segment: SegmentId(2), into: 2 }, None).unwrap();
    assert_eq!(world.lead(1, 2), Ok(false));
    assert_eq!(world.ledger.clocks.split, None);
    assert_eq!(world.lead(2, usize::MAX), Ok(true));
    assert_eq!((world.ledger.clocks.split, world.ledger.clocks.merge), (Some(Micros(32)), merged));
}

#[test]
fn one_operation_at_a_time() {
    let mut world = topic();
    world.begin(&Request::Split { segment: SegmentId(2), into: 2 }, None).unwrap();
    let refusal = world.begin(&subscribe("audit"), None).unwrap_err();
    assert_eq!(refusal, Refusal::Busy { op: 4, name: "split" });
    assert!(refusal.is_passing());
}

#[test]
fn a_request_runs_once() {
    let mut world = topic();
    let request = Request::Rebucket { segments: vec![SegmentId(2)], buckets: n(8) };
    world.begin(&request, Some("change-1")).unwrap();
    assert_eq!(world.ledger.outcome("change-1"), None);
    assert_eq!(world.lead(1, usize::MAX), Ok(true));
    assert_eq!(world.ledger.outcome("change-1"), Some(Outcome::Committed { op: 4, epoch: Epoch(3) }));
    let refusal = world.begin(&request, Some("change-1")).unwrap_err();
    assert_eq!(refusal, Refusal::AlreadySettled { uid: "change-1".into() });

    for i in 0..40 {
        let (name, uid) = (format!("s{i}"), format!("subscribe-{i}"));
        world.begin(&subscribe(&name), Some(&uid)).unwrap();
        assert_eq!(world.lead(1, usize::MAX), Ok(true));
    }
    assert_eq!(world.ledger.last_requests.len(), 32);
    assert_eq!(world.ledger.last_requests[0].uid, "subscribe-8");
}

#[test]
fn a_silent_store_blocks_what_needs_it_and_nothing_else() {
    let mut world = topic();
    world.hosts.stores[2].connected = false;
    let silent = StoreName::from("node-2");
    let refusal = world.begin(&Request::Split { segment: SegmentId(2), into: 2 }, None).unwrap_err();
    assert_eq!(refusal, Refusal::StoreSilent { segment: SegmentId(2), store: silent.clone() });

    world.begin(&subscribe("audit"), None).unwrap();
    assert_eq!(world.lead(1, usize::MAX), Ok(true));
    assert_eq!(world.ledger.subscriptions[&"audit".into()].generation, Generation(4));
    let owed: Vec<Step> = world.ledger.owed(&silent).map(|pending| pending.step.clone()).collect();
    assert_eq!(owed.len(), 1);
    assert_eq!(world.ledger.owed(&"node-1".into()).count(), 0);

    world.hosts.stores[2].connected = true;
    for step in &owed {
        world.stores.carry_out(step);
    }
    world.ledger = world.ledger.paid(&silent, 4);
    assert_eq!(world.ledger.pending, []);
    world.agrees();
}

#[test]
fn a_store_owes_only_the_last_change_of_a_subscription() {
    let mut world = topic();
    world.hosts.stores[2].connected = false;
    for request in [subscribe("audit"), Request::Unsubscribe { name: "audit".into() }, subscribe("audit")] {
        world.run(&request);
    }
    let owed: Vec<_> =
        world.ledger.pending.iter().map(|pending| (pending.op, pending.step.store().0.as_str())).collect();
    assert_eq!(owed, [(6, "node-2")]);
    let mut full = world.ledger.clone();
    full.pending = vec![full.pending[0].clone(); 1_024];
    world.ledger = full;
    let refusal = world.begin(&subscribe("more"), None).unwrap_err();
    assert_eq!(refusal, Refusal::TooManyPending { found: 1_024 });
}

#[test]
fn a_store_lost_in_the_middle_is_waited_for() {
    let mut world = topic();
    world.begin(&Request::Split { segment: SegmentId(2), into: 3 }, None).unwrap();
    world.hosts.stores[1].connected = false;
    assert_eq!(world.lead(1, usize::MAX), Ok(false));
    let mut confirmed = Confirmed::under(world.ledger.fence(1));
    confirmed.done(0);
    confirmed.done(1);
    assert_eq!(next(&world.ledger, &confirmed, &world.hosts), Next::Wait { store: "node-1".into() });
    world.hosts.stores[1].connected = true;
    assert_eq!(world.lead(1, usize::MAX), Ok(true));
    world.agrees();
}

#[test]
fn a_commit_needs_every_step_of_its_own_operation() {
    let mut world = topic();
    assert_eq!(world.ledger.commit(&Confirmed::default(), Micros(0)).unwrap_err(), CommitError::NoOperation);
    world.begin(&Request::Split { segment: SegmentId(2), into: 2 }, None).unwrap();
    let old = Confirmed::under(Fence { term: 1, op: 3 });
    assert_eq!(
        world.ledger.commit(&old, Micros(0)).unwrap_err().to_string(),
        "steps were confirmed under op `3`, the operation is `4`"
    );
    let mut some = Confirmed::under(world.ledger.fence(1));
    some.done(0);
    assert_eq!(
        world.ledger.commit(&some, Micros(0)).unwrap_err().to_string(),
        "step `1` of operation `4` is not confirmed"
    );
}

#[test]
fn a_commit_refuses_successors_that_were_not_planned_and_takes_stores_from_the_seals() {
    let mut world = topic();
    world.begin(&Request::Merge { a: SegmentId(2), b: SegmentId(3) }, None).unwrap();
    let sealed_by = |change: fn(&mut Segment)| {
        let mut confirmed = Confirmed::under(world.ledger.fence(1));
        let mut stores = world.stores.clone();
        for (number, step) in steps(&world.ledger).into_iter().enumerate() {
            match stores.carry_out(&step) {
                Some(mut seal) => {
                    seal.successors.iter_mut().for_each(change);
                    confirmed.sealed(number, seal);
                }
                None => confirmed.done(number),
            }
        }
        world.ledger.commit(&confirmed, Micros(40))
    };
    let other = sealed_by(|segment| segment.id = SegmentId(9)).unwrap_err();
    let (planned, recorded) = (vec![SegmentId(5)], vec![SegmentId(9)]);
    assert_eq!(other, CommitError::OtherSuccessors { segment: SegmentId(2), planned, recorded });
    let moved: Ledger = sealed_by(|segment| segment.store = "elsewhere".into()).unwrap();
    let segment = moved.layout.as_ref().unwrap().segment(SegmentId(5)).unwrap();
    assert_eq!((segment.store.0.as_str(), segment.state), ("elsewhere", State::Active));
}

#[test]
fn a_delete_cuts_an_operation_short_and_leaves_nothing() {
    let mut world = topic();
    world.begin(&Request::Split { segment: SegmentId(2), into: 5 }, None).unwrap();
    assert_eq!(world.lead(1, 3), Ok(false));
    world.begin(&Request::Delete, None).unwrap();
    assert_eq!(world.begin(&Request::Delete, None), Err(Refusal::Busy { op: 5, name: "delete" }));
    assert_eq!(world.ledger.operation.as_ref().map(|operation| (operation.op, operation.epoch)), Some((5, Epoch(0))));
    assert_eq!(world.lead(1, usize::MAX), Ok(true));
    assert!(world.stores.0.is_empty());
    assert_eq!((world.ledger.layout, world.ledger.home, world.ledger.subscriptions.len()), (None, None, 0));
}

#[test]
fn a_ledger_above_a_seen_op_passes_fences_with_its_operation() {
    let mut world = topic();
    world.begin(&subscribe("audit"), None).unwrap();
    let raised = world.ledger.above(90);
    let operation = raised.operation.as_ref().unwrap();
    assert_eq!((raised.op, operation.op), (91, 91));
    let Kind::Subscribe(subscription) = &operation.kind else { panic!("{operation:?}") };
    assert_eq!(subscription.generation, Generation(91));
    assert_eq!(raised.above(90), raised);
    world.ledger = raised;
    assert_eq!(world.lead(1, usize::MAX), Ok(true));
    world.agrees();
}

#[test]
fn a_new_topic_has_a_home_that_moves_with_a_higher_term() {
    let world = topic();
    let home = world.ledger.home.clone().unwrap();
    assert_eq!((home.store.0.as_str(), home.term), ("node-0", 1));
    assert_eq!(world.ledger.with_home(&"node-0".into()), world.ledger);
    let moved = world.ledger.with_home(&"node-2".into()).home.unwrap();
    assert_eq!((moved.store.0.as_str(), moved.term), ("node-2", 2));
}

#[test]
fn children_of_one_split_lie_on_different_stores() {
    let mut world = topic();
    world.hosts.stores[0].load = 1_000;
    world.run(&Request::Split { segment: SegmentId(2), into: 3 });
    let mut stores: Vec<&str> = world.layout().segments()[5..].iter().map(|s| s.store.0.as_str()).collect();
    stores.sort_unstable();
    assert_eq!(stores, ["node-0", "node-1", "node-2"]);
}
