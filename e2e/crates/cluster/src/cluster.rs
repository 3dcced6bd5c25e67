//! The cluster under test: `kubectl`, and the machines where they are ours.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::wait::{Answer, until};

/// What `./e2e/test` passes on by environment.
pub(crate) struct Cluster {
    /// The namespace that the operator and the nodes run in.
    pub(crate) system: String,
    /// `e2e/cluster/run` and its folder, if the machines are ours.
    machines: Option<(PathBuf, PathBuf)>,
    /// Folder of `braid` and `braid-operator`.
    pub(crate) bin: PathBuf,
    /// Reference of the image that the pods run.
    pub(crate) image: String,
    /// Where records and logs go.
    pub(crate) out: PathBuf,
    spaces: AtomicU32,
}

impl Cluster {
    /// Reads what `./e2e/test` sets; KUBECONFIG must name the cluster, on purpose.
    pub(crate) fn from_env() -> Result<Self> {
        let var = |name: &str| std::env::var(name).with_context(|| format!("`{name}` is unset: start with ./e2e/test"));
        var("KUBECONFIG")?;
        let ours = var("BRAID_KIND")? == "native";
        let machines = if ours { Some((var("BRAID_RUN")?.into(), var("BRAID_DIR")?.into())) } else { None };
        Ok(Self {
            system: var("BRAID_NAMESPACE")?,
            machines,
            bin: var("BRAID_PROGRAMS")?.into(),
            image: var("BRAID_IMAGE")?,
            out: var("BRAID_LOGS")?.into(),
            spaces: AtomicU32::new(1),
        })
    }

    /// What pods pass as `--server`.
    pub(crate) fn server(&self) -> String {
        format!("braid-nodes.{}:4433", self.system)
    }

    /// `e2e/cluster/run VERB DIR N`: a machine loses its power, or starts again.
    pub(crate) fn machine(&self, verb: &str, number: u8) -> Result<()> {
        let (run, dir) = self.machines.as_ref().context("the machines of this cluster are not ours")?;
        let status = Command::new(run).arg(verb).arg(dir).arg(number.to_string()).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "{verb} {number}: {status}");
        Ok(())
    }

    /// Whether processes of pods can be killed like a machine would.
    pub(crate) fn has_nodes(&self) -> bool {
        self.machines.is_some()
    }

    /// A `kubectl` command, ready to run.
    pub(crate) fn kubectl_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(args);
        command
    }

    /// What `kubectl` printed; an error with its words if it fails.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = self.kubectl_command(args).stdin(Stdio::null()).output().context("kubectl")?;
        ensure!(
            output.status.success(),
            "kubectl {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// `kubectl get … -o json`.
    pub(crate) fn json(&self, args: &[&str]) -> Result<Value> {
        let mut all = vec!["get"];
        all.extend_from_slice(args);
        all.extend_from_slice(&["-o", "json"]);
        Ok(serde_json::from_str(&self.kubectl(&all)?)?)
    }

    /// `kubectl apply -f -`; the error is what the API server said.
    pub(crate) fn apply(&self, namespace: &str, yaml: &str) -> Result<()> {
        self.feed(&["apply", "-n", namespace, "-f", "-"], yaml)
    }

    fn feed(&self, args: &[&str], input: &str) -> Result<()> {
        let mut child =
            self.kubectl_command(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().expect("piped").write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    /// A namespace of its own for one promise, with the client's certificate in it.
    pub(crate) fn namespace(&self, stem: &str) -> Result<String> {
        let name = format!("e2e-{stem}-{}-{}", std::process::id(), self.spaces.fetch_add(1, Ordering::Relaxed));
        self.kubectl(&["create", "namespace", &name])?;
        let secret = until("secret braid-client-tls", Duration::from_secs(60), || {
            Ok(Answer::There(self.json(&["secret", "braid-client-tls", "-n", &self.system])?))
        })?;
        let copy = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "braid-client-tls"},
            "type": secret["type"], "data": secret["data"],
        });
        self.apply(&name, &copy.to_string())?;
        Ok(name)
    }

    /// Deletes a namespace that [`Cluster::namespace`] made, without waiting for it.
    pub(crate) fn remove(&self, namespace: &str) -> Result<()> {
        self.kubectl(&["delete", "namespace", namespace, "--wait=false"]).map(drop)
    }

    /// Kills every process of a pod with SIGKILL, as the kernel would; the pods of these nodes are processes of this machine.
    pub(crate) fn kill_pod(&self, namespace: &str, pod: &str, program: &str) -> Result<()> {
        ensure!(self.has_nodes(), "the machines of this cluster are not ours");
        let uid = self.json(&["pod", pod, "-n", namespace])?["metadata"]["uid"].as_str().context("uid")?.to_owned();
        let marks = [uid.clone(), uid.replace('-', "_")];
        let mut killed = 0;
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            if marks.iter().any(|m| read("cgroup").contains(m)) && read("cmdline").starts_with(program) {
                ensure!(Command::new("kill").args(["-9", &pid.to_string()]).status()?.success(), "kill -9 {pid}");
                killed += 1;
            }
        }
        ensure!(killed == 1, "pod `{pod}` runs {killed} processes of `{program}`, expected 1");
        Ok(())
    }

    /// Scales a workload of `braid-system` and waits until that many of its pods are ready and no other is left.
    pub(crate) fn scale(&self, workload: &str, replicas: u32) -> Result<()> {
        self.kubectl(&["scale", workload, "-n", &self.system, &format!("--replicas={replicas}")])?;
        let selector = format!("app.kubernetes.io/name={}", workload.rsplit('/').next().unwrap_or(workload));
        until(&format!("{replicas} ready pods of {workload}"), Duration::from_secs(90), || {
            let pods = self.json(&["pods", "-n", &self.system, "-l", &selector])?;
            let pods = pods["items"].as_array().cloned().unwrap_or_default();
            let ready = pods.iter().filter(|p| condition(p, "Ready").is_some_and(|c| c["status"] == "True")).count();
            Ok(Answer::when(ready == replicas as usize && pods.len() == replicas as usize, || {
                format!("{ready} ready of {}", pods.len())
            }))
        })
    }

    /// Waits as a user does.
    pub(crate) fn wait_condition(
        &self,
        namespace: &str,
        object: &str,
        condition: &str,
        limit_seconds: u32,
    ) -> Result<()> {
        let (what, limit) = (format!("--for=condition={condition}"), format!("--timeout={limit_seconds}s"));
        self.kubectl(&["wait", "-n", namespace, object, &what, &limit]).map(drop)
    }

    /// Runs an offline `braid` command and returns its output and whether it exited with 0.
    pub(crate) fn braid(&self, args: &[&str]) -> Result<(String, bool)> {
        let output = Command::new(self.bin.join("braid")).args(args).output().context("braid")?;
        if output.status.code().is_none() {
            bail!("braid {}: {}", args.join(" "), output.status);
        }
        Ok((String::from_utf8(output.stdout)?, output.status.success()))
    }
}

/// One condition of an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}
