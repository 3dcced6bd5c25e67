//! The world's matter: nodes on stores in memory, clients, and streams between them that keep order each, and none together.

use std::collections::{BTreeMap, VecDeque};

use braid_engine::backoff::Dice;
use braid_engine::consumer::{self, Consumer, Received};
use braid_engine::node::Config;
use braid_engine::producer::{self, Producer};
use braid_engine::remote::{self, Remote};
use braid_engine::watch::Contact;
use braid_engine::{ChannelId, ConnectionId, Effect, Event, Node, Peer};
use braid_log::{MemoryStore, Store};
use braid_model::Micros;
use braid_wire::{Frame, Message, proto};

use crate::history::History;
use crate::operator::{Topic, store};

/// Who is at an end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Client(u64),
    Node(usize),
}

/// What travels on a stream.
#[allow(clippy::large_enum_variant, reason = "nearly all of them are frames")]
#[derive(Debug)]
enum Item {
    Opened,
    Frame(Frame),
    Closed,
}

/// A stream: who dialled, who was dialled, and what is under way to each.
#[derive(Debug)]
struct Stream {
    ends: [(End, ChannelId); 2],
    to: [VecDeque<Item>; 2],
    open: [bool; 2],
}

pub(crate) enum Client {
    Producer(Producer),
    Consumer { machine: Consumer, session: u64, held: Vec<Received>, is_leaving: bool },
}

impl Client {
    fn remote(&mut self) -> &mut dyn Remote {
        match self {
            Self::Producer(machine) => machine,
            Self::Consumer { machine, .. } => machine,
        }
    }
}

pub(crate) struct World {
    pub(crate) dice: Dice,
    now: Micros,
    pub(crate) nodes: Vec<Node<MemoryStore>>,
    clients: BTreeMap<u64, Client>,
    streams: BTreeMap<u64, Stream>,
    pub(crate) topic: Topic,
    pub(crate) history: History,
    /// What nodes said on channels of the operator.
    pub(crate) unclaimed: BTreeMap<ChannelId, Vec<Frame>>,
    numbers: u64,
    is_quiet: bool,
}

impl World {
    pub(crate) fn new(seed: u64, nodes: usize) -> Self {
        let now = Micros(1_000_000_000);
        let open = |i: usize| {
            let config = Config::new(store(i), "default", seed + i as u64);
            Node::open(MemoryStore::default(), config, now).expect("an empty store opens")
        };
        let mut world = Self {
            dice: Dice::new(seed ^ 0xbead),
            now,
            nodes: (0..nodes).map(open).collect(),
            clients: BTreeMap::new(),
            streams: BTreeMap::new(),
            topic: Topic::default(),
            history: History::default(),
            unclaimed: BTreeMap::new(),
            numbers: 1_000,
            is_quiet: false,
        };
        (0..nodes).for_each(|node| world.sync_all(node));
        world
    }

    // Clients.

    fn contact(&self) -> Contact {
        Contact {
            namespace: "ns".into(),
            topic: "t".into(),
            bootstrap: (0..self.nodes.len()).map(|i| format!("{}:4433", store(i))).collect(),
            name: "client".into(),
        }
    }

    pub(crate) fn add_producer(&mut self) {
        let (id, seed) = (self.number(), self.dice.roll());
        let limits = producer::Limits { batch_count: 4, window_bytes: 600, ..producer::Limits::default() };
        let config = producer::Config { contact: self.contact(), producer: id, limits, seed };
        self.clients.insert(id, Client::Producer(Producer::new(config)));
    }

    pub(crate) fn add_consumer(&mut self) {
        let (session, seed) = (self.number(), self.dice.roll());
        let config = consumer::Config {
            contact: self.contact(),
            subscription: "s".into(),
            member: format!("m-{session}"),
            session,
            credit_bytes: 200 + self.dice.below(2_000) as usize,
            leave_deadline_us: 20_000_000,
            seed,
        };
        let machine = Consumer::new(config);
        self.clients.insert(session, Client::Consumer { machine, session, held: Vec::new(), is_leaving: false });
    }

