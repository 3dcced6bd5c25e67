//! A producer of one topic: from messages to durable entries, in key order through every split, merge and rebucket.
//!
//! A message goes to the segment of its key, there to the bucket's batch; a full or old enough batch becomes an entry with contiguous
//! sequences and stays here until the node says that it is durable. A segment that turns out to be sealed is *settled* first: its last
//! word tells what it holds; what it does not hold goes to its successors, in order, and only then what came later.
//!
//! It knows no sockets, clocks or threads, and never how entries are stored.

mod batch;
mod lane;
mod ring;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use braid_model::{KeyHash, Micros, Offset, SegmentId};
use braid_wire::proto::Code;
use braid_wire::{FRAME_BYTES_MAX, Frame, Message, proto};

use crate::ChannelId;
use crate::backoff::Dice;
use crate::remote::{Effect, Event, Outbox, Remote, Target};
use crate::view::{Segment, View, tiles};
use crate::watch::{Contact, Watch, describe};
use batch::Pending;
use lane::{Durable, Lane, Link};
use ring::{Known, Ring};

/// Without a seal answer for so long after a layout told of the seal, the node is asked again.
const SEAL_ANSWER_US: u64 = 1_000_000;
/// What a message costs beside its bytes, in the producer's books.
const MESSAGE_OVERHEAD: usize = 64;

/// One message that was pushed: named again when it is settled. Rises in push order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// How much a producer gathers, sends ahead and tries again.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Payload bytes at which a batch is closed.
    pub batch_bytes: usize,
    /// Messages at which a batch is closed.
    pub batch_count: usize,
    /// How long a batch waits for more messages.
    pub linger_us: u64,
    /// Bytes on the wire, not yet durable, per segment.
    pub window_bytes: usize,
    /// Bytes of all messages pushed and not yet settled: at this, [`Producer::has_room`] is false.
    pub buffer_bytes: usize,
    /// How long one segment may make no progress until its messages fail.
    pub give_up_us: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch_bytes: 128 << 10,
            batch_count: 1_000,
            linger_us: 1_000,
            window_bytes: 4 << 20,
            buffer_bytes: 32 << 20,
            give_up_us: 120_000_000,
        }
    }
}

/// Who the producer is, and how it works.
#[derive(Clone, Debug)]
pub struct Config {
    pub contact: Contact,
    /// Random; no two producers of a topic may share it.
    pub producer: u64,
    pub limits: Limits,
    /// For jitter and the start of round robins.
    pub seed: u64,
}

/// Why a message did not get through. With `GaveUp` it may be in the topic all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("message takes {bytes} bytes, an entry may have {most}")]
    TooLarge { bytes: usize, most: usize },
    #[error("segment `{segment}` on store `{store}` refused the entry: {reason}")]
    Refused { segment: SegmentId, store: String, reason: String },
    #[error("segment `{segment}` on store `{store}` took nothing for {after_ms} ms, last: {reason}")]
    GaveUp { segment: SegmentId, store: String, after_ms: u64, reason: String },
    #[error("topic `{topic}` is being deleted")]
    Deleted { topic: String },
    #[error("the producer was dropped before it knew what became of the message")]
    Closed,
}

/// What became of messages.
#[derive(Debug, PartialEq)]
pub enum Notice {
    /// Durable. Message `i` has the offset `base + i`; `base` is `None` if a node knows that they are, not any more where.
    Durable {
        tickets: Arc<[Ticket]>,
        segment: SegmentId,
        base: Option<Offset>,
    },
    Failed {
        tickets: Vec<Ticket>,
        error: SendError,
    },
}

/// A producer of one topic.
#[derive(Debug)]
pub struct Producer {
    config: Config,
    watch: Watch,
    out: Outbox,
    dice: Dice,
    known: Known,
    ring: Ring,
    lanes: BTreeMap<SegmentId, Lane>,
    /// Pushed before the first layout came.
    early: VecDeque<Pending>,
    notices: VecDeque<Notice>,
    tickets: u64,
    /// Bytes of each message not yet settled.
    costs: BTreeMap<Ticket, usize>,
    buffered: usize,
    turn: u64,
    /// Of the incarnation before: epochs already used per segment, after entries were withdrawn.
    epochs: BTreeMap<SegmentId, u32>,
    flushing: bool,
}

