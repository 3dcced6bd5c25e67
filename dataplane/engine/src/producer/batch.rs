//! Messages of one bucket, gathered until they become an entry.

use std::sync::Arc;

use braid_model::{KeyHash, Micros};
use braid_wire::{Entry, Header, Message};
use bytes::BytesMut;

use super::Ticket;

/// A message that no entry holds yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) message: Message,
    /// `None`: no key, any segment and bucket will do.
    pub(super) hash: Option<KeyHash>,
}

/// An open batch.
#[derive(Debug)]
pub(super) struct Batch {
    payload: BytesMut,
    tickets: Vec<Ticket>,
    route: (u16, u16),
    bucket: (u16, u16),
    /// When its first message came in.
    pub(super) since: Micros,
}

/// An entry on its way: kept byte for byte until it is known to be durable.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) entry: Entry,
    pub(super) tickets: Arc<[Ticket]>,
}

/// Who writes, and from which sequence on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbering {
    pub(super) producer: u64,
    pub(super) epoch: u32,
    pub(super) next: u64,
}

impl Batch {
    pub(super) fn new(since: Micros) -> Self {
        Self { payload: BytesMut::new(), tickets: Vec::new(), route: (u16::MAX, 0), bucket: (u16::MAX, 0), since }
    }

    /// `(route, bucket)`: the message's hashes, or for one without a key any of its segment and bucket.
    pub(super) fn push(&mut self, ticket: Ticket, message: &Message, (route, bucket): (u16, u16)) {
        message.encode(&mut self.payload);
        self.tickets.push(ticket);
        self.route = (self.route.0.min(route), self.route.1.max(route));
        self.bucket = (self.bucket.0.min(bucket), self.bucket.1.max(bucket));
    }

    pub(super) fn bytes(&self) -> usize {
        self.payload.len()
    }

    pub(super) fn count(&self) -> usize {
        self.tickets.len()
    }

    /// The entry, numbered.
    pub(super) fn close(self, numbering: Numbering) -> Sent {
        let payload = self.payload.freeze();
        let mut header = Header {
            codec: 0,
            flags: 0,
            crc32c: 0,
            payload_len: payload.len() as u32,
            base_offset: 0,
            append_time: 0,
            count: self.tickets.len() as u32,
            producer_epoch: numbering.epoch,
            route: self.route,
            bucket: self.bucket,
            producer_id: numbering.producer,
            first_seq: numbering.next,
        };
        header.crc32c = header.checksum(&payload);
        Sent { entry: Entry { header, payload }, tickets: self.tickets.into() }
    }

    /// The messages again, in the order they came.
    pub(super) fn reopen(self) -> Vec<Pending> {
        reopen(self.payload.freeze(), &self.tickets)
    }
}

impl Sent {
    /// The messages again, in order: the segment never took them.
    pub(super) fn reopen(self) -> Vec<Pending> {
        reopen(self.entry.payload, &self.tickets)
    }
}

fn reopen(payload: bytes::Bytes, tickets: &[Ticket]) -> Vec<Pending> {
    let messages = Message::decode_all(payload, tickets.len() as u32).expect("this producer wrote the payload");
    let pending = |(message, ticket): (Message, &Ticket)| {
        let hash = message.key.as_deref().map(KeyHash::of);
        Pending { ticket: *ticket, message, hash }
    };
    messages.into_iter().zip(tickets).map(pending).collect()
}
