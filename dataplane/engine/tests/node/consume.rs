//! Consumer streams on one segment: buckets, handoff, acks, gates.

use braid_wire::proto::Code;
use braid_wire::proto::request::Command;
use braid_wire::{Frame, proto};

use crate::bench::{Bench, attach, delivered, deliveries, entry, layout, names, refusal, segment, spec};

/// Keys that fall into each of four buckets, in the order of buckets.
fn keys() -> [String; 4] {
    let four = braid_model::Buckets::new(4).unwrap();
    let of = |bucket: u32| {
        let falls = |key: &String| four.of(braid_model::KeyHash::of(key.as_bytes()).bucket()).0 == bucket;
        (0..).map(|i| format!("k{i}")).find(falls).unwrap()
    };
    [of(0), of(1), of(2), of(3)]
}

/// A segment of four buckets with one message of each bucket, twice.
fn filled() -> Bench {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let producer = bench.producer(0, 1, 1);
    for (i, key) in keys().iter().chain(keys().iter()).enumerate() {
        bench.publish(producer, entry(1, 1, i as u64 + 1, 1, key));
    }
    bench
}

#[test]
fn a_sole_consumer_gets_everything_in_order_and_only_what_is_durable() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let (producer, consumer) = (bench.producer(0, 1, 1), bench.attach(0, 5, 1, 4));
    let heard = bench.hear(consumer);
    assert_eq!(names(&heard), ["Attached", "BucketGranted", "BucketGranted", "BucketGranted", "BucketGranted"]);
    bench.say(producer, Frame::Publish(entry(1, 1, 1, 2, "a")));
    bench.say(producer, Frame::Publish(entry(1, 1, 3, 1, "a")));
    assert!(bench.hear(consumer).is_empty());
    bench.sync();
    assert_eq!(deliveries(&bench.hear(consumer)), [("a".into(), 0, 1), ("a".into(), 2, 1)]);
}

#[test]
fn an_ack_is_confirmed_once_it_is_durable_and_survives_a_restart() {
    let mut bench = filled();
    let consumer = bench.attach(0, 5, 1, 4);
    let got = delivered(&bench.hear(consumer));
    assert_eq!(got.len(), 8);
    bench.ack(consumer, 1, &got[0]);
    bench.ack(consumer, 2, &got[3]);
    assert!(bench.hear(consumer).is_empty());
    bench.sync();
    assert_eq!(bench.hear(consumer), [Frame::AckConfirmed(proto::AckConfirmed { ack: 2 })]);
    let mut bench = bench.restart("n-0");
    let consumer = bench.attach(0, 6, 1, 4);
    let bases: Vec<u64> = deliveries(&bench.hear(consumer)).into_iter().map(|(_, base, _)| base).collect();
    assert_eq!(bases, [1, 2, 4, 5, 6, 7]);
}

#[test]
fn a_redelivery_of_a_partly_acked_entry_names_what_is_acked() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let producer = bench.producer(0, 1, 1);
    bench.publish(producer, entry(1, 1, 1, 1, "a"));
    bench.publish(producer, entry(1, 1, 2, 9, "a"));
    let consumer = bench.attach(0, 5, 1, 4);
    let got = delivered(&bench.hear(consumer));
    let ranges = vec![proto::OffsetRange { start: 2, end: 4 }, proto::OffsetRange { start: 7, end: 8 }];
    bench.say(consumer, proto::Ack { ack: 1, bucket: got[0].bucket, round: got[0].round, ranges });
    bench.sync();
    bench.end(consumer);
    let consumer = bench.attach(0, 6, 1, 4);
    let got = delivered(&bench.hear(consumer));
    assert_eq!(got.iter().map(|d| d.entry.header.base_offset).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((got[0].acked.clone(), got[1].acked.clone()), (vec![], vec![(1, 2), (6, 1)]));
}

#[test]
fn credit_bounds_what_is_in_flight() {
    let mut bench = filled();
    let consumer = bench.client();
    bench.say(consumer, proto::Attach { credit_bytes: 100, ..attach(0, 5, 1, 4) });
    let got = delivered(&bench.hear(consumer));
    // 64 bytes of header and two of payload: the second overdraws.
    assert_eq!(got.len(), 2);
    bench.say(consumer, proto::Credit { bytes: 132 });
    assert_eq!(delivered(&bench.hear(consumer)).len(), 2);
}

