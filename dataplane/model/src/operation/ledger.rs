//! All that must be remembered of one topic, and its pure transitions: a leader's writes are "store this ledger".

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::{
    CommitError, Confirmed, Given, Kind, Operation, Refusal, Request, Seal, Step, Subscription, SubscriptionName,
    commit, plan, steps,
};
use crate::layout::Layout;
use crate::placement::StoreName;
use crate::{Epoch, Fence, Incarnation, Micros};

/// The most subscriptions of a topic: the bound of the status list.
pub const SUBSCRIPTIONS_MAX: usize = 256;
/// From so many pending changes on, subscriptions neither come nor go before a store has paid.
pub const PENDING_MAX: usize = 1_024;
/// How many finished requests a topic remembers; the oldest are forgotten first.
pub const LAST_REQUESTS_MAX: usize = 32;

/// When each class of operation was last committed, manual ones included; the evaluator's cooldowns count from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// The last split.
    pub split: Option<Micros>,
    /// The last merge.
    pub merge: Option<Micros>,
    /// The last rebucket.
    pub rebucket: Option<Micros>,
}

/// The store whose node coordinates the topic's groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Where the home is.
    pub store: StoreName,
    /// Raised by each write that moves the home, from 1.
    pub term: u64,
}

/// A committed change of cursors that a store has not confirmed, because it was not connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The operation that made the change.
    pub op: u64,
    /// What the store must do before it serves: `OpenCursors` or `DropCursors`.
    pub step: Step,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Carried out.
    Committed {
        /// The operation that did it.
        op: u64,
        /// The topic's epoch after it.
        epoch: Epoch,
    },
}

/// A request that must not run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The uid of the resource that asked.
    pub uid: String,
    /// How it ended.
    pub outcome: Outcome,
}

/// The memory of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// This life of the topic name.
    pub incarnation: Incarnation,
    /// Raised by every stored plan; the `op` of the fence.
    pub op: u64,
    /// The segments; `None` before Create and after Delete.
    pub layout: Option<Layout>,
    /// The subscriptions whose cursors were committed.
    pub subscriptions: BTreeMap<SubscriptionName, Subscription>,
    /// Changes of cursors that stores still owe, in the order of their ops.
    pub pending: Vec<Pending>,
    /// The coordinating store, once there are segments.
    pub home: Option<Home>,
    /// Last commits by class.
    pub clocks: Clocks,
    /// The operation under way.
    pub operation: Option<Operation>,
    /// Finished requests, oldest first, at most [`LAST_REQUESTS_MAX`].
    pub last_requests: Vec<Settled>,
}

