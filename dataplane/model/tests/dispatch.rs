//! What one dispatcher promises, case by case; `dispatch_world` is the whole of it.

use braid_model::cursor::Cursor;
use braid_model::dispatch::*;
use braid_model::gate::Gate;
use braid_model::handoff::Attach;
use braid_model::{
    AttachNo, BucketIndex, Buckets, Generation, Micros, Offset, OffsetRange, Round, SegmentId, SessionId,
};

const NOW: Micros = Micros(0);
const G: Generation = Generation(1);

fn attach(session: u64) -> Attach {
    Attach { session: SessionId(session), no: AttachNo(1) }
}

fn dispatcher(n: u32, parents: &[u64]) -> Dispatcher {
    let gate = Gate::new(G, parents.iter().map(|&id| SegmentId(id)));
    let past = Past { owner_floor: OwnerNo(7 << 32), sent_below: Offset(0) };
    let policy = Policy { handoff_deadline: Some(1_000), ..Policy::default() };
    Dispatcher::new(Buckets::new(n).unwrap(), Cursor::new(G, Offset(0)), gate, policy, past)
}

fn join(d: &mut Dispatcher, session: u64, credit: u64) {
    let n = Buckets::new(d.ownerships().len() as u32).unwrap();
    d.attach(attach(session), "member", n, NOW).unwrap();
    d.credit(attach(session), credit);
}

fn outputs(d: &mut Dispatcher) -> Vec<Output> {
    std::iter::from_fn(|| d.poll()).collect()
}

/// The log in which message `i`, of 10 bytes, is an entry of bucket `buckets[i]`.
fn log(buckets: &[u32]) -> Vec<Entry> {
    let entry =
        |(i, &bucket)| Entry { bucket: BucketIndex(bucket), range: OffsetRange::of(Offset(i as u64), 1), bytes: 10 };
    buckets.iter().enumerate().map(entry).collect()
}

/// One read of at most `slice` entries: its lane, and what was sent, as (offset, session).
fn read(d: &mut Dispatcher, log: &[Entry], slice: usize) -> Option<(Lane, Vec<(u64, u64)>)> {
    let read = d.next_read(Offset(log.len() as u64))?;
    let mut sent = Vec::new();
    for entry in log[read.from.0 as usize..].iter().take(slice) {
        match d.offer(read.lane, entry) {
            Offer::Send(delivery) => sent.push((entry.range.from().0, delivery.attach.session.0)),
            Offer::Skip => {}
            Offer::Stop => break,
        }
    }
    Some((read.lane, sent))
}

fn ack(d: &mut Dispatcher, session: u64, bucket: u32, round: u64, from: u64, to: u64) -> Result<usize, AckError> {
    let range = OffsetRange::new(Offset(from), Offset(to)).unwrap();
    let ack = Ack { attach: attach(session), bucket: BucketIndex(bucket), round: Round(round), generation: G, range };
    d.ack(&ack, NOW).map(|new| new.len())
}

#[test]
fn sending_stops_when_credit_is_used_up_and_nothing_is_skipped() {
    let (mut d, log) = (dispatcher(2, &[]), log(&[0, 1, 0, 1, 0]));
    join(&mut d, 1, 15);
    assert_eq!(read(&mut d, &log, 9), Some((Lane::Head, vec![(0, 1), (1, 1)])));
    assert_eq!(read(&mut d, &log, 9), None, "the last entry overdrew the credit");
    d.credit(attach(1), 5);
    assert_eq!(read(&mut d, &log, 9), None, "the debt is paid first");
    d.credit(attach(1), 100);
    assert_eq!(
        read(&mut d, &log, 9),
        Some((Lane::Head, vec![(2, 1), (3, 1), (4, 1)])),
        "the head waited: nobody could take"
    );
}

#[test]
fn a_withheld_bucket_blocks_no_other() {
    let (mut d, log) = (dispatcher(2, &[]), log(&[0, 1, 0, 1, 0, 1]));
    join(&mut d, 1, 1_000);
    assert_eq!(read(&mut d, &log, 2), Some((Lane::Head, vec![(0, 1), (1, 1)])));
    join(&mut d, 2, 1_000);
    assert_eq!(read(&mut d, &log, 9), Some((Lane::Head, vec![(2, 1), (4, 1)])), "bucket 1 drains");
    assert_eq!(read(&mut d, &log, 9), None);
    assert_eq!(ack(&mut d, 1, 1, 1, 1, 2), Ok(1));
    assert_eq!(read(&mut d, &log, 9), Some((Lane::Catch, vec![(3, 2), (5, 2)])));
    assert_eq!(read(&mut d, &log, 9), None);
}

