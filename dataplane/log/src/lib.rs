//! What a node must remember, on disk: an append-only log of opaque records.
#![forbid(unsafe_code)]

/// The number of a record in its store, from 1, rising by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);
