//! What happens to a topic, from its creation to its end.

use braid_model::operation::Request;
use braid_model::{Buckets, SegmentId};

use super::world::World;
use crate::topic::plan::{Act, Ended};

fn text(pair: (String, String)) -> String {
    format!("{}/{}", pair.0, pair.1)
}

#[test]
fn a_topic_is_created_told_and_then_left_alone() {
    let mut world = World::new("{initialSegments: 2}").subscribed("s");
    world.sessions.insert("s", 0);
    world.settle();
    assert_eq!(world.shape(), [(0, 2), (32_768, 2)]);
    assert_eq!(text(world.condition("Ready")), "True/Serving");
    assert_eq!(text(world.condition("Reconciling")), "False/Settled");
    for store in world.stores.values() {
        let layout = store.layout.as_ref().unwrap();
        assert_eq!((layout.epoch, layout.home_term, layout.subscriptions.len()), (1, 1, 1));
    }
    // The reports of the told nodes came in; from then on nothing is written.
    world.settle();
    let writes = world.writes;
    for _ in 0..3 {
        world.pass(60);
        assert_eq!((world.settle(), world.writes), (0, writes));
    }
}

#[test]
fn the_segments_of_a_topic_spread_over_its_stores() {
    let mut world = World::new("{initialSegments: 6}");
    world.settle();
    let held: Vec<usize> = world.stores.values().map(|store| store.segments.len()).collect();
    assert_eq!(held, [2, 2, 2]);
}

#[test]
fn five_consumers_on_a_cold_segment_are_one_rebucket() {
    let mut world = World::new("{}").subscribed("s");
    world.settle();
    world.sessions.insert("s", 5);
    world.settle();
    assert_eq!((world.shape(), world.status.layout.as_ref().unwrap().epoch), (vec![(0, 8)], 2));
    let decision = world.status.autoscale.as_ref().unwrap().last_decision.clone().unwrap();
    assert_eq!((decision.reason.as_str(), decision.change.buckets), ("BelowSplitFloor", Some(8)));
    assert_eq!((decision.inputs.sessions, decision.inputs.buckets), (5, 4));
    assert!(world.status.autoscale.as_ref().unwrap().last_rebucket_time.is_some());
    world.settle();
    assert_eq!(world.shape(), [(0, 8)]);
    assert_eq!(world.status.idle_sessions, Some(1));
}

#[test]
fn load_splits_and_cold_merges_back() {
    let mut world = World::new("{}").subscribed("s");
    world.sessions.insert("s", 1);
    world.loads.insert(0, ([30_000, 0, 0, 0], None));
    world.settle();
    assert_eq!(world.shape(), [(0, 1), (16_384, 1), (32_768, 1), (49_152, 1)]);
    assert_eq!(world.status.autoscale.as_ref().unwrap().last_decision.as_ref().unwrap().reason, "MessagesIn");
    for id in 1..=12 {
        world.loads.insert(id, ([0; 4], Some(400)));
    }
    for _ in 0..4 {
        world.pass(301);
        world.settle();
    }
    assert_eq!(world.shape(), [(0, 4)]);
    assert_eq!(text(world.condition("AbleToScale")), "True/ReadyForNewLayout");
}

#[test]
fn what_is_recommended_or_paused_or_off_changes_nothing() {
    let check = |spec: &str, paused: bool, active: &str, recommended: bool| {
        let mut world = World::new(spec).subscribed("s");
        world.paused = false;
        world.settle();
        world.paused = paused;
        world.sessions.insert("s", 5);
        world.settle();
        let writes = world.writes;
        world.pass(1);
        world.settle();
        assert_eq!((world.shape(), world.writes), (vec![(0, 4)], writes), "{spec}");
        assert_eq!(text(world.condition("ScalingActive")), active, "{spec}");
        let autoscale = world.status.autoscale.as_ref().unwrap();
        assert_eq!(
            (autoscale.recommendation.is_some(), autoscale.last_decision.is_some()),
            (recommended, false),
            "{spec}"
        );
    };
    check("{autoscale: {mode: Recommend}}", false, "True/ValidMetricFound", true);
    check("{autoscale: {mode: 'Off'}}", false, "False/Off", false);
    check("{}", true, "False/Off", false);
}

