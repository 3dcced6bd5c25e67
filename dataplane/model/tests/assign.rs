//! Who owns what, in a segment and in a group: vectors, and the properties that every assignment has.

use std::collections::{BTreeMap, BTreeSet};

use braid_model::assign::{Strategy, assign, contiguous, sticky};
use braid_model::spread::{owner_counts, spread};
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::strategy::Strategy as _;
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    slices: Vec<Slices>,
    owner_counts: Vec<Owners>,
}

#[derive(Deserialize)]
struct Slices {
    n: usize,
    k: usize,
    slices: Vec<[usize; 2]>,
}

#[derive(Deserialize)]
struct Owners {
    buckets: Vec<u32>,
    consumers: usize,
    owners: Vec<u32>,
    idle: usize,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("vectors/pulsar.json")).expect("the vectors are JSON of this form")
}

#[test]
fn contiguous_slices_are_those_of_the_vectors() {
    let rows = vectors().slices;
    assert_eq!(rows.len(), 9);
    for Slices { n, k, slices } in rows {
        let owners = contiguous(n, &(0..k).rev().collect::<Vec<_>>());
        for (member, [from, to]) in slices.into_iter().enumerate() {
            let owned: Vec<usize> = (0..n).filter(|&bucket| owners[bucket] == Some(member)).collect();
            assert_eq!(owned, (from..to).collect::<Vec<_>>(), "N {n}, k {k}, member {member}");
        }
    }
}

#[test]
fn owner_counts_are_those_of_the_vectors() {
    let rows = vectors().owner_counts;
    assert_eq!(rows.len(), 12);
    for Owners { buckets, consumers, owners, idle } in rows {
        assert_eq!(owner_counts(&buckets, consumers), owners, "{buckets:?} x {consumers}");
        for strategy in [Strategy::Sticky, Strategy::Contiguous] {
            let shares = spread(strategy, &buckets, &(0..consumers).collect::<Vec<_>>(), &BTreeMap::new());
            assert_eq!(shares.values().filter(|share| share.is_empty()).count(), idle, "{buckets:?} x {consumers}");
            for (segment, count) in owners.iter().enumerate() {
                let sharers = shares.values().filter(|share| share.contains(&segment)).count();
                assert_eq!(sharers as u32, *count, "{strategy:?} {buckets:?} x {consumers}, segment {segment}");
            }
        }
    }
}

fn counts(owners: &[Option<u32>], members: &[u32]) -> Vec<usize> {
    members.iter().map(|member| owners.iter().filter(|owner| **owner == Some(*member)).count()).collect()
}

