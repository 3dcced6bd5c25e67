//! The store as the node uses it: records go in, and what was shown waits until they are durable.

use std::collections::VecDeque;

use braid_log::{AppendError, Lsn, ReadError, Record, SegmentKey, Store};
use braid_model::{Micros, Offset};
use braid_wire::proto::{Code, Refused};

use super::records::Note;

/// The store, how much of it is durable, and whether it still takes anything.
#[derive(Debug)]
pub(super) struct Ledger<S> {
    pub(super) store: S,
    synced: Lsn,
    /// Entries that are not durable, by their record, in bytes.
    waiting: VecDeque<(Lsn, u64)>,
    in_flight: u64,
    failure: Option<String>,
}

impl<S: Store> Ledger<S> {
    /// Everything that is in a store that was just opened is durable.
    pub(super) fn new(store: S) -> Self {
        let synced = store.last();
        Self { store, synced, waiting: VecDeque::new(), in_flight: 0, failure: None }
    }

    pub(super) fn last(&self) -> Lsn {
        self.store.last()
    }

    pub(super) const fn synced(&self) -> Lsn {
        self.synced
    }

    pub(super) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn note_synced(&mut self, lsn: Lsn) {
        self.synced = self.synced.max(lsn.min(self.store.last()));
        while let Some((_, bytes)) = self.waiting.pop_front_if(|(lsn, _)| *lsn <= self.synced) {
            self.in_flight -= bytes;
        }
    }

    /// Nothing is taken from now on.
    pub(super) fn fail(&mut self, reason: &str) {
        self.failure.get_or_insert_with(|| reason.to_owned());
    }

    pub(super) fn note(&mut self, key: SegmentKey, note: &Note, now: Micros) -> Result<Lsn, Refused> {
        self.append(note.record(key, now))
    }

    pub(super) fn entry(&mut self, record: Record) -> Result<Lsn, Refused> {
        let bytes = record.body.len() as u64;
        let lsn = self.append(record)?;
        self.waiting.push_back((lsn, bytes));
        self.in_flight += bytes;
        Ok(lsn)
    }

    pub(super) fn read(
        &mut self,
        key: SegmentKey,
        from: Offset,
        until: Offset,
        bytes_max: usize,
    ) -> Result<Vec<Record>, ReadError> {
        self.store.read(key, from, until, bytes_max)
    }

    fn append(&mut self, record: Record) -> Result<Lsn, Refused> {
        if let Some(reason) = &self.failure {
            return Err(Refused::new(Code::StoreFailed, format!("the store failed: {reason}")));
        }
        self.store.append(record).map_err(|e| {
            let message = e.to_string();
            match e {
                AppendError::NoSpace => Refused::new(Code::NoSpace, message),
                AppendError::Behind { bytes, max } => Refused::mismatch(Code::Busy, message, max as u64, bytes as u64),
                AppendError::TooLarge { bytes, max } => {
                    Refused::mismatch(Code::LimitExceeded, message, max as u64, bytes as u64)
                }
                AppendError::Failed { .. } | AppendError::Gap { .. } => {
                    self.fail(&message);
                    Refused::new(Code::StoreFailed, message)
                }
            }
        })
    }
}
