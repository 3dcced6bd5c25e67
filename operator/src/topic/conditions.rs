//! The conditions of a topic: which there are, and what each one says. Pure.

use braid_crds::{Condition, ConditionStatus, set_condition};
use braid_model::Micros;
use braid_model::operation::{Kind, Ledger};
use braid_model::placement::StoreName;
use braid_model::scale::{Hold, Mode};

use crate::topic::judge::Judged;
use crate::topic::observe::Seen;
use crate::topic::status::{Doing, UNREACHABLE_MS};
use crate::topic::tell::digest;
use crate::topic::told::layout_to_tell;

/// A deletion that takes longer is shown as stalled.
const DELETION_DEADLINE_US: u64 = 60_000_000;

/// Reason and message of one condition, and whether it holds.
type Says = (ConditionStatus, &'static str, String);

/// Sets every condition of the topic; each is always there, so that waiting for False works.
pub(crate) fn set(
    seen: &Seen,
    ledger: Option<&Ledger>,
    judged: Option<&Judged>,
    doing: &Doing,
    conditions: &mut Vec<Condition>,
    now: Micros,
) {
    let all: [(&str, Says); 7] = [
        ("Ready", ready(seen, ledger, doing)),
        ("Reconciling", reconciling(seen, ledger, doing)),
        ("Stalled", stalled(seen, doing, now)),
        ("Paused", paused(seen)),
        ("ScalingActive", scaling_active(seen, judged)),
        ("AbleToScale", able_to_scale(judged, doing)),
        ("ScalingLimited", scaling_limited(judged)),
    ];
    for (type_, (status, reason, message)) in all {
        set_condition(conditions, type_, status, reason, message, seen.generation, now);
    }
}

fn yes(reason: &'static str, message: impl Into<String>) -> Says {
    (ConditionStatus::True, reason, message.into())
}

fn no(reason: &'static str, message: impl Into<String>) -> Says {
    (ConditionStatus::False, reason, message.into())
}

/// True from the first time that every active segment's node knows the layout, and as long as it is connected.
fn ready(seen: &Seen, ledger: Option<&Ledger>, doing: &Doing) -> Says {
    let was_ready = seen.status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let Some((ledger, layout)) = ledger.and_then(|ledger| Some((ledger, ledger.layout.as_ref()?))) else {
        let message = match doing {
            Doing::Waiting { message } | Doing::Stalled { message, .. } => message.clone(),
            _ => "its segments are being made".to_owned(),
        };
        return no("SegmentsUnassigned", message);
    };
    let node = |store: &StoreName| seen.stores.iter().find(|node| node.store == *store);
    let silent = |store: &StoreName| node(store).is_none_or(|node| node.link.is_none());
    let long_silent =
        |store: &StoreName| node(store).is_none_or(|node| node.link.is_none() && node.silent_ms > UNREACHABLE_MS);
    let serving = || yes("Serving", format!("epoch {}: {} active segments", layout.epoch(), layout.active().len()));
    if let Some(segment) = layout.active().find(|segment| silent(&segment.store)) {
        let unreachable = layout.active().any(|segment| long_silent(&segment.store));
        return if was_ready && !unreachable {
            serving()
        } else {
            no("DataPlaneUnreachable", format!("store `{}` of segment {} is not connected", segment.store, segment.id))
        };
    }
    let now_told = layout_to_tell(seen, ledger).map(|told| digest(&told));
    let knows = |store: &StoreName| seen.told.get(store).is_some_and(|told| Some(told.digest) == now_told);
    match layout.active().find(|segment| !knows(&segment.store)) {
        Some(segment) if !was_ready => {
            no("SegmentsUnassigned", format!("store `{}` does not know the layout yet", segment.store))
        }
        _ => serving(),
    }
}

fn reconciling(seen: &Seen, ledger: Option<&Ledger>, doing: &Doing) -> Says {
    let operation = ledger.and_then(|ledger| ledger.operation.as_ref());
    let progress = operation.map(|operation| {
        let reason = match operation.kind {
            Kind::Create => "Creating",
            Kind::Split => "Splitting",
            Kind::Merge => "Merging",
            Kind::Rebucket => "Rebucketing",
            Kind::Subscribe(_) => "Subscribing",
            Kind::Unsubscribe(_) => "Unsubscribing",
            Kind::Delete => "Deleting",
        };
        (reason, format!("operation {} ({})", operation.op, operation.kind.name()))
    });
    match (doing, progress) {
        (Doing::WaitingFor { store }, Some(("Deleting", message))) => {
            yes("Deleting", format!("{message} waits for store `{store}`"))
        }
        (Doing::WaitingFor { store }, Some((_, message))) => {
            yes("WaitingForStore", format!("{message} waits for store `{store}`"))
        }
        (_, Some((reason, message))) => yes(reason, message),
        (Doing::Waiting { message }, None) => yes("WaitingForStore", message.clone()),
        (_, None) if ledger.is_none() => yes("Creating", "the topic does not exist yet"),
        _ if seen.leaving_since.is_some() => yes("Deleting", "the topic is being deleted"),
        _ => no("Settled", "nothing is under way"),
    }
}

fn stalled(seen: &Seen, doing: &Doing, now: Micros) -> Says {
    if let Doing::Stalled { reason, message } = doing {
        return yes(reason, message.clone());
    }
    if let Some(trouble) = &seen.trouble {
        return yes(trouble.reason, trouble.message.clone());
    }
    match (seen.leaving_since, doing) {
        (Some(since), Doing::WaitingFor { store }) if now.since(since) > DELETION_DEADLINE_US => {
            yes("DeadlineExceeded", format!("its data cannot be removed before store `{store}` is connected"))
        }
        _ => no("Progressing", "nothing is in the way"),
    }
}

fn paused(seen: &Seen) -> Says {
    if seen.paused {
        yes("PausedByAnnotation", "nothing new is begun")
    } else {
        no("NotPaused", "changes are carried out")
    }
}

fn holds(judged: Option<&Judged>) -> impl Iterator<Item = Hold> + '_ {
    judged.into_iter().flat_map(|judged| judged.verdict.holds.iter().map(|(_, hold)| *hold))
}

