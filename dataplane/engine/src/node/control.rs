//! The operator's commands: fenced per topic incarnation, durable before they are answered, each idempotent.

use std::collections::BTreeSet;

use braid_log::{SegmentKey, Store};
use braid_model::{Fence, Incarnation, SegmentId};
use braid_wire::proto::{self, Code, Refused, request::Command, response};

use super::records::Note;
use super::segment::shape;
use super::session::{Role, check_name};
use super::state::Change;
use super::topics::{name_of, unknown_topic};
use super::{Later, Node};
use crate::ChannelId;

impl<S: Store> Node<S> {
    pub(super) fn request(&mut self, channel: ChannelId, request: proto::Request) {
        let id = request.id;
        let result = self.execute(request).unwrap_or_else(response::Result::Refused);
        // Whatever the answer shows, a fence included, is in the log by now.
        self.say_durably(channel, proto::Response { id, result: Some(result) });
    }

    fn execute(&mut self, request: proto::Request) -> Result<response::Result, Refused> {
        let topic = request.topic.clone().unwrap_or_default();
        check_name("topic.namespace", &topic.namespace)?;
        check_name("topic.name", &topic.name)?;
        let incarnation = Incarnation(topic.incarnation);
        let Some(command) = &request.command else {
            return Err(Refused::new(Code::Malformed, "`command` is missing or of a kind unknown here"));
        };
        if let Command::Inspect(_) = command {
            return Ok(response::Result::Inventory(self.inventory(&topic)));
        }
        if incarnation.0 == 0 {
            return Err(Refused::new(Code::Malformed, "`topic.incarnation` is 0, a command must name one"));
        }
        let sent = request.fence.map(Fence::from).ok_or_else(|| Refused::new(Code::Malformed, "`fence` is missing"))?;
        let held = self.state.fences.get(&incarnation).copied().unwrap_or_default();
        if held.refuses(sent) {
            let message = format!("fence {held} is held, the command has {sent}");
            return Err(Refused { have_fence: Some(held.into()), ..Refused::new(Code::StaleFence, message) });
        }
        self.check(incarnation, command)?;
        let seals = match command {
            Command::Seal(seal) => Some(SegmentKey { incarnation, segment: SegmentId(seal.segment) }),
            _ => None,
        };
        if held != sent || self.changes(incarnation, command) {
            let note = Note::Command(Box::new(request));
            self.ledger.note(SegmentKey::default(), &note, self.now)?;
            let changes = self.state.apply(SegmentKey::default(), &note, self.now);
            for change in changes.map_err(|reason| Refused::new(Code::Malformed, reason))? {
                self.changed(change);
            }
        }
        match seals.and_then(|key| self.state.segments.get(&key)) {
            Some(segment) => Ok(response::Result::Sealed(proto::Sealed {
                segment: segment.key.segment.0,
                end_offset: segment.end.0,
                successors: segment.seal.as_ref().map(|seal| seal.successors.clone()).unwrap_or_default(),
            })),
            None => Ok(response::Result::Done(proto::Done {})),
        }
    }

    /// Whether a command can be executed here: what it says is within bounds and what it names is here.
    fn check(&self, incarnation: Incarnation, command: &Command) -> Result<(), Refused> {
        let find = |id: u64| {
            let key = SegmentKey { incarnation, segment: SegmentId(id) };
            self.state.segments.get(&key).ok_or_else(|| Refused::unknown_segment(key.segment))
        };
        match command {
            Command::Create(create) => {
                if self.state.topics.is_dropped(incarnation) {
                    return Err(Refused::new(Code::UnknownTopic, "this incarnation of the topic was dropped"));
                }
                for header in &create.segments {
                    shape(header)?;
                    if header.store != self.config.store {
                        let (here, id) = (&self.config.store, header.id);
                        let message = format!("segment `{id}` is for store `{}`, this is `{here}`", header.store);
                        return Err(Refused::new(Code::Malformed, message));
                    }
                    if let Ok(segment) = find(header.id) {
                        segment.check_same(header)?;
                    }
                }
                create.subscriptions.iter().try_for_each(|spec| check_name("subscription", &spec.name))
            }
            Command::Seal(seal) => {
                find(seal.segment)?;
                seal.successors.iter().try_for_each(|successor| shape(successor).map(drop))
            }
            Command::Subscribe(subscribe) => {
                check_name("subscription", subscribe.subscription.as_ref().map_or("", |spec| &spec.name))?;
                subscribe.segments.iter().try_for_each(|id| find(*id).map(drop))
            }
            Command::Unsubscribe(unsubscribe) => check_name("subscription", &unsubscribe.name),
            Command::Tell(layout) => {
                let told = layout.topic.as_ref().map_or(0, |topic| topic.incarnation);
                if told != incarnation.0 {
                    let message = format!("the layout is of incarnation {told}, the command of {incarnation}");
                    return Err(Refused::mismatch(Code::Malformed, message, incarnation.0, told));
                }
                layout.segments.iter().try_for_each(|segment| shape(segment).map(drop))?;
                layout.subscriptions.iter().try_for_each(|spec| check_name("subscription", &spec.name))
            }
            Command::Drop(_) | Command::Inspect(_) => Ok(()),
        }
    }

