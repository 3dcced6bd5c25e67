//! Between the model's words and those of the control protocol.

use braid_crds::{Assignment, SubscriptionSpec};
use braid_model::layout::{Found, Segment, State};
use braid_model::operation::{Holding, Start, Step, Subscription, SubscriptionKind};
use braid_model::scale::Policy;
use braid_model::{Buckets, Epoch, Generation, HashRange, Micros, SegmentId, StoreName, SubscriptionName};
use braid_wire::proto::{self, request::Command};

/// How a subscription is served, beyond what the topic remembers of it. A resource that is gone leaves the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) assignment: Assignment,
    pub(crate) handoff_deadline_ms: u32,
}

impl Default for Service {
    fn default() -> Self {
        Self { assignment: Assignment::Sticky, handoff_deadline_ms: 30_000 }
    }
}

impl From<&SubscriptionSpec> for Service {
    fn from(spec: &SubscriptionSpec) -> Self {
        let seconds = u32::try_from(spec.handoff_deadline_seconds).unwrap_or(0);
        Self { assignment: spec.assignment, handoff_deadline_ms: seconds.saturating_mul(1_000) }
    }
}

/// What a node says that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unintelligible {
    #[error("segment `{id}` has range {start}..={end}")]
    Range { id: u64, start: u32, end: u32 },
    #[error("segment `{id}` has `{buckets}` buckets, it must be 1 to 65536")]
    Buckets { id: u64, buckets: u32 },
    #[error("a stored segment has no header")]
    NoHeader,
}

pub(crate) fn segment_to_wire(segment: &Segment) -> proto::Segment {
    let ids = |ids: &[SegmentId]| ids.iter().map(|id| id.0).collect();
    proto::Segment {
        id: segment.id.0,
        start: segment.range.start().into(),
        end: segment.range.end().into(),
        buckets: segment.buckets.count(),
        sealed: !segment.is_active(),
        parents: ids(&segment.parents),
        children: ids(&segment.children),
        store: segment.store.0.clone(),
        created_epoch: segment.created_epoch.0,
        sealed_epoch: segment.sealed_epoch().map_or(0, |epoch| epoch.0),
        created_at_us: segment.created_at.0,
        sealed_at_us: segment.sealed_at().map_or(0, |at| at.0),
        merge_depth: segment.merge_depth,
    }
}

pub(crate) fn segment_from_wire(wire: &proto::Segment) -> Result<Segment, Unintelligible> {
    let (id, start, end, buckets) = (wire.id, wire.start, wire.end, wire.buckets);
    let range = u16::try_from(start).ok().zip(u16::try_from(end).ok());
    let range = range.and_then(|(start, end)| HashRange::new(start, end));
    let ids = |ids: &[u64]| ids.iter().copied().map(SegmentId).collect();
    let sealed = State::Sealed { epoch: Epoch(wire.sealed_epoch), at: Micros(wire.sealed_at_us) };
    Ok(Segment {
        id: SegmentId(id),
        range: range.ok_or(Unintelligible::Range { id, start, end })?,
        buckets: Buckets::new(buckets).ok_or(Unintelligible::Buckets { id, buckets })?,
        state: if wire.sealed { sealed } else { State::Active },
        parents: ids(&wire.parents),
        children: ids(&wire.children),
        created_epoch: Epoch(wire.created_epoch),
        created_at: Micros(wire.created_at_us),
        merge_depth: wire.merge_depth,
        store: StoreName(wire.store.clone()),
    })
}

pub(crate) fn subscription_to_wire(subscription: &Subscription, service: Service) -> proto::SubscriptionSpec {
    let initial_position = match subscription.start {
        Start::Earliest => proto::InitialPosition::Earliest,
        Start::Latest => proto::InitialPosition::Latest,
    };
    let assignment = match service.assignment {
        Assignment::Sticky => proto::Assignment::Sticky,
        Assignment::Contiguous => proto::Assignment::Contiguous,
    };
    proto::SubscriptionSpec {
        name: subscription.name.0.clone(),
        generation: subscription.generation.0,
        initial_position: initial_position.into(),
        assignment: assignment.into(),
        handoff_deadline_ms: service.handoff_deadline_ms,
    }
}