    fn consumers(&self) -> Vec<u64> {
        let is = |client: &Client| matches!(client, Client::Consumer { is_leaving: false, .. });
        self.clients.iter().filter(|(_, client)| is(client)).map(|(id, _)| *id).collect()
    }

    fn any_consumer(&mut self) -> Option<u64> {
        let all = self.consumers();
        let i = self.dice.below(all.len() as u64) as usize;
        all.get(i).copied()
    }

    pub(crate) fn leave_consumer(&mut self) {
        let now = self.now;
        let Some(id) = self.any_consumer() else { return };
        if let Some(Client::Consumer { machine, is_leaving, .. }) = self.clients.get_mut(&id) {
            *is_leaving = true;
            machine.leave(now);
        }
        self.client_effects(id);
    }

    pub(crate) fn kill_consumer(&mut self) {
        if let Some(id) = self.any_consumer() {
            self.clients.remove(&id);
            self.cut(End::Client(id));
        }
    }

    pub(crate) fn kill_node(&mut self) {
        let i = self.dice.below(self.nodes.len() as u64) as usize;
        let durable = self.nodes[i].store().crash().len();
        let written = self.nodes[i].store().len();
        let kept = durable + self.dice.below((written - durable) as u64 + 1) as usize;
        let disk = self.nodes[i].store().cut(kept);
        let config = Config::new(store(i), "default", self.dice.roll());
        self.nodes[i] = Node::open(disk, config, self.now).expect("it opens again");
        self.cut(End::Node(i));
        self.node_effects(i);
    }

    /// All streams of one end are gone; what was under way from it may be lost from some point on.
    fn cut(&mut self, end: End) {
        for stream in self.streams.values_mut() {
            for side in 0..2 {
                if stream.ends[side].0 == end {
                    let other = 1 - side;
                    let kept = self.dice.below(stream.to[other].len() as u64 + 1) as usize;
                    // A dial is always answered.
                    let least = usize::from(matches!(stream.to[other].front(), Some(Item::Opened)));
                    let kept = kept.max(least);
                    if stream.open[side] {
                        stream.to[other].truncate(kept);
                        stream.to[other].push_back(Item::Closed);
                    }
                    stream.open[side] = false;
                    stream.to[side].clear();
                }
            }
        }
    }

    // Steps.

    /// One thing that can happen next.
    pub(crate) fn step(&mut self) {
        match self.dice.below(if self.is_quiet { 12 } else { 16 }) {
            0..7 => drop(self.deliver()),
            7..9 => {
                let node = self.dice.below(self.nodes.len() as u64) as usize;
                self.sync_some(node);
            }
            9 => self.pass(self.now.0 + 1_000),
            10..12 => self.work(),
            _ => self.push(),
        }
    }

    /// Time passes as it does when nobody works.
    pub(crate) fn pass_long(&mut self) {
        let us = self.dice.below(15_000_000);
        self.pass(self.now.0 + us);
    }

    fn pass(&mut self, end: u64) {
        let end = Micros(end);
        loop {
            let clients = self.clients.iter_mut().filter_map(|(id, c)| Some((c.remote().deadline()?, Err(*id))));
            let nodes = self.nodes.iter().enumerate().filter_map(|(i, node)| Some((node.deadline()?, Ok(i))));
            let Some((due, who)) = clients.chain(nodes).min_by_key(|(due, _)| *due) else { break };
            if due > end {
                break;
            }
            // A deadline in the past, asked for again and again, would hold time up for ever.
            self.now = due.max(self.now);
            match who {
                Ok(node) => {
                    self.nodes[node].tick(self.now);
                    self.node_effects(node);
                }
                Err(id) => {
                    let now = self.now;
                    if let Some(client) = self.clients.get_mut(&id) {
                        client.remote().tick(now);
                    }
                    self.client_effects(id);
                    assert!(
                        self.clients.get_mut(&id).and_then(|c| c.remote().deadline()).is_none_or(|next| next > now),
                        "client {id} is due again at once"
                    );
                }
            }
        }
        self.now = end.max(self.now);
    }

