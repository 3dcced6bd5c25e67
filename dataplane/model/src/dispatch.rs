//! Which consumer gets an entry: all deliveries of one (segment, ordered subscription), as a pure state machine.
//!
//! It owns the cursor, the gate, the owner of each bucket and its place in the log. It reads no log and knows no wire:
//! the engine asks where to read, offers what it read, and sends what it is told to.
//!
//! # The contract
//!
//! - After every call that changes something, take all of [`Dispatcher::poll`] (a bounded number: a few per bucket and
//!   attach), and start pumping if anything may flow. Every call takes the time as an argument where it needs one; call
//!   [`Dispatcher::tick`] at or after [`Dispatcher::next_deadline`].
//! - **Pump:** `while let Some(read) = next_read(durable_end)`: read entries from the log at `read.from` (first the entry that
//!   *contains* it or, if retention has dropped that, the first after it), in order and in a bounded slice (say 256 KiB);
//!   [`Dispatcher::offer`] each with `read.lane` until it says `Stop`. `Send` means: it is in flight, send it now. Read
//!   nothing beyond `durable_end`. Each call of `next_read` ends the slice before it; the lanes take turns, so a backlog
//!   never starves the head. No other call may come between the offers of one slice unless the slice is then dropped.
//! - **Acks:** [`Dispatcher::ack`] returns what the cursor newly knows. Append that as a record; confirm the ack when the record
//!   is durable. [`Output::Drained`] is to be recorded *after* it, and synced before anyone is told.
//! - **Restart:** rebuild the cursor from its records and make a new dispatcher: everything unacked is sent again.
//! - Owner numbers rise over all lives if [`Past::owner_floor`] does.
//! - A give-back counts once the bucket is withdrawn or the attach leaves, so a `Detach` goes before its give-backs.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use crate::assign::assign;
use crate::cursor::{ACKED_RANGES_MAX, Cursor};
use crate::gate::Gate;
use crate::handoff::{Attach, Effect, Event, Ownership};
use crate::offsets::{OffsetRange, OffsetSet};
use crate::reading::Reading;
use crate::{BucketIndex, Buckets, Generation, Micros, Offset, Round, SegmentId, SessionId};

mod terms;

pub use crate::reading::Lane;
pub use terms::{Ack, AckError, AttachError, Delivery, End, Entry, Offer, Output, OwnerNo, Past, Policy, Read};

/// The most attaches of one dispatcher.
pub const ATTACHES_MAX: usize = 4_096;

/// With this many holes in the cursor the head waits for some to be filled: a bucket that nobody acks stops the others in the end.
pub const HOLES_BEFORE_HEAD_WAITS: usize = 8_192;

/// The most ranges in flight of one bucket; it waits for acks then, whatever the credit.
pub const IN_FLIGHT_RANGES_MAX: usize = 1_024;

/// The deadline of a leave, in microseconds, when the subscription has none for handoffs.
pub const LEAVE_DEADLINE_DEFAULT: u64 = 30_000_000;

/// One attached consumer.
#[derive(Clone, Debug)]
struct Member {
    attach: Attach,
    name: String,
    /// Bytes that may be sent to it: at most one entry below zero.
    credit: i64,
    /// When its leave becomes a loss; set while it leaves.
    leaves_by: Option<Micros>,
    /// `Output::Empty` was said.
    is_empty: bool,
}

#[derive(Clone, Debug)]
struct Slot {
    ownership: Ownership,
    owner: OwnerNo,
    /// Its messages below may have been shown before.
    sent_below: Offset,
    /// The same when its present owner got it: what that one gives back was shown no further than before.
    granted_below: Offset,
}

/// All deliveries of one (segment, ordered subscription). See the module for its contract.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    buckets: Buckets,
    policy: Policy,
    cursor: Cursor,
    gate: Gate,
    end: Option<Offset>,
    drained: bool,
    members: BTreeMap<SessionId, Member>,
    slots: Vec<Slot>,
    /// What `assign` said last, by session: a session that attaches again keeps its buckets.
    assigned: Vec<Option<SessionId>>,
    /// The draining buckets that have a deadline.
    deadlines: BTreeMap<BucketIndex, Micros>,
    owner: OwnerNo,
    reading: Reading,
    last_lane: Lane,
    outputs: VecDeque<Output>,
}

