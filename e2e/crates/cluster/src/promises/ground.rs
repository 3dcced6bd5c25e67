//! Promise 0: what all others stand on: volumes, names, admission, and machines that crash.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::cluster::{Cluster, condition};
use crate::wait::{Answer, until};

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

pub(super) fn proof(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("ground")?;
    cluster.kubectl(&["label", "namespace", &space, "pod-security.kubernetes.io/enforce=restricted"])?;
    let refused = cluster
        .kubectl(&["run", "root", "-n", &space, "--image=localhost/busybox:1"])
        .err()
        .context("a root pod was let in")?;
    ensure!(refused.to_string().contains("violates PodSecurity \"restricted"), "{refused}");

    cluster.apply(&space, STORE)?;
    let three_ready = || {
        let set = cluster.json(&["statefulset", "store", "-n", &space])?;
        let ready = set["status"]["readyReplicas"].as_u64().unwrap_or_default();
        Ok(Answer::when(ready == 3, || format!("{ready} ready")))
    };
    until("three stores", LIMIT, three_ready)?;
    for (from, to) in [("store-0", "store-1"), ("store-1", "store-2"), ("store-2", "store-0")] {
        let page = cluster.kubectl(&[
            "exec",
            from,
            "-n",
            &space,
            "--",
            "wget",
            "-qO-",
            &format!("http://{to}.stores:8080/"),
        ])?;
        ensure!(page == format!("{to}\n"), "{from} asked {to} and got {page:?}");
    }

    let pods = cluster.json(&["pods", "-n", &space, "--field-selector", "spec.nodeName=node2"])?;
    let pod = pods["items"][0]["metadata"]["name"].as_str().context("a store on node2")?.to_owned();
    let node_is = |wanted: &'static str| {
        until(&format!("node2 to be Ready {wanted}"), LIMIT, || {
            let status =
                condition(&cluster.json(&["node", "node2"])?, "Ready").map(|c| c["status"].clone()).unwrap_or_default();
            Ok(Answer::when(status == wanted, || status.to_string()))
        })
    };
    cluster.machine("node-kill", 2)?;
    node_is("Unknown")?;
    cluster.machine("node-boot", 2)?;
    node_is("True")?;
    until("its store to start again, on the same volume", LIMIT, || {
        let starts = cluster.kubectl(&["exec", &pod, "-n", &space, "--", "cat", "/data/starts"])?;
        Ok(Answer::when(starts == "\n\n", || format!("{} starts", starts.len())))
    })?;
    until("three stores again", LIMIT, three_ready)?;
    cluster.remove(&space)
}
