//! Braid for Rust applications: producers that keep key order through every change of the topic, and members of ordered groups.
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use braid_client::{Client, Identity, Message, Options, Topic};
//!
//! let identity = Identity::load("ca.crt".as_ref(), "tls.crt".as_ref(), "tls.key".as_ref())?;
//! let client = Client::connect(Options::new(["braid-nodes.braid-system:4433"], identity))?;
//! let producer = client.producer(&Topic::new("shop", "orders")).await?;
//! let receipt = producer.send(Message::keyed("customer-7", "paid")).await?;
//! let position = receipt.await?; // durable, at this segment and offset
//! producer.close().await;
//! # Ok(()) }
//! ```
//!
//! The rules are the machines' of `braid-engine`; here are only sockets, tasks and the clock. It must never know Kubernetes.
#![forbid(unsafe_code)]

mod channels;
mod client;
mod clock;
mod consumer;
mod driver;
mod pool;
mod producer;

pub use braid_engine::consumer::{ConsumeError, DeliveryId, Received};
pub use braid_engine::producer::{Limits, SendError};
pub use braid_link::{Identity, IdentityError};
pub use braid_model::{Micros, Offset, SegmentId};
pub use braid_wire::Message;

pub use client::{Client, OpenError, Options, Topic};
pub use clock::now;
pub use consumer::{Consumer, Membership};
pub use producer::{Position, Producer, Receipt};