    fn push(&mut self) {
        let producers: Vec<u64> = { self.clients.iter() }
            .filter(|(_, client)| matches!(client, Client::Producer(_)))
            .map(|(id, _)| *id)
            .collect();
        let i = self.dice.below(producers.len() as u64) as usize;
        let Some(id) = producers.get(i).copied() else { return };
        let now = self.now;
        // A key has one writer: order among writers is nobody's promise.
        let key = format!("{i}-{}", self.dice.below(12));
        let Some(Client::Producer(machine)) = self.clients.get_mut(&id) else { return };
        if machine.unsettled() < 60 {
            let number = self.history.push(&key);
            machine.push(now, Message::keyed(key, number.to_string())).expect("a small message");
            self.client_effects(id);
        }
    }

    /// An application takes messages and acks some of what it has.
    fn work(&mut self) {
        let ids: Vec<u64> = { self.clients.iter() }
            .filter(|(_, client)| matches!(client, Client::Consumer { .. }))
            .map(|(id, _)| *id)
            .collect();
        let Some(id) = ids.get(self.dice.below(ids.len() as u64) as usize).copied() else { return };
        let (takes, acks, now) = (self.dice.below(4), self.dice.below(5), self.now);
        let Some(Client::Consumer { machine, session, held, .. }) = self.clients.get_mut(&id) else { return };
        for _ in 0..takes {
            let Some(received) = machine.take() else { break };
            self.history.take(*session, &received);
            held.push(received);
        }
        for _ in 0..acks.min(held.len() as u64) {
            let i = self.dice.below(held.len() as u64) as usize;
            let received = held.remove(i);
            machine.ack(now, &received.id);
        }
        self.client_effects(id);
    }

    /// Delivers the next item of some stream; whether there was one.
    fn deliver(&mut self) -> bool {
        let ready: Vec<(u64, usize)> = { self.streams.iter() }
            .flat_map(|(id, stream)| [(*id, 0), (*id, 1)].into_iter().filter(|(_, side)| !stream.to[*side].is_empty()))
            .collect();
        if ready.is_empty() {
            return false;
        }
        let (id, side) = ready[self.dice.below(ready.len() as u64) as usize];
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        let Some(item) = stream.to[side].pop_front() else { return false };
        if !stream.open[side] {
            return true;
        }
        let ((end, channel), (other, _)) = (stream.ends[side], stream.ends[1 - side]);
        if matches!(item, Item::Closed) {
            stream.open[side] = false;
        }
        match end {
            End::Client(client) => {
                let event = match item {
                    Item::Opened => remote::Event::Opened { channel },
                    Item::Frame(frame) => remote::Event::Frame { channel, frame },
                    Item::Closed => remote::Event::Closed { channel, reason: "cut".into() },
                };
                let now = self.now;
                if let Some(found) = self.clients.get_mut(&client) {
                    found.remote().handle(now, event);
                }
                self.client_effects(client);
            }
            End::Node(node) => {
                let connection = ConnectionId(channel.0);
                let event = match (item, other) {
                    (Item::Opened, End::Client(_)) => {
                        Event::Opened { channel, connection, peer: Peer::Client { name: "c".into() } }
                    }
                    (Item::Opened, End::Node(peer)) if side == 1 => {
                        Event::Opened { channel, connection, peer: Peer::Node { store: store(peer) } }
                    }
                    (Item::Opened, End::Node(peer)) => {
                        Event::Dialed { store: store(peer), channel: Some((channel, connection)) }
                    }
                    (Item::Frame(frame), _) => Event::Frame { channel, frame },
                    (Item::Closed, _) => Event::Closed { channel },
                };
                self.node_event(node, event);
            }
        }
        true
    }

