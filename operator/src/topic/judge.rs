//! What the evaluator sees of a topic, and what it says. Pure.

use braid_model::layout::Layout;
use braid_model::operation::Ledger;
use braid_model::scale::{
    self, Change, Hold, InvalidPolicy, Lane, LastChanges, Mode, Policy, Sample, Snapshot, Verdict, decide, estimate,
    next_eligible,
};
use braid_model::{Micros, SegmentId};

use crate::fleet::GroupSeen;
use crate::topic::observe::Seen;

/// The evaluator's word on a topic.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) policy: Policy,
    pub(crate) invalid: Option<InvalidPolicy>,
    pub(crate) verdict: Verdict,
    /// When a clock that runs now ends.
    pub(crate) next: Option<Micros>,
    pub(crate) snapshot: Snapshot,
}

/// Judges the topic as `ledger` has it.
pub(crate) fn judge(seen: &Seen, ledger: &Ledger, now: Micros) -> Judged {
    let mut policy = seen.policy.clone();
    let invalid = policy.validate().err();
    if seen.paused || invalid.is_some() {
        policy.mode = Mode::Off;
    }
    let Some(layout) = &ledger.layout else {
        let hold = if policy.mode == Mode::Off { Hold::Off } else { Hold::Busy };
        let verdict = Verdict { change: None, holds: vec![(Lane::All, hold)] };
        return Judged { policy: seen.policy.clone(), invalid, verdict, next: None, snapshot: Snapshot::default() };
    };
    let snapshot = snapshot(seen, ledger, layout, now);
    let verdict = decide(&snapshot, &policy, now);
    let next = next_eligible(&snapshot, &policy, now);
    Judged { policy: seen.policy.clone(), invalid, verdict, next, snapshot }
}

fn snapshot(seen: &Seen, ledger: &Ledger, layout: &Layout, now: Micros) -> Snapshot {
    let undrained = layout.undrained_generations(|id| is_drained(seen, ledger, id));
    let segments = layout.active().map(|segment| scale::Segment {
        id: segment.id,
        range: segment.range,
        buckets: segment.buckets,
        merge_depth: segment.merge_depth,
        undrained_generations: undrained.get(&segment.id).copied().unwrap_or(0),
        sample: sample(seen, layout, segment.id),
    });
    let groups = groups(seen, ledger);
    let home_silent_us = if groups.is_empty() {
        // Nobody can join a topic without subscriptions: its home has nothing to say.
        let home = ledger.home.as_ref().map(|home| &home.store);
        seen.stores.iter().any(|store| Some(&store.store) == home && store.link.is_some()).then_some(0)
    } else {
        let known: Option<Vec<&GroupSeen>> = groups.iter().copied().collect();
        known.and_then(|known| known.iter().map(|group| now.since(group.at)).max())
    };
    Snapshot {
        segments: segments.collect(),
        sessions: groups.iter().flatten().map(|group| u64::from(group.sessions)).collect(),
        busy: ledger.operation.is_some(),
        home_silent_us,
        last: LastChanges { split: ledger.clocks.split, merge: ledger.clocks.merge, rebucket: ledger.clocks.rebucket },
    }
}

/// What the home says of each subscription; `None` if it has said nothing of these cursors under this home.
pub(crate) fn groups<'a>(seen: &'a Seen, ledger: &Ledger) -> Vec<Option<&'a GroupSeen>> {
    let of = |subscription: &braid_model::operation::Subscription| {
        let home = ledger.home.as_ref()?;
        let group = seen.reports.groups.get(&subscription.name)?;
        let current = group.generation == subscription.generation && group.home_term == home.term;
        current.then_some(group)
    };
    ledger.subscriptions.values().map(of).collect()
}

/// Whether every subscription has read all of a segment. Unknown is not drained.
fn is_drained(seen: &Seen, ledger: &Ledger, id: SegmentId) -> bool {
    ledger.subscriptions.values().all(|subscription| {
        let cursor = seen.reports.segments.get(&id).and_then(|segment| segment.cursors.get(&subscription.name));
        cursor.is_some_and(|cursor| cursor.drained && cursor.generation == subscription.generation)
    })
}

/// The measured load, or what the parents' last one makes us expect.
fn sample(seen: &Seen, layout: &Layout, id: SegmentId) -> Option<Sample> {
    let measured = |id: &SegmentId| seen.reports.segments.get(id).and_then(|segment| segment.sample.as_ref());
    if let Some(sample) = measured(&id) {
        return Some(*sample);
    }
    let segment = layout.segment(id)?;
    let parents: Vec<_> = segment.parents.iter().filter_map(|parent| layout.segment(*parent)).collect();
    let committed = parents.iter().filter_map(|parent| parent.sealed_at()).max()?;
    estimate(segment.range, parents.iter().map(|parent| (parent.range, measured(&parent.id))), committed)
}

/// The segments that a change replaces.
pub(crate) fn replaced(change: &Change) -> Vec<SegmentId> {
    match change {
        Change::Split { segment, .. } => vec![*segment],
        Change::Rebucket { segments, .. } => segments.clone(),
        Change::Merge { a, b, .. } => vec![*a, *b],
    }
}
