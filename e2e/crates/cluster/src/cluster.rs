//! The cluster of this run, reached through `kubectl` and `e2e/cluster/run`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// A Kubernetes cluster whose kubeconfig is in the environment.
#[derive(Debug, Clone)]
pub struct Cluster {
    own: Option<Own>,
}

#[derive(Debug, Clone)]
struct Own {
    run: String,
    dir: String,
    nodes: u8,
}

/// A node that can lose its power or its network.
#[derive(Debug, Clone)]
pub struct Machine {
    own: Own,
    number: u8,
}

/// A namespace of one test, deleted when dropped.
#[derive(Debug)]
pub struct Namespace<'a> {
    cluster: &'a Cluster,
    /// Its name, unique to this test run.
    pub name: String,
}

impl Cluster {
    /// The cluster named by `BRAID_RUN`, `BRAID_DIR` and `BRAID_NODES`, or, with `BRAID_KIND=given`, the one in `KUBECONFIG`.
    pub fn from_env() -> anyhow::Result<Self> {
        let var = |name: &str| std::env::var(name).with_context(|| format!("`{name}` is unset: start with ./e2e/test"));
        var("KUBECONFIG")?;
        if var("BRAID_KIND")? == "given" {
            return Ok(Self { own: None });
        }
        let nodes = var("BRAID_NODES")?.parse().context("`BRAID_NODES`")?;
        Ok(Self { own: Some(Own { run: var("BRAID_RUN")?, dir: var("BRAID_DIR")?, nodes }) })
    }

    /// Machine `number`, from 1; `None`, and a line "not run", on a cluster whose machines are not ours.
    pub fn machine(&self, number: u8) -> Option<Machine> {
        let Some(own) = &self.own else {
            println!("not run: it needs access to nodes");
            return None;
        };
        assert!((1..=own.nodes).contains(&number), "machine {number} of {}", own.nodes);
        Some(Machine { own: own.clone(), number })
    }

    /// What `kubectl` prints, with these words and this standard input; its own message if it fails.
    pub fn kubectl(&self, words: &[&str], input: &str) -> anyhow::Result<String> {
        finish(Command::new("kubectl").args(words), input)
    }

    /// One object, or a list, as JSON: `get(&["pods", "-n", "x"])`.
    pub fn get(&self, words: &[&str]) -> anyhow::Result<Value> {
        let text = self.kubectl(&[&["get", "-o", "json"], words].concat(), "")?;
        serde_json::from_str(&text).context("read JSON of `kubectl get`")
    }

    /// A new namespace, its name made of `prefix` and chance.
    pub fn namespace(&self, prefix: &str) -> anyhow::Result<Namespace<'_>> {
        let name = format!("{prefix}-{:06x}", rand::random::<u32>() & 0xff_ffff);
        self.kubectl(&["create", "namespace", &name], "")?;
        Ok(Namespace { cluster: self, name })
    }
}

impl Namespace<'_> {
    /// `kubectl -n NAME` with these words.
    pub fn kubectl(&self, words: &[&str]) -> anyhow::Result<String> {
        self.cluster.kubectl(&[&["-n", &self.name], words].concat(), "")
    }

    /// Creates or changes what `yaml` says, in this namespace.
    pub fn apply(&self, yaml: &str) -> anyhow::Result<String> {
        self.cluster.kubectl(&["-n", &self.name, "apply", "-f", "-"], yaml)
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        // A name is never used again, so a failure costs space and no more
        let _ = self.cluster.kubectl(&["delete", "namespace", &self.name, "--wait=false"], "");
    }
}

impl Machine {
    /// Its name in Kubernetes.
    pub fn name(&self) -> String {
        format!("node{}", self.number)
    }

    /// Kubelet, container runtime and every pod end at once.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.ask("node-kill")
    }

    /// The machine starts again, with the disk it had.
    pub fn boot(&self) -> anyhow::Result<()> {
        self.ask("node-boot")
    }

    /// Off the network; everything on it goes on.
    pub fn cut(&self) -> anyhow::Result<()> {
        self.ask("node-cut")
    }

    /// Back on the network.
    pub fn heal(&self) -> anyhow::Result<()> {
        self.ask("node-heal")
    }

    fn ask(&self, verb: &str) -> anyhow::Result<()> {
        let number = self.number.to_string();
        finish(Command::new(&self.own.run).args([verb, &self.own.dir, &number]), "").map(drop)
    }
}

fn finish(command: &mut Command, input: &str) -> anyhow::Result<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
    // Small enough for the pipe, and closed at the end of this line; a program that reads nothing says why by its status
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let answer = child.wait_with_output()?;
    ensure!(answer.status.success(), "{command:?}: {}", String::from_utf8_lossy(&answer.stderr).trim());
    Ok(String::from_utf8(answer.stdout)?)
}
