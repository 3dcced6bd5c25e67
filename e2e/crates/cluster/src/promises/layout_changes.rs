//! Promise 8: the manual lever.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::topic::{Outcome, Topic};

pub(super) fn proof(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("changes")?;
    let topic = Topic::create(cluster, &space, "orders", &json!({"autoscale": {"mode": "Off"}}))?;

    complete(&topic, "split", &json!({"split": {"segment": 0, "into": 3}}))?;
    let seen = topic.see()?;
    let shape: Vec<_> = seen.active().iter().map(|s| (s.id, s.start, s.end, s.buckets)).collect();
    ensure!(shape == [(1, 0, 21_845, 1), (2, 21_846, 43_690, 1), (3, 43_691, 65_535, 1)], "{}", seen.summary());
    complete(&topic, "rebucket", &json!({"rebucket": {"segments": [1, 2], "buckets": 4}}))?;
    let seen = topic.see()?;
    ensure!(seen.epoch() == 3 && seen.buckets() == [4, 4, 1], "one epoch for both: {}", seen.summary());
    complete(&topic, "merge", &json!({"merge": {"segments": [4, 5]}}))?;
    let seen = topic.see()?;
    let shape: Vec<_> = seen.active().iter().map(|s| (s.id, s.start, s.end, s.buckets)).collect();
    ensure!(seen.epoch() == 4 && shape == [(6, 0, 43_690, 8), (3, 43_691, 65_535, 1)], "{}", seen.summary());

    // A segment of width 1 to refuse, made by splitting down the right edge: 65536 -> 1024 -> 16 -> 1.
    let narrow = Topic::create(cluster, &space, "narrow", &json!({"autoscale": {"mode": "Off"}}))?;
    for (step, into) in [64, 64, 16].into_iter().enumerate() {
        let rightmost = narrow.see()?.active().last().map(|s| s.id).unwrap_or_default();
        complete(&narrow, &format!("step-{step}"), &json!({"split": {"segment": rightmost, "into": into}}))?;
    }
    let last = narrow.see()?.active().last().cloned();
    let last = last.filter(|s| s.end == s.start).map(|s| s.id);
    let rejections: Vec<(&str, Option<(&Topic, Value)>, &str)> = vec![
        ("unknown", Some((&topic, json!({"split": {"segment": 99, "into": 2}}))), "SegmentUnknown"),
        ("sealed", Some((&topic, json!({"split": {"segment": 0, "into": 2}}))), "SegmentSealed"),
        ("same-n", Some((&topic, json!({"rebucket": {"segments": [6], "buckets": 8}}))), "BucketsUnchanged"),
        ("above", Some((&topic, json!({"rebucket": {"segments": [6], "buckets": 2048}}))), "AboveCeiling"),
        ("apart", Some((&narrow, json!({"merge": {"segments": [1, 3]}}))), "NotAdjacent"),
        ("too-narrow", last.map(|id| (&narrow, json!({"split": {"segment": id, "into": 2}}))), "TooNarrow"),
    ];
    for (name, request, reason) in rejections {
        let Some((of, change)) = request else {
            anyhow::bail!("no segment of width 1 came of the splits: {}", narrow.see()?.summary())
        };
        let before = of.see()?;
        let outcome = of.change(&format!("bad-{name}"), &change)?;
        ensure!(outcome == Outcome::Failed(reason.to_owned()), "{name}: {outcome:?}, expected Failed/{reason}");
        let after = of.see()?;
        ensure!(
            after.status()["layout"] == before.status()["layout"],
            "{name} changed the layout: {}",
            after.summary()
        );
    }
    let missing = Topic { cluster, namespace: space.clone(), name: "nowhere".to_owned() };
    let outcome = missing.change("bad-topic", &json!({"split": {"segment": 0, "into": 2}}))?;
    ensure!(outcome == Outcome::Failed("TopicNotFound".to_owned()), "{outcome:?}");
    cluster.remove(&space)
}

fn complete(topic: &Topic, name: &str, change: &Value) -> Result<()> {
    let outcome = topic.change(&format!("{}-{name}", topic.name), change)?;
    ensure!(matches!(outcome, Outcome::Complete(_)), "{name}: {outcome:?}, expected Complete");
    topic.see()?.tiles()
}
