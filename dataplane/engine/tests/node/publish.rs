//! Producer streams: durable before acked, in sequence, deduplicated, and a last word at a seal.

use braid_log::{AppendError, Store};
use braid_wire::proto::Code;
use braid_wire::{Frame, proto};

use crate::bench::{Bench, entry, names, open_producer, refusal, segment};

#[test]
fn an_entry_is_acked_only_once_it_is_durable() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let producer = bench.producer(0, 1, 1);
    for (sequence, count) in [(1, 3), (4, 1)] {
        bench.say(producer, Frame::Publish(entry(1, 1, sequence, count, "k")));
    }
    assert!(bench.hear(producer).is_empty());
    bench.sync();
    let entries = vec![
        proto::PublishedEntry { first_sequence: 1, count: 3, base_offset: 0 },
        proto::PublishedEntry { first_sequence: 4, count: 1, base_offset: 3 },
    ];
    assert_eq!(bench.hear(producer), [Frame::Published(proto::Published { entries })]);
}

#[test]
fn a_resend_gets_its_first_offsets_and_is_not_appended_again() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let producer = bench.producer(0, 1, 1);
    let first = bench.publish(producer, entry(1, 1, 1, 2, "k"));
    bench.publish(producer, entry(1, 1, 3, 2, "k"));
    let records = bench.node.store().last();
    assert_eq!(bench.publish(producer, entry(1, 1, 1, 2, "k")), first);
    assert_eq!(bench.node.store().last(), records);
    // The same sequences with other bytes are no resend.
    bench.say(producer, Frame::Publish(entry(1, 1, 1, 2, "other")));
    assert_eq!(refusal(&bench.hear(producer)).0, Code::Malformed);
}

#[test]
fn a_gap_is_refused_with_both_sides_and_ends_the_stream() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let producer = bench.producer(0, 1, 1);
    bench.say(producer, Frame::Publish(entry(1, 1, 1, 2, "k")));
    bench.say(producer, Frame::Publish(entry(1, 1, 4, 1, "k")));
    // What was in flight behind it is not taken either.
    bench.say(producer, Frame::Publish(entry(1, 1, 3, 1, "k")));
    bench.sync();
    let heard = bench.hear(producer);
    assert_eq!(names(&heard), ["Published", "Refused"]);
    assert_eq!(refusal(&heard), (Code::SequenceGap, 3, 4));
    assert!(bench.closed.contains(&producer));
    // The next stream is told where to go on.
    let again = bench.client();
    bench.say(again, open_producer(0, 1, 1));
    let window = vec![proto::PublishedEntry { first_sequence: 1, count: 2, base_offset: 0 }];
    assert_eq!(bench.hear(again), [Frame::ProducerOpened(proto::ProducerOpened { last_sequence: 2, window })]);
}

#[test]
fn an_entry_must_fit_its_segment_one_bucket_and_its_checksum() {
    let mut bench = Bench::new("n-0");
    bench.create(vec![segment(0, (0, 0x7fff), 4, &[], "n-0", 1)], vec![]);
    let mut check = |change: &dyn Fn(&mut braid_wire::Header), rehash: bool, code: Code| {
        let producer = bench.producer(0, 9, 1);
        let mut entry = entry(9, 1, 1, 1, "k");
        (entry.header.route, entry.header.bucket) = ((5, 5), (5, 5));
        change(&mut entry.header);
        if rehash {
            entry.header.crc32c = entry.header.checksum(&entry.payload);
        }
        bench.say(producer, Frame::Publish(entry));
        assert_eq!(refusal(&bench.hear(producer)).0, code);
    };
    check(&|header| header.route = (5, 0x8000), true, Code::RangeSpan);
    check(&|header| header.bucket = (0x3fff, 0x4000), true, Code::BucketSpan);
    check(&|header| header.crc32c ^= 1, false, Code::Checksum);
    check(&|header| header.producer_id = 8, true, Code::Malformed);
    check(&|header| header.producer_epoch = 2, true, Code::Malformed);
    check(&|header| header.first_seq = 2, true, Code::SequenceGap);
}

#[test]
fn a_higher_epoch_fences_lower_ones_durably_and_numbers_from_1() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let old = bench.producer(0, 1, 1);
    bench.publish(old, entry(1, 1, 1, 1, "k"));
    let new = bench.client();
    bench.say(new, open_producer(0, 1, 2));
    assert!(bench.hear(new).is_empty(), "the fence is not durable yet");
    bench.sync();
    assert_eq!(bench.hear(new), [Frame::ProducerOpened(proto::ProducerOpened::default())]);
    bench.say(old, Frame::Publish(entry(1, 1, 2, 1, "k")));
    assert_eq!(refusal(&bench.hear(old)), (Code::ProducerFenced, 2, 1));
    let mut bench = bench.restart("n-0");
    let late = bench.client();
    bench.say(late, open_producer(0, 1, 1));
    assert_eq!(refusal(&bench.hear(late)), (Code::ProducerFenced, 2, 1));
}

