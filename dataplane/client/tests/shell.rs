//! The shell over real QUIC against a node's engine on a memory store: what the machines promise arrives at the application.
#![allow(unused_crate_dependencies, reason = "dev-dependencies are shared by all test programs")]

use std::collections::HashMap;
use std::time::Duration;

use braid_client::{Client, Identity, Membership, Message, Offset, Options, SegmentId, Topic};
use braid_engine::node::{Config, Node};
use braid_engine::{ChannelId, ConnectionId, Effect, Event, Peer};
use braid_link::{Alpn, Channel, Connection, Endpoint, Sender};
use braid_log::MemoryStore;
use braid_wire::proto::{self, request};
use braid_wire::{Frame, VERSION};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType, string::Ia5String};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn identity(&self, names: &[&str], uri: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        params.subject_alt_names.push(SanType::URI(Ia5String::try_from(uri).unwrap()));
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity::from_pem(self.pem.as_bytes(), cert.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }
}

/// A node: everything is durable at once.
async fn serve(endpoint: Endpoint) {
    let mut node = Node::open(MemoryStore::default(), Config::new("a", "default", 1), braid_client::now()).unwrap();
    let (events, mut inbox) = mpsc::channel::<(Event, Option<Sender>)>(1024);
    let mut tasks = JoinSet::new();
    let mut senders: HashMap<ChannelId, Sender> = HashMap::new();
    let mut next = 0;
    loop {
        tokio::select! {
            Some(connection) = endpoint.accept() => {
                next += 1_000_000;
                tasks.spawn(take_channels(connection, next, events.clone()));
            }
            Some((event, sender)) = inbox.recv() => {
                if let (Event::Opened { channel, .. }, Some(sender)) = (&event, sender) {
                    senders.insert(*channel, sender);
                }
                if let Event::Closed { channel } = &event {
                    senders.remove(channel);
                }
                node.handle(braid_client::now(), event);
            }
            () = tokio::time::sleep(Duration::from_millis(5)) => node.tick(braid_client::now()),
        }
        loop {
            let lsn = node.store().sync();
            node.handle(braid_client::now(), Event::Synced { lsn });
            let Some(effect) = node.poll_effect() else { break };
            match effect {
                Effect::Send { channel, frame } => {
                    if let Some(sender) = senders.get_mut(&channel) {
                        let _ = sender.send(&frame).await;
                    }
                }
                Effect::Close { channel } => {
                    if let Some(mut sender) = senders.remove(&channel) {
                        let _ = sender.finish().await;
                    }
                }
                Effect::Dial { store, .. } => node.handle(braid_client::now(), Event::Dialed { store, channel: None }),
            }
        }
    }
}

async fn take_channels(connection: Connection, first: u64, events: mpsc::Sender<(Event, Option<Sender>)>) {
    let mut tasks = JoinSet::new();
    let mut number = first;
    while let Some(channel) = connection.accept().await {
        number += 1;
        let id = ChannelId(number);
        let peer = match (connection.alpn(), connection.peer()) {
            (Alpn::Control, peer) => Peer::Operator { name: peer.name().to_owned() },
            (Alpn::Client, peer) => Peer::Client { name: peer.name().to_owned() },
        };
        let (sender, mut receiver) = Channel::split(channel);
        let opened = Event::Opened { channel: id, connection: ConnectionId(first), peer };
        events.send((opened, Some(sender))).await.unwrap();
        let events = events.clone();
        tasks.spawn(async move {
            while let Ok(Some(frame)) = receiver.next().await {
                let _ = events.send((Event::Frame { channel: id, frame }, None)).await;
            }
            let _ = events.send((Event::Closed { channel: id }, None)).await;
        });
    }
}

fn topic() -> proto::TopicRef {
    proto::TopicRef { namespace: "n".into(), name: "t".into(), incarnation: 5 }
}

fn subscription() -> proto::SubscriptionSpec {
    proto::SubscriptionSpec { name: "s".into(), generation: 1, handoff_deadline_ms: 30_000, ..Default::default() }
}

