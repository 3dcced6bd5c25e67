//! The directory: the newest layout of every topic that this node was told of.

use std::collections::{BTreeMap, BTreeSet};

use braid_model::Incarnation;
use braid_wire::proto::{self, Code, Refused};

use crate::ChannelId;

/// A topic's namespace and name.
pub(super) type TopicName = (String, String);

/// All topics, by name and by incarnation.
#[derive(Debug, Default)]
pub(super) struct Topics {
    layouts: BTreeMap<Incarnation, proto::TopicLayout>,
    /// Which life of a name is the newest told.
    names: BTreeMap<TopicName, Incarnation>,
    dropped: BTreeSet<Incarnation>,
    /// Where the node of each store was last said to be.
    addresses: BTreeMap<String, Vec<String>>,
    /// Not durable: who wants to hear of changes.
    watchers: BTreeMap<TopicName, BTreeSet<ChannelId>>,
}

/// The name in a reference.
pub(super) fn name_of(topic: &proto::TopicRef) -> TopicName {
    (topic.namespace.clone(), topic.name.clone())
}

/// A refusal of a topic that is not known here, or not any more.
pub(super) fn unknown_topic(topic: &proto::TopicRef) -> Refused {
    Refused::new(Code::UnknownTopic, format!("topic `{}/{}` is not known here", topic.namespace, topic.name))
}

impl Topics {
    /// Whether this layout is newer than the one held: by term, then sequence.
    pub(super) fn is_news(&self, layout: &proto::TopicLayout) -> bool {
        let incarnation = Incarnation(layout.topic.as_ref().map_or(0, |topic| topic.incarnation));
        !self.dropped.contains(&incarnation)
            && self.layouts.get(&incarnation).is_none_or(|held| version(held) < version(layout))
    }

    /// Takes a layout in; one that is not newer changes nothing.
    pub(super) fn told(&mut self, layout: proto::TopicLayout) {
        let Some(topic) = layout.topic.as_ref().filter(|_| self.is_news(&layout)) else { return };
        self.reached(&layout.nodes);
        let (name, incarnation) = (name_of(topic), Incarnation(topic.incarnation));
        let newest = self.names.get(&name).and_then(|newest| self.layouts.get(newest));
        if newest.is_none_or(|newest| version(newest) <= version(&layout)) {
            self.names.insert(name, incarnation);
        }
        self.layouts.insert(incarnation, layout);
    }

    /// The topic incarnation is gone, for good.
    pub(super) fn dropped(&mut self, incarnation: Incarnation) {
        self.dropped.insert(incarnation);
        self.layouts.remove(&incarnation);
        self.names.retain(|_, newest| *newest != incarnation);
    }

    pub(super) fn is_dropped(&self, incarnation: Incarnation) -> bool {
        self.dropped.contains(&incarnation)
    }

    /// The layout of one incarnation.
    pub(super) fn layout(&self, incarnation: Incarnation) -> Option<&proto::TopicLayout> {
        self.layouts.get(&incarnation)
    }

    /// Every incarnation with a layout.
    pub(super) fn incarnations(&self) -> impl Iterator<Item = Incarnation> {
        self.layouts.keys().copied()
    }

    /// The incarnation that is meant: the one named, or the newest life of the name. Refused if it is being deleted.
    pub(super) fn resolve(&self, topic: &proto::TopicRef) -> Result<Incarnation, Refused> {
        let named = Some(Incarnation(topic.incarnation)).filter(|incarnation| incarnation.0 != 0);
        let incarnation = named.or_else(|| self.names.get(&name_of(topic)).copied());
        let incarnation = incarnation.ok_or_else(|| unknown_topic(topic))?;
        let is_over = self.layouts.get(&incarnation).is_some_and(|layout| layout.deleted);
        if is_over || self.is_dropped(incarnation) { Err(unknown_topic(topic)) } else { Ok(incarnation) }
    }

    /// The stores' nodes are at these addresses; a node without one tells nothing.
    pub(super) fn reached(&mut self, nodes: &[proto::Node]) {
        for node in nodes.iter().filter(|node| !node.addresses.is_empty()) {
            self.addresses.insert(node.store.clone(), node.addresses.clone());
        }
    }

    pub(super) fn addresses(&self, store: &str) -> Vec<String> {
        self.addresses.get(store).cloned().unwrap_or_default()
    }

    pub(super) fn watch(&mut self, name: TopicName, channel: ChannelId) {
        self.watchers.entry(name).or_default().insert(channel);
    }

    pub(super) fn unwatch(&mut self, channel: ChannelId) {
        self.watchers.retain(|_, watchers| {
            watchers.remove(&channel);
            !watchers.is_empty()
        });
    }

    pub(super) fn watchers(&self, name: &TopicName) -> Vec<ChannelId> {
        self.watchers.get(name).into_iter().flatten().copied().collect()
    }

    /// How many topics `channel` watches.
    pub(super) fn watched_by(&self, channel: ChannelId) -> usize {
        self.watchers.values().filter(|watchers| watchers.contains(&channel)).count()
    }

    pub(super) fn len(&self) -> usize {
        self.layouts.len()
    }
}

const fn version(layout: &proto::TopicLayout) -> (u64, u64) {
    (layout.term, layout.sequence)
}
