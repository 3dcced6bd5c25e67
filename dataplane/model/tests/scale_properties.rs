//! What the evaluator promises for every topic, not only for those of the vectors. A failing case prints its seed.

#![allow(unused_crate_dependencies, reason = "dev-dependencies are shared by all test programs")]

use std::collections::HashSet;

use braid_model::scale::{
    Change, Hold, Lane, LastChanges, Mode, Policy, Rates, Reason, Sample, Segment, Snapshot, Verdict, decide, estimate,
    next_eligible,
};
use braid_model::{Buckets, HashRange, Micros, SegmentId};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::FileFailurePersistence;

/// The moment at which every snapshot is judged.
const NOW: Micros = Micros(1_000_000_000_000);

fn ago(seconds: u64) -> Micros {
    Micros(NOW.0 - seconds * 1_000_000)
}

fn cases(cases: u32) -> ProptestConfig {
    let beside = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(beside)), ..ProptestConfig::default() }
}

// --- topics -------------------------------------------------------------------------------------------------------------

/// Ranges that tile the ring: 1 to `most` of them, some a single hash wide.
fn tiling(most: usize) -> impl Strategy<Value = Vec<HashRange>> {
    let border = prop_oneof![4 => 1..=u16::MAX, 1 => 1000..1010_u16, 1 => Just(u16::MAX)];
    proptest::collection::btree_set(border, 0..most).prop_map(|borders| {
        let starts: Vec<u16> = std::iter::once(0).chain(borders).collect();
        let ends = starts[1..].iter().map(|start| start - 1).chain([u16::MAX]);
        starts.iter().zip(ends).map(|(start, end)| HashRange::new(*start, end).unwrap()).collect()
    })
}

fn policy(most_segments: u32) -> impl Strategy<Value = Policy> {
    let bounds = (1..=most_segments).prop_flat_map(|max| (1..=max, Just(max)));
    let ceiling = select(vec![1, 2, 3, 4, 7, 8, 12, 16, 64, 1024, 65_536]);
    let thresholds = select(vec![
        ([10_000, 50_000_000, 50_000, 250_000_000], [1_000, 5_000_000, 5_000, 25_000_000]),
        ([2_000, 20_000_000, 30_000, 100_000_000], [1_999, 10_000_000, 20_000, 90_000_000]),
        ([2, 2, 2, 2], [1, 1, 1, 1]),
        ([300, 1_000, 400, 1_000], [299, 999, 399, 500]),
    ]);
    let floor = select(vec![0, 1, 500, 1000, 3000]);
    let others = (0..4_u32, select(vec![2, 4, 8, 16]), 0..3_u32);
    (bounds, ceiling, thresholds, floor, others).prop_map(
        |((min_segments, max_segments), ceiling, (split, merge), split_floor, (depth, factor, undrained))| Policy {
            min_segments,
            max_segments,
            ceiling,
            split_floor,
            max_merge_depth: depth,
            max_split_factor: factor,
            max_undrained_generations: undrained,
            split: Rates(split),
            merge: Rates(merge),
            ..Policy::default()
        },
    )
}

/// At most a quarter of what a number holds: the sum of two and a tenth is still a rate.
fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0), 3 => 0..300_u64, 3 => 0..2_500_u64, 2 => 0..40_000_u64, 1 => 0..u64::MAX / 4]
}

fn sample() -> impl Strategy<Value = Option<Sample>> {
    let age = prop_oneof![8 => 0..=20_u64, 1 => 21..100_u64];
    let cold_for = prop_oneof![8 => (300..900_u64).prop_map(Some), 1 => (0..300_u64).prop_map(Some), 1 => Just(None)];
    let some = ([rate(), rate(), rate(), rate()], age, cold_for, prop::bool::weighted(0.05));
    let some = some.prop_map(|(rates, age, cold_for, estimated)| {
        Some(Sample { rates: Rates(rates), sampled_at: ago(age), cold_since: cold_for.map(ago), estimated })
    });
    prop_oneof![15 => some, 1 => Just(None)]
}

