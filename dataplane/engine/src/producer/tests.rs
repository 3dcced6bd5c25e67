//! A producer against small model nodes: segments that keep entries, seal, lose connections and refuse.

use std::collections::{BTreeMap, VecDeque};

use braid_model::Offset;
use braid_wire::proto::Code;
use braid_wire::{Entry, Frame, proto};
use bytes::Bytes;

use super::*;
use crate::watch::Contact;

#[derive(Debug, Default)]
struct Log {
    wire: proto::Segment,
    entries: Vec<proto::PublishedEntry>,
    messages: Vec<Message>,
    last: u64,
    epoch: u32,
    successors: Option<Vec<proto::Segment>>,
}

/// What one end of a channel is to its node.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Unknown,
    Session,
    Producer(u64),
}

struct World {
    dice: Dice,
    now: Micros,
    producer: Producer,
    logs: BTreeMap<u64, Log>,
    channels: BTreeMap<ChannelId, (Role, VecDeque<Frame>)>,
    /// Frames from nodes, per channel, not yet handed to the producer.
    down: VecDeque<Event>,
    epoch: u64,
    settled: BTreeMap<Ticket, (SegmentId, Offset)>,
    failed: Vec<SendError>,
    sequences: BTreeMap<u64, u64>,
    pushed: BTreeMap<Ticket, (u64, u64)>,
    /// Whether nodes drop, delay and refuse.
    hostile: bool,
}

impl World {
    fn new(seed: u64, limits: Limits) -> Self {
        let contact =
            Contact { namespace: "n".into(), topic: "t".into(), bootstrap: vec!["first:1".into()], name: "p".into() };
        let mut world = Self {
            dice: Dice::new(seed),
            now: Micros(1_000_000),
            producer: Producer::new(Config { contact, producer: 7, limits, seed }),
            logs: BTreeMap::new(),
            channels: BTreeMap::new(),
            down: VecDeque::new(),
            epoch: 1,
            settled: BTreeMap::new(),
            failed: Vec::new(),
            sequences: BTreeMap::new(),
            pushed: BTreeMap::new(),
            hostile: false,
        };
        world.create(0, 65_535, 4, &[]);
        world
    }

    fn create(&mut self, start: u32, end: u32, buckets: u32, parents: &[u64]) -> u64 {
        let id = self.logs.len() as u64;
        let store = format!("store-{}", id % 3);
        let wire = proto::Segment {
            id,
            start,
            end,
            buckets,
            store,
            parents: parents.to_vec(),
            created_epoch: self.epoch,
            ..proto::Segment::default()
        };
        self.logs.insert(id, Log { wire, ..Log::default() });
        id
    }

    fn active(&self) -> Vec<u64> {
        self.logs.iter().filter(|(_, log)| log.successors.is_none()).map(|(id, _)| *id).collect()
    }

    /// Seals `parents`, which `children` continue; open producers hear it at once, or their channel breaks.
    fn seal(&mut self, parents: &[u64], children: &[u64]) {
        let successors: Vec<_> = children.iter().map(|id| self.logs[id].wire.clone()).collect();
        for parent in parents {
            let log = self.logs.get_mut(parent).unwrap();
            log.successors = Some(successors.clone());
            log.wire.children = children.to_vec();
            log.wire.sealed = true;
            let open: Vec<_> = self
                .channels
                .iter()
                .filter(|(_, (role, _))| *role == Role::Producer(*parent))
                .map(|(c, _)| *c)
                .collect();
            for channel in open {
                let frame = self.seal_answer(*parent);
                self.say(channel, frame);
            }
        }
    }

    fn seal_answer(&self, segment: u64) -> Frame {
        let log = &self.logs[&segment];
        proto::SegmentSealed {
            segment,
            last_sequence: log.last,
            window: log.entries.clone(),
            successors: log.successors.clone().unwrap(),
            nodes: Vec::new(),
        }
        .into()
    }

