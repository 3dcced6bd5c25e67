//! `Subscription`: a durable cursor set over all segments of a topic.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Condition, DeletionPolicy, OwnersStatus, TopicRef};

/// Who reads a topic, and how.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "braid.stream",
    version = "v1alpha1",
    kind = "Subscription",
    doc = "A durable position in a topic, shared by any number of consumers.",
    namespaced,
    status = "SubscriptionStatus",
    shortname = "ssub",
    category = "braid",
    derive = "PartialEq",
    derive = "Default",
    selectable = ".spec.topicRef.name",
    cel,
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Topic", type_ = "string", json_path = ".spec.topicRef.name"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Consumers", type_ = "integer", json_path = ".status.sessions"),
    printcolumn(name = "Max-Useful", type_ = "integer", json_path = ".status.maxUsefulConsumers"),
    printcolumn(name = "Backlog", type_ = "string", json_path = ".status.backlog"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionSpec {
    /// The topic, of the same namespace. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("field is immutable").reason(Reason::FieldValueInvalid))]
    pub topic_ref: TopicRef,

    /// How messages are spread over the consumers. Immutable.
    #[serde(rename = "type", default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("field is immutable").reason(Reason::FieldValueInvalid))]
    pub type_: SubscriptionType,

    /// Where the cursors start on the segments of that time. Immutable.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("field is immutable").reason(Reason::FieldValueInvalid))]
    pub initial_position: InitialPosition,

    /// How long a consumer may take to finish what it holds of a bucket that moves to another one; then the bucket is taken
    /// away from it. 0 waits for ever.
    #[serde(default = "handoff_deadline")]
    #[schemars(range(min = 0, max = 86400))]
    pub handoff_deadline_seconds: i32,

    /// Which consumer gets which buckets: `Sticky` moves the fewest, `Contiguous` gives each a slice of the ring.
    #[serde(default)]
    pub assignment: Assignment,

    /// What happens to the position when this resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

const fn handoff_deadline() -> i32 {
    30
}

/// How messages are spread over the consumers of a subscription.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubscriptionType {
    /// By bucket: each key goes to one consumer at a time, in order.
    #[default]
    Ordered,
}

/// Where a new cursor starts.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialPosition {
    /// At the first message that is kept.
    #[default]
    Earliest,
    /// Behind the last message.
    Latest,
}

/// How buckets are given to consumers.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assignment {
    /// With the fewest moves.
    #[default]
    Sticky,
    /// In slices of the bucket ring, by name.
    Contiguous,
}

/// What the subscription is now. The operator alone writes it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionStatus {
    /// Ready, Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that the status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub observed_generation: Option<i64>,
    /// How many consumers are attached, idle ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2147483647))]
    pub sessions: Option<i32>,
    /// How many of them read nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2147483647))]
    pub idle_sessions: Option<i32>,
    /// How many read each segment that is not drained, ascending by segment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["segment".into()]))]
    pub owners: Vec<OwnersStatus>,
    /// How many messages wait, roughly: two digits and a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub backlog: Option<String>,
    /// How many consumers can be busy: the buckets of all segments that may be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub max_useful_consumers: Option<i64>,
}
