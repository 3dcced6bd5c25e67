//! What a topic's status says of its scaling: the policy in force, the last decision with its inputs, and why it holds.

use braid_model::scale::{Change, Rates};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::EffectivePolicy;

/// When and why the topic changed its shape, or did not.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AutoscaleStatus {
    /// The policy in force, all layers put together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<EffectivePolicy>,
    /// The last change that the evaluator decided and the operator began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_decision: Option<Decision>,
    /// The change that the evaluator would make now, under mode `Recommend`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<Decision>,
    /// Why each part of the evaluator holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Holds>,
    /// When a split was last committed, manual ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_split_time: Option<MicroTime>,
    /// When a merge was last committed, manual ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_merge_time: Option<MicroTime>,
    /// When a rebucket was last committed, manual ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rebucket_time: Option<MicroTime>,
    /// When the next cooldown or merge window ends; absent while no clock runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_eligible_time: Option<MicroTime>,
}

/// A change that the evaluator decided.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// What it changes.
    pub change: ChangeStatus,
    /// Why.
    #[schemars(length(min = 1, max = 64))]
    pub reason: String,
    /// When it was decided.
    pub time: MicroTime,
    /// What it was decided from.
    pub inputs: DecisionInputs,
}

/// A change of a topic's shape.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ChangeStatus {
    /// Its class.
    pub kind: ChangeKind,
    /// The segments that it replaces.
    #[schemars(length(max = 1024), inner(range(min = 0, max = 9007199254740991i64)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub segments: Vec<i64>,
    /// How many children a split makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 64))]
    pub into: Option<i32>,
    /// How many buckets each segment has after a rebucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub buckets: Option<i32>,
}

/// The class of a change.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// One segment becomes several narrower ones.
    Split,
    /// Segments get another number of buckets.
    Rebucket,
    /// Two neighbours become one.
    Merge,
}

/// What a decision saw.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionInputs {
    /// Active segments.
    #[schemars(range(min = 0, max = 2048))]
    pub segments: i32,
    /// Their buckets, added up.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub buckets: i64,
    /// The most sessions of any ordered subscription.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub sessions: i64,
    /// The rates of the segments that the change replaces, each the sum of those that are known; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<RateValues>,
}

/// One number per metric, per second.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RateValues {
    /// Messages appended.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub messages_in_per_second: i64,
    /// Bytes appended.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub bytes_in_per_second: i64,
    /// Messages delivered.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub messages_out_per_second: i64,
    /// Bytes delivered.
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub bytes_out_per_second: i64,
}

/// Why each part of the evaluator holds; `all` stands alone.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Holds {
    /// Why nothing is evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub all: Option<String>,
    /// Why more consumers than segments change nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub consumers: Option<String>,
    /// Why a hot segment is not split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub load: Option<String>,
    /// Why nothing is merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub merge: Option<String>,
}

impl From<&Rates> for RateValues {
    fn from(rates: &Rates) -> Self {
        let [messages_in_per_second, bytes_in_per_second, messages_out_per_second, bytes_out_per_second] =
            rates.0.map(shown);
        Self { messages_in_per_second, bytes_in_per_second, messages_out_per_second, bytes_out_per_second }
    }
}

impl From<&Change> for ChangeStatus {
    fn from(change: &Change) -> Self {
        let ids = |ids: &[braid_model::SegmentId]| ids.iter().map(|id| shown(id.0)).collect();
        match change {
            Change::Split { segment, into, .. } => Self {
                kind: ChangeKind::Split,
                segments: ids(&[*segment]),
                into: i32::try_from(*into).ok(),
                buckets: None,
            },
            Change::Rebucket { segments, buckets, .. } => Self {
                kind: ChangeKind::Rebucket,
                segments: ids(segments),
                into: None,
                buckets: i32::try_from(buckets.count()).ok(),
            },
            Change::Merge { a, b, .. } => {
                Self { kind: ChangeKind::Merge, segments: ids(&[*a, *b]), into: None, buckets: None }
            }
        }
    }
}

/// A number as the API can hold it: at most 2^53 - 1.
pub(crate) fn shown(n: u64) -> i64 {
    const MOST: i64 = (1 << 53) - 1;
    i64::try_from(n).map_or(MOST, |n| n.min(MOST))
}
