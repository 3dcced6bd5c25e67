//! Any frame of a given kind, made from a run of numbers.

use braid_wire::proto::*;
use braid_wire::{Delivery, Entry, Frame, Header};
use bytes::Bytes;

/// Every kind there is.
pub(crate) const KINDS: &[u16] = &[
    1, 2, 10, 11, 12, 20, 21, 22, 23, 24, 30, 31, 32, 33, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 60, 61, 62,
    70, 71,
];

/// Numbers that are handed out in turn, for ever.
pub(crate) struct Values {
    numbers: Vec<u64>,
    next: usize,
}

impl Values {
    pub(crate) fn new(numbers: Vec<u64>) -> Self {
        Self { numbers, next: 0 }
    }

    fn u64(&mut self) -> u64 {
        self.next += 1;
        // Turned a little each time round, so that a short run does not repeat.
        self.numbers[self.next % self.numbers.len()].rotate_left((self.next / self.numbers.len()) as u32)
    }

    fn u32(&mut self) -> u32 {
        self.u64() as u32
    }

    fn flag(&mut self) -> bool {
        self.u64() % 2 == 1
    }

    fn text(&mut self) -> String {
        let length = self.u64() % 12;
        (0..length).map(|_| char::from_u32(self.u32() % 0x3000).unwrap_or('·')).collect()
    }

    fn bytes(&mut self) -> Bytes {
        let length = self.u64() % 40;
        (0..length).map(|_| self.u64() as u8).collect()
    }

    fn some<T>(&mut self, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.u64() % 4).map(|_| make(self)).collect()
    }

    fn maybe<T>(&mut self, make: impl Fn(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| make(self))
    }
}

pub(crate) fn frame(kind: u16, v: &mut Values) -> Frame {
    match kind {
        1 => Frame::Publish(entry(v)),
        2 => delivery(v),
        10 => Hello { version: v.u32(), name: v.text() }.into(),
        11 => HelloOk {
            version: v.u32(),
            store: v.text(),
            start_counter: v.u64(),
            highest_term: v.u64(),
            limits: v.maybe(|v| Limits {
                frame_bytes: v.u32(),
                sessions: v.u32(),
                streams: v.u32(),
                in_flight_bytes: v.u64(),
            }),
        }
        .into(),
        12 => refused(v).into(),
        20 => WatchTopic { topic: v.maybe(topic) }.into(),
        21 => layout(v).into(),
        22 => Join {
            topic: v.maybe(topic),
            subscription: v.text(),
            member: v.text(),
            session: v.u64(),
            held: v.some(Values::u64),
        }
        .into(),
        23 => LeaveGroup { topic: v.maybe(topic), subscription: v.text(), session: v.u64() }.into(),
        24 => SessionAssignment {
            topic: v.maybe(topic),
            subscription: v.text(),
            session: v.u64(),
            home_term: v.u64(),
            home_start: v.u64(),
            sequence: v.u64(),
            segments: v.some(Values::u64),
        }
        .into(),
        30 => OpenProducer {
            topic: v.maybe(topic),
            segment: v.u64(),
            producer: v.u64(),
            epoch: v.u32(),
            layout_epoch: v.u64(),
        }
        .into(),
        31 => ProducerOpened { last_sequence: v.u64(), window: v.some(published) }.into(),
        32 => Published { entries: v.some(published) }.into(),
        33 => SegmentSealed {
            segment: v.u64(),
            last_sequence: v.u64(),
            window: v.some(published),
            successors: v.some(segment),
            nodes: v.some(node),
        }
        .into(),
        40 => Attach {
            topic: v.maybe(topic),
            segment: v.u64(),
            subscription: v.text(),
            member: v.text(),
            session: v.u64(),
            attach: v.u64(),
            buckets: v.u32(),
            layout_epoch: v.u64(),
            credit_bytes: v.u64(),
        }
        .into(),
        41 => Attached { generation: v.u64() }.into(),
        42 => {
            BucketGranted { bucket: v.u32(), round: v.u64(), owner_number: v.u64(), redelivered_below: v.u64() }.into()
        }
        43 => Ack {
            ack: v.u64(),
            bucket: v.u32(),
            round: v.u64(),
            ranges: v.some(|v| OffsetRange { start: v.u64(), end: v.u64() }),
        }
        .into(),
        44 => AckConfirmed { ack: v.u64() }.into(),
        45 => Credit { bytes: v.u64() }.into(),
        46 => GiveBack { bucket: v.u32(), round: v.u64(), from: v.u64() }.into(),
        47 => BucketWithdrawn { bucket: v.u32(), round: v.u64() }.into(),
        48 => BucketRevoked { bucket: v.u32(), round: v.u64() }.into(),
        49 => Detach {}.into(),
        50 => Detached {}.into(),
        51 => SegmentDrained { segment: v.u64() }.into(),
        60 => Request { id: v.u64(), fence: v.maybe(fence), topic: v.maybe(topic), command: v.maybe(command) }.into(),
        61 => Response { id: v.u64(), result: v.maybe(result) }.into(),
        62 => report(v).into(),
        70 => DrainedFact {
            fact: v.u64(),
            topic: v.maybe(topic),
            segment: v.u64(),
            subscription: v.text(),
            generation: v.u64(),
            successors: v.some(Values::u64),
        }
        .into(),
        71 => FactNoted { fact: v.u64() }.into(),
        _ => unreachable!("kind {kind} is not in KINDS"),
    }
}

