//! The bodies of durable records: a version byte, then fields little-endian. Decoding never panics.
//!
//! An operator's command is kept as the frame it came in: replaying it at its place in the log gives the same result.

use std::sync::Arc;

use braid_log::{Record, SegmentKey};
use braid_model::{Generation, Micros, Offset, OffsetRange};
use braid_wire::{Frame, proto};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The kind of entries; their body is the entry as it goes over the wire.
pub(super) const ENTRY: u8 = 1;
const VERSION: u8 = 1;
/// The longest name of a subscription.
pub(super) const NAME_BYTES_MAX: usize = 253;
/// Kind and body of a frame that holds a command, besides the command: its length and kind.
const FRAME_HEAD: usize = 6;

/// The name of a subscription.
pub(super) type Name = Arc<str>;

/// Everything a node remembers besides entries. Those about a segment lie under its key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Note {
    /// The store was opened for the `counter`th time.
    Start { counter: u64 },
    /// An operator's command was accepted: it is executed, and its fence holds.
    Command(Box<proto::Request>),
    /// A producer opened with this epoch: lower ones are fenced.
    ProducerEpoch { producer: u64, epoch: u32 },
    /// These messages were acked for the first time.
    Acked { subscription: Name, generation: Generation, ranges: Vec<OffsetRange> },
    /// The segment, which is here, is drained.
    Drained { subscription: Name, generation: Generation },
    /// The segment, which is elsewhere, is drained: its node said so.
    Told { subscription: Name, generation: Generation },
}

