//! Properties 1 and 12 of the reference: any sequence of operations keeps every rule, and what breaks one is told so.

use braid_model::layout::rules::{buckets_keep_to_the_ceiling, check, check_step};
use braid_model::layout::{Layout, Parts, SEGMENTS_MAX, State, Unfit, Violation};
use braid_model::operation::{Refusal, Request};
use braid_model::{Buckets, Epoch, HashRange, Micros, SegmentId};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::world::{Draw, World, draws, prune};

fn grown(initial: u32, draws: &[Draw]) -> World {
    let mut world = World::new(3);
    world.run(&Request::Create { segments: initial, budget: 4 });
    for draw in draws {
        let request = draw.request(world.layout());
        if world.begin(&request, None).is_ok() {
            assert_eq!(world.lead(1, usize::MAX), Ok(true));
            world.now = Micros(world.now.0 + 10);
        }
    }
    world
}

proptest! {
    #[test]
    fn any_sequence_of_operations_keeps_every_rule(initial in 1u32..=5, draws in draws(24)) {
        let mut world = World::new(3);
        world.run(&Request::Create { segments: initial, budget: 4 });
        for draw in &draws {
            let before = world.ledger.clone();
            let request = draw.request(world.layout());
            match world.begin(&request, None) {
                Err(_) => prop_assert_eq!(&world.ledger, &before),
                Ok(()) => {
                    prop_assert_eq!(world.lead(1, usize::MAX), Ok(true));
                    let old = before.layout.unwrap();
                    let structural = !matches!(draw, Draw::Subscribe(..) | Draw::Unsubscribe(_));
                    prop_assert_eq!(world.layout().epoch().0, old.epoch().0 + u64::from(structural));
                    prop_assert_eq!(world.ledger.op, before.op + 1);
                    if structural {
                        prop_assert_eq!(check_step(old.parts(), world.layout().parts()), Ok(()));
                        prop_assert_eq!(buckets_keep_to_the_ceiling(world.layout().active(), world.ceiling), Ok(()));
                    }
                }
            }
            world.agrees();
            world.now = Micros(world.now.0 + 10);
        }
    }

    #[test]
    fn a_layout_without_pruned_segments_keeps_every_rule(draws in draws(16), mask in any::<u64>()) {
        let world = grown(2, &draws);
        let parts = world.layout().parts();
        let gone: Vec<SegmentId> =
            parts.segments.iter().filter(|s| !s.is_active() && mask >> (s.id.0 % 64) & 1 == 1).map(|s| s.id).collect();
        let pruned = prune(parts, &gone);
        prop_assert_eq!(check(&pruned), Ok(()));
        prop_assert_eq!(check_step(parts, &pruned), Ok(()));
        for segment in &pruned.segments {
            prop_assert_eq!(Some(segment.merge_depth), world.layout().segment(segment.id).map(|s| s.merge_depth));
        }
    }

    #[test]
    fn a_broken_rule_is_named(draws in draws(16), at in any::<prop::sample::Index>()) {
        let world = grown(2, &draws);
        let valid = world.layout().parts();
        for (name, breaks) in MUTATIONS {
            let mut parts = valid.clone();
            if let Some(named) = breaks(&mut parts, at) {
                let found = check(&parts);
                prop_assert!(found.as_ref().is_err_and(named), "mutation `{}` is named {:?}", name, found);
            }
        }
    }
}

/// A mutation that breaks exactly one rule, and whether a violation names that rule; `None` where the layout has no place for it.
type Breaks = fn(&mut Parts, prop::sample::Index) -> Option<fn(&Violation) -> bool>;

macro_rules! named {
    ($pattern:pat) => {
        Some(|violation: &Violation| matches!(violation, $pattern))
    };
}

