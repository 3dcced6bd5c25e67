//! A node on a bench: frames in by channel, what it says in an inbox per channel, and a store that is synced by hand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_engine::node::{Bounds, Config};
use braid_engine::{ChannelId, ConnectionId, Effect, Event, Node, Peer};
use braid_log::MemoryStore;
use braid_model::{KeyHash, Micros};
use braid_wire::proto::request::Command;
use braid_wire::proto::response;
use braid_wire::{Delivery, Entry, Frame, Header, VERSION, proto};
use bytes::Bytes;

pub(crate) const INCARNATION: u64 = 77;

pub(crate) struct Bench {
    pub(crate) node: Node<MemoryStore>,
    pub(crate) now: Micros,
    pub(crate) inbox: BTreeMap<ChannelId, VecDeque<Frame>>,
    pub(crate) closed: BTreeSet<ChannelId>,
    pub(crate) dials: Vec<(String, Vec<String>)>,
    channels: u64,
    requests: u64,
    pub(crate) fence: proto::Fence,
}

impl Bench {
    /// A node on an empty store, ready to serve.
    pub(crate) fn new(store: &str) -> Self {
        let mut bench = Self::open(store, MemoryStore::default(), Micros(1_000_000_000), Bounds::default());
        bench.sync();
        bench
    }

    /// A node that was just opened: nothing is synced.
    pub(crate) fn open(store: &str, disk: MemoryStore, now: Micros, bounds: Bounds) -> Self {
        let config = Config { bounds, ..Config::new(store, "default", 1) };
        let node = Node::open(disk, config, now).expect("it opens");
        let mut bench = Self {
            node,
            now,
            inbox: BTreeMap::new(),
            closed: BTreeSet::new(),
            dials: Vec::new(),
            channels: now.0,
            requests: 0,
            fence: proto::Fence { term: 1, op: 1 },
        };
        bench.collect();
        bench
    }

    /// The process is killed and started again.
    pub(crate) fn restart(mut self, store: &str) -> Self {
        let disk = self.node.store().crash();
        let mut next = Self::open(store, disk, Micros(self.now.0 + 1_000_000), Bounds::default());
        next.fence = self.fence;
        next.sync();
        next
    }