/// Commands over one control channel.
struct Operator {
    channel: (Sender, braid_link::Receiver),
    _connection: Connection,
    address: String,
    tells: u64,
}

impl Operator {
    async fn command(&mut self, op: u64, command: request::Command) {
        self.tells += 1;
        let fence = Some(proto::Fence { term: 1, op });
        let request = proto::Request { id: self.tells, fence, topic: Some(topic()), command: Some(command) };
        self.channel.0.send(&request.into()).await.unwrap();
        loop {
            if let Some(Frame::Response(response)) = self.channel.1.next().await.unwrap() {
                let refused = matches!(response.result, Some(proto::response::Result::Refused(_)));
                assert!(!refused, "{response:?}");
                return;
            }
        }
    }

    async fn create(&mut self, op: u64, segments: &[proto::Segment]) {
        let create = proto::CreateSegments {
            segments: segments.to_vec(),
            subscriptions: vec![subscription()],
            nodes: self.nodes(),
        };
        self.command(op, request::Command::Create(create)).await;
    }

    async fn tell(&mut self, op: u64, epoch: u64, segments: &[proto::Segment]) {
        let layout = proto::TopicLayout {
            topic: Some(topic()),
            term: 1,
            sequence: epoch,
            epoch,
            segments: segments.to_vec(),
            nodes: self.nodes(),
            home_store: "a".into(),
            home_term: 1,
            subscriptions: vec![subscription()],
            ..Default::default()
        };
        self.command(op, request::Command::Tell(layout)).await;
    }

    fn nodes(&self) -> Vec<proto::Node> {
        vec![proto::Node { store: "a".into(), addresses: vec![self.address.clone()] }]
    }
}

fn segment(id: u64, start: u32, end: u32, parents: &[u64], epoch: u64) -> proto::Segment {
    proto::Segment {
        id,
        start,
        end,
        buckets: 4,
        parents: parents.to_vec(),
        store: "a".into(),
        created_epoch: epoch,
        created_at_us: 1,
        ..Default::default()
    }
}

/// A node that serves the topic `n/t` of one segment, an operator and a client.
async fn plane(tasks: &mut JoinSet<()>) -> (Operator, Client) {
    let authority = Authority::new();
    let node = authority.identity(&["a.default.nodes.braid", "default.nodes.braid"], "braid://node/a");
    let endpoint = Endpoint::server("127.0.0.1:0".parse().unwrap(), node).unwrap();
    let address = endpoint.local_addr().unwrap().to_string();
    tasks.spawn(serve(endpoint));
    let dialler = Endpoint::client(authority.identity(&[], "braid://operator/o")).unwrap();
    let connection = dialler.connect(Alpn::Control, &[&address], "a.default.nodes.braid").await.unwrap();
    let mut channel = connection.open().await.unwrap().split();
    channel.0.send(&proto::Hello { version: VERSION, name: "o".into() }.into()).await.unwrap();
    let mut operator = Operator { channel, _connection: connection, address: address.clone(), tells: 0 };
    let root = [segment(0, 0, 65_535, &[], 1)];
    operator.create(1, &root).await;
    operator.tell(1, 1, &root).await;
    let client = Client::connect(Options::new([address], authority.identity(&[], "braid://client/c"))).unwrap();
    (operator, client)
}

fn membership(member: &str) -> Membership {
    Membership { subscription: "s".into(), member: member.into() }
}

