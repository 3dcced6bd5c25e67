//! The real machines against the real node: producers, members of a group and three nodes on memory stores, in one seeded world.
//!
//! Frames wait, channels break, stores sync late, nodes crash and come back; an operator splits, merges and rebuckets meanwhile.
#![allow(unused_crate_dependencies, reason = "dev-dependencies are shared by all test programs")]

mod world;

use world::{Hostility, World};

/// Splits, merges and rebuckets under traffic of two producers and up to four members; every promise is checked as it goes.
///
/// `BRAID_SEEDS=FROM..TO` plays other worlds than the usual forty.
fn check_all(usual: u64, hostility: Hostility) {
    let given = std::env::var("BRAID_SEEDS").ok();
    let given = given.as_deref().and_then(|range| range.split_once(".."));
    let (from, to) = given.map_or((usual, usual + 40), |(from, to)| (from.parse().unwrap(), to.parse().unwrap()));
    (from..to).for_each(|seed| check(seed, hostility));
}

fn check(seed: u64, hostility: Hostility) {
    let mut world = World::new(seed, hostility);
    world.create_topic();
    for _ in 0..4 {
        world.join();
    }
    for round in 0..6 {
        world.run(1_500);
        world.change();
        if round == 2 {
            world.leave();
        }
        if round == 3 {
            world.join();
        }
    }
    world.settle();
}

#[test]
fn keys_stay_whole_and_in_order_through_splits_merges_and_rebuckets() {
    check_all(0, Hostility::default());
}

#[test]
fn keys_stay_whole_and_in_order_when_channels_break() {
    check_all(100, Hostility { breaks: true, ..Hostility::default() });
}

#[test]
fn keys_stay_whole_and_in_order_when_nodes_crash_and_members_are_killed() {
    check_all(200, Hostility { breaks: true, crashes: true });
}
