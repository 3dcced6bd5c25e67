//! The operator's commands: fenced, durable, idempotent.

use braid_log::Store;
use braid_wire::proto::request::Command;
use braid_wire::proto::{Code, response};
use braid_wire::{Frame, proto};

use crate::bench::{Bench, INCARNATION, layout, names, node, open_producer, refusal, segment, spec, topic};

fn fence(term: u64, op: u64) -> proto::Fence {
    proto::Fence { term, op }
}

#[track_caller]
fn refused(result: response::Result) -> proto::Refused {
    match result {
        response::Result::Refused(refused) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stale_fence_is_refused_with_both_sides_also_after_the_segments_are_gone_and_after_a_restart() {
    let mut bench = Bench::new("n-0");
    let create = || {
        let segments = vec![segment(0, (0, 65_535), 4, &[], "n-0", 1)];
        Command::Create(proto::CreateSegments { segments, subscriptions: vec![], nodes: vec![] })
    };
    let done = response::Result::Done(proto::Done {});
    assert_eq!(bench.command_at(fence(3, 7), create()), done);
    assert_eq!(bench.command_at(fence(3, 7), create()), done);
    assert_eq!(bench.command_at(fence(3, 9), Command::Drop(proto::DropTopic {})), done);
    let mut bench = bench.restart("n-0");
    for sent in [fence(3, 8), fence(2, 99), fence(0, 0)] {
        let refused = refused(bench.command_at(sent, Command::Drop(proto::DropTopic {})));
        assert_eq!((refused.code(), refused.have_fence), (Code::StaleFence, Some(fence(3, 9))));
        assert!(
            refused.message.contains("(3, 9)") && refused.message.contains(&format!("({}, {})", sent.term, sent.op))
        );
    }
    // Another incarnation has a fence of its own; a dropped one is never made again.
    assert_eq!(refused(bench.command_at(fence(9, 10), create())).code(), Code::UnknownTopic);
    let hello = bench.session();
    drop(bench.hear(hello));
    assert!(bench.node.ready());
}

#[test]
fn a_create_compares_the_whole_header_and_adds_missing_cursors() {
    let mut bench = Bench::new("n-0");
    let header = segment(3, (0, 99), 4, &[1, 2], "n-0", 5);
    bench.create(vec![header.clone()], vec![spec("a")]);
    let records = bench.node.store().last();
    bench.create(vec![header.clone()], vec![spec("a"), spec("b")]);
    assert_eq!(bench.node.store().last().0, records.0 + 1);
    let changes: [&dyn Fn(&mut proto::Segment); 6] = [
        &|s| s.start = 1,
        &|s| s.end = 98,
        &|s| s.buckets = 5,
        &|s| s.parents = vec![1],
        &|s| s.created_epoch = 6,
        &|s| s.merge_depth = 1,
    ];
    for change in changes {
        let mut other = header.clone();
        change(&mut other);
        let fresh = segment(4, (0, 99), 4, &[], "n-0", 5);
        let create = proto::CreateSegments { segments: vec![fresh, other], subscriptions: vec![], nodes: vec![] };
        assert_eq!(refused(bench.command(Command::Create(create))).code(), Code::SegmentExists);
    }
    let elsewhere = segment(5, (0, 99), 4, &[], "n-1", 5);
    let create = proto::CreateSegments { segments: vec![elsewhere], subscriptions: vec![], nodes: vec![] };
    assert_eq!(refused(bench.command(Command::Create(create))).code(), Code::Malformed);
    let stored = inspect(&mut bench);
    assert_eq!(stored.segments.len(), 1, "a refused create makes nothing: {stored:?}");
    let names: Vec<_> = stored.segments[0].subscriptions.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}

fn inspect(bench: &mut Bench) -> proto::Inventory {
    match bench.command_at(fence(0, 0), Command::Inspect(proto::Inspect {})) {
        response::Result::Inventory(inventory) => inventory,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_repeated_seal_gets_the_recorded_answer_whatever_it_names() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let first = [segment(1, (0, 65_535), 8, &[0], "n-0", 2)];
    let sealed = bench.seal(0, &first);
    assert_eq!(bench.seal(0, &[segment(9, (0, 65_535), 2, &[0], "n-1", 2)]), sealed);
    let mut bench = bench.restart("n-0");
    assert_eq!(bench.seal(0, &[]), sealed);
    let stored = inspect(&mut bench).segments.remove(0);
    let header = stored.segment.unwrap();
    assert_eq!((header.sealed, header.sealed_epoch, header.children, stored.end_offset), (true, 2, vec![1], 0));
    let unknown = Command::Seal(proto::Seal { segment: 5, ..proto::Seal::default() });
    assert_eq!(refused(bench.command(unknown)).code(), Code::UnknownSegment);
}

#[test]
fn a_layout_counts_only_if_it_is_newer_and_is_pushed_to_every_watcher() {
    let mut bench = Bench::new("n-0");
    let session = bench.session();
    let watch = proto::WatchTopic { topic: Some(proto::TopicRef { incarnation: 0, ..topic() }) };
    bench.say(session, watch.clone());
    assert_eq!(refusal(&bench.hear(session)).0, Code::UnknownTopic);
    let root = segment(0, (0, 65_535), 4, &[], "n-0", 1);
    bench.create(vec![root.clone()], vec![]);
    bench.tell(layout(2, vec![root.clone()], vec![]));
    bench.say(session, watch);
    let told = |bench: &mut Bench| -> Vec<(u64, u64)> {
        let frames = bench.hear(session);
        { frames.iter() }
            .map(|frame| match frame {
                Frame::TopicLayout(layout) => (layout.term, layout.sequence),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(told(&mut bench), [(1, 2)]);
    bench.tell(layout(2, vec![], vec![]));
    bench.tell(layout(1, vec![], vec![]));
    assert_eq!(told(&mut bench), []);
    bench.tell(proto::TopicLayout { term: 2, ..layout(1, vec![root], vec![]) });
    assert_eq!(told(&mut bench), [(2, 1)]);
    assert!(inspect(&mut bench).segments[0].committed);
    // A restarted node answers first contact from its disk.
    let mut bench = bench.restart("n-0");
    let session = bench.session();
    bench.say(session, proto::WatchTopic { topic: Some(proto::TopicRef { incarnation: 0, ..topic() }) });
    assert_eq!(names(&bench.hear(session)), ["TopicLayout"]);
}

#[test]
fn a_deleted_topic_ends_its_streams_and_takes_no_new_ones() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let root = segment(0, (0, 65_535), 4, &[], "n-0", 1);
    bench.tell(layout(1, vec![root], vec![spec("s")]));
    let (producer, consumer, session) = (bench.producer(0, 1, 1), bench.attach(0, 5, 1, 4), bench.session());
    bench.say(session, proto::WatchTopic { topic: Some(topic()) });
    for channel in [consumer, session] {
        bench.hear(channel);
    }
    bench.tell(proto::TopicLayout { deleted: true, ..layout(2, vec![], vec![]) });
    for channel in [producer, consumer] {
        assert_eq!(refusal(&bench.hear(channel)).0, Code::UnknownTopic);
        assert!(bench.closed.contains(&channel));
    }
    let heard = bench.hear(session);
    assert!(matches!(&heard[..], [Frame::TopicLayout(layout)] if layout.deleted), "{heard:?}");
    let late = bench.client();
    bench.say(late, open_producer(0, 1, 1));
    assert_eq!(refusal(&bench.hear(late)).0, Code::UnknownTopic);
    bench.done(Command::Drop(proto::DropTopic {}));
    assert_eq!(bench.node.metrics().segments_active, 0);
    assert_eq!(inspect(&mut bench).segments, []);
}

#[test]
fn an_unsubscribe_removes_cursors_up_to_its_generation_and_ends_their_streams() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let newer = proto::SubscriptionSpec { generation: 5, ..spec("u") };
    let subscribe = proto::Subscribe { subscription: Some(newer), segments: vec![0] };
    bench.done(Command::Subscribe(subscribe));
    let consumer = bench.attach(0, 5, 1, 4);
    bench.hear(consumer);
    bench.done(Command::Unsubscribe(proto::Unsubscribe { name: "u".into(), generation: 4 }));
    bench.done(Command::Unsubscribe(proto::Unsubscribe { name: "s".into(), generation: 4 }));
    assert_eq!(refusal(&bench.hear(consumer)).0, Code::UnknownSubscription);
    let left: Vec<_> = inspect(&mut bench).segments[0].subscriptions.iter().map(|spec| spec.name.clone()).collect();
    assert_eq!(left, ["u"]);
    let unknown = proto::Subscribe { subscription: Some(spec("v")), segments: vec![0, 8] };
    assert_eq!(refused(bench.command(Command::Subscribe(unknown))).code(), Code::UnknownSegment);
}

#[test]
fn only_an_operator_commands_and_only_within_bounds() {
    let mut bench = Bench::new("n-0");
    let session = bench.session();
    bench.say(session, proto::Request::default());
    assert_eq!(refusal(&bench.hear(session)).0, Code::Unauthorized);
    let wrong = [
        segment(0, (5, 4), 4, &[], "n-0", 1),
        segment(0, (0, 65_536), 4, &[], "n-0", 1),
        segment(0, (0, 9), 0, &[], "n-0", 1),
        segment(0, (0, 9), 65_537, &[], "n-0", 1),
    ];
    for header in wrong {
        let create = proto::CreateSegments { segments: vec![header], subscriptions: vec![], nodes: vec![] };
        assert_eq!(refused(bench.command(Command::Create(create))).code(), Code::Malformed);
    }
    for name in ["", &"x".repeat(254)] {
        let unsubscribe = Command::Unsubscribe(proto::Unsubscribe { name: name.into(), generation: 1 });
        assert_eq!(refused(bench.command(unsubscribe)).code(), Code::Malformed);
    }
    assert_eq!(bench.node.metrics().segments_active, 0);
    assert_eq!(INCARNATION, topic().incarnation);
    assert_eq!(node("n-0").store, "n-0");
}
