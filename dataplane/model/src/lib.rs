//! The ground: what a topic's layout is, how it changes, who consumes what, and when it should change.
//!
//! Everything here is a value or a pure state machine. It knows no clock, no randomness, no bytes of a wire or a disk,
//! and no Kubernetes; time and random ids are arguments.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod assign;
pub mod buckets;
pub mod cursor;
pub mod debounce;
pub mod dispatch;
pub mod frontier;
pub mod gate;
pub mod group;
pub mod handoff;
pub mod hash;
pub mod id;
pub mod layout;
pub mod offsets;
pub mod operation;
pub mod placement;
pub mod range;
mod reading;
pub mod scale;
pub mod spread;

pub use buckets::{BucketIndex, Buckets};
pub use hash::KeyHash;
pub use id::{AttachNo, Epoch, Fence, Generation, Incarnation, Micros, Offset, Round, SegmentId, SessionId};
pub use offsets::{OffsetRange, OffsetSet};
pub use operation::SubscriptionName;
pub use placement::StoreName;
pub use range::HashRange;
