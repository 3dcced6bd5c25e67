//! What the engine asks of a store, whatever it is made of.

use braid_model::Offset;

use crate::{Lsn, Record, SegmentKey};

/// The engine's half of a log. Nothing here waits for a disk to sync.
pub trait Store {
    /// Adds a record; it is durable once the committer says so. Never blocks.
    ///
    /// # Errors
    /// Nothing was added: the store failed, has no space, or the body is too large.
    fn append(&mut self, record: Record) -> Result<Lsn, AppendError>;

    /// The entries of `key` that hold messages of `from..until`, in order: first the one that contains `from`, then on until
    /// their bodies are more than `bytes_max` together; at least one if there is any.
    ///
    /// # Errors
    /// The file could not be read, or its bytes are damaged.
    fn read(
        &mut self,
        key: SegmentKey,
        from: Offset,
        until: Offset,
        bytes_max: usize,
    ) -> Result<Vec<Record>, ReadError>;

    /// Shows every record that was durable when the store was opened, in the order of appends.
    ///
    /// # Errors
    /// As for [`Store::read`].
    fn replay(&mut self, visit: &mut dyn FnMut(Lsn, Record)) -> Result<(), ReadError>;

    /// The segment is gone: its entries are never read again.
    fn forget(&mut self, key: SegmentKey);

    /// The number of the last record, 0 if there is none.
    fn last(&self) -> Lsn;
}

/// Why a record was not added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// A write or sync failed: the store takes nothing until it is opened anew.
    #[error("the store failed: {reason}")]
    Failed { reason: String },
    /// The disk is full. Entries are taken again once there is space; notes are taken and wait for it.
    #[error("the store has no space left")]
    NoSpace,
    /// The disk is so slow, or full for so long, that nothing more may wait in memory.
    #[error("{bytes} bytes wait to be written, the most is {max}")]
    Behind { bytes: usize, max: usize },
    /// The body is too large.
    #[error("record body is {bytes} bytes, the most is {max}")]
    TooLarge { bytes: usize, max: usize },
    /// An entry that does not begin where its segment ends.
    #[error("entry of segment `{key}` begins at {sent}, the segment ends at {end}")]
    Gap { key: SegmentKey, end: Offset, sent: Offset },
}

/// Why records could not be read. Nothing is ever skipped.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system said no.
    #[error("`{file}` at {at}: {source}")]
    Io { file: String, at: u64, source: std::io::Error },
    /// The bytes are not what was written.
    #[error("`{file}` is damaged at {at}: {reason}")]
    Damaged { file: String, at: u64, reason: String },
}
