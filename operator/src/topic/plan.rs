//! From one look at a topic to the one next step. Pure: no client, no await, no clock.

use braid_crds::DeletionPolicy;
use braid_model::operation::{Given, Kind, Ledger, Next, Outcome, Refusal, Request, Step, SubscriptionKind, next};
use braid_model::placement::{Guest, Host, Hosts, StoreName, place};
use braid_model::scale::{Change, Mode};
use braid_model::{Fence, Incarnation, Micros};
use braid_wire::proto;

use crate::events::Note;
use crate::topic::judge::{Judged, judge};
use crate::topic::observe::{Asked, Seen};
use crate::topic::status::{self, Doing};
use crate::topic::tell::digest;
use crate::topic::told::layout_to_tell;

mod birth;

/// A home that has been silent for longer is moved.
pub(crate) const HOME_SILENT_MS: u64 = 10_000;
/// The look at a topic that nothing else caused.
const LOOK_AGAIN_MS: u64 = 60_000;

/// The one next step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    /// Nothing is to be done; the status says so.
    Rest,
    /// Write this ledger. `begins` names the operation whose plan it holds, if it is a new one.
    Store { ledger: Box<Ledger>, begins: Option<&'static str> },
    /// Send a step of the stored operation.
    Command { number: usize, step: Step, fence: Fence },
    /// Send a change of cursors that a store owes.
    Pay { op: u64, step: Step, fence: Fence },
    /// Send a seal that an adopted topic lacks.
    SealAdopted { step: Step, incarnation: Incarnation, fence: Fence },
    /// Ask these stores, each on that link, what they hold of the topic's name.
    Inspect { stores: Vec<(StoreName, u64)> },
    /// Tell this layout to these nodes, each on that link.
    Tell { stores: Vec<(StoreName, u64)>, layout: Box<proto::TopicLayout>, fence: Fence },
    /// Say how a layout change ended.
    Settle { change: Asked, ended: Ended },
    /// Add or remove the finalizer.
    Finalizer { wanted: bool },
}

/// How a layout change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Complete { op: u64, epoch: u64 },
    Failed { reason: &'static str, message: String },
}

/// What a node was told, and on which link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) link: u64,
    pub(crate) digest: u64,
}

/// The step, the status that goes with it (`None`: as it is), and when to look again.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) act: Act,
    pub(crate) status: Option<Box<braid_crds::ScalableTopicStatus>>,
    pub(crate) recheck_ms: u64,
    pub(crate) notes: Vec<Note>,
}

impl Plan {
    /// A step that leaves the status as it is.
    fn silently(act: Act) -> Self {
        Self { act, status: None, recheck_ms: 0, notes: Vec::new() }
    }

    fn rest(seen: &Seen, ledger: Option<&Ledger>, doing: &Doing, now: Micros) -> Self {
        let judged = ledger.map(|ledger| judge(seen, ledger, now));
        let status = Box::new(status::compose(seen, ledger, judged.as_ref(), doing, now));
        let recheck_ms = recheck(seen, ledger, judged.as_ref(), now);
        Self { act: Act::Rest, status: Some(status), recheck_ms, notes: Vec::new() }
    }

    fn store(seen: &Seen, ledger: Ledger, begins: Option<&'static str>, doing: &Doing, now: Micros) -> Self {
        let judged = judge(seen, &ledger, now);
        let status = Box::new(status::compose(seen, Some(&ledger), Some(&judged), doing, now));
        Self {
            act: Act::Store { ledger: Box::new(ledger), begins },
            status: Some(status),
            recheck_ms: 0,
            notes: Vec::new(),
        }
    }

    fn noting(mut self, note: Note) -> Self {
        self.notes.push(note);
        self
    }
}

/// The status of a topic whose last step was refused.
pub(crate) fn refused(seen: &Seen, now: Micros) -> Plan {
    let ledger = seen.ledger.as_ref().ok().and_then(|ledger| ledger.as_ref());
    Plan::rest(seen, ledger, &Doing::Operation, now)
}

