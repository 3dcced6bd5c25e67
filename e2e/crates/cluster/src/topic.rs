//! A topic as its status shows it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::cluster::{Cluster, condition};
use crate::wait::{Answer, until};

/// A topic of one namespace.
pub(crate) struct Topic<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One read of a topic's status.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) object: Value,
}

/// A segment of the layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) buckets: u64,
    pub(crate) active: bool,
    pub(crate) parents: Vec<u64>,
    pub(crate) store: String,
}

impl<'a> Topic<'a> {
    /// Applies a topic with this `spec` (YAML flow or JSON) and, named `group`, an ordered subscription; waits for both to be ready.
    pub(crate) fn create(cluster: &'a Cluster, namespace: &str, name: &str, spec: &Value) -> Result<Self> {
        let topic = Self::declare(cluster, namespace, name, spec)?;
        cluster.wait_condition(namespace, &format!("stopic/{name}"), "Ready", 60)?;
        cluster.wait_condition(namespace, &format!("ssub/{name}-group"), "Ready", 60)?;
        Ok(topic)
    }

    /// Applies the topic and its subscription, waits for nothing.
    pub(crate) fn declare(cluster: &'a Cluster, namespace: &str, name: &str, spec: &Value) -> Result<Self> {
        let topic = serde_json::json!({"apiVersion": "braid.stream/v1alpha1", "kind": "ScalableTopic", "metadata": {"name": name}, "spec": spec});
        let group = serde_json::json!({
            "apiVersion": "braid.stream/v1alpha1", "kind": "Subscription", "metadata": {"name": format!("{name}-group")},
            "spec": {"topicRef": {"name": name}, "type": "Ordered"},
        });
        cluster.apply(namespace, &topic.to_string())?;
        cluster.apply(namespace, &group.to_string())?;
        Ok(Self { cluster, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    pub(crate) fn subscription(&self) -> String {
        format!("{}-group", self.name)
    }

    /// The status now.
    pub(crate) fn see(&self) -> Result<Seen> {
        Ok(Seen { object: self.cluster.json(&["stopic", &self.name, "-n", &self.namespace])? })
    }

    /// Changes the spec as `kubectl patch --type=merge` does.
    pub(crate) fn patch(&self, spec: &Value) -> Result<()> {
        let patch = serde_json::json!({"spec": spec}).to_string();
        self.cluster
            .kubectl(&["patch", "stopic", &self.name, "-n", &self.namespace, "--type=merge", "-p", &patch])
            .map(drop)
    }

    /// Waits until the status is as `wanted` says; the error shows what it was.
    pub(crate) fn until(&self, what: &str, limit: Duration, wanted: impl Fn(&Seen) -> bool) -> Result<Seen> {
        until(&format!("{}: {what}", self.name), limit, || {
            let seen = self.see()?;
            if wanted(&seen) { Ok(Answer::There(seen)) } else { Ok(Answer::NotYet(seen.summary())) }
        })
    }

    /// Applies a LayoutChange of this topic and waits until it is Complete or Failed: its reason.
    pub(crate) fn change(&self, name: &str, change: &Value) -> Result<Outcome> {
        self.request(name, change)?;
        self.outcome(name, Duration::from_secs(60))
    }

    /// Applies a LayoutChange of this topic.
    pub(crate) fn request(&self, name: &str, change: &Value) -> Result<()> {
        let mut spec = change.clone();
        spec["topicRef"] = serde_json::json!({"name": self.name});
        let object = serde_json::json!({"apiVersion": "braid.stream/v1alpha1", "kind": "LayoutChange", "metadata": {"name": name}, "spec": spec});
        self.cluster.apply(&self.namespace, &object.to_string())
    }

    pub(crate) fn outcome(&self, name: &str, limit: Duration) -> Result<Outcome> {
        until(&format!("LayoutChange {name} to end"), limit, || {
            let object = self.cluster.json(&["lchange", name, "-n", &self.namespace])?;
            let is = |kind: &str| {
                condition(&object, kind).filter(|c| c["status"] == "True").and_then(|c| c["reason"].as_str())
            };
            Ok(match (is("Complete"), is("Failed")) {
                (Some(reason), None) => Answer::There(Outcome::Complete(reason.to_owned())),
                (None, Some(reason)) => Answer::There(Outcome::Failed(reason.to_owned())),
                _ => Answer::NotYet(object["status"].to_string()),
            })
        })
    }
}

/// How a LayoutChange ended, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Complete(String),
    Failed(String),
}

impl Seen {
    pub(crate) fn status(&self) -> &Value {
        &self.object["status"]
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.status()["layout"]["epoch"].as_u64().unwrap_or_default()
    }

    pub(crate) fn condition(&self, kind: &str) -> (String, String, String) {
        let c = condition(&self.object, kind).cloned().unwrap_or_default();
        let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    /// Every segment of the layout, by id.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        let number = |v: &Value| v.as_u64().unwrap_or(u64::MAX);
        let all = self.status()["layout"]["segments"].as_array().cloned().unwrap_or_default();
        all.iter()
            .map(|s| Segment {
                id: number(&s["id"]),
                start: number(&s["start"]),
                end: number(&s["end"]),
                buckets: number(&s["buckets"]),
                active: s["state"] == "Active",
                parents: s["parents"].as_array().map(|p| p.iter().map(number).collect()).unwrap_or_default(),
                store: s["store"].as_str().unwrap_or_default().to_owned(),
            })
            .collect()
    }

    /// The active segments in ring order.
    pub(crate) fn active(&self) -> Vec<Segment> {
        let mut active: Vec<_> = self.segments().into_iter().filter(|s| s.active).collect();
        active.sort_by_key(|s| s.start);
        active
    }

    /// N of each active segment, in ring order.
    pub(crate) fn buckets(&self) -> Vec<u64> {
        self.active().iter().map(|s| s.buckets).collect()
    }

    /// Sessions per undrained segment, by id; and the idle ones.
    pub(crate) fn owners(&self) -> (Vec<(u64, u64)>, u64) {
        let number = |v: &Value| v.as_u64().unwrap_or_default();
        let owners = self.status()["owners"].as_array().cloned().unwrap_or_default();
        let idle = number(&self.status()["idleSessions"]);
        (owners.iter().map(|o| (number(&o["segment"]), number(&o["sessions"]))).collect(), idle)
    }

    /// The sessions of the segment in the status; 0 if it is not listed.
    pub(crate) fn owners_of(&self, segment: u64) -> u64 {
        self.owners().0.iter().find(|(id, _)| *id == segment).map_or(0, |(_, n)| *n)
    }

    /// The last change that the evaluator made, and its reason.
    pub(crate) fn last_decision(&self) -> (Value, String) {
        let last = &self.status()["autoscale"]["lastDecision"];
        (last["change"].clone(), last["reason"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) fn operation_under_way(&self) -> bool {
        self.status()["operation"].is_object()
    }

    /// Whether the active ranges tile the ring exactly.
    pub(crate) fn tiles(&self) -> Result<()> {
        let active = self.active();
        let mut next = 0;
        for segment in &active {
            ensure!(
                segment.start == next,
                "segment {} starts at {}, expected {next}: {active:?}",
                segment.id,
                segment.start
            );
            next = segment.end + 1;
        }
        ensure!(next == 65_536, "the ring ends at {next}, expected 65536: {active:?}");
        Ok(())
    }

    /// One line for errors.
    pub(crate) fn summary(&self) -> String {
        let segments: Vec<_> = self
            .segments()
            .iter()
            .map(|s| format!("{}{}:N{}", s.id, if s.active { "" } else { "(sealed)" }, s.buckets))
            .collect();
        let (owners, idle) = self.owners();
        format!(
            "epoch {}, segments {segments:?}, owners {owners:?}, idle {idle}, last {:?}, holds {}, ready {:?}, operation {}",
            self.epoch(),
            self.last_decision(),
            self.status()["autoscale"]["holds"],
            self.condition("Ready"),
            self.operation_under_way(),
        )
    }
}

/// Milliseconds from one RFC 3339 time of a status to another.
pub(crate) fn millis_since_epoch(time: &Value) -> Result<u64> {
    // 2026-12-01T00:00:00.123456Z; the API server's and our own clock are the same machine's.
    let text = time.as_str().context("a time is a string")?;
    let digits: Vec<u64> = text
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().unwrap_or_default())
        .collect();
    let [year, month, day, hour, minute, second, ..] = digits[..] else { anyhow::bail!("`{text}` is not a time") };
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let millis = text.split_once('.').map_or(0, |(_, f)| {
        let f: String = f.chars().take_while(char::is_ascii_digit).chain("000".chars()).take(3).collect();
        f.parse().unwrap_or_default()
    });
    Ok((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis)
}
