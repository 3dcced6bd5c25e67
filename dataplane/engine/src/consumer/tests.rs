//! A consumer against a node and a home that the test plays, frame by frame.

use braid_wire::{Delivery, Entry, Frame, Header, Message};
use bytes::BytesMut;

use super::*;
use crate::watch::Contact;

struct Bench {
    now: Micros,
    consumer: Consumer,
    /// Open channels and whom they reach.
    channels: BTreeMap<ChannelId, Option<String>>,
    said: Vec<(ChannelId, Frame)>,
    sequence: u64,
}

const SEGMENTS: [(u64, u32, u32); 2] = [(0, 0, 32_767), (1, 32_768, 65_535)];

impl Bench {
    fn new() -> Self {
        let contact =
            Contact { namespace: "n".into(), topic: "t".into(), bootstrap: vec!["first:1".into()], name: "m".into() };
        let config = Config {
            contact,
            subscription: "s".into(),
            member: "m".into(),
            session: 77,
            credit_bytes: 1_000,
            leave_deadline_us: 30_000_000,
            seed: 1,
        };
        let consumer = Consumer::new(config);
        let mut bench = Self { now: Micros(1), consumer, channels: BTreeMap::new(), said: Vec::new(), sequence: 0 };
        bench.wait(0);
        bench
    }

    /// With a layout of two segments, joined at the home, assigned to both and attached.
    fn attached() -> (Self, ChannelId, ChannelId) {
        let mut bench = Self::new();
        bench.layout("home", 1);
        bench.assign(1, &[0, 1]);
        let [a, b] = [bench.asked(0), bench.asked(1)];
        bench.hear(a, proto::Attached { generation: 1 });
        bench.hear(b, proto::Attached { generation: 1 });
        bench.said.clear();
        (bench, a, b)
    }

    fn layout(&mut self, home: &str, home_term: u64) {
        self.sequence += 1;
        let segment = |(id, start, end): (u64, u32, u32)| proto::Segment {
            id,
            start,
            end,
            buckets: 4,
            store: format!("store-{id}"),
            ..proto::Segment::default()
        };
        let layout = proto::TopicLayout {
            topic: Some(proto::TopicRef { namespace: "n".into(), name: "t".into(), incarnation: 9 }),
            term: 1,
            sequence: self.sequence,
            epoch: 1,
            segments: SEGMENTS.into_iter().map(segment).collect(),
            home_store: home.into(),
            home_term,
            ..proto::TopicLayout::default()
        };
        let watch = *self.channels.iter().find(|(_, store)| store.is_none()).unwrap().0;
        self.hear(watch, layout);
    }

    fn assign(&mut self, sequence: u64, segments: &[u64]) {
        let home = self.to("home");
        self.assign_from(home, 1, sequence, segments);
    }

    fn assign_from(&mut self, channel: ChannelId, home_term: u64, sequence: u64, segments: &[u64]) {
        let segments = segments.to_vec();
        let assignment = proto::SessionAssignment {
            home_term,
            home_start: 1,
            sequence,
            segments,
            session: 77,
            ..Default::default()
        };
        self.hear(channel, assignment);
    }

    /// The newest channel to a store.
    fn to(&self, store: &str) -> ChannelId {
        *self.channels.iter().rev().find(|(_, to)| to.as_deref() == Some(store)).unwrap().0
    }

    fn is_open(&self, channel: ChannelId) -> bool {
        self.channels.contains_key(&channel)
    }

    /// The channel on which an attach to the segment was asked for.
    fn asked(&self, segment: u64) -> ChannelId {
        self.attaches(segment).last().unwrap().0
    }

    fn attaches(&self, segment: u64) -> Vec<(ChannelId, u64)> {
        let attach = |(channel, frame): &(ChannelId, Frame)| match frame {
            Frame::Attach(attach) if attach.segment == segment => Some((*channel, attach.attach)),
            _ => None,
        };
        self.said.iter().filter_map(attach).collect()
    }

    fn hear(&mut self, channel: ChannelId, frame: impl Into<Frame>) {
        self.consumer.handle(self.now, Event::Frame { channel, frame: frame.into() });
        self.effects();
    }

