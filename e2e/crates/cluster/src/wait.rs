//! Waiting for facts: ask, and ask again until the answer is there or its time is over.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const PAUSE: Duration = Duration::from_millis(200);

/// The first answer that is there, asked for at most `limit`; the error says what was waited for and the last thing seen.
pub(crate) fn until<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Result<Answer<T>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let seen = match ask() {
            Ok(Answer::There(value)) => return Ok(value),
            Ok(Answer::NotYet(seen)) => seen,
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() >= deadline {
            bail!("waited {limit:?} for {what}; last seen: {seen}");
        }
        std::thread::sleep(PAUSE);
    }
}

/// What one look brought.
pub(crate) enum Answer<T> {
    There(T),
    /// What was there instead.
    NotYet(String),
}

impl Answer<()> {
    /// There if `is`, else what was `seen`.
    pub(crate) fn when(is: bool, seen: impl FnOnce() -> String) -> Self {
        if is { Self::There(()) } else { Self::NotYet(seen()) }
    }
}

/// Checks that `look` keeps the value `wanted` for the whole of `span`.
pub(crate) fn holds<T: PartialEq + std::fmt::Debug>(
    what: &str,
    span: Duration,
    wanted: &T,
    mut look: impl FnMut() -> Result<T>,
) -> Result<()> {
    let end = Instant::now() + span;
    while Instant::now() < end {
        let seen = look()?;
        if seen != *wanted {
            bail!("{what} must stay {wanted:?} for {span:?}, it became {seen:?}");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
