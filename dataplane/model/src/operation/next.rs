//! The steps of an operation in their one order, and which of them is next.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Kind, Ledger, Operation, Subscription, SubscriptionName};
use crate::layout::Segment;
use crate::placement::{Hosts, StoreName};
use crate::{Epoch, Fence, SegmentId};

/// One command to one store; repeating it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make this segment on its store, with a cursor at its first message for each subscription.
    Create {
        /// Its header.
        segment: Segment,
        /// Every subscription of the topic, with the generation of its cursors.
        subscriptions: Vec<Subscription>,
    },
    /// Seal this segment for ever; its successors exist.
    Seal {
        /// Where it lies.
        store: StoreName,
        /// Which.
        segment: SegmentId,
        /// The epoch of the layout that replaces it.
        epoch: Epoch,
        /// What continues it, as their headers say, in ring order: what a redirected producer is told.
        successors: Vec<Segment>,
    },
    /// Make a cursor on each of these segments, where `subscription.start` says.
    OpenCursors {
        /// Where they lie.
        store: StoreName,
        /// Ascending, sealed ones included.
        segments: Vec<SegmentId>,
        /// Whose cursors.
        subscription: Subscription,
    },
    /// Remove a cursor from each of these segments.
    DropCursors {
        /// Where they lie.
        store: StoreName,
        /// Ascending, sealed ones included.
        segments: Vec<SegmentId>,
        /// Whose cursors: those of its generation and older ones.
        subscription: Subscription,
    },
    /// Remove these segments with their data.
    DeleteSegments {
        /// Where they lie.
        store: StoreName,
        /// Ascending.
        segments: Vec<SegmentId>,
    },
}

impl Step {
    /// The store that carries it out.
    #[must_use]
    pub const fn store(&self) -> &StoreName {
        match self {
            Self::Create { segment, .. } => &segment.store,
            Self::Seal { store, .. }
            | Self::OpenCursors { store, .. }
            | Self::DropCursors { store, .. }
            | Self::DeleteSegments { store, .. } => store,
        }
    }

    /// Whether it changes cursors of that subscription on that store.
    pub(super) fn is_of(&self, at: &StoreName, name: &SubscriptionName) -> bool {
        match self {
            Self::OpenCursors { store, subscription, .. } | Self::DropCursors { store, subscription, .. } => {
                store == at && subscription.name == *name
            }
            _ => false,
        }
    }
}

/// What a store answered to a seal: the successors that it recorded with the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The sealed segment.
    pub segment: SegmentId,
    /// What its store recorded.
    pub successors: Vec<Segment>,
}

/// The steps that stores confirmed to this leader under one fence. It lives in memory only: a new leader starts with an
/// empty one and goes through all steps again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// The fence that the steps were sent under.
    pub fence: Fence,
    /// Their numbers, from 0.
    steps: BTreeSet<usize>,
    seals: BTreeMap<SegmentId, Seal>,
}

impl Confirmed {
    /// Nothing confirmed yet under this fence.
    #[must_use]
    pub const fn under(fence: Fence) -> Self {
        Self { fence, steps: BTreeSet::new(), seals: BTreeMap::new() }
    }

    /// Notes the answer to a step that is no seal.
    pub fn done(&mut self, number: usize) {
        self.steps.insert(number);
    }

    /// Notes the answer to a seal.
    pub fn sealed(&mut self, number: usize, seal: Seal) {
        self.steps.insert(number);
        self.seals.insert(seal.segment, seal);
    }

    /// Whether that step was confirmed.
    #[must_use]
    pub fn holds(&self, number: usize) -> bool {
        self.steps.contains(&number)
    }

    /// What the store of a sealed segment answered.
    #[must_use]
    pub fn seal(&self, segment: SegmentId) -> Option<&Seal> {
        self.seals.get(&segment)
    }
}

/// What an operation needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// No operation is stored.
    Idle,
    /// Send this step and note its answer under this number.
    Do {
        /// Its place in [`steps`], from 0.
        number: usize,
        /// What to send.
        step: Step,
    },
    /// Nothing can be done before this store is connected.
    Wait {
        /// The first that is missing.
        store: StoreName,
    },
    /// Every step is confirmed: store [`Ledger::commit`].
    Commit,
}

/// The next step of the stored operation: the first that is not confirmed under its op.
///
/// Steps that make and seal segments go strictly in order and wait for a store that is not connected. Cursors are made and
/// removed on the stores that are connected; the commit lists the others as pending. Deleting goes on elsewhere first, then waits.
#[must_use]
pub fn next(ledger: &Ledger, confirmed: &Confirmed, hosts: &Hosts) -> Next {
    let Some(operation) = &ledger.operation else { return Next::Idle };
    let counts = confirmed.fence.op == operation.op;
    let mut silent = None;
    for (number, step) in steps(ledger).into_iter().enumerate() {
        if counts && confirmed.holds(number) {
            continue;
        }
        if hosts.is_connected(step.store()) {
            return Next::Do { number, step };
        }
        match step {
            Step::Create { .. } | Step::Seal { .. } => return Next::Wait { store: step.store().clone() },
            Step::DeleteSegments { store, .. } => silent = silent.or(Some(store)),
            Step::OpenCursors { .. } | Step::DropCursors { .. } => {}
        }
    }
    silent.map_or(Next::Commit, |store| Next::Wait { store })
}

/// Every step of the stored operation, in order; a function of the ledger alone, so that it is the same for every leader.
#[must_use]
pub fn steps(ledger: &Ledger) -> Vec<Step> {
    let Some(operation) = &ledger.operation else { return Vec::new() };
    match &operation.kind {
        Kind::Create | Kind::Split | Kind::Merge | Kind::Rebucket => create_then_seal(ledger, operation),
        Kind::Subscribe(subscription) => by_store(ledger, &[])
            .map(|(store, segments)| Step::OpenCursors { store, segments, subscription: subscription.clone() })
            .collect(),
        Kind::Unsubscribe(name) => {
            let drop = |subscription: &Subscription| {
                by_store(ledger, &[])
                    .map(|(store, segments)| Step::DropCursors { store, segments, subscription: subscription.clone() })
                    .collect()
            };
            ledger.subscriptions.get(name).map(drop).unwrap_or_default()
        }
        Kind::Delete => by_store(ledger, &operation.children)
            .map(|(store, segments)| Step::DeleteSegments { store, segments })
            .collect(),
    }
}

fn create_then_seal(ledger: &Ledger, operation: &Operation) -> Vec<Step> {
    let subscriptions: Vec<Subscription> = ledger.subscriptions.values().cloned().collect();
    let create = |segment: &Segment| Step::Create { segment: segment.clone(), subscriptions: subscriptions.clone() };
    let seal = |id: &SegmentId| {
        let parent = ledger.layout.as_ref()?.segment(*id)?;
        let successors = operation.children.iter().filter(|child| child.parents.contains(id)).cloned().collect();
        Some(Step::Seal { store: parent.store.clone(), segment: *id, epoch: operation.epoch, successors })
    };
    operation.children.iter().map(create).chain(operation.parents.iter().filter_map(seal)).collect()
}

/// The segments of the layout, and `more`, by store.
fn by_store(ledger: &Ledger, more: &[Segment]) -> impl Iterator<Item = (StoreName, Vec<SegmentId>)> {
    let mut stores: BTreeMap<StoreName, Vec<SegmentId>> = BTreeMap::new();
    for segment in ledger.layout.iter().flat_map(|layout| layout.segments()).chain(more) {
        stores.entry(segment.store.clone()).or_default().push(segment.id);
    }
    stores.into_iter()
}