fn entry(v: &mut Values) -> Entry {
    let payload = v.bytes();
    let span = |v: &mut Values| {
        let (a, b) = (v.u64() as u16, v.u64() as u16);
        (a.min(b), a.max(b))
    };
    let header = Header {
        codec: 0,
        flags: 0,
        crc32c: v.u32(),
        payload_len: payload.len() as u32,
        base_offset: v.u64() >> 1,
        append_time: v.u64(),
        count: v.u32().max(1),
        producer_epoch: v.u32(),
        route: span(v),
        bucket: span(v),
        producer_id: v.u64(),
        first_seq: (v.u64() >> 1).max(1),
    };
    Entry { header, payload }
}

fn delivery(v: &mut Values) -> Frame {
    let entry = entry(v);
    let count = entry.header.count;
    let acked = v.some(|v| {
        let index = v.u32() % count;
        (index, v.u32() % (count - index).max(1))
    });
    Frame::Delivery(Delivery { bucket: v.u32(), round: v.u64(), acked, entry })
}

fn topic(v: &mut Values) -> TopicRef {
    TopicRef { namespace: v.text(), name: v.text(), incarnation: v.u64() }
}

fn fence(v: &mut Values) -> Fence {
    Fence { term: v.u64(), op: v.u64() }
}

fn node(v: &mut Values) -> Node {
    Node { store: v.text(), addresses: v.some(Values::text) }
}

fn published(v: &mut Values) -> PublishedEntry {
    PublishedEntry { first_sequence: v.u64(), count: v.u32(), base_offset: v.u64() }
}

fn segment(v: &mut Values) -> Segment {
    Segment {
        id: v.u64(),
        start: v.u32(),
        end: v.u32(),
        buckets: v.u32(),
        sealed: v.flag(),
        parents: v.some(Values::u64),
        children: v.some(Values::u64),
        store: v.text(),
        created_epoch: v.u64(),
        sealed_epoch: v.u64(),
        created_at_us: v.u64(),
        sealed_at_us: v.u64(),
        merge_depth: v.u32(),
    }
}

fn subscription(v: &mut Values) -> SubscriptionSpec {
    SubscriptionSpec {
        name: v.text(),
        generation: v.u64(),
        initial_position: v.u32() as i32,
        assignment: v.u32() as i32,
        handoff_deadline_ms: v.u32(),
    }
}

fn layout(v: &mut Values) -> TopicLayout {
    TopicLayout {
        topic: v.maybe(topic),
        term: v.u64(),
        sequence: v.u64(),
        epoch: v.u64(),
        segments: v.some(segment),
        nodes: v.some(node),
        home_store: v.text(),
        home_term: v.u64(),
        subscriptions: v.some(subscription),
        load_policy: v.maybe(|v| LoadPolicy {
            split_thresholds: v.some(Values::u64),
            merge_thresholds: v.some(Values::u64),
            window_seconds: v.u32(),
        }),
        deleted: v.flag(),
    }
}

fn refused(v: &mut Values) -> Refused {
    Refused { code: v.u32() as i32, message: v.text(), have: v.u64(), sent: v.u64(), have_fence: v.maybe(fence) }
}

fn command(v: &mut Values) -> request::Command {
    match v.u64() % 7 {
        0 => request::Command::Create(CreateSegments {
            segments: v.some(segment),
            subscriptions: v.some(subscription),
            nodes: v.some(node),
        }),
        1 => request::Command::Seal(Seal {
            segment: v.u64(),
            epoch: v.u64(),
            successors: v.some(segment),
            nodes: v.some(node),
        }),
        2 => request::Command::Subscribe(Subscribe {
            subscription: v.maybe(subscription),
            segments: v.some(Values::u64),
        }),
        3 => request::Command::Unsubscribe(Unsubscribe { name: v.text(), generation: v.u64() }),
        4 => request::Command::Tell(layout(v)),
        5 => request::Command::Drop(DropTopic {}),
        _ => request::Command::Inspect(Inspect {}),
    }
}

fn result(v: &mut Values) -> response::Result {
    match v.u64() % 4 {
        0 => response::Result::Done(Done {}),
        1 => response::Result::Refused(refused(v)),
        2 => response::Result::Sealed(Sealed { segment: v.u64(), end_offset: v.u64(), successors: v.some(segment) }),
        _ => response::Result::Inventory(Inventory {
            segments: v.some(|v| StoredSegment {
                incarnation: v.u64(),
                segment: v.maybe(segment),
                end_offset: v.u64(),
                subscriptions: v.some(subscription),
                committed: v.flag(),
            }),
            fence: v.maybe(fence),
        }),
    }
}

fn report(v: &mut Values) -> Report {
    Report {
        topic: v.maybe(topic),
        segments: v.some(|v| SegmentReport {
            segment: v.u64(),
            sealed: v.flag(),
            end_offset: v.u64(),
            rates: v.some(Values::u64),
            cold_for_us: v.maybe(Values::u64),
            cursors: v.some(|v| CursorReport {
                subscription: v.text(),
                generation: v.u64(),
                backlog_messages: v.u64(),
                drained: v.flag(),
            }),
        }),
        groups: v.some(|v| GroupReport {
            subscription: v.text(),
            generation: v.u64(),
            home_term: v.u64(),
            sessions: v.u32(),
            idle: v.u32(),
            owners: v.some(|v| SegmentOwners { segment: v.u64(), sessions: v.u32() }),
        }),
    }
}
