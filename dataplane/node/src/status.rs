//! What the shell shows of itself, written by the engine thread and the connections, read over HTTP.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use braid_engine::node::Metrics;
use tokio::time::Instant;

/// An engine that has not come round for this long hangs.
const HUNG: Duration = Duration::from_secs(20);

/// Relaxed all through: each figure stands for itself.
#[derive(Debug, Default)]
pub(crate) struct Status {
    /// The engine's last round, and what it counted; `None` while the store is being opened.
    engine: Mutex<Option<(Instant, Metrics)>>,
    ready: AtomicBool,
    pub(crate) connections: AtomicU64,
    pub(crate) connections_total: AtomicU64,
    pub(crate) overflows: AtomicU64,
    pub(crate) dials_failed: AtomicU64,
    pub(crate) reloads: AtomicU64,
}

impl Status {
    pub(crate) fn beat(&self, metrics: Metrics) {
        *self.engine.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), metrics));
    }

    pub(crate) fn serves(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    pub(crate) fn count(figure: &AtomicU64) {
        figure.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the engine comes round. Opening a large store takes its time.
    pub(crate) fn is_live(&self) -> bool {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|(beat, _)| beat.elapsed() < HUNG)
    }

    /// Whether the store is open, the socket bound, and nothing failed or ends. No operator is needed for it.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && self.is_live()
    }

    /// Prometheus text.
    pub(crate) fn text(&self) -> String {
        let engine = *self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let m = engine.map(|(_, metrics)| metrics).unwrap_or_default();
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let figures = [
            ("ready", "gauge", "1 while the node serves", u64::from(self.is_ready())),
            ("segments_active", "gauge", "segments that take entries", m.segments_active),
            ("segments_sealed", "gauge", "segments that are sealed", m.segments_sealed),
            ("topics", "gauge", "topics that were told or have segments here", m.topics),
            ("streams", "gauge", "streams open", m.streams),
            ("sessions", "gauge", "consumers joined to groups here", m.sessions),
            ("attaches", "gauge", "consumers attached to segments here", m.attaches),
            ("in_flight_bytes", "gauge", "bytes of entries that are not durable yet", m.in_flight_bytes),
            ("messages_in_total", "counter", "messages appended", m.messages_in),
            ("bytes_in_total", "counter", "bytes appended", m.bytes_in),
            ("messages_out_total", "counter", "messages delivered", m.messages_out),
            ("bytes_out_total", "counter", "bytes delivered", m.bytes_out),
            ("acks_total", "counter", "acks taken", m.acks),
            ("refusals_total", "counter", "frames answered with a refusal", m.refusals),
            ("synced_lsn", "gauge", "the last durable record", m.synced_lsn),
            ("store_failed", "gauge", "1 after a write or sync failed", m.store_failed),
            ("connections", "gauge", "connections open", read(&self.connections)),
            ("connections_total", "counter", "connections that were admitted or dialed", read(&self.connections_total)),
            ("overflows_total", "counter", "connections closed because their peer did not read", read(&self.overflows)),
            ("dials_failed_total", "counter", "dials of other nodes that failed", read(&self.dials_failed)),
            ("certificate_reloads_total", "counter", "certificates replaced while running", read(&self.reloads)),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in figures {
            let _ = writeln!(
                text,
                "# HELP braid_node_{name} {help}\n# TYPE braid_node_{name} {kind}\nbraid_node_{name} {value}"
            );
        }
        text
    }
}