impl Producer {
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut dice = Dice::new(config.seed);
        let turn = dice.roll() >> 32;
        Self {
            watch: Watch::new(config.contact.clone()),
            config,
            out: Outbox::default(),
            dice,
            known: Known::default(),
            ring: Ring::default(),
            lanes: BTreeMap::new(),
            early: VecDeque::new(),
            notices: VecDeque::new(),
            tickets: 0,
            costs: BTreeMap::new(),
            buffered: 0,
            turn,
            epochs: BTreeMap::new(),
            flushing: false,
        }
    }

    /// Whether another message may be pushed now; if not, wait for notices.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.buffered < self.config.limits.buffer_bytes
    }

    /// How many messages are not settled.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.costs.len()
    }

    /// The newest layout, `None` until a node told one.
    #[must_use]
    pub const fn view(&self) -> Option<&View> {
        self.watch.view()
    }

    /// Why no layout came so far.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.watch.trouble()
    }

    /// Takes a message over; a later [`Notice`] names its ticket. Takes it even without room: the bound is the caller's to keep.
    pub fn push(&mut self, now: Micros, message: Message) -> Result<Ticket, SendError> {
        let bytes = message.encoded_len();
        let most = FRAME_BYTES_MAX - 256;
        if bytes > most {
            return Err(SendError::TooLarge { bytes, most });
        }
        if self.watch.view().is_some_and(|view| view.deleted) {
            return Err(self.deleted());
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.costs.insert(ticket, bytes + MESSAGE_OVERHEAD);
        self.buffered += bytes + MESSAGE_OVERHEAD;
        let hash = message.key.as_deref().map(KeyHash::of);
        self.route(now, vec![Pending { ticket, message, hash }]);
        Ok(ticket)
    }

    /// Sends what is gathered without waiting for more. [`Producer::unsettled`] tells when it is durable.
    pub fn flush(&mut self, now: Micros) {
        self.flushing = true;
        for lane in self.lanes.values_mut() {
            lane.flushing = true;
            lane.write(now, &self.config.limits, &mut self.out);
        }
    }

    /// What became of messages, in the order it became known.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Hands messages, in order, to the lanes that own them now.
    fn route(&mut self, now: Micros, messages: Vec<Pending>) {
        if self.ring.is_empty() {
            self.early.extend(messages);
            return;
        }
        let mut touched = Vec::new();
        for pending in messages {
            let id = self.owner(&pending);
            let (known, config, epochs) = (&self.known, &self.config, &self.epochs);
            let lane = self.lanes.entry(id).or_insert_with(|| {
                let segment = known.segment(id).expect("the ring names known segments").clone();
                Lane::new(segment, config.producer, epochs.get(&id).map_or(1, |used| used + 1))
            });
            lane.flushing |= self.flushing;
            lane.push(now, pending, &config.limits);
            if touched.last() != Some(&id) {
                touched.push(id);
            }
        }
        for id in touched {
            self.pump(now, id);
        }
    }

    /// The segment that takes this message: sealed ones that nothing is owed to have handed their hashes on.
    fn owner(&mut self, pending: &Pending) -> SegmentId {
        if pending.hash.is_none() {
            self.turn += 1;
        }
        loop {
            let id = match pending.hash {
                Some(hash) => self.ring.owner(hash.route()),
                None => self.ring.turn(self.turn),
            };
            if self.lanes.contains_key(&id) || self.known.segment(id).is_some_and(|segment| !segment.sealed) {
                return id;
            }
            self.hand_on(id);
        }
    }

    /// Gives the hashes of a settled segment to its successors.
    fn hand_on(&mut self, id: SegmentId) {
        let range = self.known.segment(id).map(|segment| segment.range);
        let mut successors = self.known.children(id);
        if range.is_none_or(|range| tiles(range, successors.iter()).is_err()) {
            // Several layouts were missed, or some of the lineage is pruned: those that are active own the hashes.
            let active = self.watch.view().into_iter().flat_map(View::active);
            successors = active.filter(|segment| segment.id != id).cloned().collect();
            successors.iter().for_each(|segment| self.known.learn(segment.clone()));
        }
        self.ring.replace(id, &successors);
    }

    /// Opens the lane's channel if it has something to say, and writes.
    fn pump(&mut self, now: Micros, id: SegmentId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if matches!(lane.link, Link::Idle) && !lane.is_empty() {
            let store = lane.segment.store.clone();
            let addresses = self.known.addresses(&store);
            lane.link = Link::Opening { channel: self.out.open(Target { store: Some(store), addresses }) };
        }
        lane.write(now, &self.config.limits, &mut self.out);
    }

    /// A newer layout came.
    fn learn_layout(&mut self, now: Micros, before: Option<u64>) {
        let Some(view) = self.watch.view() else { return };
        if view.deleted {
            self.fail_everything(self.deleted());
            return;
        }
        if before.is_some_and(|incarnation| incarnation != view.topic.incarnation) {
            // Another life of the name: its segments have nothing to do with the old ones.
            self.fail_everything(self.deleted());
        }
        let view = self.watch.view().expect("it was there");
        view.segments.values().for_each(|segment| self.known.learn(segment.clone()));
        self.known.learn_nodes(view.nodes.clone());
        let lanes = &self.lanes;
        self.known.forget(|id| view.segments.contains_key(&id) || lanes.contains_key(&id) || id > max_id(view));
        if self.ring.is_empty() {
            self.ring.set(view.active());
        }
        let sealed =
            |id: &SegmentId| view.segments.get(id).map_or_else(|| *id <= max_id(view), |segment| segment.sealed);
        let sealed: Vec<_> = self.lanes.keys().copied().filter(sealed).collect();
        for id in sealed {
            self.learn_sealed(now, id);
        }
        let early = std::mem::take(&mut self.early);
        self.route(now, early.into());
    }

    /// A layout says that the segment is sealed; its own node has not said so yet.
    fn learn_sealed(&mut self, now: Micros, id: SegmentId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.sealed_since.is_none() {
            lane.sealed_since = Some(now);
        }
        if !lane.is_unsettled() {
            self.retire(now, id);
        }
        // Otherwise the node's answer settles what is on its way; `tick` asks for it. Here is the place where, once rollovers exist
        // (a segment `Sealed, end unknown`, or a node that does not answer), the entries go to the successors with their origins.
    }

    /// The lane owes nothing any more that its segment could hold: the rest goes to the successors, in order.
    fn retire(&mut self, now: Micros, id: SegmentId) {
        let Some(mut lane) = self.lanes.remove(&id) else { return };
        if let Some(channel) = lane.link.channel() {
            self.out.close(channel);
        }
        self.hand_on(id);
        let messages = lane.take_all();
        self.route(now, messages);
    }

    fn durable(&mut self, segment: SegmentId, durable: Vec<Durable>) {
        for Durable { tickets, base } in durable {
            self.release(&tickets);
            self.notices.push_back(Notice::Durable { tickets, segment, base });
        }
    }

    fn release(&mut self, tickets: &[Ticket]) {
        for ticket in tickets {
            self.buffered -= self.costs.remove(ticket).unwrap_or_default();
        }
        self.flushing &= !self.costs.is_empty();
    }

    fn fail(&mut self, messages: Vec<Pending>, error: SendError) {
        let tickets: Vec<_> = messages.iter().map(|pending| pending.ticket).collect();
        self.release(&tickets);
        if !tickets.is_empty() {
            self.notices.push_back(Notice::Failed { tickets, error });
        }
    }

    /// Withdraws everything of one segment. Its next entries start a higher epoch, numbered from 1.
    fn fail_lane(&mut self, id: SegmentId, error: SendError) {
        let Some(mut lane) = self.lanes.remove(&id) else { return };
        if let Some(channel) = lane.link.channel() {
            self.out.close(channel);
        }
        self.epochs.insert(id, lane.epoch());
        let messages = lane.take_all();
        self.fail(messages, error);
    }

    fn fail_everything(&mut self, error: SendError) {
        for id in self.lanes.keys().copied().collect::<Vec<_>>() {
            self.fail_lane(id, error.clone());
        }
        let early = std::mem::take(&mut self.early);
        self.fail(early.into(), error);
        (self.known, self.ring) = (Known::default(), Ring::default());
        self.epochs.clear();
    }

    fn deleted(&self) -> SendError {
        SendError::Deleted { topic: self.config.contact.topic.clone() }
    }

    fn lane_of(&self, channel: ChannelId) -> Option<SegmentId> {
        self.lanes.iter().find(|(_, lane)| lane.link.channel() == Some(channel)).map(|(id, _)| *id)
    }

    fn lane_event(&mut self, now: Micros, id: SegmentId, event: Event) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        match event {
            Event::Opened { channel } => {
                lane.link = Link::Asked { channel };
                let epoch = lane.epoch();
                let open = proto::OpenProducer {
                    topic: Some(self.watch.topic()),
                    segment: id.0,
                    producer: self.config.producer,
                    epoch,
                    layout_epoch: self.watch.view().map_or(0, |view| view.epoch),
                };
                self.out.send(channel, open);
            }
            Event::Closed { reason, .. } => self.retry(now, id, reason, false),
            Event::Frame { frame: Frame::ProducerOpened(opened), channel } => self.opened(now, id, channel, &opened),
            Event::Frame { frame: Frame::Published(published), .. } => {
                lane.trouble = None;
                lane.backoff.reset();
                let durable = lane.settle(&published.entries);
                let settled = lane.sealed_since.is_some() && !lane.is_unsettled();
                self.durable(id, durable);
                if settled {
                    self.retire(now, id);
                } else {
                    self.pump(now, id);
                }
            }
            Event::Frame { frame: Frame::SegmentSealed(sealed), .. } => self.sealed(now, id, &sealed),
            Event::Frame { frame: Frame::Refused(refused), .. } => self.refused(now, id, &refused),
            Event::Frame { frame, .. } => self.retry(now, id, format!("unexpected frame `{}`", frame.name()), true),
        }
    }

    fn opened(&mut self, now: Micros, id: SegmentId, channel: ChannelId, opened: &proto::ProducerOpened) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        if opened.last_sequence >= lane.next_sequence() {
            // Another one writes under this id: a higher epoch fences it.
            lane.renumber();
            self.retry(now, id, format!("sequence {} is not of this producer", opened.last_sequence), true);
            return;
        }
        lane.link = Link::Open { channel };
        let durable = lane.settle_up_to(opened.last_sequence, &opened.window);
        if !durable.is_empty() || !lane.is_unsettled() {
            lane.trouble = None;
            lane.backoff.reset();
        }
        self.durable(id, durable);
        self.pump(now, id);
    }

    /// The segment's last word: settles all that is on its way.
    fn sealed(&mut self, now: Micros, id: SegmentId, sealed: &proto::SegmentSealed) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        let successors: Result<Vec<_>, _> = sealed.successors.iter().map(Segment::try_from).collect();
        let successors = successors.and_then(|segments| tiles(lane.segment.range, segments.iter()).map(|()| segments));
        let successors = match successors {
            Ok(successors) => successors,
            Err(error) => {
                self.retry(now, id, format!("seal answer: {error}"), true);
                return;
            }
        };
        let durable = lane.settle_up_to(sealed.last_sequence, &sealed.window);
        self.durable(id, durable);
        self.known.seal(id, successors);
        self.known.learn_nodes(sealed.nodes.iter().map(|node| (node.store.clone(), node.addresses.clone())));
        self.retire(now, id);
    }

    fn refused(&mut self, now: Micros, id: SegmentId, refused: &proto::Refused) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        let reason = describe(refused);
        match refused.code() {
            // These pass: the channel is opened again, and the answer tells from where on to resend.
            Code::NoSpace
            | Code::Busy
            | Code::UnknownTopic
            | Code::UnknownSegment
            | Code::StaleLayout
            | Code::SequenceGap
            | Code::StoreFailed
            | Code::LimitExceeded
            | Code::ShuttingDown => self.retry(now, id, reason, true),
            Code::UnknownProducer => {
                lane.renumber();
                self.retry(now, id, reason, true);
            }
            _ => {
                let store = lane.segment.store.clone();
                self.fail_lane(id, SendError::Refused { segment: id, store, reason });
            }
        }
    }

    /// The channel is of no use any more: another one is opened after a while, if there is something to say.
    fn retry(&mut self, now: Micros, id: SegmentId, reason: String, close: bool) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        if let Some(channel) = lane.link.channel().filter(|_| close) {
            self.out.close(channel);
        }
        lane.rewind();
        if lane.is_empty() {
            lane.link = Link::Idle;
            return;
        }
        let since = lane.trouble.take().map_or(now, |(since, _)| since);
        lane.trouble = Some((since, reason));
        lane.link = Link::Waiting { until: lane.backoff.next(now, &mut self.dice) };
    }

    fn tick_lane(&mut self, now: Micros, id: SegmentId) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        if let Some((since, reason)) = &lane.trouble
            && now.since(*since) >= self.config.limits.give_up_us
        {
            let error = SendError::GaveUp {
                segment: id,
                store: lane.segment.store.clone(),
                after_ms: now.since(*since) / 1_000,
                reason: reason.clone(),
            };
            self.fail_lane(id, error);
            return;
        }
        if let Some(asked) = seal_question_at(lane)
            && asked <= now
        {
            lane.sealed_since = Some(now);
            self.retry(now, id, "no answer to the seal that a layout tells of".into(), true);
            return;
        }
        if matches!(lane.link, Link::Waiting { until } if until <= now) {
            lane.link = Link::Idle;
        }
        self.pump(now, id);
    }
}

