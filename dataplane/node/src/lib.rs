//! A node's shell: sockets, threads, clock, certificates and signals around the engine.
//!
//! ```text
//!  connections --Input--> engine thread --Outbox--> connections      every decision is the engine's
//!                          ^        |
//!                          |        v append
//!                       durable <- committer thread                  write, sync, say up to where
//! ```
//!
//! It moves frames and waits for disks; it must never know what a frame means, nor Kubernetes.
#![forbid(unsafe_code)]

mod args;
mod certificates;
mod clock;
mod committer;
mod connections;
mod dial;
mod engine;
mod http;
mod live;
mod outbox;
mod server;
mod status;

pub use args::Args;
pub use server::{Failure, Server};
