//! Health and figures over HTTP: `/livez` (the watches are answered), `/readyz` (the caches are filled; says nothing about
//! leading), `/metrics` (Prometheus text).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// A watch that has had nothing but errors for this long makes the process unhealthy.
const UNHEALTHY: Duration = Duration::from_secs(300);

/// What the process counts. Relaxed: each figure stands for itself.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) laps: AtomicU64,
    pub(crate) lap_errors: AtomicU64,
    pub(crate) status_writes: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) commands_failed: AtomicU64,
    pub(crate) decisions: AtomicU64,
    pub(crate) links: AtomicU64,
    /// 0 while it does not lead.
    pub(crate) term: AtomicU64,
    undecodable: AtomicU64,
    synced: AtomicBool,
    /// Since when each watch has failed; `None` if its last answer was good.
    watches: Mutex<BTreeMap<String, Option<Instant>>>,
}

impl Metrics {
    pub(crate) fn count(figure: &AtomicU64) {
        figure.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn undecodable(&self) {
        Self::count(&self.undecodable);
    }

    pub(crate) fn synced(&self) {
        self.synced.store(true, Ordering::Relaxed);
    }

    pub(crate) fn watch_answered(&self, kind: &str, good: bool) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let failing = watches.entry(kind.to_owned()).or_default();
        *failing = if good { None } else { Some(failing.unwrap_or_else(Instant::now)) };
    }

    /// The watch that has failed for too long, if one has.
    fn sick(&self) -> Option<String> {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches
            .iter()
            .find(|(_, failing)| failing.is_some_and(|since| since.elapsed() > UNHEALTHY))
            .map(|(kind, _)| kind.clone())
    }

    fn text(&self) -> String {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let term = read(&self.term);
        let figures = [
            ("leader_is_self", "gauge", "1 while this process leads", u64::from(term > 0)),
            ("leader_term", "gauge", "the term of its fence, 0 while it does not lead", term),
            ("laps_total", "counter", "laps over topics", read(&self.laps)),
            ("lap_errors_total", "counter", "laps that failed and are repeated", read(&self.lap_errors)),
            ("status_writes_total", "counter", "status writes of topics", read(&self.status_writes)),
            ("commands_total", "counter", "commands sent to nodes", read(&self.commands)),
            ("commands_failed_total", "counter", "commands refused or not answered", read(&self.commands_failed)),
            ("decisions_total", "counter", "changes that the evaluator began", read(&self.decisions)),
            ("node_links", "gauge", "nodes with a control connection", read(&self.links)),
            ("undecodable_total", "counter", "resources that could not be decoded", read(&self.undecodable)),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in figures {
            let _ = writeln!(
                text,
                "# HELP braid_operator_{name} {help}\n# TYPE braid_operator_{name} {kind}\nbraid_operator_{name} {value}"
            );
        }
        text
    }
}

/// Serves until stopped.
pub(crate) async fn serve(listen: SocketAddr, metrics: Arc<Metrics>, stop: CancellationToken) -> std::io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    info!(listen = %listener.local_addr()?, "http");
    let (live, ready) = (Arc::clone(&metrics), Arc::clone(&metrics));
    let livez = move || async move {
        match live.sick() {
            None => (StatusCode::OK, "ok".to_owned()),
            Some(kind) => {
                let text = format!("the watch of {kind} has failed for {} s", UNHEALTHY.as_secs());
                (StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        }
    };
    let readyz = move || async move {
        if ready.synced.load(Ordering::Relaxed) {
            (StatusCode::OK, "ok")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "the caches are not filled yet")
        }
    };
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(move || async move { metrics.text() }));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}
