//! The world: actors, the wires between them, and time.

mod operator;
mod promises;

use std::collections::{BTreeMap, VecDeque};

use braid_engine::backoff::Dice;
use braid_engine::consumer::{self, Consumer, DeliveryId};
use braid_engine::node::{Config, Node};
use braid_engine::producer::{self, Limits, Producer};
use braid_engine::remote::{self, Remote};
use braid_engine::watch::Contact;
use braid_engine::{ChannelId, ConnectionId, Effect, Event, Peer};
use braid_log::MemoryStore;
use braid_model::Micros;
use braid_wire::{Frame, Message};

use operator::Operator;
use promises::Promises;

const NODES: usize = 3;
const KEYS: u64 = 24;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hostility {
    /// Channels of clients and between nodes end at any time.
    pub(crate) breaks: bool,
    /// Nodes crash and open again from what was synced; members are killed, and others join.
    pub(crate) crashes: bool,
}

/// Who is at the dialling end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Producer(usize),
    Member(usize),
    Node(usize),
    Operator,
}

/// A channel: frames on their way up (to the node that was dialled) and down.
#[derive(Debug)]
struct Wire {
    dialler: (End, ChannelId),
    node: (usize, ChannelId),
    up: VecDeque<Frame>,
    down: VecDeque<Frame>,
    up_ends: bool,
    down_ends: bool,
}

struct Member {
    name: String,
    machine: Consumer,
    working: Vec<(DeliveryId, String)>,
    leaving: bool,
    /// Left, or killed.
    over: bool,
}

pub(crate) struct World {
    seed: u64,
    dice: Dice,
    now: Micros,
    hostility: Hostility,
    nodes: Vec<Node<MemoryStore>>,
    producers: Vec<Producer>,
    members: Vec<Member>,
    operator: Operator,
    wires: BTreeMap<u64, Wire>,
    numbers: u64,
    pushed: BTreeMap<(usize, u64), u64>,
    promises: Promises,
}

fn store(node: usize) -> String {
    format!("store-{node}")
}

fn number(store: &str) -> usize {
    store.strip_prefix("store-").unwrap().parse().unwrap()
}

impl World {
    pub(crate) fn new(seed: u64, hostility: Hostility) -> Self {
        let now = Micros(1_000_000_000);
        let node = |i| Node::open(MemoryStore::default(), Config::new(store(i), "default", seed), now).unwrap();
        let mut world = Self {
            seed,
            dice: Dice::new(seed),
            now,
            hostility,
            nodes: (0..NODES).map(node).collect(),
            producers: Vec::new(),
            members: Vec::new(),
            operator: Operator::default(),
            wires: BTreeMap::new(),
            numbers: 0,
            pushed: BTreeMap::new(),
            promises: Promises::new(seed),
        };
        (0..NODES).for_each(|node| world.operator_dials(node));
        for i in 0..2 {
            let limits = Limits { batch_bytes: 200, batch_count: 5, window_bytes: 2_000, ..Limits::default() };
            let config =
                producer::Config { contact: contact("producer"), producer: seed << 8 | i, limits, seed: seed + i };
            world.producers.push(Producer::new(config));
        }
        world
    }

    pub(crate) fn join(&mut self) {
        let i = self.members.len();
        let config = consumer::Config {
            contact: contact("member"),
            subscription: "s".into(),
            member: format!("m{i}"),
            session: self.dice.roll(),
            credit_bytes: 2_000,
            leave_deadline_us: 30_000_000,
            seed: self.dice.roll(),
        };
        let machine = Consumer::new(config);
        let member = Member { name: format!("m{i}"), machine, working: Vec::new(), leaving: false, over: false };
        self.members.push(member);
    }

    pub(crate) fn leave(&mut self) {
        let now = self.now;
        if let Some(member) = self.members.iter_mut().find(|member| !member.leaving && !member.over) {
            member.leaving = true;
            member.machine.leave(now);
        }
    }

