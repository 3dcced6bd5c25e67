//! A record: what one append adds.

use std::fmt;

use braid_model::{Incarnation, Micros, Offset, SegmentId};
use bytes::Bytes;

/// The largest body of a record: a frame and some room.
pub const RECORD_BYTES_MAX: usize = 9 << 20;

/// The number of a record in its store, from 1, rising by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A segment of one topic incarnation, on whatever store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentKey {
    pub incarnation: Incarnation,
    pub segment: SegmentId,
}

impl fmt::Display for SegmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{}", self.incarnation.0, self.segment)
    }
}

/// One durable fact. With `count` > 0 it is an *entry*: messages `base..base + count` of its segment, which
/// [`Store::read`](crate::Store::read) finds again; the entries of a segment follow each other without holes. With
/// `count` = 0 it is a *note*, seen again only by [`Store::replay`](crate::Store::replay).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the body is, as its writer numbers it.
    pub kind: u8,
    /// The segment; of a note that is about none, all zero.
    pub key: SegmentKey,
    /// The first message of an entry, else 0.
    pub base: Offset,
    /// How many messages, 0 for a note.
    pub count: u32,
    /// When it was appended.
    pub time: Micros,
    /// At most [`RECORD_BYTES_MAX`].
    pub body: Bytes,
}

impl Record {
    /// The offset after its last message.
    #[must_use]
    pub const fn end(&self) -> Offset {
        Offset(self.base.0.saturating_add(self.count as u64))
    }

    /// Whether it is an entry.
    #[must_use]
    pub const fn is_entry(&self) -> bool {
        self.count > 0
    }
}
