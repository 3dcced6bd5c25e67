//! A node from start to end: what is opened in which order, and closed in the reverse one, each with a deadline.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use braid_engine::node::{Config, Node};
use braid_link::Endpoint;
use braid_log::{Committer, DiskStore};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::committer::Durable;
use crate::connections::{self, Shared};
use crate::engine::{DIALS_MAX, Engine, INPUTS_MAX};
use crate::live::Inlet;
use crate::status::Status;
use crate::{Args, certificates, clock::Clock, committer, http};

/// How long engine, connections and committer may take to end, all together.
const LEAVE: Duration = Duration::from_secs(15);
/// How long the peers may take to hear of the end.
const GOODBYE: Duration = Duration::from_secs(2);

/// Why a node does not run.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("HTTP `{listen}` cannot be bound")]
    Http { listen: SocketAddr, source: io::Error },
    #[error("the store in `{folder}` cannot be opened")]
    Store { folder: String, source: braid_log::disk::OpenError },
    #[error("the store in `{folder}` cannot be served")]
    Node { folder: String, source: braid_engine::node::OpenError },
    #[error("QUIC cannot be set up")]
    Quic(#[from] braid_link::BindError),
    #[error("thread `{name}` cannot be started")]
    Thread { name: &'static str, source: io::Error },
    #[error("stopped before it served")]
    Stopped,
    /// A part that should run for ever did not.
    #[error("{part} ended by itself")]
    Ended { part: &'static str },
}

/// A node that serves.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    http: SocketAddr,
    status: Arc<Status>,
    stop: CancellationToken,
    /// Cancelled once there is no more use in waiting for space on the disk.
    given_up: CancellationToken,
    /// Each returns the name of the part that ended.
    tasks: JoinSet<&'static str>,
    http_stop: CancellationToken,
    http_task: JoinSet<()>,
}

impl Server {
    /// Waits for the certificate, opens the store, and serves. HTTP comes first, so that health can be asked for all along.
    ///
    /// `stop` ends the start as well as, later, the node.
    pub async fn start(args: Args, stop: CancellationToken) -> Result<Self, Failure> {
        let status = Arc::new(Status::default());
        let (http_stop, mut http_task) = (CancellationToken::new(), JoinSet::new());
        let http_error = |source| Failure::Http { listen: args.http, source };
        let listener = TcpListener::bind(args.http).await.map_err(http_error)?;
        let http = listener.local_addr().map_err(http_error)?;
        let serving = http::serve(listener, status.clone(), http_stop.clone());
        http_task.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "http");
            }
        });

        let (identity, version) = certificates::first(&args, &stop).await.ok_or(Failure::Stopped)?;
        let clock = Clock::start();
        let (node, committer) = open(&args, clock).await?;
        let endpoint = Endpoint::server(args.listen, identity)?;

        let (input_sender, inputs) = mpsc::channel(INPUTS_MAX);
        let (dial_sender, dials) = mpsc::channel(DIALS_MAX);
        let (durable_sender, durable) = watch::channel(Durable::default());
        let given_up = CancellationToken::new();
        let mut tasks = JoinSet::new();

        let patience = given_up.clone();
        let ended = run_thread("committer", move || committer::run(committer, &durable_sender, &patience))?;
        tasks.spawn(async move { ended.await.map_or("committer, by a panic,", |()| "committer") });
        let engine = Engine {
            node,
            clock,
            inputs,
            durable,
            dials: dial_sender,
            status: status.clone(),
            channels: HashMap::new(),
        };
        let ended = run_engine(engine, stop.clone())?;
        tasks.spawn(async move { ended.await.map_or("engine, by a panic,", |()| "engine") });

        let data_plane = args.data_plane.clone();
        let inlet = Inlet::new(input_sender);
        let shared = Arc::new(Shared::new(endpoint.clone(), data_plane, inlet, status.clone(), stop.clone()));
        tasks.spawn(async move {
            connections::run(shared, dials).await;
            "connections"
        });
        let (watched, seen, stopped) = (endpoint.clone(), status.clone(), stop.clone());
        tasks.spawn(async move {
            certificates::watch(args, watched, version, seen, stopped, certificates::LOOK).await;
            "certificates"
        });
        Ok(Self { endpoint, http, status, stop, given_up, tasks, http_stop, http_task })
    }

    /// Where QUIC listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Where HTTP listens.
    #[must_use]
    pub fn http_addr(&self) -> SocketAddr {
        self.http
    }

    /// Serves until `stop` is cancelled, then leaves: no new connections, what came in becomes durable and is answered, the peers are
    /// told, the store is closed.
    pub async fn run(mut self) -> Result<(), Failure> {
        let ended = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break None,
                Some(ended) = self.tasks.join_next() => match ended {
                    // After a failed disk the node goes on to answer what it can; it says so where it is asked.
                    Ok("committer") => {}
                    Ok(part) => break Some(part),
                    Err(error) => {
                        tracing::error!(%error, "task");
                        break Some("a task");
                    }
                },
            }
        };
        tracing::info!("leaves");
        self.status.serves(false);
        self.endpoint.refuse_new();
        self.stop.cancel();
        let tasks = &mut self.tasks;
        let all = async {
            while let Some(part) = tasks.join_next().await {
                tracing::debug!(part = part.unwrap_or("a task, by a panic,"), "ended");
            }
        };
        if tokio::time::timeout(LEAVE, all).await.is_err() {
            self.given_up.cancel();
            tracing::warn!(after_ms = LEAVE.as_millis() as u64, "some part did not end in time");
        }
        self.endpoint.close(GOODBYE).await;
        self.http_stop.cancel();
        let http_task = &mut self.http_task;
        // A scrape under way may end; one that hangs may not hold up the process.
        let _ = tokio::time::timeout(GOODBYE, async { while http_task.join_next().await.is_some() {} }).await;
        tracing::info!("left");
        ended.map_or(Ok(()), |part| Err(Failure::Ended { part }))
    }
}

/// Opens the store and the node in it, on a thread that may block.
async fn open(args: &Args, clock: Clock) -> Result<(Node<DiskStore>, Committer), Failure> {
    let folder = args.data.clone();
    let config = Config::new(args.store.clone(), args.data_plane.clone(), rand::random());
    let opening = tokio::task::spawn_blocking(move || {
        let name = folder.display().to_string();
        let (store, committer) = DiskStore::open(&folder, braid_log::disk::Options::default())
            .map_err(|source| Failure::Store { folder: name.clone(), source })?;
        let node =
            Node::open(store, config, clock.now()).map_err(|source| Failure::Node { folder: name.clone(), source })?;
        tracing::info!(folder = name, "store opened");
        Ok((node, committer))
    });
    opening.await.unwrap_or(Err(Failure::Ended { part: "opening the store, by a panic," }))
}

/// The engine reads from disk now and then, so it has a thread of its own; on it, a runtime only for waiting.
fn run_engine(engine: Engine, stop: CancellationToken) -> Result<oneshot::Receiver<()>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|source| Failure::Thread { name: "engine", source })?;
    run_thread("engine", move || runtime.block_on(engine.run(stop)))
}

/// The receiver resolves when the thread has ended, with an error if by a panic.
fn run_thread(name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<oneshot::Receiver<()>, Failure> {
    let (ended, receiver) = oneshot::channel();
    let body = move || {
        run();
        // Nobody waits if the process is ending.
        let _ = ended.send(());
    };
    thread::Builder::new().name(name.into()).spawn(body).map_err(|source| Failure::Thread { name, source })?;
    Ok(receiver)
}
