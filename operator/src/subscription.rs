//! A Subscription's own status and finalizer. Its cursors are the topic's business: it is Ready when the topic holds it.

use std::sync::Arc;
use std::time::Duration;

use braid_crds::{
    ConditionStatus, DeletionPolicy, FINALIZER, OperationKind, OwnersStatus, ScalableTopic, ScalableTopicStatus,
    Subscription, SubscriptionStatus, set_condition,
};
use braid_model::{Incarnation, Micros, SubscriptionName};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use serde_json::json;
use tracing::{debug, warn};

use crate::cache::{Guarded, is_decoded};
use crate::clock;
use crate::context::{Context, Error};
use crate::fleet::TopicSeen;
use crate::name::Name;

/// A backlog that grows or shrinks wakes nobody: it is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// One lap. Safe to cancel at any await and to run twice.
pub(crate) async fn reconcile(sub: Arc<Guarded<Subscription>>, ctx: Arc<Context>) -> Result<Action, Error> {
    let Some(sub) = sub.0.as_ref().ok().filter(|_| is_decoded(&sub, &ctx.metrics)) else {
        return Ok(Action::await_change());
    };
    let name = Name::of(sub);
    let topic_name = name.sibling(&sub.spec.topic_ref.name);
    let topic = ctx.cache.topic(&topic_name);
    // Whatever changed of the subscription, the topic may have to act.
    if !is_held(sub, topic.as_ref().and_then(|topic| topic.status.as_ref())) {
        ctx.topics.wake(topic_name.clone());
    }
    let topic_is_leaving = topic.as_ref().is_some_and(|topic| topic.metadata.deletion_timestamp.is_some());
    let status = topic.as_ref().and_then(|topic| topic.status.as_ref());
    if let Some(wanted) = finalizer(sub, status, topic.is_none() || topic_is_leaving) {
        // The cache may be older than the cursors: before they are given up, the topic itself is asked.
        if wanted || may_go(sub, &topic_name, &ctx).await? {
            write_finalizer(sub, wanted, &ctx).await?;
            return Ok(Action::await_change());
        }
        return Ok(Action::requeue(LOOK_AGAIN));
    }
    if sub.metadata.deletion_timestamp.is_some() {
        return Ok(Action::requeue(LOOK_AGAIN));
    }
    let incarnation = status.and_then(|status| status.ledger().ok().flatten()).map(|ledger| ledger.incarnation);
    let reports = incarnation.map(|life: Incarnation| ctx.fleet.topic(&topic_name, life)).unwrap_or_default();
    let next = compose(sub, topic.is_some(), status, &reports, clock::now());
    if sub.status.as_ref() != Some(&next) {
        let api: Api<Subscription> = Api::namespaced(ctx.client.clone(), &name.namespace);
        let object = Subscription { status: Some(next), ..sub.clone() };
        match api.replace_status(&name.name, &PostParams::default(), &object).await {
            Ok(_) => {}
            // The watch brings the newer one.
            Err(kube::Error::Api(refusal)) if refusal.code == 409 || refusal.code == 404 => {
                debug!(%name, "somebody wrote first")
            }
            Err(error) => return Err(error.into()),
        }
    }
    ctx.memories.succeeded(&sub.uid().unwrap_or_default());
    Ok(Action::requeue(LOOK_AGAIN))
}

/// When to look again after a lap that failed.
pub(crate) fn after_failure(sub: Arc<Guarded<Subscription>>, error: &Error, ctx: Arc<Context>) -> Action {
    let wait = ctx.backoff(&sub.uid().unwrap_or_default());
    warn!(
        subscription = sub.name_any(),
        wait_ms = wait.as_millis(),
        error = error as &dyn std::error::Error,
        "lap repeated"
    );
    Action::requeue(wait)
}

/// Whether the topic's status already says of this subscription what it wants.
fn is_held(sub: &Subscription, status: Option<&ScalableTopicStatus>) -> bool {
    let listed = status.is_some_and(|status| status.subscriptions.iter().any(|held| held.name == sub.name_any()));
    listed && sub.metadata.deletion_timestamp.is_none()
}

