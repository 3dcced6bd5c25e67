//! A ledger and stores in memory: what operators write and nodes keep, with nothing between them.

use std::collections::BTreeMap;

use braid_model::layout::{Layout, Parts, Segment};
use braid_model::operation::{
    CommitError, Confirmed, Given, Ledger, Next, Refusal, Request, Seal, Start, Step, Subscription, SubscriptionKind,
    next,
};
use braid_model::placement::{Host, Hosts};
use braid_model::{Buckets, Generation, Incarnation, Micros, SegmentId, StoreName};
use proptest::prelude::*;

/// What a store keeps of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) header: Segment,
    pub(crate) cursors: BTreeMap<String, Generation>,
    pub(crate) seal: Option<Vec<Segment>>,
}

/// All segments on all stores; every step may be repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stores(pub(crate) BTreeMap<(StoreName, SegmentId), Kept>);

impl Stores {
    /// Carries out a step; a seal is answered with the successors recorded first.
    pub(crate) fn carry_out(&mut self, step: &Step) -> Option<Seal> {
        let cursors = |subscriptions: &[Subscription]| {
            subscriptions.iter().map(|subscription| (subscription.name.0.clone(), subscription.generation)).collect()
        };
        match step {
            Step::Create { segment, subscriptions } => {
                let key = (segment.store.clone(), segment.id);
                let new = Kept { header: segment.clone(), cursors: cursors(subscriptions), seal: None };
                let kept = self.0.entry(key).or_insert_with(|| new.clone());
                assert_eq!(kept.header, new.header, "create compares the whole header");
                None
            }
            Step::Seal { store, segment, successors, .. } => {
                for successor in successors {
                    assert!(
                        self.0.contains_key(&(successor.store.clone(), successor.id)),
                        "children exist before a seal"
                    );
                }
                let kept = self.0.get_mut(&(store.clone(), *segment)).expect("a parent exists");
                let recorded = kept.seal.get_or_insert_with(|| successors.clone());
                Some(Seal { segment: *segment, successors: recorded.clone() })
            }
            Step::OpenCursors { store, segments, subscription } => {
                for id in segments {
                    let kept = self.0.get_mut(&(store.clone(), *id)).expect("a listed segment exists");
                    kept.cursors.insert(subscription.name.0.clone(), subscription.generation);
                }
                None
            }
            Step::DropCursors { store, segments, subscription } => {
                for id in segments {
                    let kept = self.0.get_mut(&(store.clone(), *id)).expect("a listed segment exists");
                    kept.cursors.remove(&subscription.name.0);
                }
                None
            }
            Step::DeleteSegments { store, segments } => {
                self.0.retain(|(at, id), _| at != store || !segments.contains(id));
                None
            }
        }
    }
}

/// A topic, its stores, and a clock that ticks once per operation.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) ledger: Ledger,
    pub(crate) stores: Stores,
    pub(crate) hosts: Hosts,
    pub(crate) ceiling: Buckets,
    pub(crate) now: Micros,
}

impl World {
    /// A topic not yet made, on `hosts` connected stores.
    pub(crate) fn new(hosts: u32) -> Self {
        let host = |i| Host { store: StoreName(format!("node-{i}")), connected: true, load: 0 };
        let hosts = Hosts { stores: (0..hosts).map(host).collect(), weights: BTreeMap::new() };
        let ceiling = Buckets::new(1024).unwrap();
        Self { ledger: Ledger::new(Incarnation(7)), stores: Stores::default(), hosts, ceiling, now: Micros(1) }
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.ledger.layout.as_ref().expect("the topic was made")
    }

    /// Stores the plan for `request`.
    pub(crate) fn begin(&mut self, request: &Request, uid: Option<&str>) -> Result<(), Refusal> {
        let given = Given { hosts: &self.hosts, ceiling: self.ceiling, now: self.now };
        self.ledger = self.ledger.begin(request, uid, &given)?;
        Ok(())
    }

