//! Braid's custom resources: group `braid.stream`, version `v1alpha1`.
//!
//! The types, their schemas with the rules that the API server enforces, and the way between a topic's status and the
//! model's words. It knows no client and no tasks; `examples/crdgen.rs` writes the YAML beside this folder's `Cargo.toml`.
//!
//! Not yet in the schemas, because nothing acts on them: retention, queues, redelivery limits and dead letters, manual
//! segment counts, and the changes `abandon` and `rollover`.
#![forbid(unsafe_code)]
#![allow(clippy::duplicated_attributes, reason = "printer columns have types, and several have the same")]
#![allow(unreachable_pub, reason = "the schema derive repeats each struct inside of a function")]

mod autoscale;
mod condition;
mod effective;
mod layoutchange;
mod ledger;
mod scaling;
pub mod schema;
mod status;
mod subscription;
mod time;
mod topic;

pub use autoscale::{AutoscaleMode, AutoscalePolicy, AutoscalePolicySpec, Thresholds};
pub use condition::{Condition, ConditionStatus, set_condition};
pub use effective::EffectivePolicy;
pub use layoutchange::{LayoutChange, LayoutChangeSpec, LayoutChangeStatus, MergeChange, RebucketChange, SplitChange};
pub use ledger::Unreadable;
pub use scaling::{AutoscaleStatus, ChangeKind, ChangeStatus, Decision, DecisionInputs, Holds, RateValues};
pub use status::{
    CountsStatus, CursorAction, HomeStatus, LayoutStatus, OperationKind, OperationStatus, OwnersStatus, PendingStatus,
    RequestOutcome, RequestStatus, ScalableTopicStatus, SegmentState, SegmentStatus, TopicSubscriptionStatus,
};
pub use subscription::{
    Assignment, InitialPosition, Subscription, SubscriptionSpec, SubscriptionStatus, SubscriptionType,
};
pub use time::{micro_time, micros};
pub use topic::{DataPlaneRef, DeletionPolicy, ScalableTopic, ScalableTopicSpec, TopicRef};

/// The API group of every kind.
pub const GROUP: &str = "braid.stream";
/// The finalizer of topics and subscriptions with `deletionPolicy: Delete`.
pub const FINALIZER: &str = "braid.stream/delete-data";
/// The label that says to which data plane a pod belongs.
pub const DATA_PLANE_LABEL: &str = "braid.stream/data-plane";