/// Whether the finalizer is to be added or removed; `None` if it is right as it is.
fn finalizer(sub: &Subscription, status: Option<&ScalableTopicStatus>, topic_gone: bool) -> Option<bool> {
    let name = sub.name_any();
    let has = sub.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    let deletes = sub.spec.deletion_policy == DeletionPolicy::Delete;
    if sub.metadata.deletion_timestamp.is_none() {
        return (has != deletes).then_some(deletes);
    }
    let listed = status.is_some_and(|status| status.subscriptions.iter().any(|held| held.name == name));
    let being_made = status.and_then(|status| status.operation.as_ref()).is_some_and(|operation| {
        operation.kind == OperationKind::Subscribe
            && operation.subscription.as_ref().is_some_and(|made| made.name == name)
    });
    let waits = deletes && !topic_gone && (listed || being_made);
    (has && !waits).then_some(false)
}

/// Whether the topic at the API server has no cursors of the subscription either.
async fn may_go(sub: &Subscription, topic: &Name, ctx: &Context) -> Result<bool, Error> {
    let topics: Api<ScalableTopic> = Api::namespaced(ctx.client.clone(), &topic.namespace);
    let topic = topics.get_opt(&topic.name).await?.filter(|topic| topic.metadata.deletion_timestamp.is_none());
    let status = topic.as_ref().and_then(|topic| topic.status.as_ref());
    Ok(finalizer(sub, status, topic.is_none()) == Some(false))
}

