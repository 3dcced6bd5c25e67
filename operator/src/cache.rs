//! What the watches have seen of Braid's kinds: one reflector each, and which topic a resource belongs to.
//!
//! Every watch has its own backoff and asks anew after 120 s; an object that cannot be decoded hides no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use braid_crds::{AutoscalePolicy, LayoutChange, ScalableTopic, Subscription};
use futures::StreamExt as _;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{Store, store::Writer};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::{error, warn};

use crate::metrics::Metrics;
use crate::name::Name;

/// A resource that may not be what its kind says.
pub(crate) type Guarded<K> = DeserializeGuard<K>;

/// A watch asks anew after this long: load balancers drop what is silent for longer.
const TIMEOUT_S: u32 = 120;

/// The resources as last seen. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cache {
    pub(crate) topics: Store<Guarded<ScalableTopic>>,
    pub(crate) subscriptions: Store<Guarded<Subscription>>,
    pub(crate) changes: Store<Guarded<LayoutChange>>,
    pub(crate) policies: Store<Guarded<AutoscalePolicy>>,
    pub(crate) subscriptions_of: Arc<Index>,
    pub(crate) changes_of: Arc<Index>,
    /// Whether every kind was listed once.
    pub(crate) listed: watch::Receiver<bool>,
}

impl Cache {
    /// Waits until every kind was listed once. Cancel-safe.
    pub(crate) async fn ready(&self) -> anyhow::Result<()> {
        self.listed.clone().wait_for(|listed| *listed).await?;
        Ok(())
    }

    /// Waits for the stores themselves. For one task only: a store wakes the last of those that wait for it.
    pub(crate) async fn stores_ready(&self) -> anyhow::Result<()> {
        self.topics.wait_until_ready().await?;
        self.subscriptions.wait_until_ready().await?;
        self.changes.wait_until_ready().await?;
        self.policies.wait_until_ready().await?;
        Ok(())
    }

    pub(crate) fn topic(&self, name: &Name) -> Option<ScalableTopic> {
        decoded(&self.topics, name)
    }

    /// The subscriptions of a topic, by name.
    pub(crate) fn subscriptions_of(&self, topic: &Name) -> Vec<Subscription> {
        let all = self.subscriptions_of.of(topic).into_iter().filter_map(|name| decoded(&self.subscriptions, &name));
        all.filter(|sub: &Subscription| sub.spec.topic_ref.name == topic.name).collect()
    }

    /// The layout changes of a topic, by name.
    pub(crate) fn changes_of(&self, topic: &Name) -> Vec<LayoutChange> {
        let all = self.changes_of.of(topic).into_iter().filter_map(|name| decoded(&self.changes, &name));
        all.filter(|change: &LayoutChange| change.spec.topic_ref.name == topic.name).collect()
    }

    /// The policy of a namespace.
    pub(crate) fn policy_of(&self, topic: &Name) -> Option<AutoscalePolicy> {
        decoded(&self.policies, &topic.sibling("default"))
    }

    /// The names of all topics.
    pub(crate) fn topic_names(&self) -> Vec<Name> {
        self.topics.state().iter().map(|topic| Name::of(&**topic)).collect()
    }
}

fn decoded<K>(store: &Store<Guarded<K>>, name: &Name) -> Option<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.get(&name.reference()).and_then(|guarded| guarded.0.as_ref().ok().cloned())
}

/// Which resources name a topic. It may name some that are gone; whoever asks looks them up.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by_topic: Mutex<BTreeMap<Name, BTreeSet<Name>>>,
}

impl Index {
    pub(crate) fn insert(&self, topic: Name, name: Name) {
        self.by_topic.lock().unwrap_or_else(PoisonError::into_inner).entry(topic).or_default().insert(name);
    }

    pub(crate) fn remove(&self, topic: &Name, name: &Name) {
        let mut by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = by_topic.get_mut(topic) {
            names.remove(name);
            if names.is_empty() {
                by_topic.remove(topic);
            }
        }
    }

    fn of(&self, topic: &Name) -> Vec<Name> {
        let by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        by_topic.get(topic).into_iter().flatten().cloned().collect()
    }
}

/// What a watch saw.
pub(crate) enum Sight<'a, K> {
    /// It is so now.
    There(&'a K),
    /// It is gone.
    Gone(&'a K),
    /// All that there is was listed; what is not in the store is gone.
    Listed,
}

/// Watches for ever, keeps the store, and tells what it saw.
pub(crate) async fn follow<K>(
    api: Api<K>,
    labels: Option<&str>,
    mut writer: Writer<K>,
    metrics: Arc<Metrics>,
    mut on: impl FnMut(Sight<'_, K>),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let kind = K::kind(&());
    let mut config = watcher::Config::default().timeout(TIMEOUT_S);
    if let Some(labels) = labels {
        config = config.labels(labels);
    }
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        metrics.health.watch_answered(&kind, event.is_ok());
        match event {
            Ok(event) => {
                writer.apply_watcher_event(&event);
                match &event {
                    Event::Init => {}
                    Event::InitApply(object) | Event::Apply(object) => on(Sight::There(object)),
                    Event::Delete(object) => on(Sight::Gone(object)),
                    Event::InitDone => on(Sight::Listed),
                }
            }
            Err(error) => warn!(%kind, error = &error as &dyn std::error::Error, "watch failed"),
        }
    }
    error!(%kind, "watch ended");
}

/// Logs an object that is not what its kind says.
pub(crate) fn is_decoded<K: Resource<DynamicType = ()>>(object: &Guarded<K>, metrics: &Metrics) -> bool {
    match &object.0 {
        Ok(_) => true,
        Err(invalid) => {
            metrics.undecodable();
            let (kind, name) = (K::kind(&()), invalid.metadata.name.clone().unwrap_or_default());
            error!(%kind, namespace = object.namespace(), name, error = %invalid.error, "resource cannot be decoded");
            false
        }
    }
}