#[test]
fn a_joining_consumer_waits_for_the_buckets_it_takes_over_and_only_those_move() {
    let mut bench = filled();
    let first = bench.attach(0, 5, 1, 4);
    let got = delivered(&bench.hear(first));
    let second = bench.attach(0, 6, 1, 4);
    let withdrawn: Vec<u32> = { bench.hear(first).into_iter() }
        .filter_map(|frame| match frame {
            Frame::BucketWithdrawn(withdrawn) => Some(withdrawn.bucket),
            _ => None,
        })
        .collect();
    assert_eq!(withdrawn.len(), 2);
    assert_eq!(names(&bench.hear(second)), ["Attached"]);
    // Half of a bucket is not enough.
    let moving: Vec<_> = got.iter().filter(|delivery| delivery.bucket == withdrawn[0]).collect();
    bench.ack(first, 1, moving[0]);
    assert!(bench.hear(second).is_empty());
    bench.ack(first, 2, moving[1]);
    assert_eq!(names(&bench.hear(second)), ["BucketGranted"]);
    // The other one moves when its owner dies, and what was unacked comes again.
    bench.end(first);
    let heard = bench.hear(second);
    assert_eq!(names(&heard)[..3], ["BucketGranted"; 3]);
    let mut buckets: Vec<u32> = delivered(&heard).iter().map(|delivery| delivery.bucket).collect();
    buckets.sort_unstable();
    let expected: Vec<u32> = (0..4).filter(|b| *b != withdrawn[0]).flat_map(|b| [b, b]).collect();
    assert_eq!(buckets, expected);
    for bucket in 0..4 {
        let of = delivered(&heard).into_iter().filter(|delivery| delivery.bucket == bucket);
        assert!(of.map(|delivery| delivery.entry.header.base_offset).is_sorted(), "bucket {bucket}");
    }
}

#[test]
fn a_leave_gives_back_what_was_not_shown_and_ends_when_the_rest_is_acked() {
    // The give-backs may come before the detach or after it.
    for early in [true, false] {
        let mut bench = filled();
        let first = bench.attach(0, 5, 1, 4);
        let got = delivered(&bench.hear(first));
        let give_backs: Vec<proto::GiveBack> = { got[4..].iter() }
            .map(|d| proto::GiveBack { bucket: d.bucket, round: d.round, from: d.entry.header.base_offset })
            .collect();
        if !early {
            bench.say(first, proto::Detach {});
        }
        give_backs.into_iter().for_each(|back| bench.say(first, back));
        if early {
            bench.say(first, proto::Detach {});
        }
        let second = bench.attach(0, 6, 1, 4);
        for (i, delivery) in got[..4].iter().enumerate() {
            bench.ack(first, i as u64 + 1, delivery);
        }
        bench.sync();
        let heard = bench.hear(first);
        assert_eq!(names(&heard).last(), Some(&"Detached"), "early: {early}");
        assert!(heard.contains(&Frame::AckConfirmed(proto::AckConfirmed { ack: 4 })));
        assert!(bench.closed.contains(&first));
        let bases: Vec<u64> = deliveries(&bench.hear(second)).into_iter().map(|(_, base, _)| base).collect();
        assert_eq!(bases, [4, 5, 6, 7], "early: {early}");
    }
}

#[test]
fn a_leave_that_never_ends_counts_as_lost_at_its_deadline() {
    let mut bench = filled();
    let first = bench.attach(0, 5, 1, 4);
    bench.hear(first);
    bench.say(first, proto::Detach {});
    let second = bench.attach(0, 6, 1, 4);
    bench.pass(29_000_000);
    assert_eq!(delivered(&bench.hear(second)).len(), 0);
    bench.pass(2_000_000);
    assert!(bench.closed.contains(&first));
    assert_eq!(delivered(&bench.hear(second)).len(), 8);
}

