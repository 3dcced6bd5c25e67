//! The policy in force for a topic: operator, namespace, topic, field by field.

use braid_crds::{AutoscalePolicy, ScalableTopicSpec};
use braid_model::Buckets;
use braid_model::scale::{Policy, PolicyLayer};

/// What the layers give together. It may contradict itself: `Policy::validate` says.
pub(crate) fn effective(ceiling: Buckets, namespace: Option<&AutoscalePolicy>, topic: &ScalableTopicSpec) -> Policy {
    let operator = Policy { ceiling: ceiling.count(), ..Policy::default() };
    let layers = [namespace.map(|policy| &policy.spec), topic.autoscale.as_ref()];
    let layers: Vec<PolicyLayer> = layers.into_iter().flatten().map(Into::into).collect();
    operator.resolve(&layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_comes_from_the_most_specific_layer_that_sets_it() {
        let namespace =
            "{metadata: {name: default}, spec: {maxSegments: 8, minSegments: 2, split: {messagesInPerSecond: 5000}}}";
        let namespace: AutoscalePolicy = serde_yaml::from_str(&format!(
            "{{apiVersion: braid.stream/v1alpha1, kind: AutoscalePolicy, {}",
            &namespace[1..]
        ))
        .unwrap();
        let topic: ScalableTopicSpec =
            serde_yaml::from_str("{autoscale: {maxSegments: 4, merge: {messagesInPerSecond: 20}}}").unwrap();
        let found = effective(Buckets::new(16).unwrap(), Some(&namespace), &topic);
        assert_eq!((found.max_segments, found.min_segments, found.ceiling), (4, 2, 16));
        assert_eq!((found.split.0[0], found.merge.0[0], found.split.0[1]), (5_000, 20, 50_000_000));
        assert_eq!((found.split_floor, found.validate()), (1_000, Ok(())));
        let alone = effective(Buckets::new(1_024).unwrap(), None, &ScalableTopicSpec::default());
        assert_eq!(alone, Policy::default());
    }
}