#[test]
fn a_seal_tells_each_producer_its_last_sequence_and_the_successors_after_all_its_acks() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let (one, two) = (bench.producer(0, 1, 1), bench.producer(0, 2, 1));
    bench.say(one, Frame::Publish(entry(1, 1, 1, 2, "k")));
    let successors = [segment(1, (0, 65_535), 8, &[0], "n-1", 2)];
    let seal = bench.seal(0, &successors);
    assert_eq!((seal.end_offset, &seal.successors[..]), (2, &successors[..]));
    let heard = bench.hear(one);
    assert_eq!(names(&heard), ["Published", "SegmentSealed"]);
    let Frame::SegmentSealed(last) = &heard[1] else { unreachable!() };
    assert_eq!((last.last_sequence, last.window.len(), &last.successors[..]), (2, 1, &successors[..]));
    assert_eq!(last.nodes.len(), 2);
    let heard = bench.hear(two);
    let [Frame::SegmentSealed(last)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((last.last_sequence, last.window.len()), (0, 0));
    assert!(bench.closed.contains(&one) && bench.closed.contains(&two));
    // Who asks later gets the same answer, also after a restart.
    let mut bench = bench.restart("n-0");
    let late = bench.client();
    bench.say(late, open_producer(0, 1, 1));
    let heard = bench.hear(late);
    let [Frame::SegmentSealed(last)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((last.last_sequence, &last.successors[..]), (2, &successors[..]));
}

#[test]
fn a_seal_is_not_shown_before_it_is_durable() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let producer = bench.producer(0, 1, 1);
    let operator = bench.operator();
    let seal = proto::Seal { segment: 0, epoch: 2, successors: vec![], nodes: vec![] };
    let request = proto::Request {
        id: 1,
        fence: Some(proto::Fence { term: 9, op: 9 }),
        topic: Some(crate::bench::topic()),
        command: Some(proto::request::Command::Seal(seal)),
    };
    bench.say(operator, request);
    bench.say(producer, Frame::Publish(entry(1, 1, 1, 1, "k")));
    let late = bench.client();
    bench.say(late, open_producer(0, 1, 1));
    assert!(bench.hear(producer).is_empty() && bench.hear(operator).is_empty() && bench.hear(late).is_empty());
    bench.sync();
    assert_eq!(names(&bench.hear(producer)), ["SegmentSealed"]);
    assert_eq!(names(&bench.hear(late)), ["SegmentSealed"]);
    assert!(names(&bench.hear(operator)).contains(&"Response"));
}

#[test]
fn a_full_disk_is_said_and_the_refused_sequence_may_come_again() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let producer = bench.producer(0, 1, 1);
    bench.node.store().refuse(Some(AppendError::NoSpace));
    bench.say(producer, Frame::Publish(entry(1, 1, 1, 1, "k")));
    assert_eq!(refusal(&bench.hear(producer)).0, Code::NoSpace);
    bench.node.store().refuse(None);
    let producer = bench.producer(0, 1, 1);
    assert_eq!(bench.publish(producer, entry(1, 1, 1, 1, "k")).base_offset, 0);
}

#[test]
fn after_a_failed_sync_nothing_is_acked_and_everyone_is_told() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let producer = bench.producer(0, 1, 1);
    bench.say(producer, Frame::Publish(entry(1, 1, 1, 1, "k")));
    bench.handle(braid_engine::Event::StoreFailed { reason: "sync: i/o error".into() });
    assert_eq!(refusal(&bench.hear(producer)).0, Code::StoreFailed);
    assert!(bench.closed.contains(&producer) && !bench.node.ready());
    let late = bench.client();
    bench.say(late, open_producer(0, 1, 2));
    assert_eq!(refusal(&bench.hear(late)).0, Code::StoreFailed);
    assert_eq!(bench.node.metrics().store_failed, 1);
}

#[test]
fn nothing_is_said_before_the_start_counter_is_durable() {
    let mut bench = Bench::open(
        "n-0",
        braid_log::MemoryStore::default(),
        braid_model::Micros(1),
        braid_engine::node::Bounds::default(),
    );
    let session = bench.client();
    bench.say(session, proto::Hello { version: 1, name: "c".into() });
    assert!(bench.hear(session).is_empty() && !bench.node.ready());
    bench.sync();
    let heard = bench.hear(session);
    let [Frame::HelloOk(ok)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((ok.start_counter, ok.store.as_str(), bench.node.ready()), (1, "n-0", true));
}
