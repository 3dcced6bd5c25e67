//! Which messages and numbers were seen, in a byte or less each.

use std::collections::{BTreeMap, HashMap};

/// Set once the message was acked to a producer.
pub(super) const ACKED: u8 = 1;
/// Set once it was delivered.
pub(super) const DELIVERED: u8 = 2;

const CHUNK: u64 = 4096;

/// Flags per (segment, offset); offsets lie close together.
#[derive(Debug, Default)]
pub(super) struct Messages {
    chunks: HashMap<(u64, u64), Box<[u8; CHUNK as usize]>>,
}

impl Messages {
    /// Sets a flag; the flags before.
    pub(super) fn set(&mut self, segment: u64, offset: u64, flag: u8) -> u8 {
        let chunk = self.chunks.entry((segment, offset / CHUNK)).or_insert_with(|| Box::new([0; CHUNK as usize]));
        let flags = &mut chunk[(offset % CHUNK) as usize];
        let before = *flags;
        *flags |= flag;
        before
    }

    /// (segment, offset) of the messages with exactly these flags, in order.
    pub(super) fn with_exactly(&self, wanted: u8) -> impl Iterator<Item = (u64, u64)> {
        let ordered: BTreeMap<_, _> = self.chunks.iter().collect();
        ordered.into_iter().flat_map(move |((segment, chunk), flags)| {
            let offsets = (0..CHUNK).filter(move |i| flags[*i as usize] == wanted);
            offsets.map(move |i| (*segment, chunk * CHUNK + i))
        })
    }
}

/// A set of numbers that mostly come one after the other: runs, start to end (exclusive).
#[derive(Debug, Default)]
pub(super) struct Numbers {
    runs: BTreeMap<u64, u64>,
}

impl Numbers {
    /// Whether the number is new.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        let mut start = number;
        let mut end = number.saturating_add(1);
        if let Some((&before, &until)) = self.runs.range(..=number).next_back() {
            if number < until {
                return false;
            }
            if number == until {
                start = before;
            }
        }
        if let Some(&until) = self.runs.get(&end) {
            self.runs.remove(&end);
            end = until;
        }
        self.runs.insert(start, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_as_runs() {
        let mut numbers = Numbers::default();
        let news: Vec<_> = [5, 6, 4, 5, 9, 8, 7, 6, 0].map(|n| numbers.insert(n)).into();
        assert_eq!(news, [true, true, true, false, true, true, true, false, true]);
        assert_eq!(numbers.runs, BTreeMap::from([(0, 1), (4, 10)]));
    }
}