impl Dispatcher {
    /// A dispatcher without consumers. `past` is what former lives may have done: the default for a new cursor.
    #[must_use]
    pub fn new(buckets: Buckets, cursor: Cursor, gate: Gate, policy: Policy, past: Past) -> Self {
        let n = buckets.count() as usize;
        let start = cursor.first_unacked();
        let (owner, sent_below) = (past.owner_floor, past.sent_below);
        let slot = Slot { ownership: Ownership::NEW, owner, sent_below, granted_below: sent_below };
        Self {
            buckets,
            policy,
            gate,
            end: None,
            drained: false,
            members: BTreeMap::new(),
            slots: vec![slot; n],
            assigned: vec![None; n],
            deadlines: BTreeMap::new(),
            owner: past.owner_floor,
            reading: Reading::new(n, start),
            last_lane: Lane::Catch,
            outputs: VecDeque::new(),
            cursor,
        }
    }

    // Members.

    /// Takes a consumer in: its share of the buckets drains towards it. A lower attach of its session is lost first.
    ///
    /// # Errors
    /// Another N than the segment's, an attach number not above the one present, or too many; nothing changed.
    pub fn attach(&mut self, attach: Attach, name: &str, stated: Buckets, now: Micros) -> Result<(), AttachError> {
        if stated != self.buckets {
            return Err(AttachError::StaleLayout { stated, found: self.buckets });
        }
        match self.members.get(&attach.session).map(|member| member.attach) {
            Some(have) if attach.no <= have.no => return Err(AttachError::StaleAttach { sent: attach, have }),
            Some(have) => {
                self.drop_member(have, now);
                self.outputs.push_back(Output::Ended { attach: have, why: End::Replaced });
            }
            None if self.members.len() >= ATTACHES_MAX => {
                return Err(AttachError::TooMany { found: self.members.len(), max: ATTACHES_MAX });
            }
            None => {}
        }
        let member = Member { attach, name: name.into(), credit: 0, leaves_by: None, is_empty: false };
        self.members.insert(attach.session, member);
        self.reassign(now);
        Ok(())
    }

    /// Whether an attach that no home sent would get a bucket: fewer consumers than buckets.
    #[must_use]
    pub fn has_free_bucket(&self) -> bool {
        self.staying().count() < self.slots.len()
    }

    /// The consumer stops receiving; its buckets drain, its acks are still taken, until `left` or a deadline.
    pub fn leave(&mut self, attach: Attach, now: Micros) {
        let within = self.policy.handoff_deadline.unwrap_or(LEAVE_DEADLINE_DEFAULT);
        let Some(member) = self.member_mut(attach).filter(|member| member.leaves_by.is_none()) else { return };
        member.leaves_by = Some(Micros(now.0.saturating_add(within)));
        self.reassign(now);
        self.note_empty(attach);
    }

    /// The consumer's stream ended, in whatever way: what it has in flight is sent again, to others.
    pub fn lost(&mut self, attach: Attach, now: Micros) {
        if self.member_mut(attach).is_some() {
            self.drop_member(attach, now);
            self.reassign(now);
        }
    }

    /// The attaches here, in the order of sessions.
    pub fn attaches(&self) -> impl Iterator<Item = Attach> {
        self.members.values().map(|member| member.attach)
    }

    // Events of a consumer's stream.

    /// The consumer can take `bytes` more. Sending stops when its credit is used up; the last entry may overdraw it.
    pub fn credit(&mut self, attach: Attach, bytes: u64) {
        if let Some(member) = self.member_mut(attach) {
            member.credit = member.credit.saturating_add_unsigned(bytes);
        }
    }