    /// Whether executing it would change anything besides the fence: a repeated command leaves no record.
    fn changes(&self, incarnation: Incarnation, command: &Command) -> bool {
        let find = |id: u64| self.state.segments.get(&SegmentKey { incarnation, segment: SegmentId(id) });
        let lacks = |id: u64, spec: &proto::SubscriptionSpec| {
            let found = find(id).and_then(|segment| segment.subscriptions.get(spec.name.as_str()));
            found.is_none_or(|found| found.generation.0 < spec.generation)
        };
        match command {
            Command::Create(create) => { create.segments.iter() }.any(|header| {
                find(header.id).is_none() || create.subscriptions.iter().any(|spec| lacks(header.id, spec))
            }),
            Command::Seal(seal) => find(seal.segment).is_some_and(|segment| !segment.is_sealed()),
            Command::Subscribe(subscribe) => {
                { subscribe.subscription.iter() }.any(|spec| subscribe.segments.iter().any(|id| lacks(*id, spec)))
            }
            Command::Unsubscribe(unsubscribe) => self.state.of(incarnation).any(|segment| {
                let found = segment.subscriptions.get(unsubscribe.name.as_str());
                found.is_some_and(|found| found.generation.0 <= unsubscribe.generation)
            }),
            Command::Tell(layout) => self.state.topics.is_news(layout),
            Command::Drop(_) => !self.state.topics.is_dropped(incarnation),
            Command::Inspect(_) => false,
        }
    }

    /// Tells those who are here what a command changed, once it is durable.
    fn changed(&mut self, change: Change) {
        self.clock.is_urgent = true;
        match change {
            Change::Created(key) => self.retune(key.incarnation),
            Change::Sealed(key) => {
                self.close_writers(key);
                self.after(self.ledger.last(), Later::Sealed(key));
            }
            Change::Subscribed(key, name, channels) => {
                let message = format!("subscription `{name}` was made anew");
                self.refuse_all(channels, &Refused::new(Code::StaleAttach, message));
                self.serve(key, &name, false);
            }
            Change::Unsubscribed(key, name, channels) => {
                self.timers.set(key, &name, None);
                let message = format!("subscription `{name}` was removed");
                self.refuse_all(channels, &Refused::new(Code::UnknownSubscription, message));
            }
            Change::Told(incarnation) => {
                self.retune(incarnation);
                self.after(self.ledger.last(), Later::Told(incarnation));
            }
            Change::Dropped(key, channels) => {
                self.ledger.store.forget(key);
                let topic = proto::TopicRef { incarnation: key.incarnation.0, ..proto::TopicRef::default() };
                self.refuse_all(channels, &unknown_topic(&topic));
            }
            Change::Forgotten(topic) => {
                self.forget_facts(Incarnation(topic.incarnation));
                self.drop_homes(Incarnation(topic.incarnation));
                for channel in self.state.topics.watchers(&name_of(&topic)) {
                    self.say_durably(channel, unknown_topic(&topic));
                }
            }
        }
    }

    /// A layout is durable: watchers see it, groups follow it, facts find the new home; a deleted topic ends its streams.
    pub(super) fn layout_durable(&mut self, incarnation: Incarnation) {
        let Some(layout) = self.state.topics.layout(incarnation).cloned() else { return };
        let topic = layout.topic.clone().unwrap_or_default();
        let is_deleted = layout.deleted;
        for channel in self.state.topics.watchers(&name_of(&topic)) {
            self.say(channel, layout.clone());
        }
        if is_deleted {
            let keys: BTreeSet<SegmentKey> = self.state.of(incarnation).map(|segment| segment.key).collect();
            let is_of = |role: &Role| match role {
                Role::Producer(writer) => keys.contains(&writer.key),
                Role::Consumer(consumer) => keys.contains(&consumer.reader.key),
                _ => false,
            };
            let channels = self.channels.iter().filter(|(_, found)| is_of(&found.role)).map(|(channel, _)| *channel);
            self.refuse_all(channels.collect(), &unknown_topic(&topic));
        }
        self.refresh_homes(incarnation, false);
        self.owe_facts_of(incarnation);
    }

    fn refuse_all(&mut self, channels: Vec<ChannelId>, refused: &Refused) {
        for channel in channels {
            self.refuse(channel, refused.clone());
        }
    }

    fn inventory(&self, topic: &proto::TopicRef) -> proto::Inventory {
        let is_meant = |found: &proto::TopicRef| {
            name_of(found) == name_of(topic) && (topic.incarnation == 0 || topic.incarnation == found.incarnation)
        };
        let segments: Vec<_> = self.state.segments.values().filter(|segment| is_meant(&segment.topic)).collect();
        let mut incarnations: BTreeSet<Incarnation> = segments.iter().map(|segment| segment.key.incarnation).collect();
        incarnations.extend(Some(Incarnation(topic.incarnation)).filter(|incarnation| incarnation.0 != 0));
        let fences = incarnations.iter().filter_map(|incarnation| self.state.fences.get(incarnation));
        let fence = fences.fold(Fence::default(), |highest, fence| highest.max(*fence));
        let stored = segments.into_iter().map(|segment| proto::StoredSegment {
            incarnation: segment.key.incarnation.0,
            segment: Some(segment.described()),
            end_offset: segment.end.0,
            subscriptions: segment.subscriptions.values().map(|found| found.spec.clone()).collect(),
            committed: segment.committed,
        });
        proto::Inventory { segments: stored.collect(), fence: Some(fence.into()) }
    }
}