fn max_id(view: &View) -> SegmentId {
    view.segments.last_key_value().map_or(SegmentId(0), |(id, _)| *id)
}

/// When an open channel that does not tell the seal is given up for another one.
fn seal_question_at(lane: &Lane) -> Option<Micros> {
    let open = matches!(lane.link, Link::Asked { .. } | Link::Open { .. });
    lane.sealed_since.filter(|_| open).map(|since| Micros(since.0 + SEAL_ANSWER_US))
}

impl Remote for Producer {
    fn handle(&mut self, now: Micros, event: Event) {
        let (Event::Opened { channel } | Event::Frame { channel, .. } | Event::Closed { channel, .. }) = &event;
        if self.watch.owns(*channel) {
            let before = self.watch.view().map(|view| view.topic.incarnation);
            if self.watch.handle(now, event, &mut self.dice, &mut self.out) {
                self.learn_layout(now, before);
            }
        } else if let Some(id) = self.lane_of(*channel) {
            self.lane_event(now, id, event);
        }
    }

    fn tick(&mut self, now: Micros) {
        self.watch.tick(now, &mut self.out);
        for id in self.lanes.keys().copied().collect::<Vec<_>>() {
            if self.lanes.contains_key(&id) {
                self.tick_lane(now, id);
            }
        }
    }

    fn deadline(&self) -> Option<Micros> {
        let lanes = self.lanes.values().flat_map(|lane| {
            let waiting = match lane.link {
                Link::Waiting { until } => Some(until),
                _ => None,
            };
            let given_up = lane.trouble.as_ref().map(|(since, _)| Micros(since.0 + self.config.limits.give_up_us));
            [waiting, given_up, seal_question_at(lane), lane.linger_deadline(&self.config.limits)]
        });
        lanes.flatten().chain(self.watch.deadline()).min()
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.out.pop()
    }
}
