//! Producer streams: open, publish, and the last word at a seal.

use std::collections::BTreeSet;

use braid_log::{Record, SegmentKey, Store};
use braid_model::{Incarnation, Offset, SegmentId};
use braid_wire::proto::{self, Code, Refused};
use braid_wire::{Entry, Frame};
use bytes::BytesMut;

use super::producers::{PRODUCERS_MAX, fenced};
use super::records::{ENTRY, Note};
use super::segment::Publish;
use super::session::{Producer, Role};
use super::topics::unknown_topic;
use super::{Later, Node};
use crate::ChannelId;

impl<S: Store> Node<S> {
    /// The segment that a client means: its topic is alive and the segment is here.
    pub(super) fn locate(&self, topic: Option<&proto::TopicRef>, segment: u64) -> Result<SegmentKey, Refused> {
        let topic = topic.cloned().unwrap_or_default();
        let incarnation: Incarnation = self.state.topics.resolve(&topic)?;
        let key = SegmentKey { incarnation, segment: SegmentId(segment) };
        if self.state.segments.contains_key(&key) {
            Ok(key)
        } else if self.state.topics.layout(incarnation).is_none() {
            Err(unknown_topic(&topic))
        } else {
            Err(Refused::unknown_segment(key.segment))
        }
    }

    pub(super) fn open_producer(&mut self, channel: ChannelId, open: &proto::OpenProducer) {
        match self.try_open_producer(channel, open) {
            Ok(opened) => {
                let is_over = matches!(opened, Frame::SegmentSealed(_));
                self.say_durably(channel, opened);
                if is_over {
                    self.end(channel);
                }
            }
            Err(refused) => self.refuse(channel, refused),
        }
    }

    fn try_open_producer(&mut self, channel: ChannelId, open: &proto::OpenProducer) -> Result<Frame, Refused> {
        let proto::OpenProducer { producer, epoch, .. } = *open;
        let key = self.locate(open.topic.as_ref(), open.segment)?;
        if epoch == 0 {
            return Err(Refused::mismatch(Code::Malformed, "`epoch` is 0, it must be at least 1", 1, 0));
        }
        let Some(segment) = self.state.segments.get(&key) else { return Err(Refused::unknown_segment(key.segment)) };
        let held = segment.producers.epoch(producer);
        if epoch < held {
            return Err(fenced(held, epoch));
        }
        if let Some(seal) = &segment.seal {
            return Ok(segment.sealed_answer(seal, producer, epoch).into());
        }
        if segment.producers.is_full_for(producer) {
            let (max, sent) = (PRODUCERS_MAX as u64, PRODUCERS_MAX as u64 + 1);
            let message = format!("segment `{key}` remembers {max} producers, the most there may be");
            return Err(Refused::mismatch(Code::LimitExceeded, message, max, sent));
        }
        if epoch > held.max(1) {
            let note = Note::ProducerEpoch { producer, epoch };
            self.ledger.note(key, &note, self.now)?;
            // Executing it cannot fail: the segment is here.
            let _ = self.state.apply(key, &note, self.now);
        }
        let Some(segment) = self.state.segments.get_mut(&key) else {
            return Err(Refused::unknown_segment(key.segment));
        };
        segment.writers.insert(channel);
        let (last_sequence, window) = segment.producers.position(producer, epoch);
        if let Some(found) = self.channels.get_mut(&channel) {
            found.role = Role::Producer(Producer { key, producer, epoch });
        }
        Ok(proto::ProducerOpened { last_sequence, window }.into())
    }

    pub(super) fn publish(&mut self, channel: ChannelId, writer: Producer, entry: Entry) {
        if let Err(refused) = self.try_publish(channel, writer, entry) {
            self.refuse(channel, refused);
        }
    }

