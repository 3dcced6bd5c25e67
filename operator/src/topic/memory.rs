//! What one leader remembers of a topic between laps. All of it can be lost: the next lap asks again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use braid_crds::ScalableTopic;
use braid_model::operation::Confirmed;
use braid_model::placement::StoreName;
use braid_wire::proto;
use kube::ResourceExt as _;
use tokio::time::Instant;

use crate::topic::plan::Told;

/// Of one topic.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The topic as this process last wrote or read it at the API server; the cache may lag behind.
    pub(crate) newest: Option<ScalableTopic>,
    /// The steps of the stored operation that stores confirmed.
    pub(crate) confirmed: Confirmed,
    /// The layout that each node was told, on which link.
    pub(crate) told: BTreeMap<StoreName, Told>,
    /// Stores that did not take the layout are told again only later.
    pub(crate) tell_after: BTreeMap<StoreName, Instant>,
    /// What each store holds of the topic's name, by link; until there is a ledger.
    pub(crate) inventories: BTreeMap<StoreName, (u64, proto::Inventory)>,
    /// Owed changes that were confirmed and not yet stored as paid.
    pub(crate) paid: Option<(StoreName, u64)>,
    /// A node has seen this op of the topic, which is higher than ours.
    pub(crate) seen_op: Option<u64>,
    /// Layout changes that ended, by uid; the cache may still show them as open.
    pub(crate) ended: BTreeSet<String>,
    /// What a person must look at.
    pub(crate) trouble: Option<Trouble>,
    /// Since when this leader has looked after the topic.
    pub(crate) since: Instant,
}

/// A step that was refused, and will be until somebody helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Memory {
    fn new() -> Self {
        Self {
            newest: None,
            confirmed: Confirmed::default(),
            told: BTreeMap::new(),
            tell_after: BTreeMap::new(),
            inventories: BTreeMap::new(),
            paid: None,
            seen_op: None,
            ended: BTreeSet::new(),
            trouble: None,
            since: Instant::now(),
        }
    }

    /// The newer of the cached topic and the one remembered; `None` if it must be read at the API server first.
    pub(crate) fn newer(&self, cached: &ScalableTopic) -> Option<ScalableTopic> {
        let newest = self.newest.as_ref()?;
        let version = |topic: &ScalableTopic| topic.resource_version().and_then(|v| v.parse::<u64>().ok());
        // Versions of one resource are comparable numbers; where they are not, the API server is asked.
        let (cached_version, known) = (version(cached)?, version(newest)?);
        Some(if cached_version > known { cached.clone() } else { newest.clone() })
    }
}

/// Of all topics, by uid; and how often work on an object failed in a row.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    by_uid: Mutex<HashMap<String, Memory>>,
    failures: Mutex<HashMap<String, u32>>,
}

impl Memories {
    /// Takes a topic's memory out; laps of one topic never overlap, and one that is dropped half way leaves none.
    pub(crate) fn take(&self, uid: &str) -> Memory {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner).remove(uid).unwrap_or_else(Memory::new)
    }

    pub(crate) fn put(&self, uid: &str, memory: Memory) {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), memory);
    }

    /// The object is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        self.succeeded(uid);
    }

    /// How often work on that object has failed in a row, this time included.
    pub(crate) fn failed(&self, uid: &str) -> u32 {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(uid.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    pub(crate) fn succeeded(&self, uid: &str) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}
