//! SIGTERM and Ctrl-C: the first asks for a clean end, the second ends at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Cancelled by the first signal. Lives as long as the set it is spawned into.
pub(crate) fn watch(tasks: &mut JoinSet<()>) -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let asked = stop.clone();
    tasks.spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if asked.is_cancelled() {
                std::process::exit(130);
            }
            asked.cancel();
        }
    });
    Ok(stop)
}
