//! What a node's shell tells the engine, and what the engine asks of it.

use braid_log::Lsn;
use braid_wire::Frame;

/// One bidirectional stream. Chosen by the shell, never reused while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u64);

/// One connection: all its channels end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Who is at the other end, by certificate and ALPN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// ALPN `braid/1`.
    Client { name: String },
    /// ALPN `braid-ctl/1`, URI SAN `braid://operator/<name>`.
    Operator { name: String },
    /// ALPN `braid-ctl/1`, URI SAN `braid://node/<store>`.
    Node { store: String },
}

/// What happened outside.
#[allow(clippy::large_enum_variant, reason = "nearly all of them are frames")]
#[derive(Debug)]
pub enum Event {
    /// The other side opened a channel.
    Opened { channel: ChannelId, connection: ConnectionId, peer: Peer },
    /// A frame came in, in order within its channel.
    Frame { channel: ChannelId, frame: Frame },
    /// The channel ended, by either side or with its connection. Nothing more comes of it.
    Closed { channel: ChannelId },
    /// The answer to `Effect::Dial`: a channel to that store's node, or none could be opened.
    Dialed { store: String, channel: Option<(ChannelId, ConnectionId)> },
    /// Every record up to `lsn`, inclusive, is durable.
    Synced { lsn: Lsn },
    /// A write or sync failed: the store takes no more records until it is opened anew.
    StoreFailed { reason: String },
}

/// What the engine wants done, in this order.
#[allow(clippy::large_enum_variant, reason = "nearly all of them are frames")]
#[derive(Debug, PartialEq)]
pub enum Effect {
    Send {
        channel: ChannelId,
        frame: Frame,
    },
    /// Ends the channel once what was sent on it is out.
    Close {
        channel: ChannelId,
    },
    /// Opens a peer channel (`braid-ctl/1`) to a node, trying its addresses in order; answered by `Event::Dialed`.
    Dial {
        store: String,
        addresses: Vec<String>,
    },
}