#[test]
fn a_leader_that_dies_after_any_act_is_continued_by_the_next() {
    let n = |n| Buckets::new(n).unwrap();
    let ids = |ids: &[u64]| ids.iter().copied().map(SegmentId).collect::<Vec<_>>();
    let rows = [
        (
            Request::Split { segment: SegmentId(0), into: 3 },
            vec![(0, 1), (7_282, 1), (14_564, 1), (21_845, 1), (43_690, 1)],
        ),
        (Request::Merge { a: SegmentId(1), b: SegmentId(0) }, vec![(0, 2), (43_690, 1)]),
        (Request::Rebucket { segments: ids(&[0, 1, 2]), buckets: n(4) }, vec![(0, 4), (21_845, 4), (43_690, 4)]),
    ];
    for (request, expected) in rows {
        for dies_after in 0.. {
            let mut world = World::new("{initialSegments: 3, autoscale: {mode: 'Off'}}").subscribed("s");
            world.settle();
            world.ask("uid-1", request.clone());
            let mut acts = 0;
            while acts < dies_after && world.lap() != Act::Rest {
                acts += 1;
            }
            world.new_leader();
            world.settle();
            assert_eq!(world.shape(), expected, "{request:?}, died after {dies_after}");
            assert_eq!(world.status.layout.as_ref().unwrap().epoch, 2);
            assert!(world.status.operation.is_none());
            assert_eq!(world.ended, [("uid-1".to_owned(), Ended::Complete { op: 3, epoch: 2 })]);
            if acts < dies_after {
                assert!(dies_after > 6, "{request:?} has {dies_after} acts");
                break;
            }
        }
    }
}

#[test]
fn a_bad_layout_change_fails_with_its_reason_and_changes_nothing() {
    let n = |n| Buckets::new(n).unwrap();
    let id = SegmentId;
    let rows = [
        (Request::Split { segment: id(9), into: 2 }, "SegmentUnknown"),
        (Request::Split { segment: id(0), into: 2 }, "SegmentSealed"),
        (Request::Split { segment: id(2), into: 65 }, "IntoOutOfBounds"),
        (Request::Rebucket { segments: vec![id(2)], buckets: n(1) }, "BucketsUnchanged"),
        (Request::Rebucket { segments: vec![id(2)], buckets: n(2_048) }, "AboveCeiling"),
        (Request::Merge { a: id(1), b: id(2) }, "NotAdjacent"),
    ];
    let mut world = World::new("{initialSegments: 2, autoscale: {mode: 'Off'}}");
    world.settle();
    world.ask("first", Request::Split { segment: id(0), into: 2 });
    world.settle();
    let before = world.status.clone();
    for (request, reason) in rows {
        world.ask("bad", request);
        world.settle();
        let Some((uid, Ended::Failed { reason: found, .. })) = world.ended.pop() else { panic!("{reason}") };
        assert_eq!((uid.as_str(), found), ("bad", reason));
        assert_eq!(world.status, before, "{reason}");
    }
}

#[test]
fn changes_that_wait_run_one_after_the_other() {
    let mut world = World::new("{autoscale: {mode: 'Off'}}");
    world.settle();
    world.ask("a", Request::Split { segment: SegmentId(0), into: 2 });
    world.ask("b", Request::Merge { a: SegmentId(1), b: SegmentId(2) });
    world.settle();
    let complete = |op, epoch| Ended::Complete { op, epoch };
    assert_eq!(world.ended, [("a".to_owned(), complete(2, 2)), ("b".to_owned(), complete(3, 3))]);
}

#[test]
fn a_silent_store_is_unready_after_3_s_and_gives_the_home_away_after_10() {
    let mut world = World::new("{initialSegments: 3}").subscribed("s");
    world.settle();
    let home = world.status.home.clone().unwrap();
    assert_eq!((home.store.as_str(), home.term), ("node-0", 1));
    world.store(0).silent_ms = Some(2_900);
    assert_eq!(world.settle(), 0);
    assert_eq!(text(world.condition("Ready")), "True/Serving");
    assert_eq!(world.last.as_ref().unwrap().recheck_ms, 101);
    world.store(0).silent_ms = Some(3_001);
    assert_eq!(world.settle(), 0);
    assert_eq!(text(world.condition("Ready")), "False/DataPlaneUnreachable");
    world.store(0).silent_ms = Some(10_001);
    world.settle();
    let home = world.status.home.clone().unwrap();
    assert_eq!((home.store.as_str(), home.term), ("node-1", 2));
    assert_eq!(world.store(1).layout.as_ref().unwrap().home_store, "node-1");
    world.store(0).silent_ms = None;
    world.settle();
    assert_eq!(text(world.condition("Ready")), "True/Serving");
    assert_eq!(world.store(0).layout.as_ref().unwrap().home_term, 2);
}

#[test]
fn a_subscription_that_a_store_missed_is_owed_and_paid() {
    let mut world = World::new("{initialSegments: 3}");
    world.settle();
    world.store(2).silent_ms = Some(1_000);
    world = world.subscribed("s");
    world.settle();
    let owed: Vec<_> = world.status.pending.iter().map(|pending| pending.store.as_str()).collect();
    assert_eq!((world.status.subscriptions.len(), owed), (1, vec!["node-2"]));
    world.store(2).silent_ms = None;
    world.settle();
    assert_eq!(world.status.pending, []);
    world.subscriptions[0].leaving = true;
    world.settle();
    assert_eq!(world.status.subscriptions.len(), 1, "the position is retained");
    world.subscriptions[0].drops_position = true;
    world.settle();
    assert_eq!(world.status.subscriptions, []);
}

