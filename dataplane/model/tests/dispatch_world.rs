//! A world around one dispatcher: a log, consumers that come, go, die, ack late or never, and an engine that reads as it
//! pleases. After each step the failure rules of ordered consumption hold; at the end nothing is lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_model::assign::Strategy as Spread;
use braid_model::cursor::Cursor;
use braid_model::dispatch::{Ack, Dispatcher, End, Entry, Offer, Output, OwnerNo, Past, Policy};
use braid_model::gate::Gate;
use braid_model::handoff::{Attach, Ownership};
use braid_model::{
    AttachNo, BucketIndex, Buckets, Generation, Micros, Offset, OffsetRange, Round, SegmentId, SessionId,
};
use proptest::prelude::*;

const GENERATION: Generation = Generation(4);
const PARENT: SegmentId = SegmentId(1);
const DEADLINE: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    Append {
        bucket: u32,
        count: u64,
    },
    Attach {
        session: u64,
    },
    Leave {
        session: u64,
    },
    Kill {
        session: u64,
    },
    Credit {
        session: u64,
        bytes: u64,
    },
    /// Acks the `nth` message that the session holds, or with `batch` the whole entry it is part of.
    Ack {
        session: u64,
        nth: usize,
        batch: bool,
    },
    /// Acks something of a lost, replaced or revoked delivery.
    LateAck {
        nth: usize,
    },
    GiveBack {
        session: u64,
        nth: usize,
    },
    Pump {
        slice: usize,
        rounds: usize,
    },
    Wait {
        time: u64,
    },
    OpenGate,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = 0u64..4;
    let step = prop_oneof![
        6 => (0u32..5, 1u64..4).prop_map(|(bucket, count)| Step::Append { bucket, count }),
        3 => session.clone().prop_map(|session| Step::Attach { session }),
        2 => session.clone().prop_map(|session| Step::Leave { session }),
        1 => session.clone().prop_map(|session| Step::Kill { session }),
        4 => (session.clone(), 1u64..60).prop_map(|(session, bytes)| Step::Credit { session, bytes }),
        8 => (session.clone(), 0usize..9, any::<bool>())
            .prop_map(|(session, nth, batch)| Step::Ack { session, nth, batch }),
        2 => (0usize..50).prop_map(|nth| Step::LateAck { nth }),
        1 => (session, 0usize..9).prop_map(|(session, nth)| Step::GiveBack { session, nth }),
        8 => (1usize..5, 1usize..6).prop_map(|(slice, rounds)| Step::Pump { slice, rounds }),
        2 => (1u64..700).prop_map(|time| Step::Wait { time }),
        1 => Just(Step::OpenGate),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..200)
}

/// A message that an attach was sent and has not acked, with the round it came in.
type Held = BTreeMap<u64, (u32, Round, OffsetRange)>;

struct World {
    buckets: Buckets,
    policy: Policy,
    log: Vec<Entry>,
    dispatcher: Dispatcher,
    gate_opens: bool,
    now: Micros,
    attach_no: u64,
    /// What each live attach holds, as the client sees it.
    clients: BTreeMap<u64, (Attach, bool, Held)>,
    /// Acks that nobody should take any more.
    stale: VecDeque<Ack>,
    /// Everything durably acked.
    acked: BTreeSet<u64>,
    /// Per bucket the end of the entries that were ever sent.
    first_sent: BTreeMap<u32, u64>,
    /// Per bucket and round the last offset sent.
    last_in_round: BTreeMap<(u32, Round, Attach), u64>,
    /// Buckets that drain, and since when.
    draining: BTreeMap<usize, Micros>,
    owner: OwnerNo,
    drained: bool,
}

impl World {
    fn new(n: u32, policy: Policy, gated: bool) -> Self {
        let buckets = Buckets::new(n).unwrap();
        let cursor = Cursor::new(GENERATION, Offset(0));
        let gate = Gate::new(GENERATION, gated.then_some(PARENT));
        Self {
            buckets,
            policy,
            log: Vec::new(),
            dispatcher: Dispatcher::new(buckets, cursor, gate, policy, Past::default()),
            gate_opens: !gated,
            now: Micros(0),
            attach_no: 0,
            clients: BTreeMap::new(),
            stale: VecDeque::new(),
            acked: BTreeSet::new(),
            first_sent: BTreeMap::new(),
            last_in_round: BTreeMap::new(),
            draining: BTreeMap::new(),
            owner: OwnerNo(0),
            drained: false,
        }
    }

