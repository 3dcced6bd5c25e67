//! Consumer streams: attach, deliveries within credit, acks that are recorded before they are confirmed, and leaving.
//!
//! Who gets what is `model::dispatch`; here its answers become frames and records.

use std::collections::BTreeMap;

use braid_log::{Record, SegmentKey, Store};
use braid_model::dispatch::{self, AttachError, End, Offer, Output};
use braid_model::handoff::Attach;
use braid_model::{AttachNo, BucketIndex, Buckets, Offset, OffsetRange, Round, SessionId};
use braid_wire::delivery::ACKED_RUNS_MAX;
use braid_wire::proto::{self, Code, Refused};
use braid_wire::{Delivery, Entry};

use super::records::{Name, Note};
use super::session::{Consumer, Reader, Role, check_name};
use super::subscription::Subscription;
use super::{Later, Node};
use crate::ChannelId;

/// What one read takes from the log, in bytes.
const SLICE_BYTES: usize = 256 << 10;

impl<S: Store> Node<S> {
    pub(super) fn attach(&mut self, channel: ChannelId, attach: &proto::Attach) {
        if let Err(refused) = self.try_attach(channel, attach) {
            self.refuse(channel, refused);
        }
    }

    fn try_attach(&mut self, channel: ChannelId, sent: &proto::Attach) -> Result<(), Refused> {
        check_name("subscription", &sent.subscription)?;
        check_name("member", &sent.member)?;
        let key = self.locate(sent.topic.as_ref(), sent.segment)?;
        let now = self.now;
        let name: Name = sent.subscription.as_str().into();
        let Some(segment) = self.state.segments.get_mut(&key) else {
            return Err(Refused::unknown_segment(key.segment));
        };
        let stated = Buckets::new(sent.buckets).ok_or_else(|| {
            let message = format!("`buckets` is {}, it must be 1..=65536", sent.buckets);
            Refused::mismatch(Code::Malformed, message, 65_536, u64::from(sent.buckets))
        })?;
        let created = segment.header.created_epoch;
        if sent.layout_epoch < created {
            let message =
                format!("segment `{key}` was made at epoch {created}, the session knows {}", sent.layout_epoch);
            return Err(Refused::mismatch(Code::StaleLayout, message, created, sent.layout_epoch));
        }
        let Some(found) = segment.subscriptions.get_mut(&name) else {
            let message = format!("segment `{key}` has no cursor of subscription `{name}`");
            return Err(Refused::new(Code::UnknownSubscription, message));
        };
        let attach = Attach { session: SessionId(sent.session), no: AttachNo(sent.attach) };
        let (generation, is_drained) = (found.generation.0, found.shown_drained);
        let Some(dispatcher) = found.dispatcher() else {
            return Err(Refused::new(Code::Busy, "the store is being read"));
        };
        dispatcher.attach(attach, &sent.member, stated, now).map_err(|e| refusal(&e))?;
        dispatcher.credit(attach, sent.credit_bytes);
        found.channels.insert(attach, channel);
        if let Some(found) = self.channels.get_mut(&channel) {
            let reader = Reader { key, subscription: Name::clone(&name), attach };
            found.role = Role::Consumer(Consumer { reader, returned: BTreeMap::new() });
        }
        self.say(channel, proto::Attached { generation });
        if is_drained {
            self.say(channel, proto::SegmentDrained { segment: key.segment.0 });
        }
        self.pump(key, &name);
        Ok(())
    }

    pub(super) fn ack(&mut self, channel: ChannelId, ack: &proto::Ack) {
        let Some(Reader { key, subscription, attach }) = self.reader(channel) else { return };
        let now = self.now;
        let Some(found) = self.subscription_mut(key, &subscription) else { return };
        let generation = found.generation;
        let Some(dispatcher) = found.dispatcher() else { return };
        let mut ranges = Vec::new();
        for range in &ack.ranges {
            let Some(range) = OffsetRange::new(Offset(range.start), Offset(range.end)) else { continue };
            let (bucket, round) = (BucketIndex(ack.bucket), Round(ack.round));
            match dispatcher.ack(&dispatch::Ack { attach, bucket, round, generation, range }, now) {
                Ok(new) => ranges.extend(new),
                // Of another round, or beyond what a cursor keeps: it changes nothing, and the message comes again.
                Err(_) => continue,
            }
        }
        if !ranges.is_empty() {
            self.counts.acks += ranges.iter().map(|range| range.count()).sum::<u64>();
            let note = Note::Acked { subscription: Name::clone(&subscription), generation, ranges };
            if let Err(refused) = self.ledger.note(key, &note, now) {
                return self.refuse(channel, refused);
            }
        }
        self.after(self.ledger.last(), Later::AckConfirmed(channel, ack.ack));
        self.pump(key, &subscription);
    }

