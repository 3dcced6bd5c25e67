//! What all other promises stand on: volumes, names, admission, and machines that crash.

use std::time::Duration;

use braid_cluster::{Cluster, Namespace, until};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

const STORE: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: stores}
spec: {clusterIP: None, selector: {app: store}, ports: [{port: 8080}], publishNotReadyAddresses: true}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: stores
  replicas: 3
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      terminationGracePeriodSeconds: 1
      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: store}}}]}}
      securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: store
        image: localhost/busybox:1
        imagePullPolicy: IfNotPresent
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
        command: [sh, -c, "hostname > /data/index.html; echo >> /data/starts; exec httpd -f -p 8080 -h /data"]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

fn ready_pods(space: &Namespace<'_>) -> anyhow::Result<usize> {
    let ready = "jsonpath={.status.readyReplicas}";
    Ok(space.kubectl(&["get", "statefulset", "store", "-o", ready])?.parse().unwrap_or_default())
}

/// `True`, `False` or `Unknown`: the `Ready` condition of a node.
fn node_ready(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
    let node = cluster.get(&["node", name])?;
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.filter(|c| c["type"] == "Ready").find_map(|c| c["status"].as_str());
    Ok(ready.unwrap_or("Unknown").to_owned())
}

#[test]
fn promise_00_a_machine_crashes_and_comes_back_with_its_volumes() {
    let cluster = Cluster::from_env().unwrap();
    let Some(machine) = cluster.machine(2) else { return };
    let space = cluster.namespace("ground").unwrap();
    let label = "pod-security.kubernetes.io/enforce=restricted";
    cluster.kubectl(&["label", "namespace", &space.name, label], "").unwrap();
    let refused = space.kubectl(&["run", "root", "--image=localhost/busybox:1"]).unwrap_err().to_string();
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");

    space.apply(STORE).unwrap();
    until("three stores are ready", LIMIT, || Ok((ready_pods(&space)? == 3).then_some(()))).unwrap();
    for (from, to) in [("store-0", "store-1"), ("store-1", "store-2"), ("store-2", "store-0")] {
        let page = space.kubectl(&["exec", from, "--", "wget", "-qO-", &format!("http://{to}.stores:8080/")]).unwrap();
        assert_eq!(page, format!("{to}\n"));
    }

    let on_it = format!("spec.nodeName={}", machine.name());
    let pods = cluster.get(&["pods", "-n", &space.name, "--field-selector", &on_it]).unwrap();
    let pod = pods["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    machine.kill().unwrap();
    until("the machine is missed", LIMIT, || Ok((node_ready(&cluster, &machine.name())? == "Unknown").then_some(())))
        .unwrap();
    machine.boot().unwrap();
    until("the machine is back", LIMIT, || Ok((node_ready(&cluster, &machine.name())? == "True").then_some(())))
        .unwrap();
    until("its store started a second time, on the same volume", LIMIT, || {
        Ok((space.kubectl(&["exec", &pod, "--", "cat", "/data/starts"])? == "\n\n").then_some(()))
    })
    .unwrap();
    until("three stores are ready again", LIMIT, || Ok((ready_pods(&space)? == 3).then_some(()))).unwrap();
}

#[test]
fn promise_00_a_node_at_rest_changes_nothing() {
    let cluster = Cluster::from_env().unwrap();
    let versions = || -> Vec<Value> {
        let nodes = cluster.get(&["nodes"]).unwrap();
        nodes["items"].as_array().unwrap().iter().map(|n| n["metadata"]["resourceVersion"].clone()).collect()
    };
    until("the nodes come to rest", LIMIT, || {
        let before = versions();
        std::thread::sleep(Duration::from_secs(5));
        Ok((versions() == before).then_some(()))
    })
    .unwrap();
}
