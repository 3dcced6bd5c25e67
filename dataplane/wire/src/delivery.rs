//! An entry on its way to a consumer: whose bucket and round it belongs to, and which of its messages are acked already.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::entry::{Entry, EntryError};

/// The most acked runs that one delivery names.
pub const ACKED_RUNS_MAX: usize = 1024;

/// Body: bucket u32, round u64, number of acked runs u16, 2 bytes of zero, per run (first message u32, messages u32), then the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub bucket: u32,
    pub round: u64,
    /// Runs of messages within the entry, (index, count), that are acked already and must not be handed out again.
    pub acked: Vec<(u32, u32)>,
    pub entry: Entry,
}

/// Why bytes are not a delivery.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    #[error("delivery has {have} bytes, its head needs {need}")]
    Short { have: usize, need: usize },
    #[error("delivery names {runs} acked runs, it may name {ACKED_RUNS_MAX}")]
    Runs { runs: usize },
    #[error("acked run {index}+{count} leaves the entry of {messages} messages")]
    Run { index: u32, count: u32, messages: u32 },
    #[error(transparent)]
    Entry(#[from] EntryError),
}

impl Delivery {
    pub(crate) fn encode_head(&self, out: &mut BytesMut) {
        out.put_u32_le(self.bucket);
        out.put_u64_le(self.round);
        out.put_u16_le(self.acked.len() as u16);
        out.put_u16_le(0);
        for (index, count) in &self.acked {
            out.put_u32_le(*index);
            out.put_u32_le(*count);
        }
        self.entry.header.encode(out);
    }

    pub(crate) fn encoded_len(&self) -> usize {
        16 + 8 * self.acked.len() + self.entry.encoded_len()
    }

    /// Never panics.
    pub(crate) fn decode(mut body: Bytes) -> Result<Self, DeliveryError> {
        if body.len() < 16 {
            return Err(DeliveryError::Short { have: body.len(), need: 16 });
        }
        let (bucket, round) = (body.get_u32_le(), body.get_u64_le());
        let runs = usize::from(body.get_u16_le());
        body.advance(2);
        if runs > ACKED_RUNS_MAX {
            return Err(DeliveryError::Runs { runs });
        }
        if body.len() < 8 * runs {
            return Err(DeliveryError::Short { have: 16 + body.len(), need: 16 + 8 * runs });
        }
        let acked: Vec<_> = (0..runs).map(|_| (body.get_u32_le(), body.get_u32_le())).collect();
        let entry = Entry::decode(body)?;
        let messages = entry.header.count;
        for &(index, count) in &acked {
            if index.checked_add(count).is_none_or(|end| end > messages) {
                return Err(DeliveryError::Run { index, count, messages });
            }
        }
        Ok(Self { bucket, round, acked, entry })
    }
}
