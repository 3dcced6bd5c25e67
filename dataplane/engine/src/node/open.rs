//! Opening a store: every record in order, then the segments begin to serve.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_log::{ReadError, SegmentKey, Store};
use braid_model::{Micros, Offset, SegmentId};

use super::ledger::Ledger;
use super::limits::Config;
use super::metrics::Metrics;
use super::records::{ENTRY, Name, Note};
use super::report::Clock;
use super::state::{Change, State};
use super::{Node, Timers};
use crate::backoff::Dice;

/// Why a store could not be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record says what no build of this version writes.
    #[error("record {lsn} of kind `{kind}`: {reason}")]
    Record { lsn: u64, kind: u8, reason: String },
    /// The store takes no records.
    #[error("the store takes no records: {reason}")]
    Store { reason: String },
}

impl<S: Store> Node<S> {
    /// The node of a store as it was left: replays every record, then raises the start counter.
    ///
    /// # Errors
    /// The store could not be read, a record not understood, or the start counter not appended.
    pub fn open(mut store: S, config: Config, now: Micros) -> Result<Self, OpenError> {
        let (state, dropped) = replay(&mut store)?;
        dropped.into_iter().for_each(|key| store.forget(key));
        let seed = config.seed;
        let mut node = Self {
            config,
            now,
            ledger: Ledger::new(store),
            state,
            channels: BTreeMap::new(),
            effects: VecDeque::new(),
            later: BTreeMap::new(),
            floor: braid_log::Lsn(0),
            homes: BTreeMap::new(),
            peers: BTreeMap::new(),
            timers: Timers::default(),
            clock: Clock::new(now),
            counts: Metrics::default(),
            dice: Dice::new(seed),
        };
        node.state.start += 1;
        let start = Note::Start { counter: node.state.start };
        let raised = node.ledger.note(SegmentKey::default(), &start, now);
        node.floor = raised.map_err(|refused| OpenError::Store { reason: refused.message })?;
        node.serve_all();
        Ok(node)
    }

    /// What is in the store is durable, so all of it can be served.
    fn serve_all(&mut self) {
        let mut found: Vec<(SegmentKey, Name)> = Vec::new();
        for (key, segment) in &mut self.state.segments {
            segment.durable_end = segment.end;
            if let Some(seal) = &mut segment.seal {
                seal.durable = true;
            }
            found.extend(segment.subscriptions.keys().map(|name| (*key, Name::clone(name))));
        }
        for (key, name) in found {
            self.serve(key, &name, true);
        }
        let told = self.state.topics.incarnations();
        let topics: BTreeSet<_> = told.chain(self.state.segments.keys().map(|key| key.incarnation)).collect();
        for incarnation in topics {
            self.refresh_homes(incarnation, true);
            self.retune(incarnation);
        }
    }

    /// A cursor that was recorded begins to serve: its gate learns what is known, a seal is told to it.
    pub(super) fn serve(&mut self, key: SegmentKey, name: &Name, was_here: bool) {
        let start = self.state.start;
        let parents: Vec<SegmentKey> = {
            let Some(segment) = self.state.segments.get_mut(&key) else { return };
            let Some(found) = segment.subscriptions.get_mut(name) else { return };
            let sent_below = if was_here { segment.end } else { Offset(0) };
            found.serve(segment.buckets, &segment.header.parents, start, sent_below);
            let parent = |id: &u64| SegmentKey { segment: SegmentId(*id), ..key };
            segment.header.parents.iter().map(parent).collect()
        };
        let facts: Vec<_> =
            parents.iter().filter_map(|parent| Some((parent.segment, self.state.drained(*parent, name)?))).collect();
        let Some(segment) = self.state.segments.get_mut(&key) else { return };
        let end = segment.sealed_end();
        let Some(found) = segment.subscriptions.get_mut(name) else { return };
        let is_drained = found.drained;
        if let Some(dispatcher) = found.dispatcher() {
            for (parent, generation) in facts {
                dispatcher.parent_drained(parent, generation);
            }
            if let Some(end) = end {
                dispatcher.sealed(end);
            }
        }
        if is_drained {
            // Recorded in a former life: its peers may not have heard of it.
            found.shown_drained = true;
            self.owe_fact(key, name);
        }
        self.pump(key, name);
    }
}

/// The state, and the segments that were dropped.
fn replay<S: Store>(store: &mut S) -> Result<(State, Vec<SegmentKey>), OpenError> {
    let mut state = State::default();
    let mut dropped = Vec::new();
    let mut failure = None;
    store.replay(&mut |lsn, record| {
        if failure.is_some() {
            return;
        }
        let (key, kind, time) = (record.key, record.kind, record.time);
        let result = if kind == ENTRY {
            state.replay_entry(key, record.body)
        } else {
            let note = Note::decode(kind, record.body).map_err(|e| e.to_string());
            note.and_then(|note| state.apply(key, &note, time)).map(|changes| {
                dropped.extend(changes.iter().filter_map(|change| match change {
                    Change::Dropped(key, _) => Some(*key),
                    _ => None,
                }));
            })
        };
        failure = result.err().map(|reason| OpenError::Record { lsn: lsn.0, kind, reason });
    })?;
    failure.map_or(Ok((state, dropped)), Err)
}
