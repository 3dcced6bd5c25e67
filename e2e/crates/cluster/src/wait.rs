//! Waiting for a fact, with a limit.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;

/// The first answer of `ask` that is not `None`, asked 5 times a second.
///
/// An error of `ask` counts as no answer yet, for a cluster in trouble refuses calls; the last one is named when `limit` is over.
pub fn until<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        let last = match ask() {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => "not yet".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        if began.elapsed() >= limit {
            bail!("`{what}` is not so after {} s: {last}", limit.as_secs());
        }
        sleep(Duration::from_millis(200));
    }
}
