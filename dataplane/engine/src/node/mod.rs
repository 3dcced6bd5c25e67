//! A whole node as one synchronous state machine: events in, effects out, a store beneath.
//!
//! It knows channels by number and time as an argument. It must never know sockets, clocks, threads, or Kubernetes.
//! Nothing leaves it before the records behind it are durable: what is to be shown waits in `later`, by record.

mod consume;
mod control;
mod facts;
mod home;
mod ledger;
mod limits;
mod metrics;
mod open;
mod producers;
mod publish;
mod records;
mod report;
mod segment;
mod session;
mod state;
mod subscription;
mod topics;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_log::{Lsn, SegmentKey, Store};
use braid_model::{Generation, Incarnation, Micros, Offset};
use braid_wire::proto::{self, Code, Refused};
use braid_wire::{Frame, VERSION};

use crate::backoff::Dice;
use crate::{ChannelId, Effect, Event};
use facts::PeerLink;
use home::Home;
use ledger::Ledger;
use records::Name;
use report::Clock;
use session::{Channel, Role};
use state::State;

pub use limits::{Bounds, Config};
pub use metrics::Metrics;
pub use open::OpenError;

/// One node: everything that one store holds, and everyone who talks to it.
#[derive(Debug)]
pub struct Node<S> {
    config: Config,
    now: Micros,
    ledger: Ledger<S>,
    state: State,
    channels: BTreeMap<ChannelId, Channel>,
    effects: VecDeque<Effect>,
    /// What happens once a record is durable.
    later: BTreeMap<Lsn, Vec<Later>>,
    /// The record of the start counter: nothing at all is said before it is durable.
    floor: Lsn,
    homes: BTreeMap<(Incarnation, Name), Home>,
    peers: BTreeMap<String, PeerLink>,
    timers: Timers,
    clock: Clock,
    counts: Metrics,
    dice: Dice,
}

/// What waits for a record to be durable.
#[allow(clippy::large_enum_variant, reason = "nearly all of them are frames")]
#[derive(Debug)]
enum Later {
    Say(ChannelId, Frame),
    Close(ChannelId),
    Published(ChannelId, proto::PublishedEntry),
    AckConfirmed(ChannelId, u64),
    Appended(SegmentKey, Offset),
    Sealed(SegmentKey),
    /// A segment that is here is drained.
    Drained(SegmentKey, Name, Generation),
    /// A segment that is elsewhere is drained.
    Fact(SegmentKey, Name, Generation),
    Told(Incarnation),
}

/// When the dispatchers of (segment, subscription) have something to do.
#[derive(Debug, Default)]
struct Timers {
    due: BTreeSet<(Micros, SegmentKey, Name)>,
    of: BTreeMap<(SegmentKey, Name), Micros>,
}

impl Timers {
    fn set(&mut self, key: SegmentKey, name: &Name, at: Option<Micros>) {
        let of = (key, Name::clone(name));
        if let Some(before) = self.of.remove(&of) {
            self.due.remove(&(before, key, Name::clone(name)));
        }
        if let Some(at) = at {
            self.due.insert((at, key, Name::clone(name)));
            self.of.insert(of, at);
        }
    }

    fn next(&self) -> Option<Micros> {
        self.due.first().map(|(at, ..)| *at)
    }

    fn pop(&mut self, now: Micros) -> Option<(SegmentKey, Name)> {
        self.due.first().filter(|(at, ..)| *at <= now)?;
        let (_, key, name) = self.due.pop_first()?;
        self.of.remove(&(key, Name::clone(&name)));
        Some((key, name))
    }
}

impl<S: Store> Node<S> {
    /// Takes what happened. The effects are then in [`Node::poll_effect`].
    pub fn handle(&mut self, now: Micros, event: Event) {
        self.now = now.max(self.now);
        match event {
            Event::Opened { channel, peer, .. } => self.opened(channel, peer),
            Event::Frame { channel, frame } => self.frame(channel, frame),
            Event::Closed { channel } => self.closed(channel),
            Event::Dialed { store, channel } => self.dialed(&store, channel.map(|(channel, _)| channel)),
            Event::Synced { lsn } => self.synced(lsn),
            Event::StoreFailed { reason } => self.store_failed(&reason),
        }
    }

    /// Does what is due. To be called at or after [`Node::deadline`].
    pub fn tick(&mut self, now: Micros) {
        self.now = now.max(self.now);
        while let Some((key, name)) = self.timers.pop(self.now) {
            self.tick_subscription(key, &name);
        }
        self.dial_due();
        self.gathered();
        self.report_due();
    }