    /// Takes an ack: returns what is newly acked, in order, to be recorded; empty if the ack was a repeat.
    ///
    /// # Errors
    /// Not this attach's bucket in this round and generation, or the cursor is full; nothing changed.
    pub fn ack(&mut self, ack: &Ack, now: Micros) -> Result<Vec<OffsetRange>, AckError> {
        let Ack { attach, bucket, round, generation, range } = *ack;
        if generation != self.cursor.generation() {
            return Err(AckError::OtherGeneration { found: self.cursor.generation(), sent: generation });
        }
        let held = self.slots.get(bucket.0 as usize).filter(|slot| slot.ownership.holder() == Some((attach, round)));
        let Some(held) = held else { return Err(AckError::NotHeld { bucket, round }) };
        let in_flight = held.ownership.in_flight().map_or_else(Vec::new, |set| set.within(range));
        if self.cursor.holes() + in_flight.len() > ACKED_RANGES_MAX {
            // It may still fit, if it fills holes: all of it or nothing.
            let mut full = self.cursor.clone();
            in_flight.iter().try_for_each(|&part| full.ack(part).map(drop))?;
        }
        let mut new = Vec::new();
        for part in in_flight {
            new.extend(self.cursor.ack(part)?);
            self.apply(bucket, Event::Acked(attach, round, part), now);
        }
        self.note_empty(attach);
        self.note_drained();
        Ok(new)
    }

    /// A leaving consumer hands back what it has not shown to its application of this bucket: everything from `from` on.
    pub fn give_back(&mut self, attach: Attach, bucket: BucketIndex, round: Round, from: Offset, now: Micros) {
        if (bucket.0 as usize) < self.slots.len() {
            self.apply(bucket, Event::GaveBack(attach, round, from), now);
            self.note_empty(attach);
        }
    }

    // Facts and time.

    /// The segment is durably sealed at `end`.
    pub fn sealed(&mut self, end: Offset) {
        self.end = Some(end);
        self.note_drained();
    }

    /// A parent is drained for this subscription, in this generation.
    pub fn parent_drained(&mut self, parent: SegmentId, generation: Generation) {
        self.gate.drained(parent, generation);
        self.note_drained();
    }

    /// A parent was pruned.
    pub fn parent_pruned(&mut self, parent: SegmentId) {
        self.gate.forget(parent);
        self.note_drained();
    }

    /// Revokes what is overdue at `now`.
    pub fn tick(&mut self, now: Micros) {
        let overdue: Vec<_> = self.deadlines.iter().filter(|&(_, &by)| by <= now).map(|(&bucket, _)| bucket).collect();
        for bucket in overdue {
            let holder = self.slots[bucket.0 as usize].ownership.holder();
            self.apply(bucket, Event::Expired, now);
            holder.into_iter().for_each(|(attach, _)| self.note_empty(attach));
        }
        let overdue = |member: &&Member| member.leaves_by.is_some_and(|by| by <= now);
        let gone: Vec<Attach> = self.members.values().filter(overdue).map(|member| member.attach).collect();
        for &attach in &gone {
            self.drop_member(attach, now);
            self.outputs.push_back(Output::Ended { attach, why: End::LeaveDeadline });
        }
        if !gone.is_empty() {
            self.reassign(now);
        }
    }

