//! Promise 11: layers of policy.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::pods::ClientPod;
use crate::topic::Topic;
use crate::wait::holds;

pub(super) fn proof(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("policies")?;
    policy(cluster, &space, &json!({"maxSegments": 8, "minSegments": 2, "split": {"messagesInPerSecond": 5000}}))?;
    let topic = Topic::create(
        cluster,
        &space,
        "layers",
        &json!({"autoscale": {"maxSegments": 4, "merge": {"messagesInPerSecond": 20}}}),
    )?;
    let effective = |policy: &Value| {
        policy["maxSegments"] == 4                                // the topic's own
            && policy["minSegments"] == 2                         // the namespace's
            && policy["split"]["messagesInPerSecond"] == 5000     // the namespace's
            && policy["merge"]["messagesInPerSecond"] == 20       // the topic's own
            && policy["split"]["bytesInPerSecond"] == 50_000_000  // the operator's
            && policy["splitFloor"] == 1000
    };
    topic.until("each field from its layer", Duration::from_secs(20), |s| {
        effective(&s.status()["autoscale"]["policy"])
    })?;

    // Valid apart, invalid together: minSegments 6 of the namespace above maxSegments 4 of the topic.
    policy(cluster, &space, &json!({"maxSegments": 8, "minSegments": 6, "split": {"messagesInPerSecond": 5000}}))?;
    let seen = topic.until("ScalingActive False/InvalidPolicy", Duration::from_secs(20), |s| {
        s.condition("ScalingActive").1 == "InvalidPolicy"
    })?;
    let (status, _, message) = seen.condition("ScalingActive");
    ensure!(status == "False", "{}", seen.summary());
    for part in ["minSegments", "6", "maxSegments", "4"] {
        ensure!(message.contains(part), "the message must name `{part}`: {message}");
    }
    ensure!(seen.condition("Ready").0 == "True", "it serves all the same: {}", seen.summary());

    // Five consumers on 1 x 4 would be a rebucket; nothing is scaled while the policy is invalid.
    let group = topic.subscription();
    let mut consumer = ClientPod::start(
        cluster,
        &space,
        "consumer",
        &["consume", "layers", "-n", &space, "--subscription", &group, "--members", "5"],
    )?;
    topic.until("5 sessions", Duration::from_secs(30), |s| s.owners_of(0) == 4 && s.owners().1 == 1)?;
    holds("the epoch under an invalid policy", Duration::from_secs(5), &1, || Ok(topic.see()?.epoch()))?;

    // Valid again: it scales at once.
    policy(cluster, &space, &json!({"maxSegments": 8, "minSegments": 1, "split": {"messagesInPerSecond": 5000}}))?;
    let seen = topic.until("the rebucket", Duration::from_secs(20), |s| s.epoch() == 2 && !s.operation_under_way())?;
    ensure!(seen.buckets() == [8], "{}", seen.summary());
    consumer.stop()?;
    cluster.remove(&space)
}

fn policy(cluster: &Cluster, space: &str, spec: &Value) -> Result<()> {
    let object = json!({"apiVersion": "braid.stream/v1alpha1", "kind": "AutoscalePolicy", "metadata": {"name": "default"}, "spec": spec});
    cluster.apply(space, &object.to_string())
}
