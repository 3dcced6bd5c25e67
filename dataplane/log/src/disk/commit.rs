//! The committer: takes everything that waits, writes it, syncs it, and says up to where.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;

use super::{format, recover};
use crate::{AppendError, Lsn, Record};

/// A record and where it goes: at `at` of the last file, or of a new one if it `begins` one.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) lsn: Lsn,
    pub(super) at: u32,
    pub(super) begins: bool,
    pub(super) record: Record,
}

/// What both halves see.
#[derive(Debug, Default)]
pub(super) struct Shared {
    waiting: Mutex<Waiting>,
    more: Condvar,
    synced: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: Vec<Placed>,
    /// Bytes appended and not synced.
    bytes: usize,
    is_closed: bool,
    is_full: bool,
    failure: Option<String>,
}

impl Shared {
    pub(super) fn push(&self, placed: Placed, bytes_max: usize) -> Result<(), AppendError> {
        let mut waiting = self.lock();
        let bytes = waiting.bytes + format::encoded_len(&placed.record);
        if let Some(reason) = &waiting.failure {
            return Err(AppendError::Failed { reason: reason.clone() });
        }
        if waiting.is_full && placed.record.is_entry() {
            return Err(AppendError::NoSpace);
        }
        if bytes > bytes_max {
            return Err(AppendError::Behind { bytes, max: bytes_max });
        }
        waiting.bytes = bytes;
        waiting.queue.push(placed);
        drop(waiting);
        self.more.notify_one();
        Ok(())
    }

    pub(super) fn synced(&self) -> Lsn {
        Lsn(self.synced.load(Ordering::Acquire))
    }

    pub(super) fn note_synced(&self, lsn: Lsn) {
        self.synced.store(lsn.0, Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.more.notify_one();
    }

    /// Nothing under the lock can panic half way, so a poisoned one is as good as new.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why nothing more became durable.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The disk is full: what waits stays, and the next `commit` tries again. Wait before it.
    #[error("`{file}`: the disk is full")]
    NoSpace { file: String },
    /// A write or sync failed. Nobody knows what is on the disk, so nothing is written any more.
    #[error("`{file}`: {reason}")]
    Failed { file: String, reason: String },
}

/// The half that waits for the disk: one thread calls [`Committer::wait`] and [`Committer::commit`] in turn.
#[derive(Debug)]
pub struct Committer {
    shared: Arc<Shared>,
    folder: PathBuf,
    /// The file that is written to.
    tail: Option<(PathBuf, File)>,
    /// Taken and not durable yet.
    taken: VecDeque<Placed>,
    buffer: BytesMut,
}

/// One write is about this large at most, so that memory for it is bounded.
const WRITE_BYTES: usize = 8 << 20;

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, folder: PathBuf, tail: Option<(PathBuf, File)>) -> Self {
        Self { shared, folder, tail, taken: VecDeque::new(), buffer: BytesMut::new() }
    }

    /// Blocks until something waits to be written (true) or the store was dropped and nothing does (false).
    #[must_use]
    pub fn wait(&self) -> bool {
        let mut waiting = self.shared.lock();
        while waiting.queue.is_empty() && self.taken.is_empty() && !waiting.is_closed {
            waiting = self.shared.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.failure.is_none() && !(waiting.queue.is_empty() && self.taken.is_empty())
    }

    /// Writes and syncs everything that waits; the number of the last durable record. Blocks for as long as the disk takes.
    ///
    /// # Errors
    /// See [`CommitError`]. After `Failed` the store refuses every append until it is opened anew.
    pub fn commit(&mut self) -> Result<Lsn, CommitError> {
        self.taken.extend(mem::take(&mut self.shared.lock().queue));
        while !self.taken.is_empty() {
            if let Err((file, source)) = self.write_some() {
                let mut waiting = self.shared.lock();
                if source.kind() == io::ErrorKind::StorageFull && waiting.failure.is_none() {
                    waiting.is_full = true;
                    return Err(CommitError::NoSpace { file });
                }
                let reason = source.to_string();
                waiting.failure = Some(reason.clone());
                return Err(CommitError::Failed { file, reason });
            }
        }
        Ok(self.shared.synced())
    }

    /// One write within one file, and its sync.
    fn write_some(&mut self) -> Result<(), (String, io::Error)> {
        let Some(first) = self.taken.front() else { return Ok(()) };
        let (write, at, begins) = (first.lsn, u64::from(first.at), first.begins);
        if begins {
            let path = self.folder.join(recover::file_name(write));
            let name = path.display().to_string();
            let file = recover::create(&path, &self.folder, write).map_err(|e| (name, e))?;
            self.tail = Some((path, file));
        }
        self.buffer.clear();
        let mut records = 0;
        for placed in &self.taken {
            if records > 0 && (placed.begins || self.buffer.len() > WRITE_BYTES) {
                break;
            }
            format::encode(placed.lsn, write, &placed.record, &mut self.buffer);
            records += 1;
        }
        let (path, file) = self.tail.as_ref().expect("the first record of a store begins a file");
        let name = || path.display().to_string();
        file.write_all_at(&self.buffer, at).map_err(|e| (name(), e))?;
        // After a failed sync the kernel may have dropped the pages: whatever the error says, it cannot be tried again.
        file.sync_data().map_err(|e| (name(), io::Error::other(format!("sync: {e}"))))?;
        let bytes: usize = self.taken.iter().take(records).map(|placed| format::encoded_len(&placed.record)).sum();
        if let Some(last) = self.taken.drain(..records).next_back() {
            self.shared.note_synced(last.lsn);
        }
        let mut waiting = self.shared.lock();
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        waiting.is_full = false;
        Ok(())
    }
}
