//! A LayoutChange waits for its turn, or fails at once if its topic does not exist; all else of it is the topic's business.

use std::sync::Arc;

use braid_crds::{ConditionStatus, LayoutChange, LayoutChangeSpec, LayoutChangeStatus, ScalableTopic, set_condition};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use kube::runtime::controller::Action;
use tracing::{debug, warn};

use crate::cache::{Guarded, is_decoded};
use crate::clock;
use crate::context::{Context, Error};
use crate::name::Name;
use crate::topic::observe::has_ended;

/// One lap. Safe to cancel at any await and to run twice.
pub(crate) async fn reconcile(change: Arc<Guarded<LayoutChange>>, ctx: Arc<Context>) -> Result<Action, Error> {
    let Some(change) = change.0.as_ref().ok().filter(|_| is_decoded(&change, &ctx.metrics)) else {
        return Ok(Action::await_change());
    };
    if has_ended(change) || change.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let name = Name::of(change);
    let topic = name.sibling(&change.spec.topic_ref.name);
    // One command may have made both, and the watch of topics may be the slower one.
    let topics: Api<ScalableTopic> = Api::namespaced(ctx.client.clone(), &name.namespace);
    let topic_exists = ctx.cache.topic(&topic).is_some() || topics.get_opt(&topic.name).await?.is_some();
    if topic_exists {
        ctx.topics.wake(topic.clone());
    }
    let object = LayoutChange { status: Some(compose(change, topic_exists)), ..change.clone() };
    if object.status != change.status {
        let api: Api<LayoutChange> = Api::namespaced(ctx.client.clone(), &name.namespace);
        match api.replace_status(&name.name, &PostParams::default(), &object).await {
            Ok(_) => {}
            // The watch brings the newer one; it may have ended meanwhile.
            Err(kube::Error::Api(refusal)) if refusal.code == 409 || refusal.code == 404 => {
                debug!(%name, "somebody wrote first")
            }
            Err(error) => return Err(error.into()),
        }
    }
    ctx.memories.succeeded(&change.uid().unwrap_or_default());
    Ok(Action::await_change())
}

/// The status of a change that has not ended: it waits for its turn, or fails because its topic does not exist.
fn compose(change: &LayoutChange, topic_exists: bool) -> LayoutChangeStatus {
    let generation = change.metadata.generation;
    let mut status = change.status.clone().unwrap_or_default();
    status.observed_generation = generation;
    status.change = Some(text(&change.spec));
    let topic = &change.spec.topic_ref.name;
    let (failed, reason, message) = if topic_exists {
        (false, "Waiting", format!("it waits for its turn at topic `{topic}`"))
    } else {
        (true, "TopicNotFound", format!("topic `{topic}` does not exist"))
    };
    for (type_, holds) in [("Complete", false), ("Failed", failed)] {
        let holds = ConditionStatus::from(holds);
        set_condition(&mut status.conditions, type_, holds, reason, message.clone(), generation, clock::now());
    }
    status
}

/// When to look again after a lap that failed.
pub(crate) fn after_failure(change: Arc<Guarded<LayoutChange>>, error: &Error, ctx: Arc<Context>) -> Action {
    let wait = ctx.backoff(&change.uid().unwrap_or_default());
    warn!(
        change = change.name_any(),
        wait_ms = wait.as_millis(),
        error = error as &dyn std::error::Error,
        "lap repeated"
    );
    Action::requeue(wait)
}

/// The change in a few words.
pub(crate) fn text(spec: &LayoutChangeSpec) -> String {
    let few = |ids: &[i64]| {
        let named: Vec<String> = ids.iter().take(8).map(ToString::to_string).collect();
        let more =
            if ids.len() > named.len() { format!(" and {} more", ids.len() - named.len()) } else { String::new() };
        format!("{}{more}", named.join(", "))
    };
    if let Some(split) = &spec.split {
        format!("split {} into {}", split.segment, split.into)
    } else if let Some(merge) = &spec.merge {
        format!("merge {}", few(&merge.segments))
    } else if let Some(rebucket) = &spec.rebucket {
        format!("rebucket {} to {}", few(&rebucket.segments), rebucket.buckets)
    } else {
        "nothing".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_waits_or_fails_for_want_of_its_topic() {
        let yaml = "{apiVersion: braid.stream/v1alpha1, kind: LayoutChange, metadata: {name: c}, spec: {topicRef: {name: t}, split: {segment: 0}}}";
        let change: LayoutChange = serde_yaml::from_str(yaml).unwrap();
        for (topic_exists, expected) in [(true, "Waiting"), (false, "TopicNotFound")] {
            let change = LayoutChange { status: Some(compose(&change, topic_exists)), ..change.clone() };
            let conditions = &change.status.as_ref().unwrap().conditions;
            assert!(conditions.iter().all(|condition| condition.reason == expected));
            assert_eq!((conditions.len(), has_ended(&change)), (2, !topic_exists));
        }
    }

    #[test]
    fn a_change_is_told_in_a_few_words() {
        let rows = [
            ("split: {segment: 3, into: 4}", "split 3 into 4"),
            ("merge: {segments: [4, 5]}", "merge 4, 5"),
            ("rebucket: {segments: [1, 2], buckets: 8}", "rebucket 1, 2 to 8"),
            (
                "rebucket: {segments: [1,2,3,4,5,6,7,8,9,10], buckets: 8}",
                "rebucket 1, 2, 3, 4, 5, 6, 7, 8 and 2 more to 8",
            ),
        ];
        for (yaml, expected) in rows {
            let spec: LayoutChangeSpec = serde_yaml::from_str(&format!("{{topicRef: {{name: t}}, {yaml}}}")).unwrap();
            assert_eq!(text(&spec), expected);
        }
    }
}
