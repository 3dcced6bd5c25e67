//! Wall time that never runs backwards: the wall clock once, then elapsed time.

use std::sync::OnceLock;
use std::time::{Instant, UNIX_EPOCH};

use braid_model::Micros;

static START: OnceLock<(Micros, Instant)> = OnceLock::new();

/// The time now.
pub fn now() -> Micros {
    let (wall, started) = START.get_or_init(start);
    Micros(wall.0 + started.elapsed().as_micros() as u64)
}

/// The instant of `time`, for a timer; a time that has passed is now.
pub(crate) fn instant(time: Micros) -> tokio::time::Instant {
    let wait = time.since(now());
    tokio::time::Instant::now() + std::time::Duration::from_micros(wait)
}

#[expect(clippy::disallowed_methods, reason = "the shell's clock")]
fn start() -> (Micros, Instant) {
    let wall = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (Micros(wall.as_micros() as u64), Instant::now())
}
