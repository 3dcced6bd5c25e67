//! Half-open ranges of message offsets, and sets of them. Knows nothing of entries, buckets or subscriptions.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use crate::Offset;

/// The messages `from..to` of one segment; `to` is exclusive and never below `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OffsetRange {
    from: Offset,
    to: Offset,
}

impl OffsetRange {
    /// `None` if `to < from`.
    #[must_use]
    pub const fn new(from: Offset, to: Offset) -> Option<Self> {
        if from.0 <= to.0 { Some(Self { from, to }) } else { None }
    }

    /// The `count` messages from `from` on; cut at the largest offset.
    #[must_use]
    pub const fn of(from: Offset, count: u64) -> Self {
        Self { from, to: Offset(from.0.saturating_add(count)) }
    }

    /// The first message.
    #[must_use]
    pub const fn from(self) -> Offset {
        self.from
    }

    /// The message after the last.
    #[must_use]
    pub const fn to(self) -> Offset {
        self.to
    }

    /// How many messages.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.to.0 - self.from.0
    }

    /// Whether it holds no message.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.from.0 == self.to.0
    }

    /// Whether `offset` lies in it.
    #[must_use]
    pub const fn contains(self, offset: Offset) -> bool {
        self.from.0 <= offset.0 && offset.0 < self.to.0
    }

    /// The messages of both; `None` if they share none.
    #[must_use]
    pub fn overlap(self, other: Self) -> Option<Self> {
        let (from, to) = (self.from.max(other.from), self.to.min(other.to));
        (from < to).then_some(Self { from, to })
    }
}

impl fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.from, self.to)
    }
}

/// A set of offsets, kept as its maximal ranges: no two touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetSet {
    ranges: BTreeMap<Offset, Offset>,
}

impl OffsetSet {
    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranges it takes to write it down.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// How many offsets.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.iter().map(OffsetRange::count).sum()
    }

    /// The lowest offset.
    #[must_use]
    pub fn first(&self) -> Option<Offset> {
        self.first_range().map(OffsetRange::from)
    }

    /// The lowest range.
    #[must_use]
    pub fn first_range(&self) -> Option<OffsetRange> {
        self.ranges.first_key_value().map(|(&from, &to)| OffsetRange { from, to })
    }

    /// The offset after the highest.
    #[must_use]
    pub fn end(&self) -> Option<Offset> {
        self.ranges.last_key_value().map(|(_, &to)| to)
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = OffsetRange> {
        self.ranges.iter().map(|(&from, &to)| OffsetRange { from, to })
    }

    /// Whether every offset of `range` is in it.
    #[must_use]
    pub fn covers(&self, range: OffsetRange) -> bool {
        range.is_empty() || self.ranges.range(..=range.from).next_back().is_some_and(|(_, &to)| range.to <= to)
    }

    /// Whether `range` overlaps one of its ranges or lies against one: adding it makes no further range.
    #[must_use]
    pub fn touches(&self, range: OffsetRange) -> bool {
        self.ranges.range(..=range.to).next_back().is_some_and(|(_, &to)| range.from <= to)
    }

    /// The parts of `range` that are in it, in order.
    #[must_use]
    pub fn within(&self, range: OffsetRange) -> Vec<OffsetRange> {
        let left = self.ranges.range(..range.from).next_back();
        left.into_iter()
            .chain(self.ranges.range(range.from..range.to))
            .filter_map(|(&from, &to)| OffsetRange { from, to }.overlap(range))
            .collect()
    }

    /// The parts of `range` that are not in it, in order.
    #[must_use]
    pub fn missing(&self, range: OffsetRange) -> Vec<OffsetRange> {
        let mut missing = Vec::new();
        let mut next = range.from;
        for held in self.within(range) {
            missing.extend(OffsetRange::new(next, held.from).filter(|gap| !gap.is_empty()));
            next = held.to;
        }
        missing.extend(OffsetRange::new(next, range.to).filter(|gap| !gap.is_empty()));
        missing
    }

    /// Adds `range`.
    pub fn insert(&mut self, range: OffsetRange) {
        if range.is_empty() || self.covers(range) {
            return;
        }
        let OffsetRange { mut from, mut to } = range;
        if let Some((&left, &left_to)) = self.ranges.range(..=from).next_back()
            && from <= left_to
        {
            from = left;
            to = to.max(left_to);
        }
        while let Some((&right, &right_to)) = self.ranges.range(from..=to).next() {
            self.ranges.remove(&right);
            to = to.max(right_to);
        }
        self.ranges.insert(from, to);
    }

    /// Takes every offset of `range` out.
    pub fn remove(&mut self, range: OffsetRange) {
        if range.is_empty() {
            return;
        }
        if let Some((&left, &left_to)) = self.ranges.range(..range.from).next_back()
            && range.from < left_to
        {
            self.ranges.insert(left, range.from);
            if range.to < left_to {
                self.ranges.insert(range.to, left_to);
            }
        }
        while let Some((&from, &to)) = self.ranges.range(range.from..range.to).next() {
            self.ranges.remove(&from);
            if range.to < to {
                self.ranges.insert(range.to, to);
            }
        }
    }
}

impl FromIterator<OffsetRange> for OffsetSet {
    fn from_iter<T: IntoIterator<Item = OffsetRange>>(ranges: T) -> Self {
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn range(from: u64, to: u64) -> OffsetRange {
        OffsetRange::new(Offset(from), Offset(to)).unwrap()
    }

    proptest! {
        #[test]
        fn a_set_of_ranges_is_the_set_of_its_offsets(
            steps in prop::collection::vec((any::<bool>(), 0u64..40, 0u64..12), 1..60),
            probe in (0u64..40, 0u64..12),
        ) {
            let (mut set, mut plain) = (OffsetSet::default(), BTreeSet::new());
            for (add, from, count) in steps {
                let step = range(from, from + count);
                if add { set.insert(step) } else { set.remove(step) }
                for offset in from..from + count {
                    if add { plain.insert(offset); } else { plain.remove(&offset); }
                }
                let spelled: Vec<u64> = set.iter().flat_map(|r| r.from().0..r.to().0).collect();
                prop_assert_eq!(&spelled, &plain.iter().copied().collect::<Vec<_>>());
                let all: Vec<_> = set.iter().collect();
                prop_assert!(all.windows(2).all(|pair| pair[0].to() < pair[1].from()), "two ranges touch: {:?}", all);
                prop_assert!(all.iter().all(|r| !r.is_empty()));
            }
            let probe = range(probe.0, probe.0 + probe.1);
            let spell = |parts: Vec<OffsetRange>| parts.iter().flat_map(|r| r.from().0..r.to().0).collect::<Vec<_>>();
            let (inside, outside): (Vec<_>, Vec<_>) = (probe.from().0..probe.to().0).partition(|o| plain.contains(o));
            prop_assert_eq!(set.covers(probe), outside.is_empty());
            prop_assert_eq!(spell(set.within(probe)), inside);
            prop_assert_eq!(spell(set.missing(probe)), outside);
            prop_assert_eq!(set.count(), plain.len() as u64);
            prop_assert_eq!(set.first().map(|o| o.0), plain.first().copied());
        }
    }
}