    fn tell(&mut self) {
        self.epoch += 1;
        let sessions: Vec<_> =
            self.channels.iter().filter(|(_, (role, _))| *role == Role::Session).map(|(c, _)| *c).collect();
        for channel in sessions {
            let layout = self.layout();
            self.say(channel, layout);
        }
    }

    fn layout(&self) -> proto::TopicLayout {
        let node = |i| proto::Node { store: format!("store-{i}"), addresses: vec![format!("10.0.0.{i}:4433")] };
        proto::TopicLayout {
            topic: Some(proto::TopicRef { namespace: "n".into(), name: "t".into(), incarnation: 9 }),
            term: 1,
            sequence: self.epoch,
            epoch: self.epoch,
            segments: self.logs.values().map(|log| log.wire.clone()).collect(),
            nodes: (0..3).map(node).collect(),
            ..proto::TopicLayout::default()
        }
    }

    fn say(&mut self, channel: ChannelId, frame: impl Into<Frame>) {
        self.down.push_back(Event::Frame { channel, frame: frame.into() });
    }

    fn push(&mut self, key: u64) {
        if !self.producer.has_room() {
            return;
        }
        let sequence = self.sequences.entry(key).or_default();
        let message = Message {
            key: Some(format!("key-{key}").into()),
            value: Bytes::from(sequence.to_string()),
            headers: Vec::new(),
        };
        let ticket = self.producer.push(self.now, message).unwrap();
        self.pushed.insert(ticket, (key, *sequence));
        *sequence += 1;
        self.effects();
    }

    fn effects(&mut self) {
        while let Some(effect) = self.producer.poll_effect() {
            match effect {
                Effect::Open { channel, target } => {
                    assert!(!target.addresses.is_empty(), "{target:?}");
                    self.channels.insert(channel, (Role::Unknown, VecDeque::new()));
                    self.down.push_back(Event::Opened { channel });
                }
                Effect::Send { channel, frame } => {
                    if let Some((_, up)) = self.channels.get_mut(&channel) {
                        up.push_back(frame);
                    }
                }
                Effect::Close { channel } => drop(self.channels.remove(&channel)),
            }
        }
        while let Some(notice) = self.producer.poll_notice() {
            match notice {
                Notice::Durable { tickets, segment, base } => {
                    let base = base.expect("the model's window reaches back to the start").0;
                    for (i, ticket) in tickets.iter().enumerate() {
                        let twice = self.settled.insert(*ticket, (segment, Offset(base + i as u64)));
                        assert_eq!(twice, None);
                    }
                }
                Notice::Failed { error, .. } => self.failed.push(error),
            }
        }
    }

    fn break_channel(&mut self, channel: ChannelId) {
        self.channels.remove(&channel);
        // What was said and not heard is lost with the channel.
        self.down.retain(
            |event| !matches!(event, Event::Frame { channel: c, .. } | Event::Opened { channel: c } if *c == channel),
        );
        self.down.push_back(Event::Closed { channel, reason: "broken".into() });
    }

    /// A node reads one frame of one channel.
    fn node(&mut self) {
        let busy: Vec<_> = self.channels.iter().filter(|(_, (_, up))| !up.is_empty()).map(|(c, _)| *c).collect();
        let Some(channel) = busy.get(self.dice.below(busy.len() as u64) as usize).copied() else { return };
        let (role, up) = self.channels.get_mut(&channel).unwrap();
        let frame = up.pop_front().unwrap();
        match (*role, frame) {
            (Role::Unknown, Frame::Hello(_)) => *role = Role::Session,
            (Role::Session, Frame::WatchTopic(_)) => {
                let layout = self.layout();
                self.say(channel, layout);
            }
            (Role::Unknown, Frame::OpenProducer(open)) => {
                *role = Role::Producer(open.segment);
                self.open(channel, &open);
            }
            (Role::Producer(segment), Frame::Publish(entry)) => self.publish(channel, segment, &entry),
            (role, frame) => panic!("{role:?} got {frame:?}"),
        }
    }

