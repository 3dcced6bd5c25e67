//! Promise 4: load rises and falls.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cluster::Cluster;
use crate::pods::{ClientPod, check};
use crate::records;
use crate::topic::{Topic, millis_since_epoch};
use crate::wait::holds;

pub(super) fn proof(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("load")?;
    // Threshold 500, so that 1,500 msg/s is three times it; each of four children carries about 375.
    let spec = json!({"autoscale": {
        "split": {"messagesInPerSecond": 500}, "merge": {"messagesInPerSecond": 50},
        "mergeWindowSeconds": 10, "mergeCooldownSeconds": 5,
    }});
    let topic = Topic::create(cluster, &space, "clicks", &spec)?;
    let group = topic.subscription();
    let mut consumer = ClientPod::start(
        cluster,
        &space,
        "consumer",
        &["consume", "clicks", "-n", &space, "--subscription", &group, "--record", "-"],
    )?;
    topic.until("the consumer", Duration::from_secs(30), |s| s.owners_of(0) == 1)?;
    let mut producer = ClientPod::start(
        cluster,
        &space,
        "producer",
        &["produce", "clicks", "-n", &space, "--rate", "1500", "--keys", "1000", "--duration", "25s", "--record", "-"],
    )?;

    let split =
        topic.until("one split into 4", Duration::from_secs(30), |s| s.epoch() == 2 && !s.operation_under_way())?;
    ensure!(split.active().len() == 4 && split.buckets() == [1, 1, 1, 1], "{}", split.summary());
    ensure!(split.last_decision().1 == "MessagesIn", "{}", split.summary());
    // The producer reports an error by its exit code.
    producer.finished(Duration::from_secs(60))?;
    let still = topic.see()?;
    ensure!(still.epoch() == 2, "one split, no more: {}", still.summary());
    let acked = records::read(&[&producer.records])?;
    let first = acked.iter().find(|r| r.event == "acked").map(|r| r.at / 1000).unwrap_or_default();
    let stamped = millis_since_epoch(&split.status()["autoscale"]["lastSplitTime"])?;
    ensure!(
        stamped.saturating_sub(first) <= 8_000,
        "the split came {} ms after the first message, the promise is 8,000",
        stamped.saturating_sub(first)
    );

    // The load is off: down to one segment, and it stays so.
    let merged = topic.until("merges down to minSegments", Duration::from_secs(120), |s| {
        s.active().len() == 1 && !s.operation_under_way()
    })?;
    merged.tiles()?;
    ensure!(merged.epoch() == 5, "4 -> 1 takes 3 merges, epoch 5: {}", merged.summary());
    ensure!(merged.last_decision().1 == "Cold", "{}", merged.summary());
    holds("the epoch after the merges", Duration::from_secs(15), &5, || Ok(topic.see()?.epoch()))?;

    consumer.stop()?;
    let report = check(cluster, &[&producer.records, &consumer.records])?;
    let (sent, got) =
        (records::count(&acked, "acked"), records::count(&records::read(&[&consumer.records])?, "delivered"));
    ensure!(sent == got, "acked {sent}, delivered {got}: {report}");
    cluster.remove(&space)
}
