//! A line about how it goes, once a second, on a terminal only.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

/// A number that others show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicU64>);

impl Counter {
    /// The count after this one.
    pub(crate) fn add(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Shows `line` on stderr every second, if that is a terminal, until the set is dropped.
pub(crate) fn show(tasks: &mut JoinSet<()>, mut line: impl FnMut() -> String + Send + 'static) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    tasks.spawn(async move {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            second.tick().await;
            // A terminal that is gone needs no progress.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", line());
        }
    });
}

/// Ends the line that [`show`] left.
pub(crate) fn done() {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}