/// The next step of the topic.
pub(crate) fn plan(seen: &Seen, now: Micros) -> Plan {
    let ledger = match &seen.ledger {
        Ok(ledger) => ledger.as_ref(),
        Err(unreadable) => {
            let doing = Doing::Stalled { reason: "StatusUnreadable", message: unreadable.to_string() };
            return Plan::rest(seen, None, &doing, now);
        }
    };
    let deletes = seen.spec.deletion_policy == DeletionPolicy::Delete;
    if seen.leaving_since.is_some() {
        return if !seen.has_finalizer {
            Plan { recheck_ms: LOOK_AGAIN_MS, ..Plan::silently(Act::Rest) }
        } else if deletes {
            leave(seen, ledger, now)
        } else {
            Plan::silently(Act::Finalizer { wanted: false })
        };
    }
    if deletes != seen.has_finalizer {
        return Plan::silently(Act::Finalizer { wanted: deletes });
    }
    match ledger {
        Some(ledger) => go_on(seen, ledger, now),
        None => birth::begin(seen, now),
    }
}

/// A topic that is deleted with its data.
fn leave(seen: &Seen, ledger: Option<&Ledger>, now: Micros) -> Plan {
    let Some(ledger) = ledger.filter(|ledger| ledger.layout.is_some() || ledger.operation.is_some()) else {
        return Plan::silently(Act::Finalizer { wanted: false });
    };
    if let Some(higher) = above(seen, ledger, now) {
        return higher;
    }
    if ledger.operation.as_ref().is_some_and(|operation| operation.kind == Kind::Delete) {
        return tell_due(seen, ledger).unwrap_or_else(|| carry_on(seen, ledger, now));
    }
    let hosts = hosts(seen);
    match ledger.begin(&Request::Delete, None, &given(seen, &hosts, now)) {
        Ok(ledger) => Plan::store(seen, ledger, Some("delete"), &Doing::Operation, now),
        Err(refusal) => Plan::rest(seen, Some(ledger), &Doing::Waiting { message: refusal.to_string() }, now),
    }
}

/// A topic that exists.
fn go_on(seen: &Seen, ledger: &Ledger, now: Micros) -> Plan {
    if let Some(plan) = above(seen, ledger, now) {
        return plan;
    }
    if let Some(plan) = tell_due(seen, ledger) {
        return plan;
    }
    if let Some(plan) = move_home(seen, ledger, now) {
        return plan;
    }
    if let Some(plan) = pay(seen, ledger, now) {
        return plan;
    }
    if ledger.operation.is_some() {
        return carry_on(seen, ledger, now);
    }
    if let Some(plan) = settle(seen, ledger) {
        return plan;
    }
    if seen.paused {
        return Plan::rest(seen, Some(ledger), &Doing::Nothing, now);
    }
    new_work(seen, ledger, now)
}

/// A node has seen a higher op than the stored one: a command of ours passes only above it.
fn above(seen: &Seen, ledger: &Ledger, now: Micros) -> Option<Plan> {
    let higher = seen.seen_op.filter(|op| *op > ledger.op)?;
    Some(Plan::store(seen, ledger.above(higher), None, &Doing::Operation, now))
}

/// The next step of the stored operation.
fn carry_on(seen: &Seen, ledger: &Ledger, now: Micros) -> Plan {
    match next(ledger, &seen.confirmed, &hosts(seen)) {
        Next::Do { number, step } => Plan::silently(Act::Command { number, step, fence: ledger.fence(seen.term) }),
        Next::Wait { store } => Plan::rest(seen, Some(ledger), &Doing::WaitingFor { store }, now),
        Next::Idle => Plan::rest(seen, Some(ledger), &Doing::Nothing, now),
        Next::Commit => match ledger.commit(&seen.confirmed, now) {
            Ok(after) => {
                let note = committed(ledger, &after);
                let mut plan = Plan::store(seen, after, None, &Doing::Nothing, now);
                plan.notes.extend(note);
                plan
            }
            Err(error) => {
                let doing = Doing::Stalled { reason: "CommitRefused", message: error.to_string() };
                Plan::rest(seen, Some(ledger), &doing, now)
            }
        },
    }
}

fn committed(before: &Ledger, after: &Ledger) -> Option<Note> {
    let operation = before.operation.as_ref()?;
    let epoch = after.layout.as_ref().map_or(0, |layout| layout.epoch().0);
    let made: Vec<u64> = operation.children.iter().map(|child| child.id.0).collect();
    let parents: Vec<u64> = operation.parents.iter().map(|parent| parent.0).collect();
    Some(match &operation.kind {
        Kind::Create => Note::normal("Created", format!("{} segments", made.len())),
        Kind::Split => Note::normal("Split", format!("segment {parents:?} into {made:?}, epoch {epoch}")),
        Kind::Merge => Note::normal("Merged", format!("segments {parents:?} into {made:?}, epoch {epoch}")),
        Kind::Rebucket => Note::normal("Rebucketed", format!("segments {parents:?} into {made:?}, epoch {epoch}")),
        Kind::Subscribe(subscription) => Note::normal("Subscribed", format!("subscription `{}`", subscription.name)),
        Kind::Unsubscribe(name) => Note::normal("Unsubscribed", format!("subscription `{name}`")),
        Kind::Delete => return None,
    })
}

