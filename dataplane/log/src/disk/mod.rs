//! A store in a folder: log files that are only ever appended to, an index and the newest entries in memory.
//!
//! The engine's half decides where each record goes and never waits; the [`Committer`], on a thread of its own, writes and
//! syncs. Plain files that grow are simple, not fast: what is behind [`Store`] may change.

mod commit;
mod format;
mod recover;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_model::Offset;
use bytes::{Bytes, BytesMut};

pub use commit::{CommitError, Committer};
use commit::{Placed, Shared};

use crate::index::Index;
use crate::record::RECORD_BYTES_MAX;
use crate::{AppendError, Lsn, ReadError, Record, SegmentKey, Store};

/// Sizes of a store, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A file is not begun anew before it would be larger than this. At most 3 GiB.
    pub file_bytes: u32,
    /// How much of the newest entries stays in memory, besides what is not synced.
    pub tail_bytes: usize,
    /// How much may wait to be written.
    pub pending_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { file_bytes: 256 << 20, tail_bytes: 64 << 20, pending_bytes: 256 << 20 }
    }
}

/// Why a folder could not be opened as a store. Nothing was changed, but for a torn tail that may have been cut.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system said no.
    #[error("`{path}`: {source}")]
    Io { path: String, source: io::Error },
    /// Another process has the store open.
    #[error("`{path}` is locked: another process has the store open")]
    Locked { path: String },
    /// Bytes that were durable are not what was written. A person must look; nothing is skipped.
    #[error("`{file}` is damaged at {at}: {reason}")]
    Damaged { file: String, at: u64, reason: String },
}

/// The engine's half of a store on disk.
#[derive(Debug)]
pub struct DiskStore {
    options: Options,
    shared: Arc<Shared>,
    /// Every file by its first record.
    files: BTreeMap<Lsn, PathBuf>,
    index: Index<Place>,
    /// The newest entries, ascending.
    tail: VecDeque<(Lsn, Record)>,
    tail_bytes: usize,
    last: Lsn,
    opened: Lsn,
    /// Where the next record goes in the last file.
    at: u32,
    folder: PathBuf,
    readers: BTreeMap<Lsn, File>,
    _lock: File,
}

/// Where an entry is; its file is the last one that begins at or before `lsn`.
#[derive(Clone, Copy, Debug)]
struct Place {
    lsn: Lsn,
    at: u32,
    bytes: u32,
}

/// Files kept open for reading.
const READERS_MAX: usize = 64;
/// What one read of a replay takes from a file.
const REPLAY_BYTES: usize = 1 << 20;

impl DiskStore {
    /// Opens the store in `folder`, which is made if it is not there: every file is read and checked, a torn tail is cut.
    ///
    /// # Errors
    /// See [`OpenError`]; damage names the file, the offset and the reason.
    pub fn open(folder: &Path, options: Options) -> Result<(Self, Committer), OpenError> {
        let io = |path: &Path| {
            let path = path.display().to_string();
            move |source| OpenError::Io { path, source }
        };
        fs::create_dir_all(folder).map_err(io(folder))?;
        let lock_path = folder.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(OpenError::Locked { path: lock_path.display().to_string() });
            }
            Err(fs::TryLockError::Error(source)) => return Err(io(&lock_path)(source)),
        }
        let mut index = Index::default();
        let found = recover::recover(folder, &mut |stored, at| {
            let place = Place { lsn: stored.lsn, at, bytes: stored.record.body.len() as u32 };
            index.check(&stored.record).map_err(|e| e.to_string())?;
            index.insert(&stored.record, place);
            Ok(())
        })?;
        let shared = Arc::new(Shared::default());
        shared.note_synced(found.last);
        let committer = Committer::new(Arc::clone(&shared), folder.to_owned(), found.tail);
        let store = Self {
            options,
            shared,
            files: found.files,
            index,
            tail: VecDeque::new(),
            tail_bytes: 0,
            last: found.last,
            opened: found.last,
            at: found.at,
            folder: folder.to_owned(),
            readers: BTreeMap::new(),
            _lock: lock,
        };
        Ok((store, committer))
    }

    fn file_of(&self, lsn: Lsn) -> Option<(Lsn, &PathBuf)> {
        self.files.range(..=lsn).next_back().map(|(first, path)| (*first, path))
    }

    fn read_place(&mut self, place: Place) -> Result<Record, ReadError> {
        if let Ok(i) = self.tail.binary_search_by_key(&place.lsn, |(lsn, _)| *lsn) {
            return Ok(self.tail[i].1.clone());
        }
        let (first, path) = self.file_of(place.lsn).expect("an indexed record lies in a file");
        let (path, at) = (path.clone(), u64::from(place.at));
        let name = || path.display().to_string();
        let io = |source| ReadError::Io { file: name(), at, source };
        if !self.readers.contains_key(&first) {
            if self.readers.len() >= READERS_MAX {
                self.readers.pop_first();
            }
            self.readers.insert(first, File::open(&path).map_err(io)?);
        }
        let mut bytes = BytesMut::zeroed(format::RECORD_HEAD + place.bytes as usize);
        self.readers[&first].read_exact_at(&mut bytes, at).map_err(io)?;
        let damaged = |reason: String| ReadError::Damaged { file: name(), at, reason };
        let stored = format::decode(&bytes.freeze()).map_err(|e| damaged(e.to_string()))?;
        if stored.lsn != place.lsn {
            return Err(damaged(format!("record {} lies where {} was written", stored.lsn, place.lsn)));
        }
        Ok(stored.record)
    }

    fn trim_tail(&mut self) {
        let synced = self.shared.synced();
        while self.tail_bytes > self.options.tail_bytes && self.tail.front().is_some_and(|(lsn, _)| *lsn <= synced) {
            if let Some((_, record)) = self.tail.pop_front() {
                self.tail_bytes -= record.body.len();
            }
        }
    }
}