const MUTATIONS: &[(&str, Breaks)] = &[
    ("two segments swap places", |parts, at| {
        let i = pick(parts, at, |_, i| i > 0)?;
        parts.segments.swap(i - 1, i);
        named!(Violation::IdOrder { .. })
    }),
    ("an id is used twice", |parts, at| {
        let i = pick(parts, at, |_, i| i > 0)?;
        parts.segments[i].id = parts.segments[i - 1].id;
        named!(Violation::IdOrder { .. })
    }),
    ("the next id is in use", |parts, _| {
        parts.next_segment_id = parts.segments.last()?.id;
        named!(Violation::IdNotIssued { .. })
    }),
    ("the layout has no epoch", |parts, _| {
        parts.epoch = Epoch(0);
        named!(Violation::EpochZero { .. })
    }),
    ("a segment comes from a later epoch", |parts, at| {
        let i = pick(parts, at, |_, _| true)?;
        parts.segments[i].created_epoch = parts.epoch.next();
        named!(Violation::CreatedOutside { .. })
    }),
    ("a segment is sealed before it is created", |parts, at| {
        let i = pick(parts, at, |parts, i| !parts.segments[i].is_active())?;
        let segment = &mut parts.segments[i];
        segment.state = State::Sealed { epoch: segment.created_epoch, at: Micros(0) };
        named!(Violation::SealedOutside { .. })
    }),
    ("a parent is listed twice", |parts, at| {
        let i = pick(parts, at, |parts, i| !parts.segments[i].parents.is_empty())?;
        let parent = parts.segments[i].parents[0];
        parts.segments[i].parents.push(parent);
        named!(Violation::EdgeRepeated { .. })
    }),
    ("a parent does not exist", |parts, at| {
        let i = pick(parts, at, |_, _| true)?;
        let unknown = parts.next_segment_id;
        parts.segments[i].parents.push(unknown);
        named!(Violation::EdgeUnknown { .. })
    }),
    ("a segment is its own ancestor", |parts, at| {
        let i = pick(parts, at, |parts, i| !parts.segments[i].children.is_empty())?;
        let child = parts.segments[i].children[0];
        parts.segments[i].parents.push(child);
        named!(Violation::ParentNotOlder { .. })
    }),
    ("a parent forgets a child", |parts, at| {
        let i = pick(parts, at, |parts, i| !parts.segments[i].children.is_empty())?;
        parts.segments[i].children.remove(0);
        named!(Violation::ChildNotListed { .. })
    }),
    ("a child forgets a parent", |parts, at| {
        let i = pick(parts, at, |parts, i| !parts.segments[i].parents.is_empty())?;
        parts.segments[i].parents.remove(0);
        named!(Violation::ParentNotListed { .. })
    }),
    ("a sealed segment is active again", |parts, at| {
        let i = pick(parts, at, |parts, i| !parts.segments[i].is_active())?;
        parts.segments[i].state = State::Active;
        named!(Violation::ActiveParent { .. })
    }),
    ("a child begins before its parent ends", |parts, at| {
        let i = pick(parts, at, |parts, i| parts.segments[i].created_epoch > Epoch(2))?;
        parts.segments[i].created_epoch = Epoch(parts.segments[i].created_epoch.0 - 1);
        named!(Violation::EpochsDiffer { .. })
    }),
    ("a segment of the first epoch has a parent", |parts, at| {
        let i = pick(parts, at, |parts, i| !parts.segments[i].parents.is_empty())?;
        parts.segments[i].created_epoch = Epoch(1);
        named!(Violation::RootWithParent { .. })
    }),
    ("an active segment ends early", |parts, at| {
        let i = pick(parts, at, |parts, i| parts.segments[i].is_active() && parts.segments[i].range.size() > 1)?;
        let range = parts.segments[i].range;
        parts.segments[i].range = HashRange::new(range.start(), range.end() - 1)?;
        named!(Violation::Gap { .. })
    }),
    ("an active segment reaches into its neighbour", |parts, at| {
        let i = pick(parts, at, |parts, i| parts.segments[i].is_active() && parts.segments[i].range.end() < u16::MAX)?;
        let range = parts.segments[i].range;
        parts.segments[i].range = HashRange::new(range.start(), range.end() + 1)?;
        named!(Violation::Overlap { .. })
    }),
    ("a sealed segment lies beside its parent", |parts, at| {
        let i = pick(parts, at, |parts, i| {
            let segment = &parts.segments[i];
            !segment.is_active() && segment.parents.len() == 1 && parent(parts, i).range != HashRange::FULL
        })?;
        let beside = parent(parts, i).range;
        parts.segments[i].range = match beside.start() {
            0 => HashRange::new(beside.end() + 1, u16::MAX)?,
            start => HashRange::new(0, start - 1)?,
        };
        named!(Violation::NotWithinParent { .. })
    }),
    ("a successor is what its parent was", |parts, at| {
        let i = pick(parts, at, |parts, i| {
            parts.segments[i].parents.len() == 1 && parent(parts, i).range == parts.segments[i].range
        })?;
        let (buckets, store) = (parent(parts, i).buckets, parent(parts, i).store.clone());
        parts.segments[i].buckets = buckets;
        parts.segments[i].store = store;
        named!(Violation::NothingChanged { .. })
    }),
    ("a merger owns less than its parents", |parts, at| {
        let i = pick(parts, at, |parts, i| !parts.segments[i].is_active() && parts.segments[i].parents.len() == 2)?;
        let range = parts.segments[i].range;
        parts.segments[i].range = HashRange::new(range.start(), range.end() - 1)?;
        named!(Violation::NotUnion { .. })
    }),
    ("a segment counts a merge too many", |parts, at| {
        let i = pick(parts, at, |_, _| true)?;
        parts.segments[i].merge_depth += 1;
        named!(Violation::MergeDepth { .. })
    }),
    ("the next id does not fit a status", |parts, _| {
        parts.next_segment_id = SegmentId(u64::MAX);
        named!(Violation::NumberTooLarge { .. })
    }),
    ("the list is beyond its bound", |parts, _| {
        let last = parts.segments.last()?.clone();
        parts.segments.resize(SEGMENTS_MAX + 1, last);
        named!(Violation::TooManySegments { .. })
    }),
];