/// Topics that tile the ring, with any load: not only such as a node would report.
fn topic(most: usize) -> impl Strategy<Value = Snapshot> {
    let buckets = select(vec![1, 1, 2, 2, 3, 4, 8, 16]);
    let details = (buckets, 0..4_u32, prop_oneof![5 => Just(0), 1 => 0..4_u32], sample()).boxed();
    let last = || prop_oneof![6 => Just(None), 1 => (0..400_u64).prop_map(|seconds| Some(ago(seconds)))];
    let sessions = prop_oneof![6 => 0..40_u64, 1 => any::<u64>()];
    let segments = tiling(most).prop_flat_map(move |ranges| {
        let details = proptest::collection::vec(details.clone(), ranges.len());
        let ids = Just((0..ranges.len() as u64).collect::<Vec<_>>()).prop_shuffle();
        (Just(ranges), ids, details)
    });
    (segments, proptest::collection::vec(sessions, 0..4), [last(), last(), last()]).prop_map(
        |((ranges, ids, details), sessions, [split, rebucket, merge])| Snapshot {
            segments: ranges
                .into_iter()
                .zip(ids)
                .zip(details)
                .map(|((range, id), (buckets, merge_depth, undrained_generations, sample))| Segment {
                    id: SegmentId(id),
                    range,
                    buckets: Buckets::new(buckets).unwrap(),
                    merge_depth,
                    undrained_generations,
                    sample,
                })
                .collect(),
            sessions,
            busy: false,
            home_silent_us: Some(0),
            last: LastChanges { split, merge, rebucket },
        },
    )
}

/// Topics whose lanes A and B hold without wanting to grow, or nearly so, and whose pairs are cold: the veto decides.
/// Narrow, blocked, unknown and hot segments, the cap, the floor and the capacity are all close by.
fn topic_at_the_brink() -> impl Strategy<Value = (Snapshot, Policy)> {
    let widths = proptest::collection::btree_set(prop_oneof![1 => 1000..1004_u16, 1 => any::<u16>()], 1..6);
    let messages_in = prop_oneof![3 => 0..300_u64, 3 => select(vec![454, 455, 499, 909, 999, 1000, 1001, 1002, 1101]), 1 => Just(2_001)];
    let buckets = select(vec![1_u32, 1, 2, 3, 4, 8]);
    let undrained = prop_oneof![6 => Just(0), 1 => Just(1_u32)];
    // Cold for the whole window; warm; unknown.
    let state = prop_oneof![12 => Just(0), 2 => Just(1), 1 => Just(2)];
    let details = proptest::collection::vec((messages_in, buckets, undrained, state), 6);
    let policy = (0..3_u32, select(vec![2, 3, 4, 8]), select(vec![0, 400, 500, 1000, 1001, 2000, 2001]), 0..2_u32);
    let ids = Just((0..6_u64).collect::<Vec<_>>()).prop_shuffle();
    (widths, details, ids, policy, 0..4_u64, 0..3_u64).prop_map(
        |(borders, details, ids, (room, ceiling, split_floor, undrained_most), basis, extra)| {
            let starts: Vec<u16> = std::iter::once(0).chain(borders.into_iter().filter(|start| *start > 0)).collect();
            let ends = starts[1..].iter().map(|start| start - 1).chain([u16::MAX]);
            let rows = starts.iter().zip(ends).zip(details).zip(ids);
            let segments: Vec<Segment> = rows
                .map(|(((start, end), (messages_in, buckets, undrained_generations, state)), id)| {
                    let cold_since = (state == 0).then_some(ago(400));
                    let rates = Rates([messages_in, 0, 0, 0]);
                    let sample = Sample { rates, sampled_at: NOW, cold_since, estimated: false };
                    Segment {
                        id: SegmentId(id),
                        range: HashRange::new(*start, end).unwrap(),
                        buckets: Buckets::new(buckets).unwrap(),
                        merge_depth: 0,
                        undrained_generations,
                        sample: (state != 2).then_some(sample),
                    }
                })
                .collect();
            let count = segments.len() as u64;
            // Around the counts at which an answer turns.
            let around = [count, capacity(&segments), count * u64::from(ceiling), 2 * count][basis as usize];
            let policy = Policy {
                max_segments: count as u32 + room,
                ceiling,
                split_floor,
                max_undrained_generations: undrained_most,
                split: Rates([2_000, 20_000_000, 30_000, 100_000_000]),
                ..Policy::default()
            };
            let sessions = vec![(around + extra).saturating_sub(1)];
            (Snapshot { segments, sessions, home_silent_us: Some(0), ..Snapshot::default() }, policy)
        },
    )
}

