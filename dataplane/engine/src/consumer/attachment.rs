//! One segment as a consumer reads it: the buckets it was granted, what waits for the application, and acks on their way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_model::{Micros, Offset, SegmentId};
use braid_wire::{Delivery, Message, proto};

use crate::ChannelId;
use crate::backoff::Backoff;
use crate::remote::Outbox;

/// Pending acks are sent when there are so many.
const ACKS_AT_ONCE: usize = 256;

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
    /// `Attach` is sent, not answered.
    Asked {
        channel: ChannelId,
    },
    Attached {
        channel: ChannelId,
    },
    /// `Detach` is sent: acks still count, nothing new comes.
    Leaving {
        channel: ChannelId,
    },
}

impl Link {
    pub(super) const fn channel(&self) -> Option<ChannelId> {
        match self {
            Self::Opening { channel }
            | Self::Asked { channel }
            | Self::Attached { channel }
            | Self::Leaving { channel } => Some(*channel),
            Self::Idle | Self::Waiting { .. } => None,
        }
    }

    /// The channel on which acks count.
    pub(super) const fn acks_to(&self) -> Option<ChannelId> {
        match self {
            Self::Attached { channel } | Self::Leaving { channel } => Some(*channel),
            _ => None,
        }
    }
}

/// A delivered entry, as far as the application has not taken it.
#[derive(Debug)]
struct Queued {
    messages: VecDeque<(Offset, Message)>,
    /// Credit that returns when the last message is gone.
    bytes: usize,
    append_time: Micros,
}

/// A bucket that is this attach's, in one round.
#[derive(Debug)]
struct Held {
    round: u64,
    owner_number: u64,
    redelivered_below: u64,
    withdrawn: bool,
    queued: VecDeque<Queued>,
    /// Handed to the application, not acked.
    taken: BTreeSet<Offset>,
}

/// A message as it leaves the queue.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) offset: Offset,
    pub(super) message: Message,
    pub(super) round: u64,
    pub(super) owner_number: u64,
    pub(super) append_time: Micros,
    pub(super) redelivered: bool,
}

#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) segment: SegmentId,
    pub(super) link: Link,
    pub(super) backoff: Backoff,
    /// The number of the present attach.
    pub(super) number: u64,
    /// Whether the session should be attached here.
    pub(super) wanted: bool,
    buckets: BTreeMap<u32, Held>,
    /// Per bucket, the offset after the last message handed out: survives a lost channel.
    handed_below: BTreeMap<u32, u64>,
    acks: BTreeMap<(u32, u64), Vec<proto::OffsetRange>>,
    acks_pending: usize,
    acks_since: Option<Micros>,
    acks_sent: u64,
    acks_confirmed: u64,
    credit: usize,
    credit_out: usize,
    credit_owed: usize,
}

impl Attachment {
    pub(super) fn new(segment: SegmentId, credit: usize) -> Self {
        Self {
            segment,
            link: Link::Idle,
            backoff: Backoff::new(50_000, 2_000_000),
            number: 0,
            wanted: true,
            buckets: BTreeMap::new(),
            handed_below: BTreeMap::new(),
            acks: BTreeMap::new(),
            acks_pending: 0,
            acks_since: None,
            acks_sent: 0,
            acks_confirmed: 0,
            credit,
            credit_out: 0,
            credit_owed: 0,
        }
    }

    /// A new attach, or none: what was buffered is dropped, and acks of it change nothing any more.
    pub(super) fn reset(&mut self) {
        self.buckets.clear();
        self.acks.clear();
        (self.acks_pending, self.acks_since) = (0, None);
        (self.acks_sent, self.acks_confirmed) = (0, 0);
        (self.credit_out, self.credit_owed) = (0, 0);
    }

    /// Acks that are not known to be durable.
    pub(super) fn has_unconfirmed_acks(&self) -> bool {
        self.acks_pending > 0 || self.acks_confirmed < self.acks_sent
    }