    fn close(&mut self, channel: ChannelId) {
        self.channels.remove(&channel);
        self.consumer.handle(self.now, Event::Closed { channel, reason: "broken".into() });
        self.effects();
    }

    fn wait(&mut self, micros: u64) {
        let end = Micros(self.now.0 + micros);
        for _ in 0..10_000 {
            self.consumer.tick(self.now);
            self.effects();
            match self.consumer.deadline() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("deadlines do not move on");
    }

    fn effects(&mut self) {
        while let Some(effect) = self.consumer.poll_effect() {
            match effect {
                Effect::Open { channel, target } => {
                    self.channels.insert(channel, target.store);
                    self.consumer.handle(self.now, Event::Opened { channel });
                }
                Effect::Send { channel, frame } => self.said.push((channel, frame)),
                Effect::Close { channel } => drop(self.channels.remove(&channel)),
            }
        }
    }

    fn grant(&mut self, channel: ChannelId, bucket: u32, round: u64) {
        self.hear(channel, proto::BucketGranted { bucket, round, owner_number: round, redelivered_below: 0 });
    }

    fn deliver(&mut self, channel: ChannelId, bucket: u32, round: u64, base: u64, values: &[&str]) {
        self.deliver_acked(channel, bucket, round, base, values, &[]);
    }

    fn deliver_acked(
        &mut self,
        to: ChannelId,
        bucket: u32,
        round: u64,
        base: u64,
        values: &[&str],
        acked: &[(u32, u32)],
    ) {
        let mut payload = BytesMut::new();
        for value in values {
            Message { key: Some("k".into()), value: (*value).to_owned().into(), headers: Vec::new() }
                .encode(&mut payload);
        }
        let payload = payload.freeze();
        let mut header = Header {
            codec: 0,
            flags: 0,
            crc32c: 0,
            payload_len: payload.len() as u32,
            base_offset: base,
            append_time: 5,
            count: values.len() as u32,
            producer_epoch: 1,
            route: (0, 0),
            bucket: (0, 0),
            producer_id: 1,
            first_seq: 1,
        };
        header.crc32c = header.checksum(&payload);
        let delivery = Delivery { bucket, round, acked: acked.to_vec(), entry: Entry { header, payload } };
        self.consumer.handle(self.now, Event::Frame { channel: to, frame: Frame::Delivery(delivery) });
        self.effects();
    }

    fn take(&mut self) -> Option<Received> {
        let received = self.consumer.take();
        self.effects();
        received
    }

    fn values(&mut self) -> Vec<String> {
        let value = |received: Received| String::from_utf8(received.message.value.to_vec()).unwrap();
        std::iter::from_fn(|| self.take()).map(value).collect()
    }

    /// What was said on a channel since the last look.
    fn heard(&mut self, channel: ChannelId) -> Vec<Frame> {
        let (of, rest) = std::mem::take(&mut self.said).into_iter().partition(|(c, _)| *c == channel);
        self.said = rest;
        of.into_iter().map(|(_, frame): (_, Frame)| frame).filter(|f| !matches!(f, Frame::Credit(_))).collect()
    }

    fn notices(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.consumer.poll_notice()).collect()
    }
}

fn ack(ack: u64, bucket: u32, round: u64, start: u64, end: u64) -> Frame {
    proto::Ack { ack, bucket, round, ranges: vec![proto::OffsetRange { start, end }] }.into()
}

#[test]
fn deliveries_of_an_older_round_are_dropped() {
    let (mut bench, a, _) = Bench::attached();
    bench.grant(a, 2, 1);
    bench.deliver(a, 2, 1, 0, &["old"]);
    bench.grant(a, 2, 2);
    bench.deliver(a, 2, 1, 0, &["late"]);
    bench.deliver(a, 2, 2, 0, &["new"]);
    bench.deliver(a, 3, 1, 0, &["never granted"]);
    assert_eq!(bench.values(), ["new"]);
}

#[test]
fn messages_that_are_acked_already_are_not_handed_out_again() {
    let (mut bench, a, _) = Bench::attached();
    bench.grant(a, 0, 1);
    bench.deliver_acked(a, 0, 1, 10, &["0", "1", "2", "3", "4"], &[(0, 1), (2, 2)]);
    let offsets: Vec<_> = std::iter::from_fn(|| bench.take()).map(|received| received.id.offset.0).collect();
    assert_eq!(offsets, [11, 14]);
}