#[test]
fn an_owner_that_does_not_ack_is_revoked_and_its_late_acks_change_nothing() {
    let mut bench = filled();
    let first = bench.attach(0, 5, 1, 4);
    let got = delivered(&bench.hear(first));
    let second = bench.attach(0, 6, 1, 4);
    bench.hear(first);
    bench.pass(31_000_000);
    let revoked: Vec<u32> = { bench.hear(first).into_iter() }
        .filter_map(|frame| match frame {
            Frame::BucketRevoked(revoked) => Some(revoked.bucket),
            _ => None,
        })
        .collect();
    assert_eq!(revoked.len(), 2);
    assert_eq!(delivered(&bench.hear(second)).len(), 4);
    let acks = bench.node.metrics().acks;
    let late = got.iter().find(|delivery| revoked.contains(&delivery.bucket)).unwrap();
    bench.ack(first, 1, late);
    bench.sync();
    assert_eq!(bench.node.metrics().acks, acks);
    assert_eq!(bench.hear(first), [Frame::AckConfirmed(proto::AckConfirmed { ack: 1 })]);
}

#[test]
fn a_higher_attach_replaces_a_lower_one_and_a_lower_one_is_refused() {
    let mut bench = filled();
    let old = bench.attach(0, 5, 3, 4);
    bench.hear(old);
    let new = bench.attach(0, 5, 4, 4);
    bench.sync();
    assert_eq!(refusal(&bench.hear(old)).0, Code::StaleAttach);
    assert!(bench.closed.contains(&old));
    assert_eq!(delivered(&bench.hear(new)).len(), 8);
    let late = bench.attach(0, 5, 4, 4);
    assert_eq!(refusal(&bench.hear(late)), (Code::StaleAttach, 4, 4));
    bench.end(old);
    assert_eq!(bench.node.metrics().attaches, 1);
}

#[test]
fn an_attach_of_another_layout_or_to_what_is_not_here_is_refused() {
    let mut bench = Bench::new("n-0");
    bench.create(vec![segment(4, (0, 65_535), 4, &[], "n-0", 3)], vec![spec("s")]);
    let mut check = |sent: proto::Attach, code: Code| {
        let channel = bench.client();
        bench.say(channel, sent);
        assert_eq!(refusal(&bench.hear(channel)).0, code);
    };
    check(attach(4, 5, 1, 8), Code::StaleLayout);
    check(proto::Attach { layout_epoch: 2, ..attach(4, 5, 1, 4) }, Code::StaleLayout);
    check(attach(5, 5, 1, 4), Code::UnknownTopic);
    check(proto::Attach { subscription: "t".into(), ..attach(4, 5, 1, 4) }, Code::UnknownSubscription);
    check(proto::Attach { subscription: String::new(), ..attach(4, 5, 1, 4) }, Code::Malformed);
    check(attach(4, 5, 1, 0), Code::Malformed);
    bench.tell(layout(1, vec![], vec![]));
    let channel = bench.client();
    bench.say(channel, attach(5, 5, 1, 4));
    assert_eq!(refusal(&bench.hear(channel)).0, Code::UnknownSegment);
}

/// A rebucket of segment 0 into 1 on the same store.
fn rebucketed(bench: &mut Bench) {
    let child = segment(1, (0, 65_535), 8, &[0], "n-0", 2);
    bench.create(vec![child.clone()], vec![spec("s")]);
    bench.seal(0, &[child]);
}

#[test]
fn a_child_gives_nothing_before_its_parent_is_drained() {
    let mut bench = filled();
    rebucketed(&mut bench);
    let producer = bench.producer(1, 1, 1);
    bench.publish(producer, entry(1, 1, 1, 1, "z"));
    let (parent, child) = (bench.attach(0, 5, 1, 4), bench.attach(1, 5, 2, 8));
    let got = delivered(&bench.hear(parent));
    assert_eq!(names(&bench.hear(child)).iter().filter(|name| **name == "Delivery").count(), 0);
    for (i, delivery) in got.iter().enumerate() {
        assert!(delivered(&bench.hear(child)).is_empty());
        bench.ack(parent, i as u64 + 1, delivery);
    }
    // The last ack and the drained record must be durable first.
    assert!(delivered(&bench.hear(child)).is_empty());
    bench.sync();
    assert_eq!(deliveries(&bench.hear(child)), [("z".into(), 0, 1)]);
    assert!(bench.hear(parent).contains(&Frame::SegmentDrained(proto::SegmentDrained { segment: 0 })));
    // It stays open after a restart, without another word.
    let mut bench = bench.restart("n-0");
    let child = bench.attach(1, 7, 1, 8);
    assert_eq!(deliveries(&bench.hear(child)), [("z".into(), 0, 1)]);
    let parent = bench.attach(0, 7, 1, 4);
    assert!(names(&bench.hear(parent)).contains(&"SegmentDrained"));
}