    pub(super) fn granted(&mut self, granted: &proto::BucketGranted, out: &mut Outbox) {
        let held = self.buckets.get_mut(&granted.bucket);
        if let Some(held) = held
            && held.round >= granted.round
        {
            if held.round == granted.round {
                held.withdrawn = false;
                held.owner_number = held.owner_number.max(granted.owner_number);
            }
            return;
        }
        let held = Held {
            round: granted.round,
            owner_number: granted.owner_number,
            redelivered_below: granted.redelivered_below,
            // Said before the node heard of the leave: what comes goes back.
            withdrawn: matches!(self.link, Link::Leaving { .. }),
            queued: VecDeque::new(),
            taken: BTreeSet::new(),
        };
        if let Some(older) = self.buckets.insert(granted.bucket, held) {
            self.owe(older.queued.iter().map(|queued| queued.bytes).sum(), out);
        }
    }

    /// Queues what a delivery brings; whether there is something for the application. One of an older round is dropped.
    pub(super) fn delivered(&mut self, delivery: Delivery, out: &mut Outbox) -> Result<bool, String> {
        let bytes = delivery.entry.encoded_len();
        let header = delivery.entry.header;
        self.credit_out += bytes;
        let Some(held) = self.buckets.get_mut(&delivery.bucket).filter(|held| held.round == delivery.round) else {
            self.owe(bytes, out);
            return Ok(false);
        };
        delivery.entry.verify().map_err(|e| e.to_string())?;
        if held.withdrawn {
            // Sent before the withdrawal was given back: it returns as well.
            self.owe(bytes, out);
            self.say_give_back(delivery.bucket, delivery.round, Offset(header.base_offset), out);
            return Ok(false);
        }
        let messages = Message::decode_all(delivery.entry.payload, header.count).map_err(|e| e.to_string())?;
        let is_acked = |i: u32| delivery.acked.iter().any(|(index, count)| (*index..index + count).contains(&i));
        let messages: VecDeque<_> = (0..)
            .zip(messages)
            .filter(|(i, _)| !is_acked(*i))
            .map(|(i, message)| (Offset(header.base_offset + u64::from(i)), message))
            .collect();
        if messages.is_empty() {
            self.owe(bytes, out);
            return Ok(false);
        }
        held.queued.push_back(Queued { messages, bytes, append_time: Micros(header.append_time) });
        Ok(true)
    }

    /// The next message of a bucket in that round, now the application's. The flag tells whether its entry is used up.
    pub(super) fn take(&mut self, bucket: u32, round: u64, out: &mut Outbox) -> Option<(Taken, bool)> {
        let held = self.buckets.get_mut(&bucket).filter(|held| held.round == round)?;
        let queued = held.queued.front_mut()?;
        let (offset, message) = queued.messages.pop_front()?;
        let (append_time, bytes, is_last) = (queued.append_time, queued.bytes, queued.messages.is_empty());
        held.taken.insert(offset);
        let handed_below = self.handed_below.entry(bucket).or_default();
        let redelivered = offset.0 < held.redelivered_below.max(*handed_below);
        *handed_below = (*handed_below).max(offset.0 + 1);
        let taken = Taken { offset, message, round, owner_number: held.owner_number, append_time, redelivered };
        if is_last {
            held.queued.pop_front();
            self.owe(bytes, out);
        }
        Some((taken, is_last))
    }

    /// Whether the ack counts: the bucket is still this attach's, in that round, and the message was not acked before.
    pub(super) fn ack(&mut self, now: Micros, bucket: u32, round: u64, offset: Offset, out: &mut Outbox) -> bool {
        if self.link.acks_to().is_none() {
            return false;
        }
        let Some(held) = self.buckets.get_mut(&bucket).filter(|held| held.round == round) else { return false };
        if !held.taken.remove(&offset) {
            return false;
        }
        let at_once = held.withdrawn || matches!(self.link, Link::Leaving { .. });
        let ranges = self.acks.entry((bucket, round)).or_default();
        match ranges.last_mut() {
            Some(last) if last.end == offset.0 => last.end += 1,
            _ => ranges.push(proto::OffsetRange { start: offset.0, end: offset.0 + 1 }),
        }
        self.acks_pending += 1;
        self.acks_since.get_or_insert(now);
        if at_once || self.acks_pending >= ACKS_AT_ONCE {
            self.send_acks(out);
        }
        true
    }

