//! Everything that changes what must exist on all segments of a topic: planned whole, stored, then executed one idempotent
//! step at a time.
//!
//! `Ledger` is the topic's memory. [`Ledger::begin`] plans a request and gives the ledger to store; [`next`] says the one
//! next step from the stored ledger and what was confirmed since this leader started; [`Ledger::commit`] gives the ledger
//! that ends the operation. It knows no API server, no connections and no clock: the caller stores a ledger by
//! compare-and-swap, sends the commands and passes the time.
//!
//! A crash anywhere is resumed by whoever reads the stored ledger: children exist before parents are sealed, parents are
//! sealed before the commit, and every step may be repeated.

use alloc::string::String;
use alloc::vec::Vec;

use crate::layout::Segment;
use crate::{Buckets, Epoch, Incarnation, Micros, SegmentId};

mod adopt;
mod commit;
mod ledger;
mod next;
mod plan;
mod subscription;

pub use adopt::{Adopted, Holding, adopt};
pub use commit::{CommitError, commit};
pub use ledger::{Clocks, Home, LAST_REQUESTS_MAX, Ledger, Outcome, PENDING_MAX, Pending, SUBSCRIPTIONS_MAX, Settled};
pub use next::{Confirmed, Next, Seal, Step, next, steps};
pub use plan::{Given, Refusal, plan};
pub use subscription::{Start, Subscription, SubscriptionKind, SubscriptionName};

/// What somebody wants of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Make the topic.
    Create {
        /// How many segments it starts with, 1..=1024.
        segments: u32,
        /// How many buckets these share.
        budget: u32,
    },
    /// Replace a segment by `into` narrower ones.
    Split {
        /// An active segment.
        segment: SegmentId,
        /// 2..=64.
        into: u32,
    },
    /// Replace two adjacent active segments by one, in either order.
    Merge {
        /// One of them.
        a: SegmentId,
        /// The other.
        b: SegmentId,
    },
    /// Replace active segments by ones with the same ranges and another number of buckets, all in one epoch.
    Rebucket {
        /// In any order.
        segments: Vec<SegmentId>,
        /// Other than what each of them has.
        buckets: Buckets,
    },
    /// Make a cursor on every segment, sealed ones included.
    Subscribe {
        /// Not yet subscribed.
        name: SubscriptionName,
        /// How its messages are spread.
        kind: SubscriptionKind,
        /// Where the cursors start on the segments that exist now; children made later start at their first message.
        start: Start,
    },
    /// Remove a subscription's cursors from every segment.
    Unsubscribe {
        /// A subscription of the topic.
        name: SubscriptionName,
    },
    /// Remove every segment. It may cut short an operation under way, whose children it removes too.
    Delete,
}

/// What an operation does, beyond the segments it makes and seals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Makes the first segments.
    Create,
    /// Makes narrower segments of one.
    Split,
    /// Makes one segment of two.
    Merge,
    /// Gives segments another number of buckets.
    Rebucket,
    /// Makes the cursors of this subscription.
    Subscribe(Subscription),
    /// Removes the cursors of this subscription.
    Unsubscribe(SubscriptionName),
    /// Removes the topic.
    Delete,
}

impl Kind {
    /// The operation's name in lower case, as events and fault points spell it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Split => "split",
            Self::Merge => "merge",
            Self::Rebucket => "rebucket",
            Self::Subscribe(_) => "subscribe",
            Self::Unsubscribe(_) => "unsubscribe",
            Self::Delete => "delete",
        }
    }

    /// Whether it makes a new epoch.
    #[must_use]
    pub const fn is_structural(&self) -> bool {
        matches!(self, Self::Create | Self::Split | Self::Merge | Self::Rebucket)
    }
}

/// A whole plan: nothing about it is chosen later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its number: the `op` of the fence of every command, and the generation of the cursors that it makes.
    pub op: u64,
    /// The life of the topic that it belongs to.
    pub incarnation: Incarnation,
    /// What it does.
    pub kind: Kind,
    /// The uid of the resource that asked for it, if one did.
    pub request: Option<String>,
    /// When it was planned.
    pub planned_at: Micros,
    /// The epoch of the layout after the commit; 0 after a Delete.
    pub epoch: Epoch,
    /// The segments that it makes, ascending by id, as their headers will say. For a Delete those that the operation it cut
    /// short may have made.
    pub children: Vec<Segment>,
    /// The segments that it seals, in this order.
    pub parents: Vec<SegmentId>,
}
