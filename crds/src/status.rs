//! A topic's status: conditions for people, and the ledger that the operator works from.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AutoscaleStatus, Condition, InitialPosition, SubscriptionType};

/// What the topic is now. The operator alone writes it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ScalableTopicStatus {
    /// Ready, Reconciling, Stalled, Paused, ScalingActive, AbleToScale, ScalingLimited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that the status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub observed_generation: Option<i64>,
    /// This life of the topic name: 16 hex digits, part of every segment's key on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 16, max = 16), regex(pattern = r"^[0-9a-f]{16}$"))]
    pub incarnation: Option<String>,
    /// Raised by every stored operation; the second half of the fence of every command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub op: Option<i64>,
    /// The segments, as last committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutStatus>,
    /// The subscriptions whose cursors exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub subscriptions: Vec<TopicSubscriptionStatus>,
    /// Changes of cursors that stores still owe, because they were not connected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pending: Vec<PendingStatus>,
    /// Requests that were carried out and must not run again, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["uid".into()]))]
    pub last_requests: Vec<RequestStatus>,
    /// The store whose node coordinates the topic's consumer groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<HomeStatus>,
    /// The operation under way: a whole plan, stored before its first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationStatus>,
    /// When and why the topic changed its shape, or did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<AutoscaleStatus>,
    /// The layout in four numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<CountsStatus>,
    /// How many sessions read each segment that is not drained, all subscriptions together, ascending by segment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["segment".into()]))]
    pub owners: Vec<OwnersStatus>,
    /// How many sessions read nothing, all subscriptions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2147483647))]
    pub idle_sessions: Option<i32>,
}

/// The segments of one epoch.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LayoutStatus {
    /// Its version: 1 when created, one more at each split, merge and rebucket.
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub epoch: i64,
    /// The id of the next segment to be made.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub next_segment_id: i64,
    /// Active and sealed segments, ascending by id.
    #[schemars(length(max = 2048))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub segments: Vec<SegmentStatus>,
}

/// One append-only log that owns a range of the routing ring.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SegmentStatus {
    /// Its number, never used again.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub id: i64,
    /// The first hash that it owns.
    #[schemars(range(min = 0, max = 65535))]
    pub start: i32,
    /// The last hash that it owns.
    #[schemars(range(min = 0, max = 65535))]
    pub end: i32,
    /// How many entry buckets it has.
    #[schemars(range(min = 1, max = 65536))]
    pub buckets: i32,
    /// Whether it takes appends.
    pub state: SegmentState,
    /// The segments that it continues, in ring order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048), inner(range(min = 0, max = 9007199254740991i64)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub parents: Vec<i64>,
    /// The segments that continue it, in ring order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048), inner(range(min = 0, max = 9007199254740991i64)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub children: Vec<i64>,
    /// Where its data lies.
    #[schemars(length(min = 1, max = 253))]
    pub store: String,
    /// The epoch that made it.
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub created_epoch: i64,
    /// When its operation was planned.
    pub created_time: MicroTime,
    /// The epoch that replaced it; absent while it is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub sealed_epoch: Option<i64>,
    /// When it was replaced; absent while it is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_time: Option<MicroTime>,
    /// How many merges lie above it on the longest path.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2147483647))]
    pub merge_depth: i32,
}

/// Whether a segment takes appends.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// It does.
    Active,
    /// It does not, for ever.
    Sealed,
}

/// A subscription of the topic.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TopicSubscriptionStatus {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// How its messages are spread.
    #[serde(rename = "type")]
    pub type_: SubscriptionType,
    /// The operation that made its cursors.
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub generation: i64,
    /// Where its cursors started.
    pub initial_position: InitialPosition,
    /// When they were planned.
    pub since_time: MicroTime,
}

/// A change of cursors that a store owes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PendingStatus {
    /// The operation that made the change.
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub op: i64,
    /// What the store has to do.
    pub action: CursorAction,
    /// Which store.
    #[schemars(length(min = 1, max = 253))]
    pub store: String,
    /// On which segments, ascending.
    #[schemars(length(max = 2048), inner(range(min = 0, max = 9007199254740991i64)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub segments: Vec<i64>,
    /// For which subscription.
    pub subscription: TopicSubscriptionStatus,
}

/// What happens to cursors.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorAction {
    /// They are made.
    Open,
    /// They are removed.
    Drop,
}

/// A request that ended.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RequestStatus {
    /// The uid of the resource that asked.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// How it ended.
    pub outcome: RequestOutcome,
    /// The operation that carried it out.
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub op: i64,
    /// The topic's epoch after it.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub epoch: i64,
}

/// How a request ended.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It was carried out.
    Committed,
}

/// Who coordinates the topic's consumer groups.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HomeStatus {
    /// The store; the node that has it open coordinates.
    #[schemars(length(min = 1, max = 253))]
    pub store: String,
    /// Raised whenever the home moves.
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub term: i64,
}

/// A plan under way. Nothing about it is chosen later.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OperationStatus {
    /// Its number.
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub op: i64,
    /// What it does.
    pub kind: OperationKind,
    /// The uid of the resource that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub request: Option<String>,
    /// When it was planned.
    pub planned_time: MicroTime,
    /// The epoch after its commit.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub epoch: i64,
    /// The segments that it makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub children: Vec<SegmentStatus>,
    /// The segments that it seals, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048), inner(range(min = 0, max = 9007199254740991i64)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub parents: Vec<i64>,
    /// The subscription whose cursors it makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<TopicSubscriptionStatus>,
    /// The name of the subscription whose cursors it removes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub unsubscribed: Option<String>,
}

/// What an operation does.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Makes the first segments.
    Create,
    /// Makes narrower segments of one.
    Split,
    /// Makes one segment of two.
    Merge,
    /// Gives segments another number of buckets.
    Rebucket,
    /// Makes a subscription's cursors.
    Subscribe,
    /// Removes a subscription's cursors.
    Unsubscribe,
    /// Removes the topic's data.
    Delete,
}

/// The layout in four numbers.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CountsStatus {
    /// Segments that take appends.
    #[schemars(range(min = 0, max = 2048))]
    pub active_segments: i32,
    /// Segments that do not, and may still hold messages to read.
    #[schemars(range(min = 0, max = 2048))]
    pub sealed_segments: i32,
    /// Buckets of all active segments: how many ordered consumers can be busy.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub buckets: i64,
    /// Subscriptions.
    #[schemars(range(min = 0, max = 256))]
    pub subscriptions: i32,
}

/// How many sessions read a segment.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OwnersStatus {
    /// The segment.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub segment: i64,
    /// How many.
    #[schemars(range(min = 0, max = 2147483647))]
    pub sessions: i32,
}