impl Store for DiskStore {
    fn append(&mut self, record: Record) -> Result<Lsn, AppendError> {
        if record.body.len() > RECORD_BYTES_MAX {
            return Err(AppendError::TooLarge { bytes: record.body.len(), max: RECORD_BYTES_MAX });
        }
        self.index.check(&record)?;
        let lsn = Lsn(self.last.0 + 1);
        let bytes = format::encoded_len(&record) as u32;
        let begins = self.files.is_empty() || self.at.saturating_add(bytes) > self.options.file_bytes;
        let at = if begins { format::FILE_HEAD as u32 } else { self.at };
        self.shared.push(Placed { lsn, at, begins, record: record.clone() }, self.options.pending_bytes)?;
        if begins {
            self.files.insert(lsn, self.folder.join(recover::file_name(lsn)));
        }
        self.at = at + bytes;
        self.last = lsn;
        if record.is_entry() {
            self.index.insert(&record, Place { lsn, at, bytes: record.body.len() as u32 });
            self.tail_bytes += record.body.len();
            self.tail.push_back((lsn, record));
            self.trim_tail();
        }
        Ok(lsn)
    }

    fn read(
        &mut self,
        key: SegmentKey,
        from: Offset,
        until: Offset,
        bytes_max: usize,
    ) -> Result<Vec<Record>, ReadError> {
        let mut bytes = 0;
        let places: Vec<Place> = { self.index.within(key, from, until).iter() }
            .map(|(_, place)| *place)
            .take_while(|place| {
                let fits = bytes <= bytes_max;
                bytes += place.bytes as usize;
                fits
            })
            .collect();
        places.into_iter().map(|place| self.read_place(place)).collect()
    }

    fn replay(&mut self, visit: &mut dyn FnMut(Lsn, Record)) -> Result<(), ReadError> {
        for (first, path) in &self.files {
            if *first > self.opened {
                break;
            }
            let name = || path.display().to_string();
            let file = File::open(path).map_err(|source| ReadError::Io { file: name(), at: 0, source })?;
            let mut at = format::FILE_HEAD as u64;
            let mut buffer = BytesMut::new();
            loop {
                let need = match format::announced_len(&buffer) {
                    Ok(need) => need,
                    Err(format::FormatError::Short { need, .. }) => need,
                    Err(e) => return Err(ReadError::Damaged { file: name(), at, reason: e.to_string() }),
                };
                if buffer.len() < need {
                    let have = buffer.len();
                    let more = (need - have).max(REPLAY_BYTES);
                    buffer.resize(have + more, 0);
                    let read = read_up_to(&file, &mut buffer[have..], at + have as u64)
                        .map_err(|source| ReadError::Io { file: name(), at, source })?;
                    buffer.truncate(have + read);
                    if read == 0 && have == 0 {
                        break;
                    }
                    if read == 0 {
                        return Err(ReadError::Damaged {
                            file: name(),
                            at,
                            reason: format!("{have} bytes are left, {need} are needed"),
                        });
                    }
                    continue;
                }
                let stored = format::decode(&Bytes::from(buffer.split_to(need))).map_err(|e| ReadError::Damaged {
                    file: name(),
                    at,
                    reason: e.to_string(),
                })?;
                at += need as u64;
                if stored.lsn > self.opened {
                    return Ok(());
                }
                visit(stored.lsn, stored.record);
            }
        }
        Ok(())
    }

    fn forget(&mut self, key: SegmentKey) {
        self.index.forget(key);
    }

    fn last(&self) -> Lsn {
        self.last
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Reads until `buffer` is full or the file ends.
fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], at + read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(read)
}