fn scaling_active(seen: &Seen, judged: Option<&Judged>) -> Says {
    if let Some(invalid) = judged.and_then(|judged| judged.invalid) {
        return no("InvalidPolicy", invalid.to_string());
    }
    let hold = holds(judged).find(|hold| matches!(hold, Hold::Off | Hold::LoadUnknown | Hold::SessionsUnknown));
    match hold {
        Some(Hold::Off) if seen.paused && seen.policy.mode != Mode::Off => no("Off", "the topic is paused"),
        Some(Hold::Off) => no("Off", "the policy's mode is `Off`"),
        Some(Hold::LoadUnknown) => no("LoadUnknown", "the load of some segment is not known"),
        Some(hold) => no(hold.name(), "the home has not said how many sessions there are"),
        None if judged.is_none() => no("SessionsUnknown", "the topic does not exist yet"),
        None => yes("ValidMetricFound", "loads and sessions are known"),
    }
}

fn able_to_scale(judged: Option<&Judged>, doing: &Doing) -> Says {
    if let Doing::Waiting { message } = doing {
        return no("WaitingForStore", message.clone());
    }
    let hold = holds(judged).find(|hold| {
        use Hold::{Busy, MergeCooldown, RebucketCooldown, SplitCooldown, UndrainedGenerations};
        matches!(hold, Busy | SplitCooldown | RebucketCooldown | MergeCooldown | UndrainedGenerations)
    });
    let Some(hold) = hold else { return yes("ReadyForNewLayout", "a change may begin") };
    let cooldown = |what: &str| format!("no {what} so soon after the last one; see `autoscale.nextEligibleTime`");
    let message = match hold {
        Hold::SplitCooldown => cooldown("split"),
        Hold::RebucketCooldown => cooldown("rebucket"),
        Hold::MergeCooldown => cooldown("merge"),
        Hold::Busy => "an operation is under way".to_owned(),
        _ => "consumers have too many generations of sealed segments to read first".to_owned(),
    };
    no(hold.name(), message)
}

fn scaling_limited(judged: Option<&Judged>) -> Says {
    let hold = holds(judged).find(|hold| {
        use Hold::{AtBucketCeiling, AtMaxSegments, MergeDepthReached, TooNarrow};
        matches!(hold, AtMaxSegments | AtBucketCeiling | MergeDepthReached | TooNarrow)
    });
    let (Some(hold), Some(judged)) = (hold, judged) else {
        return no("DesiredWithinRange", "no bound is in the way");
    };
    let policy = &judged.policy;
    let message = match hold {
        Hold::AtMaxSegments => format!("`maxSegments` is {}", policy.max_segments),
        Hold::AtBucketCeiling => format!("no segment has more than {} buckets", policy.ceiling),
        Hold::MergeDepthReached => format!("`maxMergeDepth` is {}", policy.max_merge_depth),
        _ => "a segment of one hash cannot be split".to_owned(),
    };
    yes(hold.name(), message)
}
