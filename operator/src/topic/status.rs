//! The status that goes with a step: the ledger, the evaluator's word, who reads what, and the conditions. Pure.

use std::collections::BTreeMap;

use braid_crds::{
    AutoscaleStatus, ChangeStatus, Decision, DecisionInputs, Holds, OwnersStatus, RateValues, ScalableTopicStatus,
    micro_time,
};
use braid_model::operation::Ledger;
use braid_model::placement::StoreName;
use braid_model::scale::{Change, Lane, Mode, Rates};
use braid_model::{Micros, SegmentId};

use crate::topic::conditions;
use crate::topic::judge::{Judged, groups, replaced};
use crate::topic::observe::Seen;

/// A node that is silent for longer does not serve.
pub(crate) const UNREACHABLE_MS: u64 = 3_000;

/// What the topic's lap is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Nothing,
    /// The operation of the ledger.
    Operation,
    /// The operation of the ledger needs this store.
    WaitingFor {
        store: StoreName,
    },
    /// Something that passes by itself.
    Waiting {
        message: String,
    },
    /// Something that a person must look at.
    Stalled {
        reason: &'static str,
        message: String,
    },
}

/// The status of a topic that has this ledger and does that.
pub(crate) fn compose(
    seen: &Seen,
    ledger: Option<&Ledger>,
    judged: Option<&Judged>,
    doing: &Doing,
    now: Micros,
) -> ScalableTopicStatus {
    let mut status = seen.status.clone();
    status.observed_generation = seen.generation;
    if let Some(ledger) = ledger {
        status.keep(ledger);
        readers(seen, ledger, &mut status);
    }
    if let Some(judged) = judged {
        scaling(judged, status.autoscale.get_or_insert_default(), now);
    }
    conditions::set(seen, ledger, judged, doing, &mut status.conditions, now);
    status
}

/// Sessions per segment, all subscriptions together; as it was while the home is silent.
fn readers(seen: &Seen, ledger: &Ledger, status: &mut ScalableTopicStatus) {
    let groups = groups(seen, ledger);
    let Some(known) = groups.into_iter().collect::<Option<Vec<_>>>() else { return };
    let mut owners: BTreeMap<SegmentId, u32> = BTreeMap::new();
    for (segment, sessions) in known.iter().flat_map(|group| &group.owners) {
        let sum = owners.entry(*segment).or_default();
        *sum = sum.saturating_add(*sessions);
    }
    let shown = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let listed = owners.into_iter().filter_map(|(segment, sessions)| {
        Some(OwnersStatus { segment: i64::try_from(segment.0).ok()?, sessions: shown(sessions) })
    });
    status.owners = listed.collect();
    let idle = known.iter().fold(0_u32, |sum, group| sum.saturating_add(group.idle));
    status.idle_sessions = (!known.is_empty()).then(|| shown(idle));
}

fn scaling(judged: &Judged, status: &mut AutoscaleStatus, now: Micros) {
    status.policy = Some((&judged.policy).into());
    let mut holds = Holds::default();
    for (lane, hold) in &judged.verdict.holds {
        let place = match lane {
            Lane::All => &mut holds.all,
            Lane::Consumers => &mut holds.consumers,
            Lane::Load => &mut holds.load,
            Lane::Merge => &mut holds.merge,
        };
        *place = Some(hold.name().to_owned());
    }
    status.holds = (holds != Holds::default()).then_some(holds);
    // Whole seconds, rounded up: nothing is promised too early.
    let whole = |at: Micros| Micros(at.0.div_ceil(1_000_000).saturating_mul(1_000_000));
    status.next_eligible_time = judged.next.map(|at| micro_time(whole(at)));
    let wanted = judged.verdict.change.as_ref().filter(|_| judged.policy.mode == Mode::Recommend);
    let wanted = wanted.map(|change| decision(judged, change, now));
    let same = |a: &Decision, b: &Decision| (&a.change, &a.reason) == (&b.change, &b.reason);
    status.recommendation = match (status.recommendation.take(), wanted) {
        (Some(before), Some(wanted)) if same(&before, &wanted) => Some(before),
        (_, wanted) => wanted,
    };
}

/// A decision with what it was made from.
pub(crate) fn decision(judged: &Judged, change: &Change, now: Micros) -> Decision {
    let segments = replaced(change);
    let of = judged.snapshot.segments.iter().filter(|segment| segments.contains(&segment.id));
    let samples = of.filter_map(|segment| segment.sample).map(|sample| sample.rates);
    let rates = samples.reduce(|sum, rates| Rates(std::array::from_fn(|i| sum.0[i].saturating_add(rates.0[i]))));
    let capacity: u64 = judged.snapshot.segments.iter().map(|segment| u64::from(segment.buckets.count())).sum();
    Decision {
        change: ChangeStatus::from(change),
        reason: change.reason().name().to_owned(),
        time: micro_time(now),
        inputs: DecisionInputs {
            segments: i32::try_from(judged.snapshot.segments.len()).unwrap_or(i32::MAX),
            buckets: i64::try_from(capacity).unwrap_or(i64::MAX),
            sessions: judged.snapshot.sessions.iter().max().and_then(|n| i64::try_from(*n).ok()).unwrap_or(0),
            rates: rates.as_ref().map(RateValues::from),
        },
    }
}
