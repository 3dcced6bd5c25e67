//! The resource definitions as they are applied: what the derives say, with what they leave loose made strict.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Map, Value, json};

use crate::{AutoscalePolicy, LayoutChange, ScalableTopic, Subscription};

/// Every kind's definition, by the file name that it is committed under. JSON, since the typed form has no whole bounds.
#[must_use]
pub fn definitions() -> Vec<(&'static str, Value)> {
    let strict = |definition: CustomResourceDefinition, condition: Option<&str>| {
        let mut value = serde_json::to_value(definition).expect("a definition serializes to JSON");
        walk(&mut value, &mut tighten);
        if let Some(type_) = condition {
            set_status_default(&mut value, type_);
        }
        value
    };
    vec![
        ("autoscalepolicies.yaml", strict(AutoscalePolicy::crd(), None)),
        ("layoutchanges.yaml", strict(LayoutChange::crd(), Some("Complete"))),
        ("scalabletopics.yaml", strict(ScalableTopic::crd(), Some("Ready"))),
        ("subscriptions.yaml", strict(Subscription::crd(), Some("Ready"))),
    ]
}

fn walk(value: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            change(fields);
            fields.values_mut().for_each(|field| walk(field, change));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, change)),
        _ => {}
    }
}

/// One node of a schema: no nulls, no unsigned formats, no empty defaults, conditions as strict as the built-in ones.
fn tighten(node: &mut Map<String, Value>) {
    node.remove("nullable");
    if node.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        node.remove("format");
    }
    if node.get("default").is_some_and(|default| *default == json!([]) || default.is_null()) {
        node.remove("default");
    }
    // Whole bounds as whole numbers: the derive writes them as floats.
    for bound in ["minimum", "maximum"] {
        if let Some(float) = node.get(bound).and_then(Value::as_f64)
            && float.fract() == 0.0
        {
            node.insert(bound.into(), json!(float as i64));
        }
    }
    let Some(Value::Object(properties)) = node.get_mut("properties") else { return };
    if properties.contains_key("lastTransitionTime") && properties.contains_key("reason") {
        tighten_condition(properties);
    }
}

fn tighten_condition(properties: &mut Map<String, Value>) {
    let constraints = [
        (
            "type",
            json!({"minLength": 1, "maxLength": 64, "pattern": r"^[A-Z][A-Za-z0-9]*$", "description": "CamelCase name of the condition."}),
        ),
        ("status", json!({"enum": ["True", "False", "Unknown"], "description": "Whether it holds."})),
        (
            "reason",
            json!({"minLength": 1, "maxLength": 64, "pattern": r"^[A-Z][A-Za-z0-9]*$", "description": "Why, in one CamelCase word."}),
        ),
        ("message", json!({"maxLength": 1024, "description": "Why, in a sentence."})),
        (
            "observedGeneration",
            json!({"minimum": 0, "maximum": 9_007_199_254_740_991_i64, "description": "The generation of the spec that it answers."}),
        ),
        ("lastTransitionTime", json!({"description": "When the status last changed."})),
    ];
    for (name, more) in constraints {
        if let (Some(Value::Object(property)), Value::Object(more)) = (properties.get_mut(name), more) {
            property.extend(more);
        }
    }
}

/// A resource that nobody has looked at yet says so: a wait for the condition waits, instead of finding nothing.
fn set_status_default(definition: &mut Value, type_: &str) {
    let status = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    status["default"] = json!({"conditions": [{
        "type": type_,
        "status": "Unknown",
        "reason": "Pending",
        "message": "Waiting for controller",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }]});
}
