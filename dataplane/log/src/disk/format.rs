//! The bytes of a log file: a head, then records, each under its own CRC32C. Little-endian.
//!
//! Every record names the first record of the write it was part of: all before that were synced when it was written. So a
//! reader can tell a torn tail, which nobody was told of, from damage.

use braid_model::{Incarnation, Micros, Offset, SegmentId};
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::record::RECORD_BYTES_MAX;
use crate::{Lsn, Record, SegmentKey};

/// Bytes of a file's head: magic 4, version 1, zero 3, first lsn 8, crc32c 4, zero 12.
pub(crate) const FILE_HEAD: usize = 32;
/// Bytes of a record before its body: magic 4, crc32c 4, body length 4, version 1, kind 1, zero 2, count 4, lsn 8, first
/// lsn of the write 8, incarnation 8, segment 8, base 8, time 8. The CRC is over all that follows it.
pub(crate) const RECORD_HEAD: usize = 68;
const FILE_MAGIC: u32 = u32::from_le_bytes(*b"BRDL");
pub(crate) const RECORD_MAGIC: [u8; 4] = *b"BRDR";
const VERSION: u8 = 1;

/// A record and what only the file knows of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) lsn: Lsn,
    /// The first record of the write that wrote it.
    pub(crate) write: Lsn,
    pub(crate) record: Record,
}

/// Why bytes are not a record or head.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("{have} bytes are left, {need} are needed")]
    Short { have: usize, need: usize },
    #[error("the magic is {found:#010x}")]
    Magic { found: u32 },
    #[error("the version is {found}, this build reads {VERSION}")]
    Version { found: u8 },
    #[error("the body length is {found}, the most is {RECORD_BYTES_MAX}")]
    Length { found: usize },
    #[error("the checksum is {computed:#010x}, the file says {said:#010x}")]
    Checksum { computed: u32, said: u32 },
    #[error("record {found} follows where {expected} must")]
    Order { found: Lsn, expected: Lsn },
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

pub(crate) fn file_head(first: Lsn) -> [u8; FILE_HEAD] {
    let mut head = [0; FILE_HEAD];
    let mut out = &mut head[..];
    out.put_u32_le(FILE_MAGIC);
    out.put_u8(VERSION);
    out.put_bytes(0, 3);
    out.put_u64_le(first.0);
    let crc = crc32c(&head[..16]);
    head[16..20].copy_from_slice(&crc.to_le_bytes());
    head
}

pub(crate) fn read_file_head(bytes: &[u8]) -> Result<Lsn, FormatError> {
    let Some(mut head) = bytes.get(..FILE_HEAD) else {
        return Err(FormatError::Short { have: bytes.len(), need: FILE_HEAD });
    };
    let computed = crc32c(&head[..16]);
    let found = head.get_u32_le();
    if found != FILE_MAGIC {
        return Err(FormatError::Magic { found });
    }
    let version = head.get_u8();
    head.advance(3);
    let first = Lsn(head.get_u64_le());
    let said = head.get_u32_le();
    if said != computed {
        return Err(FormatError::Checksum { computed, said });
    }
    if version != VERSION {
        return Err(FormatError::Version { found: version });
    }
    Ok(first)
}

/// How many bytes a record takes.
pub(crate) fn encoded_len(record: &Record) -> usize {
    RECORD_HEAD + record.body.len()
}

pub(crate) fn encode(lsn: Lsn, write: Lsn, record: &Record, out: &mut BytesMut) {
    let start = out.len();
    out.put_slice(&RECORD_MAGIC);
    out.put_u32_le(0);
    out.put_u32_le(record.body.len() as u32);
    out.put_u8(VERSION);
    out.put_u8(record.kind);
    out.put_u16_le(0);
    out.put_u32_le(record.count);
    out.put_u64_le(lsn.0);
    out.put_u64_le(write.0);
    out.put_u64_le(record.key.incarnation.0);
    out.put_u64_le(record.key.segment.0);
    out.put_u64_le(record.base.0);
    out.put_u64_le(record.time.0);
    out.put_slice(&record.body);
    let crc = crc32c(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// The whole length of the record whose head `bytes` begins with, unchecked but for its bound.
pub(crate) fn announced_len(bytes: &[u8]) -> Result<usize, FormatError> {
    let Some(mut head) = bytes.get(..RECORD_HEAD) else {
        return Err(FormatError::Short { have: bytes.len(), need: RECORD_HEAD });
    };
    let found = head.get_u32_le();
    if found.to_le_bytes() != RECORD_MAGIC {
        return Err(FormatError::Magic { found });
    }
    head.advance(4);
    match head.get_u32_le() as usize {
        found if found > RECORD_BYTES_MAX => Err(FormatError::Length { found }),
        body => Ok(RECORD_HEAD + body),
    }
}

/// The record that `bytes` begins with. Never panics.
pub(crate) fn decode(bytes: &Bytes) -> Result<Stored, FormatError> {
    let need = announced_len(bytes)?;
    if bytes.len() < need {
        return Err(FormatError::Short { have: bytes.len(), need });
    }
    let computed = crc32c(&bytes[8..need]);
    let mut head = &bytes[4..need];
    let said = head.get_u32_le();
    if computed != said {
        return Err(FormatError::Checksum { computed, said });
    }
    head.advance(4);
    let found = head.get_u8();
    if found != VERSION {
        return Err(FormatError::Version { found });
    }
    let kind = head.get_u8();
    head.advance(2);
    let count = head.get_u32_le();
    let (lsn, write) = (Lsn(head.get_u64_le()), Lsn(head.get_u64_le()));
    let key = SegmentKey { incarnation: Incarnation(head.get_u64_le()), segment: SegmentId(head.get_u64_le()) };
    let (base, time) = (Offset(head.get_u64_le()), Micros(head.get_u64_le()));
    let body = bytes.slice(RECORD_HEAD..need);
    Ok(Stored { lsn, write, record: Record { kind, key, base, count, time, body } })
}