    pub(crate) fn handle(&mut self, event: Event) {
        self.node.handle(self.now, event);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Send { channel, frame } => {
                    assert!(!self.closed.contains(&channel), "{frame:?} on a closed channel");
                    self.inbox.entry(channel).or_default().push_back(frame);
                }
                Effect::Close { channel } => assert!(self.closed.insert(channel), "closed twice"),
                Effect::Dial { store, addresses } => self.dials.push((store, addresses)),
            }
        }
    }

    pub(crate) fn sync(&mut self) {
        let lsn = self.node.store().sync();
        self.handle(Event::Synced { lsn });
        // What became known by the sync may have been recorded in turn.
        if self.node.store().len() as u64 > lsn.0 {
            self.sync();
        }
    }

    /// Time passes, tick by tick.
    pub(crate) fn pass(&mut self, us: u64) {
        let end = Micros(self.now.0 + us);
        while let Some(due) = self.node.deadline().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.node.tick(self.now);
            self.collect();
            self.sync();
        }
        self.now = end;
    }

    pub(crate) fn channel(&mut self, peer: Peer) -> ChannelId {
        self.channels += 1;
        let channel = ChannelId(self.channels);
        self.handle(Event::Opened { channel, connection: ConnectionId(channel.0), peer });
        channel
    }

    pub(crate) fn client(&mut self) -> ChannelId {
        self.channel(Peer::Client { name: "c".into() })
    }

    pub(crate) fn greeted(&mut self, peer: Peer) -> ChannelId {
        let channel = self.channel(peer);
        self.say(channel, proto::Hello { version: VERSION, name: "x".into() });
        self.sync();
        let ok = self.hear(channel);
        assert!(matches!(ok.first(), Some(Frame::HelloOk(_))), "{ok:?}");
        channel
    }

    pub(crate) fn session(&mut self) -> ChannelId {
        self.greeted(Peer::Client { name: "c".into() })
    }

    pub(crate) fn operator(&mut self) -> ChannelId {
        self.greeted(Peer::Operator { name: "o".into() })
    }

    /// Says it; nothing is synced.
    pub(crate) fn say(&mut self, channel: ChannelId, frame: impl Into<Frame>) {
        self.handle(Event::Frame { channel, frame: frame.into() });
    }

    /// What came on the channel since the last time.
    pub(crate) fn hear(&mut self, channel: ChannelId) -> Vec<Frame> {
        self.inbox.remove(&channel).map(Vec::from).unwrap_or_default()
    }

    pub(crate) fn end(&mut self, channel: ChannelId) {
        self.handle(Event::Closed { channel });
    }

    /// A command with the bench's fence, its op raised; the answer after a sync.
    pub(crate) fn command(&mut self, command: Command) -> response::Result {
        self.fence.op += 1;
        self.command_at(self.fence, command)
    }

    pub(crate) fn command_at(&mut self, fence: proto::Fence, command: Command) -> response::Result {
        let channel = self.channel(Peer::Operator { name: "o".into() });
        self.say(channel, proto::Hello { version: VERSION, name: "o".into() });
        self.requests += 1;
        let request =
            proto::Request { id: self.requests, fence: Some(fence), topic: Some(topic()), command: Some(command) };
        self.say(channel, request);
        self.sync();
        let answer = self.hear(channel).into_iter().find_map(|frame| match frame {
            Frame::Response(response) => {
                assert_eq!(response.id, self.requests);
                response.result
            }
            _ => None,
        });
        self.end(channel);
        answer.expect("an answer")
    }

    #[track_caller]
    pub(crate) fn done(&mut self, command: Command) {
        let result = self.command(command);
        assert_eq!(result, response::Result::Done(proto::Done {}));
    }

    // Topics.

    /// One root segment over the whole ring, and one subscription `s`.
    pub(crate) fn root(&mut self, store: &str, buckets: u32) {
        self.create(vec![segment(0, (0, 65_535), buckets, &[], store, 1)], vec![spec("s")]);
    }

    #[track_caller]
    pub(crate) fn create(&mut self, segments: Vec<proto::Segment>, subscriptions: Vec<proto::SubscriptionSpec>) {
        self.done(Command::Create(proto::CreateSegments { segments, subscriptions, nodes: vec![] }));
    }

    #[track_caller]
    pub(crate) fn seal(&mut self, id: u64, successors: &[proto::Segment]) -> proto::Sealed {
        let nodes = vec![node("n-0"), node("n-1")];
        let seal = proto::Seal { segment: id, epoch: 2, successors: successors.to_vec(), nodes };
        match self.command(Command::Seal(seal)) {
            response::Result::Sealed(sealed) => sealed,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn tell(&mut self, layout: proto::TopicLayout) {
        self.done(Command::Tell(layout));
    }

    // Producers.

    /// A producer's open stream.
    #[track_caller]
    pub(crate) fn producer(&mut self, segment: u64, producer: u64, epoch: u32) -> ChannelId {
        let channel = self.client();
        self.say(channel, open_producer(segment, producer, epoch));
        self.sync();
        let heard = self.hear(channel);
        assert!(matches!(heard[..], [Frame::ProducerOpened(_)]), "{heard:?}");
        channel
    }

    /// Publishes one entry of one key and syncs.
    #[track_caller]
    pub(crate) fn publish(&mut self, channel: ChannelId, entry: Entry) -> proto::PublishedEntry {
        self.say(channel, Frame::Publish(entry));
        self.sync();
        let heard = self.hear(channel);
        match &heard[..] {
            [Frame::Published(published)] => published.entries[0],
            _ => panic!("{heard:?}"),
        }
    }

    // Consumers.

    pub(crate) fn attach(&mut self, segment: u64, session: u64, no: u64, buckets: u32) -> ChannelId {
        let channel = self.client();
        self.say(channel, attach(segment, session, no, buckets));
        channel
    }

    /// Acks a whole delivery.
    pub(crate) fn ack(&mut self, channel: ChannelId, no: u64, delivery: &Delivery) {
        let header = delivery.entry.header;
        let ranges = vec![proto::OffsetRange { start: header.base_offset, end: header.end_offset() }];
        self.say(channel, proto::Ack { ack: no, bucket: delivery.bucket, round: delivery.round, ranges });
    }
}

pub(crate) fn topic() -> proto::TopicRef {
    proto::TopicRef { namespace: "ns".into(), name: "t".into(), incarnation: INCARNATION }
}

pub(crate) fn node(store: &str) -> proto::Node {
    proto::Node { store: store.into(), addresses: vec![format!("{store}:4433")] }
}

pub(crate) fn segment(
    id: u64,
    range: (u32, u32),
    buckets: u32,
    parents: &[u64],
    store: &str,
    epoch: u64,
) -> proto::Segment {
    proto::Segment {
        id,
        start: range.0,
        end: range.1,
        buckets,
        parents: parents.to_vec(),
        store: store.into(),
        created_epoch: epoch,
        created_at_us: 5,
        ..proto::Segment::default()
    }
}

pub(crate) fn spec(name: &str) -> proto::SubscriptionSpec {
    proto::SubscriptionSpec {
        name: name.into(),
        generation: 1,
        handoff_deadline_ms: 30_000,
        ..proto::SubscriptionSpec::default()
    }
}

/// The `sequence`th tell of the leader of term 1.
pub(crate) fn layout(
    sequence: u64,
    segments: Vec<proto::Segment>,
    subscriptions: Vec<proto::SubscriptionSpec>,
) -> proto::TopicLayout {
    proto::TopicLayout {
        topic: Some(topic()),
        term: 1,
        sequence,
        epoch: sequence,
        segments,
        nodes: vec![node("n-0"), node("n-1")],
        home_store: "n-0".into(),
        home_term: 1,
        subscriptions,
        load_policy: None,
        deleted: false,
    }
}

pub(crate) fn open_producer(segment: u64, producer: u64, epoch: u32) -> proto::OpenProducer {
    proto::OpenProducer { topic: Some(topic()), segment, producer, epoch, layout_epoch: 1 }
}

pub(crate) fn attach(segment: u64, session: u64, no: u64, buckets: u32) -> proto::Attach {
    proto::Attach {
        topic: Some(topic()),
        segment,
        subscription: "s".into(),
        member: format!("m-{session}"),
        session,
        attach: no,
        buckets,
        layout_epoch: 9,
        credit_bytes: 1 << 20,
    }
}

/// `count` messages of one key.
pub(crate) fn entry(producer: u64, epoch: u32, first_seq: u64, count: u32, key: &str) -> Entry {
    let hash = KeyHash::of(key.as_bytes());
    let mut header = Header {
        codec: 0,
        flags: 0,
        crc32c: 0,
        payload_len: key.len() as u32,
        base_offset: 0,
        append_time: 0,
        count,
        producer_epoch: epoch,
        route: (hash.route(), hash.route()),
        bucket: (hash.bucket(), hash.bucket()),
        producer_id: producer,
        first_seq,
    };
    let payload = Bytes::copy_from_slice(key.as_bytes());
    header.crc32c = header.checksum(&payload);
    Entry { header, payload }
}

/// The deliveries among frames, as (key, base offset, round).
pub(crate) fn deliveries(frames: &[Frame]) -> Vec<(String, u64, u64)> {
    { frames.iter() }
        .filter_map(|frame| match frame {
            Frame::Delivery(delivery) => {
                let key = String::from_utf8(delivery.entry.payload.to_vec()).unwrap();
                Some((key, delivery.entry.header.base_offset, delivery.round))
            }
            _ => None,
        })
        .collect()
}

pub(crate) fn delivered(frames: &[Frame]) -> Vec<Delivery> {
    { frames.iter() }
        .filter_map(|frame| match frame {
            Frame::Delivery(delivery) => Some(delivery.clone()),
            _ => None,
        })
        .collect()
}

/// The names of frames, in order.
pub(crate) fn names(frames: &[Frame]) -> Vec<&'static str> {
    frames.iter().map(Frame::name).collect()
}

/// The one refusal among frames: its code and numbers.
#[track_caller]
pub(crate) fn refusal(frames: &[Frame]) -> (proto::Code, u64, u64) {
    let refusals: Vec<_> = { frames.iter() }
        .filter_map(|frame| match frame {
            Frame::Refused(refused) => Some((refused.code(), refused.have, refused.sent)),
            _ => None,
        })
        .collect();
    assert_eq!(refusals.len(), 1, "{frames:?}");
    refusals[0]
}
