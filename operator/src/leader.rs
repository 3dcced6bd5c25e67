//! What the leader does and others do not: it makes certificates, connects to nodes, raises its term above theirs, and runs
//! the laps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use braid_link::Endpoint;
use braid_model::Buckets;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::Controller;
use kube::runtime::controller::Config;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cache::Cache;
use crate::certificates;
use crate::context::Context;
use crate::fault::Fault;
use crate::fleet::Fleet;
use crate::lease::Elector;
use crate::metrics::Metrics;
use crate::name::{Name, Wakes};
use crate::tls::Authority;
use crate::topic::memory::Memories;
use crate::watches::PodNames;
use crate::{layoutchange, subscription, topic};

/// Laps of different topics at a time.
const CONCURRENCY: u16 = 16;
/// Nodes that do not answer by then are asked for their highest term when they do.
const NODES_ANSWER: Duration = Duration::from_secs(2);

/// All that a leader needs.
pub(crate) struct Leader {
    pub(crate) client: Client,
    pub(crate) cache: Cache,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) pods: watch::Receiver<PodNames>,
    pub(crate) topics: Arc<Wakes>,
    pub(crate) subscriptions: Arc<Wakes>,
    pub(crate) changes: Arc<Wakes>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) elector: Arc<Elector>,
    pub(crate) term: watch::Receiver<Option<u64>>,
    pub(crate) operator: String,
    pub(crate) data_plane_namespace: String,
    pub(crate) ceiling: Buckets,
    pub(crate) fault: Fault,
    pub(crate) metrics: Arc<Metrics>,
}

impl Leader {
    /// Waits for the lease, then works until stopped. Ends with an error if it cannot begin.
    pub(crate) async fn work(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            elected = self.term.wait_for(Option::is_some) => { elected.context("the election ended")?; }
        }
        self.cache.ready().await?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.data_plane_namespace);
        let authority = authority(&secrets).await?;
        let endpoint = Endpoint::client(certificates::identity(&authority, &self.operator)?)?;
        self.fleet.dial_with(endpoint.clone(), self.operator.clone());
        let mut tasks: JoinSet<()> = JoinSet::new();
        let (operator, pods) = (self.operator.clone(), self.pods.clone());
        tasks.spawn(certificates::keep(authority, secrets, endpoint.clone(), operator, pods));
        self.hear_nodes().await;
        let mut seen = self.fleet.highest_term();
        let highest = *seen.borrow_and_update();
        let term = self.elector.raise_above(highest).await?;
        info!(term, highest, "leads");
        tasks.spawn(stay_above(seen, Arc::clone(&self.elector), self.term.clone()));
        tasks.spawn(count(Arc::clone(&self.fleet), self.term.clone(), Arc::clone(&self.metrics)));
        self.laps(&stop).await;
        endpoint.close(Duration::from_secs(1)).await;
        Ok(())
    }

    /// Waits until every node has said hello, but not for long.
    async fn hear_nodes(&self) {
        let begun = Instant::now();
        while begun.elapsed() < NODES_ANSWER {
            let (linked, all) = self.fleet.links();
            if all > 0 && linked == all {
                return;
            }
            if all == 0 && begun.elapsed() > NODES_ANSWER / 4 {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn laps(self, stop: &CancellationToken) {
        let reporter = Reporter { controller: "braid.stream/operator".to_owned(), instance: Some(self.operator) };
        let ctx = Arc::new(Context {
            recorder: Recorder::new(self.client.clone(), reporter),
            client: self.client,
            cache: self.cache.clone(),
            fleet: self.fleet,
            elector: self.elector,
            term: self.term,
            fault: self.fault,
            metrics: self.metrics,
            memories: self.memories,
            topics: Arc::clone(&self.topics),
            ceiling: self.ceiling,
            sequence: AtomicU64::new(0),
        });
        let config = || Config::default().concurrency(CONCURRENCY);
        let topics = Controller::for_stream(futures::stream::pending(), self.cache.topics.clone())
            .with_config(config())
            .reconcile_on(Arc::clone(&self.topics).stream())
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(topic::reconcile::reconcile, topic::reconcile::after_failure, Arc::clone(&ctx))
            .for_each(|_| std::future::ready(()));
        let subscriptions = Controller::for_stream(futures::stream::pending(), self.cache.subscriptions.clone())
            .with_config(config())
            .reconcile_on(Arc::clone(&self.subscriptions).stream())
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(subscription::reconcile, subscription::after_failure, Arc::clone(&ctx))
            .for_each(|_| std::future::ready(()));
        let changes = Controller::for_stream(futures::stream::pending(), self.cache.changes.clone())
            .with_config(config())
            .reconcile_on(Arc::clone(&self.changes).stream())
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(layoutchange::reconcile, layoutchange::after_failure, ctx)
            .for_each(|_| std::future::ready(()));
        // What was seen before this process led has woken nobody.
        self.cache.topic_names().into_iter().for_each(|name| self.topics.wake(name));
        for sub in self.cache.subscriptions.state() {
            self.subscriptions.wake(Name { namespace: sub.namespace().unwrap_or_default(), name: sub.name_any() });
        }
        for change in self.cache.changes.state() {
            self.changes.wake(Name { namespace: change.namespace().unwrap_or_default(), name: change.name_any() });
        }
        tokio::join!(topics, subscriptions, changes);
    }
}

/// Two operators that begin at once end with the same authority.
async fn authority(secrets: &Api<Secret>) -> anyhow::Result<Authority> {
    const ATTEMPTS: u32 = 5;
    let mut attempt = 1;
    loop {
        match Authority::ensure(secrets, jiff::Timestamp::now()).await {
            Ok(authority) => return Ok(authority),
            Err(error) if attempt == ATTEMPTS => return Err(error).context("no authority for certificates"),
            Err(error) => warn!(error = &error as &dyn std::error::Error, "authority not read"),
        }
        attempt += 1;
        sleep(Duration::from_secs(1)).await;
    }
}

/// A node that comes later may have seen a higher term: its disk must not lock everybody out.
async fn stay_above(mut seen: watch::Receiver<u64>, elector: Arc<Elector>, term: watch::Receiver<Option<u64>>) {
    while seen.changed().await.is_ok() {
        let highest = *seen.borrow_and_update();
        let own = term.borrow().unwrap_or(0);
        if highest > own
            && let Err(error) = elector.raise_above(highest).await
        {
            warn!(error = &error as &dyn std::error::Error, "term not raised; commands that need it raise it again");
        }
    }
}

/// Keeps the gauges.
async fn count(fleet: Arc<Fleet>, term: watch::Receiver<Option<u64>>, metrics: Arc<Metrics>) {
    loop {
        metrics.links.store(fleet.links().0 as u64, Ordering::Relaxed);
        metrics.term.store(term.borrow().unwrap_or(0), Ordering::Relaxed);
        sleep(Duration::from_secs(1)).await;
    }
}
