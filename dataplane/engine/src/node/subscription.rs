//! One subscription on one segment: its cursor while the store is read, its dispatcher afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_model::assign::Strategy;
use braid_model::cursor::Cursor;
use braid_model::dispatch::{Dispatcher, OwnerNo, Past, Policy};
use braid_model::gate::Gate;
use braid_model::handoff::Attach;
use braid_model::{Buckets, Generation, Offset, OffsetRange, SegmentId};
use braid_wire::proto;

use super::records::Name;
use crate::ChannelId;

/// A subscription that was replaced in one life of the store leaves this many owner numbers to the next.
const OWNERS_PER_LIFE: u64 = 1 << 24;

/// A subscription on a segment of this store.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) spec: proto::SubscriptionSpec,
    pub(super) name: Name,
    pub(super) generation: Generation,
    reader: Reader,
    pub(super) channels: BTreeMap<Attach, ChannelId>,
    /// Recorded as drained, in this generation.
    pub(super) drained: bool,
    /// That record is durable: it may be told.
    pub(super) shown_drained: bool,
    /// How often a subscription of this name was made here in this life of the store.
    life: u64,
}

#[derive(Debug)]
enum Reader {
    /// The store is being read.
    Recovering(Cursor),
    Serving(Box<Dispatcher>),
}

impl Subscription {
    /// A cursor at `start`; `before` is what it replaces.
    pub(super) fn new(spec: proto::SubscriptionSpec, start: Offset, before: Option<&Self>) -> Self {
        let generation = Generation(spec.generation);
        Self {
            name: Arc::from(spec.name.as_str()),
            generation,
            spec,
            reader: Reader::Recovering(Cursor::new(generation, start)),
            channels: BTreeMap::new(),
            drained: false,
            shown_drained: false,
            life: before.map_or(0, |before| before.life + 1),
        }
    }

    /// What was acked in this generation, from the log.
    pub(super) fn replay_acked(&mut self, ranges: &[OffsetRange]) -> Result<(), String> {
        match &mut self.reader {
            Reader::Recovering(cursor) => {
                ranges.iter().try_for_each(|range| cursor.ack(*range).map(drop)).map_err(|e| e.to_string())
            }
            Reader::Serving(_) => Ok(()),
        }
    }

    /// Begins to serve. `sent_below`: what former lives may have delivered.
    pub(super) fn serve(&mut self, buckets: Buckets, parents: &[u64], start: u64, sent_below: Offset) {
        if let Reader::Recovering(cursor) = &self.reader {
            let gate = Gate::new(self.generation, parents.iter().copied().map(SegmentId));
            let strategy = match self.spec.assignment() {
                proto::Assignment::Sticky => Strategy::Sticky,
                proto::Assignment::Contiguous => Strategy::Contiguous,
            };
            let deadline = u64::from(self.spec.handoff_deadline_ms) * 1_000;
            let policy = Policy { strategy, handoff_deadline: (deadline > 0).then_some(deadline) };
            let past = Past { owner_floor: OwnerNo((start << 32) + self.life * OWNERS_PER_LIFE), sent_below };
            let dispatcher = Dispatcher::new(buckets, cursor.clone(), gate, policy, past);
            self.reader = Reader::Serving(Box::new(dispatcher));
        }
    }

    pub(super) fn cursor(&self) -> &Cursor {
        match &self.reader {
            Reader::Recovering(cursor) => cursor,
            Reader::Serving(dispatcher) => dispatcher.cursor(),
        }
    }

    /// `None` only while the store is read.
    pub(super) fn dispatcher(&mut self) -> Option<&mut Dispatcher> {
        match &mut self.reader {
            Reader::Recovering(_) => None,
            Reader::Serving(dispatcher) => Some(dispatcher),
        }
    }

    pub(super) fn report(&self, end: Offset) -> proto::CursorReport {
        proto::CursorReport {
            subscription: self.spec.name.clone(),
            generation: self.generation.0,
            backlog_messages: self.cursor().backlog(end),
            drained: self.shown_drained,
        }
    }
}
