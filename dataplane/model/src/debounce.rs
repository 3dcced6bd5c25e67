//! When a home speaks of its sessions: not before it can know them, and a burst of joins as one.

use crate::Micros;

/// How long a home that opened is silent: twice the idle timeout, so members that are rejoining are not "gone".
pub const SILENT_FOR: u64 = 6_000_000;
/// A change is told once nothing more has changed for this long.
pub const STILL_FOR: u64 = 500_000;
/// A change is told this long after the first, however much more changes.
pub const AT_LATEST: u64 = 2_000_000;

/// The clock of one group's report: changes in, the time to tell out. All spans in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debounce {
    opened: Micros,
    /// The first and the last change that was not told.
    pending: Option<(Micros, Micros)>,
}

impl Debounce {
    /// The clock of a home that opened at `opened`; the first report is due when its silence ends.
    #[must_use]
    pub fn new(opened: Micros) -> Self {
        Self { opened, pending: Some((opened, opened)) }
    }

    /// Something changed.
    pub fn changed(&mut self, now: Micros) {
        let first = self.pending.map_or(now, |(first, _)| first);
        self.pending = Some((first, now));
    }

    /// When to tell; `None` if all was told.
    #[must_use]
    pub fn due(&self) -> Option<Micros> {
        let (first, last) = self.pending?;
        let settled = last.0.saturating_add(STILL_FOR).min(first.0.saturating_add(AT_LATEST));
        Some(Micros(settled.max(self.opened.0.saturating_add(SILENT_FOR))))
    }

    /// Whether to tell now; if so, all is told.
    pub fn take(&mut self, now: Micros) -> bool {
        let is_due = self.due().is_some_and(|due| due <= now);
        if is_due {
            self.pending = None;
        }
        is_due
    }

    /// Whether the home can know its sessions: until then its count is unknown, not zero.
    #[must_use]
    pub fn speaks(&self, now: Micros) -> bool {
        now.since(self.opened) >= SILENT_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes, and when they are told, in milliseconds after a silence that has long ended.
    fn check(changes: &[u64], told: u64) {
        let at = |ms: u64| Micros(SILENT_FOR * 2 + ms * 1_000);
        let mut clock = Debounce::new(Micros(0));
        assert!(clock.take(at(0)));
        for &ms in changes {
            assert!(!clock.take(at(ms)), "{changes:?}: told before {ms}");
            clock.changed(at(ms));
        }
        assert_eq!(clock.due(), Some(at(told)), "{changes:?}");
        assert!(!clock.take(Micros(at(told).0 - 1)) && clock.take(at(told)) && clock.due().is_none());
    }

    #[test]
    fn a_burst_is_told_once_it_is_still_and_after_two_seconds_at_the_latest() {
        check(&[0], 500);
        check(&[0, 100, 200], 700);
        check(&[0, 400, 800, 1_200, 1_600], 2_000);
        check(&[0, 400, 800, 1_200], 1_700);
    }

    #[test]
    fn a_home_is_silent_until_it_has_served_six_seconds() {
        let mut clock = Debounce::new(Micros(1_000));
        clock.changed(Micros(2_000));
        assert!(!clock.speaks(Micros(6_000_999)) && !clock.take(Micros(6_000_999)));
        assert!(clock.speaks(Micros(6_001_000)) && clock.take(Micros(6_001_000)));
        assert_eq!(clock.due(), None);
    }
}
