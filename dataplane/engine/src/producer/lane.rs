//! One segment as a producer writes to it: open batches, numbered entries not yet settled, and the channel.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use braid_model::{BucketIndex, Micros, Offset};
use braid_wire::{Frame, proto};

use super::batch::{Batch, Numbering, Pending, Sent};
use super::{Limits, Ticket};
use crate::ChannelId;
use crate::backoff::Backoff;
use crate::remote::Outbox;
use crate::view::Segment;

/// The channel to the segment's node.
#[derive(Debug)]
pub(super) enum Link {
    Idle,
    Waiting {
        until: Micros,
    },
    Opening {
        channel: ChannelId,
    },
    /// `OpenProducer` is sent, not answered.
    Asked {
        channel: ChannelId,
    },
    Open {
        channel: ChannelId,
    },
}

impl Link {
    pub(super) const fn channel(&self) -> Option<ChannelId> {
        match self {
            Self::Opening { channel } | Self::Asked { channel } | Self::Open { channel } => Some(*channel),
            Self::Idle | Self::Waiting { .. } => None,
        }
    }
}

/// Entries that turned out to be durable.
#[derive(Debug, PartialEq)]
pub(super) struct Durable {
    pub(super) tickets: Arc<[Ticket]>,
    /// Of the first message. `None`: the node knows that they are, not any more where.
    pub(super) base: Option<Offset>,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) segment: Segment,
    pub(super) link: Link,
    pub(super) backoff: Backoff,
    /// Since when nothing works, and why.
    pub(super) trouble: Option<(Micros, String)>,
    /// When a layout told that the segment is sealed, before the segment's own node did. From then on messages are held.
    pub(super) sealed_since: Option<Micros>,
    numbering: Numbering,
    /// Oldest first, sequences contiguous.
    sent: VecDeque<Sent>,
    /// How many of `sent`, from the front, were written to the present channel, and their bytes.
    written: usize,
    written_bytes: usize,
    batches: BTreeMap<BucketIndex, Batch>,
    held: Vec<Pending>,
    /// For messages without a key: whose turn it is.
    turn: u32,
    pub(super) flushing: bool,
}

impl Lane {
    pub(super) fn new(segment: Segment, producer: u64, epoch: u32) -> Self {
        Self {
            segment,
            link: Link::Idle,
            backoff: Backoff::new(20_000, 2_000_000),
            trouble: None,
            sealed_since: None,
            numbering: Numbering { producer, epoch, next: 1 },
            sent: VecDeque::new(),
            written: 0,
            written_bytes: 0,
            batches: BTreeMap::new(),
            held: Vec::new(),
            turn: 0,
            flushing: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.batches.is_empty() && self.held.is_empty()
    }

    /// Whether the segment may hold entries of this lane that are not settled.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.sent.is_empty()
    }

    pub(super) const fn epoch(&self) -> u32 {
        self.numbering.epoch
    }

    pub(super) fn push(&mut self, now: Micros, pending: Pending, limits: &Limits) {
        if self.sealed_since.is_some() {
            self.held.push(pending);
            return;
        }
        let buckets = self.segment.buckets;
        let (bucket, hashes) = match pending.hash {
            Some(hash) => (buckets.of(hash.bucket()), (hash.route(), hash.bucket())),
            None => {
                self.turn = (self.turn + 1) % buckets.count();
                let bucket = BucketIndex(self.turn);
                (bucket, self.segment.hash_in(bucket))
            }
        };
        let size = pending.message.encoded_len();
        if self.batches.get(&bucket).is_some_and(|batch| batch.bytes() + size > limits.batch_bytes) {
            self.close_batch(bucket);
        }
        let batch = self.batches.entry(bucket).or_insert_with(|| Batch::new(now));
        batch.push(pending.ticket, &pending.message, hashes);
        if batch.count() >= limits.batch_count || batch.bytes() >= limits.batch_bytes {
            self.close_batch(bucket);
        }
    }

    fn close_batch(&mut self, bucket: BucketIndex) {
        if let Some(batch) = self.batches.remove(&bucket) {
            let sent = batch.close(self.numbering);
            self.numbering.next = sent.entry.header.last_seq() + 1;
            self.sent.push_back(sent);
        }
    }

