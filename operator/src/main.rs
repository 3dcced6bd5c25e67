//! Braid's operator: it makes topics, reshapes them as load and consumers ask, and remembers every plan before it acts.
//!
//! What it needs of the API server:
//!
//! | resource | verbs | where |
//! |---|---|---|
//! | scalabletopics, subscriptions, layoutchanges, autoscalepolicies (braid.stream) | get, list, watch | all namespaces, or the one of `--namespace` |
//! | scalabletopics, subscriptions | patch (finalizers) | the same |
//! | scalabletopics/status, subscriptions/status, layoutchanges/status | update | the same |
//! | events (events.k8s.io) | create, patch | the same |
//! | pods | list, watch | `--data-plane-namespace` |
//! | statefulsets (apps) | list, watch | `--data-plane-namespace` |
//! | secrets | create; get and update of `braid-ca`, `braid-node-tls`, `braid-client-tls` | `--data-plane-namespace` |
//! | leases (coordination.k8s.io) | create; get and update of `--lease-name` | `--lease-namespace` |
//!
//! Every replica keeps its caches warm; only the leader connects to nodes and writes.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use braid_model::Buckets;
use clap::Parser;
use kube::Client;
use kube::api::Api;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

mod cache;
mod certificates;
mod clock;
mod context;
mod events;
mod fault;
mod fleet;
mod http;
mod layoutchange;
mod leader;
mod lease;
mod metrics;
mod name;
mod policy;
mod speech;
mod subscription;
mod tls;
mod topic;
mod watches;

/// Scalable, key-ordered topics for Kubernetes: the operator.
#[derive(Debug, Parser)]
#[command(name = "braid-operator", version)]
struct Args {
    /// Looks after topics of this namespace only; of all namespaces if left out.
    #[arg(long)]
    namespace: Option<String>,
    /// Where the data plane's pods and the certificates are.
    #[arg(long, default_value = "braid-system")]
    data_plane_namespace: String,
    /// The Lease that decides who leads.
    #[arg(long, default_value = "braid-operator")]
    lease_name: String,
    /// Where that Lease is.
    #[arg(long, default_value = "braid-system")]
    lease_namespace: String,
    /// How long a leader that says nothing keeps the Lease, in seconds.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease_seconds: u64,
    /// The most buckets of a segment.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    bucket_ceiling: u32,
    /// Where `/livez`, `/readyz` and `/metrics` are served.
    #[arg(long, default_value = "0.0.0.0:8080")]
    http: SocketAddr,
    /// The name of this replica; the holder of the Lease is this and something random.
    #[arg(long, env = "POD_NAME", default_value = "braid-operator")]
    identity: String,
}

/// How long laps under way may take once the process is asked to end.
const DRAIN: Duration = Duration::from_secs(10);
/// How long giving the lease back may take.
const RELEASE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,kube_runtime=warn,kube_client=warn"));
    tracing_subscriber::fmt().json().with_env_filter(filter).init();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(error = format!("{error:#}"), "ends");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    // Whoever installed one before chose the same.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let ceiling = Buckets::new(args.bucket_ceiling).context("--bucket-ceiling")?;
    let fault = fault::Fault::from_env()?;
    let client = Client::try_default().await.context("no way to the API server")?;
    let metrics = Arc::new(metrics::Metrics::default());
    let stop = CancellationToken::new();
    let release = CancellationToken::new();

    let leases = Api::namespaced(client.clone(), &args.lease_namespace);
    let settings = lease::Settings {
        name: args.lease_name.clone(),
        identity: format!("{}_{:08x}", args.identity, rand::random::<u32>()),
        duration: Duration::from_secs(args.lease_seconds),
    };
    let operator = settings.identity.clone();
    let (elector, term) = lease::Elector::new(leases, settings);
    let elector = Arc::new(elector);

    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    let seen = watches::begin(&client, args.namespace.as_deref(), &args.data_plane_namespace, &metrics);
    tasks.spawn(seen.watching);
    let listener = TcpListener::bind(args.http).await.context("--http")?;
    info!(listen = %listener.local_addr()?, "http");
    let (health, figures, topics, stopped) =
        (Arc::clone(&metrics.health), Arc::clone(&metrics), seen.cache.topics.clone(), stop.clone());
    let text = move || {
        figures.topics.store(topics.state().len() as u64, Ordering::Relaxed);
        figures.text()
    };
    tasks.spawn(async move { http::serve(listener, health, text, stopped).await.context("http") });
    let leader = leader::Leader {
        client: client.clone(),
        cache: seen.cache,
        fleet: seen.fleet,
        pods: seen.pods,
        topics: seen.topics,
        subscriptions: seen.subscriptions,
        changes: seen.changes,
        memories: seen.memories,
        elector: Arc::clone(&elector),
        term,
        operator,
        data_plane_namespace: args.data_plane_namespace,
        ceiling,
        fault,
        metrics,
    };
    let mut leading = tasks_of_leader(leader, stop.clone());
    let released = release.clone();
    let mut election: JoinSet<Result<(), lease::LeaseError>> = JoinSet::new();
    election.spawn(async move { elector.run(released).await });

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        biased;
        _ = terminate.recv() => info!("asked to end"),
        _ = interrupt.recv() => info!("asked to end"),
        // Another may lead from now on: nothing more may be done here.
        Some(ended) = election.join_next() => return ended?.context("leading ended"),
        Some(ended) = leading.join_next() => return ended?.context("the leader's work ended"),
        Some(ended) = tasks.join_next() => return ended?.context("a task ended"),
    }
    stop.cancel();
    if timeout(DRAIN, leading.join_next()).await.is_err() {
        error!("laps under way did not end in time");
    }
    release.cancel();
    match timeout(RELEASE, election.join_next()).await {
        Ok(Some(ended)) => ended?.context("the lease was not given back"),
        _ => Ok(()),
    }
}

fn tasks_of_leader(leader: leader::Leader, stop: CancellationToken) -> JoinSet<anyhow::Result<()>> {
    let mut tasks = JoinSet::new();
    tasks.spawn(leader.work(stop));
    tasks
}
