//! What one subscription has acknowledged of one segment. Knows no buckets, sessions or entries: offsets count messages.

use alloc::vec::Vec;

use crate::offsets::{OffsetRange, OffsetSet};
use crate::{Generation, Offset};

/// The most acked ranges beyond the watermark that one cursor keeps: about 3 MiB. A dispatcher stops reading new entries long before.
pub const ACKED_RANGES_MAX: usize = 65_536;

/// A low watermark, below which everything is acked, and the acked ranges beyond it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    generation: Generation,
    watermark: Offset,
    beyond: OffsetSet,
}

/// Why an ack was not taken; the cursor is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// More holes than a cursor keeps.
    #[error("ack `{range}` would make {ranges} acked ranges beyond the watermark, the most is {max}")]
    TooManyRanges {
        /// What was to be acked.
        range: OffsetRange,
        /// How many ranges the cursor would hold.
        ranges: usize,
        /// [`ACKED_RANGES_MAX`].
        max: usize,
    },
}

impl Cursor {
    /// A cursor with nothing acked from `start` on and everything before it.
    #[must_use]
    pub fn new(generation: Generation, start: Offset) -> Self {
        Self { generation, watermark: start, beyond: OffsetSet::default() }
    }

    /// A cursor from its recorded parts, in any order, overlapping or not: acks replayed from a log.
    ///
    /// # Errors
    /// More ranges than [`ACKED_RANGES_MAX`].
    pub fn restore(
        generation: Generation,
        watermark: Offset,
        acked: impl IntoIterator<Item = OffsetRange>,
    ) -> Result<Self, CursorError> {
        let mut cursor = Self::new(generation, watermark);
        for range in acked {
            cursor.ack(range)?;
        }
        Ok(cursor)
    }

    /// The op that made this cursor.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The first unacked message: everything below is acked.
    #[must_use]
    pub fn first_unacked(&self) -> Offset {
        self.watermark
    }

    /// The acked ranges beyond the watermark, in order: with it and the generation all there is to record.
    pub fn acked_beyond(&self) -> impl Iterator<Item = OffsetRange> {
        self.beyond.iter()
    }

    /// How many acked ranges lie beyond the watermark: the number of holes.
    #[must_use]
    pub fn holes(&self) -> usize {
        self.beyond.ranges()
    }

    /// Acks `range` and returns what of it was not acked before, in order; empty if the ack said nothing new.
    ///
    /// # Errors
    /// More ranges than [`ACKED_RANGES_MAX`]; nothing changed.
    pub fn ack(&mut self, range: OffsetRange) -> Result<Vec<OffsetRange>, CursorError> {
        let new = self.unacked_within(range);
        if new.is_empty() {
            return Ok(new);
        }
        if range.from() <= self.watermark {
            self.watermark = range.to();
        } else if self.beyond.ranges() == ACKED_RANGES_MAX && !self.beyond.touches(range) {
            let ranges = ACKED_RANGES_MAX + 1;
            return Err(CursorError::TooManyRanges { range, ranges, max: ACKED_RANGES_MAX });
        } else {
            self.beyond.insert(range);
        }
        while let Some(first) = self.beyond.first_range().filter(|first| first.from() <= self.watermark) {
            self.beyond.remove(first);
            self.watermark = self.watermark.max(first.to());
        }
        Ok(new)
    }

    /// Whether every message of `range` is acked.
    #[must_use]
    pub fn is_acked(&self, range: OffsetRange) -> bool {
        match OffsetRange::new(self.watermark.max(range.from()), range.to()) {
            Some(rest) => self.beyond.covers(rest),
            None => true,
        }
    }

    /// The parts of `range` that are not acked, in order.
    #[must_use]
    pub fn unacked_within(&self, range: OffsetRange) -> Vec<OffsetRange> {
        match OffsetRange::new(self.watermark.max(range.from()), range.to()) {
            Some(rest) => self.beyond.missing(rest),
            None => Vec::new(),
        }
    }

    /// Whether everything before `end`, the end of a sealed segment, is acked.
    #[must_use]
    pub fn is_drained(&self, end: Offset) -> bool {
        end <= self.watermark
    }

