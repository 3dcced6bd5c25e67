//! Promise 5: a consumer joins, leaves, is killed mid-traffic.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cluster::Cluster;
use crate::pods::{ClientPod, check};
use crate::records::{self, Record};
use crate::topic::Topic;

const BUCKETS: u64 = 16;

pub(super) fn proof(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("members")?;
    let topic =
        Topic::create(cluster, &space, "orders", &json!({"entryBucketBudget": BUCKETS, "autoscale": {"mode": "Off"}}))?;
    let group = topic.subscription();
    let member = |name: &str| {
        let args = [
            "consume",
            "orders",
            "-n",
            &space,
            "--subscription",
            &group,
            "--name",
            name,
            "--work",
            "1ms",
            "--record",
            "-",
        ];
        ClientPod::start(cluster, &space, name, &args)
    };
    let owners = |n: u64| {
        topic.until(&format!("{n} consumers"), Duration::from_secs(30), |s| s.owners_of(0) == n && s.owners().1 == 0)
    };

    let mut a = member("a")?;
    let mut b = member("b")?;
    owners(2)?;
    let mut producer = ClientPod::start(
        cluster,
        &space,
        "producer",
        &["produce", "orders", "-n", &space, "--rate", "400", "--keys", "320", "--duration", "40s", "--record", "-"],
    )?;
    let steady = || -> Result<()> { flowing(&topic, &producer, 1200) };
    steady()?;
    let joined = now_us();
    let mut c = member("c")?;
    owners(3)?;
    flowing(&topic, &producer, 3000)?;
    let left = now_us();
    b.stop()?;
    owners(2)?;
    flowing(&topic, &producer, 6000)?;
    let killed = now_us();
    a.kill()?;
    owners(1)?;
    producer.finished(Duration::from_secs(90))?;
    // Everything acked by the producer reaches someone.
    let sent = records::count(&records::read(&[&producer.records])?, "acked");
    crate::wait::until("the last deliveries", Duration::from_secs(60), || {
        let lines = records::read(&[&a.records, &b.records, &c.records])?;
        let done = lines.iter().filter(|r| r.event == "done").count();
        Ok(crate::wait::Answer::when(done >= sent, || format!("{done} of {sent} done")))
    })?;
    c.stop()?;

    let report = check(cluster, &[&producer.records, &a.records, &b.records, &c.records])?;
    ensure!(report["lost"] == 0 && report["outOfOrder"] == 0, "{report}");
    let lines = records::read(&[&a.records, &b.records, &c.records])?;
    // A join moves at most ceil(16 / 3) = 6 buckets, all of them to the joiner; nothing moves between the two that stay.
    let before = owner_by_key(&lines, 0, joined);
    let between = owner_by_key(&lines, joined, left);
    let moved: Vec<_> = between
        .iter()
        .filter(|(key, _)| before.contains_key(*key))
        .filter(|(key, who)| who.as_str() != before[*key])
        .collect();
    ensure!(
        moved.iter().all(|(_, who)| who.as_str() == "c-0"),
        "keys moved between the members that stayed: {moved:?}"
    );
    ensure!(!moved.is_empty(), "the joiner got nothing");
    // A leave moves only the leaver's, a kill only the dead one's.
    for (from, to, gone) in [(left, killed, "b-0"), (killed, u64::MAX, "a-0")] {
        let (before, after) = (owner_by_key(&lines, joined, from), owner_by_key(&lines, from, to));
        let strangers: Vec<_> =
            after.iter().filter(|(key, who)| before.get(*key).is_some_and(|was| was != *who && was != gone)).collect();
        ensure!(strangers.is_empty(), "when `{gone}` went, keys of others moved: {strangers:?}");
    }
    cluster.remove(&space)
}

/// Waits until the producer has that many messages acked.
fn flowing(topic: &Topic, producer: &ClientPod, acked: usize) -> Result<()> {
    crate::wait::until(&format!("{acked} acked messages on {}", topic.name), Duration::from_secs(60), || {
        let have = records::count(&records::read(&[&producer.records])?, "acked");
        Ok(crate::wait::Answer::when(have >= acked, || format!("{have} acked")))
    })
}

/// Each key's last member in a span of time.
fn owner_by_key(lines: &[Record], from: u64, to: u64) -> BTreeMap<String, String> {
    let inside = lines.iter().filter(|r| r.event == "delivered" && (from..to).contains(&r.at));
    inside.map(|r| (r.key.clone(), r.member.clone())).collect()
}

fn now_us() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "records carry wall time")]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}