    // Effects.

    pub(crate) fn node_event(&mut self, node: usize, event: Event) {
        self.nodes[node].handle(self.now, event);
        self.node_effects(node);
    }

    fn node_effects(&mut self, node: usize) {
        while let Some(effect) = self.nodes[node].poll_effect() {
            match effect {
                Effect::Send { channel, frame } => self.send(End::Node(node), channel, Item::Frame(frame)),
                Effect::Close { channel } => self.send(End::Node(node), channel, Item::Closed),
                Effect::Dial { store: to, addresses } => {
                    assert_eq!(addresses, [format!("{to}:4433")]);
                    match (0..self.nodes.len()).find(|i| store(*i) == to) {
                        Some(target) => {
                            let channel = self.next_channel();
                            self.connect((End::Node(node), channel), target);
                        }
                        None => self.node_event(node, Event::Dialed { store: to, channel: None }),
                    }
                }
            }
        }
    }

    fn client_effects(&mut self, id: u64) {
        while let Some(effect) = self.clients.get_mut(&id).and_then(|client| client.remote().poll_effect()) {
            match effect {
                remote::Effect::Open { channel, target } => {
                    let is_meant = |i: &usize| match &target.store {
                        Some(named) => *named == store(*i),
                        None => target.addresses.contains(&format!("{}:4433", store(*i))),
                    };
                    let fit: Vec<usize> = (0..self.nodes.len()).filter(is_meant).collect();
                    let i = self.dice.below(fit.len() as u64) as usize;
                    match fit.get(i) {
                        Some(node) => self.connect((End::Client(id), channel), *node),
                        None => self.unreachable((End::Client(id), channel)),
                    }
                }
                remote::Effect::Send { channel, frame } => self.send(End::Client(id), channel, Item::Frame(frame)),
                remote::Effect::Close { channel } => self.send(End::Client(id), channel, Item::Closed),
            }
        }
        let is_over = match self.clients.get_mut(&id) {
            Some(Client::Producer(machine)) => {
                while let Some(notice) = machine.poll_notice() {
                    assert!(matches!(notice, producer::Notice::Durable { .. }), "{notice:?}");
                }
                false
            }
            Some(Client::Consumer { machine, .. }) => {
                let mut is_over = false;
                while let Some(notice) = machine.poll_notice() {
                    assert!(!matches!(notice, consumer::Notice::Failed(_)), "{notice:?}");
                    is_over |= notice == consumer::Notice::Left;
                }
                is_over
            }
            None => false,
        };
        if is_over {
            self.clients.remove(&id);
            self.cut(End::Client(id));
        }
    }

    fn connect(&mut self, from: (End, ChannelId), node: usize) {
        let channel = self.next_channel();
        let stream = Stream {
            ends: [from, (End::Node(node), channel)],
            to: [VecDeque::from([Item::Opened]), VecDeque::from([Item::Opened])],
            open: [true, true],
        };
        self.streams.insert(channel.0, stream);
    }

    fn unreachable(&mut self, from: (End, ChannelId)) {
        let channel = self.next_channel();
        let stream = Stream {
            ends: [from, (from.0, channel)],
            to: [VecDeque::from([Item::Closed]), VecDeque::new()],
            open: [true, false],
        };
        self.streams.insert(channel.0, stream);
    }

    fn send(&mut self, from: End, channel: ChannelId, item: Item) {
        let found = self.streams.values_mut().rev().find_map(|stream| {
            let side = stream.ends.iter().position(|end| *end == (from, channel))?;
            Some((stream, side))
        });
        match (found, item) {
            (Some((stream, side)), item) => {
                if !stream.open[side] {
                    return;
                }
                if matches!(item, Item::Closed) {
                    stream.open[side] = false;
                    stream.to[side].clear();
                }
                if stream.open[1 - side] {
                    stream.to[1 - side].push_back(item);
                }
            }
            (None, Item::Frame(frame)) => self.unclaimed.entry(channel).or_default().push(frame),
            (None, _) => {}
        }
    }