/// One of the segments for which `fits` holds.
fn pick(parts: &Parts, at: prop::sample::Index, fits: impl Fn(&Parts, usize) -> bool) -> Option<usize> {
    let all: Vec<usize> = (0..parts.segments.len()).filter(|i| fits(parts, *i)).collect();
    (!all.is_empty()).then(|| *at.get(&all))
}

fn parent(parts: &Parts, i: usize) -> &braid_model::layout::Segment {
    parts.segments.iter().find(|segment| segment.id == parts.segments[i].parents[0]).expect("edges are listed")
}

#[test]
fn every_mutation_finds_its_place_in_a_long_history() {
    let n = |n| Buckets::new(n).unwrap();
    let mut world = World::new(3);
    world.run(&Request::Create { segments: 2, budget: 4 });
    world.run(&Request::Split { segment: SegmentId(0), into: 2 });
    world.run(&Request::Rebucket { segments: vec![SegmentId(1), SegmentId(2)], buckets: n(8) });
    world.run(&Request::Merge { a: SegmentId(5), b: SegmentId(3) });
    world.run(&Request::Split { segment: SegmentId(6), into: 3 });
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for (name, breaks) in MUTATIONS {
        let at = any::<prop::sample::Index>().new_tree(&mut runner).unwrap().current();
        let mut parts = world.layout().parts().clone();
        let named = breaks(&mut parts, at).unwrap_or_else(|| panic!("no place for `{name}`"));
        let found = check(&parts).unwrap_err();
        assert!(named(&found), "mutation `{name}` is named {found:?}");
    }
}

#[test]
fn a_step_that_rewrites_the_past_is_named() {
    let mut world = World::new(2);
    world.run(&Request::Create { segments: 1, budget: 4 });
    world.run(&Request::Split { segment: SegmentId(0), into: 2 });
    let before = world.layout().parts().clone();
    world.run(&Request::Merge { a: SegmentId(1), b: SegmentId(2) });
    let after = world.layout().parts().clone();
    assert_eq!(check_step(&before, &after), Ok(()));

    let broken = |change: fn(&mut Parts)| {
        let mut after = after.clone();
        change(&mut after);
        check_step(&before, &after).unwrap_err().to_string()
    };
    assert_eq!(broken(|after| after.epoch = Epoch(4)), "the layout goes from epoch `2` to `4`, it must be the next");
    assert_eq!(broken(|after| after.next_segment_id = SegmentId(2)), "the next segment id falls from `3` to `2`");
    assert_eq!(
        broken(|after| after.segments[0].state = State::Active),
        "segment `0` was sealed at epoch `2` and is not so any more"
    );
    assert_eq!(
        broken(|after| after.segments[1].buckets = Buckets::new(9).unwrap()),
        "segment `1` has another `buckets` than in the layout before"
    );
    let pruned = prune(&before, &[SegmentId(0)]);
    let mut back = before.clone();
    back.epoch = Epoch(4);
    assert_eq!(
        check_step(&pruned, &back).unwrap_err().to_string(),
        "segment `0` is new but below the next id `3` of the layout before"
    );
}

/// 0: 0000-3fff, 1: 4000-7fff, 2: 8000-bfff, sealed; 3: c000-ffff; 4: 8000-8000, 5..: the rest of 2; N = 2 but where split.
fn four() -> World {
    let mut world = World::new(2);
    world.run(&Request::Create { segments: 4, budget: 8 });
    world.run(&Request::Split { segment: SegmentId(2), into: 64 });
    world
}

