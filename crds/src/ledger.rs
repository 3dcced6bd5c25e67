//! Between a topic's status and the model's ledger. Reading checks every rule of a layout; what does not pass is refused,
//! never guessed.

use braid_model::layout::{Layout, Parts, Segment, State, Violation};
use braid_model::operation::{
    Clocks, Home, Kind, Ledger, Operation, Outcome, Pending, Settled, Start, Step, Subscription, SubscriptionKind,
};
use braid_model::{Buckets, Epoch, Generation, HashRange, Incarnation, SegmentId, StoreName, SubscriptionName};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::scaling::shown;
use crate::{
    AutoscaleStatus, CountsStatus, CursorAction, HomeStatus, InitialPosition, LayoutStatus, OperationKind,
    OperationStatus, PendingStatus, RequestOutcome, RequestStatus, ScalableTopicStatus, SegmentState, SegmentStatus,
    SubscriptionType, TopicSubscriptionStatus, micro_time, micros,
};

/// Why a status is not a ledger: somebody but the operator wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name every field")]
pub enum Unreadable {
    #[error("`status.incarnation` is `{found}`, it must be 16 hex digits")]
    Incarnation { found: String },
    #[error("`status.{field}` is {found}, it must not be negative")]
    Negative { field: &'static str, found: i64 },
    #[error("segment `{id}` has range {start}..={end}")]
    Range { id: i64, start: i32, end: i32 },
    #[error("segment `{id}` has `{buckets}` buckets, it must be 1 to 65536")]
    Buckets { id: i64, buckets: i32 },
    #[error("segment `{id}` is sealed without epoch or time")]
    SealIncomplete { id: i64 },
    #[error("operation `{op}` ({kind:?}) lacks `{field}`")]
    OperationIncomplete { op: i64, kind: OperationKind, field: &'static str },
    #[error(transparent)]
    Violation(#[from] Violation),
}

impl ScalableTopicStatus {
    /// The topic's memory; `None` if the operator has not begun to keep one.
    pub fn ledger(&self) -> Result<Option<Ledger>, Unreadable> {
        let Some(incarnation) = &self.incarnation else { return Ok(None) };
        let number = u64::from_str_radix(incarnation, 16).ok().filter(|_| incarnation.len() == 16);
        let incarnation = number.ok_or_else(|| Unreadable::Incarnation { found: incarnation.clone() })?;
        let subscriptions = self.subscriptions.iter().map(read_subscription).collect::<Result<Vec<_>, _>>()?;
        let autoscale = self.autoscale.as_ref();
        let clock =
            |pick: fn(&AutoscaleStatus) -> &Option<MicroTime>| autoscale.and_then(|a| pick(a).as_ref().map(micros));
        let home = |home: &HomeStatus| {
            Ok::<_, Unreadable>(Home { store: StoreName(home.store.clone()), term: read("home.term", home.term)? })
        };
        Ok(Some(Ledger {
            incarnation: Incarnation(incarnation),
            op: read("op", self.op.unwrap_or(0))?,
            layout: self.layout.as_ref().map(read_layout).transpose()?,
            subscriptions: subscriptions.into_iter().map(|sub| (sub.name.clone(), sub)).collect(),
            pending: self.pending.iter().map(read_pending).collect::<Result<_, _>>()?,
            home: self.home.as_ref().map(home).transpose()?,
            clocks: Clocks {
                split: clock(|a| &a.last_split_time),
                merge: clock(|a| &a.last_merge_time),
                rebucket: clock(|a| &a.last_rebucket_time),
            },
            operation: self
                .operation
                .as_ref()
                .map(|operation| read_operation(operation, Incarnation(incarnation)))
                .transpose()?,
            last_requests: self.last_requests.iter().map(read_settled).collect::<Result<_, _>>()?,
        }))
    }

    /// Puts the topic's memory into the status, and what follows from it: the clocks and the counts.
    pub fn keep(&mut self, ledger: &Ledger) {
        self.incarnation = Some(format!("{:016x}", ledger.incarnation.0));
        self.op = Some(shown(ledger.op));
        self.layout = ledger.layout.as_ref().map(write_layout);
        self.subscriptions = ledger.subscriptions.values().map(write_subscription).collect();
        self.pending = ledger.pending.iter().filter_map(write_pending).collect();
        self.home = ledger.home.as_ref().map(|home| HomeStatus { store: home.store.0.clone(), term: shown(home.term) });
        self.operation = ledger.operation.as_ref().map(write_operation);
        self.last_requests = ledger.last_requests.iter().map(write_settled).collect();
        let Clocks { split, merge, rebucket } = ledger.clocks;
        if self.autoscale.is_some() || split.or(merge).or(rebucket).is_some() {
            let autoscale = self.autoscale.get_or_insert_default();
            autoscale.last_split_time = split.map(micro_time);
            autoscale.last_merge_time = merge.map(micro_time);
            autoscale.last_rebucket_time = rebucket.map(micro_time);
        }
        self.counts = ledger.layout.as_ref().map(|layout| {
            let active = layout.active().len();
            CountsStatus {
                active_segments: small(active),
                sealed_segments: small(layout.segments().len() - active),
                buckets: shown(layout.capacity()),
                subscriptions: small(ledger.subscriptions.len()),
            }
        });
    }
}

fn small(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn read(field: &'static str, found: i64) -> Result<u64, Unreadable> {
    u64::try_from(found).map_err(|_| Unreadable::Negative { field, found })
}

fn read_ids(field: &'static str, ids: &[i64]) -> Result<Vec<SegmentId>, Unreadable> {
    ids.iter().map(|id| read(field, *id).map(SegmentId)).collect()
}

fn write_ids(ids: &[SegmentId]) -> Vec<i64> {
    ids.iter().map(|id| shown(id.0)).collect()
}

fn read_layout(layout: &LayoutStatus) -> Result<Layout, Unreadable> {
    Ok(Layout::new(Parts {
        epoch: Epoch(read("layout.epoch", layout.epoch)?),
        next_segment_id: SegmentId(read("layout.nextSegmentId", layout.next_segment_id)?),
        segments: layout.segments.iter().map(read_segment).collect::<Result<_, _>>()?,
    })?)
}

fn write_layout(layout: &Layout) -> LayoutStatus {
    LayoutStatus {
        epoch: shown(layout.epoch().0),
        next_segment_id: shown(layout.next_segment_id().0),
        segments: layout.segments().iter().map(write_segment).collect(),
    }
}

fn read_segment(segment: &SegmentStatus) -> Result<Segment, Unreadable> {
    let id = segment.id;
    let range = u16::try_from(segment.start).ok().zip(u16::try_from(segment.end).ok());
    let range = range.and_then(|(start, end)| HashRange::new(start, end));
    let buckets = u32::try_from(segment.buckets).ok().and_then(Buckets::new);
    Ok(Segment {
        id: SegmentId(read("layout.segments.id", id)?),
        range: range.ok_or(Unreadable::Range { id, start: segment.start, end: segment.end })?,
        buckets: buckets.ok_or(Unreadable::Buckets { id, buckets: segment.buckets })?,
        state: match (segment.state, segment.sealed_epoch, &segment.sealed_time) {
            (SegmentState::Active, ..) => State::Active,
            (SegmentState::Sealed, Some(epoch), Some(at)) => {
                State::Sealed { epoch: Epoch(read("layout.segments.sealedEpoch", epoch)?), at: micros(at) }
            }
            (SegmentState::Sealed, ..) => return Err(Unreadable::SealIncomplete { id }),
        },
        parents: read_ids("layout.segments.parents", &segment.parents)?,
        children: read_ids("layout.segments.children", &segment.children)?,
        created_epoch: Epoch(read("layout.segments.createdEpoch", segment.created_epoch)?),
        created_at: micros(&segment.created_time),
        merge_depth: u32::try_from(segment.merge_depth).map_err(|_| Unreadable::Negative {
            field: "layout.segments.mergeDepth",
            found: segment.merge_depth.into(),
        })?,
        store: StoreName(segment.store.clone()),
    })
}

fn write_segment(segment: &Segment) -> SegmentStatus {
    SegmentStatus {
        id: shown(segment.id.0),
        start: segment.range.start().into(),
        end: segment.range.end().into(),
        buckets: i32::try_from(segment.buckets.count()).unwrap_or(i32::MAX),
        state: if segment.is_active() { SegmentState::Active } else { SegmentState::Sealed },
        parents: write_ids(&segment.parents),
        children: write_ids(&segment.children),
        store: segment.store.0.clone(),
        created_epoch: shown(segment.created_epoch.0),
        created_time: micro_time(segment.created_at),
        sealed_epoch: segment.sealed_epoch().map(|epoch| shown(epoch.0)),
        sealed_time: segment.sealed_at().map(micro_time),
        merge_depth: i32::try_from(segment.merge_depth).unwrap_or(i32::MAX),
    }
}

fn read_subscription(sub: &TopicSubscriptionStatus) -> Result<Subscription, Unreadable> {
    Ok(Subscription {
        name: SubscriptionName(sub.name.clone()),
        kind: match sub.type_ {
            SubscriptionType::Ordered => SubscriptionKind::Ordered,
        },
        generation: Generation(read("subscriptions.generation", sub.generation)?),
        start: match sub.initial_position {
            InitialPosition::Earliest => Start::Earliest,
            InitialPosition::Latest => Start::Latest,
        },
        since: micros(&sub.since_time),
    })
}

fn write_subscription(sub: &Subscription) -> TopicSubscriptionStatus {
    TopicSubscriptionStatus {
        name: sub.name.0.clone(),
        type_: match sub.kind {
            SubscriptionKind::Ordered => SubscriptionType::Ordered,
        },
        generation: shown(sub.generation.0),
        initial_position: match sub.start {
            Start::Earliest => InitialPosition::Earliest,
            Start::Latest => InitialPosition::Latest,
        },
        since_time: micro_time(sub.since),
    }
}

fn read_pending(pending: &PendingStatus) -> Result<Pending, Unreadable> {
    let store = StoreName(pending.store.clone());
    let segments = read_ids("pending.segments", &pending.segments)?;
    let subscription = read_subscription(&pending.subscription)?;
    let step = match pending.action {
        CursorAction::Open => Step::OpenCursors { store, segments, subscription },
        CursorAction::Drop => Step::DropCursors { store, segments, subscription },
    };
    Ok(Pending { op: read("pending.op", pending.op)?, step })
}

/// `None` for a step that is never owed.
fn write_pending(pending: &Pending) -> Option<PendingStatus> {
    let (action, store, segments, subscription) = match &pending.step {
        Step::OpenCursors { store, segments, subscription } => (CursorAction::Open, store, segments, subscription),
        Step::DropCursors { store, segments, subscription } => (CursorAction::Drop, store, segments, subscription),
        Step::Create { .. } | Step::Seal { .. } | Step::DeleteSegments { .. } => return None,
    };
    Some(PendingStatus {
        op: shown(pending.op),
        action,
        store: store.0.clone(),
        segments: write_ids(segments),
        subscription: write_subscription(subscription),
    })
}

fn read_settled(request: &RequestStatus) -> Result<Settled, Unreadable> {
    let outcome = match request.outcome {
        RequestOutcome::Committed => Outcome::Committed {
            op: read("lastRequests.op", request.op)?,
            epoch: Epoch(read("lastRequests.epoch", request.epoch)?),
        },
    };
    Ok(Settled { uid: request.uid.clone(), outcome })
}

fn write_settled(settled: &Settled) -> RequestStatus {
    let Outcome::Committed { op, epoch } = settled.outcome;
    RequestStatus { uid: settled.uid.clone(), outcome: RequestOutcome::Committed, op: shown(op), epoch: shown(epoch.0) }
}

fn read_operation(operation: &OperationStatus, incarnation: Incarnation) -> Result<Operation, Unreadable> {
    let lacks = |field| Unreadable::OperationIncomplete { op: operation.op, kind: operation.kind, field };
    Ok(Operation {
        op: read("operation.op", operation.op)?,
        incarnation,
        kind: match operation.kind {
            OperationKind::Create => Kind::Create,
            OperationKind::Split => Kind::Split,
            OperationKind::Merge => Kind::Merge,
            OperationKind::Rebucket => Kind::Rebucket,
            OperationKind::Subscribe => {
                let sub = operation.subscription.as_ref().ok_or_else(|| lacks("subscription"))?;
                Kind::Subscribe(read_subscription(sub)?)
            }
            OperationKind::Unsubscribe => {
                let name = operation.unsubscribed.clone().ok_or_else(|| lacks("unsubscribed"))?;
                Kind::Unsubscribe(SubscriptionName(name))
            }
            OperationKind::Delete => Kind::Delete,
        },
        request: operation.request.clone(),
        planned_at: micros(&operation.planned_time),
        epoch: Epoch(read("operation.epoch", operation.epoch)?),
        children: operation.children.iter().map(read_segment).collect::<Result<_, _>>()?,
        parents: read_ids("operation.parents", &operation.parents)?,
    })
}

fn write_operation(operation: &Operation) -> OperationStatus {
    let (kind, subscription, unsubscribed) = match &operation.kind {
        Kind::Create => (OperationKind::Create, None, None),
        Kind::Split => (OperationKind::Split, None, None),
        Kind::Merge => (OperationKind::Merge, None, None),
        Kind::Rebucket => (OperationKind::Rebucket, None, None),
        Kind::Subscribe(sub) => (OperationKind::Subscribe, Some(write_subscription(sub)), None),
        Kind::Unsubscribe(name) => (OperationKind::Unsubscribe, None, Some(name.0.clone())),
        Kind::Delete => (OperationKind::Delete, None, None),
    };
    OperationStatus {
        op: shown(operation.op),
        kind,
        request: operation.request.clone(),
        planned_time: micro_time(operation.planned_at),
        epoch: shown(operation.epoch.0),
        children: operation.children.iter().map(write_segment).collect(),
        parents: write_ids(&operation.parents),
        subscription,
        unsubscribed,
    }
}