    fn open(&mut self, channel: ChannelId, open: &proto::OpenProducer) {
        assert_eq!(open.topic.as_ref().unwrap().incarnation, 9);
        let log = self.logs.get_mut(&open.segment).unwrap();
        if log.successors.is_some() {
            let frame = self.seal_answer(open.segment);
            return self.say(channel, frame);
        }
        assert!(open.epoch >= log.epoch);
        if open.epoch > log.epoch {
            (log.epoch, log.last) = (open.epoch, 0);
        }
        let opened = proto::ProducerOpened { last_sequence: log.last, window: log.entries.clone() };
        self.say(channel, opened);
    }

    fn publish(&mut self, channel: ChannelId, segment: u64, entry: &Entry) {
        entry.verify().unwrap();
        let refuse = self.hostile && self.dice.below(40) == 0;
        let log = self.logs.get_mut(&segment).unwrap();
        let header = entry.header;
        let range = log.wire.start..=log.wire.end;
        assert!(range.contains(&header.route.0.into()) && range.contains(&header.route.1.into()));
        let buckets = braid_model::Buckets::new(log.wire.buckets).unwrap();
        assert!(buckets.holding(header.bucket.0, header.bucket.1).is_some(), "{header:?}");
        if log.successors.is_some() {
            return; // the seal answer is on its way
        }
        if refuse {
            return self.say(channel, proto::Refused::new(Code::NoSpace, "full"));
        }
        if header.first_seq <= log.last {
            let known = log.entries.iter().find(|e| e.first_sequence == header.first_seq).copied().unwrap();
            return self.say(channel, proto::Published { entries: vec![known] });
        }
        if header.first_seq != log.last + 1 {
            return self.say(channel, proto::Refused::new(Code::SequenceGap, "gap"));
        }
        let base_offset = log.messages.len() as u64;
        log.messages.extend(Message::decode_all(entry.payload.clone(), header.count).unwrap());
        log.last = header.last_seq();
        let published = proto::PublishedEntry { first_sequence: header.first_seq, count: header.count, base_offset };
        log.entries.push(published);
        self.say(channel, proto::Published { entries: vec![published] });
    }

    fn step(&mut self) {
        self.now.0 += self.dice.below(2_000);
        match self.dice.below(10) {
            0..=3 => self.node(),
            4..=7 => {
                if let Some(event) = self.down.pop_front() {
                    self.producer.handle(self.now, event);
                    self.effects();
                }
            }
            8 => {
                self.producer.tick(self.now);
                self.effects();
            }
            _ if self.hostile && self.dice.below(30) == 0 => {
                let open: Vec<_> = self.channels.keys().copied().collect();
                if let Some(channel) = open.get(self.dice.below(open.len() as u64) as usize) {
                    self.break_channel(*channel);
                }
            }
            _ => {}
        }
    }

    /// A split, merge or rebucket: children first, then seals, one by one.
    fn change(&mut self) -> VecDeque<(u64, Vec<u64>)> {
        let mut active = self.active();
        active.sort_by_key(|id| self.logs[id].wire.start);
        let at = self.dice.below(active.len() as u64) as usize;
        let parent = self.logs[&active[at]].wire.clone();
        let buckets = 1 + self.dice.below(8) as u32;
        let neighbour = active.get(at + 1).copied();
        match (self.dice.below(3), neighbour) {
            (0, Some(other)) => {
                let end = self.logs[&other].wire.end;
                let child = self.create(parent.start, end, buckets, &[parent.id, other]);
                [(parent.id, vec![child]), (other, vec![child])].into()
            }
            (1, _) => {
                let child = self.create(parent.start, parent.end, buckets, &[parent.id]);
                [(parent.id, vec![child])].into()
            }
            _ if parent.end - parent.start > 16 => {
                let middle = u32::midpoint(parent.start, parent.end);
                let low = self.create(parent.start, middle, buckets, &[parent.id]);
                let high = self.create(middle + 1, parent.end, buckets, &[parent.id]);
                [(parent.id, vec![low, high])].into()
            }
            _ => VecDeque::new(),
        }
    }

