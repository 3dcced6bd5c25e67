//! A topic, its stores and a leader that can be replaced at any act.

use std::collections::{BTreeMap, BTreeSet};

use braid_crds::{DeletionPolicy, ScalableTopicSpec, ScalableTopicStatus};
use braid_model::operation::{Confirmed, Seal, Start, Step};
use braid_model::placement::StoreName;
use braid_model::scale::{Rates, Sample};
use braid_model::{Buckets, Fence, Generation, Incarnation, Micros, SegmentId, SubscriptionName};
use braid_wire::proto;

use crate::fleet::{CursorSeen, GroupSeen, SegmentSeen, StoreSeen, TopicSeen};
use crate::name::Name;
use crate::policy;
use crate::speech;
use crate::topic::observe::{Asked, Seen, Wanted};
use crate::topic::plan::{Act, Ended, Plan, Told, plan};
use crate::topic::tell::digest;

/// What a store holds of a segment.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) header: proto::Segment,
    successors: Vec<proto::Segment>,
    cursors: BTreeMap<String, proto::SubscriptionSpec>,
    committed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) silent_ms: Option<u64>,
    pub(super) segments: BTreeMap<(u64, u64), Stored>,
    pub(super) fence: Fence,
    link: u64,
    pub(super) layout: Option<proto::TopicLayout>,
}

pub(super) struct World {
    pub(super) now: Micros,
    pub(super) spec: ScalableTopicSpec,
    pub(super) namespace_policy: Option<&'static str>,
    pub(super) status: ScalableTopicStatus,
    pub(super) stores: BTreeMap<StoreName, Store>,
    pub(super) subscriptions: Vec<Wanted>,
    pub(super) changes: Vec<Asked>,
    pub(super) ended: Vec<(String, Ended)>,
    pub(super) sessions: BTreeMap<&'static str, u32>,
    pub(super) loads: BTreeMap<u64, ([u64; 4], Option<u64>)>,
    pub(super) undrained: BTreeSet<u64>,
    pub(super) leaving_since: Option<Micros>,
    pub(super) has_finalizer: bool,
    pub(super) gone: bool,
    pub(super) paused: bool,
    pub(super) term: u64,
    pub(super) writes: u32,
    confirmed: Confirmed,
    told: BTreeMap<StoreName, Told>,
    inventories: BTreeMap<StoreName, (u64, proto::Inventory)>,
    paid: Option<(StoreName, u64)>,
    pub(super) seen_op: Option<u64>,
    pub(super) watched_ms: u64,
    pub(super) last: Option<Plan>,
}

impl World {
    pub(super) fn new(spec: &str) -> Self {
        let store = |i: u64| (StoreName(format!("node-{i}")), Store { link: i + 1, ..Store::default() });
        Self {
            now: Micros(1_764_551_514_000_000),
            spec: serde_yaml::from_str(spec).unwrap(),
            namespace_policy: None,
            status: ScalableTopicStatus::default(),
            stores: (0..3).map(store).collect(),
            subscriptions: Vec::new(),
            changes: Vec::new(),
            ended: Vec::new(),
            sessions: BTreeMap::new(),
            loads: BTreeMap::new(),
            undrained: BTreeSet::new(),
            leaving_since: None,
            has_finalizer: false,
            gone: false,
            paused: false,
            term: 1,
            writes: 0,
            confirmed: Confirmed::default(),
            told: BTreeMap::new(),
            inventories: BTreeMap::new(),
            paid: None,
            seen_op: None,
            watched_ms: 60_000,
            last: None,
        }
    }

    pub(super) fn subscribed(mut self, name: &str) -> Self {
        self.subscriptions.push(Wanted {
            name: name.into(),
            start: Start::Earliest,
            service: speech::Service::default(),
            leaving: false,
            drops_position: false,
        });
        self
    }

    pub(super) fn store(&mut self, i: usize) -> &mut Store {
        self.stores.get_mut(&StoreName(format!("node-{i}"))).unwrap()
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.now = Micros(self.now.0 + seconds * 1_000_000);
    }

    /// Another leader takes over: its term is higher, and it remembers nothing.
    pub(super) fn new_leader(&mut self) {
        self.term += 1;
        self.confirmed = Confirmed::default();
        self.told.clear();
        self.inventories.clear();
        self.paid = None;
        self.seen_op = None;
    }

