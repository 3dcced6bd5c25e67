//! Everything that a node must not forget, and how each record changes it. Serving and recovering run the same code.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use braid_log::SegmentKey;
use braid_model::{Fence, Generation, Incarnation, Micros, Offset, OffsetRange, SegmentId};
use braid_wire::proto::{self, request::Command};

use super::records::{Name, Note};
use super::segment::{Seal, Segment};
use super::subscription::Subscription;
use super::topics::Topics;

/// What the log says.
#[derive(Debug, Default)]
pub(super) struct State {
    /// How often the store was opened.
    pub(super) start: u64,
    pub(super) topics: Topics,
    pub(super) segments: BTreeMap<SegmentKey, Segment>,
    /// Per topic incarnation, also after its segments are gone.
    pub(super) fences: BTreeMap<Incarnation, Fence>,
    /// In which generation a segment, here or elsewhere, was drained by a subscription: the newest that is known.
    pub(super) drained: BTreeMap<(SegmentKey, Name), Generation>,
}

/// What a command changed, so that those who are here can be told.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Created(SegmentKey),
    Sealed(SegmentKey),
    /// With the channels that were attached to a cursor that this one replaced.
    Subscribed(SegmentKey, Name, Vec<crate::ChannelId>),
    /// With the channels that were attached.
    Unsubscribed(SegmentKey, Name, Vec<crate::ChannelId>),
    Told(Incarnation),
    /// With the channels of its producers and consumers.
    Dropped(SegmentKey, Vec<crate::ChannelId>),
    Forgotten(proto::TopicRef),
}

impl State {
    /// Executes a note. Whatever it names and is not here (any more) changes nothing.
    pub(super) fn apply(&mut self, key: SegmentKey, note: &Note, at: Micros) -> Result<Vec<Change>, String> {
        match note {
            Note::Start { counter } => self.start = self.start.max(*counter),
            Note::Command(request) => return self.command(request, at),
            Note::ProducerEpoch { producer, epoch } => {
                if let Some(segment) = self.segments.get_mut(&key) {
                    segment.producers.raise(*producer, *epoch);
                }
            }
            Note::Acked { subscription, generation, ranges } => {
                if let Some(found) = self.subscription_mut(key, subscription, *generation) {
                    found.replay_acked(ranges)?;
                }
            }
            Note::Drained { subscription, generation } => {
                let end = self.segments.get(&key).map_or(Offset(0), |segment| segment.end);
                if let Some(found) = self.subscription_mut(key, subscription, *generation) {
                    found.replay_acked(&[OffsetRange::of(Offset(0), end.0)])?;
                    found.drained = true;
                    self.note_drained(key, subscription, *generation);
                }
            }
            Note::Told { subscription, generation } => self.note_drained(key, subscription, *generation),
        }
        Ok(Vec::new())
    }

    /// An entry of the log, while it is read.
    pub(super) fn replay_entry(&mut self, key: SegmentKey, record: bytes::Bytes) -> Result<(), String> {
        let header = braid_wire::Entry::decode(record).map_err(|e| e.to_string())?.header;
        let segment = self.segments.get_mut(&key).ok_or_else(|| format!("segment `{key}` was never created"))?;
        if header.base_offset != segment.end.0 {
            return Err(format!("entry at offset {} follows where {} must", header.base_offset, segment.end));
        }
        segment.appended(&header);
        Ok(())
    }

    pub(super) fn note_drained(&mut self, key: SegmentKey, name: &Name, generation: Generation) {
        if !self.topics.is_dropped(key.incarnation) {
            let known = self.drained.entry((key, Arc::clone(name))).or_default();
            *known = generation.max(*known);
        }
    }

    pub(super) fn drained(&self, key: SegmentKey, name: &Name) -> Option<Generation> {
        self.drained.get(&(key, Arc::clone(name))).copied()
    }

    fn subscription_mut(&mut self, key: SegmentKey, name: &Name, generation: Generation) -> Option<&mut Subscription> {
        let found = self.segments.get_mut(&key)?.subscriptions.get_mut(name)?;
        (found.generation == generation).then_some(found)
    }

