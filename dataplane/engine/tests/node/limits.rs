//! Every bound that a hello announces is kept, and the refusal names it.

use braid_engine::node::Bounds;
use braid_log::MemoryStore;
use braid_model::Micros;
use braid_wire::proto::Code;
use braid_wire::{Frame, proto};

use crate::bench::{Bench, entry, layout, names, refusal, segment, spec, topic};

fn bench(bounds: Bounds) -> Bench {
    let mut bench = Bench::open("n-0", MemoryStore::default(), Micros(1_000_000), bounds);
    bench.sync();
    bench.root("n-0", 4);
    bench
}

#[test]
fn the_hello_announces_the_bounds() {
    let mut bench = bench(Bounds { sessions: 1, streams: 9, in_flight_bytes: 3, frame_bytes: 4 });
    let session = bench.client();
    bench.say(session, proto::Hello { version: 1, name: "c".into() });
    let heard = bench.hear(session);
    let [Frame::HelloOk(ok)] = &heard[..] else { panic!("{heard:?}") };
    let limits = proto::Limits { frame_bytes: 4, sessions: 1, streams: 9, in_flight_bytes: 3 };
    assert_eq!(ok.limits, Some(limits));
    let other = bench.client();
    bench.say(other, proto::Hello { version: 2, name: "c".into() });
    assert_eq!(refusal(&bench.hear(other)), (Code::Malformed, 1, 2));
}

#[test]
fn streams_are_bounded() {
    let mut bench = bench(Bounds { streams: 2, ..Bounds::default() });
    let (one, _two, three) = (bench.client(), bench.client(), bench.client());
    assert_eq!(refusal(&bench.hear(three)), (Code::LimitExceeded, 2, 3));
    assert!(bench.closed.contains(&three));
    bench.end(one);
    let four = bench.client();
    assert!(bench.hear(four).is_empty());
}

#[test]
fn sessions_are_bounded_and_a_known_one_may_join_again() {
    let mut bench = bench(Bounds { sessions: 2, ..Bounds::default() });
    bench.tell(layout(1, vec![segment(0, (0, 65_535), 4, &[], "n-0", 1)], vec![spec("s")]));
    let join = |session| proto::Join {
        topic: Some(topic()),
        subscription: "s".into(),
        member: "m".into(),
        session,
        held: vec![],
    };
    let stream = bench.session();
    for session in [1, 2, 2] {
        bench.say(stream, join(session));
    }
    bench.hear(stream);
    bench.say(stream, join(3));
    assert_eq!(refusal(&bench.hear(stream)), (Code::LimitExceeded, 2, 3));
    bench.say(stream, proto::LeaveGroup { topic: Some(topic()), subscription: "s".into(), session: 1 });
    bench.say(stream, join(3));
    assert!(names(&bench.hear(stream)).contains(&"SessionAssignment"));
}

#[test]
fn bytes_in_flight_are_bounded_and_the_same_entry_may_come_again() {
    let mut bench = bench(Bounds { in_flight_bytes: 140, ..Bounds::default() });
    let producer = bench.producer(0, 1, 1);
    for sequence in [1, 2] {
        bench.say(producer, Frame::Publish(entry(1, 1, sequence, 1, "k")));
    }
    bench.say(producer, Frame::Publish(entry(1, 1, 3, 1, "k")));
    bench.sync();
    let heard = bench.hear(producer);
    assert_eq!(names(&heard), ["Published", "Refused"]);
    assert_eq!(refusal(&heard), (Code::Busy, 140, 197));
    let producer = bench.producer(0, 1, 1);
    assert_eq!(bench.publish(producer, entry(1, 1, 3, 1, "k")).base_offset, 2);
}

#[test]
fn an_entry_is_no_larger_than_a_frame() {
    let mut bench = bench(Bounds { frame_bytes: 66, ..Bounds::default() });
    let producer = bench.producer(0, 1, 1);
    bench.say(producer, Frame::Publish(entry(1, 1, 1, 1, "k")));
    assert_eq!(refusal(&bench.hear(producer)), (Code::LimitExceeded, 66, 67));
}

#[test]
fn a_frame_that_does_not_belong_on_a_stream_ends_it() {
    let mut bench = bench(Bounds::default());
    let producer = bench.producer(0, 1, 1);
    bench.say(producer, proto::Detach {});
    assert_eq!(refusal(&bench.hear(producer)), (Code::UnsupportedKind, 0, 49));
    assert!(bench.closed.contains(&producer));
}
