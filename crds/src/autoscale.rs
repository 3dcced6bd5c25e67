//! `AutoscalePolicy`: when topics change their shape. The same fields are a topic's `spec.autoscale`.

use braid_model::scale::{Mode, PolicyLayer};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When a topic changes its shape. Every field may be left out: the layer below decides it.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "braid.stream",
    version = "v1alpha1",
    kind = "AutoscalePolicy",
    plural = "autoscalepolicies",
    doc = "Defaults of `spec.autoscale` for every topic of the namespace, field by field. It must be named `default`.",
    namespaced,
    category = "braid",
    derive = "PartialEq",
    cel,
    validation = Rule::new("self.metadata.name == 'default'")
        .message("name must be `default`: the policy of a namespace has no other")
        .reason(Reason::FieldValueInvalid),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Min", type_ = "integer", json_path = ".spec.minSegments"),
    printcolumn(name = "Max", type_ = "integer", json_path = ".spec.maxSegments"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    cel,
    validation = Rule::new("!has(self.minSegments) || !has(self.maxSegments) || self.minSegments <= self.maxSegments")
        .message("must be less than or equal to `maxSegments`")
        .reason(Reason::FieldValueInvalid)
        .field_path(".minSegments"),
    validation = Rule::new("!has(self.maxSplitFactor) || self.maxSplitFactor in [2, 4, 8, 16, 32, 64]")
        .message("must be a power of two")
        .reason(Reason::FieldValueInvalid)
        .field_path(".maxSplitFactor"),
    validation = Rule::new(
        "!has(self.split) || !has(self.split.messagesInPerSecond) || !has(self.merge) || !has(self.merge.messagesInPerSecond) || self.split.messagesInPerSecond > self.merge.messagesInPerSecond"
    )
    .message("must be greater than `merge.messagesInPerSecond`")
    .reason(Reason::FieldValueInvalid)
    .field_path(".split.messagesInPerSecond"),
    validation = Rule::new(
        "!has(self.split) || !has(self.split.bytesInPerSecond) || !has(self.merge) || !has(self.merge.bytesInPerSecond) || self.split.bytesInPerSecond > self.merge.bytesInPerSecond"
    )
    .message("must be greater than `merge.bytesInPerSecond`")
    .reason(Reason::FieldValueInvalid)
    .field_path(".split.bytesInPerSecond"),
    validation = Rule::new(
        "!has(self.split) || !has(self.split.messagesOutPerSecond) || !has(self.merge) || !has(self.merge.messagesOutPerSecond) || self.split.messagesOutPerSecond > self.merge.messagesOutPerSecond"
    )
    .message("must be greater than `merge.messagesOutPerSecond`")
    .reason(Reason::FieldValueInvalid)
    .field_path(".split.messagesOutPerSecond"),
    validation = Rule::new(
        "!has(self.split) || !has(self.split.bytesOutPerSecond) || !has(self.merge) || !has(self.merge.bytesOutPerSecond) || self.split.bytesOutPerSecond > self.merge.bytesOutPerSecond"
    )
    .message("must be greater than `merge.bytesOutPerSecond`")
    .reason(Reason::FieldValueInvalid)
    .field_path(".split.bytesOutPerSecond")
)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalePolicySpec {
    /// `Auto` carries verdicts out, `Recommend` only publishes them in the status, `Off` makes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<AutoscaleMode>,

    /// A merge never goes below this many active segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub min_segments: Option<i32>,

    /// A split never goes above this many active segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_segments: Option<i32>,

    /// Messages in per second of the busiest segment from which more consumers than segments bring a split; below it
    /// they bring more buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9007199254740991i64))]
    pub split_floor: Option<i64>,

    /// A segment with this many merges above it merges no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000))]
    pub max_merge_depth: Option<i32>,

    /// The most children of one split; a power of two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 64))]
    pub max_split_factor: Option<i32>,

    /// A segment with more generations above it that consumers still have to read takes no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000))]
    pub max_undrained_generations: Option<i32>,

    /// A load sample, or the home's word on sessions, that is older counts as unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31536000))]
    pub sample_stale_seconds: Option<i64>,

    /// A sample is the least of so many one-second rates: growth needs a load that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600))]
    pub load_window_seconds: Option<i64>,

    /// No split sooner after the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31536000))]
    pub split_cooldown_seconds: Option<i64>,

    /// No rebucket sooner after the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31536000))]
    pub rebucket_cooldown_seconds: Option<i64>,

    /// No merge sooner after the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31536000))]
    pub merge_cooldown_seconds: Option<i64>,

    /// How long both segments of a merge must have been cold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31536000))]
    pub merge_window_seconds: Option<i64>,

    /// A segment with some rate over these splits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Thresholds>,

    /// A segment with all rates under these is cold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<Thresholds>,
}

/// Rates of one segment.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Thresholds {
    /// Messages appended per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub messages_in_per_second: Option<i64>,

    /// Bytes appended per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub bytes_in_per_second: Option<i64>,

    /// Messages delivered per second, all subscriptions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub messages_out_per_second: Option<i64>,

    /// Bytes delivered per second, all subscriptions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9007199254740991i64))]
    pub bytes_out_per_second: Option<i64>,
}

/// What happens to a verdict.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoscaleMode {
    /// It is carried out.
    #[default]
    Auto,
    /// It is published; nothing changes.
    Recommend,
    /// There is none.
    Off,
}

impl From<AutoscaleMode> for Mode {
    fn from(mode: AutoscaleMode) -> Self {
        match mode {
            AutoscaleMode::Auto => Self::Auto,
            AutoscaleMode::Recommend => Self::Recommend,
            AutoscaleMode::Off => Self::Off,
        }
    }
}

impl From<Mode> for AutoscaleMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Self::Auto,
            Mode::Recommend => Self::Recommend,
            Mode::Off => Self::Off,
        }
    }
}

impl Thresholds {
    fn layer(&self) -> [Option<u64>; 4] {
        [self.messages_in_per_second, self.bytes_in_per_second, self.messages_out_per_second, self.bytes_out_per_second]
            .map(|threshold| threshold.map(unsigned))
    }
}

/// The layer that a resource sets. A negative number, which the schema refuses, counts as 0.
impl From<&AutoscalePolicySpec> for PolicyLayer {
    fn from(spec: &AutoscalePolicySpec) -> Self {
        Self {
            mode: spec.mode.map(Into::into),
            min_segments: spec.min_segments.map(small),
            max_segments: spec.max_segments.map(small),
            split_floor: spec.split_floor.map(unsigned),
            max_merge_depth: spec.max_merge_depth.map(small),
            max_split_factor: spec.max_split_factor.map(small),
            max_undrained_generations: spec.max_undrained_generations.map(small),
            sample_stale_seconds: spec.sample_stale_seconds.map(unsigned),
            load_window_seconds: spec.load_window_seconds.map(unsigned),
            split_cooldown_seconds: spec.split_cooldown_seconds.map(unsigned),
            rebucket_cooldown_seconds: spec.rebucket_cooldown_seconds.map(unsigned),
            merge_cooldown_seconds: spec.merge_cooldown_seconds.map(unsigned),
            merge_window_seconds: spec.merge_window_seconds.map(unsigned),
            split: spec.split.as_ref().map(Thresholds::layer).unwrap_or_default(),
            merge: spec.merge.as_ref().map(Thresholds::layer).unwrap_or_default(),
        }
    }
}

fn small(n: i32) -> u32 {
    u32::try_from(n).unwrap_or(0)
}

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