#[test]
fn an_operation_waits_for_its_store_and_says_so() {
    let mut world = World::new("{initialSegments: 3, autoscale: {mode: 'Off'}}");
    world.settle();
    world.ask("uid", Request::Split { segment: SegmentId(0), into: 3 });
    assert!(matches!(world.lap(), Act::Store { begins: Some("split"), .. }));
    world.store(1).silent_ms = Some(500);
    world.settle();
    assert_eq!(text(world.condition("Reconciling")), "True/WaitingForStore");
    assert!(world.message("Reconciling").contains("node-1"), "{}", world.message("Reconciling"));
    world.store(1).silent_ms = None;
    world.settle();
    assert_eq!(world.shape().len(), 5);
}

#[test]
fn a_node_that_has_seen_a_higher_op_is_obeyed() {
    let mut world = World::new("{autoscale: {mode: 'Off'}}");
    world.settle();
    world.store(0).fence.op = 40;
    world.ask("uid", Request::Split { segment: SegmentId(0), into: 2 });
    world.settle();
    assert_eq!(world.shape(), [(0, 2), (32_768, 2)]);
    assert_eq!(world.status.op, Some(41));
    assert_eq!(world.ended, [("uid".to_owned(), Ended::Complete { op: 41, epoch: 2 })]);
}

#[test]
fn a_topic_that_deletes_its_data_goes_only_when_all_of_it_is_gone() {
    let mut world = World::new("{initialSegments: 3, deletionPolicy: Delete}").subscribed("s");
    world.settle();
    assert!(world.has_finalizer);
    world.store(1).silent_ms = Some(1_000);
    world.delete();
    world.settle();
    assert!(!world.gone);
    assert_eq!(text(world.condition("Reconciling")), "True/Deleting");
    assert!(world.message("Reconciling").contains("node-1"));
    assert!(world.store(0).layout.as_ref().unwrap().deleted);
    assert_eq!(text(world.condition("Stalled")), "False/Progressing");
    world.pass(61);
    world.settle();
    assert_eq!(text(world.condition("Stalled")), "True/DeadlineExceeded");
    world.store(1).silent_ms = None;
    world.settle();
    assert!(world.gone);
    assert!(world.stores.values().all(|store| store.segments.is_empty()));
}

#[test]
fn deletion_cuts_an_operation_short() {
    for acts in 1..8 {
        let mut world = World::new("{deletionPolicy: Delete, autoscale: {mode: 'Off'}}");
        world.settle();
        world.ask("uid", Request::Split { segment: SegmentId(0), into: 4 });
        (0..acts).for_each(|_| drop(world.lap()));
        world.delete();
        world.settle();
        assert!(world.gone, "after {acts} acts");
        assert!(world.stores.values().all(|store| store.segments.is_empty()), "after {acts} acts");
    }
}

#[test]
fn retained_data_is_taken_over() {
    let mut world = World::new("{initialSegments: 3, autoscale: {mode: 'Off'}}").subscribed("s");
    world.settle();
    world.ask("uid", Request::Merge { a: SegmentId(0), b: SegmentId(1) });
    world.settle();
    let before = world.status.clone();
    world.delete();
    assert!(world.gone);
    world.applied_again("{initialSegments: 1, autoscale: {mode: 'Off'}}");
    world.settle();
    assert_eq!(world.status.incarnation, before.incarnation);
    assert_eq!(world.shape(), [(0, 2), (43_690, 1)]);
    let (found, had) = (world.status.layout.clone().unwrap(), before.layout.unwrap());
    assert_eq!((found.epoch, found.next_segment_id), (had.epoch, had.next_segment_id));
    assert_eq!(world.status.subscriptions.len(), 1);
    assert_eq!(text(world.condition("Ready")), "True/Serving");
    // A merge that was cut off between its seals is finished first.
    let mut world = World::new("{initialSegments: 2, autoscale: {mode: 'Off'}}");
    world.settle();
    world.ask("uid", Request::Merge { a: SegmentId(0), b: SegmentId(1) });
    // Plan, one create, one seal.
    (0..3).for_each(|_| drop(world.lap()));
    world.applied_again("{autoscale: {mode: 'Off'}}");
    world.changes.clear();
    world.settle();
    assert_eq!(world.shape(), [(0, 4)]);
}

#[test]
fn a_store_that_may_hold_data_of_the_name_is_waited_for() {
    let mut world = World::new("{}");
    world.watched_ms = 100;
    world.store(1).silent_ms = Some(100);
    world.settle();
    assert_eq!(text(world.condition("Ready")), "False/SegmentsUnassigned");
    assert!(world.message("Ready").contains("node-1"), "{}", world.message("Ready"));
    assert_eq!(world.last.as_ref().unwrap().recheck_ms, 14_900);
    world.watched_ms = 15_000;
    world.settle();
    assert_eq!(text(world.condition("Ready")), "True/Serving");
    let mut world = World::new("{}");
    (0..3).for_each(|i| world.store(i).silent_ms = Some(0));
    world.settle();
    assert!(world.message("Ready").contains("data plane `default`"));
}
