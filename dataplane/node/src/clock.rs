//! The one place of this program that reads a clock.

use std::time::{Duration, Instant, UNIX_EPOCH};

use braid_model::Micros;

/// Wall time that never runs backwards: the wall clock once, then elapsed time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    wall: Micros,
    started: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the shell's clock")]
    pub(crate) fn start() -> Self {
        // A clock before 1970 is a clock that is not set: the node's own time begins there then.
        let wall = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: Micros(wall.as_micros() as u64), started: Instant::now() }
    }

    pub(crate) fn now(&self) -> Micros {
        Micros(self.wall.0 + self.started.elapsed().as_micros() as u64)
    }

    /// The instant of `time`, for a timer; a time that has passed is now.
    pub(crate) fn instant(&self, time: Micros) -> tokio::time::Instant {
        tokio::time::Instant::now() + Duration::from_micros(time.since(self.now()))
    }
}
