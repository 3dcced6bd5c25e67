//! An entry: one batch of messages of one bucket. A fixed 64-byte little-endian header in clear, then an opaque payload.
//!
//! `base_offset` and `append_time` belong to the node and lie outside the checksum, so the bytes a producer sent are the bytes on disk.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// First four bytes of a header: "BRDE".
pub const MAGIC: u32 = u32::from_le_bytes(*b"BRDE");
const FORMAT: u8 = 1;

/// Why bytes are not an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("entry has {have} bytes, it needs {need}")]
    Short { have: usize, need: usize },
    #[error("entry magic is {found:#010x}, it must be {MAGIC:#010x}")]
    Magic { found: u32 },
    #[error("entry version is {found}, this build reads {FORMAT}")]
    Version { found: u8 },
    #[error("entry codec is {found}, it must be 0")]
    Codec { found: u8 },
    #[error("entry flags are {found:#06x}, no flag is known")]
    Flags { found: u16 },
    #[error("entry payload_len is {said}, {have} bytes follow")]
    PayloadLength { said: u32, have: usize },
    #[error("entry count is 0, it must be at least 1")]
    Empty,
    #[error("entry {ring} hashes {min}..={max} are inverted")]
    Inverted { ring: &'static str, min: u16, max: u16 },
    #[error("entry sequences overflow: first {first}, count {count}")]
    Sequence { first: u64, count: u32 },
    #[error("entry checksum is {computed:#010x}, its header says {said:#010x}")]
    Checksum { computed: u32, said: u32 },
}

/// The header of an entry. All hashes inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// 0: none. How the payload is compressed, as a whole.
    pub codec: u8,
    /// No flag is known yet.
    pub flags: u16,
    /// CRC32C over all of the header but itself, `base_offset` and `append_time`, then the payload.
    pub crc32c: u32,
    /// Bytes of the payload.
    pub payload_len: u32,
    /// Offset of the first message; set by the node.
    pub base_offset: u64,
    /// Microseconds since 1970; set by the node.
    pub append_time: u64,
    /// Messages, at least 1.
    pub count: u32,
    /// The producer's epoch, from 1.
    pub producer_epoch: u32,
    /// Least and greatest routing hash of the messages.
    pub route: (u16, u16),
    /// Least and greatest bucket hash of the messages.
    pub bucket: (u16, u16),
    /// The producer.
    pub producer_id: u64,
    /// The first message's sequence, from 1; the others follow.
    pub first_seq: u64,
}

/// A header and its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub header: Header,
    pub payload: Bytes,
}

impl Header {
    /// Appends the 64 bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&self.bytes());
    }

    /// The 64 bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut out = &mut bytes[..];
        out.put_u32_le(MAGIC);
        out.put_u8(FORMAT);
        out.put_u8(self.codec);
        out.put_u16_le(self.flags);
        out.put_u32_le(self.crc32c);
        out.put_u32_le(self.payload_len);
        out.put_u64_le(self.base_offset);
        out.put_u64_le(self.append_time);
        out.put_u32_le(self.count);
        out.put_u32_le(self.producer_epoch);
        for hash in [self.route.0, self.route.1, self.bucket.0, self.bucket.1] {
            out.put_u16_le(hash);
        }
        out.put_u64_le(self.producer_id);
        out.put_u64_le(self.first_seq);
        bytes
    }

    /// Reads and checks a header; its payload is not looked at. Never panics.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, EntryError> {
        if bytes.len() < HEADER_BYTES {
            return Err(EntryError::Short { have: bytes.len(), need: HEADER_BYTES });
        }
        let found = bytes.get_u32_le();
        if found != MAGIC {
            return Err(EntryError::Magic { found });
        }
        let found = bytes.get_u8();
        if found != FORMAT {
            return Err(EntryError::Version { found });
        }
        let header = Self {
            codec: bytes.get_u8(),
            flags: bytes.get_u16_le(),
            crc32c: bytes.get_u32_le(),
            payload_len: bytes.get_u32_le(),
            base_offset: bytes.get_u64_le(),
            append_time: bytes.get_u64_le(),
            count: bytes.get_u32_le(),
            producer_epoch: bytes.get_u32_le(),
            route: (bytes.get_u16_le(), bytes.get_u16_le()),
            bucket: (bytes.get_u16_le(), bytes.get_u16_le()),
            producer_id: bytes.get_u64_le(),
            first_seq: bytes.get_u64_le(),
        };
        header.check()?;
        Ok(header)
    }

    /// The sequence of the last message.
    #[must_use]
    pub const fn last_seq(&self) -> u64 {
        self.first_seq + (self.count as u64 - 1)
    }

    /// The offset after the last message.
    #[must_use]
    pub const fn end_offset(&self) -> u64 {
        self.base_offset + self.count as u64
    }

    /// The checksum that belongs into `crc32c`.
    #[must_use]
    pub fn checksum(&self, payload: &[u8]) -> u32 {
        let bytes = self.bytes();
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        for part in [&bytes[..8], &bytes[12..16], &bytes[32..], payload] {
            digest.update(part);
        }
        digest.finalize() as u32
    }

    const fn check(&self) -> Result<(), EntryError> {
        if self.codec != 0 {
            return Err(EntryError::Codec { found: self.codec });
        }
        if self.flags != 0 {
            return Err(EntryError::Flags { found: self.flags });
        }
        if self.count == 0 {
            return Err(EntryError::Empty);
        }
        if self.route.0 > self.route.1 {
            return Err(EntryError::Inverted { ring: "route", min: self.route.0, max: self.route.1 });
        }
        if self.bucket.0 > self.bucket.1 {
            return Err(EntryError::Inverted { ring: "bucket", min: self.bucket.0, max: self.bucket.1 });
        }
        if self.first_seq == 0 || self.first_seq.checked_add(self.count as u64).is_none() {
            return Err(EntryError::Sequence { first: self.first_seq, count: self.count });
        }
        if self.base_offset.checked_add(self.count as u64).is_none() {
            return Err(EntryError::Sequence { first: self.base_offset, count: self.count });
        }
        Ok(())
    }
}

impl Entry {
    /// Header and payload of a frame body; the checksum is left to [`Entry::verify`]. Never panics.
    pub fn decode(mut body: Bytes) -> Result<Self, EntryError> {
        let header = Header::decode(&body)?;
        body.advance(HEADER_BYTES);
        if body.len() != header.payload_len as usize {
            return Err(EntryError::PayloadLength { said: header.payload_len, have: body.len() });
        }
        Ok(Self { header, payload: body })
    }

    /// Whether the checksum is right.
    pub fn verify(&self) -> Result<(), EntryError> {
        let computed = self.header.checksum(&self.payload);
        if computed == self.header.crc32c {
            Ok(())
        } else {
            Err(EntryError::Checksum { computed, said: self.header.crc32c })
        }
    }

    /// Header and payload bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }
}
