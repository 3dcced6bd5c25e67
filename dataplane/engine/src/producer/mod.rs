//! A producer of one topic: from messages to durable entries, in key order through every split, merge and rebucket.
//!
//! A message goes to the segment of its key, there to the bucket's batch; a full or old enough batch becomes an entry with contiguous
//! sequences and stays here until the node says that it is durable. A segment that turns out to be sealed is *settled* first: its last
//! word tells what it holds; what it does not hold goes to its successors, in order, and only then what came later.
//!
//! It knows no sockets, clocks or threads, and never how entries are stored.

mod answers;
mod batch;
mod lane;
mod ring;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, VecDeque};

use braid_model::{KeyHash, Micros, SegmentId};
use braid_wire::{FRAME_BYTES_MAX, Message};

use crate::ChannelId;
use crate::backoff::Dice;
use crate::remote::{Effect, Event, Outbox, Remote, Target};
use crate::view::{View, tiles};
use crate::watch::Watch;
use batch::Pending;
use lane::{Durable, Lane, Link};
use ring::{Known, Ring};

pub use words::{Config, Limits, Notice, SendError, Ticket};

/// Without a seal answer for so long after a layout told of the seal, the node is asked again.
const SEAL_ANSWER_US: u64 = 1_000_000;
/// What a message costs beside its bytes, in the producer's books.
const MESSAGE_OVERHEAD: usize = 64;

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