    fn finish(&mut self, seed: u64) {
        self.hostile = false;
        self.producer.flush(self.now);
        self.effects();
        for _ in 0..200_000 {
            if self.producer.unsettled() == 0 {
                break;
            }
            self.step();
        }
        assert_eq!(self.producer.unsettled(), 0, "seed {seed}");
        assert_eq!(self.failed, [], "seed {seed}");
        // Children have higher ids than their parents: ascending ids is the order in which a key's segments are read.
        let mut read: BTreeMap<Bytes, Vec<u64>> = BTreeMap::new();
        for message in self.logs.values().flat_map(|log| &log.messages) {
            let sequence = std::str::from_utf8(&message.value).unwrap().parse().unwrap();
            read.entry(message.key.clone().unwrap()).or_default().push(sequence);
        }
        for (key, sequences) in read {
            assert!(sequences.iter().copied().eq(0..sequences.len() as u64), "seed {seed}, {key:?}: {sequences:?}");
        }
        let stored: usize = self.logs.values().map(|log| log.messages.len()).sum();
        assert_eq!(stored, self.pushed.len(), "seed {seed}");
        for (ticket, (segment, offset)) in &self.settled {
            let message = &self.logs[&segment.0].messages[offset.0 as usize];
            let (key, sequence) = self.pushed[ticket];
            assert_eq!(message.key.as_deref(), Some(format!("key-{key}").as_bytes()), "seed {seed}");
            assert_eq!(message.value, sequence.to_string(), "seed {seed}");
        }
        assert_eq!(self.settled.len(), self.pushed.len(), "seed {seed}");
    }
}

fn small() -> Limits {
    Limits { batch_bytes: 120, batch_count: 4, window_bytes: 600, buffer_bytes: 8_000, ..Limits::default() }
}

#[test]
fn no_key_loses_doubles_or_reorders_a_message_through_splits_merges_rebuckets_and_broken_channels() {
    for seed in 0..150 {
        let mut world = World::new(seed, small());
        world.hostile = seed % 4 != 0;
        let mut seals: VecDeque<(u64, Vec<u64>)> = VecDeque::new();
        let mut told = true;
        for _ in 0..3_000 {
            match world.dice.below(60) {
                0 if seals.is_empty() && told => {
                    seals = world.change();
                    told = seals.is_empty();
                }
                1 => match seals.pop_front() {
                    Some((parent, children)) => world.seal(&[parent], &children),
                    None if !told => {
                        world.tell();
                        told = true;
                    }
                    None => {}
                },
                2..=20 => {
                    let key = world.dice.below(20);
                    world.push(key);
                }
                _ => world.step(),
            }
        }
        while let Some((parent, children)) = seals.pop_front() {
            world.seal(&[parent], &children);
        }
        world.finish(seed);
    }
}

