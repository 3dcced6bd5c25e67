//! One channel from its opening to its end.

use std::sync::Arc;
use std::time::Duration;

use braid_engine::{ChannelId, Event};
use braid_link::{Channel, Code, Receiver, Sender};
use braid_wire::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::engine::Input;
use crate::outbox::Outbox;

/// Bytes of frames that were read and not yet taken by the engine, of all channels. While they wait, nothing more is read.
const UNREAD_BYTES_MAX: usize = 64 << 20;
/// How long the last frames may take to reach the peer, and the peer to end its side in turn.
const LINGER: Duration = Duration::from_secs(5);
/// The same when the node leaves: the engine's own deadline comes first.
const LEAVE: Duration = Duration::from_secs(10);

/// The way to the engine: bounded in frames by the queue, in bytes by permits. A reader waits while it is full.
#[derive(Clone, Debug)]
pub(crate) struct Inlet {
    inputs: mpsc::Sender<Input>,
    bytes: Arc<Semaphore>,
}

/// The engine is gone.
#[derive(Debug)]
pub(crate) struct Gone;

impl Inlet {
    pub(crate) fn new(inputs: mpsc::Sender<Input>) -> Self {
        Self { inputs, bytes: Arc::new(Semaphore::new(UNREAD_BYTES_MAX)) }
    }

    /// Cancel-safe: a cancelled call has put nothing in.
    pub(crate) async fn put(&self, input: Input) -> Result<(), Gone> {
        self.inputs.send(input).await.map_err(|_| Gone)
    }

    async fn put_frame(&self, channel: ChannelId, frame: Frame) -> Result<(), Gone> {
        let room = self.room(frame.wire_len()).await?;
        self.put(Input::Event(Event::Frame { channel, frame }, Some(room))).await
    }

    async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Gone> {
        let bytes = u32::try_from(bytes.min(UNREAD_BYTES_MAX)).expect("the bound fits in u32");
        self.bytes.clone().acquire_many_owned(bytes).await.map_err(|_| Gone)
    }
}

/// Reads and writes until either side ends the channel, its connection is over, or the node leaves. The engine hears of the end
/// as soon as nothing more can come; what it said before still goes out.
pub(crate) async fn live(
    channel: ChannelId,
    opened: Channel,
    outbox: &Outbox,
    inlet: &Inlet,
    stop: &CancellationToken,
) {
    let (mut sender, mut receiver) = opened.split();
    let writing = write(&mut sender, outbox);
    tokio::pin!(writing);
    let is_written = tokio::select! {
        biased;
        // Nothing more is taken in. The engine closes the outbox once what was taken is durable and answered.
        () = stop.cancelled() => {
            let _ = tokio::time::timeout(LEAVE, &mut writing).await;
            return;
        }
        refused = read(channel, &mut receiver, inlet) => {
            if let Some(refused) = refused {
                tracing::info!(channel = channel.0, reason = refused.message, "peer broke the protocol");
                // An overflow closes the connection: there is nobody to tell.
                let _ = outbox.push(refused.into());
            }
            outbox.close();
            false
        }
        () = &mut writing => true,
    };
    // If the engine is gone, there is nobody to tell.
    let _ = inlet.put(Input::Event(Event::Closed { channel }, None)).await;
    if is_written {
        // Read on until the peer has read the end and ends its side: a stop would overtake the last words.
        let ended = async { while let Ok(Some(_)) = receiver.next().await {} };
        let _ = tokio::time::timeout(LINGER, stop.run_until_cancelled(ended)).await;
    } else {
        // A peer that takes nothing within the linger gets a reset.
        let _ = tokio::time::timeout(LINGER, &mut writing).await;
    }
}

/// Until the peer ends the stream; what to tell it if that was by breaking the protocol.
async fn read(channel: ChannelId, receiver: &mut Receiver, inlet: &Inlet) -> Option<braid_wire::proto::Refused> {
    loop {
        match receiver.next().await {
            Ok(Some(frame)) => inlet.put_frame(channel, frame).await.ok()?,
            Ok(None) => return None,
            Err(error) => return error.refused(),
        }
    }
}

/// Until the outbox is closed and everything is at the peer, or the stream fails.
async fn write(sender: &mut Sender, outbox: &Outbox) {
    loop {
        let (frames, last) = outbox.take().await;
        let sent = sender.send_many(&frames).await;
        outbox.written(&frames);
        if let Err(error) = sent {
            tracing::debug!(%error, "nobody reads this channel");
            sender.reset(Code::Unspecified);
            return;
        }
        if last {
            if sender.finish().await.is_ok() {
                // Failed or not, there is nothing more to say.
                let _ = sender.acknowledged().await;
            }
            return;
        }
    }
}