    pub(super) fn credit(&mut self, channel: ChannelId, bytes: u64) {
        let Some(Reader { key, subscription, attach }) = self.reader(channel) else { return };
        if let Some(dispatcher) = self.subscription_mut(key, &subscription).and_then(Subscription::dispatcher) {
            dispatcher.credit(attach, bytes);
        }
        self.pump(key, &subscription);
    }

    pub(super) fn give_back(&mut self, channel: ChannelId, back: &proto::GiveBack) {
        let (bucket, round, from) = (BucketIndex(back.bucket), Round(back.round), Offset(back.from));
        let Some(Role::Consumer(consumer)) = self.channels.get_mut(&channel).map(|found| &mut found.role) else {
            return;
        };
        let buckets = { self.state.segments.get(&consumer.reader.key) }.map_or(0, |segment| segment.buckets.count());
        if bucket.0 >= buckets {
            return;
        }
        let returned = consumer.returned.entry(bucket).or_insert((round, from));
        *returned = if returned.0 == round { (round, from.min(returned.1)) } else { (round, from) };
        let Reader { key, subscription, attach } = consumer.reader.clone();
        let now = self.now;
        if let Some(dispatcher) = self.subscription_mut(key, &subscription).and_then(Subscription::dispatcher) {
            dispatcher.give_back(attach, bucket, round, from, now);
        }
        self.pump(key, &subscription);
    }

    pub(super) fn detach(&mut self, channel: ChannelId) {
        let Some(Reader { key, subscription, attach }) = self.reader(channel) else { return };
        let returned = match self.channels.get_mut(&channel).map(|found| &mut found.role) {
            Some(Role::Consumer(consumer)) => std::mem::take(&mut consumer.returned),
            _ => BTreeMap::new(),
        };
        let now = self.now;
        if let Some(dispatcher) = self.subscription_mut(key, &subscription).and_then(Subscription::dispatcher) {
            dispatcher.leave(attach, now);
            // A give-back counts only of a bucket that moves away; those that came before the detach do now.
            for (bucket, (round, from)) in returned {
                dispatcher.give_back(attach, bucket, round, from, now);
            }
        }
        self.pump(key, &subscription);
    }

    /// The stream ended, in whatever way.
    pub(super) fn reader_gone(&mut self, channel: ChannelId, reader: &Reader) {
        let now = self.now;
        let Some(found) = self.subscription_mut(reader.key, &reader.subscription) else { return };
        if found.channels.get(&reader.attach) == Some(&channel) {
            found.channels.remove(&reader.attach);
            if let Some(dispatcher) = found.dispatcher() {
                dispatcher.lost(reader.attach, now);
            }
            self.pump(reader.key, &reader.subscription);
        }
    }

    pub(super) fn tick_subscription(&mut self, key: SegmentKey, name: &Name) {
        let now = self.now;
        if let Some(dispatcher) = self.subscription_mut(key, name).and_then(Subscription::dispatcher) {
            dispatcher.tick(now);
        }
        self.pump(key, name);
    }

    /// Says and sends whatever may be said and sent of one subscription on one segment. After every change of it.
    pub(super) fn pump(&mut self, key: SegmentKey, name: &Name) {
        loop {
            while let Some(output) =
                self.subscription_mut(key, name).and_then(Subscription::dispatcher).and_then(|d| d.poll())
            {
                self.output(key, name, output);
            }
            if !self.read_slice(key, name) {
                break;
            }
        }
        let deadline =
            self.subscription_mut(key, name).and_then(Subscription::dispatcher).and_then(|d| d.next_deadline());
        self.timers.set(key, name, deadline);
    }

    pub(super) fn pump_all(&mut self) {
        let all = self.state.segments.iter().flat_map(|(key, segment)| segment.subscriptions.keys().map(|n| (*key, n)));
        for (key, name) in all.map(|(key, name)| (key, Name::clone(name))).collect::<Vec<_>>() {
            self.pump(key, &name);
        }
    }

