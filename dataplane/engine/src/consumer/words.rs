//! What a consumer and its owner say to each other.

use braid_model::{Micros, Offset, SegmentId};
use braid_wire::Message;

use crate::watch::Contact;

/// Who the member is.
#[derive(Clone, Debug)]
pub struct Config {
    pub contact: Contact,
    pub subscription: String,
    /// The member's name; its place in a contiguous assignment.
    pub member: String,
    /// Random: this incarnation of the member.
    pub session: u64,
    /// Bytes that each segment may send ahead.
    pub credit_bytes: usize,
    /// How long a leave waits for the application's acks.
    pub leave_deadline_us: u64,
    /// For jitter.
    pub seed: u64,
}

/// Names a delivery: to whom, in which round, which message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId {
    pub segment: SegmentId,
    pub attach: u64,
    pub bucket: u32,
    pub round: u64,
    pub offset: Offset,
}

/// A message handed to the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub id: DeliveryId,
    pub message: Message,
    /// Durable and rising per bucket: fences the application's own sink.
    pub owner_number: u64,
    pub append_time: Micros,
    /// May have been handed out before, to this member or another.
    pub redelivered: bool,
}

/// What the application may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The handoff deadline passed: messages of this bucket that are still being worked on may go to another member now.
    Revoked { segment: SegmentId, bucket: u32 },
    /// The channel to the segment's node is gone: unacked messages of it will come again.
    Lost { segment: SegmentId },
    /// The session is over.
    Failed(ConsumeError),
    /// A leave is complete: nothing is in flight to this member.
    Left,
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumeError {
    #[error("topic `{topic}` is being deleted")]
    Deleted { topic: String },
    #[error("subscription `{subscription}`, member `{member}`: {reason}")]
    Refused { subscription: String, member: String, reason: String },
}