    fn end(&self) -> u64 {
        self.log.last().map_or(0, |entry| entry.range.to().0)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append { bucket, count } => {
                let bucket = BucketIndex(bucket % self.buckets.count());
                self.log.push(Entry { bucket, range: OffsetRange::of(Offset(self.end()), count), bytes: 10 });
            }
            Step::Attach { session } => {
                self.attach_no += 1;
                let attach = Attach { session: SessionId(session), no: AttachNo(self.attach_no) };
                self.forget(session);
                self.dispatcher.attach(attach, "member", self.buckets, self.now).unwrap();
                self.clients.insert(session, (attach, false, Held::new()));
            }
            Step::Leave { session } => {
                if let Some((attach, leaving, _)) = self.clients.get_mut(&session) {
                    *leaving = true;
                    self.dispatcher.leave(*attach, self.now);
                }
            }
            Step::Kill { session } => {
                if let Some((attach, ..)) = self.forget(session) {
                    self.dispatcher.lost(attach, self.now);
                }
            }
            Step::Credit { session, bytes } => {
                if let Some((attach, ..)) = self.clients.get(&session) {
                    self.dispatcher.credit(*attach, bytes);
                }
            }
            Step::Ack { session, nth, batch } => self.ack(session, nth, batch),
            Step::LateAck { nth } => {
                if let Some(ack) = self.stale.get(nth % self.stale.len().max(1)).copied() {
                    self.refuse(ack);
                }
            }
            Step::GiveBack { session, nth } => self.give_back(session, nth),
            Step::Pump { slice, rounds } => self.pump(slice, rounds),
            Step::Wait { time } => {
                self.now = Micros(self.now.0 + time);
                self.dispatcher.tick(self.now);
                assert!(self.dispatcher.next_deadline().is_none_or(|by| by > self.now));
            }
            Step::OpenGate => {
                self.gate_opens = true;
                self.dispatcher.parent_drained(PARENT, GENERATION);
            }
            Step::Restart => self.restart(),
        }
        self.outputs();
        self.check();
    }

    /// The client of `session` is gone or holds nothing any more: what it held turns stale.
    fn forget(&mut self, session: u64) -> Option<(Attach, bool, Held)> {
        let (attach, leaving, held) = self.clients.remove(&session)?;
        held.iter().for_each(|(&offset, &(bucket, round, _))| self.grow_stale(attach, bucket, round, offset));
        Some((attach, leaving, held))
    }

    fn grow_stale(&mut self, attach: Attach, bucket: u32, round: Round, offset: u64) {
        let range = OffsetRange::of(Offset(offset), 1);
        self.stale.push_front(Ack { attach, bucket: BucketIndex(bucket), round, generation: GENERATION, range });
    }

    fn refuse(&mut self, ack: Ack) {
        let before = self.dispatcher.cursor().clone();
        let said = self.dispatcher.ack(&ack, self.now);
        assert!(said.as_ref().is_err() || said == Ok(vec![]), "a late ack was taken: {ack:?}");
        assert_eq!(self.dispatcher.cursor(), &before);
    }

    fn ack(&mut self, session: u64, nth: usize, batch: bool) {
        let Some((attach, _, held)) = self.clients.get_mut(&session) else { return };
        let Some((&offset, &(bucket, round, entry))) = held.iter().nth(nth % held.len().max(1)) else { return };
        let range = if batch { entry } else { OffsetRange::of(Offset(offset), 1) };
        let ack = Ack { attach: *attach, bucket: BucketIndex(bucket), round, generation: GENERATION, range };
        for generation in [Generation(3), Generation(5)] {
            assert!(self.dispatcher.ack(&Ack { generation, ..ack }, self.now).is_err());
        }
        let new: Vec<u64> =
            self.dispatcher.ack(&ack, self.now).unwrap().iter().flat_map(|part| part.from().0..part.to().0).collect();
        let expected: Vec<u64> = (range.from().0..range.to().0).filter(|offset| held.contains_key(offset)).collect();
        assert_eq!(new, expected, "exactly what this attach held is newly acked");
        held.retain(|offset, _| !range.contains(Offset(*offset)));
        new.iter().for_each(|&offset| assert!(self.acked.insert(offset), "{offset} was acked twice"));
        assert_eq!(self.dispatcher.ack(&ack, self.now).unwrap_or_default(), vec![], "a repeat says nothing new");
    }

    fn give_back(&mut self, session: u64, nth: usize) {
        let Some((attach, _, held)) = self.clients.get_mut(&session) else { return };
        let Some((&from, &(bucket, round, _))) = held.iter().nth(nth % held.len().max(1)) else { return };
        let ownership = self.dispatcher.ownerships().nth(bucket as usize).unwrap();
        if !ownership.is_draining() {
            return; // the protocol gives back only what was withdrawn
        }
        let attach = *attach;
        held.retain(|&offset, &mut (b, r, _)| offset < from || (b, r) != (bucket, round));
        self.dispatcher.give_back(attach, BucketIndex(bucket), round, Offset(from), self.now);
        self.grow_stale(attach, bucket, round, from);
    }

    fn pump(&mut self, slice: usize, rounds: usize) {
        for _ in 0..rounds {
            let Some(read) = self.dispatcher.next_read(Offset(self.end())) else { return };
            assert!(read.from < read.until && read.until.0 <= self.end(), "{read:?}");
            let first = self.log.partition_point(|entry| entry.range.to() <= read.from);
            for entry in self.log[first..].iter().take(slice).copied().collect::<Vec<_>>() {
                match self.dispatcher.offer(read.lane, &entry) {
                    Offer::Send(delivery) => self.receive(entry, delivery.attach, delivery.round, &delivery.acked),
                    Offer::Skip => {}
                    Offer::Stop => break,
                }
            }
        }
    }

    fn receive(&mut self, entry: Entry, attach: Attach, round: Round, acked: &[OffsetRange]) {
        assert!(self.gate_opens, "delivered before the parent is drained");
        let bucket = entry.bucket.0;
        let (at, leaving, _) = self.clients[&attach.session.0];
        assert!(at == attach && !leaving, "sent to an attach that is gone or leaves");
        for (_, (_, _, held)) in self.clients.iter().filter(|(session, _)| **session != attach.session.0) {
            assert!(held.values().all(|(b, ..)| *b != bucket), "bucket {bucket} has two holders");
        }
        let sent = self.first_sent.entry(bucket).or_default();
        let skipped = self
            .log
            .iter()
            .any(|e| e.bucket.0 == bucket && *sent <= e.range.from().0 && e.range.to() <= entry.range.from());
        assert!(!skipped, "first deliveries of bucket {bucket} are out of order at {}", entry.range);
        *sent = (*sent).max(entry.range.to().0);
        let last = self.last_in_round.insert((bucket, round, attach), entry.range.from().0);
        assert!(last.is_none_or(|last| last < entry.range.from().0), "a delivery overtook in round {round}");
        // Whatever is older in the bucket is acked or held by this very attach.
        let held = &mut self.clients.get_mut(&attach.session.0).unwrap().2;
        for older in self.log.iter().filter(|e| e.bucket.0 == bucket && e.range.to() <= entry.range.from()) {
            for offset in older.range.from().0..older.range.to().0 {
                assert!(
                    self.acked.contains(&offset) || held.contains_key(&offset),
                    "{} overtakes {offset}",
                    entry.range
                );
            }
        }
        for offset in entry.range.from().0..entry.range.to().0 {
            let is_acked = acked.iter().any(|part| part.contains(Offset(offset)));
            assert_eq!(is_acked, self.acked.contains(&offset));
            if !is_acked {
                assert!(held.insert(offset, (bucket, round, entry.range)).is_none(), "{offset} is held twice");
            }
        }
    }

    fn restart(&mut self) {
        for session in self.clients.keys().copied().collect::<Vec<_>>() {
            self.forget(session);
        }
        self.stale.clear();
        self.draining.clear();
        self.last_in_round.clear();
        let cursor = Cursor::restore(
            GENERATION,
            self.dispatcher.cursor().first_unacked(),
            self.dispatcher.cursor().acked_beyond().collect::<Vec<_>>(),
        );
        let past = Past { owner_floor: OwnerNo(self.owner.0 + 100), sent_below: Offset(self.end()) };
        let gate = self.dispatcher.gate().clone();
        self.dispatcher = Dispatcher::new(self.buckets, cursor.unwrap(), gate, self.policy, past);
    }

    fn outputs(&mut self) {
        while let Some(output) = self.dispatcher.poll() {
            match output {
                Output::Granted { owner, .. } => {
                    assert!(owner > self.owner, "owner numbers rise");
                    self.owner = owner;
                }
                Output::Revoked { attach, bucket, round } => {
                    assert!(self.draining.remove(&(bucket.0 as usize)).is_some());
                    let Some((_, _, held)) = self.clients.get_mut(&attach.session.0) else { continue };
                    let (gone, kept) = std::mem::take(held).into_iter().partition(|(_, (b, ..))| *b == bucket.0);
                    *held = kept;
                    let gone: Held = gone;
                    gone.keys().for_each(|&offset| self.grow_stale(attach, bucket.0, round, offset));
                }
                Output::Ended { attach, why: End::LeaveDeadline } => {
                    assert_eq!(
                        self.forget(attach.session.0).map(|(who, leaving, _)| (who, leaving)),
                        Some((attach, true))
                    );
                }
                Output::Empty { attach } => {
                    let (_, leaving, held) = &self.clients[&attach.session.0];
                    assert!(*leaving && held.is_empty(), "an attach that holds something is not empty");
                }
                Output::Released { attach, bucket, round } => {
                    if let Some((who, _, held)) = self.clients.get(&attach.session.0) {
                        assert!(*who != attach || held.values().all(|(b, r, _)| (*b, *r) != (bucket.0, round)));
                    }
                }
                Output::Drained { generation } => {
                    assert!(!self.drained && self.gate_opens && generation == GENERATION);
                    assert_eq!(self.acked.len() as u64, self.end());
                    self.drained = true;
                }
                Output::Withdrawn { .. } | Output::Ended { why: End::Replaced, .. } => {}
            }
        }
    }

    fn check(&mut self) {
        let cursor = self.dispatcher.cursor();
        assert!(
            (0..cursor.first_unacked().0).all(|offset| self.acked.contains(&offset)),
            "the cursor passed an unacked message"
        );
        assert_eq!(self.end() - self.acked.len() as u64, cursor.backlog(Offset(self.end())));
        // What the node thinks is in flight is what the clients hold.
        let mut in_flight: Vec<(u64, Attach)> = Vec::new();
        let mut draining = BTreeMap::new();
        for (bucket, ownership) in self.dispatcher.ownerships().enumerate() {
            if let (Some((attach, _)), Some(set)) = (ownership.holder(), ownership.in_flight()) {
                in_flight.extend(set.iter().flat_map(|r| r.from().0..r.to().0).map(|offset| (offset, attach)));
            }
            if let Ownership::Draining { in_flight, .. } = ownership {
                assert!(!in_flight.is_empty());
                let since = self.draining.get(&bucket).copied().unwrap_or(self.now);
                assert!(
                    self.policy.handoff_deadline.is_none_or(|within| self.now.since(since) < within),
                    "bucket {bucket} is overdue"
                );
                draining.insert(bucket, since);
            }
        }
        self.draining = draining;
        in_flight.sort_unstable();
        let mut held: Vec<(u64, Attach)> =
            self.clients.values().flat_map(|(attach, _, held)| held.keys().map(|&offset| (offset, *attach))).collect();
        held.sort_unstable();
        assert_eq!(in_flight, held);
        // A bucket has an owner to come whenever anybody stays.
        if self.clients.values().any(|(_, leaving, _)| !leaving) {
            assert!(self.dispatcher.ownerships().all(|ownership| !matches!(ownership, Ownership::Vacant { .. })));
        }
    }

    /// Somebody comes who acks everything: then everything is acked, and the segment is drained.
    fn finish(&mut self) {
        self.step(Step::OpenGate);
        self.step(Step::Attach { session: 9 });
        for session in self.clients.keys().copied().filter(|session| *session != 9).collect::<Vec<_>>() {
            self.step(Step::Leave { session });
        }
        self.dispatcher.sealed(Offset(self.end()));
        for _ in 0..4 * self.log.len() + 40 {
            self.step(Step::Credit { session: 9, bytes: 25 });
            self.step(Step::Pump { slice: 3, rounds: 20 });
            while self.clients.values().any(|(.., held)| !held.is_empty()) {
                for session in 0..10 {
                    self.step(Step::Ack { session, nth: 0, batch: true });
                }
            }
        }
        assert_eq!(self.acked.len() as u64, self.end(), "something was lost");
        assert!(self.drained);
        assert_eq!(self.dispatcher.next_read(Offset(self.end())), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_consumers_do_buckets_flow_in_order_and_nothing_is_lost(
        n in 1u32..6,
        is_sticky: bool,
        deadline in prop::option::of(Just(DEADLINE)),
        gated: bool,
        steps in steps(),
    ) {
        let strategy = if is_sticky { Spread::Sticky } else { Spread::Contiguous };
        let mut world = World::new(n, Policy { strategy, handoff_deadline: deadline }, gated);
        for step in steps {
            world.step(step);
        }
        world.finish();
    }
}
