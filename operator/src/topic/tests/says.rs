//! What conditions and status say of policies and holds.

use super::world::World;

#[test]
fn an_invalid_combination_of_layers_names_both_fields_and_scales_nothing() {
    let mut world = World::new("{autoscale: {maxSegments: 4}}").subscribed("s");
    world.namespace_policy = Some("{minSegments: 6, maxSegments: 8}");
    world.settle();
    world.sessions.insert("s", 50);
    world.settle();
    assert_eq!(world.condition("ScalingActive"), ("False".into(), "InvalidPolicy".into()));
    assert_eq!(world.message("ScalingActive"), "`minSegments` 6 is above `maxSegments` 4");
    assert_eq!(world.condition("Ready"), ("True".into(), "Serving".into()));
    assert_eq!(world.shape(), [(0, 4)]);
    // Valid again: it scales at once.
    world.namespace_policy = Some("{minSegments: 1}");
    world.settle();
    assert_eq!(world.shape(), [(0, 64)]);
    let policy = world.status.autoscale.as_ref().unwrap().policy.clone().unwrap();
    assert_eq!((policy.min_segments, policy.max_segments, policy.split_floor), (1, 4, 1_000));
}

#[test]
fn holds_become_conditions() {
    let check = |spec: &str, load: ([u64; 4], Option<u64>), sessions: Option<u32>, expected: [&str; 3]| {
        let mut world = World::new(spec).subscribed("s");
        if let Some(sessions) = sessions {
            world.sessions.insert("s", sessions);
        }
        for id in 0..2 {
            world.loads.insert(id, load);
        }
        world.settle();
        world.settle();
        let found = ["ScalingActive", "AbleToScale", "ScalingLimited"].map(|type_| {
            let (status, reason) = world.condition(type_);
            format!("{status}/{reason}")
        });
        assert_eq!(found, expected, "{spec}");
    };
    let cold = ([0; 4], Some(0));
    let hot = ([30_000, 0, 0, 0], None);
    check("{}", cold, Some(1), ["True/ValidMetricFound", "True/ReadyForNewLayout", "False/DesiredWithinRange"]);
    check("{}", cold, None, ["False/SessionsUnknown", "True/ReadyForNewLayout", "False/DesiredWithinRange"]);
    check(
        "{autoscale: {mode: 'Off'}}",
        cold,
        Some(1),
        ["False/Off", "True/ReadyForNewLayout", "False/DesiredWithinRange"],
    );
    check(
        "{autoscale: {maxSegments: 1}}",
        hot,
        Some(1),
        ["True/ValidMetricFound", "True/ReadyForNewLayout", "True/AtMaxSegments"],
    );
    // Split at once; what is still hot then waits.
    check(
        "{autoscale: {maxSplitFactor: 2}}",
        hot,
        Some(1),
        ["True/ValidMetricFound", "False/SplitCooldown", "False/DesiredWithinRange"],
    );
}

#[test]
fn the_next_clock_is_told_in_whole_seconds_and_does_not_flicker() {
    let mut world = World::new("{initialSegments: 2, autoscale: {mergeWindowSeconds: 100}}");
    world.loads.insert(0, ([0; 4], Some(10)));
    world.loads.insert(1, ([0; 4], Some(20)));
    world.settle();
    let next = world.status.autoscale.as_ref().unwrap().next_eligible_time.clone().unwrap();
    assert_eq!(next, braid_crds::micro_time(braid_model::Micros(world.now.0 + 90_000_000)));
    assert_eq!(world.last.as_ref().unwrap().recheck_ms, 60_000);
    world.pass(40);
    world.loads.insert(0, ([0; 4], Some(50)));
    world.loads.insert(1, ([0; 4], Some(60)));
    let writes = world.writes;
    world.settle();
    assert_eq!((world.writes, world.last.as_ref().unwrap().recheck_ms), (writes, 50_000));
}