#[test]
fn a_backlog_and_the_head_take_turns() {
    let mut buckets = vec![0, 1];
    buckets.extend([0; 20]);
    buckets.extend([1; 20]);
    let (mut d, log) = (dispatcher(2, &[]), log(&buckets));
    join(&mut d, 1, 10);
    assert_eq!(read(&mut d, &log, 1), Some((Lane::Head, vec![(0, 1)])));
    join(&mut d, 2, 10_000); // bucket 1 is free and goes to it; bucket 0 stays, without credit
    assert_eq!(read(&mut d, &log, 30), Some((Lane::Head, (1..2).chain(22..30 + 1).map(|o| (o, 2)).collect())));
    d.credit(attach(1), 10_000);
    let lanes: Vec<Lane> = std::iter::from_fn(|| read(&mut d, &log, 4)).map(|(lane, _)| lane).collect();
    assert_eq!(lanes[..5], [Lane::Catch, Lane::Head, Lane::Catch, Lane::Head, Lane::Catch]);
}

#[test]
fn an_overdue_owner_is_revoked_and_the_next_starts_at_the_first_unacked() {
    let (mut d, log) = (dispatcher(1, &[]), log(&[0, 0, 0]));
    join(&mut d, 1, 1_000);
    read(&mut d, &log, 9);
    assert_eq!(ack(&mut d, 1, 0, 1, 0, 1), Ok(1));
    d.leave(attach(1), NOW);
    join(&mut d, 2, 1_000);
    outputs(&mut d);
    assert_eq!(d.next_deadline(), Some(Micros(1_000)));
    d.tick(Micros(999));
    assert_eq!(outputs(&mut d), []);
    d.tick(Micros(1_000));
    let (bucket, at) = (BucketIndex(0), Round(1));
    let granted = Output::Granted {
        attach: attach(2),
        bucket,
        round: Round(2),
        owner: OwnerNo((7 << 32) + 2),
        redelivered_below: Offset(3),
    };
    let revoked = Output::Revoked { attach: attach(1), bucket, round: at };
    let empty = Output::Empty { attach: attach(1) };
    let ended = Output::Ended { attach: attach(1), why: End::LeaveDeadline };
    assert_eq!(outputs(&mut d), [revoked, granted, empty, ended]);
    assert_eq!(ack(&mut d, 1, 0, 1, 1, 2), Err(AckError::NotHeld { bucket, round: at }));
    assert_eq!(read(&mut d, &log, 9), Some((Lane::Catch, vec![(1, 2), (2, 2)])));
}

#[test]
fn what_is_given_back_is_marked_only_as_far_as_somebody_saw_it() {
    let (mut d, log) = (dispatcher(1, &[]), log(&[0, 0, 0, 0, 0]));
    let granted = |d: &mut Dispatcher| {
        let below = |output| match output {
            Output::Granted { redelivered_below, .. } => Some(redelivered_below.0),
            _ => None,
        };
        outputs(d).into_iter().find_map(below)
    };
    join(&mut d, 1, 1_000);
    assert_eq!(granted(&mut d), Some(0));
    assert_eq!(read(&mut d, &log[..2], 9), Some((Lane::Head, vec![(0, 1), (1, 1)])));
    // It dies, and may have shown both.
    d.lost(attach(1), NOW);
    join(&mut d, 2, 1_000);
    assert_eq!(granted(&mut d), Some(2));
    while read(&mut d, &log, 9).is_some() {}
    // It showed and acked three, and gives the rest back.
    d.leave(attach(2), NOW);
    assert_eq!(ack(&mut d, 2, 0, 2, 0, 3), Ok(1));
    join(&mut d, 3, 1_000);
    d.give_back(attach(2), BucketIndex(0), Round(2), Offset(3), NOW);
    assert_eq!(granted(&mut d), Some(3));
    while read(&mut d, &log, 9).is_some() {}
    // It showed nothing at all.
    d.leave(attach(3), NOW);
    join(&mut d, 4, 1_000);
    d.give_back(attach(3), BucketIndex(0), Round(3), Offset(3), NOW);
    assert_eq!(granted(&mut d), Some(3));
}