/// The nodes that do not know the layout as it is now.
fn tell_due(seen: &Seen, ledger: &Ledger) -> Option<Plan> {
    let layout = layout_to_tell(seen, ledger)?;
    let digest = digest(&layout);
    let due = seen.stores.iter().filter_map(|store| {
        let link = store.link?;
        let knows = seen.told.get(&store.store) == Some(&Told { link, digest });
        (!knows && !seen.not_yet.contains_key(&store.store)).then(|| (store.store.clone(), link))
    });
    let stores: Vec<_> = due.collect();
    let fence = ledger.fence(seen.term);
    (!stores.is_empty()).then(|| Plan::silently(Act::Tell { stores, layout: Box::new(layout), fence }))
}

/// A home whose node is gone or silent for long moves to the store with the least load.
fn move_home(seen: &Seen, ledger: &Ledger, now: Micros) -> Option<Plan> {
    let home = ledger.home.as_ref()?;
    let silent = match seen.stores.iter().find(|store| store.store == home.store) {
        Some(store) => store.link.is_none() && store.silent_ms > HOME_SILENT_MS,
        None => seen.watched_ms > HOME_SILENT_MS,
    };
    if !silent {
        return None;
    }
    let guest = Guest { weight: 1, parent_store: None, apart: None };
    let store = place(&hosts(seen).stores, &[guest])?.into_iter().next()?;
    let note = Note::normal("HomeMoved", format!("from store `{}` to `{store}`", home.store));
    let doing = if ledger.operation.is_some() { Doing::Operation } else { Doing::Nothing };
    Some(Plan::store(seen, ledger.with_home(&store), None, &doing, now).noting(note))
}

/// What connected stores owe: send it, then store that it is paid.
fn pay(seen: &Seen, ledger: &Ledger, now: Micros) -> Option<Plan> {
    if let Some((store, op)) = &seen.paid
        && ledger.owed(store).any(|pending| pending.op <= *op)
    {
        let doing = if ledger.operation.is_some() { Doing::Operation } else { Doing::Nothing };
        return Some(Plan::store(seen, ledger.paid(store, *op), None, &doing, now));
    }
    let connected = hosts(seen);
    let owed = ledger.pending.iter().find(|pending| connected.is_connected(pending.step.store()))?;
    let (op, step) = (owed.op, owed.step.clone());
    Some(Plan::silently(Act::Pay { op, step, fence: ledger.fence(seen.term) }))
}

/// A layout change that was carried out says so, before anything new is begun.
fn settle(seen: &Seen, ledger: &Ledger) -> Option<Plan> {
    seen.changes.iter().find_map(|change| {
        let Outcome::Committed { op, epoch } = ledger.outcome(&change.uid)?;
        let ended = Ended::Complete { op, epoch: epoch.0 };
        Some(Plan::silently(Act::Settle { change: change.clone(), ended }))
    })
}

/// Something new: a subscription that comes or goes, a layout change, or what the evaluator wants.
fn new_work(seen: &Seen, ledger: &Ledger, now: Micros) -> Plan {
    let hosts = hosts(seen);
    let given = given(seen, &hosts, now);
    let mut refused = None;
    for (request, name) in subscription_requests(seen, ledger) {
        match ledger.begin(&request, None, &given) {
            Ok(after) => return Plan::store(seen, after, Some(name), &Doing::Operation, now),
            Err(refusal) => refused = Some(refusal),
        }
    }
    for change in &seen.changes {
        match ledger.begin(&change.request, Some(&change.uid), &given) {
            Ok(after) => {
                let name = after.operation.as_ref().map(|operation| operation.kind.name());
                return Plan::store(seen, after, name, &Doing::Operation, now);
            }
            Err(refusal) if refusal.is_passing() => refused = Some(refusal),
            Err(refusal) => {
                let ended = Ended::Failed { reason: refusal.reason(), message: refusal.to_string() };
                return Plan::silently(Act::Settle { change: change.clone(), ended });
            }
        }
    }
    let judged = judge(seen, ledger, now);
    if let Some(change) = &judged.verdict.change
        && seen.policy.mode == Mode::Auto
        && refused.is_none()
    {
        match ledger.begin(&request_of(change), None, &given) {
            Ok(after) => return decided(seen, after, &judged, change, now),
            Err(refusal) => refused = Some(refusal),
        }
    }
    let doing = refused.map_or(Doing::Nothing, |refusal: Refusal| Doing::Waiting { message: refusal.to_string() });
    Plan::rest(seen, Some(ledger), &doing, now)
}

