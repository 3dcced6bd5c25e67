//! What load to expect of a new segment until its node has measured it.

use super::metric::Rates;
use super::snapshot::Sample;
use crate::{HashRange, Micros};

/// The expected sample of a segment that `commit` put in place of `parents`, each given with its range and last sample.
///
/// Each rate is the parents' share by width, floored: a split child has a part, a merger the sum, a rebucket successor the
/// same. It counts for growing, never for merging. `None` if a parent that the segment touches has no sample: unknown is
/// never zero.
pub fn estimate<'a>(
    successor: HashRange,
    parents: impl IntoIterator<Item = (HashRange, Option<&'a Sample>)>,
    commit: Micros,
) -> Option<Sample> {
    let mut rates = Rates::default();
    for (parent, sample) in parents {
        let shared = overlap(successor, parent);
        if shared == 0 {
            continue;
        }
        let share = |sum: u64, rate: u64| {
            let part = u128::from(rate) * u128::from(shared) / u128::from(parent.size());
            sum.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
        };
        rates = rates.zip(&sample?.rates, share);
    }
    Some(Sample { rates, sampled_at: commit, cold_since: None, estimated: true })
}

fn overlap(a: HashRange, b: HashRange) -> u32 {
    let (start, end) = (a.start().max(b.start()), a.end().min(b.end()));
    HashRange::new(start, end).map_or(0, HashRange::size)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn range(start: u16, end: u16) -> HashRange {
        HashRange::new(start, end).unwrap()
    }

    fn measured(rates: [u64; 4]) -> Sample {
        Sample { rates: Rates(rates), sampled_at: Micros(1), cold_since: Some(Micros(1)), estimated: false }
    }

    #[test]
    fn a_successor_is_expected_to_carry_its_parents_load() {
        let check = |successor: HashRange, parents: &[(HashRange, Option<[u64; 4]>)], expected: Option<[u64; 4]>| {
            let parents: Vec<_> = parents.iter().map(|(range, rates)| (*range, rates.map(measured))).collect();
            let found = estimate(successor, parents.iter().map(|(range, sample)| (*range, sample.as_ref())), Micros(9));
            let sample =
                |rates| Sample { rates: Rates(rates), sampled_at: Micros(9), cold_since: None, estimated: true };
            assert_eq!(found, expected.map(sample), "{successor} of {parents:?}");
        };
        let parent = [(range(0, 9), Some([100, 7, 1, u64::MAX]))];
        // Split: by width, floored.
        check(range(0, 4), &parent, Some([50, 3, 0, u64::MAX / 2]));
        check(range(5, 9), &parent, Some([50, 3, 0, u64::MAX / 2]));
        check(range(0, 2), &parent, Some([30, 2, 0, 5_534_023_222_112_865_484]));
        // Rebucket: the same.
        check(range(0, 9), &parent, Some([100, 7, 1, u64::MAX]));
        // Merge: the sum, as far as a number goes.
        let two = [(range(0, 9), Some([100, 7, 1, u64::MAX])), (range(10, 12), Some([1, 2, 3, 4]))];
        check(range(0, 12), &two, Some([101, 9, 4, u64::MAX]));
        // A batch: only its own parent counts.
        check(range(10, 12), &two, Some([1, 2, 3, 4]));
        // Unknown is never zero.
        check(range(0, 12), &[two[0], (range(10, 12), None)], None);
        check(range(0, 4), &[two[0], (range(10, 12), None)], Some([50, 3, 0, u64::MAX / 2]));
    }
}