    fn command(&mut self, request: &proto::Request, at: Micros) -> Result<Vec<Change>, String> {
        let topic = request.topic.clone().ok_or("a command names no topic")?;
        let incarnation = Incarnation(topic.incarnation);
        let fence = request.fence.map(Fence::from).unwrap_or_default();
        let held = self.fences.entry(incarnation).or_default();
        *held = held.max(fence);
        let key = |segment: u64| SegmentKey { incarnation, segment: SegmentId(segment) };
        let mut changes = Vec::new();
        match &request.command {
            Some(Command::Create(create)) => {
                self.topics.reached(&create.nodes);
                for header in &create.segments {
                    let key = key(header.id);
                    if let Entry::Vacant(place) = self.segments.entry(key) {
                        place.insert(Segment::new(key, topic.clone(), header).map_err(|e| e.message)?);
                        changes.push(Change::Created(key));
                    }
                    for spec in &create.subscriptions {
                        changes.extend(self.subscribe(key, spec, proto::InitialPosition::Earliest));
                    }
                }
            }
            Some(Command::Seal(seal)) => {
                self.topics.reached(&seal.nodes);
                let key = key(seal.segment);
                if let Some(segment) = self.segments.get_mut(&key).filter(|segment| !segment.is_sealed()) {
                    segment.seal = Some(Seal {
                        epoch: seal.epoch,
                        at,
                        successors: seal.successors.clone(),
                        nodes: seal.nodes.clone(),
                        durable: false,
                    });
                    segment.load.is_news = true;
                    changes.push(Change::Sealed(key));
                }
            }
            Some(Command::Subscribe(subscribe)) => {
                if let Some(spec) = &subscribe.subscription {
                    for id in &subscribe.segments {
                        changes.extend(self.subscribe(key(*id), spec, spec.initial_position()));
                    }
                }
            }
            Some(Command::Unsubscribe(unsubscribe)) => {
                let name: Name = unsubscribe.name.as_str().into();
                for (key, segment) in self.of_mut(incarnation) {
                    let is_meant = |found: &&Subscription| found.generation.0 <= unsubscribe.generation;
                    if let Some(found) = segment.subscriptions.get(&name).filter(is_meant) {
                        let channels = found.channels.values().copied().collect();
                        segment.subscriptions.remove(&name);
                        segment.load.is_news = true;
                        changes.push(Change::Unsubscribed(*key, Arc::clone(&name), channels));
                    }
                }
            }
            Some(Command::Tell(layout)) => {
                if self.topics.is_news(layout) {
                    self.topics.told(layout.clone());
                    for segment in &layout.segments {
                        if let Some(segment) = self.segments.get_mut(&key(segment.id)) {
                            segment.committed = true;
                        }
                    }
                    changes.push(Change::Told(incarnation));
                }
            }
            Some(Command::Drop(_)) => {
                let keys: Vec<SegmentKey> = self.of_mut(incarnation).map(|(key, _)| *key).collect();
                for key in keys {
                    let Some(segment) = self.segments.remove(&key) else { continue };
                    let readers = segment.subscriptions.values().flat_map(|found| found.channels.values());
                    let channels = segment.writers.iter().chain(readers).copied().collect();
                    changes.push(Change::Dropped(key, channels));
                }
                self.topics.dropped(incarnation);
                self.drained.retain(|(key, _), _| key.incarnation != incarnation);
                changes.push(Change::Forgotten(topic));
            }
            Some(Command::Inspect(_)) | None => {}
        }
        Ok(changes)
    }

    /// Makes a cursor unless there is one of this generation or a newer one.
    fn subscribe(
        &mut self,
        key: SegmentKey,
        spec: &proto::SubscriptionSpec,
        position: proto::InitialPosition,
    ) -> Option<Change> {
        let segment = self.segments.get_mut(&key)?;
        let name: Name = spec.name.as_str().into();
        let before = segment.subscriptions.get(&name);
        if before.is_some_and(|before| before.generation.0 >= spec.generation) {
            return None;
        }
        let start = match position {
            proto::InitialPosition::Earliest => Offset(0),
            proto::InitialPosition::Latest => segment.end,
        };
        let channels = before.map(|before| before.channels.values().copied().collect()).unwrap_or_default();
        let made = Subscription::new(spec.clone(), start, before);
        segment.load.is_news = true;
        segment.subscriptions.insert(Arc::clone(&name), made);
        Some(Change::Subscribed(key, name, channels))
    }

    /// The segments of one topic incarnation, by id.
    pub(super) fn of(&self, incarnation: Incarnation) -> impl Iterator<Item = &Segment> {
        self.segments.range(span(incarnation)).map(|(_, segment)| segment)
    }

    pub(super) fn of_mut(&mut self, incarnation: Incarnation) -> impl Iterator<Item = (&SegmentKey, &mut Segment)> {
        self.segments.range_mut(span(incarnation))
    }
}

fn span(incarnation: Incarnation) -> std::ops::RangeInclusive<SegmentKey> {
    let key = |segment| SegmentKey { incarnation, segment: SegmentId(segment) };
    key(0)..=key(u64::MAX)
}