#[test]
fn an_empty_middle_generation_does_not_open_the_gate() {
    let mut bench = filled();
    rebucketed(&mut bench);
    let grandchild = segment(2, (0, 65_535), 16, &[1], "n-0", 3);
    bench.create(vec![grandchild.clone()], vec![spec("s")]);
    bench.seal(1, &[grandchild]);
    let producer = bench.producer(2, 1, 1);
    bench.publish(producer, entry(1, 1, 1, 1, "z"));
    let last = bench.attach(2, 5, 1, 16);
    assert!(delivered(&bench.hear(last)).is_empty());
    let root = bench.attach(0, 5, 2, 4);
    for (i, delivery) in delivered(&bench.hear(root)).iter().enumerate() {
        bench.ack(root, i as u64 + 1, delivery);
    }
    bench.sync();
    assert_eq!(deliveries(&bench.hear(last)), [("z".into(), 0, 1)]);
}

#[test]
fn a_latest_subscription_starts_at_the_end_of_what_exists_and_at_the_beginning_of_what_comes() {
    let mut bench = filled();
    let latest = proto::SubscriptionSpec {
        initial_position: proto::InitialPosition::Latest.into(),
        generation: 9,
        ..spec("late")
    };
    let subscribe = proto::Subscribe { subscription: Some(latest.clone()), segments: vec![0] };
    bench.done(Command::Subscribe(subscribe.clone()));
    // Repeated after more messages, it changes nothing.
    let producer = bench.producer(0, 2, 1);
    bench.publish(producer, entry(2, 1, 1, 1, "new"));
    bench.done(Command::Subscribe(subscribe));
    let child = segment(1, (0, 65_535), 8, &[0], "n-0", 2);
    bench.create(vec![child.clone()], vec![spec("s"), latest]);
    bench.seal(0, &[child]);
    let producer = bench.producer(1, 2, 1);
    bench.publish(producer, entry(2, 1, 1, 1, "child"));
    let mut bench = bench.restart("n-0");
    let late = |segment, buckets| proto::Attach { subscription: "late".into(), ..attach(segment, 5, 1, buckets) };
    let (parent, child) = (bench.client(), bench.client());
    bench.say(parent, late(0, 4));
    bench.say(child, late(1, 8));
    let got = delivered(&bench.hear(parent));
    assert_eq!(got.iter().map(|d| d.entry.header.base_offset).collect::<Vec<_>>(), [8]);
    assert!(delivered(&bench.hear(child)).is_empty());
    bench.ack(parent, 1, &got[0]);
    bench.sync();
    assert_eq!(deliveries(&bench.hear(child)), [("child".into(), 0, 1)]);
}

#[test]
fn a_newer_generation_starts_anew_and_closes_the_gate() {
    let mut bench = filled();
    rebucketed(&mut bench);
    let root = bench.attach(0, 5, 1, 4);
    for (i, delivery) in delivered(&bench.hear(root)).iter().enumerate() {
        bench.ack(root, i as u64 + 1, delivery);
    }
    bench.sync();
    let child = bench.attach(1, 5, 1, 8);
    bench.hear(child);
    let again = proto::SubscriptionSpec { generation: 20, ..spec("s") };
    bench.done(Command::Subscribe(proto::Subscribe { subscription: Some(again), segments: vec![0, 1] }));
    assert!(bench.closed.contains(&root) && bench.closed.contains(&child));
    let producer = bench.producer(1, 1, 1);
    bench.publish(producer, entry(1, 1, 1, 1, "z"));
    let (root, child) = (bench.attach(0, 6, 1, 4), bench.attach(1, 6, 1, 8));
    assert!(delivered(&bench.hear(child)).is_empty());
    assert_eq!(delivered(&bench.hear(root)).len(), 8);
}