#[test]
fn a_change_that_does_not_fit_has_its_reason_and_changes_nothing() {
    let id = SegmentId;
    let n = |n| Buckets::new(n).unwrap();
    let rows = [
        (Request::Split { segment: id(99), into: 2 }, "SegmentUnknown", "segment `99` is not in the layout"),
        (Request::Split { segment: id(2), into: 2 }, "SegmentSealed", "segment `2` is sealed"),
        (Request::Split { segment: id(0), into: 1 }, "IntoOutOfBounds", "a split into `1`, it must be 2 to 64"),
        (Request::Split { segment: id(0), into: 65 }, "IntoOutOfBounds", "a split into `65`, it must be 2 to 64"),
        (Request::Merge { a: id(0), b: id(2) }, "SegmentSealed", "segment `2` is sealed"),
        (Request::Merge { a: id(77), b: id(0) }, "SegmentUnknown", "segment `77` is not in the layout"),
        (
            Request::Merge { a: id(3), b: id(0) },
            "NotAdjacent",
            "segments `0` (0000-3fff) and `3` (c000-ffff) are not adjacent",
        ),
        (
            Request::Merge { a: id(0), b: id(0) },
            "NotAdjacent",
            "segments `0` (0000-3fff) and `0` (0000-3fff) are not adjacent",
        ),
        (
            Request::Rebucket { segments: vec![id(0), id(1)], buckets: n(2) },
            "BucketsUnchanged",
            "segment `0` already has `2` buckets",
        ),
        (
            Request::Rebucket { segments: vec![id(0)], buckets: n(1025) },
            "AboveCeiling",
            "`1025` buckets are above the ceiling of `1024`",
        ),
        (Request::Rebucket { segments: vec![id(2)], buckets: n(8) }, "SegmentSealed", "segment `2` is sealed"),
        (Request::Rebucket { segments: vec![], buckets: n(8) }, "NoSegment", "the rebucket names no segment"),
        (Request::Create { segments: 1, budget: 4 }, "AlreadyCreated", "the topic is already at epoch `2`"),
        (Request::Unsubscribe { name: "s".into() }, "SubscriptionUnknown", "subscription `s` is not in the topic"),
    ];
    let mut world = four();
    for (request, reason, message) in rows {
        let before = world.ledger.clone();
        let refusal = world.begin(&request, None).unwrap_err();
        assert_eq!((refusal.reason(), refusal.to_string().as_str()), (reason, message), "{request:?}");
        assert_eq!(world.ledger, before, "{request:?}");
    }
    world.run(&Request::Split { segment: id(4), into: 64 });
    let last = world.layout().next_segment_id().0 - 1;
    let refusal = world.begin(&Request::Split { segment: id(last), into: 5 }, None).unwrap_err();
    assert_eq!(refusal, Refusal::Unfit(Unfit::TooNarrow { id: id(last), size: 4, into: 5 }));
    assert_eq!(refusal.to_string(), format!("segment `{last}` owns `4` hashes, too few for `5` children"));
}

#[test]
fn a_topic_starts_with_1_to_1024_segments() {
    for segments in [0, 1025, u32::MAX] {
        let refusal = World::new(1).begin(&Request::Create { segments, budget: 4 }, None).unwrap_err();
        assert_eq!(refusal.reason(), "InitialOutOfBounds");
    }
    let mut world = World::new(3);
    world.run(&Request::Create { segments: 1024, budget: 4 });
    world.agrees();
}

#[test]
fn no_operation_makes_more_segments_than_the_status_can_list() {
    let mut world = World::new(1);
    world.run(&Request::Create { segments: 1024, budget: 4 });
    let all: Vec<SegmentId> = (0..1024).map(SegmentId).collect();
    world.run(&Request::Rebucket { segments: all, buckets: Buckets::new(2).unwrap() });
    assert_eq!(world.layout().segments().len(), SEGMENTS_MAX);
    let refusal = world.begin(&Request::Merge { a: SegmentId(1024), b: SegmentId(1025) }, None).unwrap_err();
    assert_eq!(refusal, Refusal::TooManySegments { found: SEGMENTS_MAX + 1 });
}

#[test]
fn buckets_follow_the_rules_of_each_operation() {
    let n = |n| Buckets::new(n).unwrap();
    let buckets = |world: &World| world.layout().active().map(|s| s.buckets.count()).collect::<Vec<_>>();
    let mut world = World::new(1);
    world.ceiling = n(8);
    world.run(&Request::Create { segments: 1, budget: 99 });
    assert_eq!(buckets(&world), [8]);
    world.run(&Request::Split { segment: SegmentId(0), into: 3 });
    assert_eq!(buckets(&world), [2, 2, 2]);
    world.run(&Request::Rebucket { segments: vec![SegmentId(1), SegmentId(2)], buckets: n(7) });
    assert_eq!(buckets(&world), [7, 7, 2]);
    world.run(&Request::Merge { a: SegmentId(4), b: SegmentId(5) });
    assert_eq!(buckets(&world), [8, 2]);
    world.ceiling = n(3);
    world.run(&Request::Split { segment: SegmentId(6), into: 2 });
    assert_eq!(buckets(&world), [3, 3, 2], "a lowered ceiling binds what is made from now on");
    world.run(&Request::Split { segment: SegmentId(3), into: 4 });
    assert_eq!(buckets(&world), [3, 3, 1, 1, 1, 1]);
    assert_eq!(
        buckets_keep_to_the_ceiling(world.layout().segments(), world.ceiling),
        Err(Violation::AboveCeiling { id: SegmentId(0), found: n(8), ceiling: n(3) })
    );
    Layout::new(world.layout().parts().clone()).unwrap();
}
