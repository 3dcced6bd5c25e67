//! Client pods: producers and consumers that run the `braid` program and print their records.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::cluster::Cluster;
use crate::wait::{Answer, until};

/// A pod whose output goes to a file as it is written.
pub(crate) struct ClientPod<'a> {
    cluster: &'a Cluster,
    namespace: String,
    pub(crate) name: String,
    pub(crate) records: PathBuf,
    follow: Option<Child>,
}

impl<'a> ClientPod<'a> {
    /// Starts `braid ARGS` in a pod and follows its output.
    pub(crate) fn start(cluster: &'a Cluster, namespace: &str, name: &str, args: &[&str]) -> Result<Self> {
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "braid-client"}},
            "spec": {
                "restartPolicy": "Never", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 30,
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{
                    "name": "braid", "image": cluster.image, "imagePullPolicy": "IfNotPresent", "command": ["/braid"], "args": args,
                    "env": [{"name": "BRAID_SERVER", "value": cluster.server()}],
                    "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "tls", "mountPath": "/etc/braid/tls", "readOnly": true}],
                }],
                "volumes": [{"name": "tls", "secret": {"secretName": "braid-client-tls", "defaultMode": 0o440}}],
            },
        });
        cluster.apply(namespace, &pod.to_string())?;
        until(&format!("pod {name} to run"), Duration::from_secs(60), || {
            let phase = phase(cluster, namespace, name)?;
            Ok(Answer::when(phase != "Pending", || phase))
        })?;
        std::fs::create_dir_all(&cluster.out)?;
        let records = cluster.out.join(format!("{namespace}-{name}.jsonl"));
        let follow = cluster
            .kubectl_command(&["logs", "-f", "-n", namespace, name])
            .stdin(Stdio::null())
            .stdout(File::create(&records)?)
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { cluster, namespace: namespace.to_owned(), name: name.to_owned(), records, follow: Some(follow) })
    }

    /// Waits until the program ended with 0 and all of its output is here.
    pub(crate) fn finished(&mut self, limit: Duration) -> Result<()> {
        self.ended(limit, "Succeeded")
    }

    /// Asks the pod to end as `kubectl delete` does (SIGTERM: a clean leave), and waits for it.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.cluster.kubectl(&["delete", "pod", &self.name, "-n", &self.namespace, "--wait=true", "--timeout=60s"])?;
        self.end_of_output(Duration::from_secs(30))
    }

    /// Kills the program with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.cluster.kill_pod(&self.namespace, &self.name, "/braid")?;
        self.ended(Duration::from_secs(30), "Failed")
    }

    fn ended(&mut self, limit: Duration, wanted: &str) -> Result<()> {
        until(&format!("pod {} to end", self.name), limit, || {
            match phase(self.cluster, &self.namespace, &self.name)?.as_str() {
                phase if phase == wanted => Ok(Answer::There(())),
                phase => Ok(Answer::NotYet(phase.to_owned())),
            }
        })?;
        self.end_of_output(Duration::from_secs(30))
    }

    fn end_of_output(&mut self, limit: Duration) -> Result<()> {
        let Some(mut follow) = self.follow.take() else { return Ok(()) };
        until("the end of the pod's output", limit, || match follow.try_wait()? {
            Some(_) => Ok(Answer::There(())),
            None => Ok(Answer::NotYet("still following".to_owned())),
        })
    }
}

impl Drop for ClientPod<'_> {
    fn drop(&mut self) {
        if let Some(mut follow) = self.follow.take() {
            // Already ended is as good as killed.
            let _ = follow.kill();
            let _ = follow.wait();
        }
    }
}

fn phase(cluster: &Cluster, namespace: &str, name: &str) -> Result<String> {
    let pod = cluster.json(&["pod", name, "-n", namespace])?;
    pod["status"]["phase"].as_str().map(str::to_owned).context("phase")
}

/// `braid check` over the records: `Ok` if nothing is lost, duplicated, out of order or with two members at once.
pub(crate) fn check(cluster: &Cluster, records: &[&Path]) -> Result<serde_json::Value> {
    let clean = records.iter().map(|path| without_words(path)).collect::<Result<Vec<_>>>()?;
    let mut args = vec!["check", "-o", "json"];
    args.extend(clean.iter().map(|p| p.to_str().expect("paths here are UTF-8")));
    let (report, good) = cluster.braid(&args)?;
    let report: serde_json::Value =
        serde_json::from_str(&report).with_context(|| format!("braid check printed {report:?}"))?;
    if !good {
        bail!(
            "braid check {}: {report}",
            records.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" ")
        );
    }
    Ok(report)
}

/// The records alone: a pod's log holds what the program said on stderr too, and a last line that a kill cut short.
fn without_words(path: &Path) -> Result<PathBuf> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.split_inclusive('\n').filter(|line| line.starts_with('{') && line.ends_with("}\n"));
    let clean = path.with_extension("records");
    std::fs::write(&clean, lines.collect::<String>())?;
    Ok(clean)
}
