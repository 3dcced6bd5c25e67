//! Where the entries of each segment are. Knows nothing of files: a slot is found by offset, what it holds is the store's.

use std::collections::HashMap;

use braid_model::Offset;

use crate::{AppendError, Record, SegmentKey};

/// The entries of all segments; `T` says where one is.
#[derive(Debug)]
pub(crate) struct Index<T> {
    segments: HashMap<SegmentKey, Entries<T>>,
}

#[derive(Debug)]
struct Entries<T> {
    /// Ascending by base, without holes.
    slots: Vec<(Offset, T)>,
    end: Offset,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { segments: HashMap::new() }
    }
}

impl<T> Index<T> {
    /// Whether an entry may follow; a note always may.
    pub(crate) fn check(&self, record: &Record) -> Result<(), AppendError> {
        match self.segments.get(&record.key) {
            Some(entries) if record.is_entry() && entries.end != record.base => {
                Err(AppendError::Gap { key: record.key, end: entries.end, sent: record.base })
            }
            _ => Ok(()),
        }
    }

    /// Notes where an entry is; the first of a segment may begin anywhere.
    pub(crate) fn insert(&mut self, record: &Record, place: T) {
        if record.is_entry() {
            let entries =
                self.segments.entry(record.key).or_insert_with(|| Entries { slots: Vec::new(), end: record.base });
            entries.slots.push((record.base, place));
            entries.end = record.end();
        }
    }

    /// The entries that hold messages of `from..until`.
    pub(crate) fn within(&self, key: SegmentKey, from: Offset, until: Offset) -> &[(Offset, T)] {
        let Some(entries) = self.segments.get(&key).filter(|entries| from < entries.end) else { return &[] };
        let first = entries.slots.partition_point(|(base, _)| *base <= from).saturating_sub(1);
        let last = entries.slots.partition_point(|(base, _)| *base < until);
        entries.slots.get(first..last).unwrap_or(&[])
    }

    pub(crate) fn forget(&mut self, key: SegmentKey) {
        self.segments.remove(&key);
    }
}