    /// Lets a new leader do at most `most` steps; says whether it got to the commit, which it then stores.
    pub(crate) fn lead(&mut self, term: u64, most: usize) -> Result<bool, CommitError> {
        let mut confirmed = Confirmed::under(self.ledger.fence(term));
        for _ in 0..most {
            match next(&self.ledger, &confirmed, &self.hosts) {
                Next::Do { number, step } => match self.stores.carry_out(&step) {
                    Some(seal) => confirmed.sealed(number, seal),
                    None => confirmed.done(number),
                },
                Next::Commit => {
                    self.ledger = self.ledger.commit(&confirmed, Micros(self.now.0 + 1))?;
                    return Ok(true);
                }
                Next::Wait { .. } => return Ok(false),
                Next::Idle => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Plans, carries out and commits; time goes on by 10.
    pub(crate) fn run(&mut self, request: &Request) {
        self.begin(request, None).expect("the request fits");
        assert_eq!(self.lead(1, usize::MAX), Ok(true));
        self.now = Micros(self.now.0 + 10);
    }

    /// What must hold whenever no operation is under way: the stores hold what the ledger says.
    pub(crate) fn agrees(&self) {
        let layout = self.layout();
        Layout::new(layout.parts().clone()).expect("every rule holds");
        assert_eq!(self.stores.0.len(), layout.segments().len());
        let cursors: BTreeMap<String, Generation> =
            self.ledger.subscriptions.values().map(|s| (s.name.0.clone(), s.generation)).collect();
        for segment in layout.segments() {
            let kept = &self.stores.0[&(segment.store.clone(), segment.id)];
            assert_eq!(kept.cursors, cursors, "cursors of segment {}", segment.id);
            let successors: Option<Vec<SegmentId>> =
                kept.seal.as_ref().map(|successors| successors.iter().map(|s| s.id).collect());
            assert_eq!(successors, (!segment.is_active()).then(|| segment.children.clone()), "seal of {}", segment.id);
            let header = Segment { children: vec![], state: braid_model::layout::State::Active, ..segment.clone() };
            assert_eq!(kept.header, header, "the header is the DAG node");
        }
    }
}

/// A request chosen by numbers: which active segments, how many.
#[derive(Clone, Debug)]
pub(crate) enum Draw {
    Split(usize, u32),
    Merge(usize),
    Rebucket(u64, u32),
    Subscribe(u8, bool),
    Unsubscribe(u8),
}

pub(crate) fn draws(most: usize) -> impl Strategy<Value = Vec<Draw>> {
    let draw = prop_oneof![
        3 => (any::<usize>(), 2u32..=9).prop_map(|(at, into)| Draw::Split(at, into)),
        3 => any::<usize>().prop_map(Draw::Merge),
        3 => (any::<u64>(), 1u32..=64).prop_map(|(mask, n)| Draw::Rebucket(mask, n)),
        1 => (0u8..4, any::<bool>()).prop_map(|(name, latest)| Draw::Subscribe(name, latest)),
        1 => (0u8..4).prop_map(Draw::Unsubscribe),
    ];
    prop::collection::vec(draw, 0..most)
}

impl Draw {
    /// The request on that layout.
    pub(crate) fn request(&self, layout: &Layout) -> Request {
        let active: Vec<SegmentId> = layout.active().map(|segment| segment.id).collect();
        match *self {
            Self::Split(at, into) => Request::Split { segment: active[at % active.len()], into },
            Self::Merge(at) => {
                let at = at % active.len();
                Request::Merge { a: active[(at + 1) % active.len()], b: active[at] }
            }
            Self::Rebucket(mask, n) => {
                let chosen = active.iter().enumerate().filter(|(i, _)| mask >> (i % 64) & 1 == 1);
                Request::Rebucket { segments: chosen.map(|(_, id)| *id).collect(), buckets: Buckets::new(n).unwrap() }
            }
            Self::Subscribe(name, latest) => Request::Subscribe {
                name: format!("sub-{name}").as_str().into(),
                kind: SubscriptionKind::Ordered,
                start: if latest { Start::Latest } else { Start::Earliest },
            },
            Self::Unsubscribe(name) => Request::Unsubscribe { name: format!("sub-{name}").as_str().into() },
        }
    }
}

/// The parts without these segments, one epoch later: what a prune will do.
pub(crate) fn prune(parts: &Parts, ids: &[SegmentId]) -> Parts {
    let mut after = parts.clone();
    after.epoch = after.epoch.next();
    after.segments.retain(|segment| !ids.contains(&segment.id));
    for segment in &mut after.segments {
        segment.parents.retain(|id| !ids.contains(id));
        segment.children.retain(|id| !ids.contains(id));
    }
    after
}
