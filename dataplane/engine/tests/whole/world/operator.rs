//! An operator that only commands: create, seal, tell, each step repeated until every node answered.

use std::collections::BTreeMap;

use braid_engine::ChannelId;
use braid_wire::proto::{self, request::Command, response::Result as Answer};
use braid_wire::{Frame, VERSION};

use super::{End, NODES, World, number, store};

const INCARNATION: u64 = 0xb1;

#[derive(Default)]
pub(super) struct Operator {
    requests: u64,
    op: u64,
    epoch: u64,
    tells: u64,
    segments: BTreeMap<u64, proto::Segment>,
    /// Not answered: node and request.
    open: BTreeMap<u64, (usize, proto::Request)>,
}

impl Operator {
    pub(super) fn heard(&mut self, frame: Frame) {
        if let Frame::Response(response) = frame {
            match response.result {
                Some(Answer::Refused(refused)) => panic!("{refused:?} to {:?}", self.open.get(&response.id)),
                _ => drop(self.open.remove(&response.id)),
            }
        }
    }
}

fn topic() -> proto::TopicRef {
    proto::TopicRef { namespace: "n".into(), name: "t".into(), incarnation: INCARNATION }
}

fn nodes() -> Vec<proto::Node> {
    (0..NODES).map(|i| proto::Node { store: store(i), addresses: vec![format!("10.0.0.{i}:4433")] }).collect()
}

fn subscription() -> proto::SubscriptionSpec {
    proto::SubscriptionSpec { name: "s".into(), generation: 1, handoff_deadline_ms: 30_000, ..Default::default() }
}

impl World {
    /// A new control channel to a node; what it has not answered is asked again.
    pub(super) fn operator_dials(&mut self, node: usize) {
        self.numbers += 1;
        let channel = ChannelId(3_000_000 + self.numbers);
        self.wire(End::Operator, channel, node);
        let wire = self.wires.values_mut().find(|wire| wire.dialler == (End::Operator, channel)).unwrap();
        wire.up.push_back(proto::Hello { version: VERSION, name: "operator".into() }.into());
        let again =
            self.operator.open.values().filter(|(to, _)| *to == node).map(|(_, request)| request.clone().into());
        wire.up.extend(again);
    }

    fn command(&mut self, node: usize, command: Command) {
        self.operator.requests += 1;
        let id = self.operator.requests;
        let fence = Some(proto::Fence { term: 1, op: self.operator.op });
        let request = proto::Request { id, fence, topic: Some(topic()), command: Some(command) };
        self.operator.open.insert(id, (node, request.clone()));
        let wire = self.wires.values_mut().find(|w| w.dialler.0 == End::Operator && w.node.0 == node).unwrap();
        wire.up.push_back(request.into());
    }

    /// Runs until every command is answered, with traffic.
    fn answered(&mut self) {
        for _ in 0..100_000 {
            if self.operator.open.is_empty() {
                return;
            }
            self.run(1);
        }
        panic!("seed {}: no answer to {:?}", self.seed, self.operator.open);
    }

    fn tell(&mut self) {
        self.operator.tells += 1;
        let layout = proto::TopicLayout {
            topic: Some(topic()),
            term: 1,
            sequence: self.operator.tells,
            epoch: self.operator.epoch,
            segments: self.operator.segments.values().cloned().collect(),
            nodes: nodes(),
            home_store: store(0),
            home_term: 1,
            subscriptions: vec![subscription()],
            ..Default::default()
        };
        (0..NODES).for_each(|node| self.command(node, Command::Tell(layout.clone())));
        self.answered();
    }

    fn create(&mut self, children: &[proto::Segment]) {
        for child in children {
            let create = proto::CreateSegments {
                segments: vec![child.clone()],
                subscriptions: vec![subscription()],
                nodes: nodes(),
            };
            self.command(number(&child.store), Command::Create(create));
        }
        self.answered();
    }

    fn child(&mut self, id: u64, (start, end): (u32, u32), parents: &[u64]) -> proto::Segment {
        proto::Segment {
            id,
            start,
            end,
            buckets: 1 + self.dice.below(6) as u32,
            parents: parents.to_vec(),
            store: store(self.dice.below(NODES as u64) as usize),
            created_epoch: self.operator.epoch + 1,
            created_at_us: self.now.0,
            ..Default::default()
        }
    }

    pub(crate) fn create_topic(&mut self) {
        self.operator.op = 1;
        let root = self.child(0, (0, 65_535), &[]);
        self.create(std::slice::from_ref(&root));
        self.operator.epoch = 1;
        self.operator.segments.insert(0, root);
        self.tell();
    }

    /// One split, merge or rebucket, whole.
    pub(crate) fn change(&mut self) {
        self.operator.op += 1;
        let mut active: Vec<_> = self.operator.segments.values().filter(|s| !s.sealed).cloned().collect();
        active.sort_by_key(|segment| segment.start);
        let at = self.dice.below(active.len() as u64) as usize;
        let parent = active[at].clone();
        let next = *self.operator.segments.last_key_value().unwrap().0 + 1;
        let (parents, children) = match (self.dice.below(3), active.get(at + 1)) {
            (0, Some(other)) => {
                let child = self.child(next, (parent.start, other.end), &[parent.id, other.id]);
                (vec![parent.id, other.id], vec![child])
            }
            (1, _) => {
                let mut child = self.child(next, (parent.start, parent.end), &[parent.id]);
                child.buckets = parent.buckets % 6 + 1;
                (vec![parent.id], vec![child])
            }
            _ => {
                let middle = u32::midpoint(parent.start, parent.end);
                let low = self.child(next, (parent.start, middle), &[parent.id]);
                let high = self.child(next + 1, (middle + 1, parent.end), &[parent.id]);
                (vec![parent.id], vec![low, high])
            }
        };
        self.create(&children);
        let epoch = self.operator.epoch + 1;
        for id in &parents {
            let seal = proto::Seal { segment: *id, epoch, successors: children.clone(), nodes: nodes() };
            let node = number(&self.operator.segments[id].store);
            self.command(node, Command::Seal(seal));
            self.answered();
        }
        self.operator.epoch = epoch;
        for id in parents {
            let parent = self.operator.segments.get_mut(&id).unwrap();
            parent.sealed = true;
            parent.sealed_epoch = epoch;
            parent.sealed_at_us = self.now.0;
            parent.children = children.iter().map(|child| child.id).collect();
        }
        self.operator.segments.extend(children.into_iter().map(|child| (child.id, child)));
        self.tell();
    }
}