    /// When `tick` has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Micros> {
        let leaves = self.members.values().filter_map(|member| member.leaves_by);
        self.deadlines.values().copied().chain(leaves).min()
    }

    /// The next thing to do, in the order it happened.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    // Reading.

    /// Where to read next, if anything there may flow; ends the read before. Nothing flows while the gate is closed.
    pub fn next_read(&mut self, durable_end: Offset) -> Option<Read> {
        self.reading.end_slice();
        if !self.gate.is_open() || self.members.values().all(|member| member.credit <= 0) {
            return None;
        }
        let lanes = match self.last_lane {
            Lane::Head => [Lane::Catch, Lane::Head],
            Lane::Catch => [Lane::Head, Lane::Catch],
        };
        let read = lanes.into_iter().find_map(|lane| self.read_of(lane, durable_end))?;
        self.last_lane = read.lane;
        Some(read)
    }

    /// Takes an entry that was read, in log order, for the read `next_read` gave last.
    pub fn offer(&mut self, lane: Lane, entry: &Entry) -> Offer {
        let Entry { bucket, range, bytes } = *entry;
        if lane == Lane::Catch && range.from() >= self.reading.head() {
            self.reading.reach_head();
            return Offer::Stop;
        }
        if bucket.0 as usize >= self.slots.len() || !self.reading.is_next(lane, bucket, range) {
            self.reading.passed(lane, range);
            return Offer::Skip;
        }
        let left = self.cursor.unacked_within(range);
        if left.is_empty() {
            self.reading.passed(lane, range);
            return Offer::Skip;
        }
        let Some((attach, round)) = self.receiver(bucket) else {
            if !self.has_taker(lane) {
                return Offer::Stop;
            }
            self.reading.park(bucket);
            self.reading.passed(lane, range);
            return Offer::Skip;
        };
        self.reading.passed(lane, range);
        let slot = &mut self.slots[bucket.0 as usize];
        let redelivered = left.iter().any(|part| part.from() < slot.sent_below);
        slot.sent_below = slot.sent_below.max(range.to());
        let owner = slot.owner;
        let unacked: OffsetSet = left.into_iter().collect();
        for part in unacked.iter() {
            let ownership = mem::replace(&mut slot.ownership, Ownership::NEW);
            slot.ownership = ownership.step(Event::Sent(part)).0;
        }
        let acked = unacked.missing(range);
        if let Some(member) = self.member_mut(attach) {
            member.credit = member.credit.saturating_sub_unsigned(bytes);
        }
        Offer::Send(Delivery { attach, round, owner, redelivered, acked })
    }

    // What others may see.

    /// What is acked.
    #[must_use]
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// What is waited for.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Who holds each bucket, in order.
    pub fn ownerships(&self) -> impl ExactSizeIterator<Item = &Ownership> {
        self.slots.iter().map(|slot| &slot.ownership)
    }

    /// How many buckets are withheld from their next owner.
    #[must_use]
    pub fn draining(&self) -> usize {
        self.ownerships().filter(|ownership| ownership.is_draining()).count()
    }

    /// Whether `Drained` was said.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    fn read_of(&mut self, lane: Lane, durable_end: Offset) -> Option<Read> {
        match lane {
            Lane::Head => {
                let from = self.reading.head();
                let waits = self.cursor.holes() >= HOLES_BEFORE_HEAD_WAITS;
                let wanted = from < durable_end && !waits && self.has_taker(Lane::Head);
                wanted.then_some(Read { lane, from, until: durable_end })
            }
            Lane::Catch => {
                let (slots, members) = (&self.slots, &self.members);
                let until = self.reading.head();
                let from = self.reading.begin_slice(|bucket| receiver(slots, members, bucket).is_some())?;
                Some(Read { lane, from, until })
            }
        }
    }

    /// Whether some bucket that `lane` serves may flow.
    fn has_taker(&self, lane: Lane) -> bool {
        self.buckets.iter().any(|bucket| {
            let served = match lane {
                Lane::Head => self.reading.is_at_head(bucket),
                Lane::Catch => self.reading.is_catching(bucket),
            };
            served && self.receiver(bucket).is_some()
        })
    }

    fn receiver(&self, bucket: BucketIndex) -> Option<(Attach, Round)> {
        receiver(&self.slots, &self.members, bucket)
    }

    fn member_mut(&mut self, attach: Attach) -> Option<&mut Member> {
        self.members.get_mut(&attach.session).filter(|member| member.attach == attach)
    }

    fn staying(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|member| member.leaves_by.is_none())
    }

    fn drop_member(&mut self, attach: Attach, now: Micros) {
        self.members.remove(&attach.session);
        for bucket in self.buckets.iter() {
            self.apply(bucket, Event::Lost(attach), now);
        }
    }

    fn reassign(&mut self, now: Micros) {
        let owners: Vec<Option<Attach>> = {
            // Contiguous slices go by (name, id); the sticky way needs any fixed order.
            let mut members: Vec<(&str, SessionId)> =
                self.staying().map(|member| (member.name.as_str(), member.attach.session)).collect();
            members.sort_unstable();
            let name = |session: SessionId| self.members.get(&session).map(|member| (member.name.as_str(), session));
            let previous: Vec<_> = self.assigned.iter().map(|owner| owner.and_then(name)).collect();
            let owners = assign(self.policy.strategy, self.slots.len(), &members, &previous);
            owners.into_iter().map(|owner| owner.map(|(_, session)| self.members[&session].attach)).collect()
        };
        for (i, owner) in owners.into_iter().enumerate() {
            // A leaver's share stays its share until another has it: nobody else needs the memory.
            self.assigned[i] = owner.map(|attach| attach.session).or(self.assigned[i]);
            self.apply(BucketIndex(i as u32), Event::Assign(owner), now);
        }
    }

    /// Steps one bucket and says what changed.
    fn apply(&mut self, bucket: BucketIndex, event: Event, now: Micros) {
        let slot = &mut self.slots[bucket.0 as usize];
        let (before, was_draining) = (slot.ownership.holder(), slot.ownership.is_draining());
        let (ownership, effect) = mem::replace(&mut slot.ownership, Ownership::NEW).step(event);
        let (after, is_draining) = (ownership.holder(), ownership.is_draining());
        slot.ownership = ownership;
        if let Effect::Rewind(at) = effect {
            self.reading.rewind(bucket, at);
            if matches!(event, Event::GaveBack(..)) {
                slot.sent_below = slot.sent_below.min(at.max(slot.granted_below));
            }
        }
        if is_draining && !was_draining {
            if let Some(within) = self.policy.handoff_deadline {
                self.deadlines.insert(bucket, Micros(now.0.saturating_add(within)));
            }
        } else if !is_draining {
            self.deadlines.remove(&bucket);
        }
        if let (Some((attach, round)), false, Event::Assign(_)) = (before, was_draining, event)
            && (before != after || is_draining)
        {
            self.outputs.push_back(Output::Withdrawn { attach, bucket, round });
        }
        if before == after {
            return;
        }
        match (before, event) {
            (Some((attach, round)), Event::Expired) => {
                self.outputs.push_back(Output::Revoked { attach, bucket, round });
            }
            (Some(_), Event::Lost(_)) | (None, _) => {}
            (Some((attach, round)), _) => self.outputs.push_back(Output::Released { attach, bucket, round }),
        }
        if let Some((attach, round)) = after {
            self.owner = OwnerNo(self.owner.0 + 1);
            let slot = &mut self.slots[bucket.0 as usize];
            slot.owner = self.owner;
            slot.granted_below = slot.sent_below;
            let (owner, redelivered_below) = (self.owner, slot.sent_below);
            self.outputs.push_back(Output::Granted { attach, bucket, round, owner, redelivered_below });
        }
    }

    /// Says once that a leaving attach holds nothing more.
    fn note_empty(&mut self, attach: Attach) {
        if self.member_mut(attach).is_none_or(|member| member.leaves_by.is_none() || member.is_empty) {
            return;
        }
        let holds = self.slots.iter().any(|slot| slot.ownership.holder().is_some_and(|(holder, _)| holder == attach));
        if !holds && let Some(member) = self.member_mut(attach) {
            member.is_empty = true;
            self.outputs.push_back(Output::Empty { attach });
        }
    }

    fn note_drained(&mut self) {
        let is_done = self.end.is_some_and(|end| self.cursor.is_drained(end));
        if is_done && self.gate.is_open() && !self.drained {
            self.drained = true;
            self.outputs.push_back(Output::Drained { generation: self.cursor.generation() });
        }
    }
}

/// Who an entry of `bucket` may be sent to now: its holder, unless it drains or has as much as it may.
fn receiver(slots: &[Slot], members: &BTreeMap<SessionId, Member>, bucket: BucketIndex) -> Option<(Attach, Round)> {
    let ownership = &slots[bucket.0 as usize].ownership;
    let (attach, round) = ownership.receiver()?;
    let member = members.get(&attach.session).filter(|member| member.attach == attach)?;
    let is_full = ownership.in_flight().is_some_and(|set| set.ranges() >= IN_FLIGHT_RANGES_MAX);
    (member.credit > 0 && !is_full).then_some((attach, round))
}
