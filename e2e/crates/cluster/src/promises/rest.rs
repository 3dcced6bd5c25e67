//! Promise 10: at rest, nothing is written.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::cluster::Cluster;
use crate::topic::Topic;

const KINDS: &str = "stopic,ssub,lchange,autoscalepolicies.braid.stream";
const TOPICS: usize = 20;

pub(super) fn proof(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("rest")?;
    for i in 0..TOPICS {
        Topic::declare(cluster, &space, &format!("topic-{i}"), &json!({}))?;
    }
    cluster.kubectl(&["wait", "-n", &space, "stopic,ssub", "--all", "--for=condition=Ready", "--timeout=120s"])?;
    // Other promises' namespaces are on their way out; what they still write is theirs.
    crate::wait::until("other namespaces to be gone", Duration::from_secs(120), || {
        let spaces = cluster.json(&["namespaces"])?;
        let leaving = spaces["items"]
            .as_array()
            .map_or(0, |all| all.iter().filter(|n| n["status"]["phase"] == "Terminating").count());
        Ok(crate::wait::Answer::when(leaving == 0, || format!("{leaving} terminating")))
    })?;
    // A new topic's status says more as its first samples come in; at rest is what follows.
    let mut last = versions(cluster)?;
    crate::wait::until("all to come to rest", Duration::from_secs(90), || {
        std::thread::sleep(Duration::from_secs(10));
        let now = versions(cluster)?;
        let still = now == last;
        last = now;
        Ok(crate::wait::Answer::when(still, || "written in the last 10 s".to_owned()))
    })?;
    let before = versions(cluster)?;
    ensure!(
        before.keys().filter(|k| k.starts_with(&format!("{space}/ScalableTopic/"))).count() == TOPICS,
        "{:?}",
        before.keys()
    );
    std::thread::sleep(Duration::from_secs(180));
    let after = versions(cluster)?;
    let moved: Vec<_> = after.iter().filter(|(name, version)| before.get(*name) != Some(version)).collect();
    let gone: Vec<_> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    ensure!(moved.is_empty() && gone.is_empty(), "written at rest: {moved:?}, gone: {gone:?}");
    cluster.remove(&space)
}

/// The resourceVersion of every object of Braid's kinds and of every object in its namespace, but Leases.
fn versions(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let kinds = cluster.kubectl(&["api-resources", "--verbs=list", "--namespaced", "-o", "name"])?;
    let kinds: Vec<_> =
        kinds.lines().filter(|k| !k.starts_with("leases.") && !k.ends_with(".metrics.k8s.io")).collect();
    let mut versions = BTreeMap::new();
    for args in [vec![KINDS, "-A"], vec![&kinds.join(","), "-n", &cluster.system]] {
        for object in cluster.json(&args)?["items"].as_array().context("items")? {
            let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
            let meta = &object["metadata"];
            let name = format!("{}/{}/{}", text(&meta["namespace"]), text(&object["kind"]), text(&meta["name"]));
            versions.insert(name, text(&meta["resourceVersion"]));
        }
    }
    Ok(versions)
}
