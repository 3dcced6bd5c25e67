//! `LayoutChange`: the manual lever, one shot like a Job.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{Condition, TopicRef};

/// One change of a topic's layout, carried out once. Exactly one of the changes must be set. Immutable.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "braid.stream",
    version = "v1alpha1",
    kind = "LayoutChange",
    doc = "One change of a topic's layout by hand. It runs once and ends Complete or Failed.",
    namespaced,
    status = "LayoutChangeStatus",
    shortname = "lchange",
    category = "braid",
    derive = "PartialEq",
    derive = "Default",
    selectable = ".spec.topicRef.name",
    cel,
    printcolumn(name = "Topic", type_ = "string", json_path = ".spec.topicRef.name"),
    printcolumn(name = "Change", type_ = "string", json_path = ".status.change"),
    printcolumn(
        name = "Complete",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Complete")].status"#
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Complete")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new("self == oldSelf").message("spec is immutable: make another LayoutChange").reason(Reason::FieldValueInvalid),
    validation = Rule::new("(has(self.split) ? 1 : 0) + (has(self.merge) ? 1 : 0) + (has(self.rebucket) ? 1 : 0) == 1")
        .message("exactly one of `split`, `merge` and `rebucket` must be set")
        .reason(Reason::FieldValueInvalid)
)]
#[serde(rename_all = "camelCase")]
pub struct LayoutChangeSpec {
    /// The topic, of the same namespace.
    pub topic_ref: TopicRef,
    /// Replace a segment by narrower ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitChange>,
    /// Replace two neighbours by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeChange>,
    /// Give segments another number of buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebucket: Option<RebucketChange>,
}

/// Replace a segment by narrower ones.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SplitChange {
    /// An active segment.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub segment: i64,
    /// How many.
    #[serde(default = "two")]
    #[schemars(range(min = 2, max = 64))]
    pub into: i32,
}

const fn two() -> i32 {
    2
}

/// Replace two neighbours by one.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MergeChange {
    /// Two active segments with adjacent ranges, in any order.
    #[schemars(length(min = 2, max = 2), inner(range(min = 0, max = 9007199254740991i64)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub segments: Vec<i64>,
}

/// Give segments another number of buckets, all in one epoch.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RebucketChange {
    /// Active segments, in any order.
    #[schemars(length(min = 1, max = 1024), inner(range(min = 0, max = 9007199254740991i64)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub segments: Vec<i64>,
    /// How many buckets each has afterwards.
    #[schemars(range(min = 1, max = 65536))]
    pub buckets: i32,
}

/// How far the change is. The operator alone writes it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LayoutChangeStatus {
    /// Complete, Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that the status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub observed_generation: Option<i64>,
    /// The change in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub change: Option<String>,
    /// The topic's operation that carried it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub op: Option<i64>,
    /// The topic's epoch after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub epoch: Option<i64>,
}