#[test]
fn acks_go_together_on_the_channel_that_delivered() {
    let (mut bench, a, b) = Bench::attached();
    bench.grant(a, 0, 1);
    bench.grant(b, 0, 4);
    bench.deliver(a, 0, 1, 0, &["x", "y"]);
    bench.deliver(b, 0, 4, 7, &["z"]);
    while let Some(received) = bench.take() {
        assert!(bench.consumer.ack(bench.now, &received.id));
        assert!(!bench.consumer.ack(bench.now, &received.id), "an ack counts once");
    }
    assert!(bench.consumer.has_unconfirmed_acks());
    bench.wait(ACK_LINGER_US);
    assert_eq!(bench.heard(a), [ack(1, 0, 1, 0, 2)]);
    assert_eq!(bench.heard(b), [ack(1, 0, 4, 7, 8)]);
    bench.hear(a, proto::AckConfirmed { ack: 1 });
    bench.hear(b, proto::AckConfirmed { ack: 1 });
    assert!(!bench.consumer.has_unconfirmed_acks());
}

#[test]
fn a_withdrawn_bucket_gives_back_what_was_not_taken_and_acks_of_the_rest_hurry() {
    let (mut bench, a, _) = Bench::attached();
    bench.grant(a, 0, 3);
    bench.deliver(a, 0, 3, 0, &["0", "1"]);
    bench.deliver(a, 0, 3, 2, &["2"]);
    let taken = bench.take().unwrap();
    bench.hear(a, proto::BucketWithdrawn { bucket: 0, round: 3 });
    assert_eq!(bench.heard(a), [proto::GiveBack { bucket: 0, round: 3, from: 1 }.into()]);
    assert_eq!(bench.take(), None);
    // On its way when the bucket was withdrawn.
    bench.deliver(a, 0, 3, 3, &["3"]);
    assert_eq!(bench.heard(a), [proto::GiveBack { bucket: 0, round: 3, from: 3 }.into()]);
    assert!(bench.consumer.ack(bench.now, &taken.id));
    bench.effects();
    assert_eq!(bench.heard(a), [ack(1, 0, 3, 0, 1)]);
}

#[test]
fn a_revoked_bucket_drops_what_was_buffered_and_its_acks_do_not_count() {
    let (mut bench, a, _) = Bench::attached();
    bench.grant(a, 0, 3);
    bench.deliver(a, 0, 3, 0, &["0", "1", "2"]);
    let (first, second) = (bench.take().unwrap(), bench.take().unwrap());
    assert!(bench.consumer.ack(bench.now, &first.id));
    bench.hear(a, proto::BucketRevoked { bucket: 0, round: 3 });
    assert_eq!(bench.notices(), [Notice::Revoked { segment: SegmentId(0), bucket: 0 }]);
    assert!(!bench.consumer.ack(bench.now, &second.id));
    bench.wait(ACK_LINGER_US);
    assert_eq!(bench.heard(a), []);
    assert_eq!(bench.take(), None);
}

#[test]
fn credit_returns_as_the_application_takes() {
    let (mut bench, a, _) = Bench::attached();
    bench.grant(a, 0, 1);
    (0..10).for_each(|i| bench.deliver(a, 0, 1, i, &["0123456789"]));
    let credit = |bench: &Bench| {
        let bytes = |(_, frame): &(ChannelId, Frame)| match frame {
            Frame::Credit(credit) => credit.bytes,
            _ => 0,
        };
        bench.said.iter().map(bytes).sum::<u64>()
    };
    // 64 bytes of header, 12 of lengths, 1 of key, 10 of value.
    assert_eq!(credit(&bench), 0);
    (0..2).for_each(|_| drop(bench.take()));
    assert_eq!(credit(&bench), 0, "a quarter of the credit is not reached");
    bench.take();
    assert_eq!(credit(&bench), 3 * 87);
    bench.values();
    assert_eq!(credit(&bench), 10 * 87, "the last one returns all");
}

