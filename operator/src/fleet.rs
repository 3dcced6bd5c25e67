//! The data plane as the operator sees it: pods, a link to each node, and what nodes report. An index, fed by a watch and by
//! pushes; it decides nothing.
//!
//! A store that has no pod, or whose node has no link, is not connected.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_crds::DATA_PLANE_LABEL;
use braid_link::Endpoint;
use braid_model::Incarnation;
use braid_model::layout::Segment;
use braid_model::placement::StoreName;
use braid_wire::proto::{self, response::Result as Answer};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

mod link;
mod reports;

use crate::clock;
use crate::name::{Name, Wakes};
use link::{Address, Ear, Question};
use reports::Reports;
#[cfg(test)]
pub(crate) use reports::{CursorSeen, SegmentSeen};
pub(crate) use reports::{GroupSeen, TopicSeen};

/// The port of both protocols.
const PORT: u16 = 4433;
/// How long a node may take to answer a request: a durable write, and a queue in front of it.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// A store, as a topic's lap sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreSeen {
    pub(crate) store: StoreName,
    /// The number of its link: another one is another connection. `None` if there is none.
    pub(crate) link: Option<u64>,
    /// How long there has been none, in milliseconds; 0 while there is one.
    pub(crate) silent_ms: u64,
    pub(crate) addresses: Vec<String>,
    /// The weights of all active segments on it.
    pub(crate) load: u64,
}

/// Why a node did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("store `{store}` is not connected")]
    NotConnected { store: StoreName },
    #[error("store `{store}` did not answer within {} s", ANSWER.as_secs())]
    Silent { store: StoreName },
    #[error("the link to store `{store}` was lost before the answer")]
    Lost { store: StoreName },
}

/// A node's pod, and its link.
struct Node {
    data_plane: String,
    /// `None` while the pod has no address, or is not there though its StatefulSet wants it.
    address: Option<Address>,
    link: Option<(u64, mpsc::Sender<Question>)>,
    silent_since: Instant,
    /// Ends with the pod.
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<StoreName, Node>,
    /// The stores that each StatefulSet stands for.
    sets: BTreeMap<String, Vec<StoreName>>,
    reports: Reports,
    links: u64,
    /// What is needed to dial; a replica that does not lead has none.
    dialer: Option<(Endpoint, String)>,
    tasks: JoinSet<()>,
}

/// Shared by every task; locks are never held across an await.
pub(crate) struct Fleet {
    state: Mutex<State>,
    topics: Arc<Wakes>,
    subscriptions: Arc<Wakes>,
    /// The names of all topics, so that a change of the fleet wakes them.
    all_topics: Box<dyn Fn() -> Vec<Name> + Send + Sync>,
    /// The highest term that a node named in its hello.
    highest_term: watch::Sender<u64>,
}

