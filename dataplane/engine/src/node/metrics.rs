//! What a node counts for `/metrics`. Numbers only: no names of topics, so the number of series is bounded.

/// A snapshot. Counters start at 0 when the store is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    pub segments_active: u64,
    pub segments_sealed: u64,
    pub topics: u64,
    /// Channels open now.
    pub streams: u64,
    /// Consumer incarnations joined to groups here, now.
    pub sessions: u64,
    /// Attached consumers, now.
    pub attaches: u64,
    /// Bytes of entries appended and not synced, now.
    pub in_flight_bytes: u64,
    /// Counters of messages and bytes appended, delivered, and of acks taken.
    pub messages_in: u64,
    pub bytes_in: u64,
    pub messages_out: u64,
    pub bytes_out: u64,
    pub acks: u64,
    /// Frames that were answered with a refusal.
    pub refusals: u64,
    /// The last durable record.
    pub synced_lsn: u64,
    /// 1 after a write or sync failed.
    pub store_failed: u64,
}
