//! The four rates of a segment, and how they compare with thresholds.

use core::fmt;

/// What is measured of a segment, in the order in which every array of four lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Messages appended per second.
    MessagesIn,
    /// Bytes appended per second.
    BytesIn,
    /// Messages delivered per second, all subscriptions together.
    MessagesOut,
    /// Bytes delivered per second, all subscriptions together.
    BytesOut,
}

impl Metric {
    /// All four, in order.
    pub const ALL: [Self; 4] = [Self::MessagesIn, Self::BytesIn, Self::MessagesOut, Self::BytesOut];

    /// The field of a policy's `split` and `merge` that holds its threshold.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::MessagesIn => "messagesInPerSecond",
            Self::BytesIn => "bytesInPerSecond",
            Self::MessagesOut => "messagesOutPerSecond",
            Self::BytesOut => "bytesOutPerSecond",
        }
    }
}

/// The field's name, as users write it.
impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field())
    }
}

/// One number per [`Metric`], per second: measured rates, or thresholds for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rates(pub [u64; 4]);

impl Rates {
    /// The rate of one metric.
    #[must_use]
    pub const fn of(&self, metric: Metric) -> u64 {
        self.0[metric as usize]
    }

    /// Messages appended per second.
    #[must_use]
    pub const fn messages_in(&self) -> u64 {
        self.0[0]
    }

    /// Whether some rate is strictly over its threshold.
    #[must_use]
    pub fn any_over(&self, thresholds: &Self) -> bool {
        self.0.iter().zip(&thresholds.0).any(|(rate, threshold)| rate > threshold)
    }

    /// Whether every rate is strictly under its threshold.
    #[must_use]
    pub fn all_under(&self, thresholds: &Self) -> bool {
        self.0.iter().zip(&thresholds.0).all(|(rate, threshold)| rate < threshold)
    }

    /// Each rate the smaller of two.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        self.zip(other, u64::min)
    }

    /// Metric by metric.
    pub(super) fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self(core::array::from_fn(|i| f(self.0[i], other.0[i])))
    }

    /// The largest of `floor(rate * 1_000_000 / threshold)` over the metrics.
    pub(super) fn score(&self, thresholds: &Self) -> u128 {
        // `floor` keeps order, so the floor of the largest ratio is the largest floor: one division, not four.
        let (mut rate, mut threshold) = (self.0[0], thresholds.0[0].max(1));
        for i in 1..4 {
            let (r, t) = (self.0[i], thresholds.0[i].max(1));
            if u128::from(r) * u128::from(threshold) > u128::from(rate) * u128::from(t) {
                (rate, threshold) = (r, t);
            }
        }
        millionths(rate, threshold)
    }

    /// The first metric whose `floor(rate * 1_000_000 / threshold)` is [`Self::score`].
    pub(super) fn hottest(&self, thresholds: &Self) -> Metric {
        let score = self.score(thresholds);
        let reaches = |metric: &Metric| millionths(self.of(*metric), thresholds.of(*metric).max(1)) == score;
        Metric::ALL.into_iter().find(reaches).unwrap_or(Metric::MessagesIn)
    }
}

fn millionths(rate: u64, threshold: u64) -> u128 {
    const MILLION: u64 = 1_000_000;
    match rate.checked_mul(MILLION) {
        Some(product) => u128::from(product / threshold),
        None => u128::from(rate) * u128::from(MILLION) / u128::from(threshold),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_the_largest_ratio_in_whole_millionths() {
        let check = |rates: [u64; 4], thresholds: [u64; 4], score: u128, hottest: Metric| {
            assert_eq!(Rates(rates).score(&Rates(thresholds)), score, "{rates:?} over {thresholds:?}");
            assert_eq!(Rates(rates).hottest(&Rates(thresholds)), hottest, "{rates:?} over {thresholds:?}");
        };
        check([0, 0, 0, 0], [1, 1, 1, 1], 0, Metric::MessagesIn);
        check([5, 5, 5, 5], [10, 10, 10, 10], 500_000, Metric::MessagesIn);
        check([1, 2, 1, 2], [3, 3, 3, 3], 666_666, Metric::BytesIn);
        // Two ratios that differ by less than a millionth are a tie: the first metric names it.
        check([10_000_000, 10_000_001, 0, 0], [10_000_000; 4], 1_000_000, Metric::MessagesIn);
        check([u64::MAX, 0, 0, 0], [1; 4], u128::from(u64::MAX) * 1_000_000, Metric::MessagesIn);
        check([0, 0, 0, 7], [0; 4], 7_000_000, Metric::BytesOut);
    }

    #[test]
    fn over_and_under_are_strict() {
        let thresholds = Rates([10; 4]);
        assert!(!Rates([10; 4]).any_over(&thresholds));
        assert!(Rates([0, 0, 0, 11]).any_over(&thresholds));
        assert!(!Rates([9, 9, 9, 10]).all_under(&thresholds));
        assert!(Rates([9; 4]).all_under(&thresholds));
    }
}