impl Fleet {
    pub(crate) fn new(
        topics: Arc<Wakes>,
        subscriptions: Arc<Wakes>,
        all_topics: impl Fn() -> Vec<Name> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            topics,
            subscriptions,
            all_topics: Box::new(all_topics),
            highest_term: watch::Sender::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Dials every node from now on. Must run within a tokio runtime.
    pub(crate) fn dial_with(self: &Arc<Self>, endpoint: Endpoint, operator: String) {
        let mut state = self.state();
        state.dialer = Some((endpoint, operator));
        // Until now nobody tried: only from now on is silence a sign.
        state.nodes.values_mut().for_each(|node| node.silent_since = Instant::now());
        let stores: Vec<StoreName> = state.nodes.keys().cloned().collect();
        for store in stores {
            self.dial(&mut state, &store);
        }
    }

    /// The highest term that any node has named so far.
    pub(crate) fn highest_term(&self) -> watch::Receiver<u64> {
        self.highest_term.subscribe()
    }

    /// A pod of a data plane as the watch shows it.
    pub(crate) fn pod_seen(self: &Arc<Self>, pod: &Pod) {
        let Some((data_plane, address)) = address_of(pod) else {
            self.pod_gone(pod);
            return;
        };
        let store = StoreName(address.store.clone());
        let mut state = self.state();
        if state
            .nodes
            .get(&store)
            .is_some_and(|node| node.address.as_ref() == Some(&address) && node.data_plane == data_plane)
        {
            return;
        }
        let silent_since = state.nodes.get(&store).map_or_else(Instant::now, |node| node.silent_since);
        state.hang_up(&store);
        let node = Node { data_plane, address: Some(address), link: None, silent_since, task: None };
        state.nodes.insert(store.clone(), node);
        self.dial(&mut state, &store);
        drop(state);
        self.wake_all();
    }

    pub(crate) fn pod_gone(&self, pod: &Pod) {
        let store = StoreName(pod.name_any());
        let mut state = self.state();
        state.hang_up(&store);
        let wanted = state.sets.values().flatten().any(|other| *other == store);
        let known = match state.nodes.get_mut(&store) {
            Some(node) if wanted => node.address.take().is_some(),
            _ => state.nodes.remove(&store).is_some(),
        };
        drop(state);
        if known {
            self.wake_all();
        }
    }

    /// A StatefulSet stands for these stores of a data plane, whether their pods are there or not; for none if it is gone.
    pub(crate) fn set_seen(&self, set: &str, data_plane: &str, stores: Vec<StoreName>) {
        let mut state = self.state();
        for store in &stores {
            let absent = Node {
                data_plane: data_plane.to_owned(),
                address: None,
                link: None,
                silent_since: Instant::now(),
                task: None,
            };
            state.nodes.entry(store.clone()).or_insert(absent);
        }
        let before = state.sets.insert(set.to_owned(), stores.clone()).unwrap_or_default();
        for store in before.iter().filter(|store| !stores.contains(store)) {
            if state.nodes.get(store).is_some_and(|node| node.address.is_none()) {
                state.nodes.remove(store);
            }
        }
        drop(state);
        if before != stores {
            self.wake_all();
        }
    }

    fn dial(self: &Arc<Self>, state: &mut State, store: &StoreName) {
        let Some((endpoint, operator)) = state.dialer.clone() else { return };
        let Some(node) = state.nodes.get_mut(store).filter(|node| node.task.is_none()) else { return };
        let Some(address) = node.address.clone() else { return };
        let ear = NodeEar { fleet: Arc::clone(self), store: store.clone() };
        let link = link::hold(endpoint, operator, address, ear);
        while state.tasks.try_join_next().is_some() {}
        node.task = Some(state.tasks.spawn(link));
    }

    fn wake_all(&self) {
        for name in (self.all_topics)() {
            self.topics.wake(name);
        }
    }

    /// The stores of a data plane, by name.
    pub(crate) fn stores(&self, data_plane: &str) -> Vec<StoreSeen> {
        let state = self.state();
        let of = state.nodes.iter().filter(|(_, node)| node.data_plane == data_plane);
        of.map(|(store, node)| StoreSeen {
            store: store.clone(),
            link: node.link.as_ref().map(|(number, _)| *number),
            silent_ms: match node.link {
                Some(_) => 0,
                None => u64::try_from(node.silent_since.elapsed().as_millis()).unwrap_or(u64::MAX),
            },
            addresses: node.address.as_ref().map(|address| address.addresses.clone()).unwrap_or_default(),
            load: state.reports.load(store),
        })
        .collect()
    }

    /// How many nodes have a link, and how many could have one.
    pub(crate) fn links(&self) -> (usize, usize) {
        let state = self.state();
        let count = |of: fn(&Node) -> bool| state.nodes.values().filter(|node| of(node)).count();
        (count(|node| node.link.is_some()), count(|node| node.address.is_some()))
    }

    /// What nodes said of that life of a topic.
    pub(crate) fn topic(&self, name: &Name, incarnation: Incarnation) -> TopicSeen {
        self.state().reports.topic(&(name.clone(), incarnation))
    }

    /// These segments weigh on their stores from now on.
    pub(crate) fn expect<'a>(
        &self,
        name: &Name,
        incarnation: Incarnation,
        segments: impl Iterator<Item = &'a Segment>,
    ) {
        let life = (name.clone(), incarnation);
        self.state().reports.expect(&life, segments.map(|segment| (segment.id, &segment.store)));
    }

    /// What was said of other lives of the topic is of no use any more.
    pub(crate) fn forget(&self, name: &Name, but: Option<Incarnation>) {
        self.state().reports.forget(name, but);
    }

    /// A node's answer to a request, whose id is chosen here. Cancel-safe: the node may still carry it out.
    pub(crate) async fn ask(&self, store: &StoreName, request: proto::Request) -> Result<Answer, AskError> {
        let questions = self.state().nodes.get(store).and_then(|node| node.link.as_ref().map(|(_, q)| q.clone()));
        let questions = questions.ok_or_else(|| AskError::NotConnected { store: store.clone() })?;
        let (answer, answered) = oneshot::channel();
        let exchange = async {
            let lost = || AskError::Lost { store: store.clone() };
            questions.send(Question { request, answer }).await.map_err(|_| lost())?;
            answered.await.map_err(|_| lost())
        };
        timeout(ANSWER, exchange).await.map_err(|_| AskError::Silent { store: store.clone() })?
    }
}