fn decided(seen: &Seen, after: Ledger, judged: &Judged, change: &Change, now: Micros) -> Plan {
    let name = after.operation.as_ref().map(|operation| operation.kind.name());
    let mut plan = Plan::store(seen, after, name, &Doing::Operation, now);
    let decision = status::decision(judged, change, now);
    let text = format!("{} of segments {:?}: {}", change.kind(), decision.change.segments, decision.reason);
    if let Some(status) = &mut plan.status {
        status.autoscale.get_or_insert_default().last_decision = Some(decision);
    }
    // The reason says what changed: events of one reason become a series that keeps its first text.
    let reason = match change {
        Change::Split { .. } => "SplitDecided",
        Change::Rebucket { .. } => "RebucketDecided",
        Change::Merge { .. } => "MergeDecided",
    };
    plan.noting(Note::normal(reason, text))
}

fn request_of(change: &Change) -> Request {
    match change {
        Change::Split { segment, into, .. } => Request::Split { segment: *segment, into: *into },
        Change::Rebucket { segments, buckets, .. } => {
            Request::Rebucket { segments: segments.clone(), buckets: *buckets }
        }
        Change::Merge { a, b, .. } => Request::Merge { a: *a, b: *b },
    }
}

/// Cursors to be removed, then cursors to be made, by name.
fn subscription_requests(seen: &Seen, ledger: &Ledger) -> Vec<(Request, &'static str)> {
    let has = |name| ledger.subscriptions.contains_key(name);
    let gone = seen.subscriptions.iter().filter(|sub| sub.leaving && sub.drops_position && has(&sub.name));
    let new = seen.subscriptions.iter().filter(|sub| !sub.leaving && !has(&sub.name));
    let unsubscribe = gone.map(|sub| (Request::Unsubscribe { name: sub.name.clone() }, "unsubscribe"));
    let subscribe = new.map(|sub| {
        let request = Request::Subscribe { name: sub.name.clone(), kind: SubscriptionKind::Ordered, start: sub.start };
        (request, "subscribe")
    });
    unsubscribe.chain(subscribe).collect()
}

fn given<'a>(seen: &Seen, hosts: &'a Hosts, now: Micros) -> Given<'a> {
    Given { hosts, ceiling: seen.ceiling, now }
}

/// The stores as placement and steps see them.
pub(crate) fn hosts(seen: &Seen) -> Hosts {
    let host = |store: &crate::fleet::StoreSeen| Host {
        store: store.store.clone(),
        connected: store.link.is_some(),
        load: store.load,
    };
    Hosts {
        stores: seen.stores.iter().map(host).collect(),
        weights: seen.reports.segments.iter().map(|(id, segment)| (*id, segment.weight())).collect(),
    }
}

/// When to look again though nothing happens: a clock that ends, a silence that becomes too long, a node to be told again.
fn recheck(seen: &Seen, ledger: Option<&Ledger>, judged: Option<&Judged>, now: Micros) -> u64 {
    let clock = judged.and_then(|judged| judged.next).map(|at| at.since(now).div_ceil(1_000));
    let silences = seen.stores.iter().filter(|store| store.link.is_none()).flat_map(|store| {
        let bounds = [status::UNREACHABLE_MS, HOME_SILENT_MS];
        bounds.into_iter().filter(|bound| store.silent_ms <= *bound).map(|bound| bound + 1 - store.silent_ms)
    });
    let again = seen.not_yet.values().copied();
    let home_gone = ledger
        .and_then(|ledger| ledger.home.as_ref())
        .filter(|home| !seen.stores.iter().any(|store| store.store == home.store) && seen.watched_ms <= HOME_SILENT_MS);
    let home_gone = home_gone.map(|_| HOME_SILENT_MS + 1 - seen.watched_ms);
    let all = clock.into_iter().chain(silences).chain(again).chain(home_gone);
    all.chain([LOOK_AGAIN_MS]).min().unwrap_or(LOOK_AGAIN_MS).max(1)
}
