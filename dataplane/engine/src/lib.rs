//! A node, a producer and a consumer without sockets, clocks or threads: events in, effects out.
//!
//! The same code runs behind tokio and in the simulator. Time is an argument; what must be durable before it is shown
//! waits for `Event::Synced`.
#![forbid(unsafe_code)]

pub mod backoff;
pub mod consumer;
pub mod event;
pub mod node;
pub mod producer;
pub mod remote;
pub mod view;
pub mod watch;

pub use event::{ChannelId, ConnectionId, Effect, Event, Peer};
pub use node::Node;
