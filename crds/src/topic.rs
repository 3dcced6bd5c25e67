//! `ScalableTopic`: a topic that reshapes itself while it runs.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AutoscalePolicySpec, ScalableTopicStatus};

/// What a topic is to be.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "braid.stream",
    version = "v1alpha1",
    kind = "ScalableTopic",
    doc = "A topic that splits, merges and rebuckets itself while it runs. Each key stays in order.",
    namespaced,
    status = "ScalableTopicStatus",
    shortname = "stopic",
    category = "braid",
    derive = "PartialEq",
    derive = "Default",
    cel,
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Segments", type_ = "integer", json_path = ".status.counts.activeSegments"),
    printcolumn(name = "Buckets", type_ = "integer", json_path = ".status.counts.buckets"),
    printcolumn(
        name = "Scaling",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="ScalingActive")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "DataPlane", type_ = "string", json_path = ".spec.dataPlaneRef.name", priority = 1),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.layout.epoch", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ScalableTopicSpec {
    /// The data plane that holds the topic: the pods with that value of the label `braid.stream/data-plane`. Immutable.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("field is immutable").reason(Reason::FieldValueInvalid))]
    pub data_plane_ref: DataPlaneRef,

    /// How many segments the topic starts with. Immutable.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("field is immutable").reason(Reason::FieldValueInvalid))]
    pub initial_segments: i32,

    /// How many entry buckets the first segments share; counts when the topic is created. Consumers that outnumber the
    /// buckets get more of them by a rebucket.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 65536))]
    pub entry_bucket_budget: i32,

    /// When the topic changes its shape. What is left out is decided by the AutoscalePolicy named `default` of the
    /// namespace, then by the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<AutoscalePolicySpec>,

    /// What happens to the data when this resource is deleted: `Retain` keeps it, and a topic of the same name adopts it;
    /// `Delete` removes it first.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

const fn one() -> i32 {
    1
}

const fn four() -> i32 {
    4
}

/// Names a data plane.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DataPlaneRef {
    /// The name of the data plane.
    #[serde(default = "default_data_plane")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
}

fn default_data_plane() -> String {
    "default".into()
}

impl Default for DataPlaneRef {
    fn default() -> Self {
        Self { name: default_data_plane() }
    }
}

/// Names a topic of the same namespace. It need not exist yet; a condition says so.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TopicRef {
    /// The name of a ScalableTopic.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// What happens to data when its resource is deleted.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// It is kept.
    #[default]
    Retain,
    /// It is removed first.
    Delete,
}