    fn try_publish(&mut self, channel: ChannelId, writer: Producer, mut entry: Entry) -> Result<(), Refused> {
        let Producer { key, producer, epoch } = writer;
        let now = self.now;
        let bounds = self.config.bounds;
        let Some(segment) = self.state.segments.get_mut(&key) else {
            return Err(Refused::unknown_segment(key.segment));
        };
        let header = &entry.header;
        if (header.producer_id, header.producer_epoch) != (producer, epoch) {
            let (id, other) = (header.producer_id, header.producer_epoch);
            let message = format!("entry of producer {id} epoch {other} on the stream of {producer} epoch {epoch}");
            return Err(Refused::new(Code::Malformed, message));
        }
        let (bytes, frame_max) = (entry.encoded_len() as u64 + 2, u64::from(bounds.frame_bytes));
        if bytes > frame_max {
            let message = format!("`frame_bytes` is {bytes}, the bound is {frame_max}");
            return Err(Refused::mismatch(Code::LimitExceeded, message, frame_max, bytes));
        }
        if let Publish::Again(first) = segment.check(&entry)? {
            self.after(self.ledger.last(), Later::Published(channel, first));
            return Ok(());
        }
        let in_flight = self.ledger.in_flight() + bytes;
        if in_flight > bounds.in_flight_bytes && self.ledger.in_flight() > 0 {
            let max = bounds.in_flight_bytes;
            let message = format!("`in_flight_bytes` would be {in_flight}, the bound is {max}");
            return Err(Refused::mismatch(Code::Busy, message, max, in_flight));
        }
        entry.header.base_offset = segment.end.0;
        entry.header.append_time = now.0;
        if entry.header.base_offset.checked_add(u64::from(entry.header.count)).is_none() {
            return Err(Refused::new(Code::LimitExceeded, "the segment has no offsets left"));
        }
        let mut body = BytesMut::with_capacity(entry.encoded_len());
        entry.header.encode(&mut body);
        body.extend_from_slice(&entry.payload);
        let record =
            Record { kind: ENTRY, key, base: segment.end, count: entry.header.count, time: now, body: body.freeze() };
        let lsn = self.ledger.entry(record)?;
        segment.appended(&entry.header);
        let messages = u64::from(entry.header.count);
        segment.load.counts[0] += messages;
        segment.load.counts[1] += bytes - 2;
        self.counts.messages_in += messages;
        self.counts.bytes_in += bytes - 2;
        let end = segment.end;
        let published = proto::PublishedEntry {
            first_sequence: entry.header.first_seq,
            count: entry.header.count,
            base_offset: entry.header.base_offset,
        };
        self.after(lsn, Later::Published(channel, published));
        self.after(lsn, Later::Appended(key, end));
        Ok(())
    }

    /// Everything of the segment before `end` may be shown.
    pub(super) fn entries_durable(&mut self, key: SegmentKey, end: Offset) {
        let Some(segment) = self.state.segments.get_mut(&key) else { return };
        segment.durable_end = segment.durable_end.max(end);
        for name in segment.subscriptions.keys().cloned().collect::<Vec<_>>() {
            self.pump(key, &name);
        }
    }

    /// The seal is in the log: each producer's last word is due with it.
    pub(super) fn close_writers(&mut self, key: SegmentKey) {
        let Some(segment) = self.state.segments.get_mut(&key) else { return };
        let writers: BTreeSet<ChannelId> = std::mem::take(&mut segment.writers);
        for channel in writers {
            let Some(Role::Producer(writer)) = self.channels.get(&channel).map(|found| &found.role) else { continue };
            let Some(segment) = self.state.segments.get(&key) else { return };
            let Some(seal) = &segment.seal else { return };
            let answer = segment.sealed_answer(seal, writer.producer, writer.epoch);
            self.say_durably(channel, answer);
            self.end(channel);
        }
    }

    /// Consumers may know that nothing follows.
    pub(super) fn seal_durable(&mut self, key: SegmentKey) {
        let Some(segment) = self.state.segments.get_mut(&key) else { return };
        let end = segment.end;
        segment.durable_end = end;
        if let Some(seal) = &mut segment.seal {
            seal.durable = true;
        }
        for name in segment.subscriptions.keys().cloned().collect::<Vec<_>>() {
            let found = self.state.segments.get_mut(&key).and_then(|segment| segment.subscriptions.get_mut(&name));
            if let Some(dispatcher) = found.and_then(|found| found.dispatcher()) {
                dispatcher.sealed(end);
            }
            self.pump(key, &name);
        }
    }
}