    pub(super) fn seen(&self) -> Seen {
        let name = Name { namespace: "n".into(), name: "t".into() };
        let ledger = self.status.ledger();
        let namespace = self.namespace_policy.map(|spec| {
            let head = "apiVersion: braid.stream/v1alpha1, kind: AutoscalePolicy, metadata: {name: default}";
            serde_yaml::from_str(&format!("{{{head}, spec: {spec}}}")).unwrap()
        });
        let ceiling = Buckets::new(1_024).unwrap();
        Seen {
            generation: Some(1),
            leaving_since: self.leaving_since,
            has_finalizer: self.has_finalizer,
            paused: self.paused,
            policy: policy::effective(ceiling, namespace.as_ref(), &self.spec),
            subscriptions: self.subscriptions.clone(),
            changes: self.changes.clone(),
            stores: self.stores.iter().map(|(store, at)| self.store_seen(store, at)).collect(),
            reports: self.reports(),
            term: self.term,
            ceiling,
            fresh: Incarnation(0xabc),
            confirmed: self.confirmed.clone(),
            told: self.told.clone(),
            not_yet: BTreeMap::new(),
            inventories: self.inventories.clone(),
            paid: self.paid.clone(),
            seen_op: self.seen_op,
            trouble: None,
            watched_ms: self.watched_ms,
            spec: self.spec.clone(),
            status: self.status.clone(),
            ledger,
            name,
        }
    }

    fn store_seen(&self, store: &StoreName, at: &Store) -> StoreSeen {
        StoreSeen {
            store: store.clone(),
            link: at.silent_ms.is_none().then_some(at.link),
            silent_ms: at.silent_ms.unwrap_or(0),
            addresses: vec![format!("{store}:4433")],
            load: at.segments.values().filter(|stored| !stored.header.sealed).count() as u64,
        }
    }

    fn reports(&self) -> TopicSeen {
        let mut seen = TopicSeen::default();
        for (store, at) in self.stores.iter().filter(|(_, at)| at.silent_ms.is_none()) {
            for ((_, id), stored) in &at.segments {
                let (rates, cold_s) = self.loads.get(id).copied().unwrap_or_default();
                let sample = Sample {
                    rates: Rates(rates),
                    sampled_at: self.now,
                    cold_since: cold_s.map(|s| Micros(self.now.0 - s * 1_000_000)),
                    estimated: false,
                };
                let cursor = |spec: &proto::SubscriptionSpec| {
                    let drained = stored.header.sealed && !self.undrained.contains(id);
                    let seen = CursorSeen { generation: Generation(spec.generation), backlog: 0, drained };
                    (SubscriptionName(spec.name.clone()), seen)
                };
                let cursors = stored.cursors.values().map(cursor).collect();
                let segment =
                    SegmentSeen { store: store.clone(), sealed: stored.header.sealed, sample: Some(sample), cursors };
                seen.segments.insert(SegmentId(*id), segment);
            }
            let Some(layout) = at.layout.as_ref().filter(|layout| layout.home_store == store.0) else { continue };
            for spec in &layout.subscriptions {
                let Some(sessions) = self.sessions.get(spec.name.as_str()) else { continue };
                let group = GroupSeen {
                    store: store.clone(),
                    generation: Generation(spec.generation),
                    home_term: layout.home_term,
                    sessions: *sessions,
                    idle: 1,
                    owners: vec![(SegmentId(0), sessions.saturating_sub(1))],
                    at: self.now,
                };
                seen.groups.insert(SubscriptionName(spec.name.clone()), group);
            }
        }
        seen
    }

    /// One lap: the act that was planned and carried out.
    pub(super) fn lap(&mut self) -> Act {
        let seen = self.seen();
        let plan = plan(&seen, self.now);
        self.carry_out(&plan, &seen);
        if let Some(status) = plan.status.as_ref().filter(|status| ***status != self.status) {
            // As it comes back from the API server.
            self.status = serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap();
            self.writes += 1;
        }
        let act = plan.act.clone();
        self.last = Some(plan);
        act
    }

    /// Laps until nothing is to be done; how many acts that took.
    pub(super) fn settle(&mut self) -> u32 {
        for acts in 0..500 {
            if self.gone || self.lap() == Act::Rest {
                return acts;
            }
        }
        panic!("no rest: {:?}", self.last);
    }

    fn carry_out(&mut self, plan: &Plan, seen: &Seen) {
        match &plan.act {
            Act::Rest | Act::Store { .. } => {}
            Act::Command { number, step, fence } => {
                let life = seen.ledger.as_ref().unwrap().as_ref().unwrap().incarnation;
                let Some(successors) = self.command(step, *fence, life) else { return };
                if self.confirmed.fence != *fence {
                    self.confirmed = Confirmed::under(*fence);
                }
                match step {
                    Step::Seal { segment, .. } => {
                        let successors = successors.iter().map(|s| speech::segment_from_wire(s).unwrap()).collect();
                        self.confirmed.sealed(*number, Seal { segment: *segment, successors });
                    }
                    _ => self.confirmed.done(*number),
                }
            }
            Act::Pay { op, step, fence } => {
                let life = seen.ledger.as_ref().unwrap().as_ref().unwrap().incarnation;
                if self.command(step, *fence, life).is_some() {
                    self.paid = Some((step.store().clone(), *op));
                }
            }
            Act::SealAdopted { step, incarnation, fence } => {
                self.command(step, *fence, *incarnation).unwrap();
                self.inventories.clear();
            }
            Act::Inspect { stores } => {
                for (store, link) in stores {
                    let at = &self.stores[store];
                    let stored = at.segments.iter().map(|((incarnation, _), stored)| proto::StoredSegment {
                        incarnation: *incarnation,
                        segment: Some(stored.header.clone()),
                        subscriptions: stored.cursors.values().cloned().collect(),
                        committed: stored.committed,
                        end_offset: 0,
                    });
                    let inventory = proto::Inventory { segments: stored.collect(), fence: Some(at.fence.into()) };
                    self.inventories.insert(store.clone(), (*link, inventory));
                }
            }
            Act::Tell { stores, layout, .. } => {
                for (store, link) in stores {
                    let at = self.stores.get_mut(store).unwrap();
                    for stored in at.segments.values_mut() {
                        stored.committed |= layout.segments.iter().any(|segment| segment.id == stored.header.id);
                    }
                    at.layout = Some((**layout).clone());
                    self.told.insert(store.clone(), Told { link: *link, digest: digest(layout) });
                }
            }
            Act::Settle { change, ended } => {
                self.changes.retain(|other| other.uid != change.uid);
                self.ended.push((change.uid.clone(), ended.clone()));
            }
            Act::Finalizer { wanted } => {
                self.has_finalizer = *wanted;
                self.gone = self.leaving_since.is_some() && !wanted;
            }
        }
    }

