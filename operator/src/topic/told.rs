//! What nodes are told of a topic: its layout, where its nodes are, and how its subscriptions are served. Pure.

use std::collections::BTreeMap;

use braid_model::operation::{Kind, Ledger};
use braid_model::{Incarnation, SubscriptionName};
use braid_wire::proto;

use crate::fleet::StoreSeen;
use crate::name::Name;
use crate::speech;
use crate::topic::observe::Seen;

/// The topic as nodes and clients are to know it, without the sequence; `None` before it has segments.
pub(crate) fn layout_to_tell(seen: &Seen, ledger: &Ledger) -> Option<proto::TopicLayout> {
    let layout = ledger.layout.as_ref()?;
    let service = services(seen);
    let subscriptions = ledger.subscriptions.values().map(|subscription| {
        let service = service.get(&subscription.name).copied().unwrap_or_default();
        speech::subscription_to_wire(subscription, service)
    });
    let deleted = ledger.operation.as_ref().is_some_and(|operation| operation.kind == Kind::Delete);
    Some(proto::TopicLayout {
        topic: Some(topic_ref(&seen.name, ledger.incarnation)),
        term: seen.term,
        sequence: 0,
        epoch: layout.epoch().0,
        segments: layout.segments().iter().map(speech::segment_to_wire).collect(),
        nodes: nodes(seen),
        home_store: ledger.home.as_ref().map(|home| home.store.0.clone()).unwrap_or_default(),
        home_term: ledger.home.as_ref().map_or(0, |home| home.term),
        subscriptions: subscriptions.collect(),
        load_policy: Some(speech::load_policy(&seen.policy)),
        deleted,
    })
}

pub(crate) fn topic_ref(name: &Name, incarnation: Incarnation) -> proto::TopicRef {
    proto::TopicRef { namespace: name.namespace.clone(), name: name.name.clone(), incarnation: incarnation.0 }
}

/// Every node of the data plane that has an address, connected or not: a client that knows one finds all.
pub(crate) fn nodes(seen: &Seen) -> Vec<proto::Node> {
    let node = |store: &StoreSeen| proto::Node { store: store.store.0.clone(), addresses: store.addresses.clone() };
    seen.stores.iter().filter(|store| !store.addresses.is_empty()).map(node).collect()
}

/// How each subscription is served, as its resource says.
pub(crate) fn services(seen: &Seen) -> BTreeMap<SubscriptionName, speech::Service> {
    seen.subscriptions.iter().map(|wanted| (wanted.name.clone(), wanted.service)).collect()
}
