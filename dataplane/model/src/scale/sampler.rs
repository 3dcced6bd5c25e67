//! How a node turns the one-second rates of a segment into the samples that the evaluator sees.

use alloc::collections::VecDeque;

use super::metric::Rates;
use super::policy::Policy;
use super::snapshot::Sample;
use crate::Micros;

/// A sample is sent at least this often, in microseconds.
pub const REPORT_INTERVAL_US: u64 = 5_000_000;

/// The longest load window that a node keeps, in seconds; a policy's longer one counts as this. It bounds memory.
pub const LOAD_WINDOW_SECONDS_MAX: u64 = 600;

/// The load of one segment, as its node measures it: push once a second, then ask whether a report is due.
#[derive(Clone, Debug)]
pub struct Sampler {
    thresholds: Thresholds,
    /// How many of the newest one-second rates make a sample, 1..=LOAD_WINDOW_SECONDS_MAX; one more is kept.
    window: usize,
    seconds: VecDeque<Rates>,
    measured_at: Micros,
    cold_since: Option<Micros>,
    reported: Option<Sample>,
}

/// What a rate can cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Thresholds {
    split: Rates,
    merge: Rates,
    split_floor: u64,
}

impl Sampler {
    /// A sampler that has measured nothing yet.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        Self {
            thresholds: Thresholds::of(policy),
            window: window(policy),
            seconds: VecDeque::new(),
            measured_at: Micros(0),
            cold_since: None,
            reported: None,
        }
    }

    /// Judges by another policy from now on. If a merge threshold changed, the cold clock starts anew: what was cold
    /// before need not have been cold by the new one.
    pub fn retune(&mut self, policy: &Policy) {
        let thresholds = Thresholds::of(policy);
        if thresholds.merge != self.thresholds.merge {
            self.cold_since = None;
        }
        self.thresholds = thresholds;
        self.window = window(policy);
        self.keep(self.window + 1);
    }

    /// Takes the rates of the second that ends `now`.
    pub fn push(&mut self, second_rates: Rates, now: Micros) {
        self.seconds.push_back(second_rates);
        self.keep(self.window + 1);
        self.measured_at = now;
        // One warm second ends the cold, though the sample, the least of several, may not show it.
        self.cold_since =
            if second_rates.all_under(&self.thresholds.merge) { self.cold_since.or(Some(now)) } else { None };
    }

    /// The segment's sample: each rate the least of the window.
    ///
    /// `None` until the window is full: a load that has not lasted that long is unknown, not zero. A load sets in within a
    /// second, not at its start; as long as that second is the window's oldest and at least a quarter under all later ones,
    /// the rate before it counts still. Otherwise a step would first show as the fraction that this second saw of it.
    #[must_use]
    pub fn sample(&self) -> Option<Sample> {
        let from = self.seconds.len().checked_sub(self.window)?;
        let later = self.seconds.iter().skip(from + 1).copied().reduce(|least, second| least.least(&second));
        let oldest = self.seconds[from];
        let before = from.checked_sub(1).map_or(oldest, |i| self.seconds[i]);
        let mut rates = oldest;
        if let Some(later) = later {
            for i in 0..rates.0.len() {
                let sets_in = u128::from(oldest.0[i]) * 4 <= u128::from(later.0[i]) * 3;
                let oldest = if sets_in { oldest.0[i].min(before.0[i]) } else { oldest.0[i] };
                rates.0[i] = oldest.min(later.0[i]);
            }
        }
        Some(Sample { rates, sampled_at: self.measured_at, cold_since: self.cold_since, estimated: false })
    }

    fn keep(&mut self, seconds: usize) {
        while self.seconds.len() > seconds {
            self.seconds.pop_front();
        }
    }

    /// The sample to send now, if one is due; it then counts as sent.
    ///
    /// Due is the first one, one where a threshold was crossed or a rate moved by 25 % since the last one sent, and one
    /// that is [`REPORT_INTERVAL_US`] late.
    pub fn report_due(&mut self, now: Micros) -> Option<Sample> {
        let sample = self.sample()?;
        let due = self.reported.is_none_or(|last| {
            now.since(last.sampled_at) >= REPORT_INTERVAL_US
                || self.thresholds.crossed(&last, &sample)
                || moved(&last, &sample)
        });
        if due {
            self.reported = Some(sample);
        }
        due.then_some(sample)
    }

    /// The next sample is sent as if it were the first: whoever held the last one is gone.
    pub fn forget_report(&mut self) {
        self.reported = None;
    }
}

