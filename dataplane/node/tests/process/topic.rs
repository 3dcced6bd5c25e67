//! One topic, as an operator, a producer and a consumer speak of it.

use braid_model::KeyHash;
use braid_wire::message::Message;
use braid_wire::proto::{
    self, Ack, Attach, CreateSegments, Fence, LoadPolicy, Node, OffsetRange, OpenProducer, PublishedEntry, Request,
    Segment, SubscriptionSpec, TopicLayout, TopicRef, request, response,
};
use braid_wire::{Delivery, Entry, Frame, Header};
use bytes::BytesMut;

use crate::talk::{Contact, Talk};

pub(crate) const STORE: &str = "node-0";
pub(crate) const BUCKETS: u32 = 4;
pub(crate) const PRODUCER: u64 = 77;

pub(crate) fn topic() -> TopicRef {
    TopicRef { namespace: "shop".into(), name: "orders".into(), incarnation: 0x0123_4567_89AB_CDEF }
}

/// The whole ring, on `store`.
pub(crate) fn segment(id: u64, store: &str) -> Segment {
    Segment {
        id,
        start: 0,
        end: 65_535,
        buckets: BUCKETS,
        store: store.into(),
        created_epoch: 1,
        created_at_us: 1,
        ..Segment::default()
    }
}

pub(crate) fn subscription() -> SubscriptionSpec {
    SubscriptionSpec { name: "billing".into(), generation: 1, ..SubscriptionSpec::default() }
}

pub(crate) fn layout(listen: &str) -> TopicLayout {
    TopicLayout {
        topic: Some(topic()),
        term: 1,
        sequence: 1,
        epoch: 1,
        segments: vec![segment(0, STORE)],
        nodes: vec![Node { store: STORE.into(), addresses: vec![listen.into()] }],
        home_store: STORE.into(),
        home_term: 1,
        subscriptions: vec![subscription()],
        load_policy: Some(LoadPolicy {
            split_thresholds: vec![10_000, 50_000_000, 50_000, 250_000_000],
            merge_thresholds: vec![1_000, 5_000_000, 5_000, 25_000_000],
            window_seconds: 5,
        }),
        deleted: false,
    }
}

/// Messages of one key as the producer `PRODUCER` would send them.
pub(crate) fn entry(key: &str, values: &[&str], first_seq: u64) -> Entry {
    let mut payload = BytesMut::new();
    for value in values {
        let (key, value) = (Some(key.to_owned().into()), (*value).to_owned().into());
        Message { key, value, headers: Vec::new() }.encode(&mut payload);
    }
    let hash = KeyHash::of(key.as_bytes());
    let mut header = Header {
        codec: 0,
        flags: 0,
        crc32c: 0,
        payload_len: payload.len() as u32,
        base_offset: 0,
        append_time: 0,
        count: values.len() as u32,
        producer_epoch: 1,
        route: (hash.route(), hash.route()),
        bucket: (hash.bucket(), hash.bucket()),
        producer_id: PRODUCER,
        first_seq,
    };
    header.crc32c = header.checksum(&payload);
    Entry { header, payload: payload.freeze() }
}

pub(crate) async fn answer(
    control: &mut Talk,
    id: u64,
    fence: (u64, u64),
    command: request::Command,
) -> response::Result {
    let fence = Some(Fence { term: fence.0, op: fence.1 });
    control.say(Request { id, fence, topic: Some(topic()), command: Some(command) }).await;
    let response = control.until(|frame| if let Frame::Response(found) = frame { Some(found) } else { None }).await;
    assert_eq!(response.id, id);
    response.result.unwrap()
}

pub(crate) async fn open_producer(contact: &Contact, segment: u64) -> (Talk, proto::ProducerOpened) {
    let open = OpenProducer { topic: Some(topic()), segment, producer: PRODUCER, epoch: 1, layout_epoch: 2 };
    let mut producer = contact.open(open).await;
    let Frame::ProducerOpened(opened) = producer.hear().await else { panic!("the producer is not open") };
    (producer, opened)
}

pub(crate) async fn publish(producer: &mut Talk, entry: &Entry) -> PublishedEntry {
    producer.say(Frame::Publish(entry.clone())).await;
    match producer.hear().await {
        Frame::Published(published) => {
            assert_eq!(published.entries.len(), 1);
            published.entries[0]
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn attach(contact: &Contact, segment: u64, session: u64) -> Talk {
    attach_with(contact, segment, session, 1 << 20).await
}

pub(crate) async fn attach_with(contact: &Contact, segment: u64, session: u64, credit_bytes: u64) -> Talk {
    let attach = Attach {
        topic: Some(topic()),
        segment,
        subscription: "billing".into(),
        member: "member-1".into(),
        session,
        attach: 1,
        buckets: BUCKETS,
        layout_epoch: 2,
        credit_bytes,
    };
    let mut consumer = contact.open(attach).await;
    assert_eq!(consumer.hear().await, proto::Attached { generation: 1 }.into());
    consumer
}

pub(crate) async fn delivery(consumer: &mut Talk) -> Delivery {
    consumer.until(|frame| if let Frame::Delivery(found) = frame { Some(found) } else { None }).await
}

pub(crate) fn values(delivery: &Delivery) -> Vec<String> {
    let messages = Message::decode_all(delivery.entry.payload.clone(), delivery.entry.header.count).unwrap();
    messages.into_iter().map(|message| String::from_utf8(message.value.to_vec()).unwrap()).collect()
}

pub(crate) async fn ack(consumer: &mut Talk, ack: u64, delivery: &Delivery, start: u64, end: u64) {
    let ranges = vec![OffsetRange { start, end }];
    consumer.say(Ack { ack, bucket: delivery.bucket, round: delivery.round, ranges }).await;
    let confirmed = consumer.until(|frame| if let Frame::AckConfirmed(found) = frame { Some(found.ack) } else { None });
    assert_eq!(confirmed.await, ack);
}

/// Makes the topic of `told` with its one segment, and tells its layout.
pub(crate) async fn make(control: &mut Talk, told: &TopicLayout) {
    let create = CreateSegments {
        segments: told.segments.clone(),
        subscriptions: told.subscriptions.clone(),
        nodes: told.nodes.clone(),
    };
    let done = response::Result::Done(proto::Done {});
    assert_eq!(answer(control, 1, (1, 1), request::Command::Create(create)).await, done);
    assert_eq!(answer(control, 2, (1, 1), request::Command::Tell(told.clone())).await, done);
}
