//! A store in memory, for tests and the simulator: it syncs when told, fails when told, and forgets what was not synced.

use braid_model::Offset;

use crate::index::Index;
use crate::record::RECORD_BYTES_MAX;
use crate::{AppendError, Lsn, ReadError, Record, SegmentKey, Store};

/// Records in a vector; those up to `synced` survive a crash.
#[derive(Debug, Default)]
pub struct MemoryStore {
    records: Vec<Record>,
    index: Index<usize>,
    synced: usize,
    opened: usize,
    refusal: Option<AppendError>,
}

impl MemoryStore {
    /// What a committer would do: everything appended is durable now. The number of the last record.
    pub fn sync(&mut self) -> Lsn {
        if !matches!(self.refusal, Some(AppendError::Failed { .. })) {
            self.synced = self.records.len();
        }
        Lsn(self.synced as u64)
    }

    /// The store as it is found after the process is killed: only what was synced.
    #[must_use]
    pub fn crash(&self) -> Self {
        self.cut(self.synced)
    }

    /// The store as it is found if the first `records` made it to the disk; at least what was synced, at most what was appended.
    #[must_use]
    pub fn cut(&self, records: usize) -> Self {
        let kept = records.clamp(self.synced, self.records.len());
        let mut store = Self { records: self.records[..kept].to_vec(), synced: kept, opened: kept, ..Self::default() };
        for (at, record) in store.records.iter().enumerate() {
            store.index.insert(record, at);
        }
        store
    }

    /// Refuses appends from now on; `None` takes them again.
    pub fn refuse(&mut self, refusal: Option<AppendError>) {
        self.refusal = refusal;
    }

    /// How many records there are, durable or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing was ever appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl Store for MemoryStore {
    fn append(&mut self, record: Record) -> Result<Lsn, AppendError> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if record.body.len() > RECORD_BYTES_MAX {
            return Err(AppendError::TooLarge { bytes: record.body.len(), max: RECORD_BYTES_MAX });
        }
        self.index.check(&record)?;
        self.index.insert(&record, self.records.len());
        self.records.push(record);
        Ok(self.last())
    }

    fn read(
        &mut self,
        key: SegmentKey,
        from: Offset,
        until: Offset,
        bytes_max: usize,
    ) -> Result<Vec<Record>, ReadError> {
        let mut read = Vec::new();
        let mut bytes = 0;
        for (_, at) in self.index.within(key, from, until) {
            if bytes > bytes_max {
                break;
            }
            bytes += self.records[*at].body.len();
            read.push(self.records[*at].clone());
        }
        Ok(read)
    }

    fn replay(&mut self, visit: &mut dyn FnMut(Lsn, Record)) -> Result<(), ReadError> {
        for (at, record) in self.records[..self.opened].iter().enumerate() {
            visit(Lsn(at as u64 + 1), record.clone());
        }
        Ok(())
    }

    fn forget(&mut self, key: SegmentKey) {
        self.index.forget(key);
    }

    fn last(&self) -> Lsn {
        Lsn(self.records.len() as u64)
    }
}