#[test]
fn only_the_newest_assignment_counts_and_a_segment_it_drops_is_left_in_two_phases() {
    let (mut bench, a, b) = Bench::attached();
    bench.grant(b, 1, 1);
    bench.deliver(b, 1, 1, 0, &["0", "1"]);
    let taken = bench.take().unwrap();
    bench.assign(5, &[0]);
    assert_eq!(bench.heard(b), [proto::GiveBack { bucket: 1, round: 1, from: 1 }.into(), proto::Detach {}.into()]);
    bench.assign(4, &[0, 1]);
    assert!(bench.consumer.ack(bench.now, &taken.id), "acks count until the node lets go");
    bench.effects();
    assert_eq!(bench.heard(b), [ack(1, 1, 1, 0, 1)]);
    bench.hear(b, proto::Detached {});
    assert!(!bench.is_open(b) && bench.is_open(a));
    assert_eq!(bench.attaches(1), []);
    // Wanted again: a higher attach number.
    bench.assign(6, &[0, 1]);
    assert_eq!(bench.attaches(1).iter().map(|(_, number)| *number).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_segment_that_is_not_wanted_any_more_when_the_attach_is_answered_gives_everything_back() {
    let mut bench = Bench::new();
    bench.layout("home", 1);
    bench.assign(1, &[0, 1]);
    let b = bench.asked(1);
    bench.said.clear();
    bench.assign(2, &[0]);
    assert!(bench.is_open(b), "closed now, what the node sent already would count as shown");
    bench.hear(b, proto::Attached { generation: 1 });
    assert_eq!(bench.heard(b), [proto::Detach {}.into()]);
    bench.grant(b, 2, 1);
    bench.deliver(b, 2, 1, 4, &["4", "5"]);
    assert_eq!(bench.heard(b), [proto::GiveBack { bucket: 2, round: 1, from: 4 }.into()]);
    assert_eq!(bench.take(), None);
    bench.hear(b, proto::Detached {});
    assert!(!bench.is_open(b));
}

#[test]
fn a_lost_channel_drops_its_buffer_and_the_next_attach_marks_what_was_handed_out_before() {
    let (mut bench, a, _) = Bench::attached();
    bench.grant(a, 0, 1);
    bench.deliver(a, 0, 1, 0, &["0", "1"]);
    let taken = bench.take().unwrap();
    bench.close(a);
    assert_eq!(bench.notices(), [Notice::Lost { segment: SegmentId(0) }]);
    assert!(!bench.consumer.ack(bench.now, &taken.id));
    assert_eq!(bench.take(), None);
    bench.wait(100_000);
    let again = bench.asked(0);
    bench.hear(again, proto::Attached { generation: 1 });
    bench.grant(again, 0, 2);
    bench.deliver(again, 0, 2, 0, &["0", "1"]);
    let marks: Vec<_> = std::iter::from_fn(|| bench.take()).map(|received| received.redelivered).collect();
    assert_eq!(marks, [true, false]);
}

#[test]
fn a_node_says_below_which_offset_others_may_have_seen_the_messages() {
    let (mut bench, a, _) = Bench::attached();
    bench.hear(a, proto::BucketGranted { bucket: 0, round: 2, owner_number: 9, redelivered_below: 1 });
    bench.deliver(a, 0, 2, 0, &["0", "1"]);
    let marks: Vec<_> = std::iter::from_fn(|| bench.take()).map(|r| (r.redelivered, r.owner_number)).collect();
    assert_eq!(marks, [(true, 9), (false, 9)]);
}

#[test]
fn a_leave_is_over_when_every_node_let_go() {
    let (mut bench, a, b) = Bench::attached();
    let home = bench.to("home");
    bench.grant(a, 0, 1);
    bench.deliver(a, 0, 1, 0, &["0"]);
    let taken = bench.take().unwrap();
    bench.consumer.leave(bench.now);
    bench.effects();
    assert!(matches!(bench.heard(home)[..], [Frame::LeaveGroup(_)]));
    assert_eq!(bench.heard(a), [proto::Detach {}.into()]);
    bench.hear(b, proto::Detached {});
    assert_eq!(bench.notices(), []);
    assert!(bench.consumer.ack(bench.now, &taken.id));
    bench.hear(a, proto::AckConfirmed { ack: 1 });
    bench.hear(a, proto::Detached {});
    assert_eq!(bench.notices(), [Notice::Left]);
    assert!(bench.channels.is_empty(), "{:?}", bench.channels);
    assert_eq!(bench.consumer.deadline(), None);
}

#[test]
fn a_leave_ends_at_its_deadline_even_if_the_application_never_acks() {
    let (mut bench, a, b) = Bench::attached();
    bench.grant(a, 0, 1);
    bench.deliver(a, 0, 1, 0, &["0"]);
    bench.take().unwrap();
    bench.consumer.leave(bench.now);
    bench.effects();
    bench.hear(b, proto::Detached {});
    bench.wait(29_999_999);
    assert_eq!(bench.notices(), []);
    bench.wait(1);
    bench.wait(0);
    assert_eq!(bench.notices(), [Notice::Left]);
}

#[test]
fn without_a_home_for_ten_seconds_it_attaches_to_every_segment_and_leaves_the_surplus_when_a_home_is_back() {
    let mut bench = Bench::new();
    bench.layout("home", 1);
    bench.assign(1, &[0]);
    let a = bench.asked(0);
    bench.hear(a, proto::Attached { generation: 1 });
    // The home refuses from now on.
    let mut home = bench.to("home");
    bench.close(home);
    for _ in 0..99 {
        bench.wait(100_000);
        if bench.channels.values().any(|store| store.as_deref() == Some("home")) {
            home = bench.to("home");
            bench.hear(home, proto::Refused::new(Code::NotHome, "home is `other`"));
        }
    }
    assert_eq!(bench.attaches(1), []);
    bench.wait(100_000);
    let b = bench.asked(1);
    bench.hear(b, proto::Refused::new(Code::NoFreeBucket, "4 of 4"));
    let tries = bench.attaches(1).len();
    bench.wait(4_900_000);
    assert_eq!(bench.attaches(1).len(), tries, "not again before half of ten seconds");
    bench.wait(5_100_000);
    assert_eq!(bench.attaches(1).len(), tries + 1);
    let b = bench.asked(1);
    bench.hear(b, proto::Attached { generation: 1 });
    bench.wait(2_000_000);
    bench.said.clear();
    let home = bench.to("home");
    bench.assign_from(home, 1, 1, &[0]);
    assert_eq!(bench.heard(b), [proto::Detach {}.into()]);
    assert_eq!(bench.heard(a), []);
}

#[test]
fn a_moved_home_is_joined_with_what_is_held() {
    let (mut bench, a, _) = Bench::attached();
    let old = bench.to("home");
    bench.layout("other", 2);
    assert!(!bench.is_open(old));
    let other = bench.to("other");
    let joins: Vec<_> = bench.heard(other);
    let [Frame::Hello(_), Frame::Join(join)] = &joins[..] else { panic!("{joins:?}") };
    assert_eq!((join.held.as_slice(), join.session), (&[0, 1][..], 77));
    bench.assign_from(other, 2, 1, &[0, 1]);
    assert_eq!(bench.heard(a), [], "nobody's work changes");
}

#[test]
fn a_drained_segment_is_left_and_not_attached_again() {
    let (mut bench, a, _) = Bench::attached();
    bench.hear(a, proto::SegmentDrained { segment: 0 });
    assert_eq!(bench.heard(a), [proto::Detach {}.into()]);
    bench.hear(a, proto::Detached {});
    bench.assign(7, &[0, 1]);
    bench.wait(60_000_000);
    assert_eq!(bench.attaches(0), []);
}

#[test]
fn a_refusal_that_asking_again_cannot_help_ends_the_session() {
    let mut bench = Bench::new();
    bench.layout("home", 1);
    bench.assign(1, &[0]);
    let a = bench.asked(0);
    bench.hear(a, proto::Refused::new(Code::Unauthorized, "client `m` may not consume"));
    let [Notice::Failed(error)] = &bench.notices()[..] else { panic!() };
    assert_eq!(error.to_string(), "subscription `s`, member `m`: UNAUTHORIZED: client `m` may not consume");
    assert!(bench.channels.is_empty());
}
