//! What a producer and its owner say to each other.

use std::sync::Arc;

use braid_model::{Offset, SegmentId};

use crate::watch::Contact;

/// One message that was pushed: named again when it is settled. Rises in push order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// How much a producer gathers, sends ahead and tries again.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Payload bytes at which a batch is closed.
    pub batch_bytes: usize,
    /// Messages at which a batch is closed.
    pub batch_count: usize,
    /// How long a batch waits for more messages.
    pub linger_us: u64,
    /// Bytes on the wire, not yet durable, per segment.
    pub window_bytes: usize,
    /// Bytes of all messages pushed and not yet settled: at this, [`Producer::has_room`] is false.
    pub buffer_bytes: usize,
    /// How long one segment may make no progress until its messages fail.
    pub give_up_us: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch_bytes: 128 << 10,
            batch_count: 1_000,
            linger_us: 1_000,
            window_bytes: 4 << 20,
            buffer_bytes: 32 << 20,
            give_up_us: 120_000_000,
        }
    }
}

/// Who the producer is, and how it works.
#[derive(Clone, Debug)]
pub struct Config {
    pub contact: Contact,
    /// Random; no two producers of a topic may share it.
    pub producer: u64,
    pub limits: Limits,
    /// For jitter and the start of round robins.
    pub seed: u64,
}

/// Why a message did not get through. With `GaveUp` it may be in the topic all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("message takes {bytes} bytes, an entry may have {most}")]
    TooLarge { bytes: usize, most: usize },
    #[error("segment `{segment}` on store `{store}` refused the entry: {reason}")]
    Refused { segment: SegmentId, store: String, reason: String },
    #[error("segment `{segment}` on store `{store}` took nothing for {after_ms} ms, last: {reason}")]
    GaveUp { segment: SegmentId, store: String, after_ms: u64, reason: String },
    #[error("topic `{topic}` is being deleted")]
    Deleted { topic: String },
    #[error("the producer was dropped before it knew what became of the message")]
    Closed,
}

/// What became of messages.
#[derive(Debug, PartialEq)]
pub enum Notice {
    /// Durable. Message `i` has the offset `base + i`; `base` is `None` if a node knows that they are, not any more where.
    Durable {
        tickets: Arc<[Ticket]>,
        segment: SegmentId,
        base: Option<Offset>,
    },
    Failed {
        tickets: Vec<Ticket>,
        error: SendError,
    },
}
