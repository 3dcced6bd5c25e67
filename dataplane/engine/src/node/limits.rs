//! What a node is told when it starts, and the bounds it announces and enforces.

use braid_wire::{FRAME_BYTES_MAX, proto};

/// Who this node is and how much it takes on.
#[derive(Clone, Debug)]
pub struct Config {
    /// The store it has open, for example `braid-node-0`.
    pub store: String,
    /// The data plane it belongs to.
    pub data_plane: String,
    /// Announced in every hello.
    pub bounds: Bounds,
    /// Random; only the jitter of retries depends on it.
    pub seed: u64,
}

impl Config {
    /// A node with the default bounds.
    #[must_use]
    pub fn new(store: impl Into<String>, data_plane: impl Into<String>, seed: u64) -> Self {
        Self { store: store.into(), data_plane: data_plane.into(), bounds: Bounds::default(), seed }
    }
}

/// What is refused beyond, with `LIMIT_EXCEEDED` or, for bytes in flight, `BUSY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Consumer incarnations that are joined to groups here.
    pub sessions: u32,
    /// Channels open at once, of all kinds.
    pub streams: u32,
    /// Bytes of entries that were appended and are not synced.
    pub in_flight_bytes: u64,
    /// Kind and body of one frame.
    pub frame_bytes: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { sessions: 1_024, streams: 4_096, in_flight_bytes: 64 << 20, frame_bytes: FRAME_BYTES_MAX as u32 }
    }
}

impl From<Bounds> for proto::Limits {
    fn from(bounds: Bounds) -> Self {
        Self {
            frame_bytes: bounds.frame_bytes,
            sessions: bounds.sessions,
            streams: bounds.streams,
            in_flight_bytes: bounds.in_flight_bytes,
        }
    }
}