fn subscription_from_wire(wire: &proto::SubscriptionSpec) -> Subscription {
    let start = match wire.initial_position() {
        proto::InitialPosition::Earliest => Start::Earliest,
        proto::InitialPosition::Latest => Start::Latest,
    };
    Subscription {
        name: SubscriptionName(wire.name.clone()),
        kind: SubscriptionKind::Ordered,
        generation: Generation(wire.generation),
        start,
        since: Micros(0),
    }
}

/// What a store holds of a segment.
pub(crate) fn holding_from_wire(stored: &proto::StoredSegment) -> Result<Holding, Unintelligible> {
    let header = stored.segment.as_ref().ok_or(Unintelligible::NoHeader)?;
    Ok(Holding {
        found: Found { segment: segment_from_wire(header)?, committed: stored.committed },
        cursors: stored.subscriptions.iter().map(subscription_from_wire).collect(),
    })
}

/// The command of a step. `service` says how each subscription is served; `nodes` are those of the data plane.
pub(crate) fn command(step: &Step, service: impl Fn(&SubscriptionName) -> Service, nodes: &[proto::Node]) -> Command {
    let spec = |subscription: &Subscription| subscription_to_wire(subscription, service(&subscription.name));
    let ids = |ids: &[SegmentId]| ids.iter().map(|id| id.0).collect();
    match step {
        Step::Create { segment, subscriptions } => Command::Create(proto::CreateSegments {
            segments: vec![segment_to_wire(segment)],
            subscriptions: subscriptions.iter().map(spec).collect(),
            nodes: nodes.to_vec(),
        }),
        Step::Seal { segment, epoch, successors, .. } => Command::Seal(proto::Seal {
            segment: segment.0,
            epoch: epoch.0,
            successors: successors.iter().map(segment_to_wire).collect(),
            nodes: nodes.to_vec(),
        }),
        Step::OpenCursors { segments, subscription, .. } => {
            Command::Subscribe(proto::Subscribe { subscription: Some(spec(subscription)), segments: ids(segments) })
        }
        Step::DropCursors { subscription, .. } => Command::Unsubscribe(proto::Unsubscribe {
            name: subscription.name.0.clone(),
            generation: subscription.generation.0,
        }),
        Step::DeleteSegments { .. } => Command::Drop(proto::DropTopic {}),
    }
}

/// What nodes need to judge load.
pub(crate) fn load_policy(policy: &Policy) -> proto::LoadPolicy {
    proto::LoadPolicy {
        split_thresholds: policy.split.0.to_vec(),
        merge_thresholds: policy.merge.0.to_vec(),
        window_seconds: u32::try_from(policy.load_window_seconds).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_survives_the_wire() {
        let active = Segment {
            id: SegmentId(7),
            range: HashRange::new(1, 9).unwrap(),
            buckets: Buckets::new(4).unwrap(),
            state: State::Active,
            parents: vec![SegmentId(1), SegmentId(2)],
            children: vec![],
            created_epoch: Epoch(3),
            created_at: Micros(1_764_551_514_000_001),
            merge_depth: 2,
            store: "braid-node-1".into(),
        };
        let sealed = Segment {
            state: State::Sealed { epoch: Epoch(4), at: Micros(1_764_551_514_000_002) },
            children: vec![SegmentId(8)],
            ..active.clone()
        };
        for segment in [active, sealed] {
            assert_eq!(segment_from_wire(&segment_to_wire(&segment)), Ok(segment));
        }
    }

    #[test]
    fn nonsense_of_a_node_is_an_error() {
        let wire = proto::Segment { id: 1, start: 5, end: 4, buckets: 1, ..proto::Segment::default() };
        assert_eq!(segment_from_wire(&wire), Err(Unintelligible::Range { id: 1, start: 5, end: 4 }));
        let wire = proto::Segment { id: 1, start: 0, end: 65_536, buckets: 1, ..proto::Segment::default() };
        assert_eq!(segment_from_wire(&wire), Err(Unintelligible::Range { id: 1, start: 0, end: 65_536 }));
        let wire = proto::Segment { id: 1, end: 9, ..proto::Segment::default() };
        assert_eq!(segment_from_wire(&wire), Err(Unintelligible::Buckets { id: 1, buckets: 0 }));
        assert_eq!(holding_from_wire(&proto::StoredSegment::default()), Err(Unintelligible::NoHeader));
    }
}
