//! Operators as plain processes, and a hand on the control protocol.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cluster::Cluster;
use crate::wait::{Answer, until};

/// A `braid-operator` process that watches one namespace, with a Lease of its own in it; killed when dropped.
pub(crate) struct Operator {
    child: Child,
}

impl Operator {
    /// Starts it; `crash_at` goes to BRAID_CRASH_AT.
    pub(crate) fn start(cluster: &Cluster, namespace: &str, name: &str, crash_at: Option<&str>) -> Result<Self> {
        std::fs::create_dir_all(&cluster.out)?;
        let log = cluster.out.join(format!("{namespace}-{name}.log"));
        let mut command = Command::new(cluster.bin.join("braid-operator"));
        command
            .args(["--namespace", namespace, "--data-plane-namespace", &cluster.system, "--lease-namespace", namespace])
            .args(["--lease-seconds", "3", "--identity", name, "--http", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(Stdio::from(File::options().append(true).open(&log)?));
        match crash_at {
            Some(at) => command.env("BRAID_CRASH_AT", at),
            None => command.env_remove("BRAID_CRASH_AT"),
        };
        Ok(Self { child: command.spawn().context("braid-operator")? })
    }

    /// Waits until the process ended by itself; `None` if it is still there after `limit`.
    pub(crate) fn crashed(&mut self, limit: Duration) -> Result<Option<std::process::ExitStatus>> {
        let ended = until("the operator's end", limit, || match self.child.try_wait()? {
            Some(status) => Ok(Answer::There(status)),
            None => Ok(Answer::NotYet("running".to_owned())),
        });
        Ok(ended.ok())
    }

    /// Whether it ended, now.
    pub(crate) fn ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // Already ended is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of a Secret's field.
pub(crate) fn secret(cluster: &Cluster, name: &str, field: &str) -> Result<String> {
    let path = format!("jsonpath={{.data.{}}}", field.replace('.', "\\."));
    let text = cluster.kubectl(&["get", "secret", name, "-n", &cluster.system, "-o", &path])?;
    decode_base64(text.trim()).with_context(|| format!("secret `{name}`, field `{field}`"))
}

fn decode_base64(text: &str) -> Option<String> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits = 0u32;
    let mut held = 0;
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for byte in text.bytes().filter(|b| *b != b'=') {
        bits = bits << 6 | ALPHABET.iter().position(|a| *a == byte)? as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    String::from_utf8(out).ok()
}
