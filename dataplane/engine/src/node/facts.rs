//! Drained facts: durable where they are made and where they are told, sent until they are noted. They open the gates of
//! successors and tell the topic's home that a segment needs no reader any more. Unknown is never drained.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_log::{SegmentKey, Store};
use braid_model::{Generation, Incarnation, Micros, SegmentId};
use braid_wire::{VERSION, proto};

use super::records::{Name, Note};
use super::session::{Channel, Role, check_name};
use super::subscription::Subscription;
use super::{Later, Node};
use crate::backoff::Backoff;
use crate::{ChannelId, Effect, Peer};

/// The first and the longest wait between two dials of a node.
const DIAL_US: (u64, u64) = (100_000, 5_000_000);

/// What one store's node must hear, and the channel to it.
#[derive(Debug)]
pub(super) struct PeerLink {
    link: Link,
    backoff: Backoff,
    /// Every fact for this store: its generation, and whether the store noted it.
    facts: BTreeMap<(SegmentKey, Name), (Generation, bool)>,
    /// On the present channel, by number, not noted yet.
    sent: BTreeMap<u64, (SegmentKey, Name, Generation)>,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Idle { until: Micros },
    Dialing,
    Greeting(ChannelId),
    Open(ChannelId),
}

impl PeerLink {
    fn new() -> Self {
        Self {
            link: Link::Idle { until: Micros(0) },
            backoff: Backoff::new(DIAL_US.0, DIAL_US.1),
            facts: BTreeMap::new(),
            sent: BTreeMap::new(),
            next: 1,
        }
    }

    fn owes(&self) -> bool {
        self.facts.values().any(|(_, is_noted)| !is_noted)
    }
}

impl<S: Store> Node<S> {
    // Facts of segments that are here.

    /// The drained record is durable: it may be told.
    pub(super) fn drained_durable(&mut self, key: SegmentKey, name: &Name, generation: Generation) {
        let Some(segment) = self.state.segments.get_mut(&key) else { return };
        let Some(found) = segment.subscriptions.get_mut(name).filter(|found| found.generation == generation) else {
            return;
        };
        found.shown_drained = true;
        segment.load.is_news = true;
        self.clock.is_urgent = true;
        let channels: Vec<ChannelId> = found.channels.values().copied().collect();
        for channel in channels {
            self.say(channel, proto::SegmentDrained { segment: key.segment.0 });
        }
        self.state.note_drained(key, name, generation);
        self.fact(key, name, generation);
        self.owe_fact(key, name);
    }

    /// Owes the fact to every store that must hear it: those of the successors, and the home's.
    pub(super) fn owe_fact(&mut self, key: SegmentKey, name: &Name) {
        let Some(segment) = self.state.segments.get(&key) else { return };
        let Some(found) = segment.subscriptions.get(name).filter(|found| found.shown_drained) else { return };
        let generation = found.generation;
        let successors = segment.seal.iter().flat_map(|seal| &seal.successors).map(|successor| &successor.store);
        let home = self.state.topics.layout(key.incarnation).map(|layout| &layout.home_store);
        let stores: BTreeSet<String> =
            successors.chain(home).filter(|store| !store.is_empty() && **store != self.config.store).cloned().collect();
        for store in stores {
            let peer = self.peers.entry(store.clone()).or_insert_with(PeerLink::new);
            let of = (key, Arc::clone(name));
            if peer.facts.get(&of).is_some_and(|(told, _)| *told >= generation) {
                continue;
            }
            peer.facts.insert(of, (generation, false));
            if let Link::Open(channel) = peer.link {
                self.send_fact(&store, channel, key, name);
            }
        }
        self.dial_due();
    }

    /// The topic's layout changed: its home may be another one.
    pub(super) fn owe_facts_of(&mut self, incarnation: Incarnation) {
        let drained: Vec<(SegmentKey, Name)> = { self.state.of(incarnation) }
            .flat_map(|segment| segment.subscriptions.values().map(|found| (segment.key, found)))
            .filter(|(_, found)| found.shown_drained)
            .map(|(key, found)| (key, Arc::clone(&found.name)))
            .collect();
        for (key, name) in drained {
            self.owe_fact(key, &name);
        }
    }

    pub(super) fn forget_facts(&mut self, incarnation: Incarnation) {
        for peer in self.peers.values_mut() {
            peer.facts.retain(|(key, _), _| key.incarnation != incarnation);
        }
    }

    fn send_fact(&mut self, store: &str, channel: ChannelId, key: SegmentKey, name: &Name) {
        let Some(peer) = self.peers.get_mut(store) else { return };
        let Some((generation, _)) = peer.facts.get(&(key, Arc::clone(name))).copied() else { return };
        let Some(segment) = self.state.segments.get(&key) else { return };
        let successors = segment.seal.iter().flat_map(|seal| &seal.successors);
        let fact = proto::DrainedFact {
            fact: peer.next,
            topic: Some(segment.topic.clone()),
            segment: key.segment.0,
            subscription: name.to_string(),
            generation: generation.0,
            successors: successors.filter(|successor| successor.store == store).map(|successor| successor.id).collect(),
        };
        peer.sent.insert(peer.next, (key, Arc::clone(name), generation));
        peer.next += 1;
        self.say(channel, fact);
    }