#[test]
fn an_empty_sealed_segment_is_drained_when_its_parents_are() {
    let mut d = dispatcher(4, &[1, 2]);
    d.sealed(Offset(0));
    d.parent_drained(SegmentId(1), G);
    d.parent_drained(SegmentId(2), Generation(0));
    assert_eq!(outputs(&mut d), []);
    d.parent_drained(SegmentId(2), G);
    assert_eq!(outputs(&mut d), [Output::Drained { generation: G }]);
    d.parent_drained(SegmentId(2), G);
    assert_eq!(outputs(&mut d), [], "it is said once");
}

#[test]
fn a_higher_attach_number_takes_over_what_a_lower_one_held() {
    let (mut d, log) = (dispatcher(1, &[]), log(&[0, 0]));
    join(&mut d, 1, 1_000);
    read(&mut d, &log, 9);
    let (old, new) = (attach(1), Attach { no: AttachNo(2), ..attach(1) });
    assert_eq!(d.attach(old, "member", Buckets::ONE, NOW), Err(AttachError::StaleAttach { sent: old, have: old }));
    d.attach(new, "member", Buckets::ONE, NOW).unwrap();
    assert!(outputs(&mut d).contains(&Output::Ended { attach: old, why: End::Replaced }));
    d.lost(old, NOW);
    assert_eq!(d.attaches().collect::<Vec<_>>(), [new]);
    assert!(ack(&mut d, 1, 0, 1, 0, 2).is_err());
    d.credit(old, 1_000);
    assert_eq!(read(&mut d, &log, 9), None, "credit of the old one is gone");
    d.credit(new, 1_000);
    assert_eq!(read(&mut d, &log, 9), Some((Lane::Catch, vec![(0, 1), (1, 1)])));
}

#[test]
fn an_attach_with_another_n_knows_a_stale_layout() {
    let two = Buckets::new(2).unwrap();
    let refused = AttachError::StaleLayout { stated: Buckets::ONE, found: two };
    assert_eq!(dispatcher(2, &[]).attach(attach(1), "member", Buckets::ONE, NOW), Err(refused));
    assert_eq!(refused.to_string(), "the session knows `1` buckets, the segment has 2: a stale layout");
}

#[test]
fn a_hole_in_the_log_is_passed() {
    let mut d = dispatcher(2, &[]);
    join(&mut d, 1, 1_000);
    let far = Entry { bucket: BucketIndex(1), range: OffsetRange::of(Offset(50), 1), bytes: 10 };
    let head = d.next_read(Offset(51)).unwrap();
    assert!(matches!(d.offer(head.lane, &far), Offer::Send(_)));
    assert_eq!(d.next_read(Offset(51)), None);
}

#[test]
fn a_bucket_that_nobody_acks_stops_the_head_at_the_bound() {
    let n = 4 * HOLES_BEFORE_HEAD_WAITS;
    let (mut d, log) = (dispatcher(2, &[]), log(&(0..n as u32).map(|i| i % 2).collect::<Vec<_>>()));
    join(&mut d, 1, u64::MAX);
    while let Some((_, sent)) = read(&mut d, &log, 64) {
        for (offset, _) in sent.into_iter().filter(|(offset, _)| offset % 2 == 1) {
            assert_eq!(ack(&mut d, 1, 1, 1, offset, offset + 1), Ok(1));
        }
    }
    assert!(d.cursor().holes() < HOLES_BEFORE_HEAD_WAITS + 64, "{} holes", d.cursor().holes());
    let unacked = d.ownerships().map(|ownership| ownership.in_flight().unwrap().ranges()).max();
    assert_eq!(unacked, Some(IN_FLIGHT_RANGES_MAX));
}

#[test]
fn a_thousand_buckets_flow_through_one_reader() {
    let buckets: Vec<u32> = (0..20_000u32).map(|i| i.wrapping_mul(2_654_435_761) % 1_024).collect();
    let (mut d, log) = (dispatcher(1_024, &[]), log(&buckets));
    (0..8).for_each(|session| join(&mut d, session, u64::MAX));
    let mut reads = 0;
    let mut sent = 0;
    while let Some((lane, some)) = read(&mut d, &log, 1_000) {
        assert_eq!(lane, Lane::Head);
        (reads, sent) = (reads + 1, sent + some.len());
    }
    assert_eq!((reads, sent), (20, 20_000));
}
