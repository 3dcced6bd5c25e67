//! What the process counts, as Prometheus text.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::http::Health;

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
    pub(crate) topics: AtomicU64,
    /// What `/livez` and `/readyz` are judged by.
    pub(crate) health: Arc<Health>,
    undecodable: AtomicU64,
}

impl Metrics {
    pub(crate) fn count(figure: &AtomicU64) {
        figure.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn undecodable(&self) {
        Self::count(&self.undecodable);
    }

    /// All figures as Prometheus text.
    pub(crate) fn text(&self) -> String {
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
            ("topics", "gauge", "topics that the cache holds", read(&self.topics)),
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