#[test]
fn a_layout_that_shows_a_seal_holds_new_messages_until_the_seal_answer_settled_the_old_ones() {
    let mut world = World::new(1, small());
    (0..4).for_each(|_| world.push(1));
    while world.producer.unsettled() > 0 {
        world.step();
    }
    // Four messages on the wire, their answer lost with the channel; meanwhile the segment is split and the layout told.
    (0..4).for_each(|_| world.push(1));
    let channel = *world.channels.iter().find(|(_, (role, _))| matches!(role, Role::Producer(0))).unwrap().0;
    while world.logs[&0].messages.len() < 8 {
        world.node();
    }
    world.down.clear();
    let low = world.create(0, 32_767, 1, &[0]);
    let high = world.create(32_768, 65_535, 1, &[0]);
    world.seal(&[0], &[low, high]);
    world.down.clear();
    world.tell();
    while let Some(event) = world.down.pop_front() {
        world.producer.handle(world.now, event);
    }
    world.push(1);
    assert_eq!(world.logs.len(), 3);
    assert_eq!(world.producer.unsettled(), 5);
    assert!(world.channels.contains_key(&channel), "the seal answer may still come");
    // It does not come within a second: the node is asked again, and the answer shows that the segment holds all eight.
    world.now.0 += SEAL_ANSWER_US;
    world.producer.tick(world.now);
    world.effects();
    assert!(!world.channels.contains_key(&channel));
    world.finish(1);
    assert_eq!(world.logs[&0].messages.len(), 8);
}

#[test]
fn a_final_refusal_fails_the_messages_and_the_next_ones_start_a_higher_epoch() {
    let mut world = World::new(2, small());
    world.push(1);
    while !world.channels.values().any(|(_, up)| matches!(up.front(), Some(Frame::Publish(_)))) {
        world.step();
    }
    let (channel, (_, up)) =
        world.channels.iter_mut().find(|(_, (role, _))| matches!(role, Role::Producer(0))).unwrap();
    up.clear();
    let channel = *channel;
    world.say(channel, proto::Refused::new(Code::Unauthorized, "client `p` may not produce"));
    while world.failed.is_empty() {
        world.step();
    }
    assert_eq!(
        world.failed[0].to_string(),
        "segment `0` on store `store-0` refused the entry: UNAUTHORIZED: client `p` may not produce"
    );
    world.failed.clear();
    world.pushed.clear();
    world.sequences.clear();
    world.push(1);
    world.finish(2);
    assert_eq!(world.logs[&0].epoch, 2);
}

#[test]
fn a_segment_that_takes_nothing_for_too_long_fails_its_messages_with_the_last_reason() {
    let mut world = World::new(3, Limits { give_up_us: 3_000_000, ..small() });
    world.push(1);
    while !world.channels.values().any(|(role, _)| *role == Role::Producer(0)) {
        world.step();
    }
    for _ in 0..100_000 {
        world.now.0 += 1_000;
        let dead: Vec<_> =
            world.channels.iter().filter(|(_, (role, _))| *role != Role::Session).map(|(c, _)| *c).collect();
        dead.into_iter().for_each(|channel| world.break_channel(channel));
        world.step();
    }
    let [SendError::GaveUp { after_ms, reason, .. }] = &world.failed[..] else { panic!("{:?}", world.failed) };
    assert!((3_000..6_000).contains(after_ms), "{after_ms}");
    assert_eq!(reason, "broken");
}

#[test]
fn without_room_the_caller_waits_and_nothing_is_dropped() {
    let mut world = World::new(4, small());
    while world.producer.has_room() {
        world.push(3);
    }
    let pushed = world.pushed.len();
    world.push(3);
    assert_eq!(world.pushed.len(), pushed);
    world.finish(4);
    assert!(world.producer.has_room());
}

#[test]
fn messages_without_a_key_go_round_over_segments_and_their_buckets() {
    let mut world = World::new(5, Limits { batch_count: 1, ..small() });
    let high = world.create(32_768, 65_535, 2, &[]);
    world.logs.get_mut(&0).unwrap().wire.end = 32_767;
    for _ in 0..8 {
        let message = Message { key: None, value: "v".into(), headers: Vec::new() };
        world.producer.push(world.now, message).unwrap();
    }
    world.effects();
    while world.producer.unsettled() > 0 {
        world.step();
    }
    assert_eq!(world.logs[&0].messages.len(), 4);
    assert_eq!(world.logs[&high].messages.len(), 4);
    // One message per entry: each of segment 0's four buckets and of segment 1's two got its share.
    assert_eq!(world.logs[&0].entries.len(), 4);
}
