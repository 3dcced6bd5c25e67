//! Promise 1.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cluster::Cluster;
use crate::topic::Topic;
use crate::wait::holds;

pub(super) fn proof(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("ready")?;

    // Apply and wait in one breath, with nothing between.
    let topic = Topic::declare(cluster, &space, "at-once", &json!({}))?;
    cluster.wait_condition(&space, "stopic/at-once", "Ready", 30)?;
    cluster.wait_condition(&space, "ssub/at-once-group", "Ready", 30)?;
    let seen = topic.see()?;
    ensure!(seen.condition("Ready").1 == "Serving", "{}", seen.summary());
    ensure!(seen.epoch() == 1 && seen.buckets() == [4], "{}", seen.summary());

    // Nobody there to answer: Unknown, not absent, so that a wait waits.
    cluster.scale("deploy/braid-operator", 0)?;
    let outcome = (|| {
        let topic = Topic::declare(cluster, &space, "unheard", &json!({}))?;
        let look = || Ok((topic.see()?.condition("Ready").0, topic.see()?.condition("Ready").1));
        holds(
            "Ready of a topic without operator",
            Duration::from_secs(3),
            &("Unknown".to_owned(), "Pending".to_owned()),
            look,
        )?;
        ensure!(
            cluster.wait_condition(&space, "stopic/unheard", "Ready", 1).is_err(),
            "a wait must time out while Ready is Unknown"
        );
        Ok(())
    })();
    cluster.scale("deploy/braid-operator", 2)?;
    outcome?;
    cluster.wait_condition(&space, "stopic/unheard", "Ready", 60)?;
    cluster.wait_condition(&space, "ssub/unheard-group", "Ready", 30)?;
    cluster.remove(&space)
}