fn capacity(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.buckets.count())).sum()
}

fn consumers(seen: &Snapshot) -> u64 {
    seen.sessions.iter().copied().max().unwrap_or(0)
}

fn find(segments: &[Segment], id: SegmentId) -> &Segment {
    segments.iter().find(|segment| segment.id == id).expect("a change names segments of its snapshot")
}

// --- changes applied -----------------------------------------------------------------------------------------------------

/// The segments after `change`, without samples. Panics if a precondition of the change does not hold.
fn apply(segments: &[Segment], change: &Change, ceiling: u32) -> Vec<Segment> {
    let fresh = segments.iter().map(|segment| segment.id.0 + 1).max().unwrap_or(0);
    let (replaced, successors): (Vec<SegmentId>, Vec<Segment>) = match change {
        Change::Split { segment, into, .. } => {
            let parent = find(segments, *segment);
            assert!(*into >= 2 && into.is_power_of_two(), "into {into}");
            let ranges = parent.range.split(*into).expect("wide enough for its children");
            let buckets = Buckets::new((parent.buckets.count() / into).max(1)).unwrap();
            let child = |range| Segment { range, buckets, sample: None, ..parent.clone() };
            (vec![*segment], ranges.map(child).collect())
        }
        Change::Rebucket { segments: ids, buckets, .. } => {
            assert!(!ids.is_empty() && ids.is_sorted_by(|a, b| a < b), "ids {ids:?}");
            assert!(buckets.count() <= ceiling, "buckets {buckets}");
            let successor = |id: &SegmentId| {
                let parent = find(segments, *id);
                assert!(parent.buckets < *buckets, "segment {id} had {}", parent.buckets);
                Segment { buckets: *buckets, sample: None, ..parent.clone() }
            };
            (ids.clone(), ids.iter().map(successor).collect())
        }
        Change::Merge { a, b, .. } => {
            let (first, second) = (find(segments, *a), find(segments, *b));
            assert!(first.range.start() < second.range.start());
            let merger = Segment {
                id: SegmentId(0),
                range: first.range.union(second.range).expect("neighbours"),
                buckets: Buckets::new((first.buckets.count() + second.buckets.count()).min(ceiling)).unwrap(),
                merge_depth: first.merge_depth.max(second.merge_depth) + 1,
                undrained_generations: 0,
                sample: None,
            };
            (vec![*a, *b], vec![merger])
        }
    };
    let kept = segments.iter().filter(|segment| !replaced.contains(&segment.id)).cloned();
    let fresh = (fresh..).zip(successors).map(|(id, segment)| Segment { id: SegmentId(id), ..segment });
    kept.chain(fresh).collect()
}

/// Traffic that does not change: fixed rates at fixed hashes.
#[derive(Clone, Debug)]
struct Traffic(Vec<(u16, [u64; 4])>);

impl Traffic {
    fn measure(&self, range: HashRange, merge: &Rates) -> Sample {
        let mut rates = [0; 4];
        for (_, at) in self.0.iter().filter(|(hash, _)| range.contains(*hash)) {
            for (sum, rate) in rates.iter_mut().zip(at) {
                *sum += rate;
            }
        }
        let rates = Rates(rates);
        let cold_since = rates.all_under(merge).then(|| ago(100_000));
        Sample { rates, sampled_at: NOW, cold_since, estimated: false }
    }
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let rate = || prop_oneof![2 => Just(0), 3 => 0..200_u64, 2 => 0..2_500_u64, 1 => 0..40_000_u64];
    let hash = prop_oneof![4 => any::<u16>(), 1 => 1000..1010_u16];
    proptest::collection::vec((hash, [rate(), rate(), rate(), rate()]), 0..60).prop_map(Traffic)
}

// --- a second opinion ----------------------------------------------------------------------------------------------------

