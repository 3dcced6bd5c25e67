//! From a request to a whole operation, or the reason why not.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{Kind, Ledger, Operation, PENDING_MAX, Request, SUBSCRIPTIONS_MAX, Subscription, SubscriptionName};
use crate::layout::{self, Child, Layout, SEGMENTS_MAX, Segment, State, Unfit};
use crate::placement::{self, Guest, Hosts, StoreName};
use crate::{Buckets, Epoch, Generation, Micros, SegmentId};

/// What a plan depends on besides the topic.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The stores, and what this topic's segments weigh.
    pub hosts: &'a Hosts,
    /// The most buckets of a segment that is made now.
    pub ceiling: Buckets,
    /// The time.
    pub now: Micros,
}

/// Why a request is not planned. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name every field")]
pub enum Refusal {
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error("operation `{op}` ({name}) is under way")]
    Busy { op: u64, name: &'static str },
    #[error("request `{uid}` was carried out before")]
    AlreadySettled { uid: String },
    #[error("the topic is already at epoch `{epoch}`")]
    AlreadyCreated { epoch: Epoch },
    #[error("the topic has no segments yet")]
    NotCreated,
    #[error("no store is connected")]
    NoStoreConnected,
    #[error("store `{store}` of segment `{segment}` is not connected")]
    StoreSilent { segment: SegmentId, store: StoreName },
    #[error("the layout would list `{found}` segments, at most {SEGMENTS_MAX} are allowed")]
    TooManySegments { found: usize },
    #[error("subscription `{name}` exists since operation `{generation}`")]
    SubscriptionExists { name: SubscriptionName, generation: Generation },
    #[error("subscription `{name}` is not in the topic")]
    SubscriptionUnknown { name: SubscriptionName },
    #[error("the topic has `{found}` subscriptions, at most {SUBSCRIPTIONS_MAX} are allowed")]
    TooManySubscriptions { found: usize },
    #[error("stores that are not connected owe `{found}` changes of cursors, at most {PENDING_MAX} are allowed")]
    TooManyPending { found: usize },
}

impl Refusal {
    /// The reason as conditions show it.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unfit(unfit) => unfit.reason(),
            Self::Busy { .. } => "Busy",
            Self::AlreadySettled { .. } => "AlreadySettled",
            Self::AlreadyCreated { .. } => "AlreadyCreated",
            Self::NotCreated => "NotCreated",
            Self::NoStoreConnected => "NoStoreConnected",
            Self::StoreSilent { .. } => "StoreSilent",
            Self::TooManySegments { .. } => "TooManySegments",
            Self::SubscriptionExists { .. } => "SubscriptionExists",
            Self::SubscriptionUnknown { .. } => "SubscriptionUnknown",
            Self::TooManySubscriptions { .. } => "TooManySubscriptions",
            Self::TooManyPending { .. } => "TooManyPending",
        }
    }

    /// Whether the same request may be planned later without anybody changing it.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        use Refusal::{Busy, NoStoreConnected, NotCreated, StoreSilent, TooManyPending};
        matches!(self, Busy { .. } | NotCreated | NoStoreConnected | StoreSilent { .. } | TooManyPending { .. })
    }
}

/// The operation that carries out `request` on the topic of `ledger`, numbered by the op after its last one.
///
/// It chooses everything: op, target epoch, ids, ranges, buckets, stores. `request_uid` names the resource that asked.
pub fn plan(
    ledger: &Ledger,
    request: &Request,
    request_uid: Option<&str>,
    given: &Given<'_>,
) -> Result<Operation, Refusal> {
    if let Some(uid) = request_uid
        && ledger.outcome(uid).is_some()
    {
        return Err(Refusal::AlreadySettled { uid: uid.into() });
    }
    if let Some(under_way) = &ledger.operation
        && (*request != Request::Delete || under_way.kind == Kind::Delete)
    {
        return Err(Refusal::Busy { op: under_way.op, name: under_way.kind.name() });
    }
    let layout = || ledger.layout.as_ref().ok_or(Refusal::NotCreated);
    let (kind, children) = match request {
        Request::Create { segments, budget } => {
            if let Some(layout) = &ledger.layout {
                return Err(Refusal::AlreadyCreated { epoch: layout.epoch() });
            }
            (Kind::Create, layout::create(*segments, *budget, given.ceiling)?)
        }
        Request::Split { segment, into } => (Kind::Split, layout()?.split(*segment, *into, given.ceiling)?),
        Request::Merge { a, b } => (Kind::Merge, vec![layout()?.merge(*a, *b, given.ceiling)?]),
        Request::Rebucket { segments, buckets } => {
            (Kind::Rebucket, layout()?.rebucket(segments, *buckets, given.ceiling)?)
        }
        Request::Subscribe { name, kind, start } => {
            layout()?;
            may_subscribe(ledger, name)?;
            let generation = Generation(ledger.op.saturating_add(1));
            let (name, kind, start) = (name.clone(), *kind, *start);
            (Kind::Subscribe(Subscription { name, kind, generation, start, since: given.now }), Vec::new())
        }
        Request::Unsubscribe { name } => {
            if !ledger.subscriptions.contains_key(name) {
                return Err(Refusal::SubscriptionUnknown { name: name.clone() });
            }
            may_owe_more(ledger)?;
            (Kind::Unsubscribe(name.clone()), Vec::new())
        }
        Request::Delete => (Kind::Delete, Vec::new()),
    };
    let epoch = match (&kind, &ledger.layout) {
        (Kind::Delete, _) | (_, None) if !kind.is_structural() => Epoch(0),
        (_, None) => Epoch(1),
        (_, Some(layout)) if kind.is_structural() => layout.epoch().next(),
        (_, Some(layout)) => layout.epoch(),
    };
    let parents = parents_in_order(&children);
    let children = match &kind {
        Kind::Delete => ledger.operation.as_ref().map(|cut_short| cut_short.children.clone()).unwrap_or_default(),
        _ => hosted(ledger.layout.as_ref(), &kind, children, &parents, epoch, given)?,
    };
    Ok(Operation {
        op: ledger.op.saturating_add(1),
        incarnation: ledger.incarnation,
        kind,
        request: request_uid.map(Into::into),
        planned_at: given.now,
        epoch,
        children,
        parents,
    })
}