    /// Writes what may be written: closed entries within the window, then the batches that are due. A batch waits longer while the
    /// window is full, and so grows.
    pub(super) fn write(&mut self, now: Micros, limits: &Limits, out: &mut Outbox) {
        let Link::Open { channel } = self.link else { return };
        self.write_closed(channel, limits, out);
        if self.sealed_since.is_some() {
            return;
        }
        while self.written == self.sent.len() && self.written_bytes < limits.window_bytes {
            let Some(bucket) = self.due(now, limits) else { break };
            self.close_batch(bucket);
            self.write_closed(channel, limits, out);
        }
        self.flushing &= !self.batches.is_empty();
    }

    fn write_closed(&mut self, channel: ChannelId, limits: &Limits, out: &mut Outbox) {
        while let Some(next) = self.sent.get(self.written) {
            let bytes = next.entry.encoded_len();
            if self.written > 0 && self.written_bytes + bytes > limits.window_bytes {
                break;
            }
            out.send(channel, Frame::Publish(next.entry.clone()));
            self.written += 1;
            self.written_bytes += bytes;
        }
    }

    /// The oldest batch whose linger has passed.
    fn due(&self, now: Micros, limits: &Limits) -> Option<BucketIndex> {
        let (bucket, batch) = self.batches.iter().min_by_key(|(_, batch)| batch.since)?;
        (self.flushing || now.since(batch.since) >= limits.linger_us).then_some(*bucket)
    }

    /// When [`Lane::write`] has something to do; `None` while only an answer can change that.
    pub(super) fn linger_deadline(&self, limits: &Limits) -> Option<Micros> {
        let may = matches!(self.link, Link::Open { .. })
            && self.sealed_since.is_none()
            && self.written == self.sent.len()
            && self.written_bytes < limits.window_bytes;
        let since = self.batches.values().map(|batch| batch.since).min().filter(|_| may)?;
        Some(Micros(since.0 + if self.flushing { 0 } else { limits.linger_us }))
    }

    /// These entries are durable. One that is not among the unsettled was settled before.
    pub(super) fn settle(&mut self, entries: &[proto::PublishedEntry]) -> Vec<Durable> {
        entries.iter().filter_map(|entry| self.settle_one(entry)).collect()
    }

    fn settle_one(&mut self, entry: &proto::PublishedEntry) -> Option<Durable> {
        let at = self.sent.binary_search_by_key(&entry.first_sequence, |sent| sent.entry.header.first_seq).ok()?;
        if self.sent[at].entry.header.count != entry.count {
            return None;
        }
        let sent = self.sent.remove(at)?;
        self.taken_out(at, &sent);
        Some(Durable { tickets: sent.tickets, base: Some(Offset(entry.base_offset)) })
    }

    fn taken_out(&mut self, at: usize, sent: &Sent) {
        if at < self.written {
            self.written -= 1;
            self.written_bytes -= sent.entry.encoded_len();
        }
    }

    /// Everything up to `last` is durable, by an open answer or a seal: where, says `window`. The rest must be sent again, from the first.
    pub(super) fn settle_up_to(&mut self, last: u64, window: &[proto::PublishedEntry]) -> Vec<Durable> {
        let mut durable = self.settle(window);
        while self.sent.front().is_some_and(|sent| sent.entry.header.last_seq() <= last) {
            let sent = self.sent.pop_front().expect("there is a front");
            durable.push(Durable { tickets: sent.tickets, base: None });
        }
        self.rewind();
        durable
    }

    /// The channel is gone: nothing counts as written.
    pub(super) fn rewind(&mut self) {
        self.written = 0;
        self.written_bytes = 0;
    }

    /// The sequences after this are not in use.
    pub(super) const fn next_sequence(&self) -> u64 {
        self.numbering.next
    }

    /// Numbers everything anew under a higher epoch: the node forgot this producer, or an entry was withdrawn.
    pub(super) fn renumber(&mut self) {
        self.numbering.epoch += 1;
        self.numbering.next = 1;
        self.rewind();
        for sent in &mut self.sent {
            let header = &mut sent.entry.header;
            header.producer_epoch = self.numbering.epoch;
            header.first_seq = self.numbering.next;
            header.crc32c = header.checksum(&sent.entry.payload);
            self.numbering.next = header.last_seq() + 1;
        }
    }

    /// All messages, in an order that keeps every key's: entries, then batches, then what was held.
    pub(super) fn take_all(&mut self) -> Vec<Pending> {
        let sent = self.sent.drain(..).flat_map(Sent::reopen).collect::<Vec<_>>();
        let batched = std::mem::take(&mut self.batches).into_values().flat_map(Batch::reopen);
        let pending = sent.into_iter().chain(batched).chain(std::mem::take(&mut self.held)).collect();
        self.rewind();
        pending
    }
}