impl Ledger {
    /// A topic that does not exist yet.
    #[must_use]
    pub const fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            op: 0,
            layout: None,
            subscriptions: BTreeMap::new(),
            pending: Vec::new(),
            home: None,
            clocks: Clocks { split: None, merge: None, rebucket: None },
            operation: None,
            last_requests: Vec::new(),
        }
    }

    /// The fence of every command that a leader of this term sends now.
    #[must_use]
    pub const fn fence(&self, term: u64) -> Fence {
        Fence { term, op: self.op }
    }

    /// How the request of that resource ended, if it is remembered.
    #[must_use]
    pub fn outcome(&self, uid: &str) -> Option<Outcome> {
        self.last_requests.iter().find(|settled| settled.uid == uid).map(|settled| settled.outcome)
    }

    /// The ledger with the plan for `request` in it, to be stored before the first step.
    pub fn begin(&self, request: &Request, request_uid: Option<&str>, given: &Given<'_>) -> Result<Self, Refusal> {
        let operation = plan(self, request, request_uid, given)?;
        Ok(Self { op: operation.op, operation: Some(operation), ..self.clone() })
    }

    /// The ledger after the operation under way: its layout, subscriptions, clock and request's outcome in one write.
    ///
    /// Every step must be confirmed under the operation's op; those that change cursors may be missing and become pending.
    pub fn commit(&self, confirmed: &Confirmed, now: Micros) -> Result<Self, CommitError> {
        let operation = self.operation.as_ref().ok_or(CommitError::NoOperation)?;
        if confirmed.fence.op != operation.op {
            return Err(CommitError::OtherOperation { confirmed: confirmed.fence.op, stored: operation.op });
        }
        let mut after = Self { operation: None, ..self.clone() };
        for (number, step) in steps(self).into_iter().enumerate().filter(|(number, _)| !confirmed.holds(*number)) {
            match step {
                Step::OpenCursors { ref store, ref subscription, .. }
                | Step::DropCursors { ref store, ref subscription, .. } => {
                    // Opening replaces an older generation and dropping removes it: what was owed before is void.
                    after.pending.retain(|pending| !pending.step.is_of(store, &subscription.name));
                    after.pending.push(Pending { op: operation.op, step });
                }
                _ => return Err(CommitError::StepMissing { op: operation.op, number }),
            }
        }
        let seals: Vec<Seal> = operation.parents.iter().filter_map(|id| confirmed.seal(*id).cloned()).collect();
        after.layout = commit(self.layout.as_ref(), operation, &seals, now)?;
        match &operation.kind {
            Kind::Create => {
                let first = after.layout.as_ref().and_then(|layout| layout.segments().first());
                after.home = first.map(|segment| Home { store: segment.store.clone(), term: 1 });
            }
            Kind::Split => after.clocks.split = Some(now),
            Kind::Merge => after.clocks.merge = Some(now),
            Kind::Rebucket => after.clocks.rebucket = Some(now),
            Kind::Subscribe(subscription) => {
                after.subscriptions.insert(subscription.name.clone(), subscription.clone());
            }
            Kind::Unsubscribe(name) => {
                after.subscriptions.remove(name);
            }
            Kind::Delete => {
                after.subscriptions.clear();
                after.pending.clear();
                after.home = None;
            }
        }
        if let Some(uid) = &operation.request {
            let outcome = Outcome::Committed { op: operation.op, epoch: operation.epoch };
            after.last_requests.push(Settled { uid: uid.clone(), outcome });
            let forgotten = after.last_requests.len().saturating_sub(LAST_REQUESTS_MAX);
            after.last_requests.drain(..forgotten);
        }
        Ok(after)
    }

    /// What a store that is connected again owes, oldest first. It is sent under the fence of now.
    pub fn owed<'a>(&'a self, store: &'a StoreName) -> impl Iterator<Item = &'a Pending> {
        self.pending.iter().filter(move |pending| pending.step.store() == store)
    }

    /// The ledger after `store` confirmed all that it owed up to and including operation `op`.
    #[must_use]
    pub fn paid(&self, store: &StoreName, op: u64) -> Self {
        let mut after = self.clone();
        after.pending.retain(|pending| pending.step.store() != store || pending.op > op);
        after
    }

    /// The ledger with the home on that store; unchanged if it is there, or if there are no segments.
    #[must_use]
    pub fn with_home(&self, store: &StoreName) -> Self {
        let mut after = self.clone();
        if let Some(home) = &mut after.home
            && home.store != *store
        {
            *home = Home { store: store.clone(), term: home.term + 1 };
        }
        after
    }

    /// The ledger with at least that op: after a store refused a command because it has seen a higher one. A stored
    /// operation is numbered anew, since its commands must pass.
    #[must_use]
    pub fn above(&self, seen_op: u64) -> Self {
        let mut after = self.clone();
        if after.op <= seen_op {
            after.op = seen_op.saturating_add(1);
            if let Some(operation) = &mut after.operation {
                operation.op = after.op;
                if let Kind::Subscribe(subscription) = &mut operation.kind {
                    subscription.generation = crate::Generation(after.op);
                }
            }
        }
        after
    }
}
