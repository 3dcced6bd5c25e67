//! The watches of this process, and whom each sight wakes.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use braid_crds::{AutoscalePolicy, DATA_PLANE_LABEL, LayoutChange, ScalableTopic, Subscription};
use braid_model::placement::StoreName;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::reflector::store;
use kube::{Client, Resource, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cache::{Cache, Guarded, Index, Sight, follow};
use crate::fleet::Fleet;
use crate::metrics::Metrics;
use crate::name::{Name, Wakes};
use crate::topic::memory::Memories;

/// The names of the data plane's pods, as StatefulSets and the pods themselves say.
pub(crate) type PodNames = BTreeMap<String, Vec<String>>;

/// What the watches keep, and the work of watching.
pub(crate) struct Watches {
    pub(crate) cache: Cache,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) pods: watch::Receiver<PodNames>,
    pub(crate) topics: Arc<Wakes>,
    pub(crate) subscriptions: Arc<Wakes>,
    pub(crate) changes: Arc<Wakes>,
    pub(crate) memories: Arc<Memories>,
    /// To be run for ever.
    pub(crate) watching: Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>,
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    namespace.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

/// Prepares every watch; nothing is asked before `watching` runs.
pub(crate) fn begin(client: &Client, namespace: Option<&str>, data_plane: &str, metrics: &Arc<Metrics>) -> Watches {
    let (topics, subscriptions, changes): (Arc<Wakes>, Arc<Wakes>, Arc<Wakes>) = Default::default();
    let memories: Arc<Memories> = Arc::default();
    let (topic_store, topic_writer) = store::<Guarded<ScalableTopic>>();
    let (subscription_store, subscription_writer) = store::<Guarded<Subscription>>();
    let (change_store, change_writer) = store::<Guarded<LayoutChange>>();
    let (policy_store, policy_writer) = store::<Guarded<AutoscalePolicy>>();
    let (all_listed, listed) = watch::channel(false);
    let cache = Cache {
        topics: topic_store,
        subscriptions: subscription_store,
        changes: change_store,
        policies: policy_store,
        subscriptions_of: Arc::new(Index::default()),
        changes_of: Arc::new(Index::default()),
        listed,
    };
    let all_topics = {
        let cache = cache.clone();
        move || cache.topic_names()
    };
    let fleet = Fleet::new(Arc::clone(&topics), Arc::clone(&subscriptions), all_topics);
    let (pods_sender, pods) = watch::channel(PodNames::new());

    let mut watching: JoinSet<()> = JoinSet::new();
    let on_topic = {
        let (cache, topics, subscriptions) = (cache.clone(), Arc::clone(&topics), Arc::clone(&subscriptions));
        let (fleet, memories) = (Arc::clone(&fleet), Arc::clone(&memories));
        move |sight: Sight<'_, Guarded<ScalableTopic>>| match sight {
            Sight::There(topic) => {
                let name = Name::of(topic);
                cache.subscriptions_of(&name).iter().for_each(|sub| subscriptions.wake(Name::of(sub)));
                topics.wake(name);
            }
            Sight::Gone(topic) => {
                let name = Name::of(topic);
                memories.forget(&topic.uid().unwrap_or_default());
                fleet.forget(&name, None);
                cache.subscriptions_of(&name).iter().for_each(|sub| subscriptions.wake(Name::of(sub)));
            }
            Sight::Listed => {}
        }
    };
    let on_subscription = {
        let (cache, topics, subscriptions) = (cache.clone(), Arc::clone(&topics), Arc::clone(&subscriptions));
        move |sight: Sight<'_, Guarded<Subscription>>| {
            let (Sight::There(guarded) | Sight::Gone(guarded)) = sight else { return };
            let Ok(sub) = &guarded.0 else { return };
            let name = Name::of(sub);
            let topic = name.sibling(&sub.spec.topic_ref.name);
            match sight {
                Sight::Gone(_) => cache.subscriptions_of.remove(&topic, &name),
                _ => cache.subscriptions_of.insert(topic.clone(), name.clone()),
            }
            subscriptions.wake(name);
            topics.wake(topic);
        }
    };
    let on_change = {
        let (cache, topics, changes) = (cache.clone(), Arc::clone(&topics), Arc::clone(&changes));
        move |sight: Sight<'_, Guarded<LayoutChange>>| {
            let (Sight::There(guarded) | Sight::Gone(guarded)) = sight else { return };
            let Ok(change) = &guarded.0 else { return };
            let name = Name::of(change);
            let topic = name.sibling(&change.spec.topic_ref.name);
            match sight {
                Sight::Gone(_) => cache.changes_of.remove(&topic, &name),
                _ => cache.changes_of.insert(topic.clone(), name.clone()),
            }
            changes.wake(name);
            topics.wake(topic);
        }
    };
    let on_policy = {
        let (cache, topics) = (cache.clone(), Arc::clone(&topics));
        move |sight: Sight<'_, Guarded<AutoscalePolicy>>| {
            let (Sight::There(policy) | Sight::Gone(policy)) = sight else { return };
            let namespace = policy.namespace();
            let of = cache.topic_names().into_iter().filter(|topic| Some(&topic.namespace) == namespace.as_ref());
            of.for_each(|topic| topics.wake(topic));
        }
    };
    let on_pod = {
        let (fleet, names) = (Arc::clone(&fleet), pods_sender.clone());
        move |sight: Sight<'_, Pod>| match sight {
            Sight::There(pod) => {
                fleet.pod_seen(pod);
                name_pods(
                    &names,
                    &format!("pod/{}", pod.name_any()),
                    data_plane_of(pod.labels()),
                    vec![pod.name_any()],
                );
            }
            Sight::Gone(pod) => {
                fleet.pod_gone(pod);
                name_pods(&names, &format!("pod/{}", pod.name_any()), None, Vec::new());
            }
            Sight::Listed => {}
        }
    };
    let set_fleet = Arc::clone(&fleet);
    let on_set = move |sight: Sight<'_, StatefulSet>| {
        let (Sight::There(set) | Sight::Gone(set)) = &sight else { return };
        let spec = set.spec.as_ref().filter(|_| matches!(sight, Sight::There(_)));
        let template = spec.and_then(|spec| spec.template.metadata.as_ref());
        let label = template.and_then(|metadata| metadata.labels.as_ref()).and_then(data_plane_of);
        let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0);
        let name = set.name_any();
        let pods: Vec<String> = (0..replicas).map(|i| format!("{name}-{i}")).collect();
        let stores = label.map(|_| pods.iter().cloned().map(StoreName).collect()).unwrap_or_default();
        set_fleet.set_seen(&name, label.map_or("", String::as_str), stores);
        name_pods(&pods_sender, &format!("set/{name}"), label, pods);
    };

    let kinds = (api(client, namespace), api(client, namespace), api(client, namespace), api(client, namespace));
    let label = DATA_PLANE_LABEL;
    let (pod_api, set_api) = (api::<Pod>(client, Some(data_plane)), api::<StatefulSet>(client, Some(data_plane)));
    let (pod_writer, set_writer) = (store::<Pod>().1, store::<StatefulSet>().1);
    let ready = cache.clone();
    let metrics = Arc::clone(metrics);
    let run = async move {
        watching.spawn(follow(kinds.0, None, topic_writer, Arc::clone(&metrics), on_topic));
        watching.spawn(follow(kinds.1, None, subscription_writer, Arc::clone(&metrics), on_subscription));
        watching.spawn(follow(kinds.2, None, change_writer, Arc::clone(&metrics), on_change));
        watching.spawn(follow(kinds.3, None, policy_writer, Arc::clone(&metrics), on_policy));
        watching.spawn(follow(pod_api, Some(label), pod_writer, Arc::clone(&metrics), on_pod));
        watching.spawn(follow(set_api, None, set_writer, Arc::clone(&metrics), on_set));
        ready.stores_ready().await?;
        all_listed.send_replace(true);
        metrics.health.synced();
        match watching.join_next().await {
            Some(Err(error)) => Err(error.into()),
            _ => anyhow::bail!("a watch ended"),
        }
    };
    Watches { cache, fleet, pods, topics, subscriptions, changes, memories, watching: Box::pin(run) }
}

fn data_plane_of(labels: &BTreeMap<String, String>) -> Option<&String> {
    labels.get(DATA_PLANE_LABEL)
}

/// `source` says that these pods belong to a data plane; nobody hears of what is known already.
fn name_pods(names: &watch::Sender<PodNames>, source: &str, data_plane: Option<&String>, pods: Vec<String>) {
    names.send_if_modified(|all| {
        let before = all.clone();
        match data_plane {
            Some(_) => all.insert(source.to_owned(), pods),
            None => all.remove(source),
        };
        *all != before
    });
}
