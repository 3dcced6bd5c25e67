//! Connections between Braid's programs: QUIC with mutual TLS, and frames on its bidirectional streams.
//!
//! It knows sockets, certificates and where one frame ends. It must never know what a frame means, nor Kubernetes, nor files
//! other than the three of an identity.
//!
//! Who is at the other end is told by the URI SAN of its certificate, `braid://node/<store>`, `braid://operator/<name>` or
//! `braid://client/<name>`; which server is reached is checked by DNS SAN, whatever the address.
//!
//! A peer whose process dies says nothing; it is missed after [`IDLE_TIMEOUT`]. Noticing it sooner, by the port-unreachable
//! errors that the kernel queues on the socket (`IP_RECVERR`), belongs into [`settings`], where the socket is made.
#![forbid(unsafe_code)]

mod channel;
mod connection;
mod endpoint;
mod identity;
mod loss;
mod peer;
mod settings;

pub use channel::{Channel, Receiver, RecvError, SendError, Sender};
pub use connection::Connection;
pub use endpoint::{Alpn, Attempt, AttemptError, BindError, ConnectError, Endpoint};
pub use identity::{Identity, IdentityError};
pub use loss::Loss;
pub use peer::{Peer, PeerError};
pub use settings::{IDLE_TIMEOUT, KEEP_ALIVE, STREAMS_MAX};

pub use braid_wire::proto::Code;

#[cfg(test)]
mod tests;