    /// What the node of that store does; `None` if it refuses the fence. A seal is answered with its successors.
    fn command(&mut self, step: &Step, fence: Fence, life: Incarnation) -> Option<Vec<proto::Segment>> {
        let at = self.stores.get_mut(step.store()).unwrap();
        assert!(at.silent_ms.is_none(), "{step:?} goes to a silent store");
        if at.fence.refuses(fence) {
            self.seen_op = Some(at.fence.op);
            self.term = self.term.max(at.fence.term + u64::from(at.fence.term > fence.term));
            return None;
        }
        at.fence = at.fence.max(fence);
        match speech::command(step, |_| speech::Service::default(), &[]) {
            proto::request::Command::Create(create) => {
                for header in create.segments {
                    let cursors = create.subscriptions.iter().map(|spec| (spec.name.clone(), spec.clone())).collect();
                    let stored = Stored { header: header.clone(), successors: vec![], cursors, committed: false };
                    let held = at.segments.entry((life.0, header.id)).or_insert(stored);
                    assert_eq!(held.header.created_epoch, header.created_epoch, "another segment of that id exists");
                }
            }
            proto::request::Command::Seal(seal) => {
                let stored = at.segments.get_mut(&(life.0, seal.segment)).unwrap();
                if !stored.header.sealed {
                    stored.header.sealed = true;
                    stored.header.sealed_epoch = seal.epoch;
                    stored.header.sealed_at_us = self.now.0;
                    stored.header.children = seal.successors.iter().map(|successor| successor.id).collect();
                    stored.successors = seal.successors;
                }
                return Some(stored.successors.clone());
            }
            proto::request::Command::Subscribe(subscribe) => {
                let spec = subscribe.subscription.unwrap();
                for id in subscribe.segments {
                    at.segments.get_mut(&(life.0, id)).unwrap().cursors.insert(spec.name.clone(), spec.clone());
                }
            }
            proto::request::Command::Unsubscribe(unsubscribe) => {
                at.segments.values_mut().for_each(|stored| drop(stored.cursors.remove(&unsubscribe.name)));
            }
            proto::request::Command::Drop(_) => at.segments.retain(|(of, _), _| *of != life.0),
            other => panic!("{other:?} is no step"),
        }
        Some(Vec::new())
    }

    /// (start, N, store) of the active segments, in ring order.
    pub(super) fn shape(&self) -> Vec<(i32, i32)> {
        let segments = self.status.layout.iter().flat_map(|layout| &layout.segments);
        let active = segments.filter(|segment| segment.sealed_epoch.is_none());
        let mut shape: Vec<_> = active.map(|segment| (segment.start, segment.buckets)).collect();
        shape.sort_unstable();
        shape
    }

    pub(super) fn condition(&self, type_: &str) -> (String, String) {
        let found = self.status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
        (found.status.clone(), found.reason.clone())
    }

    pub(super) fn message(&self, type_: &str) -> String {
        self.status.conditions.iter().find(|condition| condition.type_ == type_).unwrap().message.clone()
    }

    pub(super) fn ask(&mut self, uid: &str, request: braid_model::operation::Request) {
        let name = Name { namespace: "n".into(), name: uid.into() };
        self.changes.push(Asked { name, uid: uid.into(), request });
    }

    pub(super) fn delete(&mut self) {
        self.leaving_since = Some(self.now);
        if !self.has_finalizer {
            self.gone = true;
        }
    }

    /// The resource is applied again: a new status, the same stores.
    pub(super) fn applied_again(&mut self, spec: &str) {
        self.spec = serde_yaml::from_str(spec).unwrap();
        self.status = ScalableTopicStatus::default();
        (self.leaving_since, self.gone) = (None, false);
        self.has_finalizer = self.spec.deletion_policy == DeletionPolicy::Delete;
        self.new_leader();
    }
}
