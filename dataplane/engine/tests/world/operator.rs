//! The hand that changes layouts: create the children, seal the parents, tell everybody, with a world that goes on between.

use braid_engine::{ChannelId, ConnectionId, Event, Peer};
use braid_wire::proto::request::Command;
use braid_wire::proto::{self, response};
use braid_wire::{Frame, VERSION};

use crate::streams::World;

/// The operator's memory of the topic.
#[derive(Default)]
pub(crate) struct Topic {
    pub(crate) segments: Vec<proto::Segment>,
    op: u64,
    sequence: u64,
    epoch: u64,
    home: usize,
    home_term: u64,
}

pub(crate) fn topic_ref() -> proto::TopicRef {
    proto::TopicRef { namespace: "ns".into(), name: "t".into(), incarnation: 77 }
}

pub(crate) fn store(node: usize) -> String {
    format!("n-{node}")
}

fn spec() -> proto::SubscriptionSpec {
    proto::SubscriptionSpec {
        name: "s".into(),
        generation: 1,
        handoff_deadline_ms: 5_000,
        ..proto::SubscriptionSpec::default()
    }
}

impl World {
    pub(crate) fn create_topic(&mut self) {
        self.topic.home_term = 1;
        let buckets = 1 << self.dice.below(3);
        let root = proto::Segment { end: 65_535, buckets, ..self.segment() };
        self.operate(&[], vec![root]);
    }

    /// One random split, merge or rebucket.
    pub(crate) fn change_layout(&mut self) {
        let mut active: Vec<proto::Segment> = self.topic.segments.iter().filter(|s| !s.sealed).cloned().collect();
        active.sort_by_key(|segment| segment.start);
        let i = self.dice.below(active.len() as u64) as usize;
        let (one, next) = (active[i].clone(), active.get(i + 1).cloned());
        match (self.dice.below(3), next) {
            (0, _) if one.end - one.start > 8 && active.len() < 6 => {
                let middle = one.start + (one.end - one.start) / 2;
                let halves = [(one.start, middle), (middle + 1, one.end)];
                let child = |world: &mut Self, (start, end)| proto::Segment {
                    start,
                    end,
                    buckets: (one.buckets / 2).max(1),
                    parents: vec![one.id],
                    ..world.segment()
                };
                let children = halves.map(|half| child(self, half)).to_vec();
                self.operate(&[one.id], children);
            }
            (1, Some(other)) => {
                let child = proto::Segment {
                    start: one.start,
                    end: other.end,
                    buckets: one.buckets + other.buckets,
                    parents: vec![one.id, other.id],
                    ..self.segment()
                };
                self.operate(&[one.id, other.id], vec![child]);
            }
            _ => {
                let buckets = if one.buckets == 4 { 8 } else { 4 };
                let parents = vec![one.id];
                let child = proto::Segment { start: one.start, end: one.end, buckets, parents, ..self.segment() };
                self.operate(&[one.id], vec![child]);
            }
        }
    }

    pub(crate) fn move_home(&mut self) {
        // One store more than there are: nobody is home, and members read every segment after a while.
        self.topic.home = self.dice.below(self.nodes.len() as u64 + 1) as usize;
        self.topic.home_term += 1;
        self.topic.op += 1;
        self.tell_all();
    }

    /// A segment on some store; its range, N and parents are yet to be said.
    fn segment(&mut self) -> proto::Segment {
        let node = self.dice.below(self.nodes.len() as u64) as usize;
        self.topic.segments.push(proto::Segment { sealed: true, ..proto::Segment::default() });
        let id = self.topic.segments.len() as u64 - 1;
        proto::Segment { id, store: store(node), created_epoch: self.topic.epoch + 1, ..proto::Segment::default() }
    }

    fn operate(&mut self, parents: &[u64], children: Vec<proto::Segment>) {
        self.topic.op += 1;
        self.topic.epoch += 1;
        for child in &children {
            let create = proto::CreateSegments {
                segments: vec![child.clone()],
                subscriptions: vec![spec()],
                nodes: self.addresses(),
            };
            self.command_store(&child.store, Command::Create(create));
            self.some_steps();
        }
        for parent in parents {
            let seal = proto::Seal {
                segment: *parent,
                epoch: self.topic.epoch,
                successors: children.clone(),
                nodes: self.addresses(),
            };
            let at = self.topic.segments[*parent as usize].store.clone();
            self.command_store(&at, Command::Seal(seal));
            self.some_steps();
        }
        for parent in parents {
            let epoch = self.topic.epoch;
            let sealed = &mut self.topic.segments[*parent as usize];
            (sealed.sealed, sealed.sealed_epoch) = (true, epoch);
            sealed.children = children.iter().map(|child| child.id).collect();
        }
        for child in children {
            let id = child.id as usize;
            self.topic.segments[id] = child;
        }
        self.tell_all();
    }

    fn tell_all(&mut self) {
        self.topic.sequence += 1;
        let layout = proto::TopicLayout {
            topic: Some(topic_ref()),
            term: 1,
            sequence: self.topic.sequence,
            epoch: self.topic.epoch,
            segments: self.topic.segments.clone(),
            nodes: self.addresses(),
            home_store: store(self.topic.home),
            home_term: self.topic.home_term,
            subscriptions: vec![spec()],
            load_policy: None,
            deleted: false,
        };
        for node in 0..self.nodes.len() {
            self.command_store(&store(node), Command::Tell(layout.clone()));
            self.some_steps();
        }
    }

    fn addresses(&self) -> Vec<proto::Node> {
        let node = |i| proto::Node { store: store(i), addresses: vec![format!("{}:4433", store(i))] };
        (0..self.nodes.len()).map(node).collect()
    }

    fn some_steps(&mut self) {
        for _ in 0..self.dice.below(60) {
            self.step();
        }
    }

    fn command_store(&mut self, at: &str, command: Command) {
        let node = (0..self.nodes.len()).find(|i| store(*i) == at).expect("a store");
        let fence = Some(proto::Fence { term: 1, op: self.topic.op });
        let request = proto::Request { id: 1, fence, topic: Some(topic_ref()), command: Some(command) };
        let frames = self.ask(node, Frame::Request(request));
        let answer = frames.into_iter().find_map(|frame| match frame {
            Frame::Response(response) => response.result,
            _ => None,
        });
        assert!(
            matches!(answer, Some(response::Result::Done(_) | response::Result::Sealed(_))),
            "a command was refused: {answer:?}"
        );
    }

    /// Everything a node says to an operator that connects, asks, and leaves; the node syncs meanwhile.
    pub(crate) fn ask(&mut self, node: usize, frame: Frame) -> Vec<Frame> {
        let channel = self.next_channel();
        let peer = Peer::Operator { name: "o".into() };
        self.node_event(node, Event::Opened { channel, connection: ConnectionId(channel.0), peer });
        let hello = proto::Hello { version: VERSION, name: "o".into() };
        self.node_event(node, Event::Frame { channel, frame: hello.into() });
        self.node_event(node, Event::Frame { channel, frame });
        self.sync_all(node);
        self.node_event(node, Event::Closed { channel });
        self.heard(channel)
    }

    fn heard(&mut self, channel: ChannelId) -> Vec<Frame> {
        self.unclaimed.remove(&channel).unwrap_or_default()
    }
}