impl State {
    fn hang_up(&mut self, store: &StoreName) {
        if let Some(node) = self.nodes.get_mut(store) {
            if let Some(task) = node.task.take() {
                task.abort();
            }
            if node.link.take().is_some() {
                node.silent_since = Instant::now();
            }
        }
    }
}

/// What one node's link tells the fleet.
struct NodeEar {
    fleet: Arc<Fleet>,
    store: StoreName,
}

impl Ear for NodeEar {
    fn connected(&self, hello: &proto::HelloOk, questions: mpsc::Sender<Question>) {
        let mut state = self.fleet.state();
        state.links += 1;
        let number = state.links;
        if let Some(node) = state.nodes.get_mut(&self.store) {
            node.link = Some((number, questions));
        }
        drop(state);
        self.fleet.highest_term.send_if_modified(|highest| {
            let higher = hello.highest_term > *highest;
            *highest = hello.highest_term.max(*highest);
            higher
        });
        self.fleet.wake_all();
    }

    fn disconnected(&self, silent: Duration) {
        let mut state = self.fleet.state();
        let Some(node) = state.nodes.get_mut(&self.store) else { return };
        if node.link.take().is_some() {
            node.silent_since = Instant::now().checked_sub(silent).unwrap_or_else(Instant::now);
            drop(state);
            self.fleet.wake_all();
        }
    }

    fn reported(&self, report: &proto::Report) {
        let changed = self.fleet.state().reports.fold(&self.store, report, clock::now());
        let Some(topic) = report.topic.as_ref().filter(|_| changed) else { return };
        let name = Name { namespace: topic.namespace.clone(), name: topic.name.clone() };
        for group in &report.groups {
            self.fleet.subscriptions.wake(name.sibling(&group.subscription));
        }
        self.fleet.topics.wake(name);
    }
}

/// The data plane of a pod and where its node is; `None` if it runs no node now.
fn address_of(pod: &Pod) -> Option<(String, Address)> {
    let data_plane = pod.labels().get(DATA_PLANE_LABEL)?.clone();
    let status = pod.status.as_ref()?;
    let ip = status.pod_ip.clone().filter(|ip| !ip.is_empty())?;
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let store = pod.name_any();
    let mut addresses = vec![if ip.contains(':') { format!("[{ip}]:{PORT}") } else { format!("{ip}:{PORT}") }];
    // The name outlives the address, as long as the pod has a headless Service.
    let spec = pod.spec.as_ref();
    if let (Some(subdomain), Some(namespace)) = (spec.and_then(|spec| spec.subdomain.as_ref()), pod.namespace()) {
        let host = spec.and_then(|spec| spec.hostname.clone()).unwrap_or_else(|| store.clone());
        addresses.push(format!("{host}.{subdomain}.{namespace}.svc:{PORT}"));
    }
    let server_name = format!("{store}.{data_plane}.nodes.braid");
    Some((data_plane, Address { store, server_name, addresses }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_reached_at_its_address_and_by_its_name() {
        let check = |yaml: &str, expected: Option<&[&str]>| {
            let pod: Pod = serde_yaml::from_str(yaml).unwrap();
            let found = address_of(&pod).map(|(data_plane, address)| {
                let mut all = vec![data_plane, address.server_name];
                all.extend(address.addresses);
                all
            });
            assert_eq!(found, expected.map(|all| all.iter().map(|s| (*s).to_owned()).collect()), "{yaml}");
        };
        let labelled = |rest: &str| {
            format!(
                "{{metadata: {{name: braid-node-1, namespace: braid-system, labels: {{braid.stream/data-plane: default}}}}, {rest}}}"
            )
        };
        let subdomain = "spec: {containers: [], hostname: braid-node-1, subdomain: braid-nodes}";
        check(
            &labelled(&format!("{subdomain}, status: {{phase: Running, podIP: 10.0.0.7}}")),
            Some(&[
                "default",
                "braid-node-1.default.nodes.braid",
                "10.0.0.7:4433",
                "braid-node-1.braid-nodes.braid-system.svc:4433",
            ]),
        );
        check(
            &labelled("status: {phase: Running, podIP: 'fd00::7'}"),
            Some(&["default", "braid-node-1.default.nodes.braid", "[fd00::7]:4433"]),
        );
        check(&labelled("status: {phase: Pending}"), None);
        check(&labelled("status: {phase: Failed, podIP: 10.0.0.7}"), None);
        check("{metadata: {name: other}, status: {phase: Running, podIP: 10.0.0.7}}", None);
    }
}
