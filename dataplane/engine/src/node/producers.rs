//! What a segment knows of those who write to it: per producer the highest epoch, the last sequence, and where the newest
//! entries lie. All of it is rebuilt from the log.

use std::collections::{BTreeMap, VecDeque};

use braid_wire::proto::{Code, PublishedEntry, Refused};
use braid_wire::{Entry, Header};

/// How many of the newest entries of a producer can be sent again and get their first offsets.
pub(super) const WINDOW_ENTRIES: usize = 1_024;
/// The most producers that one segment remembers.
pub(super) const PRODUCERS_MAX: usize = 16_384;

/// The producers of one segment.
#[derive(Debug, Default)]
pub(super) struct Producers(BTreeMap<u64, Producer>);

#[derive(Debug, Default)]
struct Producer {
    epoch: u32,
    last: u64,
    /// Ascending by sequence, contiguous, up to `last`.
    window: VecDeque<Recent>,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    entry: PublishedEntry,
    crc32c: u32,
}

/// What an entry is to its producer's sequence.
#[derive(Debug, PartialEq)]
pub(super) enum Turn {
    /// The next one.
    Next,
    /// It is in the segment already.
    Again(PublishedEntry),
}

impl Producers {
    /// The epoch below which this producer is fenced; 0 if it is not known.
    pub(super) fn epoch(&self, producer: u64) -> u32 {
        self.0.get(&producer).map_or(0, |known| known.epoch)
    }

    /// Whether one more would be too many.
    pub(super) fn is_full_for(&self, producer: u64) -> bool {
        self.0.len() >= PRODUCERS_MAX && !self.0.contains_key(&producer)
    }

    /// The last sequence of this epoch that the segment holds, and where its newest entries lie.
    pub(super) fn position(&self, producer: u64, epoch: u32) -> (u64, Vec<PublishedEntry>) {
        match self.0.get(&producer).filter(|known| known.epoch == epoch) {
            Some(known) => (known.last, known.window.iter().map(|recent| recent.entry).collect()),
            None => (0, Vec::new()),
        }
    }

    /// Lower epochs are fenced.
    pub(super) fn raise(&mut self, producer: u64, epoch: u32) {
        let known = self.0.entry(producer).or_default();
        if epoch > known.epoch {
            *known = Producer { epoch, ..Producer::default() };
        }
    }

    /// Whether the entry is the next one, or one that is here already.
    pub(super) fn turn(&self, entry: &Entry) -> Result<Turn, Refused> {
        let header = &entry.header;
        let epoch = self.epoch(header.producer_id);
        if header.producer_epoch < epoch {
            return Err(fenced(epoch, header.producer_epoch));
        }
        let known = self.0.get(&header.producer_id).filter(|_| header.producer_epoch == epoch);
        let next = known.map_or(0, |known| known.last) + 1;
        if header.first_seq == next {
            return Ok(Turn::Next);
        }
        let gap = |message: String| Refused::mismatch(Code::SequenceGap, message, next, header.first_seq);
        let Some(known) = known.filter(|_| header.first_seq < next) else {
            return Err(gap(format!("sequence {} came, {next} is the next", header.first_seq)));
        };
        let at = known.window.partition_point(|recent| recent.entry.first_sequence < header.first_seq);
        match known.window.get(at) {
            Some(recent) if recent.entry.first_sequence == header.first_seq && recent.entry.count == header.count => {
                if recent.crc32c == header.crc32c {
                    Ok(Turn::Again(recent.entry))
                } else {
                    let message = format!("sequence {} was sent before with other bytes", header.first_seq);
                    Err(Refused::new(Code::Malformed, message))
                }
            }
            _ => Err(gap(format!("sequence {} is no entry of the last {WINDOW_ENTRIES}", header.first_seq))),
        }
    }

    /// The segment holds this entry now.
    pub(super) fn appended(&mut self, header: &Header) {
        self.raise(header.producer_id, header.producer_epoch);
        let Some(known) = self.0.get_mut(&header.producer_id) else { return };
        known.last = header.last_seq();
        if known.window.len() == WINDOW_ENTRIES {
            known.window.pop_front();
        }
        let entry =
            PublishedEntry { first_sequence: header.first_seq, count: header.count, base_offset: header.base_offset };
        known.window.push_back(Recent { entry, crc32c: header.crc32c });
    }
}

/// The refusal of an epoch that a higher one fenced.
pub(super) fn fenced(have: u32, sent: u32) -> Refused {
    let message = format!("producer epoch {sent} is fenced, {have} is open");
    Refused::mismatch(Code::ProducerFenced, message, u64::from(have), u64::from(sent))
}
