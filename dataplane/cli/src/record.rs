//! Record files: what was acked, delivered and done, one JSON object per line.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// What happened to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Happened {
    /// A producer was told that it is durable.
    Acked,
    /// It was handed to a member.
    Delivered,
    /// The member finished its work on it; its ack follows.
    Done,
}

/// One line of a record file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record<'a> {
    /// Microseconds since 1970, on the clock of the writing machine; rising within a file.
    pub(crate) t: u64,
    pub(crate) event: Happened,
    /// The consumer's or producer's name.
    #[serde(borrow)]
    pub(crate) member: Cow<'a, str>,
    pub(crate) segment: u64,
    /// `null` if the node no longer knew where the message lies.
    pub(crate) offset: Option<u64>,
    #[serde(borrow)]
    pub(crate) key: Option<Cow<'a, str>>,
    /// The message's number within its key, if it carries one.
    pub(crate) seq: Option<u64>,
    /// May have been delivered before.
    #[serde(default)]
    pub(crate) redelivered: bool,
}

/// Where records go. Each is handed to the system before the call returns, so a killed process leaves none behind.
pub(crate) struct Recorder {
    out: Mutex<Box<dyn Write + Send>>,
}

impl Recorder {
    /// To a new file, or to stdout for `-`.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let out: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            Box::new(File::create(path).with_context(|| format!("record file `{}`", path.display()))?)
        };
        Ok(Self { out: Mutex::new(out) })
    }

    /// Writes one line, stamped now.
    pub(crate) fn write(&self, mut record: Record<'_>) -> anyhow::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // Stamped under the lock, so that times rise within the file.
        record.t = braid_client::now().0;
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        out.write_all(&line).and_then(|()| out.flush()).context("a record")
    }
}

/// The header that carries a message's number within its key when the value has no room for it.
pub(crate) const SEQUENCE_HEADER: &str = "seq";

/// The message's number within its key: from its header, else the digits its value begins with.
pub(crate) fn sequence(message: &braid_client::Message) -> Option<u64> {
    let header = message.headers.iter().find(|(name, _)| name == SEQUENCE_HEADER);
    let bytes = header.map_or(&message.value, |(_, value)| value);
    let digits = bytes.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()
}
