//! What a producer's or consumer's shell tells its machine, and what the machine asks of it: channels to nodes.

use std::collections::VecDeque;

use braid_wire::Frame;

use crate::ChannelId;

/// Whom to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The store that the node must have open, by its certificate. `None`: any node of the data plane (first contact).
    pub store: Option<String>,
    /// Tried in order.
    pub addresses: Vec<String>,
}

/// What happened outside.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a frame is moved, not kept; a box would cost an allocation each")]
pub enum Event {
    /// The channel that [`Effect::Open`] asked for can be written.
    Opened { channel: ChannelId },
    /// A frame came in, in order within its channel.
    Frame { channel: ChannelId, frame: Frame },
    /// The channel could not be opened, or ended by either side. Nothing more comes of it.
    Closed { channel: ChannelId, reason: String },
}

/// What the machine wants done, in this order.
#[derive(Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "a frame is moved, not kept; a box would cost an allocation each")]
pub enum Effect {
    /// Answered by `Opened` or `Closed`. The machine numbers its channels itself.
    Open { channel: ChannelId, target: Target },
    /// Never waits: what a machine sends without hearing back is bounded by its windows.
    Send { channel: ChannelId, frame: Frame },
    /// Ends the channel once what was sent on it is out. Nothing more is told of it.
    Close { channel: ChannelId },
}

/// A machine that speaks to nodes. It is driven by calling [`Remote::tick`] whenever [`Remote::deadline`] has passed, and by taking
/// its effects after every call.
pub trait Remote {
    /// Takes note of what happened.
    fn handle(&mut self, now: braid_model::Micros, event: Event);
    /// Does what is due.
    fn tick(&mut self, now: braid_model::Micros);
    /// When something is due next.
    fn deadline(&self) -> Option<braid_model::Micros>;
    /// The next thing to do; `None` when there is nothing.
    fn poll_effect(&mut self) -> Option<Effect>;
}

/// Effects in order, and the number of the next channel.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    effects: VecDeque<Effect>,
    channels: u64,
}

impl Outbox {
    pub(crate) fn open(&mut self, target: Target) -> ChannelId {
        self.channels += 1;
        let channel = ChannelId(self.channels);
        self.effects.push_back(Effect::Open { channel, target });
        channel
    }

    pub(crate) fn send(&mut self, channel: ChannelId, frame: impl Into<Frame>) {
        self.effects.push_back(Effect::Send { channel, frame: frame.into() });
    }

    pub(crate) fn close(&mut self, channel: ChannelId) {
        self.effects.push_back(Effect::Close { channel });
    }

    pub(crate) fn pop(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
}
