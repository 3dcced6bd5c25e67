//! The thread that waits for the disk.

use std::thread;
use std::time::Duration;

use braid_log::disk::CommitError;
use braid_log::{Committer, Lsn};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What the disk has so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Durable {
    pub(crate) lsn: Lsn,
    pub(crate) failure: Option<String>,
}

/// The first and the longest wait for space on a full disk. It has no limit in number: only space helps, and entries are refused meanwhile.
const FULL_WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Commits whatever waits, in groups, until the store is dropped and all is durable, or the disk fails.
///
/// `given_up`: on a full disk, nobody waits for space any more.
pub(crate) fn run(mut committer: Committer, durable: &watch::Sender<Durable>, given_up: &CancellationToken) {
    let mut wait = FULL_WAIT.0;
    while committer.wait() {
        match committer.commit() {
            Ok(lsn) => {
                wait = FULL_WAIT.0;
                durable.send_modify(|durable| durable.lsn = durable.lsn.max(lsn));
            }
            Err(error @ CommitError::NoSpace { .. }) => {
                if given_up.is_cancelled() {
                    tracing::error!(%error, "records are lost that nobody was told are durable");
                    return;
                }
                tracing::warn!(%error, wait_ms = wait.as_millis() as u64, "no space: entries are refused");
                thread::sleep(wait);
                wait = (wait * 2).min(FULL_WAIT.1);
            }
            Err(error @ CommitError::Failed { .. }) => {
                tracing::error!(%error, "the store takes nothing more until the node is started anew");
                durable.send_modify(|durable| durable.failure = Some(error.to_string()));
                return;
            }
        }
    }
}
