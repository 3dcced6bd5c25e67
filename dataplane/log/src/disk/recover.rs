//! Opening: every record of every file is read and checked. What follows the last whole record of the last file is a torn
//! tail, unless something shows that it had been synced; everything else that does not fit is damage.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::OpenError;
use super::format::{self, FILE_HEAD, FormatError, RECORD_MAGIC, Stored};
use crate::Lsn;

const SUFFIX: &str = ".braid";

/// The name of the file whose first record is `first`.
pub(super) fn file_name(first: Lsn) -> String {
    format!("{:020}{SUFFIX}", first.0)
}

/// What a folder holds.
pub(super) struct Found {
    pub(super) files: BTreeMap<Lsn, PathBuf>,
    pub(super) last: Lsn,
    /// Where the last file ends.
    pub(super) at: u32,
    pub(super) tail: Option<(PathBuf, File)>,
}

/// A new file whose first record will be `first`; durable, and so is its name.
pub(super) fn create(path: &Path, folder: &Path, first: Lsn) -> io::Result<File> {
    let file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
    file.write_all_at(&format::file_head(first), 0)?;
    let synced = file.sync_data().and_then(|()| File::open(folder)?.sync_all());
    synced.map_err(|e| io::Error::other(format!("sync: {e}")))?;
    Ok(file)
}

/// Reads a whole store; `visit` sees each record and where it begins in its file, or says why it cannot be.
pub(super) fn recover(
    folder: &Path,
    visit: &mut dyn FnMut(&Stored, u32) -> Result<(), String>,
) -> Result<Found, OpenError> {
    let mut paths = log_files(folder)?;
    let mut found = Found { files: BTreeMap::new(), last: Lsn(0), at: FILE_HEAD as u32, tail: None };
    let count = paths.len();
    for (i, (named, path)) in std::mem::take(&mut paths).into_iter().enumerate() {
        let is_last = i + 1 == count;
        let io = |source| OpenError::Io { path: path.display().to_string(), source };
        let bytes = Bytes::from(fs::read(&path).map_err(io)?);
        let expected = Lsn(found.last.0 + 1);
        let damaged =
            |at: usize, reason: String| OpenError::Damaged { file: path.display().to_string(), at: at as u64, reason };
        match format::read_file_head(&bytes) {
            Ok(first) if first == expected && first == named => {}
            Ok(first) => return Err(damaged(0, FormatError::Order { found: first, expected }.to_string())),
            // A file that was being created when the process ended: its head was not synced, so nothing was written after.
            Err(_) if is_last && named == expected && bytes.len() <= FILE_HEAD => {
                fs::remove_file(&path).map_err(io)?;
                File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
                break;
            }
            Err(e) => return Err(damaged(0, e.to_string())),
        }
        found.files.insert(named, path.clone());
        let mut at = FILE_HEAD;
        while at < bytes.len() {
            let expected = Lsn(found.last.0 + 1);
            let stored = match format::decode(&bytes.slice(at..)) {
                Ok(stored) if stored.lsn == expected => stored,
                Ok(stored) => {
                    return Err(damaged(at, FormatError::Order { found: stored.lsn, expected }.to_string()));
                }
                Err(e) if !is_last || was_synced(&bytes, at, expected) => return Err(damaged(at, e.to_string())),
                Err(_) => break,
            };
            visit(&stored, at as u32).map_err(|reason| damaged(at, reason))?;
            found.last = stored.lsn;
            at += format::encoded_len(&stored.record);
        }
        if is_last {
            let file = File::options().read(true).write(true).open(&path).map_err(io)?;
            if at < bytes.len() {
                file.set_len(at as u64).and_then(|()| file.sync_all()).map_err(io)?;
            }
            found.at = at as u32;
            found.tail = Some((path, file));
        }
    }
    if found.tail.is_none()
        && let Some((_, path)) = found.files.last_key_value()
    {
        let io = |source| OpenError::Io { path: path.display().to_string(), source };
        let file = File::options().read(true).write(true).open(path).map_err(io)?;
        found.at = file.metadata().map_err(io)?.len() as u32;
        found.tail = Some((path.clone(), file));
    }
    Ok(found)
}

/// Whether a whole record behind `at` was written by a later write than the one that record `expected` belongs to: then
/// `expected` had been synced.
fn was_synced(bytes: &Bytes, at: usize, expected: Lsn) -> bool {
    let rest = &bytes[at..];
    rest.windows(RECORD_MAGIC.len()).enumerate().skip(1).filter(|(_, window)| *window == RECORD_MAGIC).any(|(i, _)| {
        format::decode(&bytes.slice(at + i..)).is_ok_and(|stored| stored.lsn > expected && stored.write > expected)
    })
}

fn log_files(folder: &Path) -> Result<Vec<(Lsn, PathBuf)>, OpenError> {
    let io = |source| OpenError::Io { path: folder.display().to_string(), source };
    let mut files = Vec::new();
    for file in fs::read_dir(folder).map_err(io)? {
        let path = file.map_err(io)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(first) = name.strip_suffix(SUFFIX).and_then(|first| first.parse().ok()) {
            files.push((Lsn(first), path));
        }
    }
    files.sort_unstable();
    Ok(files)
}