/// What lane C says, worked out the long way: the veto rebuilds the whole topic with the merger and asks lanes A and B.
fn merge_lane_by_hand(seen: &Snapshot, policy: &Policy) -> Result<Change, Hold> {
    let within = |last: Option<Micros>, seconds: u64| last.is_some_and(|last| NOW.since(last) < seconds * 1_000_000);
    if seen.segments.len() <= policy.min_segments as usize {
        return Err(Hold::AtMinSegments);
    }
    if within(seen.last.merge, policy.merge_cooldown_seconds) {
        return Err(Hold::MergeCooldown);
    }
    let mut order: Vec<&Segment> = seen.segments.iter().collect();
    order.sort_by_key(|segment| segment.range.start());
    let total = capacity(&seen.segments);
    let stages = [
        Hold::NotCold,
        Hold::MergeDepthReached,
        Hold::UndrainedGenerations,
        Hold::CapacityInUse,
        Hold::WouldSplitAgain,
    ];
    let mut furthest = 0;
    let mut passing = Vec::new();
    for pair in order.windows(2) {
        let [a, b] = [pair[0], pair[1]];
        let is_cold = |segment: &Segment| {
            segment.sample.is_some_and(|sample| {
                NOW.since(sample.sampled_at) <= policy.sample_stale_seconds * 1_000_000
                    && !sample.estimated
                    && sample.cold_since.is_some_and(|since| !within(Some(since), policy.merge_window_seconds))
            })
        };
        let either = |test: &dyn Fn(&Segment) -> bool| test(a) || test(b);
        let both = u64::from(a.buckets.count() + b.buckets.count());
        let would_grow = || {
            let rates = |segment: &Segment| segment.sample.expect("cold").rates.0;
            let load = std::array::from_fn(|i| {
                let sum = u128::from(rates(a)[i]) + u128::from(rates(b)[i]);
                u64::try_from(sum * 11 / 10 + 1).expect("the rates are small enough")
            });
            let merge = Change::Merge { a: a.id, b: b.id, reason: Reason::Cold };
            let mut segments = apply(&seen.segments, &merge, policy.ceiling);
            let sample = Sample { rates: Rates(load), sampled_at: NOW, cold_since: None, estimated: false };
            segments.last_mut().unwrap().sample = Some(sample);
            let merged = Snapshot { segments, last: LastChanges::default(), ..seen.clone() };
            // With as many segments wanted at least, lane C holds: a change is one of lanes A and B.
            decide(&merged, &Policy { min_segments: u32::MAX, ..policy.clone() }, NOW).change.is_some()
        };
        let failed = if either(&|segment| !is_cold(segment)) {
            Some(0)
        } else if either(&|segment| segment.merge_depth >= policy.max_merge_depth) {
            Some(1)
        } else if either(&|segment| segment.undrained_generations > policy.max_undrained_generations) {
            Some(2)
        } else if total - both + both.min(u64::from(policy.ceiling)) < consumers(seen).min(total) {
            Some(3)
        } else if would_grow() {
            Some(4)
        } else {
            None
        };
        match failed {
            Some(stage) => furthest = furthest.max(stage),
            None => {
                let heat = |segment: &Segment| {
                    let rates = segment.sample.expect("cold").rates.0;
                    let heats = rates.iter().zip(policy.merge.0);
                    heats.map(|(rate, threshold)| u128::from(*rate) * 1_000_000 / u128::from(threshold)).max().unwrap()
                };
                passing.push((heat(a) + heat(b), a.range.start(), a.id, b.id));
            }
        }
    }
    match passing.into_iter().min() {
        Some((_, _, a, b)) => Ok(Change::Merge { a, b, reason: Reason::Cold }),
        None => Err(stages[furthest]),
    }
}

/// Lane C agrees with the long way, if it was asked at all.
fn assert_merge_lane_agrees(seen: &Snapshot, policy: &Policy) -> Result<(), TestCaseError> {
    let verdict = decide(seen, policy, NOW);
    let acts_before = matches!(verdict.change, Some(Change::Split { .. } | Change::Rebucket { .. }));
    let held = verdict.holds.iter().find(|(lane, _)| *lane == Lane::Merge).map(|(_, hold)| *hold);
    if acts_before || held == Some(Hold::ScaleUpPending) {
        return Ok(());
    }
    let found = match (verdict.change, held) {
        (Some(change), None) => Ok(change),
        (None, Some(hold)) => Err(hold),
        other => panic!("the merge lane answered {other:?}"),
    };
    prop_assert_eq!(found, merge_lane_by_hand(seen, policy));
    Ok(())
}

// --- promises ------------------------------------------------------------------------------------------------------------

