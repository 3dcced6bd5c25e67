//! `braid status`: a topic as its resource shows it, drawn as a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use braid_crds::{ScalableTopic, ScalableTopicStatus, SegmentState, SegmentStatus, Subscription};
use kube::api::{Api, ListParams};
use serde_json::json;

/// Show a topic: its segments and how they came about, who reads them, and what the evaluator last said.
///
/// Reads the resources through the kubeconfig; needs no connection to the data plane.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  braid status orders -n shop
  braid status orders -n shop -o json | jq .status.autoscale.holds")]
pub(crate) struct Args {
    /// The topic's name
    topic: String,
    /// The topic's namespace [default: that of the kubeconfig's context]
    #[arg(short, long)]
    namespace: Option<String>,
    /// How it is shown
    #[arg(short, long, value_enum, default_value_t = Output::Tree)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Tree,
    Json,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = kube::Client::try_default().await.context("kubeconfig")?;
    let namespace = args.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let topics = Api::<ScalableTopic>::namespaced(client.clone(), &namespace);
    let topic = topics.get(&args.topic).await.with_context(|| format!("stopic `{namespace}/{}`", args.topic))?;
    let chosen = ListParams::default().fields(&format!("spec.topicRef.name={}", args.topic));
    let subscriptions = Api::<Subscription>::namespaced(client, &namespace).list(&chosen).await?.items;
    let status = topic.status.unwrap_or_default();
    match args.output {
        Output::Json => {
            let subscriptions: BTreeMap<_, _> =
                subscriptions.iter().map(|s| (s.metadata.name.clone().unwrap_or_default(), &s.status)).collect();
            let shown = json!({
                "namespace": namespace, "name": args.topic, "status": status, "subscriptions": subscriptions,
            });
            println!("{}", serde_json::to_string_pretty(&shown)?);
        }
        Output::Tree => {
            print!("{namespace}/{}  {}", args.topic, draw(&status));
            subscriptions.iter().for_each(|subscription| println!("{}", line(subscription)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(subscription: &Subscription) -> String {
    let status = subscription.status.clone().unwrap_or_default();
    let number = |n: Option<i32>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    format!(
        "subscription {}: {} sessions, {} idle, backlog {}",
        subscription.metadata.name.as_deref().unwrap_or_default(),
        number(status.sessions),
        number(status.idle_sessions),
        status.backlog.as_deref().unwrap_or("?"),
    )
}

/// Everything below the name.
fn draw(status: &ScalableTopicStatus) -> String {
    let mut text = String::new();
    let Some(layout) = &status.layout else {
        return "no segments yet\n".into();
    };
    let segments: BTreeMap<i64, &SegmentStatus> = layout.segments.iter().map(|s| (s.id, s)).collect();
    let owners: BTreeMap<i64, i32> = status.owners.iter().map(|o| (o.segment, o.sessions)).collect();
    let home = status.home.as_ref().map_or("none", |home| home.store.as_str());
    // Writing to a String cannot fail.
    let _ = writeln!(text, "epoch {}  home {home}", layout.epoch);
    for condition in &status.conditions {
        let _ = write!(text, "{}={}/{}  ", condition.type_, condition.status, condition.reason);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    let known = |ids: &[i64]| ids.iter().copied().filter(|id| segments.contains_key(id)).collect::<Vec<_>>();
    let mut tree = Tree { segments: &segments, owners: &owners, drawn: BTreeSet::new(), text };
    let roots: Vec<_> = layout.segments.iter().filter(|s| known(&s.parents).is_empty()).map(|s| s.id).collect();
    for (i, root) in roots.iter().enumerate() {
        tree.branch(*root, "", i + 1 == roots.len());
    }
    let mut text = tree.text;
    if let Some(operation) = &status.operation {
        let _ = writeln!(text, "under way: {:?} (op {}), seals {:?}", operation.kind, operation.op, operation.parents);
    }
    if let Some(idle) = status.idle_sessions {
        let _ = writeln!(text, "sessions idle: {idle}");
    }
    verdict(status, &mut text);
    text
}

fn verdict(status: &ScalableTopicStatus, text: &mut String) {
    let Some(autoscale) = &status.autoscale else { return };
    if let Some(decision) = &autoscale.last_decision {
        let change = &decision.change;
        let _ = write!(text, "last decision: {:?} {:?}", change.kind, change.segments);
        if let Some(into) = change.into {
            let _ = write!(text, " into {into}");
        }
        if let Some(buckets) = change.buckets {
            let _ = write!(text, " to {buckets} buckets");
        }
        let _ = writeln!(text, ", {} at {}", decision.reason, decision.time.0);
    }
    if let Some(holds) = &autoscale.holds {
        let lanes =
            [("all", &holds.all), ("consumers", &holds.consumers), ("load", &holds.load), ("merge", &holds.merge)];
        let held: Vec<_> =
            lanes.into_iter().filter_map(|(lane, hold)| Some(format!("{lane} {}", hold.as_ref()?))).collect();
        if !held.is_empty() {
            let _ = writeln!(text, "holds: {}", held.join(", "));
        }
    }
}

/// The DAG as a tree: a segment of several parents is drawn below the first of them and named below the others.
struct Tree<'a> {
    segments: &'a BTreeMap<i64, &'a SegmentStatus>,
    owners: &'a BTreeMap<i64, i32>,
    drawn: BTreeSet<i64>,
    text: String,
}

impl Tree<'_> {
    fn branch(&mut self, id: i64, indent: &str, is_last: bool) {
        let Some(segment) = self.segments.get(&id) else { return };
        let (fork, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        if !self.drawn.insert(id) {
            let _ = writeln!(self.text, "{indent}{fork}{id} (above)");
            return;
        }
        let owners = self.owners.get(&id).map_or(String::new(), |n| format!("  {n} reading"));
        let state = match (segment.state, segment.sealed_epoch) {
            (SegmentState::Active, _) => "active".to_owned(),
            (SegmentState::Sealed, Some(epoch)) => format!("sealed at epoch {epoch}"),
            (SegmentState::Sealed, None) => "sealed".to_owned(),
        };
        let _ = writeln!(
            self.text,
            "{indent}{fork}{id}  {:04x}-{:04x}  {} buckets  {}  {state}{owners}",
            segment.start, segment.end, segment.buckets, segment.store
        );
        let indent = format!("{indent}{below}");
        for (i, child) in segment.children.iter().enumerate() {
            self.branch(*child, &indent, i + 1 == segment.children.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_drawn_as_a_tree_and_a_merge_once() {
        let segment = |id: i64, start: i32, end: i32, parents: &[i64], children: &[i64]| {
            let sealed = !children.is_empty();
            let mut segment = json!({
                "id": id, "start": start, "end": end, "buckets": 4, "state": if sealed { "Sealed" } else { "Active" },
                "parents": parents, "children": children, "store": format!("braid-node-{}", id % 3),
                "createdEpoch": 1, "createdTime": "2026-01-01T00:00:00.000000Z",
            });
            if sealed {
                segment["sealedEpoch"] = 2.into();
            }
            segment
        };
        let status: ScalableTopicStatus = serde_json::from_value(json!({
            "layout": {"epoch": 3, "nextSegmentId": 4, "segments": [
                segment(0, 0, 65535, &[], &[1, 2]),
                segment(1, 0, 32767, &[0], &[3]),
                segment(2, 32768, 65535, &[0], &[3]),
                segment(3, 0, 65535, &[1, 2], &[]),
            ]},
            "home": {"store": "braid-node-1", "term": 1},
            "owners": [{"segment": 2, "sessions": 1}, {"segment": 3, "sessions": 4}],
            "idleSessions": 0,
            "autoscale": {"holds": {"merge": "AtMinSegments"}},
        }))
        .unwrap();
        let expected = "\
epoch 3  home braid-node-1
└─ 0  0000-ffff  4 buckets  braid-node-0  sealed at epoch 2
   ├─ 1  0000-7fff  4 buckets  braid-node-1  sealed at epoch 2
   │  └─ 3  0000-ffff  4 buckets  braid-node-0  active  4 reading
   └─ 2  8000-ffff  4 buckets  braid-node-2  sealed at epoch 2  1 reading
      └─ 3 (above)
sessions idle: 0
holds: merge AtMinSegments
";
        assert_eq!(draw(&status), expected);
    }
}
