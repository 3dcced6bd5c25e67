//! Promise 6: the operator dies after each single API write and each command of an operation, and the next one finishes it.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::operators::Operator;
use crate::pods::{ClientPod, check};
use crate::records;
use crate::topic::{Outcome, Topic};
use crate::wait::{Answer, until};

/// More points than any operation has; a run that reaches it has found an operation that never ends.
const POINTS_MAX: u32 = 40;

struct Case {
    operation: &'static str,
    initial_segments: u32,
    change: fn() -> Value,
    /// (range start, N) of the active segments afterwards.
    after: &'static [(u64, u64)],
}

const CASES: &[Case] = &[
    Case {
        operation: "split",
        initial_segments: 1,
        change: || json!({"split": {"segment": 0, "into": 2}}),
        after: &[(0, 2), (32_768, 2)],
    },
    Case {
        operation: "merge",
        initial_segments: 2,
        change: || json!({"merge": {"segments": [0, 1]}}),
        after: &[(0, 4)],
    },
    Case {
        operation: "rebucket",
        initial_segments: 3,
        change: || json!({"rebucket": {"segments": [0, 1, 2], "buckets": 4}}),
        after: &[(0, 4), (21_845, 4), (43_690, 4)],
    },
];

pub(super) fn proof(cluster: &Cluster) -> Result<()> {
    // Operators as processes of their own, one namespace each; the installed one would finish their work.
    cluster.scale("deploy/braid-operator", 0)?;
    let points = Mutex::new(Vec::new());
    let outcome = std::thread::scope(|scope| {
        let lanes: Vec<_> = CASES
            .iter()
            .map(|case| {
                scope.spawn(|| {
                    every_point(cluster, case).map(|n| points.lock().expect("no panic").push((case.operation, n)))
                })
            })
            .collect();
        lanes
            .into_iter()
            .map(|lane| lane.join().expect("a case reports errors, it does not panic"))
            .collect::<Result<Vec<_>>>()
    });
    cluster.scale("deploy/braid-operator", 2)?;
    outcome?;
    println!("promise  6: crash points {:?}", points.into_inner().expect("no panic"));
    Ok(())
}

/// Crashes at k = 1, 2, … until the operation ends before the k-th; returns how many points there were.
fn every_point(cluster: &Cluster, case: &Case) -> Result<u32> {
    let space = cluster.namespace(&format!("crash-{}", case.operation))?;
    for k in 1..=POINTS_MAX {
        let crashed = one_point(cluster, &space, case, k)
            .with_context(|| format!("BRAID_CRASH_AT={}:{k} in {space}", case.operation))?;
        if !crashed {
            ensure!(
                k > 4,
                "{} has {} crash points, it must have at least a plan, a create, a seal and a commit",
                case.operation,
                k - 1
            );
            cluster.remove(&space)?;
            return Ok(k - 1);
        }
    }
    bail!("{} has more than {POINTS_MAX} crash points", case.operation)
}

/// Whether the operator crashed; either way the operation finished, and no message was lost.
fn one_point(cluster: &Cluster, space: &str, case: &Case, k: u32) -> Result<bool> {
    let name = format!("{}-{k}", case.operation);
    let mut first = Operator::start(cluster, space, &format!("doomed-{k}"), Some(&format!("{}:{k}", case.operation)))?;
    let spec = json!({"initialSegments": case.initial_segments, "autoscale": {"mode": "Off"}});
    let topic = Topic::create(cluster, space, &name, &spec)?;
    let group = topic.subscription();
    let (count, producer_name, consumer_name) = ("600", format!("{name}-producer"), format!("{name}-consumer"));
    let produce = ["produce", &name, "-n", space, "--rate", "150", "--keys", "60", "--count", count, "--record", "-"];
    let mut producer = ClientPod::start(cluster, space, &producer_name, &produce)?;
    let consume = [
        "consume",
        &name,
        "-n",
        space,
        "--subscription",
        &group,
        "--members",
        "2",
        "--count",
        count,
        "--idle",
        "60s",
        "--record",
        "-",
    ];
    let mut consumer = ClientPod::start(cluster, space, &consumer_name, &consume)?;
    until("traffic", Duration::from_secs(30), || {
        let have = records::count(&records::read(&[&consumer.records])?, "done");
        Ok(Answer::when(have >= 50, || format!("{have} done")))
    })?;

    topic.request(&name, &(case.change)())?;
    // It dies at its k-th act; or the operation has fewer, and completes.
    let crashed = until("the crash, or the end of the operation", Duration::from_secs(40), || {
        if first.ended()? {
            return Ok(Answer::There(true));
        }
        let object = cluster.json(&["lchange", &name, "-n", space])?;
        let complete = crate::cluster::condition(&object, "Complete").is_some_and(|c| c["status"] == "True");
        if complete && first.crashed(Duration::from_secs(2))?.is_none() {
            Ok(Answer::There(false))
        } else {
            Ok(Answer::NotYet(object["status"].to_string()))
        }
    })?;
    drop(first);
    let _second = Operator::start(cluster, space, &format!("heir-{k}"), None)?;
    let outcome = topic.outcome(&name, Duration::from_secs(60))?;
    ensure!(matches!(outcome, Outcome::Complete(_)), "{outcome:?}");
    let seen = topic
        .until("the operation to be over", Duration::from_secs(30), |s| !s.operation_under_way() && s.epoch() == 2)?;
    seen.tiles()?;
    let shape: Vec<_> = seen.active().iter().map(|s| (s.start, s.buckets)).collect();
    ensure!(shape == case.after, "expected {:?}: {}", case.after, seen.summary());

    producer.finished(Duration::from_secs(60))?;
    consumer.finished(Duration::from_secs(60))?;
    check(cluster, &[&producer.records, &consumer.records])?;
    let (sent, got) = (
        records::count(&records::read(&[&producer.records])?, "acked"),
        records::count(&records::read(&[&consumer.records])?, "delivered"),
    );
    ensure!(sent == 600 && got == 600, "acked {sent}, delivered {got}, expected 600 of both");
    for object in [&producer_name, &consumer_name] {
        cluster.kubectl(&["delete", "pod", object, "-n", space, "--wait=false"])?;
    }
    cluster.kubectl(&["delete", "stopic", &name, "-n", space, "--wait=false"])?;
    cluster.kubectl(&["delete", "ssub", &group, "-n", space, "--wait=false"])?;
    Ok(crashed)
}