impl Thresholds {
    fn of(policy: &Policy) -> Self {
        Self { split: policy.split, merge: policy.merge, split_floor: policy.split_floor }
    }

    /// Whether a rate changed sides, in the senses in which the evaluator compares them.
    fn crossed(&self, last: &Sample, sample: &Sample) -> bool {
        let side = |rates: &Rates, i: usize| (rates.0[i] > self.split.0[i], rates.0[i] < self.merge.0[i]);
        let is_busy = |rates: &Rates| rates.messages_in() >= self.split_floor;
        (0..4).any(|i| side(&last.rates, i) != side(&sample.rates, i))
            || is_busy(&last.rates) != is_busy(&sample.rates)
            || last.cold_since != sample.cold_since
    }
}

/// Whether some rate moved by a quarter of what was last sent; from zero, every move is one.
fn moved(last: &Sample, sample: &Sample) -> bool {
    let by_a_quarter = |last: u64, rate: u64| last != rate && u128::from(last.abs_diff(rate)) * 4 >= u128::from(last);
    last.rates.0.iter().zip(&sample.rates.0).any(|(last, rate)| by_a_quarter(*last, *rate))
}

fn window(policy: &Policy) -> usize {
    policy.load_window_seconds.clamp(1, LOAD_WINDOW_SECONDS_MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: u64) -> Micros {
        Micros(second * 1_000_000)
    }

    /// Messages in only, every other rate zero.
    const fn messages(rate: u64) -> Rates {
        Rates([rate, 0, 0, 0])
    }

    fn sampler(window: u64) -> Sampler {
        Sampler::new(&Policy { load_window_seconds: window, ..Policy::default() })
    }

    /// Pushes one rate per second from second 1 on; asserts the seconds that a report was due at.
    fn check(sampler: &mut Sampler, rates: &[u64], due: &[u64]) {
        let mut found = std::vec::Vec::new();
        for (second, rate) in (1..).zip(rates) {
            sampler.push(messages(*rate), at(second));
            if let Some(sample) = sampler.report_due(at(second)) {
                assert_eq!(sample.sampled_at, at(second));
                found.push(second);
            }
        }
        assert_eq!(found, due, "rates {rates:?}");
    }

    #[test]
    fn a_sample_is_the_least_of_the_window_metric_by_metric() {
        let mut sampler = sampler(3);
        let least = |sampler: &Sampler| sampler.sample().map(|sample| sample.rates.0);
        sampler.push(Rates([9, 1, 5, 5]), at(1));
        sampler.push(Rates([5, 9, 5, 5]), at(2));
        assert_eq!(least(&sampler), None);
        sampler.push(Rates([7, 7, 7, 7]), at(3));
        assert_eq!(least(&sampler), Some([5, 1, 5, 5]));
        sampler.push(Rates([8, 8, 8, 8]), at(4));
        assert_eq!(least(&sampler), Some([5, 7, 5, 5]));
        sampler.push(Rates([8, 8, 8, 8]), at(5));
        assert_eq!(least(&sampler), Some([7, 7, 7, 7]));
    }

    #[test]
    fn a_burst_shorter_than_the_window_is_no_load_and_a_step_is_one_after_it() {
        let mut sampler = sampler(5);
        let mut seen = std::vec::Vec::new();
        for (second, rate) in
            (1..).zip([0, 0, 0, 0, 0, 80_000, 80_000, 80_000, 80_000, 0, 80_000, 80_000, 80_000, 80_000, 80_000])
        {
            sampler.push(messages(rate), at(second));
            seen.extend(sampler.sample().map(|sample| sample.rates.messages_in()));
        }
        assert_eq!(seen, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 80_000]);
    }

    #[test]
    fn a_step_within_a_second_shows_whole_or_not_at_all() {
        let mut sampler = sampler(3);
        let mut seen = std::vec::Vec::new();
        for (second, rate) in (1..).zip([0, 0, 0, 700, 1_500, 1_500, 1_500, 1_480]) {
            sampler.push(messages(rate), at(second));
            seen.extend(sampler.sample().map(|sample| sample.rates.messages_in()));
        }
        assert_eq!(seen, [0, 0, 0, 0, 1_500, 1_480]);
    }

    #[test]
    fn the_cold_clock_runs_while_every_second_is_under_every_merge_threshold() {
        let mut sampler = sampler(2);
        let mut push = |rates: [u64; 4], second: u64| {
            sampler.push(Rates(rates), at(second));
            sampler.cold_since
        };
        assert_eq!(push([0; 4], 1), Some(at(1)));
        assert_eq!(push([999, 4_999_999, 4_999, 24_999_999], 2), Some(at(1)));
        assert_eq!(push([1000, 0, 0, 0], 3), None);
        assert_eq!(push([0; 4], 4), Some(at(4)));
        assert_eq!(push([0, 0, 0, 25_000_000], 5), None);
        assert_eq!(push([0; 4], 6), Some(at(6)));
    }

    #[test]
    fn one_warm_second_ends_the_cold_though_the_sample_is_low() {
        let mut sampler = sampler(3);
        for (second, rate) in [(1, 0), (2, 0), (3, 5_000)] {
            sampler.push(messages(rate), at(second));
        }
        let sample = sampler.sample().unwrap();
        assert_eq!((sample.rates.messages_in(), sample.cold_since), (0, None));
    }

    #[test]
    fn a_steady_load_is_reported_first_when_the_window_is_full_then_every_5_seconds() {
        check(&mut sampler(1), &[100; 12], &[1, 6, 11]);
        check(&mut sampler(5), &[100; 12], &[5, 10]);
    }

    #[test]
    fn a_rate_that_moves_by_a_quarter_is_reported_at_once() {
        check(&mut sampler(1), &[100, 124, 125, 125, 156, 157, 157], &[1, 3, 6]);
        check(&mut sampler(1), &[100, 76, 75], &[1, 3]);
        check(&mut sampler(1), &[0, 0, 1, 1, 0], &[1, 3, 5]);
        // Against what was sent, not against the second before.
        check(&mut sampler(1), &[1000, 1100, 1200, 1300], &[1, 4]);
    }

    #[test]
    fn a_crossed_threshold_is_reported_at_once() {
        // Split: strictly over 10,000.
        check(&mut sampler(1), &[9_900, 10_000, 10_001, 10_002, 10_000], &[1, 3, 5]);
        // Merge: strictly under 1,000; so is the split floor's border.
        check(&mut sampler(1), &[1_001, 1_000, 999, 998, 1_000], &[1, 3, 5]);
        let policy = Policy { load_window_seconds: 1, split_floor: 3_000, ..Policy::default() };
        check(&mut Sampler::new(&policy), &[2_999, 3_000, 3_001, 2_999], &[1, 2, 4]);
    }

    #[test]
    fn the_end_of_the_cold_is_reported_though_no_rate_of_the_sample_moved() {
        // Second 4 is warm; the least of three does not show it, the cold clock does.
        check(&mut sampler(3), &[500, 500, 500, 5_000, 500, 500], &[3, 4, 5]);
    }

    #[test]
    fn another_policy_restarts_the_cold_only_if_a_merge_threshold_changed() {
        let mut sampler = sampler(1);
        sampler.push(messages(0), at(1));
        sampler.retune(&Policy { load_window_seconds: 2, split_floor: 7, ..Policy::default() });
        assert_eq!(sampler.sample(), None);
        sampler.push(messages(0), at(2));
        assert_eq!(sampler.sample().unwrap().cold_since, Some(at(1)));
        sampler.retune(&Policy { merge: Rates([7; 4]), load_window_seconds: 1, ..Policy::default() });
        assert_eq!(sampler.sample().unwrap().cold_since, None);
        sampler.push(messages(0), at(3));
        assert_eq!(sampler.sample().unwrap().cold_since, Some(at(3)));
    }

    #[test]
    fn a_new_listener_gets_a_report_at_once() {
        let mut sampler = sampler(1);
        assert_eq!(sampler.report_due(at(1)), None);
        sampler.push(messages(1), at(1));
        assert!(sampler.report_due(at(1)).is_some());
        assert!(sampler.report_due(at(2)).is_none());
        sampler.forget_report();
        assert!(sampler.report_due(at(2)).is_some());
    }

    #[test]
    fn a_window_out_of_bounds_is_brought_within() {
        assert_eq!(sampler(0).window, 1);
        assert_eq!(sampler(u64::MAX).window, 600);
    }
}