    /// How many messages before `end` are not acked.
    #[must_use]
    pub fn backlog(&self, end: Offset) -> u64 {
        let acked = |open| self.beyond.within(open).into_iter().map(OffsetRange::count).sum::<u64>();
        OffsetRange::new(self.watermark, end).map_or(0, |open| open.count() - acked(open))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn range(from: u64, to: u64) -> OffsetRange {
        OffsetRange::new(Offset(from), Offset(to)).unwrap()
    }

    fn check(acks: &[(u64, u64)], watermark: u64, beyond: &[(u64, u64)]) {
        let cursor = Cursor::restore(Generation(1), Offset(0), acks.iter().map(|&(from, to)| range(from, to))).unwrap();
        assert_eq!(cursor.first_unacked(), Offset(watermark), "{acks:?}");
        let held: Vec<_> = cursor.acked_beyond().map(|r| (r.from().0, r.to().0)).collect();
        assert_eq!(held, beyond, "{acks:?}");
    }

    #[test]
    fn the_watermark_never_passes_an_unacked_message() {
        check(&[], 0, &[]);
        check(&[(0, 3)], 3, &[]);
        check(&[(1, 3)], 0, &[(1, 3)]);
        check(&[(1, 3), (0, 1)], 3, &[]);
        check(&[(1, 3), (5, 6), (3, 5)], 0, &[(1, 6)]);
        check(&[(1, 3), (5, 6), (0, 2)], 3, &[(5, 6)]);
        check(&[(4, 6), (0, 4)], 6, &[]);
        check(&[(2, 3), (4, 5), (0, 10)], 10, &[]);
        check(&[(0, 5), (2, 7)], 7, &[]);
        check(&[(3, 3)], 0, &[]);
    }

    #[test]
    fn an_ack_twice_says_nothing_new() {
        let mut cursor = Cursor::new(Generation(1), Offset(10));
        assert_eq!(cursor.ack(range(12, 14)), Ok(vec![range(12, 14)]));
        assert_eq!(cursor.ack(range(12, 14)), Ok(vec![]));
        assert_eq!(cursor.ack(range(5, 15)), Ok(vec![range(10, 12), range(14, 15)]));
        assert_eq!(cursor.ack(range(0, 15)), Ok(vec![]));
        assert_eq!(cursor.first_unacked(), Offset(15));
    }

    #[test]
    fn a_cursor_knows_what_is_left() {
        let cursor = Cursor::restore(Generation(1), Offset(2), [range(4, 6)]).unwrap();
        assert!(cursor.is_acked(range(0, 2)) && cursor.is_acked(range(4, 6)) && cursor.is_acked(range(9, 9)));
        assert!(!cursor.is_acked(range(3, 5)) && !cursor.is_acked(range(1, 3)));
        assert_eq!(cursor.unacked_within(range(0, 8)), vec![range(2, 4), range(6, 8)]);
        assert_eq!([cursor.backlog(Offset(8)), cursor.backlog(Offset(5)), cursor.backlog(Offset(1))], [4, 2, 0]);
        assert!(cursor.is_drained(Offset(2)) && !cursor.is_drained(Offset(3)));
    }

    #[test]
    fn a_full_cursor_refuses_another_hole_and_takes_what_fills_one() {
        let mut cursor = Cursor::new(Generation(1), Offset(0));
        for i in 0..ACKED_RANGES_MAX as u64 {
            cursor.ack(range(2 * i + 1, 2 * i + 2)).unwrap();
        }
        let far = range(1_000_000, 1_000_001);
        let full = CursorError::TooManyRanges { range: far, ranges: ACKED_RANGES_MAX + 1, max: ACKED_RANGES_MAX };
        assert_eq!(cursor.ack(far), Err(full));
        assert_eq!(cursor.ack(range(2, 3)), Ok(vec![range(2, 3)]));
        assert_eq!(cursor.ack(range(0, 1)), Ok(vec![range(0, 1)]));
        assert_eq!(cursor.first_unacked(), Offset(4));
    }
}