/// Why a body is not a note.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoteError {
    #[error("kind is `{0}`, known are 2..=7")]
    Kind(u8),
    #[error("version is {0}, this build reads {VERSION}")]
    Version(u8),
    #[error("body has {have} bytes, field `{field}` needs {need}")]
    Short { field: &'static str, have: usize, need: usize },
    #[error("field `{0}` is malformed")]
    Field(&'static str),
}

impl Note {
    const fn kind(&self) -> u8 {
        match self {
            Self::Start { .. } => 2,
            Self::Command(_) => 3,
            Self::ProducerEpoch { .. } => 4,
            Self::Acked { .. } => 5,
            Self::Drained { .. } => 6,
            Self::Told { .. } => 7,
        }
    }

    /// The record of this note.
    pub(super) fn record(&self, key: SegmentKey, time: Micros) -> Record {
        let mut body = BytesMut::with_capacity(64);
        body.put_u8(VERSION);
        match self {
            Self::Start { counter } => body.put_u64_le(*counter),
            Self::Command(request) => {
                let (head, _) = Frame::Request((**request).clone()).encode();
                body.put_slice(&head);
            }
            Self::ProducerEpoch { producer, epoch } => {
                body.put_u64_le(*producer);
                body.put_u32_le(*epoch);
            }
            Self::Acked { subscription, generation, ranges } => {
                put_subscription(&mut body, subscription, *generation);
                body.put_u32_le(ranges.len() as u32);
                for range in ranges {
                    body.put_u64_le(range.from().0);
                    body.put_u64_le(range.to().0);
                }
            }
            Self::Drained { subscription, generation } | Self::Told { subscription, generation } => {
                put_subscription(&mut body, subscription, *generation);
            }
        }
        Record { kind: self.kind(), key, base: Offset(0), count: 0, time, body: body.freeze() }
    }

    /// The note of a record that is no entry.
    pub(super) fn decode(kind: u8, mut body: Bytes) -> Result<Self, NoteError> {
        let version = u8::from_le_bytes(take(&mut body, "version")?);
        if version != VERSION {
            return Err(NoteError::Version(version));
        }
        let body = &mut body;
        match kind {
            2 => Ok(Self::Start { counter: take_u64(body, "counter")? }),
            3 => {
                if body.len() < FRAME_HEAD {
                    return Err(NoteError::Short { field: "command", have: body.len(), need: FRAME_HEAD });
                }
                match Frame::decode(&mut BytesMut::from(&body[..])) {
                    Ok(Some(Frame::Request(request))) => Ok(Self::Command(Box::new(request))),
                    _ => Err(NoteError::Field("command")),
                }
            }
            4 => Ok(Self::ProducerEpoch {
                producer: take_u64(body, "producer")?,
                epoch: u32::from_le_bytes(take(body, "epoch")?),
            }),
            5 => {
                let (subscription, generation) = take_subscription(body)?;
                let count = u32::from_le_bytes(take(body, "ranges")?) as usize;
                let need = count.saturating_mul(16);
                if body.len() < need {
                    return Err(NoteError::Short { field: "ranges", have: body.len(), need });
                }
                let mut ranges = Vec::with_capacity(count);
                for _ in 0..count {
                    let (from, to) = (Offset(take_u64(body, "from")?), Offset(take_u64(body, "to")?));
                    ranges.push(OffsetRange::new(from, to).ok_or(NoteError::Field("ranges"))?);
                }
                Ok(Self::Acked { subscription, generation, ranges })
            }
            6 => take_subscription(body).map(|(subscription, generation)| Self::Drained { subscription, generation }),
            7 => take_subscription(body).map(|(subscription, generation)| Self::Told { subscription, generation }),
            kind => Err(NoteError::Kind(kind)),
        }
    }
}

fn put_subscription(body: &mut BytesMut, name: &str, generation: Generation) {
    body.put_u8(name.len().min(NAME_BYTES_MAX) as u8);
    body.put_slice(&name.as_bytes()[..name.len().min(NAME_BYTES_MAX)]);
    body.put_u64_le(generation.0);
}

fn take_subscription(body: &mut Bytes) -> Result<(Name, Generation), NoteError> {
    let length = usize::from(u8::from_le_bytes(take(body, "name length")?));
    if body.len() < length {
        return Err(NoteError::Short { field: "name", have: body.len(), need: length });
    }
    let name = body.split_to(length);
    let name = std::str::from_utf8(&name).map_err(|_| NoteError::Field("name"))?;
    Ok((name.into(), Generation(take_u64(body, "generation")?)))
}

fn take_u64(body: &mut Bytes, field: &'static str) -> Result<u64, NoteError> {
    take(body, field).map(u64::from_le_bytes)
}

fn take<const N: usize>(body: &mut Bytes, field: &'static str) -> Result<[u8; N], NoteError> {
    let Some(bytes) = body.first_chunk::<N>().copied() else {
        return Err(NoteError::Short { field, have: body.len(), need: N });
    };
    body.advance(N);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes() -> Vec<Note> {
        let request = proto::Request {
            id: 7,
            command: Some(proto::request::Command::Drop(proto::DropTopic {})),
            ..proto::Request::default()
        };
        let (subscription, generation): (Name, _) = ("s".into(), Generation(4));
        let ranges = vec![OffsetRange::of(Offset(1), 2), OffsetRange::of(Offset(9), 1)];
        vec![
            Note::Start { counter: 3 },
            Note::Command(Box::new(request)),
            Note::ProducerEpoch { producer: 1 << 60, epoch: 9 },
            Note::Acked { subscription: Arc::clone(&subscription), generation, ranges },
            Note::Drained { subscription: Arc::clone(&subscription), generation },
            Note::Told { subscription, generation },
        ]
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_never_from_a_part_of_it() {
        for note in notes() {
            let record = note.record(SegmentKey::default(), Micros(1));
            assert_eq!(Note::decode(record.kind, record.body.clone()), Ok(note.clone()));
            for cut in 0..record.body.len() {
                assert!(Note::decode(record.kind, record.body.slice(..cut)).is_err(), "{note:?} cut at {cut}");
            }
        }
        assert_eq!(Note::decode(2, Bytes::from_static(&[9, 0])), Err(NoteError::Version(9)));
        assert_eq!(Note::decode(99, Bytes::from_static(&[1])), Err(NoteError::Kind(99)));
    }
}