    /// When something is due, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Micros> {
        [self.timers.next(), self.next_dial(), self.next_gathered(), self.next_report()].into_iter().flatten().min()
    }

    /// The next thing to do, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The store beneath.
    pub const fn store(&mut self) -> &mut S {
        &mut self.ledger.store
    }

    /// Whether it serves: the start counter is durable and the store did not fail.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.floor <= self.ledger.synced() && self.ledger.failure().is_none()
    }

    /// What it counted.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let segments = || self.state.segments.values();
        let attaches = segments().flat_map(|segment| segment.subscriptions.values()).map(|found| found.channels.len());
        let sealed = segments().filter(|segment| segment.is_sealed()).count();
        Metrics {
            segments_active: (self.state.segments.len() - sealed) as u64,
            segments_sealed: sealed as u64,
            topics: self.state.topics.len() as u64,
            streams: self.channels.len() as u64,
            sessions: self.sessions() as u64,
            attaches: attaches.sum::<usize>() as u64,
            in_flight_bytes: self.ledger.in_flight(),
            synced_lsn: self.ledger.synced().0,
            store_failed: u64::from(self.ledger.failure().is_some()),
            ..self.counts
        }
    }

    /// Says it now, but not before the start counter is durable.
    fn say(&mut self, channel: ChannelId, frame: impl Into<Frame>) {
        self.after(Lsn(0), Later::Say(channel, frame.into()));
    }

    /// Says it once everything that is in the log by now is durable.
    fn say_durably(&mut self, channel: ChannelId, frame: impl Into<Frame>) {
        self.after(self.ledger.last(), Later::Say(channel, frame.into()));
    }

    fn after(&mut self, lsn: Lsn, later: Later) {
        let lsn = lsn.max(self.floor);
        if lsn <= self.ledger.synced() {
            self.happen(later);
        } else if let Some(reason) = self.ledger.failure() {
            let reason = reason.to_owned();
            self.happen_failed(later, &reason);
        } else {
            self.later.entry(lsn).or_default().push(later);
        }
    }

    fn synced(&mut self, lsn: Lsn) {
        let was_serving = self.floor <= self.ledger.synced();
        self.ledger.note_synced(lsn);
        let synced = self.ledger.synced();
        let mut settled = Settled::default();
        while let Some(entry) = self.later.first_entry().filter(|entry| *entry.key() <= synced) {
            for later in entry.remove() {
                match later {
                    Later::Published(channel, entry) => settled.published.entry(channel).or_default().push(entry),
                    Later::AckConfirmed(channel, ack) => drop(settled.confirmed.insert(channel, ack)),
                    Later::Appended(key, end) => drop(settled.appended.insert(key, end)),
                    // Whatever is said on a channel comes after what was settled before.
                    later => {
                        self.settle(std::mem::take(&mut settled));
                        self.happen(later);
                    }
                }
            }
        }
        self.settle(settled);
        if !was_serving && self.floor <= synced {
            self.pump_all();
        }
    }

    fn settle(&mut self, settled: Settled) {
        for (channel, entries) in settled.published {
            self.emit(channel, proto::Published { entries }.into());
        }
        for (channel, ack) in settled.confirmed {
            self.emit(channel, proto::AckConfirmed { ack }.into());
        }
        for (key, end) in settled.appended {
            self.entries_durable(key, end);
        }
    }

    fn happen(&mut self, later: Later) {
        match later {
            Later::Say(channel, frame) => self.emit(channel, frame),
            Later::Close(channel) => {
                if self.channels.remove(&channel).is_some() {
                    self.effects.push_back(Effect::Close { channel });
                }
            }
            Later::Published(channel, entry) => self.emit(channel, proto::Published { entries: vec![entry] }.into()),
            Later::AckConfirmed(channel, ack) => self.emit(channel, proto::AckConfirmed { ack }.into()),
            Later::Appended(key, end) => self.entries_durable(key, end),
            Later::Sealed(key) => self.seal_durable(key),
            Later::Drained(key, name, generation) => self.drained_durable(key, &name, generation),
            Later::Fact(key, name, generation) => self.fact(key, &name, generation),
            Later::Told(incarnation) => self.layout_durable(incarnation),
        }
    }

    /// What was said to a channel that is gone is dropped.
    fn emit(&mut self, channel: ChannelId, frame: Frame) {
        if self.channels.contains_key(&channel) {
            self.counts.refusals += u64::from(matches!(frame, Frame::Refused(_)));
            self.effects.push_back(Effect::Send { channel, frame });
        }
    }

    /// Refuses, and ends the channel: its other side opens a new one if it wants to go on.
    fn refuse(&mut self, channel: ChannelId, refused: Refused) {
        self.say_durably(channel, refused);
        self.end(channel);
    }

    /// Takes nothing more from a channel, and closes it once everything said on it so far is out.
    fn end(&mut self, channel: ChannelId) {
        self.release(channel);
        self.after(self.ledger.last(), Later::Close(channel));
    }

    /// Nothing that waits for a record will be shown. Whoever waits for an answer is told so.
    fn store_failed(&mut self, reason: &str) {
        self.ledger.fail(reason);
        let refused = Refused::new(Code::StoreFailed, format!("the store failed: {reason}"));
        let waiting: Vec<Later> = std::mem::take(&mut self.later).into_values().flatten().collect();
        for later in waiting {
            self.happen_failed(later, reason);
        }
        let writers = self.channels.iter().filter(|(_, channel)| matches!(channel.role, Role::Producer(_)));
        for channel in writers.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.emit(channel, refused.clone().into());
            self.release(channel);
            self.happen(Later::Close(channel));
        }
    }

    /// What waited for a record that will never be durable: only that nothing comes of it is said.
    fn happen_failed(&mut self, later: Later, reason: &str) {
        let refused = || Refused::new(Code::StoreFailed, format!("the store failed: {reason}"));
        match later {
            Later::Say(channel, Frame::Response(response)) => {
                let result = Some(proto::response::Result::Refused(refused()));
                self.emit(channel, proto::Response { id: response.id, result }.into());
            }
            Later::Say(channel, Frame::Refused(_)) => self.emit(channel, refused().into()),
            Later::Close(channel) => self.happen(Later::Close(channel)),
            _ => {}
        }
    }

    fn hello_ok(&self) -> proto::HelloOk {
        proto::HelloOk {
            version: VERSION,
            store: self.config.store.clone(),
            start_counter: self.state.start,
            highest_term: self.state.fences.values().map(|fence| fence.term).max().unwrap_or(0),
            limits: Some(self.config.bounds.into()),
        }
    }
}

/// What one sync settled, said in few frames.
#[derive(Debug, Default)]
struct Settled {
    published: BTreeMap<ChannelId, Vec<proto::PublishedEntry>>,
    confirmed: BTreeMap<ChannelId, u64>,
    appended: BTreeMap<SegmentKey, Offset>,
}
