//! What a topic remembers of a subscription.

use alloc::string::String;
use core::fmt;

use crate::{Generation, Micros};

/// The name of a subscription, unique within its topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionName(pub String);

impl fmt::Display for SubscriptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&str> for SubscriptionName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

/// How the messages of a subscription are spread over its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionKind {
    /// By bucket, each key in order.
    Ordered,
}

/// Where a new cursor starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first message that the segment holds.
    Earliest,
    /// Behind the last message; for a store that is told late, at the first message appended at or after `Subscription::since`.
    Latest,
}

/// A subscription whose cursors exist, or are being made, on every segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Its name.
    pub name: SubscriptionName,
    /// How its messages are spread.
    pub kind: SubscriptionKind,
    /// The op that made its cursors.
    pub generation: Generation,
    /// Where its cursors started on the segments of that time.
    pub start: Start,
    /// When it was planned.
    pub since: Micros,
}
