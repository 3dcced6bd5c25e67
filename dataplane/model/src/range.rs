//! A range of the 16-bit routing ring, both ends inclusive.

use core::fmt;

/// `start..=end` on the routing ring; `start <= end` always, so its size is 1..=65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashRange {
    start: u16,
    end: u16,
}

impl HashRange {
    /// The whole ring.
    pub const FULL: Self = Self { start: 0, end: u16::MAX };

    /// `None` if `end < start`.
    #[must_use]
    pub const fn new(start: u16, end: u16) -> Option<Self> {
        if start <= end { Some(Self { start, end }) } else { None }
    }

    /// The first hash.
    #[must_use]
    pub const fn start(self) -> u16 {
        self.start
    }

    /// The last hash.
    #[must_use]
    pub const fn end(self) -> u16 {
        self.end
    }

    /// How many hashes, 1..=65536.
    #[must_use]
    pub const fn size(self) -> u32 {
        self.end as u32 - self.start as u32 + 1
    }

    /// Whether `hash` lies in the range.
    #[must_use]
    pub const fn contains(self, hash: u16) -> bool {
        self.start <= hash && hash <= self.end
    }

    /// Whether `other` begins where this range ends, or the reverse. The ring does not wrap: 0xFFFF is not adjacent to 0.
    #[must_use]
    pub const fn is_adjacent(self, other: Self) -> bool {
        self.end as u32 + 1 == other.start as u32 || other.end as u32 + 1 == self.start as u32
    }

    /// The union of two adjacent ranges; `None` if they are not adjacent.
    #[must_use]
    pub fn union(self, other: Self) -> Option<Self> {
        self.is_adjacent(other).then(|| Self { start: self.start.min(other.start), end: self.end.max(other.end) })
    }

    /// The `k` children of a split: child `i` starts at `start + ceil(i * size / k)`. `None` unless `1 <= k <= size`.
    /// For `k` = 2 this is the midpoint split of PIP-468.
    pub fn split(self, k: u32) -> Option<impl ExactSizeIterator<Item = Self>> {
        let (start, size) = (u32::from(self.start), self.size());
        let border = move |i: u32| start + (u64::from(i) * u64::from(size)).div_ceil(u64::from(k)) as u32;
        (1..=size).contains(&k).then(|| {
            (0..k as usize)
                .map(move |i| Self { start: border(i as u32) as u16, end: (border(i as u32 + 1) - 1) as u16 })
        })
    }

    /// The `n` ranges of a new topic: each `floor(65536 / n)` wide, the last takes the rest. `None` unless `1 <= n <= 65536`.
    pub fn initial(n: u32) -> Option<impl ExactSizeIterator<Item = Self>> {
        (1..=65_536).contains(&n).then(|| {
            let width = 65_536 / n;
            (0..n as usize).map(move |i| {
                let start = i as u32 * width;
                let end = if i as u32 + 1 == n { 65_535 } else { start + width - 1 };
                Self { start: start as u16, end: end as u16 }
            })
        })
    }
}

impl fmt::Display for HashRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}-{:04x}", self.start, self.end)
    }
}