    // The channel to a peer.

    pub(super) fn dial_due(&mut self) {
        let now = self.now;
        let due = |peer: &PeerLink| peer.owes() && matches!(peer.link, Link::Idle { until } if until <= now);
        let stores: Vec<String> =
            self.peers.iter().filter(|(_, peer)| due(peer)).map(|(store, _)| store.clone()).collect();
        for store in stores {
            let addresses = self.state.topics.addresses(&store);
            let Some(peer) = self.peers.get_mut(&store) else { continue };
            if addresses.is_empty() {
                // Nobody said where it is; a layout will.
                peer.link = Link::Idle { until: peer.backoff.next(now, &mut self.dice) };
            } else {
                peer.link = Link::Dialing;
                self.effects.push_back(Effect::Dial { store, addresses });
            }
        }
    }

    pub(super) fn next_dial(&self) -> Option<Micros> {
        let waits = self.peers.values().filter(|peer| peer.owes()).filter_map(|peer| match peer.link {
            Link::Idle { until } => Some(until),
            _ => None,
        });
        waits.min()
    }

    pub(super) fn dialed(&mut self, store: &str, channel: Option<ChannelId>) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(store) else { return };
        match channel {
            Some(channel) => {
                peer.link = Link::Greeting(channel);
                let node = Peer::Node { store: store.to_owned() };
                self.channels.insert(channel, Channel { peer: node, role: Role::PeerOut(store.to_owned()) });
                let hello = proto::Hello { version: VERSION, name: self.config.store.clone() };
                self.say(channel, hello);
            }
            None => peer.link = Link::Idle { until: peer.backoff.next(now, &mut self.dice) },
        }
    }

    /// The node answered the hello: it hears everything it has not noted.
    pub(super) fn peer_ready(&mut self, channel: ChannelId) {
        let Some(Role::PeerOut(store)) = self.channels.get(&channel).map(|found| &found.role) else { return };
        let store = store.clone();
        let Some(peer) = self.peers.get_mut(&store) else { return };
        if peer.link != Link::Greeting(channel) {
            return;
        }
        peer.link = Link::Open(channel);
        peer.backoff.reset();
        peer.sent.clear();
        let owed = peer.facts.iter().filter(|(_, (_, is_noted))| !is_noted).map(|(of, _)| of.clone());
        for (key, name) in owed.collect::<Vec<_>>() {
            self.send_fact(&store, channel, key, &name);
        }
    }

    pub(super) fn fact_noted(&mut self, channel: ChannelId, fact: u64) {
        let Some(Role::PeerOut(store)) = self.channels.get(&channel).map(|found| &found.role) else { return };
        let Some(peer) = self.peers.get_mut(store) else { return };
        let Some((key, name, generation)) = peer.sent.remove(&fact) else { return };
        if let Some((told, is_noted)) = peer.facts.get_mut(&(key, name)) {
            *is_noted |= *told == generation;
        }
    }

    pub(super) fn peer_lost(&mut self, store: &str, channel: ChannelId) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(store) else { return };
        if peer.link == Link::Greeting(channel) || peer.link == Link::Open(channel) {
            peer.link = Link::Idle { until: peer.backoff.next(now, &mut self.dice) };
            peer.sent.clear();
        }
    }

    // Facts of segments that are elsewhere.

    pub(super) fn told_fact(&mut self, channel: ChannelId, fact: &proto::DrainedFact) {
        let incarnation = Incarnation(fact.topic.as_ref().map_or(0, |topic| topic.incarnation));
        if let Err(refused) = check_name("subscription", &fact.subscription) {
            return self.refuse(channel, refused);
        }
        let key = SegmentKey { incarnation, segment: SegmentId(fact.segment) };
        let (name, generation): (Name, _) = (fact.subscription.as_str().into(), Generation(fact.generation));
        let is_known = self.state.drained(key, &name).is_some_and(|known| known >= generation);
        if !is_known && !self.state.topics.is_dropped(incarnation) {
            let note = Note::Told { subscription: Arc::clone(&name), generation };
            let lsn = match self.ledger.note(key, &note, self.now) {
                Ok(lsn) => lsn,
                Err(refused) => return self.refuse(channel, refused),
            };
            self.state.note_drained(key, &name, generation);
            self.after(lsn, Later::Fact(key, name, generation));
        }
        self.say_durably(channel, proto::FactNoted { fact: fact.fact });
    }

    /// A durable fact, from here or elsewhere: gates that wait for it open, and the group moves on.
    pub(super) fn fact(&mut self, parent: SegmentKey, name: &Name, generation: Generation) {
        let waits = { self.state.of(parent.incarnation) }
            .filter(|segment| segment.header.parents.contains(&parent.segment.0))
            .filter(|segment| segment.subscriptions.contains_key(name));
        for key in waits.map(|segment| segment.key).collect::<Vec<_>>() {
            if let Some(dispatcher) = self.subscription_mut(key, name).and_then(Subscription::dispatcher) {
                dispatcher.parent_drained(parent.segment, generation);
            }
            self.pump(key, name);
        }
        self.home_drained(parent, name, generation);
    }
}