#[tokio::test]
async fn a_receipt_says_where_the_message_lies_and_a_member_gets_it() {
    let mut tasks = JoinSet::new();
    let (_operator, client) = plane(&mut tasks).await;
    let producer = client.producer(&Topic::new("n", "t")).await.unwrap();
    let receipt = producer.send(Message::keyed("k", "v")).await.unwrap();
    let position = receipt.await.unwrap();
    assert_eq!((position.segment, position.offset), (SegmentId(0), Some(Offset(0))));
    let consumer = client.consumer(&Topic::new("n", "t"), &membership("m")).await.unwrap();
    // By the home's word: without one it would take ten seconds.
    let next = tokio::time::timeout(Duration::from_secs(5), consumer.next());
    let received = next.await.unwrap().unwrap().unwrap();
    assert_eq!((received.message, received.id.offset), (Message::keyed("k", "v"), Offset(0)));
    assert!(consumer.ack(&received.id));
    consumer.acked().await;
    consumer.close().await.unwrap();
    producer.close().await;
}

#[tokio::test]
async fn order_holds_across_a_split_and_a_leave_hands_the_rest_to_another_member() {
    let mut tasks = JoinSet::new();
    let (mut operator, client) = plane(&mut tasks).await;
    let topic = Topic::new("n", "t");
    let producer = client.producer(&topic).await.unwrap();
    let (first, second) = (
        client.consumer(&topic, &membership("a")).await.unwrap(),
        client.consumer(&topic, &membership("b")).await.unwrap(),
    );
    let sending = async {
        let mut receipts = Vec::new();
        for i in 0..4_000 {
            if i == 2_000 {
                let mut parent = segment(0, 0, 65_535, &[], 1);
                let children = [segment(1, 0, 32_767, &[0], 2), segment(2, 32_768, 65_535, &[0], 2)];
                operator.create(2, &children).await;
                let seal = proto::Seal { segment: 0, epoch: 2, successors: children.to_vec(), nodes: operator.nodes() };
                operator.command(2, request::Command::Seal(seal)).await;
                (parent.sealed, parent.children, parent.sealed_epoch) = (true, vec![1, 2], 2);
                let [low, high] = children;
                operator.tell(2, 2, &[parent, low, high]).await;
            }
            let message = Message::keyed(format!("key-{}", i % 40), (i / 40).to_string());
            receipts.push(producer.send(message).await.unwrap());
        }
        producer.flush().await;
        for receipt in receipts {
            receipt.await.unwrap();
        }
    };
    let (seen, mut next): (_, HashMap<Vec<u8>, u64>) = (tokio::sync::Mutex::new(0), HashMap::new());
    let (note, mut noted) = mpsc::channel(8_000);
    let consume = |consumer: braid_client::Consumer, most: usize| {
        let (note, seen) = (note.clone(), &seen);
        async move {
            for _ in 0..most {
                let received = tokio::select! {
                    received = consumer.next() => received.unwrap().unwrap(),
                    () = async { while *seen.lock().await < 4_000 { tokio::time::sleep(Duration::from_millis(10)).await } } => break,
                };
                *seen.lock().await += 1;
                note.send((received.message.clone(), received.redelivered)).await.unwrap();
                assert!(consumer.ack(&received.id));
            }
            consumer.close().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(9), async {
        tokio::join!(sending, consume(first, 500), consume(second, usize::MAX))
    })
    .await
    .unwrap();
    drop(note);
    while let Some((message, redelivered)) = noted.recv().await {
        assert!(!redelivered);
        let number: u64 = std::str::from_utf8(&message.value).unwrap().parse().unwrap();
        let expected = next.entry(message.key.unwrap().to_vec()).or_default();
        assert_eq!(number, *expected);
        *expected += 1;
    }
    assert_eq!(next.values().sum::<u64>(), 4_000);
}

#[tokio::test]
async fn a_topic_that_does_not_appear_is_told_after_the_wait() {
    let mut tasks = JoinSet::new();
    let (operator, _client) = plane(&mut tasks).await;
    let authority = Authority::new();
    let mut options = Options::new([operator.address.clone()], authority.identity(&[], "braid://client/c"));
    options.wait = Duration::from_millis(300);
    let stranger = Client::connect(options).unwrap();
    let error = stranger.producer(&Topic::new("n", "t")).await.unwrap_err().to_string();
    assert!(error.contains("within 300 ms"), "{error}");
}