    /// When pending acks must be out.
    pub(super) fn ack_deadline(&self, linger_us: u64) -> Option<Micros> {
        self.acks_since.map(|since| Micros(since.0 + linger_us))
    }

    pub(super) fn send_acks(&mut self, out: &mut Outbox) {
        let Some(channel) = self.link.acks_to() else { return };
        for ((bucket, round), ranges) in std::mem::take(&mut self.acks) {
            self.acks_sent += 1;
            out.send(channel, proto::Ack { ack: self.acks_sent, bucket, round, ranges });
        }
        (self.acks_pending, self.acks_since) = (0, None);
    }

    pub(super) fn confirmed(&mut self, ack: u64) {
        self.acks_confirmed = self.acks_confirmed.max(ack.min(self.acks_sent));
    }

    /// The bucket moves away: what the application has not taken goes back, and acks hurry.
    pub(super) fn withdrawn(&mut self, bucket: u32, round: u64, out: &mut Outbox) {
        let Some(held) = self.buckets.get_mut(&bucket).filter(|held| held.round == round) else { return };
        held.withdrawn = true;
        self.give_back(bucket, out);
        self.send_acks(out);
    }

    /// The bucket is gone: buffered entries are dropped, and acks of what was taken are refused.
    pub(super) fn revoked(&mut self, bucket: u32, round: u64, out: &mut Outbox) -> bool {
        if self.buckets.get(&bucket).is_none_or(|held| held.round != round) {
            return false;
        }
        let held = self.buckets.remove(&bucket).expect("it was there");
        let refused = self.acks.remove(&(bucket, round)).unwrap_or_default();
        self.acks_pending -= refused.iter().map(|range| (range.end - range.start) as usize).sum::<usize>();
        if self.acks_pending == 0 {
            self.acks_since = None;
        }
        self.owe(held.queued.iter().map(|queued| queued.bytes).sum(), out);
        true
    }

    /// Leaves in two phases: what was not taken goes back now; the node ends the channel once the rest is acked.
    pub(super) fn detach(&mut self, out: &mut Outbox) {
        let Link::Attached { channel } = self.link else { return };
        // From here on no credit returns, which would only bring more.
        self.link = Link::Leaving { channel };
        for bucket in self.buckets.keys().copied().collect::<Vec<_>>() {
            self.give_back(bucket, out);
            self.buckets.get_mut(&bucket).expect("it was there").withdrawn = true;
        }
        self.send_acks(out);
        out.send(channel, proto::Detach {});
    }

    fn give_back(&mut self, bucket: u32, out: &mut Outbox) {
        let Some(held) = self.buckets.get_mut(&bucket) else { return };
        let round = held.round;
        let queued = std::mem::take(&mut held.queued);
        let from = queued.front().and_then(|queued| queued.messages.front()).map(|(offset, _)| *offset);
        if let Some(from) = from {
            self.say_give_back(bucket, round, from, out);
        }
        self.owe(queued.iter().map(|queued| queued.bytes).sum(), out);
    }

    fn say_give_back(&self, bucket: u32, round: u64, from: Offset, out: &mut Outbox) {
        if let Some(channel) = self.link.acks_to() {
            out.send(channel, proto::GiveBack { bucket, round, from: from.0 });
        }
    }

    /// Credit that the application freed goes back in portions, and at once when the node may be out of it.
    fn owe(&mut self, bytes: usize, out: &mut Outbox) {
        self.credit_owed += bytes;
        let due = self.credit_owed >= self.credit / 4 || self.credit_owed == self.credit_out;
        if let Link::Attached { channel } = self.link
            && self.credit_owed > 0
            && due
        {
            out.send(channel, proto::Credit { bytes: self.credit_owed as u64 });
            self.credit_out -= self.credit_owed;
            self.credit_owed = 0;
        }
    }
}
