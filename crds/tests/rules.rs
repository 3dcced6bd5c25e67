//! The rules that the API server keeps, offline: each row is a spec that is taken, or refused at a path with a message.

use braid_crds::{AutoscalePolicy, LayoutChange, ScalableTopic, Subscription};
use kube::core::cel::ValidationErrors;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<T: DeserializeOwned>(kind: &str, name: &str, spec: &Value) -> T {
    let object = json!({"apiVersion": "braid.stream/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// `expected`: every refusal as `path: message`.
fn compare(what: &str, found: Result<(), ValidationErrors>, expected: &[&str]) {
    let found: Vec<String> = found
        .err()
        .map(ValidationErrors::into_vec)
        .unwrap_or_default()
        .into_iter()
        .map(|error| {
            assert_eq!(error.reason.as_deref(), Some("FieldValueInvalid"), "{what}");
            format!("{}: {}", error.field_path, error.message)
        })
        .collect();
    assert_eq!(found, expected, "{what}");
}

#[test]
fn a_topic_is_refused_at_the_path_of_the_bad_field() {
    let check = |spec: Value, expected: &[&str]| {
        compare(&spec.to_string(), object::<ScalableTopic>("ScalableTopic", "t", &spec).validate_cel(), expected);
    };
    check(json!({}), &[]);
    check(json!({"initialSegments": 4, "entryBucketBudget": 8, "deletionPolicy": "Delete"}), &[]);
    check(json!({"dataPlaneRef": {}}), &[]);
    check(json!({"autoscale": {}}), &[]);
    check(json!({"autoscale": {"mode": "Off"}}), &[]);
    check(json!({"autoscale": {"minSegments": 4}}), &[]);
    check(json!({"autoscale": {"maxSegments": 4}}), &[]);
    check(json!({"autoscale": {"minSegments": 4, "maxSegments": 4}}), &[]);
    let min = "spec.autoscale.minSegments: must be less than or equal to `maxSegments`";
    check(json!({"autoscale": {"minSegments": 5, "maxSegments": 4}}), &[min]);
    for factor in [2, 4, 8, 16, 32, 64] {
        check(json!({"autoscale": {"maxSplitFactor": factor}}), &[]);
    }
    for factor in [3, 6, 12, 63] {
        check(
            json!({"autoscale": {"maxSplitFactor": factor}}),
            &["spec.autoscale.maxSplitFactor: must be a power of two"],
        );
    }
    check(json!({"autoscale": {"split": {}, "merge": {}}}), &[]);
    check(json!({"autoscale": {"split": {"bytesInPerSecond": 1}, "merge": {"messagesInPerSecond": 9}}}), &[]);
    check(json!({"autoscale": {"split": {"bytesInPerSecond": 1}}}), &[]);
    check(json!({"autoscale": {"merge": {"bytesInPerSecond": 1}}}), &[]);
    for metric in ["messagesInPerSecond", "bytesInPerSecond", "messagesOutPerSecond", "bytesOutPerSecond"] {
        let refusal = format!("spec.autoscale.split.{metric}: must be greater than `merge.{metric}`");
        check(json!({"autoscale": {"split": {metric: 11}, "merge": {metric: 10}}}), &[]);
        check(json!({"autoscale": {"split": {metric: 10}, "merge": {metric: 10}}}), &[&refusal]);
        check(json!({"autoscale": {"split": {metric: 9}, "merge": {metric: 10}}}), &[&refusal]);
    }
    check(
        json!({"autoscale": {"minSegments": 2, "maxSegments": 1, "maxSplitFactor": 5}}),
        &[min, "spec.autoscale.maxSplitFactor: must be a power of two"],
    );
}

#[test]
fn what_a_topic_began_with_stays() {
    let check = |old: Value, new: Value, expected: &[&str]| {
        let (old_topic, topic) =
            (object("ScalableTopic", "t", &old), object::<ScalableTopic>("ScalableTopic", "t", &new));
        compare(&format!("{old} -> {new}"), topic.validate_cel_update(&old_topic), expected);
    };
    check(json!({}), json!({}), &[]);
    check(json!({}), json!({"initialSegments": 1, "dataPlaneRef": {"name": "default"}}), &[]);
    check(json!({}), json!({"initialSegments": 2}), &["spec.initialSegments: field is immutable"]);
    check(json!({"initialSegments": 2}), json!({}), &["spec.initialSegments: field is immutable"]);
    check(json!({}), json!({"dataPlaneRef": {"name": "other"}}), &["spec.dataPlaneRef: field is immutable"]);
    check(json!({}), json!({"entryBucketBudget": 9, "deletionPolicy": "Delete", "autoscale": {"mode": "Off"}}), &[]);
    check(json!({"autoscale": {"maxSegments": 4}}), json!({"autoscale": {"maxSegments": 2}}), &[]);
}

#[test]
fn a_policy_is_named_default_and_keeps_the_rules_of_a_topic() {
    let check = |name: &str, spec: Value, expected: &[&str]| {
        compare(&spec.to_string(), object::<AutoscalePolicy>("AutoscalePolicy", name, &spec).validate_cel(), expected);
    };
    check("default", json!({}), &[]);
    check("default", json!({"maxSegments": 16, "minSegments": 2, "maxSplitFactor": 4}), &[]);
    check("other", json!({}), &[": name must be `default`: the policy of a namespace has no other"]);
    check(
        "default",
        json!({"maxSegments": 1, "minSegments": 2}),
        &["spec.minSegments: must be less than or equal to `maxSegments`"],
    );
    check(
        "default",
        json!({"split": {"bytesOutPerSecond": 5}, "merge": {"bytesOutPerSecond": 5}}),
        &["spec.split.bytesOutPerSecond: must be greater than `merge.bytesOutPerSecond`"],
    );
}

#[test]
fn what_a_subscription_reads_stays() {
    let spec = |more: Value| {
        let mut spec = json!({"topicRef": {"name": "orders"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let check = |old: Value, new: Value, expected: &[&str]| {
        let (old, new) = (spec(old), spec(new));
        let (old_sub, sub) = (object("Subscription", "s", &old), object::<Subscription>("Subscription", "s", &new));
        compare(&format!("{old} -> {new}"), sub.validate_cel_update(&old_sub), expected);
    };
    check(json!({}), json!({}), &[]);
    check(json!({}), json!({"type": "Ordered", "initialPosition": "Earliest"}), &[]);
    check(json!({}), json!({"topicRef": {"name": "other"}}), &["spec.topicRef: field is immutable"]);
    check(json!({}), json!({"initialPosition": "Latest"}), &["spec.initialPosition: field is immutable"]);
    check(json!({}), json!({"handoffDeadlineSeconds": 0, "assignment": "Contiguous", "deletionPolicy": "Delete"}), &[]);
}

#[test]
fn a_layout_change_is_exactly_one_and_stays() {
    let spec = |more: &Value| {
        let mut spec = json!({"topicRef": {"name": "orders"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let check = |change: Value, expected: &[&str]| {
        let found = object::<LayoutChange>("LayoutChange", "c", &spec(&change)).validate_cel();
        compare(&change.to_string(), found, expected);
    };
    let one = "spec: exactly one of `split`, `merge` and `rebucket` must be set";
    let split = json!({"segment": 0, "into": 2});
    let merge = json!({"segments": [0, 1]});
    let rebucket = json!({"segments": [0, 1, 2], "buckets": 8});
    check(json!({}), &[one]);
    check(json!({"split": split}), &[]);
    check(json!({"split": {"segment": 3}}), &[]);
    check(json!({"merge": merge}), &[]);
    check(json!({"rebucket": rebucket}), &[]);
    check(json!({"split": split, "merge": merge}), &[one]);
    check(json!({"split": split, "rebucket": rebucket}), &[one]);
    check(json!({"merge": merge, "rebucket": rebucket}), &[one]);
    check(json!({"split": split, "merge": merge, "rebucket": rebucket}), &[one]);

    let update = |old: Value, new: Value, expected: &[&str]| {
        let (old_change, change) =
            (object("LayoutChange", "c", &spec(&old)), object::<LayoutChange>("LayoutChange", "c", &spec(&new)));
        compare(&format!("{old} -> {new}"), change.validate_cel_update(&old_change), expected);
    };
    let stays = "spec: spec is immutable: make another LayoutChange";
    update(json!({"split": split}), json!({"split": split}), &[]);
    update(json!({"split": split}), json!({"split": {"segment": 1, "into": 2}}), &[stays]);
    update(json!({"split": split}), json!({"merge": merge}), &[stays]);
}