    /// That many random things, new messages among them.
    pub(crate) fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if self.dice.below(6) == 0 {
                self.push();
            }
            self.step();
        }
    }

    /// No more harm, no more messages: everything pushed must come through, once, in order.
    pub(crate) fn settle(&mut self) {
        self.hostility = Hostility::default();
        let now = self.now;
        self.producers.iter_mut().for_each(|producer| producer.flush(now));
        let total: u64 = self.pushed.values().sum();
        for _ in 0..400_000 {
            self.step();
            let is_idle = self.producers.iter().all(|producer| producer.unsettled() == 0)
                && self.promises.delivered() == total
                && self.members.iter().all(|m| m.working.is_empty() && (m.over || !m.machine.has_unconfirmed_acks()));
            if is_idle {
                break;
            }
        }
        let unsettled: Vec<_> = self.producers.iter().map(Producer::unsettled).collect();
        assert_eq!(unsettled, [0; 2], "seed {}", self.seed);
        let attached: Vec<Vec<_>> = self.members.iter().map(|m| m.machine.attached().collect()).collect();
        let troubles: Vec<_> = self.members.iter().map(|m| m.machine.trouble()).collect();
        let delivered = self.promises.delivered();
        assert_eq!(delivered, total, "seed {}, attached {attached:?}, {troubles:?}", self.seed);
        self.promises.finish(total);
    }

    fn push(&mut self) {
        let (i, key) = (self.dice.below(2) as usize, self.dice.below(KEYS));
        let producer = &mut self.producers[i];
        if !producer.has_room() {
            return;
        }
        let sequence = self.pushed.entry((i, key)).or_default();
        let message = Message::keyed(format!("p{i}-{key}"), sequence.to_string());
        producer.push(self.now, message).unwrap();
        *sequence += 1;
    }

    fn step(&mut self) {
        self.now.0 += self.dice.below(3_000);
        match self.dice.below(16) {
            0..=8 => self.carry(),
            9 | 10 => {
                let node = self.dice.below(NODES as u64) as usize;
                let lsn = self.nodes[node].store().sync();
                self.nodes[node].handle(self.now, Event::Synced { lsn });
            }
            11 | 12 => self.work(),
            13 if self.hostility.breaks && self.dice.below(30) == 0 => {
                let of_clients = |wire: &&u64| self.wires[wire].dialler.0 != End::Operator;
                let open: Vec<_> = self.wires.keys().filter(of_clients).copied().collect();
                if let Some(wire) = open.get(self.dice.below(open.len().max(1) as u64) as usize) {
                    self.cut(*wire);
                }
            }
            14 if self.hostility.crashes && self.dice.below(150) == 0 => {
                if self.dice.below(2) == 0 {
                    let node = self.dice.below(NODES as u64) as usize;
                    self.crash(node);
                } else {
                    self.kill_member();
                }
            }
            _ => self.tick(),
        }
        self.effects();
    }

    fn tick(&mut self) {
        let now = self.now;
        self.producers.iter_mut().for_each(|producer| producer.tick(now));
        self.members.iter_mut().filter(|member| !member.over).for_each(|member| member.machine.tick(now));
        for node in &mut self.nodes {
            if node.deadline().is_some_and(|deadline| deadline <= now) {
                node.tick(now);
            }
        }
    }

    /// One member takes a message, or finishes one.
    fn work(&mut self) {
        if self.members.is_empty() {
            return;
        }
        let i = self.dice.below(self.members.len() as u64) as usize;
        let member = &mut self.members[i];
        if member.over {
            return;
        }
        if member.working.len() < 3
            && let Some(received) = member.machine.take()
        {
            self.promises.delivered_to(&member.name, &received);
            let key = String::from_utf8(received.message.key.unwrap().to_vec()).unwrap();
            member.working.push((received.id, key));
        } else if !member.working.is_empty() {
            let (id, key) = member.working.remove(0);
            self.promises.done(&member.name, &key, &id);
            member.machine.ack(self.now, &id);
        }
    }

    /// One frame, or the end of a channel, reaches the other side.
    fn carry(&mut self) {
        let busy = |wire: &&u64| {
            let wire = &self.wires[wire];
            !wire.up.is_empty() || !wire.down.is_empty() || wire.up_ends || wire.down_ends
        };
        let busy: Vec<_> = self.wires.keys().filter(busy).copied().collect();
        let Some(&id) = busy.get(self.dice.below(busy.len().max(1) as u64) as usize) else { return };
        let wire = self.wires.get_mut(&id).unwrap();
        let up_first = self.dice.below(2) == 0;
        let ((end, up_channel), (node, down_channel)) = (wire.dialler, wire.node);
        if !wire.up.is_empty() && (up_first || wire.down.is_empty()) {
            let frame = wire.up.pop_front().unwrap();
            self.nodes[node].handle(self.now, Event::Frame { channel: down_channel, frame });
        } else if let Some(frame) = wire.down.pop_front() {
            self.reach_dialler(end, up_channel, Some(frame));
        } else if wire.up.is_empty() && wire.down.is_empty() {
            // Either side ended it, and all that was said was heard.
            let (up_ends, down_ends) = (wire.up_ends, wire.down_ends);
            self.wires.remove(&id);
            self.nodes[node].handle(self.now, Event::Closed { channel: down_channel });
            if down_ends && !up_ends {
                self.reach_dialler(end, up_channel, None);
            }
        }
    }

    /// A frame, or the end of the channel.
    fn reach_dialler(&mut self, end: End, channel: ChannelId, frame: Option<Frame>) {
        let event = match frame.clone() {
            Some(frame) => remote::Event::Frame { channel, frame },
            None => remote::Event::Closed { channel, reason: "ended".into() },
        };
        match (end, frame) {
            (End::Producer(i), _) => self.producers[i].handle(self.now, event),
            (End::Member(i), _) => self.members[i].machine.handle(self.now, event),
            (End::Node(i), Some(frame)) => self.nodes[i].handle(self.now, Event::Frame { channel, frame }),
            (End::Node(i), None) => self.nodes[i].handle(self.now, Event::Closed { channel }),
            (End::Operator, Some(frame)) => self.operator.heard(frame),
            (End::Operator, None) => panic!("seed {}: a node ended the operator's channel", self.seed),
        }
    }

    fn cut(&mut self, id: u64) {
        let Wire { dialler: (end, up_channel), node: (node, down_channel), .. } = self.wires.remove(&id).unwrap();
        self.nodes[node].handle(self.now, Event::Closed { channel: down_channel });
        if end == End::Operator {
            self.operator_dials(node);
        } else {
            self.reach_dialler(end, up_channel, None);
        }
    }

    /// The process dies: what was not synced is gone, and every channel with it.
    fn crash(&mut self, node: usize) {
        let store_left = self.nodes[node].store().crash();
        let config = Config::new(store(node), "default", self.dice.roll());
        self.nodes[node] = Node::open(store_left, config, self.now).unwrap();
        let of_node = |wire: &Wire| wire.node.0 == node || wire.dialler.0 == End::Node(node);
        let lost: Vec<_> = self.wires.iter().filter(|(_, wire)| of_node(wire)).map(|(id, _)| *id).collect();
        for id in lost {
            let wire = self.wires.remove(&id).unwrap();
            if wire.dialler.0 == End::Node(node) {
                self.nodes[wire.node.0].handle(self.now, Event::Closed { channel: wire.node.1 });
            } else if wire.dialler.0 == End::Operator {
                self.operator_dials(node);
            } else {
                self.reach_dialler(wire.dialler.0, wire.dialler.1, None);
            }
        }
    }

    /// A member's process dies and says nothing; another one joins.
    fn kill_member(&mut self) {
        let Some(i) = self.members.iter().position(|member| !member.over) else { return };
        self.members[i].over = true;
        self.members[i].working.clear();
        let of_member = |wire: &Wire| wire.dialler.0 == End::Member(i);
        let lost: Vec<_> = self.wires.iter().filter(|(_, wire)| of_member(wire)).map(|(id, _)| *id).collect();
        for id in lost {
            let wire = self.wires.remove(&id).unwrap();
            self.nodes[wire.node.0].handle(self.now, Event::Closed { channel: wire.node.1 });
        }
        self.join();
    }

    /// A wire from `dialler` to a node.
    fn wire(&mut self, end: End, channel: ChannelId, node: usize) {
        self.numbers += 1;
        let down_channel = ChannelId(1_000_000 + self.numbers);
        let peer = match end {
            End::Producer(_) | End::Member(_) => Peer::Client { name: "client".into() },
            End::Node(i) => Peer::Node { store: store(i) },
            End::Operator => Peer::Operator { name: "operator".into() },
        };
        let connection = ConnectionId(self.numbers);
        self.nodes[node].handle(self.now, Event::Opened { channel: down_channel, connection, peer });
        let wire = Wire {
            dialler: (end, channel),
            node: (node, down_channel),
            up: VecDeque::new(),
            down: VecDeque::new(),
            up_ends: false,
            down_ends: false,
        };
        self.wires.insert(self.numbers, wire);
    }

    fn effects(&mut self) {
        for i in 0..self.producers.len() {
            while let Some(effect) = self.producers[i].poll_effect() {
                self.remote_effect(End::Producer(i), effect);
            }
            while let Some(notice) = self.producers[i].poll_notice() {
                if let producer::Notice::Failed { error, .. } = notice {
                    panic!("seed {}: {error}", self.seed);
                }
            }
        }
        let living: Vec<_> = (0..self.members.len()).filter(|i| !self.members[*i].over).collect();
        for i in living {
            while let Some(effect) = self.members[i].machine.poll_effect() {
                self.remote_effect(End::Member(i), effect);
            }
            while let Some(notice) = self.members[i].machine.poll_notice() {
                self.noticed(i, &notice);
            }
            while let Some(effect) = self.members[i].machine.poll_effect() {
                self.remote_effect(End::Member(i), effect);
            }
        }
        for i in 0..NODES {
            while let Some(effect) = self.nodes[i].poll_effect() {
                self.node_effect(i, effect);
            }
        }
    }

    fn noticed(&mut self, i: usize, notice: &consumer::Notice) {
        let member = &mut self.members[i];
        match notice {
            consumer::Notice::Failed(error) => panic!("seed {}: {error}", self.seed),
            consumer::Notice::Left => member.over = true,
            // An application stops its work on what is not its own any more.
            consumer::Notice::Lost { segment } => member.working.retain(|(id, _)| id.segment != *segment),
            consumer::Notice::Revoked { segment, bucket } => {
                member.working.retain(|(id, _)| (id.segment, id.bucket) != (*segment, *bucket));
            }
        }
    }

    fn remote_effect(&mut self, end: End, effect: remote::Effect) {
        match effect {
            remote::Effect::Open { channel, target } => {
                let any = self.dice.below(NODES as u64) as usize;
                self.wire(end, channel, target.store.as_deref().map_or(any, number));
                let opened = remote::Event::Opened { channel };
                match end {
                    End::Producer(i) => self.producers[i].handle(self.now, opened),
                    End::Member(i) => self.members[i].machine.handle(self.now, opened),
                    End::Node(_) | End::Operator => unreachable!("they are not machines"),
                }
            }
            remote::Effect::Send { channel, frame } => {
                if let Some(wire) = self.wires.values_mut().find(|wire| wire.dialler == (end, channel)) {
                    wire.up.push_back(frame);
                }
            }
            remote::Effect::Close { channel } => {
                if let Some(wire) = self.wires.values_mut().find(|wire| wire.dialler == (end, channel)) {
                    wire.up_ends = true;
                    wire.down.clear();
                }
            }
        }
    }

    fn node_effect(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Send { channel, frame } => {
                if let Some(wire) = self.wires.values_mut().find(|wire| wire.node == (node, channel)) {
                    if !wire.up_ends {
                        wire.down.push_back(frame);
                    }
                } else if let Some(wire) = self.wires.values_mut().find(|w| w.dialler == (End::Node(node), channel)) {
                    wire.up.push_back(frame);
                }
            }
            Effect::Close { channel } => {
                if let Some(wire) = self.wires.values_mut().find(|wire| wire.node == (node, channel)) {
                    wire.down_ends = true;
                } else if let Some(wire) = self.wires.values_mut().find(|w| w.dialler == (End::Node(node), channel)) {
                    wire.up_ends = true;
                }
            }
            Effect::Dial { store, .. } => {
                self.numbers += 1;
                let channel = ChannelId(2_000_000 + self.numbers);
                let connection = ConnectionId(2_000_000 + self.numbers);
                self.wire(End::Node(node), channel, number(&store));
                self.nodes[node].handle(self.now, Event::Dialed { store, channel: Some((channel, connection)) });
            }
        }
    }
}

fn contact(name: &str) -> Contact {
    Contact { namespace: "n".into(), topic: "t".into(), bootstrap: vec!["any:1".into()], name: name.into() }
}
