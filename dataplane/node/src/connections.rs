//! Connections that come in: a task for each, and within it a task for each of its channels.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_engine::{ChannelId, ConnectionId, Peer};
use braid_link::{Alpn, Channel, Code, Connection, Endpoint};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::dial::{self, Dial};
use crate::engine::Input;
use crate::live::{Gone, Inlet, live};
use crate::outbox::{Outbox, Total};
use crate::status::Status;

/// Connections at a time. Sessions and streams have bounds of their own, which the engine keeps.
const CONNECTIONS_MAX: u64 = 2_048;

/// What every connection shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) endpoint: Endpoint,
    pub(crate) data_plane: String,
    pub(crate) inlet: Inlet,
    pub(crate) status: Arc<Status>,
    pub(crate) stop: CancellationToken,
    pub(crate) total: Total,
    next: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        endpoint: Endpoint,
        data_plane: String,
        inlet: Inlet,
        status: Arc<Status>,
        stop: CancellationToken,
    ) -> Self {
        Self { endpoint, data_plane, inlet, status, stop, total: Total::default(), next: AtomicU64::new(1) }
    }

    /// A number that no other channel or connection has or had.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// Takes connections in and dials those the engine asks for, until stopped; returns once all of them have ended.
pub(crate) async fn run(shared: Arc<Shared>, mut dials: mpsc::Receiver<Dial>) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => log_panic(ended),
            Some(dial) = dials.recv() => drop(tasks.spawn(dial::run(dial, shared.clone()))),
            accepted = shared.endpoint.accept() => match accepted {
                Some(connection) => drop(tasks.spawn(take_in(connection, shared.clone()))),
                None => break,
            },
        }
    }
    while let Some(ended) = tasks.join_next().await {
        log_panic(ended);
    }
}

async fn take_in(connection: Connection, shared: Arc<Shared>) {
    let peer = peer(&connection);
    let span = tracing::info_span!("connection", peer = %connection.peer(), remote = %connection.remote_addr());
    let _counted = Counted::new(&shared.status);
    if shared.status.connections.load(Ordering::Relaxed) > CONNECTIONS_MAX {
        connection.close(Code::LimitExceeded, &format!("`connections` would be over the bound of {CONNECTIONS_MAX}"));
        tracing::warn!(parent: &span, "connection refused: too many");
        return;
    }
    serve(connection, peer, &shared).instrument(span).await;
}

/// Counts a connection while it lives.
pub(crate) struct Counted<'a>(&'a Status);

impl<'a> Counted<'a> {
    pub(crate) fn new(status: &'a Status) -> Self {
        Status::count(&status.connections_total);
        Status::count(&status.connections);
        Self(status)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(connection: Connection, peer: Peer, shared: &Arc<Shared>) {
    let id = ConnectionId(shared.number());
    tracing::info!(connection = id.0, "connected");
    let mut channels = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            Some(ended) = channels.join_next(), if !channels.is_empty() => log_panic(ended),
            opened = connection.accept() => match opened {
                Some(opened) => {
                    let (connection, peer, shared) = (connection.clone(), peer.clone(), shared.clone());
                    let task = async move { serve_channel(opened, id, connection, peer, &shared).await };
                    channels.spawn(task.in_current_span());
                }
                None => break,
            },
        }
    }
    // Over or leaving: either way every channel ends by itself.
    while let Some(ended) = channels.join_next().await {
        log_panic(ended);
    }
    match connection.loss() {
        Some(reason) => tracing::info!(%reason, "disconnected"),
        None => connection.close(Code::ShuttingDown, "the node is shutting down"),
    }
}

async fn serve_channel(opened: Channel, id: ConnectionId, connection: Connection, peer: Peer, shared: &Shared) {
    let channel = ChannelId(shared.number());
    let outbox = Arc::new(Outbox::new(Some(connection), shared.total.clone()));
    let put = shared.inlet.put(Input::Opened { channel, connection: id, peer, outbox: outbox.clone() }).await;
    if let Err(Gone) = put {
        return;
    }
    live(channel, opened, &outbox, &shared.inlet, &shared.stop).await;
}

/// Whom the engine sees: on `braid/1` everyone is a client.
fn peer(connection: &Connection) -> Peer {
    match (connection.alpn(), connection.peer()) {
        (Alpn::Control, braid_link::Peer::Operator { name }) => Peer::Operator { name: name.clone() },
        (Alpn::Control, braid_link::Peer::Node { store }) => Peer::Node { store: store.clone() },
        (_, peer) => Peer::Client { name: peer.name().to_owned() },
    }
}

pub(crate) fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "task");
    }
}