fn moved<T: PartialEq>(before: &[T], after: &[T]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

proptest! {
    #[test]
    fn any_assignment_is_even_total_and_blind_to_the_order_of_members(
        n in 1usize..70,
        mut members in prop::collection::btree_set(0u32..40, 1..20).prop_map(|set| set.into_iter().collect::<Vec<_>>()),
        previous in prop::collection::vec(prop::option::of(0u32..40), 0..80),
        is_sticky: bool,
        seed in any::<prop::sample::Index>(),
    ) {
        let strategy = if is_sticky { Strategy::Sticky } else { Strategy::Contiguous };
        let owners = assign(strategy, n, &members, &previous);
        prop_assert_eq!(owners.len(), n);
        let counts = counts(&owners, &members);
        prop_assert_eq!(counts.iter().sum::<usize>(), n, "every bucket is owned by a member");
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
        let cut = seed.index(members.len());
        members.rotate_left(cut);
        members.reverse();
        prop_assert_eq!(assign(strategy, n, &members, &previous), owners);
    }

    /// Joins and leaves from an empty segment on: each moves no more than it must.
    #[test]
    fn a_join_moves_at_most_its_share_and_a_leave_only_the_leavers_buckets(
        n in 1usize..70,
        toggles in prop::collection::vec(0u32..12, 1..60),
    ) {
        let (mut members, mut owners) = (BTreeSet::new(), vec![None; n]);
        for who in toggles {
            let before = owners.clone();
            let k = members.len();
            let joins = members.insert(who);
            if !joins { members.remove(&who); }
            let all: Vec<u32> = members.iter().copied().collect();
            owners = sticky(n, &all, &before);
            let moves = moved(&before, &owners);
            if joins {
                prop_assert!(k == 0 || moves <= n.div_ceil(k + 1), "{} of {} moved to member {}", moves, n, k + 1);
                prop_assert!(before.iter().zip(&owners).all(|(b, o)| b == o || *o == Some(who)), "only the new one gains");
            } else {
                prop_assert!(before.iter().zip(&owners).all(|(b, o)| b == o || *b == Some(who)), "only the leaver loses");
            }
        }
    }

    #[test]
    fn a_group_uses_all_its_capacity_and_no_more(
        buckets in prop::collection::vec(1u32..9, 1..10),
        sessions in prop::collection::btree_set(0u32..60, 0..40).prop_map(|set| set.into_iter().collect::<Vec<_>>()),
        held in prop::collection::btree_map(0u32..60, prop::collection::btree_set(0usize..12, 0..4), 0..40),
        is_sticky: bool,
    ) {
        let strategy = if is_sticky { Strategy::Sticky } else { Strategy::Contiguous };
        let shares = spread(strategy, &buckets, &sessions, &held);
        prop_assert_eq!(shares.keys().copied().collect::<Vec<_>>(), sessions.clone());
        let owners: Vec<u32> =
            (0..buckets.len()).map(|i| shares.values().filter(|share| share.contains(&i)).count() as u32).collect();
        prop_assert_eq!(&owners, &owner_counts(&buckets, sessions.len()), "counts are always the round robin");
        if !sessions.is_empty() {
            prop_assert!(owners.iter().zip(&buckets).all(|(owned, n)| 1 <= *owned && owned <= n));
        }
        let idle = shares.values().filter(|share| share.is_empty()).count();
        prop_assert!(idle == 0 || owners == buckets, "idle {} with owners {:?} of {:?}", idle, owners, buckets);
        let lengths: Vec<usize> = shares.values().map(Vec::len).collect();
        if sessions.len() <= buckets.len() && !sessions.is_empty() {
            prop_assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1);
        } else {
            prop_assert!(lengths.iter().all(|length| *length <= 1), "a session shares one segment at most");
        }
        let mut shuffled = sessions.clone();
        shuffled.reverse();
        prop_assert_eq!(spread(strategy, &buckets, &shuffled, &held), shares);
    }

    #[test]
    fn an_idle_consumer_that_goes_moves_nobody(
        buckets in prop::collection::vec(1u32..5, 1..6),
        surplus in 1usize..6,
        order in subsequence((0u32..60).collect::<Vec<_>>(), 40),
    ) {
        let capacity = buckets.iter().sum::<u32>() as usize;
        let sessions: Vec<u32> = order.into_iter().take(capacity + surplus).collect();
        let shares = spread(Strategy::Sticky, &buckets, &sessions, &BTreeMap::new());
        let held: BTreeMap<u32, BTreeSet<usize>> =
            shares.iter().map(|(&session, share)| (session, share.iter().copied().collect())).collect();
        for idle in shares.iter().filter(|(_, share)| share.is_empty()).map(|(&session, _)| session) {
            let rest: Vec<u32> = sessions.iter().copied().filter(|&session| session != idle).collect();
            let mut expected = shares.clone();
            expected.remove(&idle);
            prop_assert_eq!(spread(Strategy::Sticky, &buckets, &rest, &held), expected);
        }
    }

    /// From any steady group: a join changes the work of few, an unchanged group that of nobody.
    #[test]
    fn a_steady_group_stays_as_it_is(
        buckets in prop::collection::vec(1u32..9, 1..10),
        joins in prop::collection::vec(0u32..200, 1..30),
    ) {
        let (mut sessions, mut held) = (BTreeSet::new(), BTreeMap::new());
        for who in joins {
            sessions.insert(who);
            let all: Vec<u32> = sessions.iter().copied().collect();
            let shares = spread(Strategy::Sticky, &buckets, &all, &held);
            held = shares.iter().map(|(&session, share)| (session, share.iter().copied().collect())).collect();
            prop_assert_eq!(spread(Strategy::Sticky, &buckets, &all, &held), shares);
        }
    }
}
