//! Promises 2 and 3: consumers outnumber buckets on a cold topic.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::pods::{ClientPod, check};
use crate::records;
use crate::topic::Topic;
use crate::wait::holds;

const BACKLOG: usize = 3000;
const AFTER: usize = 1000;

/// Promise 2.
pub(super) fn cold_topic(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("cold")?;
    // Off until all have joined, so that each key has its consumer before the first message and keeps it.
    let topic = Topic::create(cluster, &space, "orders", &json!({"autoscale": {"mode": "Off"}}))?;
    let group = topic.subscription();
    let consume = [
        "consume",
        "orders",
        "-n",
        &space,
        "--subscription",
        &group,
        "--members",
        "5",
        "--work",
        "20ms",
        "--record",
        "-",
    ];
    let mut consumer = ClientPod::start(cluster, &space, "consumer", &consume)?;
    topic.until("4 owners and 1 idle", Duration::from_secs(30), |s| s.owners() == (vec![(0, 4)], 1))?;
    // Under the split floor, and three times what four consumers can do: the parent holds work when the successor appears.
    let mut before = produce(cluster, &space, "before", BACKLOG)?;
    before.finished(Duration::from_secs(60))?;
    topic.patch(&json!({"autoscale": {"mode": "Auto"}}))?;

    let seen =
        topic.until("one rebucket to 8", Duration::from_secs(30), |s| s.epoch() == 2 && !s.operation_under_way())?;
    ensure!(seen.buckets() == [8], "{}", seen.summary());
    ensure!(seen.last_decision().1 == "BelowSplitFloor", "{}", seen.summary());
    let during =
        topic.until("owners while the parent has backlog", Duration::from_secs(10), |s| s.owners_of(0) == 4)?;
    ensure!(during.owners_of(1) == 0 && during.owners().1 == 1, "parent 4, successor 0, idle 1: {}", during.summary());
    let after = topic.until("owners after the parent", Duration::from_secs(60), |s| s.owners_of(1) == 5)?;
    ensure!(after.owners_of(0) == 0 && after.owners().1 == 0, "parent 0, successor 5, idle 0: {}", after.summary());

    let mut late = produce(cluster, &space, "after", AFTER)?;
    late.finished(Duration::from_secs(60))?;
    let all = BACKLOG + AFTER;
    crate::wait::until("every message to be done", Duration::from_secs(90), || {
        let done = records::count(&records::read(&[&consumer.records])?, "done");
        Ok(crate::wait::Answer::when(done >= all, || format!("{done} of {all} done")))
    })?;
    consumer.stop()?;
    let report = check(cluster, &[&before.records, &late.records, &consumer.records])?;
    let lines = records::read(&[&consumer.records])?;
    let delivered = records::count(&lines, "delivered");
    ensure!(delivered == all, "delivered {delivered}, expected {all}: {report}");
    for segment in [0, 1] {
        for (key, members) in records::members_by_key(&lines, Some(segment)) {
            ensure!(members.len() == 1, "key `{key}` of segment {segment} was with {members:?}, expected one consumer");
        }
    }
    ensure!(topic.see()?.epoch() == 2, "no further change: {}", topic.see()?.summary());
    cluster.remove(&space)
}

fn produce<'a>(cluster: &'a Cluster, space: &str, name: &str, count: usize) -> Result<ClientPod<'a>> {
    let (count, prefix) = (count.to_string(), format!("{name}-"));
    let shape = ["--rate", "600", "--keys", "200", "--key-prefix", &prefix, "--count", &count];
    let args = [&["produce", "orders", "-n", space, "--record", "-"], &shape[..]].concat();
    ClientPod::start(cluster, space, name, &args)
}

/// Promise 3.
pub(super) fn surplus(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("surplus")?;
    decided_later(cluster, &space, "ten", 10, &[4, 4, 4, 4])?;
    decided_later(cluster, &space, "seventeen", 17, &[8, 8, 8, 8])?;
    decided_while_joining(cluster, &space)?;
    cluster.remove(&space)
}

fn spec(mode: &str) -> Value {
    json!({"initialSegments": 4, "autoscale": {"mode": mode, "maxSegments": 4}})
}

/// Consumers attach under mode Off; the switch to Auto brings one decision.
fn decided_later(cluster: &Cluster, space: &str, name: &str, members: u64, wanted: &[u64]) -> Result<()> {
    let topic = Topic::create(cluster, space, name, &spec("Off"))?;
    let mut consumer = members_of(cluster, space, &topic, members)?;
    let seen = topic.until("all sessions", Duration::from_secs(30), |s| {
        s.owners().0.iter().map(|(_, n)| n).sum::<u64>() + s.owners().1 == members
    })?;
    ensure!(seen.epoch() == 1 && seen.buckets() == [1, 1, 1, 1], "mode Off changes nothing: {}", seen.summary());
    ensure!(seen.owners().1 == members - 4, "4 owners, the rest idle: {}", seen.summary());
    topic.patch(&json!({"autoscale": {"mode": "Auto"}}))?;
    one_decision(&topic, members, wanted)?;
    consumer.stop()
}

/// Under Auto from the start, members that join within a second are one decision too.
fn decided_while_joining(cluster: &Cluster, space: &str) -> Result<()> {
    let topic = Topic::create(cluster, space, "joining", &spec("Auto"))?;
    let mut consumer = members_of(cluster, space, &topic, 10)?;
    one_decision(&topic, 10, &[4, 4, 4, 4])?;
    consumer.stop()
}

fn members_of<'a>(cluster: &'a Cluster, space: &str, topic: &Topic, members: u64) -> Result<ClientPod<'a>> {
    let (members, group, name) = (members.to_string(), topic.subscription(), format!("{}-consumer", topic.name));
    ClientPod::start(
        cluster,
        space,
        &name,
        &["consume", &topic.name, "-n", space, "--subscription", &group, "--members", &members],
    )
}

fn one_decision(topic: &Topic, members: u64, wanted: &[u64]) -> Result<()> {
    let seen =
        topic.until("one rebucket of all", Duration::from_secs(30), |s| s.epoch() == 2 && !s.operation_under_way())?;
    ensure!(seen.buckets() == wanted, "expected {wanted:?}: {}", seen.summary());
    ensure!(seen.last_decision().1 == "AtMaxSegments", "{}", seen.summary());
    topic.until("every member busy", Duration::from_secs(30), |s| {
        s.owners().1 == 0 && s.owners().0.iter().map(|(_, n)| n).sum::<u64>() == members
    })?;
    holds("the epoch", Duration::from_secs(5), &2, || Ok(topic.see()?.epoch()))
}