fn may_subscribe(ledger: &Ledger, name: &SubscriptionName) -> Result<(), Refusal> {
    if let Some(existing) = ledger.subscriptions.get(name) {
        return Err(Refusal::SubscriptionExists { name: name.clone(), generation: existing.generation });
    }
    let found = ledger.subscriptions.len();
    if found >= SUBSCRIPTIONS_MAX { Err(Refusal::TooManySubscriptions { found }) } else { may_owe_more(ledger) }
}

fn may_owe_more(ledger: &Ledger) -> Result<(), Refusal> {
    let found = ledger.pending.len();
    if found >= PENDING_MAX { Err(Refusal::TooManyPending { found }) } else { Ok(()) }
}

/// Each parent once, as the children name them.
fn parents_in_order(children: &[Child]) -> Vec<SegmentId> {
    let mut parents: Vec<SegmentId> = children.iter().flat_map(|child| child.parents.iter().copied()).collect();
    parents.dedup();
    parents
}

/// The children as segments, each on its store. The weight of the parents leaves their stores before the children look for
/// one: a sealed segment takes no appends.
fn hosted(
    layout: Option<&Layout>,
    kind: &Kind,
    children: Vec<Child>,
    parents: &[SegmentId],
    epoch: Epoch,
    given: &Given<'_>,
) -> Result<Vec<Segment>, Refusal> {
    let found = layout.map_or(0, |layout| layout.segments().len()) + children.len();
    if found > SEGMENTS_MAX && !children.is_empty() {
        return Err(Refusal::TooManySegments { found });
    }
    let parent = |id: &SegmentId| layout.and_then(|layout| layout.segment(*id));
    let mut hosts = given.hosts.stores.clone();
    for segment in parents.iter().filter_map(parent) {
        if !given.hosts.is_connected(&segment.store) {
            return Err(Refusal::StoreSilent { segment: segment.id, store: segment.store.clone() });
        }
        if let Some(host) = hosts.iter_mut().find(|host| host.store == segment.store) {
            host.load = host.load.saturating_sub(given.hosts.weight(segment.id));
        }
    }
    let guest = |child: &Child| {
        let share = |segment: &Segment| {
            let weight = u128::from(given.hosts.weight(segment.id));
            let hashes = child.range.size().min(segment.range.size());
            (weight * u128::from(hashes) / u128::from(segment.range.size())) as u64
        };
        let weight = child.parents.iter().filter_map(parent).map(share).fold(0, u64::saturating_add).max(1);
        let parent_store = child.parents.first().and_then(parent).map(|segment| segment.store.clone());
        let apart = if *kind == Kind::Split { child.parents.first().copied() } else { None };
        Guest { weight, parent_store, apart }
    };
    let guests: Vec<Guest> = children.iter().map(guest).collect();
    let stores = placement::place(&hosts, &guests).ok_or(Refusal::NoStoreConnected);
    // A plan without children needs no store.
    let stores = if children.is_empty() { Vec::new() } else { stores? };
    let segment = |(child, store): (Child, StoreName)| Segment {
        id: child.id,
        range: child.range,
        buckets: child.buckets,
        state: State::Active,
        parents: child.parents,
        children: Vec::new(),
        created_epoch: epoch,
        created_at: given.now,
        merge_depth: child.merge_depth,
        store,
    };
    Ok(children.into_iter().zip(stores).map(segment).collect())
}
