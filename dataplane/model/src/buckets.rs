//! The bucket ring of one segment: N parts of equal width, independent of the segment's own range.

use core::fmt;
use core::num::NonZeroU32;

/// The most buckets that a segment can have: one per hash.
pub const BUCKETS_MAX: u32 = 65_536;

/// The index of a bucket within its segment, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketIndex(pub u32);

impl fmt::Display for BucketIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many buckets a segment has, 1..=65536: fixed for the segment's life. Bucket `i` starts at `floor(i * 65536 / N)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Buckets(NonZeroU32);

impl Buckets {
    /// One bucket: the whole ring.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// `None` unless `1 <= n <= 65536`.
    #[must_use]
    pub fn new(n: u32) -> Option<Self> {
        if n > BUCKETS_MAX { None } else { NonZeroU32::new(n).map(Self) }
    }

    /// N, 1..=65536.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.get()
    }

    /// The first hash of bucket `i`; 65536 for `i` = N.
    #[must_use]
    pub fn start(self, bucket: BucketIndex) -> u32 {
        (u64::from(bucket.0) * u64::from(BUCKETS_MAX) / u64::from(self.count())) as u32
    }

    /// The bucket of one hash of the bucket ring.
    #[must_use]
    pub fn of(self, hash: u16) -> BucketIndex {
        // The last bucket that starts at or before `hash`: floor(((hash + 1) * N - 1) / 65536).
        BucketIndex((((u64::from(hash) + 1) * u64::from(self.count()) - 1) / u64::from(BUCKETS_MAX)) as u32)
    }

    /// The bucket that holds an entry whose keys hash to `min..=max`, both inclusive, on the 16-bit bucket ring.
    ///
    /// `None` if the span is inverted or crosses a bucket border: the producer broke its contract. Source: PIP-486, "Entry buckets".
    #[must_use]
    pub fn holding(self, min: u16, max: u16) -> Option<BucketIndex> {
        let bucket = self.of(min);
        (min <= max && self.of(max) == bucket).then_some(bucket)
    }

    /// All bucket indexes in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = BucketIndex> + DoubleEndedIterator {
        (0..self.count() as usize).map(|i| BucketIndex(i as u32))
    }
}

impl fmt::Display for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hash_lies_in_the_bucket_whose_borders_enclose_it() {
        for n in [1, 2, 3, 4, 5, 7, 16, 255, 1000, 1024, 65_535, 65_536] {
            let buckets = Buckets::new(n).unwrap();
            for hash in 0..=u16::MAX {
                let i = buckets.of(hash);
                let (from, to) = (buckets.start(i), buckets.start(BucketIndex(i.0 + 1)));
                assert!((from..to).contains(&u32::from(hash)), "N {n}, hash {hash}, bucket {i}");
            }
        }
    }

    #[test]
    fn a_span_that_crosses_a_border_has_no_bucket() {
        let four = Buckets::new(4).unwrap();
        assert_eq!(four.holding(0x4000, 0x7fff), Some(BucketIndex(1)));
        assert_eq!(four.holding(0x3fff, 0x4000), None);
        assert_eq!(four.holding(0x4001, 0x4000), None);
    }

    #[test]
    fn a_segment_has_between_1_and_65536_buckets() {
        assert_eq!(Buckets::new(0), None);
        assert_eq!(Buckets::new(65_537), None);
        assert_eq!(Buckets::new(65_536).map(Buckets::count), Some(65_536));
    }
}
