//! The home: who reads which segment, what it reports, and how facts of other nodes reach it.

use braid_engine::{ChannelId, ConnectionId, Event, Peer};
use braid_wire::proto::{Code, GroupReport};
use braid_wire::{Frame, VERSION, proto};

use crate::bench::{Bench, delivered, entry, layout, names, refusal, segment, spec, topic};

fn join(session: u64) -> proto::Join {
    proto::Join {
        topic: Some(topic()),
        subscription: "s".into(),
        member: format!("m-{session}"),
        session,
        held: vec![],
    }
}

/// The newest assignment of each of the sessions 1.. on its own stream.
fn assigned(bench: &mut Bench, streams: &[ChannelId], held: &mut [Vec<u64>]) {
    for (stream, held) in streams.iter().zip(held) {
        for frame in bench.hear(*stream) {
            match frame {
                Frame::SessionAssignment(assignment) => *held = assignment.segments,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn reports(bench: &mut Bench, operator: ChannelId) -> Vec<GroupReport> {
    { bench.hear(operator).into_iter() }
        .flat_map(|frame| match frame {
            Frame::Report(report) => report.groups,
            _ => vec![],
        })
        .collect()
}

fn owners(report: &GroupReport) -> Vec<(u64, u32)> {
    report.owners.iter().map(|owners| (owners.segment, owners.sessions)).collect()
}

#[test]
fn five_sessions_on_a_cold_rebucket_read_4_0_1_and_after_the_drain_0_5_0() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let root = segment(0, (0, 65_535), 4, &[], "n-0", 1);
    bench.tell(layout(1, vec![root.clone()], vec![spec("s")]));
    let producer = bench.producer(0, 1, 1);
    bench.publish(producer, entry(1, 1, 1, 1, "k"));
    let streams: Vec<ChannelId> = (0..5).map(|_| bench.session()).collect();
    let mut held = vec![vec![]; 5];
    for (stream, session) in streams.iter().zip(1..) {
        bench.say(*stream, join(session));
    }
    assigned(&mut bench, &streams, &mut held);
    let count = |held: &[Vec<u64>], segment: u64| held.iter().filter(|segments| segments.contains(&segment)).count();
    assert_eq!([count(&held, 0), held.iter().filter(|segments| segments.is_empty()).count()], [4, 1]);
    // The rebucket.
    let child = segment(1, (0, 65_535), 8, &[0], "n-0", 2);
    bench.create(vec![child.clone()], vec![spec("s")]);
    bench.seal(0, std::slice::from_ref(&child));
    let sealed = proto::Segment { sealed: true, sealed_epoch: 2, children: vec![1], ..root };
    bench.tell(layout(2, vec![sealed, child], vec![spec("s")]));
    assigned(&mut bench, &streams, &mut held);
    assert_eq!([count(&held, 0), count(&held, 1)], [4, 0]);
    let operator = bench.operator();
    bench.pass(7_000_000);
    let report = reports(&mut bench, operator).pop().expect("a report after the silence");
    assert_eq!((report.sessions, report.idle, owners(&report)), (5, 1, vec![(0, 4), (1, 0)]));
    // The parent is drained.
    let consumer = bench.attach(0, 1, 1, 4);
    let got = delivered(&bench.hear(consumer));
    bench.ack(consumer, 1, &got[0]);
    bench.sync();
    assigned(&mut bench, &streams, &mut held);
    assert_eq!([count(&held, 0), count(&held, 1)], [0, 5]);
    bench.pass(600_000);
    let report = reports(&mut bench, operator).pop().expect("a report once it is still");
    assert_eq!((report.sessions, report.idle, owners(&report)), (5, 0, vec![(1, 5)]));
}

#[test]
fn a_burst_of_joins_is_reported_once_and_an_end_of_a_stream_is_an_end_of_its_sessions() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    bench.tell(layout(1, vec![segment(0, (0, 65_535), 4, &[], "n-0", 1)], vec![spec("s")]));
    let operator = bench.operator();
    bench.pass(3_000_000);
    assert_eq!(reports(&mut bench, operator), [], "a home that opened is silent for 6 s");
    bench.pass(3_500_000);
    bench.pass(5_000_000);
    reports(&mut bench, operator);
    let stream = bench.session();
    for session in 1..=3 {
        bench.say(stream, join(session));
        bench.pass(100_000);
    }
    bench.pass(390_000);
    assert!(reports(&mut bench, operator).iter().all(|report| report.sessions == 0));
    bench.pass(20_000);
    assert_eq!(reports(&mut bench, operator).iter().map(|report| report.sessions).collect::<Vec<_>>(), [3]);
    bench.end(stream);
    bench.pass(510_000);
    assert_eq!(reports(&mut bench, operator).iter().map(|report| report.sessions).collect::<Vec<_>>(), [0]);
    assert_eq!(bench.node.metrics().sessions, 0);
}

#[test]
fn a_join_elsewhere_is_refused_with_the_home_and_without_a_subscription_too() {
    let mut bench = Bench::new("n-1");
    let session = bench.session();
    bench.say(session, join(1));
    // With an incarnation named and no layout told, the topic is not known here.
    assert_eq!(refusal(&bench.hear(session)).0, Code::UnknownTopic);
    bench.tell(layout(1, vec![], vec![spec("s")]));
    bench.say(session, join(1));
    let heard = bench.hear(session);
    assert!(matches!(&heard[..], [Frame::Refused(r)] if r.code() == Code::NotHome && r.message == "n-0"), "{heard:?}");
    bench.tell(proto::TopicLayout { home_store: "n-1".into(), home_term: 2, ..layout(2, vec![], vec![]) });
    bench.say(session, join(1));
    assert_eq!(refusal(&bench.hear(session)).0, Code::UnknownSubscription);
}

#[test]
fn an_assignment_names_the_home_its_start_and_a_rising_sequence() {
    let mut bench = Bench::new("n-0").restart("n-0");
    bench.root("n-0", 4);
    bench.tell(layout(1, vec![segment(0, (0, 65_535), 4, &[], "n-0", 1)], vec![spec("s")]));
    let stream = bench.session();
    bench.say(stream, join(1));
    bench.say(stream, proto::Join { held: vec![0], ..join(1) });
    let got: Vec<_> = { bench.hear(stream).into_iter() }
        .map(|frame| match frame {
            Frame::SessionAssignment(a) => (a.home_term, a.home_start, a.sequence, a.segments),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(got, [(1, 2, 1, vec![0]), (1, 2, 2, vec![0])]);
}

#[test]
fn a_drained_fact_is_sent_to_the_successors_node_until_it_is_noted() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    bench.seal(0, &[segment(1, (0, 0x7fff), 2, &[0], "n-1", 2), segment(2, (0x8000, 65_535), 2, &[0], "n-0", 2)]);
    // Empty and sealed: drained at once.
    assert_eq!(bench.dials, [("n-1".to_owned(), vec!["n-1:4433".to_owned()])]);
    bench.handle(Event::Dialed { store: "n-1".into(), channel: None });
    bench.pass(200_000);
    assert_eq!(bench.dials.len(), 2);
    let dialed = |bench: &mut Bench, id: u64| {
        let channel = ChannelId(id);
        let connection = ConnectionId(id);
        bench.handle(Event::Dialed { store: "n-1".into(), channel: Some((channel, connection)) });
        assert_eq!(names(&bench.hear(channel)), ["Hello"]);
        bench.say(channel, proto::HelloOk { version: VERSION, store: "n-1".into(), ..proto::HelloOk::default() });
        let heard = bench.hear(channel);
        let [Frame::DrainedFact(fact)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((fact.segment, fact.subscription.as_str(), fact.generation), (0, "s", 1));
        assert_eq!(fact.successors, [1]);
        (channel, fact.fact)
    };
    let (channel, _) = dialed(&mut bench, 1 << 50);
    bench.end(channel);
    bench.pass(200_000);
    assert_eq!(bench.dials.len(), 3, "sent again on every reconnect until noted");
    let (channel, fact) = dialed(&mut bench, (1 << 50) + 1);
    bench.say(channel, proto::FactNoted { fact });
    bench.end(channel);
    bench.pass(60_000_000);
    assert_eq!(bench.dials.len(), 3);
    // A new life does not know what was noted: it says it once more.
    let bench = bench.restart("n-0");
    assert_eq!(bench.dials.len(), 1);
}

#[test]
fn a_told_fact_is_durable_before_it_is_noted_or_opens_a_gate_and_stays_after_a_restart() {
    let mut bench = Bench::new("n-1");
    bench.create(vec![segment(3, (0, 65_535), 4, &[1, 2], "n-1", 2)], vec![spec("s")]);
    let producer = bench.producer(3, 1, 1);
    bench.publish(producer, entry(1, 1, 1, 1, "k"));
    let consumer = bench.attach(3, 5, 1, 4);
    bench.hear(consumer);
    let peer = bench.greeted(Peer::Node { store: "n-0".into() });
    let fact = |fact: u64, segment: u64, generation: u64| proto::DrainedFact {
        fact,
        topic: Some(topic()),
        segment,
        subscription: "s".into(),
        generation,
        successors: vec![3],
    };
    bench.say(peer, fact(1, 1, 1));
    assert!(bench.hear(peer).is_empty());
    bench.sync();
    assert_eq!(bench.hear(peer), [Frame::FactNoted(proto::FactNoted { fact: 1 })]);
    // Not of this generation, and not of a parent.
    bench.say(peer, fact(2, 2, 0));
    bench.say(peer, fact(3, 9, 1));
    bench.sync();
    assert!(delivered(&bench.hear(consumer)).is_empty());
    let mut bench = bench.restart("n-1");
    let consumer = bench.attach(3, 5, 2, 4);
    let peer = bench.greeted(Peer::Node { store: "n-0".into() });
    bench.say(peer, fact(1, 2, 1));
    assert!(delivered(&bench.hear(consumer)).is_empty());
    bench.sync();
    assert_eq!(delivered(&bench.hear(consumer)).len(), 1);
    let mut bench = bench.restart("n-1");
    let consumer = bench.attach(3, 5, 3, 4);
    assert_eq!(delivered(&bench.hear(consumer)).len(), 1);
}

#[test]
fn a_client_tells_no_facts() {
    let mut bench = Bench::new("n-1");
    let session = bench.session();
    bench.say(session, proto::DrainedFact::default());
    assert_eq!(refusal(&bench.hear(session)).0, Code::Unauthorized);
}

#[test]
fn a_new_home_hears_every_drained_segment() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let child = segment(1, (0, 65_535), 8, &[0], "n-0", 2);
    bench.create(vec![child.clone()], vec![spec("s")]);
    bench.seal(0, std::slice::from_ref(&child));
    bench.tell(layout(1, vec![child.clone()], vec![spec("s")]));
    assert_eq!(bench.dials, []);
    bench.tell(proto::TopicLayout {
        home_store: "n-1".into(),
        home_term: 2,
        ..layout(2, vec![child], vec![spec("s")])
    });
    assert_eq!(bench.dials, [("n-1".to_owned(), vec!["n-1:4433".to_owned()])]);
}

#[test]
fn loads_are_reported_every_five_seconds_and_a_drain_at_once() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    let root = segment(0, (0, 65_535), 4, &[], "n-0", 1);
    let policy = proto::LoadPolicy {
        split_thresholds: vec![100, 1_000_000, 100, 1_000_000],
        merge_thresholds: vec![10, 100_000, 10, 100_000],
        window_seconds: 2,
    };
    bench.tell(proto::TopicLayout { load_policy: Some(policy), ..layout(1, vec![root], vec![]) });
    let operator = bench.operator();
    let heard = |bench: &mut Bench| -> Vec<proto::SegmentReport> {
        { bench.hear(operator).into_iter() }
            .flat_map(|frame| match frame {
                Frame::Report(report) => report.segments,
                other => panic!("{other:?}"),
            })
            .collect()
    };
    bench.pass(2_100_000);
    let first = heard(&mut bench);
    let last = first.last().expect("a first sample");
    assert_eq!((last.rates.clone(), last.cold_for_us.is_some()), (vec![0; 4], true));
    bench.pass(20_000_000);
    assert_eq!(heard(&mut bench).len(), 4, "a silent segment is reported every 5 s");
    let producer = bench.producer(0, 1, 1);
    for second in 0..3 {
        bench.publish(producer, entry(1, 1, 1 + second * 200, 200, "k"));
        bench.pass(1_000_000);
    }
    let busy = heard(&mut bench);
    assert!(busy.iter().any(|report| report.rates[0] == 200 && report.cold_for_us.is_none()), "{busy:?}");
    bench.pass(5_000_000);
    let cursor = heard(&mut bench).pop().unwrap().cursors.remove(0);
    assert_eq!((cursor.backlog_messages, cursor.drained), (600, false));
    // Drain it.
    let consumer = bench.attach(0, 5, 1, 4);
    for (i, delivery) in delivered(&bench.hear(consumer)).iter().enumerate() {
        bench.ack(consumer, i as u64 + 1, delivery);
    }
    bench.seal(0, &[]);
    bench.pass(1);
    let drained = heard(&mut bench);
    let last = drained.last().unwrap();
    assert_eq!((last.sealed, last.end_offset, last.cursors[0].drained), (true, 600, true));
}

#[test]
fn a_home_that_is_back_lets_its_members_keep_what_they_hold() {
    let mut bench = Bench::new("n-0");
    let halves = vec![segment(0, (0, 0x7fff), 4, &[], "n-0", 1), segment(1, (0x8000, 65_535), 4, &[], "n-0", 1)];
    bench.create(halves.clone(), vec![spec("s")]);
    bench.tell(layout(1, halves, vec![spec("s")]));
    let mut bench = bench.restart("n-0");
    // In the order of sessions it would be the other way round, and the first one alone would get both.
    let streams = [bench.session(), bench.session()];
    let mut held = [vec![], vec![]];
    bench.say(streams[0], proto::Join { held: vec![1], ..join(1) });
    bench.pass(500_000);
    bench.say(streams[1], proto::Join { held: vec![0], ..join(2) });
    assert!(streams.iter().all(|stream| bench.hear(*stream).is_empty()));
    bench.pass(1_100_000);
    assigned(&mut bench, &streams, &mut held);
    assert_eq!(held, [vec![1], vec![0]]);
}

#[test]
fn a_session_ends_with_its_last_stream_in_whatever_order_its_streams_arrive() {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    bench.tell(layout(1, vec![segment(0, (0, 65_535), 4, &[], "n-0", 1)], vec![spec("s")]));
    let (given_up, used) = (bench.session(), bench.session());
    bench.say(used, join(1));
    // Overtaken on its way by the stream that replaced it.
    bench.say(given_up, join(1));
    bench.end(given_up);
    assert_eq!(bench.node.metrics().sessions, 1);
    bench.say(used, proto::LeaveGroup { topic: Some(topic()), subscription: "s".into(), session: 1 });
    assert_eq!(bench.node.metrics().sessions, 0);
}
