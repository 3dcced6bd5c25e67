//! A machine's channels: one task each, which dials, reads and writes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use braid_engine::ChannelId;
use braid_engine::remote::{Effect, Event, Target};
use braid_link::{Receiver, RecvError, Sender};
use braid_wire::Frame;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::pool::Pool;

/// Frames read and not yet taken by the machine, over all channels: while it is full, nothing more is read.
const EVENTS_MAX: usize = 1024;

/// Frames to be written. The machine's own windows bound it (bytes in flight, acks within credit), so a push never waits.
#[derive(Debug, Default)]
struct Outbox {
    queue: Mutex<Queue>,
    filled: Notify,
    /// Given up before it was opened, or to be ended.
    closed: CancellationToken,
}

type Queue = Vec<Frame>;

impl Outbox {
    fn push(&self, frame: Frame) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(frame);
        self.filled.notify_one();
    }

    /// All that waits, and whether it is the last. Waits until there is something. Cancel-safe.
    async fn drain(&self) -> (Vec<Frame>, bool) {
        loop {
            // Asked first: what is pushed before the close is seen after it.
            let last = self.closed.is_cancelled();
            let frames = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
            if last || !frames.is_empty() {
                return (frames, last);
            }
            tokio::select! {
                () = self.filled.notified() => {}
                () = self.closed.cancelled() => {}
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Channels {
    pool: Arc<Pool>,
    open: HashMap<ChannelId, Arc<Outbox>>,
    events: mpsc::Sender<Event>,
    tasks: JoinSet<ChannelId>,
}

impl Channels {
    pub(crate) fn new(pool: Arc<Pool>) -> (Self, mpsc::Receiver<Event>) {
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        (Self { pool, open: HashMap::new(), events, tasks: JoinSet::new() }, receiver)
    }

    pub(crate) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Open { channel, target } => {
                let outbox = Arc::new(Outbox::default());
                self.open.insert(channel, outbox.clone());
                let (pool, events) = (self.pool.clone(), self.events.clone());
                self.tasks.spawn(async move {
                    live(channel, &target, &pool, &outbox, &events).await;
                    channel
                });
            }
            Effect::Send { channel, frame } => {
                if let Some(outbox) = self.open.get(&channel) {
                    outbox.push(frame);
                }
            }
            Effect::Close { channel } => {
                if let Some(outbox) = self.open.remove(&channel) {
                    outbox.closed.cancel();
                }
            }
        }
    }

    /// Forgets a channel that ended; pending while none does. Cancel-safe.
    pub(crate) async fn reap(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(channel)) => drop(self.open.remove(&channel)),
            Some(Err(error)) => tracing::error!(%error, "channel task"),
            None => std::future::pending().await,
        }
    }

    /// Lets what was sent go out.
    pub(crate) async fn finish(&mut self) {
        for (_, outbox) in self.open.drain() {
            outbox.closed.cancel();
        }
        while self.tasks.join_next().await.is_some() {}
    }
}

/// A channel from dial to end.
async fn live(channel: ChannelId, target: &Target, pool: &Pool, outbox: &Outbox, events: &mpsc::Sender<Event>) {
    let opened = tokio::select! {
        biased;
        () = outbox.closed.cancelled() => return,
        opened = pool.open(target) => opened,
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(reason) => {
            // The machine is gone if nobody listens.
            let _ = events.send(Event::Closed { channel, reason }).await;
            return;
        }
    };
    if events.send(Event::Opened { channel }).await.is_err() {
        return;
    }
    let (sender, receiver) = opened.split();
    let reason = tokio::select! {
        reason = read(channel, receiver, events) => reason,
        reason = write(sender, outbox) => reason,
    };
    if let Some(reason) = reason {
        let _ = events.send(Event::Closed { channel, reason }).await;
    }
}

/// Until the channel ends; why.
async fn read(channel: ChannelId, mut receiver: Receiver, events: &mpsc::Sender<Event>) -> Option<String> {
    loop {
        match receiver.next().await {
            Ok(Some(frame)) => events.send(Event::Frame { channel, frame }).await.ok()?,
            Ok(None) => return Some("ended by the node".into()),
            Err(error) => return Some(chain(&error)),
        }
    }
}

/// Until the machine closed the channel and all is written, or writing fails: then reading tells why, unless it is silent too.
async fn write(mut sender: Sender, outbox: &Outbox) -> Option<String> {
    loop {
        let (frames, last) = outbox.drain().await;
        if let Err(error) = sender.send_many(&frames).await {
            return Some(error.to_string());
        }
        if last {
            // The node ends its side in turn; nobody waits for it.
            let _ = sender.finish().await;
            return None;
        }
    }
}

fn chain(error: &RecvError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
