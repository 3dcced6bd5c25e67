//! Braid's language: frames, protobuf bodies, and the entry header that travels unchanged from producer to disk to consumer.
//!
//! Bytes only. It knows no sockets, no clock and no tasks.
#![forbid(unsafe_code)]

pub mod convert;
pub mod delivery;
pub mod entry;
pub mod frame;
pub mod message;

/// The protobuf messages of `proto/braid/v1`.
#[allow(unreachable_pub, clippy::use_self, reason = "generated")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/braid.v1.rs"));
}

pub use delivery::Delivery;
pub use entry::{Entry, Header};
pub use frame::{Frame, FrameError};
pub use message::Message;

/// The protocol version that `Hello` announces.
pub const VERSION: u32 = 1;
/// ALPN of clients.
pub const ALPN_CLIENT: &[u8] = b"braid/1";
/// ALPN of operators and nodes.
pub const ALPN_CONTROL: &[u8] = b"braid-ctl/1";
/// The largest frame (kind and body) that anyone may send.
pub const FRAME_BYTES_MAX: usize = 8 << 20;
