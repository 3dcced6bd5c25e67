//! Everything a lap looks at, read once: resources from the caches, stores and reports from the fleet, and this leader's memory.

use std::collections::BTreeMap;

use braid_crds::{
    DeletionPolicy, FINALIZER, InitialPosition, LayoutChange, LayoutChangeSpec, ScalableTopic, ScalableTopicSpec,
    ScalableTopicStatus, Subscription, Unreadable,
};
use braid_model::operation::{Confirmed, Ledger, Request, Start};
use braid_model::placement::StoreName;
use braid_model::scale::Policy;
use braid_model::{Buckets, Incarnation, Micros, SegmentId, SubscriptionName};
use braid_wire::proto;
use kube::ResourceExt as _;
use tokio::time::Instant;

use crate::context::Context;
use crate::fleet::{StoreSeen, TopicSeen};
use crate::name::Name;
use crate::policy;
use crate::speech::Service;
use crate::topic::memory::{Memory, Trouble};
use crate::topic::plan::Told;

/// Pauses a topic: what is under way is finished, nothing new is begun.
pub(crate) const PAUSED: &str = "braid.stream/paused";

/// One look at a topic.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: Name,
    pub(crate) generation: Option<i64>,
    pub(crate) spec: ScalableTopicSpec,
    pub(crate) status: ScalableTopicStatus,
    pub(crate) ledger: Result<Option<Ledger>, Unreadable>,
    /// When its deletion was asked for.
    pub(crate) leaving_since: Option<Micros>,
    pub(crate) has_finalizer: bool,
    pub(crate) paused: bool,
    pub(crate) policy: Policy,
    pub(crate) subscriptions: Vec<Wanted>,
    pub(crate) changes: Vec<Asked>,
    pub(crate) stores: Vec<StoreSeen>,
    pub(crate) reports: TopicSeen,
    pub(crate) term: u64,
    pub(crate) ceiling: Buckets,
    /// A random incarnation, should one be needed.
    pub(crate) fresh: Incarnation,
    pub(crate) confirmed: Confirmed,
    pub(crate) told: BTreeMap<StoreName, Told>,
    /// Stores that are not to be told the layout yet, and for how many milliseconds.
    pub(crate) not_yet: BTreeMap<StoreName, u64>,
    pub(crate) inventories: BTreeMap<StoreName, (u64, proto::Inventory)>,
    pub(crate) paid: Option<(StoreName, u64)>,
    pub(crate) seen_op: Option<u64>,
    pub(crate) trouble: Option<Trouble>,
    /// How long this leader has looked after the topic, in milliseconds.
    pub(crate) watched_ms: u64,
}

/// A Subscription of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) name: SubscriptionName,
    pub(crate) start: Start,
    pub(crate) service: Service,
    /// It is being deleted.
    pub(crate) leaving: bool,
    /// Its position goes with it.
    pub(crate) drops_position: bool,
}

/// A LayoutChange of the topic that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) name: Name,
    pub(crate) uid: String,
    pub(crate) request: Request,
}

/// Reads; never writes.
pub(crate) fn observe(topic: &ScalableTopic, memory: &Memory, term: u64, ctx: &Context) -> Seen {
    let name = Name::of(topic);
    let status = topic.status.clone().unwrap_or_default();
    let ledger = status.ledger();
    let incarnation = ledger.as_ref().ok().and_then(|ledger| ledger.as_ref().map(|ledger| ledger.incarnation));
    let namespace = ctx.cache.policy_of(&name);
    let mut changes: Vec<LayoutChange> = ctx.cache.changes_of(&name);
    changes.retain(|change| !has_ended(change) && !change.uid().is_some_and(|uid| memory.ended.contains(&uid)));
    changes.sort_by_key(|change| (change.creation_timestamp().map(|time| time.0), change.name_any()));
    let left = |until: &Instant| {
        let left = until.saturating_duration_since(Instant::now());
        u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
    };
    let not_yet = memory.tell_after.iter().map(|(store, until)| (store.clone(), left(until)));
    Seen {
        generation: topic.metadata.generation,
        ledger,
        leaving_since: topic
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|time| Micros(u64::try_from(time.0.as_microsecond()).unwrap_or(0))),
        has_finalizer: topic.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
        paused: topic.annotations().get(PAUSED).is_some_and(|value| value == "true"),
        policy: policy::effective(ctx.ceiling, namespace.as_ref(), &topic.spec),
        subscriptions: ctx.cache.subscriptions_of(&name).iter().map(wanted).collect(),
        changes: changes.iter().filter_map(asked).collect(),
        stores: ctx.fleet.stores(&topic.spec.data_plane_ref.name),
        reports: incarnation.map(|incarnation| ctx.fleet.topic(&name, incarnation)).unwrap_or_default(),
        term,
        ceiling: ctx.ceiling,
        fresh: Incarnation(rand::random_range(1..=u64::MAX)),
        confirmed: memory.confirmed.clone(),
        told: memory.told.clone(),
        not_yet: not_yet.filter(|(_, ms)| *ms > 0).collect(),
        inventories: memory.inventories.clone(),
        paid: memory.paid.clone(),
        seen_op: memory.seen_op,
        trouble: memory.trouble.clone(),
        watched_ms: u64::try_from(memory.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        spec: topic.spec.clone(),
        status,
        name,
    }
}

fn wanted(sub: &Subscription) -> Wanted {
    Wanted {
        name: SubscriptionName(sub.name_any()),
        start: match sub.spec.initial_position {
            InitialPosition::Earliest => Start::Earliest,
            InitialPosition::Latest => Start::Latest,
        },
        service: Service::from(&sub.spec),
        leaving: sub.metadata.deletion_timestamp.is_some(),
        drops_position: sub.spec.deletion_policy == DeletionPolicy::Delete,
    }
}

/// Whether a layout change is over, either way.
pub(crate) fn has_ended(change: &LayoutChange) -> bool {
    let conditions = change.status.iter().flat_map(|status| &status.conditions);
    let mut ends = conditions.filter(|condition| condition.type_ == "Complete" || condition.type_ == "Failed");
    ends.any(|condition| condition.status == "True")
}

/// `None` for a change that asks for nothing, which the schema refuses.
fn asked(change: &LayoutChange) -> Option<Asked> {
    Some(Asked { name: Name::of(change), uid: change.uid()?, request: request(&change.spec)? })
}

fn request(spec: &LayoutChangeSpec) -> Option<Request> {
    let id = |id: i64| u64::try_from(id).ok().map(SegmentId);
    let ids = |ids: &[i64]| ids.iter().map(|one| id(*one)).collect::<Option<Vec<_>>>();
    if let Some(split) = &spec.split {
        Some(Request::Split { segment: id(split.segment)?, into: u32::try_from(split.into).ok()? })
    } else if let Some(merge) = &spec.merge {
        let [a, b] = ids(&merge.segments)?[..] else { return None };
        Some(Request::Merge { a, b })
    } else {
        let rebucket = spec.rebucket.as_ref()?;
        let buckets = u32::try_from(rebucket.buckets).ok().and_then(Buckets::new)?;
        Some(Request::Rebucket { segments: ids(&rebucket.segments)?, buckets })
    }
}