/// Any topic at all, also impossible ones: ranges that overlap or leave gaps, ids twice, huge numbers.
fn nonsense() -> impl Strategy<Value = Snapshot> {
    let huge = || prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), 0..10_u64];
    let micros = move || huge().prop_map(Micros);
    let range = (any::<u16>(), any::<u16>()).prop_map(|(a, b)| HashRange::new(a.min(b), a.max(b)).unwrap());
    let cold = proptest::option::of(micros());
    let sample = ([huge(), huge(), huge(), huge()], micros(), cold, any::<bool>()).prop_map(
        |(rates, sampled_at, cold_since, estimated)| Sample { rates: Rates(rates), sampled_at, cold_since, estimated },
    );
    let segment = (huge(), range, 1..=65_536_u32, any::<u32>(), any::<u32>(), proptest::option::of(sample)).prop_map(
        |(id, range, buckets, merge_depth, undrained_generations, sample)| Segment {
            id: SegmentId(id),
            range,
            buckets: Buckets::new(buckets).unwrap(),
            merge_depth,
            undrained_generations,
            sample,
        },
    );
    let last = [proptest::option::of(micros()), proptest::option::of(micros()), proptest::option::of(micros())];
    let segments = proptest::collection::vec(segment, 0..12);
    let sessions = proptest::collection::vec(huge(), 0..4);
    (segments, sessions, prop::bool::weighted(0.1), proptest::option::weighted(0.9, 0..30_000_000_u64), last).prop_map(
        |(segments, sessions, busy, home_silent_us, [split, merge, rebucket])| Snapshot {
            segments,
            sessions,
            busy,
            home_silent_us,
            last: LastChanges { split, merge, rebucket },
        },
    )
}

/// Any policy at all, valid or not.
fn any_policy() -> impl Strategy<Value = Policy> {
    let small = || prop_oneof![any::<u32>(), Just(0), Just(u32::MAX), 0..10_u32];
    let huge = || prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), 0..1000_u64];
    let mode = select(vec![Mode::Auto, Mode::Auto, Mode::Recommend, Mode::Off]);
    let counts = [small(), small(), small(), small(), small(), small()];
    let longs = [huge(), huge(), huge(), huge(), huge(), huge(), huge()];
    let thresholds = [[huge(), huge(), huge(), huge()], [huge(), huge(), huge(), huge()]];
    (mode, counts, longs, thresholds).prop_map(|(mode, counts, longs, [split, merge])| Policy {
        mode,
        min_segments: counts[0],
        max_segments: counts[1],
        ceiling: counts[2],
        split_floor: longs[0],
        max_merge_depth: counts[3],
        max_split_factor: counts[4],
        max_undrained_generations: counts[5],
        sample_stale_seconds: longs[1],
        load_window_seconds: longs[2],
        split_cooldown_seconds: longs[3],
        rebucket_cooldown_seconds: longs[4],
        merge_cooldown_seconds: longs[5],
        merge_window_seconds: longs[6],
        split: Rates(split),
        merge: Rates(merge),
    })
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn every_question_has_one_answer(seen in nonsense(), policy in any_policy(), now in any::<u64>()) {
        let now = Micros(now);
        let verdict = decide(&seen, &policy, now);
        prop_assert_eq!(&verdict, &decide(&seen, &policy, now));
        let lanes: Vec<Lane> = verdict.holds.iter().map(|(lane, _)| *lane).collect();
        prop_assert!(lanes.is_sorted_by(|a, b| a < b), "lanes {:?}", lanes);
        prop_assert!(lanes.len() == 1 || !lanes.contains(&Lane::All));
        prop_assert!(verdict.change.is_some() || !verdict.holds.is_empty(), "an answer without a reason");
        if let Some(end) = next_eligible(&seen, &policy, now) {
            prop_assert!(end > now);
        }
        for segment in &seen.segments {
            let parents = seen.segments.iter().map(|parent| (parent.range, parent.sample.as_ref()));
            let _ = estimate(segment.range, parents, now);
        }
    }

    #[test]
    fn what_is_proposed_can_be_done_and_no_order_of_the_segments_matters(
        (seen, shuffled) in topic(12).prop_flat_map(|seen| {
            let shuffled = Just(seen.segments.clone()).prop_shuffle();
            (Just(seen), shuffled)
        }),
        policy in policy(16),
    ) {
        prop_assert_eq!(policy.validate(), Ok(()));
        let verdict = decide(&seen, &policy, NOW);
        prop_assert_eq!(&verdict, &decide(&Snapshot { segments: shuffled, ..seen.clone() }, &policy, NOW));
        if let Some(change) = &verdict.change {
            let after = apply(&seen.segments, change, policy.ceiling);
            if let Change::Split { .. } = change {
                prop_assert!(after.len() <= policy.max_segments as usize);
            }
            if let Change::Merge { .. } = change {
                prop_assert!(after.len() >= policy.min_segments as usize);
            }
        }
    }

    #[test]
    fn recommend_answers_like_auto(seen in topic(8), policy in policy(16)) {
        let recommend = Policy { mode: Mode::Recommend, ..policy.clone() };
        prop_assert_eq!(decide(&seen, &policy, NOW), decide(&seen, &recommend, NOW));
    }

    #[test]
    fn after_a_rebucket_every_consumer_that_can_have_a_bucket_has_one(seen in topic(8), policy in policy(8)) {
        let mut seen = seen;
        for segment in &mut seen.segments {
            segment.undrained_generations = 0;
        }
        let Verdict { change: Some(change @ Change::Rebucket { .. }), .. } = decide(&seen, &policy, NOW) else {
            return Ok(());
        };
        let after = apply(&seen.segments, &change, policy.ceiling);
        let most = after.len() as u64 * u64::from(policy.ceiling);
        prop_assert!(capacity(&after) >= consumers(&seen).min(most));
        // All are equal, unless some had more before.
        let Change::Rebucket { buckets, segments, .. } = change else { unreachable!("matched above") };
        for segment in &seen.segments {
            prop_assert!(segments.contains(&segment.id) || segment.buckets >= buckets);
        }
    }

    #[test]
    fn a_merge_takes_no_bucket_from_a_consumer(seen in topic(8), policy in policy(8)) {
        if let Verdict { change: Some(change @ Change::Merge { .. }), .. } = decide(&seen, &policy, NOW) {
            let after = apply(&seen.segments, &change, policy.ceiling);
            let served = |segments: &[Segment]| consumers(&seen).min(capacity(segments));
            prop_assert!(served(&after) >= served(&seen.segments));
        }
    }

    #[test]
    fn the_quick_merge_lane_says_what_the_long_way_says(seen in topic(8), policy in policy(10)) {
        assert_merge_lane_agrees(&seen, &policy)?;
    }
}

