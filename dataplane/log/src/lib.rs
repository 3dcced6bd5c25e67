//! What a node must remember: an append-only log of opaque records, in memory or on disk.
//!
//! It knows records by kind, segment, base offset, count and append time, never what their bodies say. A record that was
//! appended is durable once the committer has returned its number or a higher one; nothing may be shown before.
#![forbid(unsafe_code)]

#[cfg(feature = "disk")]
pub mod disk;
mod index;
mod memory;
mod record;
mod store;

#[cfg(feature = "disk")]
pub use disk::{Committer, DiskStore};
pub use memory::MemoryStore;
pub use record::{Lsn, RECORD_BYTES_MAX, Record, SegmentKey};
pub use store::{AppendError, ReadError, Store};