    fn output(&mut self, key: SegmentKey, name: &Name, output: Output) {
        let Some(found) = self.subscription_mut(key, name) else { return };
        let to = |attach: Attach| found.channels.get(&attach).copied();
        match output {
            Output::Granted { attach, bucket, round, owner, redelivered_below } => {
                let Some(channel) = to(attach) else { return };
                let granted = proto::BucketGranted {
                    bucket: bucket.0,
                    round: round.0,
                    owner_number: owner.0,
                    redelivered_below: redelivered_below.0,
                };
                self.say(channel, granted);
            }
            Output::Withdrawn { attach, bucket, round } => {
                let Some(channel) = to(attach) else { return };
                self.say(channel, proto::BucketWithdrawn { bucket: bucket.0, round: round.0 });
            }
            Output::Released { .. } => {}
            Output::Revoked { attach, bucket, round } => {
                let Some(channel) = to(attach) else { return };
                self.say(channel, proto::BucketRevoked { bucket: bucket.0, round: round.0 });
            }
            Output::Empty { attach } => {
                let Some(channel) = to(attach) else { return };
                self.say_durably(channel, proto::Detached {});
                self.end(channel);
            }
            Output::Ended { attach, why } => {
                let Some(channel) = found.channels.remove(&attach) else { return };
                let (code, message) = match why {
                    End::Replaced => (Code::StaleAttach, "the session attached again"),
                    End::LeaveDeadline => (Code::StaleAttach, "the deadline of the leave passed"),
                };
                self.refuse(channel, Refused::new(code, message));
            }
            Output::Drained { generation } => {
                if found.drained {
                    return;
                }
                found.drained = true;
                let note = Note::Drained { subscription: Name::clone(name), generation };
                // A store that takes no notes takes no acks either: after its next opening this is found again.
                if let Ok(lsn) = self.ledger.note(key, &note, self.now) {
                    self.after(lsn, Later::Drained(key, Name::clone(name), generation));
                }
            }
        }
    }

    /// Reads once and sends what may go; whether to go on.
    fn read_slice(&mut self, key: SegmentKey, name: &Name) -> bool {
        if self.floor > self.ledger.synced() {
            return false;
        }
        let Some(segment) = self.state.segments.get_mut(&key) else { return false };
        let (buckets, durable_end) = (segment.buckets, segment.durable_end);
        let Some(found) = segment.subscriptions.get_mut(name) else { return false };
        let Some(read) = found.dispatcher().and_then(|dispatcher| dispatcher.next_read(durable_end)) else {
            return false;
        };
        let records = match self.ledger.read(key, read.from, read.until, SLICE_BYTES) {
            Ok(records) if !records.is_empty() => records,
            Ok(_) => return false,
            Err(e) => {
                self.store_failed(&e.to_string());
                return false;
            }
        };
        for record in records {
            let Some((entry, bucket)) = decode(&record, buckets) else {
                self.store_failed(&format!("entry at {} of segment `{key}` is not one", record.base));
                return false;
            };
            let range = OffsetRange::of(record.base, u64::from(record.count));
            let bytes = entry.encoded_len() as u64;
            let Some(dispatcher) = found.dispatcher() else { return false };
            match dispatcher.offer(read.lane, &dispatch::Entry { bucket, range, bytes }) {
                Offer::Send(delivery) => {
                    let Some(channel) = found.channels.get(&delivery.attach).copied() else { continue };
                    let acked = runs(record.base, &delivery.acked);
                    let fresh = range.count() - acked.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
                    segment.load.counts[2] += fresh;
                    segment.load.counts[3] += bytes;
                    self.counts.messages_out += fresh;
                    self.counts.bytes_out += bytes;
                    let frame = Delivery { bucket: bucket.0, round: delivery.round.0, acked, entry };
                    self.effects.push_back(crate::Effect::Send { channel, frame: braid_wire::Frame::Delivery(frame) });
                }
                Offer::Skip => {}
                Offer::Stop => break,
            }
        }
        true
    }

    fn reader(&self, channel: ChannelId) -> Option<Reader> {
        match self.channels.get(&channel).map(|found| &found.role) {
            Some(Role::Consumer(consumer)) => Some(consumer.reader.clone()),
            _ => None,
        }
    }

    pub(super) fn subscription_mut(&mut self, key: SegmentKey, name: &Name) -> Option<&mut Subscription> {
        self.state.segments.get_mut(&key)?.subscriptions.get_mut(name)
    }
}

/// The entry of a record and its bucket.
fn decode(record: &Record, buckets: Buckets) -> Option<(Entry, BucketIndex)> {
    let entry = Entry::decode(record.body.clone()).ok()?;
    let (min, max) = entry.header.bucket;
    Some((entry, buckets.holding(min, max)?))
}

/// Acked ranges as runs of messages within the entry that begins at `base`.
fn runs(base: Offset, acked: &[OffsetRange]) -> Vec<(u32, u32)> {
    let run = |range: &OffsetRange| ((range.from().0.saturating_sub(base.0)) as u32, range.count() as u32);
    acked.iter().take(ACKED_RUNS_MAX).map(run).collect()
}

fn refusal(error: &AttachError) -> Refused {
    let message = error.to_string();
    match *error {
        AttachError::StaleLayout { stated, found } => {
            Refused::mismatch(Code::StaleLayout, message, u64::from(found.count()), u64::from(stated.count()))
        }
        AttachError::StaleAttach { sent, have } => Refused::mismatch(Code::StaleAttach, message, have.no.0, sent.no.0),
        AttachError::TooMany { found, max } => {
            Refused::mismatch(Code::LimitExceeded, message, max as u64, found as u64 + 1)
        }
    }
}