proptest! {
    // Cheap, and each way to be wrong is rare.
    #![proptest_config(cases(40_000))]

    #[test]
    fn the_quick_veto_says_what_rebuilding_the_topic_says((seen, policy) in topic_at_the_brink()) {
        assert_merge_lane_agrees(&seen, &policy)?;
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn under_fixed_traffic_a_topic_comes_to_rest_and_never_takes_a_shape_twice(
        policy in policy(24),
        ranges in tiling(24),
        buckets in proptest::collection::vec(select(vec![1_u32, 1, 2, 4, 8, 64]), 24),
        traffic in traffic(),
        sessions in prop_oneof![Just(0), 0..8_u64, 0..100_u64, 0..5000_u64],
    ) {
        prop_assume!(ranges.len() <= policy.max_segments as usize);
        let mut segments: Vec<Segment> = ranges.into_iter().zip(buckets).enumerate().map(|(id, (range, buckets))| Segment {
            id: SegmentId(id as u64),
            range,
            buckets: Buckets::new(buckets.min(policy.ceiling)).unwrap(),
            merge_depth: 0,
            undrained_generations: 0,
            sample: None,
        }).collect();
        let mut shapes = HashSet::new();
        let bound = 2 * policy.max_segments + 8;
        for step in 0..=bound {
            for segment in &mut segments {
                segment.sample = Some(traffic.measure(segment.range, &policy.merge));
            }
            let seen = Snapshot {
                segments: segments.clone(),
                sessions: vec![sessions],
                home_silent_us: Some(0),
                ..Snapshot::default()
            };
            let mut shape: Vec<_> = segments.iter().map(|segment| (segment.range.start(), segment.buckets)).collect();
            shape.sort_unstable();
            prop_assert!(shapes.insert(shape), "step {} takes an earlier shape again", step);
            match decide(&seen, &policy, NOW).change {
                None => return Ok(()),
                Some(change) => segments = apply(&segments, &change, policy.ceiling),
            }
        }
        prop_assert!(false, "still changing after {} steps", bound);
    }
}
