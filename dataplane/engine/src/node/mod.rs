//! A whole node as one synchronous state machine: events in, effects out, a store beneath.
//!
//! It knows channels by number and time as an argument. It must never know sockets, clocks, threads, or Kubernetes.

mod limits;
mod metrics;

use std::collections::VecDeque;

use braid_log::{ReadError, Store};
use braid_model::Micros;

use crate::{Effect, Event};

pub use limits::{Bounds, Config};
pub use metrics::Metrics;

/// Why a store could not be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record says what no build of this version writes.
    #[error("record {lsn} of kind `{kind}`: {reason}")]
    Record { lsn: u64, kind: u8, reason: String },
    /// The store takes no records.
    #[error("the store takes no records: {reason}")]
    Store { reason: String },
}

/// One node: everything that one store holds, and everyone who talks to it.
#[derive(Debug)]
pub struct Node<S> {
    store: S,
    config: Config,
    effects: VecDeque<Effect>,
}

impl<S: Store> Node<S> {
    /// The node of a store as it was left: replays every record, then raises the start counter.
    ///
    /// # Errors
    /// The store could not be read, or a record not understood.
    pub fn open(store: S, config: Config, _now: Micros) -> Result<Self, OpenError> {
        Ok(Self { store, config, effects: VecDeque::new() })
    }

    /// Takes what happened. The effects are then in [`Node::poll_effect`].
    pub fn handle(&mut self, _now: Micros, _event: Event) {}

    /// Does what is due. To be called at or after [`Node::deadline`].
    pub fn tick(&mut self, _now: Micros) {}

    /// When something is due, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Micros> {
        None
    }

    /// The next thing to do, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The store beneath.
    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Whether it serves: the start counter is durable and the store did not fail.
    #[must_use]
    pub fn ready(&self) -> bool {
        !self.config.store.is_empty()
    }

    /// What it counted.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::default()
    }
}
