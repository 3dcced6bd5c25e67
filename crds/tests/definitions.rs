//! What must be true of every schema, and that the committed YAML is what the types say.

use serde_json::Value;

use braid_crds::schema::definitions;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

#[test]
fn the_committed_yaml_is_what_the_types_say() {
    for (file, definition) in definitions() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let committed: Value = serde_yaml::from_str(&text).unwrap();
        serde_json::from_value::<CustomResourceDefinition>(committed.clone()).unwrap();
        assert!(committed == definition, "crds/{file} differs: cargo run -p braid-crds --example crdgen");
    }
}

/// Calls `check` with the path of every property, item and its schema.
fn every_node(path: &str, schema: &Value, check: &mut impl FnMut(&str, &Value)) {
    check(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        every_node(&format!("{path}.{name}"), property, check);
    }
    if schema.get("items").is_some() {
        every_node(&format!("{path}[]"), &schema["items"], check);
    }
}

fn every_schema(mut check: impl FnMut(&str, &Value)) {
    for (file, definition) in definitions() {
        let root = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        every_node(file, root, &mut check);
    }
}

#[test]
fn nothing_is_nullable_unsigned_or_a_float() {
    every_schema(|path, schema| {
        assert!(schema.get("nullable").is_none(), "{path} is nullable");
        assert_ne!(schema["type"], "number", "{path} is a float");
        let format = schema["format"].as_str().unwrap_or_default();
        assert!(!format.starts_with("uint"), "{path} has format {format}");
        assert!(
            !schema["default"].is_array() && schema.get("default") != Some(&Value::Null),
            "{path} has an empty default"
        );
        assert!(schema.get("additionalProperties").is_none(), "{path} is a map");
    });
}

#[test]
fn every_number_string_and_list_is_bounded() {
    every_schema(|path, schema| {
        let has = |field: &str| schema.get(field).is_some();
        match schema["type"].as_str() {
            Some("integer") => {
                assert!(schema["minimum"].is_i64() && schema["maximum"].is_i64(), "{path} is unbounded: {schema}")
            }
            Some("string") => {
                let bounded = has("enum") || has("maxLength") || schema["format"] == "date-time";
                assert!(bounded, "{path} is unbounded: {schema}");
            }
            Some("array") => assert!(has("maxItems") && has("x-kubernetes-list-type"), "{path} is a loose list"),
            Some("object") => {}
            other => panic!("{path} has type {other:?}: {schema}"),
        }
    });
}

#[test]
fn every_property_is_described() {
    every_schema(|path, schema| {
        let described = schema["description"].as_str().is_some_and(|text| !text.is_empty());
        assert!(described || path.ends_with(".metadata") || path.ends_with("[]"), "{path} has no description");
    });
}

#[test]
fn defaulted_fields_are_not_required() {
    every_schema(|path, schema| {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(schema["properties"][name].get("default").is_none(), "{path}.{name} is required and has a default");
        }
    });
}

#[test]
fn a_resource_that_nobody_looked_at_is_unknown_and_pending() {
    for (file, type_) in [("scalabletopics", "Ready"), ("subscriptions", "Ready"), ("layoutchanges", "Complete")] {
        let (_, definition) = definitions().into_iter().find(|(name, _)| name.starts_with(file)).unwrap();
        let status = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
        let expected = serde_json::json!({"conditions": [{
            "type": type_, "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }]});
        assert_eq!(status["default"], expected);
    }
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/scalabletopics.yaml")).unwrap();
    assert!(
        text.contains("lastTransitionTime: '1970-01-01T00:00:00Z'")
            || text.contains("lastTransitionTime: \"1970-01-01T00:00:00Z\"")
    );
}

#[test]
fn names_and_columns_are_as_designed() {
    let rows = [
        ("scalabletopics", "stopic", "Ready Reason Segments Buckets Scaling Age DataPlane* Epoch* Message*"),
        ("subscriptions", "ssub", "Ready Topic Type Consumers Max-Useful Backlog Age"),
        ("layoutchanges", "lchange", "Topic Change Complete Reason Age"),
        ("autoscalepolicies", "", "Mode Min Max Age"),
    ];
    for (plural, short, columns) in rows {
        let (_, definition) = definitions().into_iter().find(|(name, _)| name.starts_with(plural)).unwrap();
        let names = &definition["spec"]["names"];
        assert_eq!((&names["plural"], &names["categories"][0]), (&plural.into(), &"braid".into()));
        assert_eq!(names["shortNames"][0].as_str().unwrap_or_default(), short);
        assert_eq!(
            (&definition["spec"]["group"], &definition["spec"]["scope"]),
            (&"braid.stream".into(), &"Namespaced".into())
        );
        let version = &definition["spec"]["versions"][0];
        assert_eq!(version["name"], "v1alpha1");
        let wide = |column: &Value| if column["priority"] == 1 { "*" } else { "" };
        let found: Vec<String> = version["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| format!("{}{}", column["name"].as_str().unwrap(), wide(column)))
            .collect();
        assert_eq!(found.join(" "), columns);
    }
}