    /// What was appended so far becomes durable.
    fn sync_some(&mut self, node: usize) {
        let lsn = self.nodes[node].store().sync();
        self.node_event(node, Event::Synced { lsn });
    }

    pub(crate) fn sync_all(&mut self, node: usize) {
        loop {
            self.sync_some(node);
            if self.nodes[node].store().sync() == self.nodes[node].store().last() {
                let last = self.nodes[node].store().last();
                self.node_event(node, Event::Synced { lsn: last });
                if self.nodes[node].store().last() == last {
                    break;
                }
            }
        }
    }

    pub(crate) fn next_channel(&mut self) -> ChannelId {
        ChannelId(self.number())
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    // The end.

    /// Nobody pushes, dies or leaves any more: everything must come to rest.
    pub(crate) fn settle(&mut self) {
        self.is_quiet = true;
        if self.consumers().is_empty() {
            self.add_consumer();
        }
        for _ in 0..4_000 {
            for _ in 0..40 {
                self.step();
            }
            while self.deliver() {}
            (0..self.nodes.len()).for_each(|node| self.sync_some(node));
            self.pass(self.now.0 + 20_000);
            let at_rest = self.clients.values().all(|client| match client {
                Client::Producer(machine) => machine.unsettled() == 0,
                Client::Consumer { machine, held, is_leaving, .. } => {
                    held.is_empty() && !machine.has_unconfirmed_acks() && !is_leaving
                }
            });
            if at_rest && self.history.missing().is_empty() && self.backlog() == 0 {
                return;
            }
        }
        let troubles: Vec<_> = { self.clients.iter() }
            .map(|(id, client)| match client {
                Client::Producer(machine) => (*id, machine.unsettled(), machine.trouble().map(str::to_owned)),
                Client::Consumer { machine, held, .. } => (
                    *id,
                    held.len(),
                    Some(format!("{:?} {:?}", machine.trouble(), machine.attached().collect::<Vec<_>>())),
                ),
            })
            .collect();
        panic!("no rest: missing {:?}, backlog {}, {troubles:?}", self.history.missing(), self.backlog());
    }

    fn reports(&mut self, node: usize) -> Vec<proto::SegmentReport> {
        let frames = self.ask(node, Frame::Request(proto::Request::default()));
        { frames.into_iter() }
            .flat_map(|frame| match frame {
                Frame::Report(report) => report.segments,
                _ => vec![],
            })
            .collect()
    }

    fn backlog(&mut self) -> u64 {
        let nodes = 0..self.nodes.len();
        let reports: Vec<_> = nodes.flat_map(|node| self.reports(node)).collect();
        reports.iter().flat_map(|report| &report.cursors).map(|cursor| cursor.backlog_messages).sum()
    }

    /// After every node was killed once more nothing is left to deliver, and every sealed segment is drained.
    pub(crate) fn check_end(&mut self) {
        for node in 0..self.nodes.len() {
            let disk = self.nodes[node].store().crash();
            let config = Config::new(store(node), "default", 1);
            self.nodes[node] = Node::open(disk, config, self.now).expect("it opens");
            self.cut(End::Node(node));
        }
        for node in 0..self.nodes.len() {
            self.sync_all(node);
        }
        for _ in 0..400 {
            while self.deliver() {}
            (0..self.nodes.len()).for_each(|node| self.sync_all(node));
            self.pass(self.now.0 + 20_000);
        }
        for node in 0..self.nodes.len() {
            for report in self.reports(node) {
                for cursor in &report.cursors {
                    assert_eq!((cursor.backlog_messages, cursor.drained), (0, report.sealed), "{report:?}");
                }
            }
        }
    }
}
