//! What every lap shares, and why a lap fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_model::placement::StoreName;
use braid_model::{Buckets, SegmentId};
use kube::Client;
use kube::runtime::events::Recorder;
use tokio::sync::watch;

use crate::cache::Cache;
use crate::fault::Fault;
use crate::fleet::{AskError, Fleet};
use crate::lease::{Elector, LeaseError};
use crate::metrics::Metrics;
use crate::name::Wakes;
use crate::speech::Unintelligible;
use crate::topic::memory::Memories;

/// Shared by all laps of this process.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) cache: Cache,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) elector: Arc<Elector>,
    pub(crate) term: watch::Receiver<Option<u64>>,
    pub(crate) fault: Fault,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) recorder: Recorder,
    pub(crate) memories: Arc<Memories>,
    pub(crate) topics: Arc<Wakes>,
    pub(crate) ceiling: Buckets,
    pub(crate) sequence: AtomicU64,
}

impl Context {
    /// The number of the next layout that this leader tells.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How long work on that object waits after it failed once more: doubled each time, 5 minutes at most.
    pub(crate) fn backoff(&self, uid: &str) -> Duration {
        const LEAST: Duration = Duration::from_millis(200);
        const MOST: Duration = Duration::from_secs(300);
        let failures = self.memories.failed(uid).min(16);
        (LEAST * 2_u32.pow(failures - 1)).min(MOST)
    }
}

/// Why a lap failed. It is repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the API server refused or did not answer")]
    Api(#[from] Box<kube::Error>),
    #[error("no answer")]
    Ask(#[from] AskError),
    #[error("store `{store}` refused with {code}: {message}")]
    Refused { store: StoreName, code: &'static str, message: String },
    #[error("store `{store}` has seen a higher fence")]
    StaleFence { store: StoreName },
    #[error("the node of segment `{segment}` answered a seal without its successors")]
    NoSeal { segment: SegmentId },
    #[error("store `{store}` answered an inspection without an inventory")]
    NoInventory { store: StoreName },
    #[error("a node's answer makes no sense")]
    Nonsense(#[from] Unintelligible),
    #[error("the lease")]
    Lease(#[from] LeaseError),
    #[error("this process does not lead")]
    NotLeading,
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}