async fn write_finalizer(sub: &Subscription, wanted: bool, ctx: &Context) -> Result<(), Error> {
    let mut finalizers: Vec<String> = sub.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if wanted {
        finalizers.push(FINALIZER.to_owned());
    }
    let patch = json!({"metadata": {"resourceVersion": sub.resource_version(), "finalizers": finalizers}});
    let api: Api<Subscription> = Api::namespaced(ctx.client.clone(), &sub.namespace().unwrap_or_default());
    match api.patch(&sub.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(refusal)) if refusal.code == 409 || refusal.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The status of a subscription. Pure.
fn compose(
    sub: &Subscription,
    topic_exists: bool,
    topic: Option<&ScalableTopicStatus>,
    reports: &TopicSeen,
    now: Micros,
) -> SubscriptionStatus {
    let name = sub.name_any();
    let generation = sub.metadata.generation;
    let mut status = sub.status.clone().unwrap_or_default();
    status.observed_generation = generation;
    let held = topic.and_then(|topic| topic.subscriptions.iter().find(|held| held.name == name));
    let pending =
        topic.into_iter().flat_map(|topic| &topic.pending).filter(|pending| pending.subscription.name == name);
    let pending: Vec<&str> = pending.map(|pending| pending.store.as_str()).collect();
    let (ready, reason, message) = match held {
        _ if !topic_exists => (false, "TopicNotFound", format!("topic `{}` does not exist", sub.spec.topic_ref.name)),
        None => (false, "CreatingCursors", "its cursors are being made".to_owned()),
        Some(_) if pending.is_empty() => (true, "Serving", "it has a cursor on every segment".to_owned()),
        Some(_) => (true, "Serving", format!("cursors are still to be made on {}", pending.join(", "))),
    };
    let mut set = |type_: &str, holds: bool, reason: &str, message: String| {
        set_condition(&mut status.conditions, type_, ConditionStatus::from(holds), reason, message, generation, now);
    };
    set("Ready", ready, reason, message.clone());
    let under_way = topic_exists && !ready;
    set("Reconciling", under_way, if under_way { reason } else { "Settled" }, message);
    set("Stalled", false, "Progressing", "nothing is in the way".to_owned());
    status.max_useful_consumers = held.and(topic).and_then(|topic| topic.counts.as_ref()).map(|counts| counts.buckets);
    let Some(held) = held else { return status };
    let generation = u64::try_from(held.generation).unwrap_or(0);
    let key = SubscriptionName(name);
    let home_term = topic.and_then(|topic| topic.home.as_ref()).and_then(|home| u64::try_from(home.term).ok());
    let group =
        reports.groups.get(&key).filter(|group| group.generation.0 == generation && Some(group.home_term) == home_term);
    if let Some(group) = group {
        let shown = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        status.sessions = Some(shown(group.sessions));
        status.idle_sessions = Some(shown(group.idle));
        let owners = group.owners.iter().filter_map(|(segment, sessions)| {
            Some(OwnersStatus { segment: i64::try_from(segment.0).ok()?, sessions: shown(*sessions) })
        });
        status.owners = owners.collect();
    }
    let cursors = reports.segments.values().filter_map(|segment| segment.cursors.get(&key));
    let backlogs: Vec<u64> =
        cursors.filter(|cursor| cursor.generation.0 == generation).map(|cursor| cursor.backlog).collect();
    if !backlogs.is_empty() {
        status.backlog = Some(coarse(backlogs.iter().fold(0, |sum, backlog| sum.saturating_add(*backlog))));
    }
    status
}

/// Two digits and a unit: 1234567 is `1.2M`.
fn coarse(n: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| n >= *unit) else {
        return if n < 100 { n.to_string() } else { format!("{}", n / 10 * 10) };
    };
    let (whole, tenth) = (n / unit, n % unit / (unit / 10));
    match whole {
        0..10 => format!("{whole}.{tenth}{name}"),
        10..100 => format!("{whole}{name}"),
        _ => format!("{}{name}", whole / 10 * 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_told_in_two_digits() {
        let rows = [
            (0, "0"),
            (99, "99"),
            (101, "100"),
            (999, "990"),
            (1_000, "1.0k"),
            (1_999, "1.9k"),
            (12_999, "12k"),
            (123_456, "120k"),
            (1_234_567, "1.2M"),
            (u64::MAX, "18446740T"),
        ];
        for (n, expected) in rows {
            assert_eq!(coarse(n), expected);
        }
    }

    fn sub(yaml: &str) -> Subscription {
        let yaml = format!("{{apiVersion: braid.stream/v1alpha1, kind: Subscription, {yaml}}}");
        serde_yaml::from_str(&yaml).unwrap()
    }

    fn topic(yaml: &str) -> ScalableTopicStatus {
        serde_yaml::from_str(yaml).unwrap()
    }

    const HELD: &str = "{subscriptions: [{name: s, type: Ordered, generation: 2, initialPosition: Earliest, sinceTime: '2026-12-01T00:00:00.000000Z'}]}";

    #[test]
    fn a_subscription_is_ready_when_its_topic_holds_it() {
        let check = |exists: bool, status: Option<&str>, expected: (&str, &str)| {
            let status = status.map(topic);
            let sub = sub("metadata: {name: s}, spec: {topicRef: {name: t}}");
            let found = compose(&sub, exists, status.as_ref(), &TopicSeen::default(), Micros(1));
            let ready = found.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), expected);
        };
        check(false, None, ("False", "TopicNotFound"));
        check(true, None, ("False", "CreatingCursors"));
        check(true, Some("{}"), ("False", "CreatingCursors"));
        check(true, Some(HELD), ("True", "Serving"));
    }

    #[test]
    fn the_finalizer_stays_until_the_cursors_are_gone() {
        let gone = "deletionTimestamp: '2026-12-01T00:00:00Z'";
        let ours = "finalizers: [braid.stream/delete-data]";
        let check = |metadata: &str, policy: &str, status: Option<&str>, topic_gone: bool, expected: Option<bool>| {
            let yaml =
                format!("metadata: {{name: s, {metadata}}}, spec: {{topicRef: {{name: t}}, deletionPolicy: {policy}}}");
            let status = status.map(topic);
            assert_eq!(finalizer(&sub(&yaml), status.as_ref(), topic_gone), expected, "{yaml}");
        };
        check("", "Retain", Some(HELD), false, None);
        check("", "Delete", Some(HELD), false, Some(true));
        check(ours, "Delete", Some(HELD), false, None);
        check(ours, "Retain", Some(HELD), false, Some(false));
        check(&format!("{ours}, {gone}"), "Delete", Some(HELD), false, None);
        check(&format!("{ours}, {gone}"), "Delete", Some("{}"), false, Some(false));
        check(&format!("{ours}, {gone}"), "Delete", Some(HELD), true, Some(false));
        check(&format!("{ours}, {gone}"), "Retain", Some(HELD), false, Some(false));
        let making = "{operation: {op: 2, kind: Subscribe, plannedTime: '2026-12-01T00:00:00.000000Z', epoch: 1, subscription: {name: s, type: Ordered, generation: 2, initialPosition: Earliest, sinceTime: '2026-12-01T00:00:00.000000Z'}}}";
        check(&format!("{ours}, {gone}"), "Delete", Some(making), false, None);
    }
}
