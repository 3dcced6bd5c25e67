//! Promise 7: a data-plane pod is killed under load.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::cluster::Cluster;
use crate::pods::{ClientPod, check};
use crate::records;
use crate::topic::Topic;
use crate::wait::{Answer, until};

pub(super) fn proof(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("loss")?;
    let topic = Topic::create(
        cluster,
        &space,
        "orders",
        &json!({"initialSegments": 3, "entryBucketBudget": 12, "autoscale": {"mode": "Off"}}),
    )?;
    let group = topic.subscription();
    let seen = topic.see()?;
    let home = seen.status()["home"]["store"].as_str().context("status.home.store")?.to_owned();
    let mut consumer = ClientPod::start(
        cluster,
        &space,
        "consumer",
        &["consume", "orders", "-n", &space, "--subscription", &group, "--members", "3", "--record", "-"],
    )?;
    topic.until("3 consumers", Duration::from_secs(30), |s| s.owners().0.iter().map(|(_, n)| n).sum::<u64>() == 3)?;
    let mut producer = ClientPod::start(
        cluster,
        &space,
        "producer",
        &["produce", "orders", "-n", &space, "--rate", "500", "--keys", "300", "--duration", "40s", "--record", "-"],
    )?;
    let acked = |n: usize| {
        until(&format!("{n} acked messages"), Duration::from_secs(60), || {
            let have = records::count(&records::read(&[&producer.records])?, "acked");
            Ok(Answer::when(have >= n, || format!("{have} acked")))
        })
    };
    // Once a node that only holds a segment, once the home of the group too.
    let other = seen
        .active()
        .iter()
        .map(|s| s.store.clone())
        .find(|s| *s != home)
        .context("segments on more than one store")?;
    for (store, before) in [(&other, 2000), (&home, 6000)] {
        acked(before)?;
        cluster.kill_pod(&cluster.system, store, "/braid-node")?;
        cluster.wait_condition(&cluster.system, &format!("pod/{store}"), "Ready", 60)?;
        topic.until("serving again", Duration::from_secs(60), |s| s.condition("Ready").0 == "True")?;
    }
    producer.finished(Duration::from_secs(120))?;
    let sent = records::count(&records::read(&[&producer.records])?, "acked");
    until("every acked message", Duration::from_secs(90), || {
        let done = records::count(&records::read(&[&consumer.records])?, "done");
        Ok(Answer::when(done >= sent, || format!("{done} of {sent} done")))
    })?;
    consumer.stop()?;
    let report = check(cluster, &[&producer.records, &consumer.records])?;
    ensure!(report["lost"] == 0 && report["outOfOrder"] == 0, "{report}");
    cluster.remove(&space)
}
