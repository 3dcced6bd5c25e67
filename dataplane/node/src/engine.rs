//! The engine's thread: one loop that owns the node, takes inputs in turn, and hands its effects out without ever waiting for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use braid_engine::node::Node;
use braid_engine::{ChannelId, ConnectionId, Effect, Event, Peer};
use braid_log::{DiskStore, Store as _};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::committer::Durable;
use crate::dial::Dial;
use crate::outbox::Outbox;
use crate::status::Status;

/// Inputs that wait for the engine. While it is full, readers wait, and QUIC slows their peers down.
pub(crate) const INPUTS_MAX: usize = 1_024;
/// Dials that wait to be begun: one per node at most, so no engine sees it full.
pub(crate) const DIALS_MAX: usize = 1_024;
/// Inputs taken at a time, before what became durable is looked at again.
const BATCH: usize = 256;
/// How often it shows that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// How long what was taken in may take to become durable when the node leaves.
const DRAIN: Duration = Duration::from_secs(5);

/// What comes from the connections.
#[expect(clippy::large_enum_variant, reason = "most inputs are the large one: a frame")]
#[derive(Debug)]
pub(crate) enum Input {
    Opened {
        channel: ChannelId,
        connection: ConnectionId,
        peer: Peer,
        outbox: Arc<Outbox>,
    },
    /// With the room that a frame took up on its way.
    Event(Event, Option<OwnedSemaphorePermit>),
    Dialed {
        store: String,
        channel: Option<(ChannelId, ConnectionId, Arc<Outbox>)>,
    },
}

/// The node and everything around it that one thread owns.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) node: Node<DiskStore>,
    pub(crate) clock: Clock,
    pub(crate) inputs: mpsc::Receiver<Input>,
    pub(crate) durable: watch::Receiver<Durable>,
    pub(crate) dials: mpsc::Sender<Dial>,
    pub(crate) status: Arc<Status>,
    pub(crate) channels: HashMap<ChannelId, Arc<Outbox>>,
}

impl Engine {
    /// Runs until stopped, then takes what has come in, waits until it is durable, says so and closes every channel.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut beat = tokio::time::interval(BEAT);
        let mut batch = Vec::with_capacity(BATCH);
        // After a failed disk the committer is gone, and the node goes on to say so.
        let mut commits = true;
        loop {
            let due = self.node.deadline().map(|at| self.clock.instant(at));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = beat.tick() => self.status.beat(self.node.metrics()),
                changed = self.durable.changed(), if commits => match changed {
                    Ok(()) => {
                        self.synced();
                        self.status.serves(self.node.ready());
                    }
                    Err(_) => commits = false,
                },
                _ = self.inputs.recv_many(&mut batch, BATCH) => self.take(&mut batch),
                () = sleep_until(due), if due.is_some() => {}
            }
            // Whatever woke it, time passes: inputs without a pause must not starve the timers.
            let now = self.clock.now();
            if self.node.deadline().is_some_and(|at| at <= now) {
                self.node.tick(now);
            }
            self.apply();
        }
        self.drain().await;
    }

    async fn drain(&mut self) {
        self.status.serves(false);
        let end = Instant::now() + DRAIN;
        let mut batch = Vec::new();
        loop {
            while let Ok(input) = self.inputs.try_recv() {
                batch.push(input);
            }
            self.take(&mut batch);
            self.synced();
            self.apply();
            let durable = self.durable.borrow().clone();
            if durable.failure.is_some() || durable.lsn >= self.node.store().last() {
                break;
            }
            match tokio::time::timeout_at(end, self.durable.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => {
                    tracing::warn!(
                        durable = durable.lsn.0,
                        last = self.node.store().last().0,
                        "leaves before all is durable"
                    );
                    break;
                }
            }
        }
        self.channels.drain().for_each(|(_, outbox)| outbox.close());
    }

    fn take(&mut self, batch: &mut Vec<Input>) {
        for input in batch.drain(..) {
            let now = self.clock.now();
            match input {
                Input::Opened { channel, connection, peer, outbox } => {
                    self.channels.insert(channel, outbox);
                    self.node.handle(now, Event::Opened { channel, connection, peer });
                }
                Input::Dialed { store, channel } => {
                    let channel = channel.map(|(channel, connection, outbox)| {
                        self.channels.insert(channel, outbox);
                        (channel, connection)
                    });
                    self.node.handle(now, Event::Dialed { store, channel });
                }
                Input::Event(event, room) => {
                    let ended = if let Event::Closed { channel } = &event { Some(*channel) } else { None };
                    self.node.handle(now, event);
                    drop(room);
                    if let Some(channel) = ended {
                        // What the engine says on hearing of it is to others; the channel's own last words are in its outbox.
                        self.apply();
                        if let Some(outbox) = self.channels.remove(&channel) {
                            outbox.close();
                        }
                    }
                }
            }
        }
    }

    fn synced(&mut self) {
        let now = self.clock.now();
        let Durable { lsn, failure } = self.durable.borrow_and_update().clone();
        self.node.handle(now, Event::Synced { lsn });
        if let Some(reason) = failure {
            self.node.handle(now, Event::StoreFailed { reason });
        }
    }

    fn apply(&mut self) {
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Send { channel, frame } => {
                    let Some(outbox) = self.channels.get(&channel) else { continue };
                    if let Err(overflow) = outbox.push(frame) {
                        Status::count(&self.status.overflows);
                        tracing::warn!(channel = channel.0, %overflow, "connection closed: its peer does not read");
                    }
                }
                Effect::Close { channel } => {
                    if let Some(outbox) = self.channels.remove(&channel) {
                        outbox.close();
                    }
                }
                Effect::Dial { store, addresses } => {
                    if let Err(refused) = self.dials.try_send(Dial { store, addresses }) {
                        let (mpsc::error::TrySendError::Full(Dial { store, .. })
                        | mpsc::error::TrySendError::Closed(Dial { store, .. })) = refused;
                        self.node.handle(self.clock.now(), Event::Dialed { store, channel: None });
                    }
                }
            }
        }
    }
}

/// Never, if nothing is due.
async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
