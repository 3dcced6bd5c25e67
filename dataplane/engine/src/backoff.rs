//! When to try again: exponential, with jitter, from a seed.

use braid_model::Micros;

/// A small generator for jitter and round robin; never for ids that must not repeat.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Equal seeds give equal numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (splitmix64).
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.roll() % bound }
    }
}

/// Waits of `first`, 2, 4, ... times that, at most `most`, each lowered by up to half at random.
#[derive(Clone, Debug)]
pub struct Backoff {
    first_us: u64,
    most_us: u64,
    failures: u32,
}

impl Backoff {
    /// Nothing has failed yet.
    #[must_use]
    pub const fn new(first_us: u64, most_us: u64) -> Self {
        Self { first_us, most_us, failures: 0 }
    }

    /// It worked: the next wait is the first one again.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// When to try again after a failure at `now`.
    pub fn next(&mut self, now: Micros, dice: &mut Dice) -> Micros {
        let wait = self.first_us.saturating_mul(1 << self.failures.min(20)).min(self.most_us);
        self.failures = self.failures.saturating_add(1);
        Micros(now.0 + wait - dice.below(wait / 2 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_bound_and_start_anew_after_success() {
        let (mut backoff, mut dice) = (Backoff::new(100, 1_000), Dice::new(1));
        for wait in [100, 200, 400, 800, 1_000, 1_000, 1_000] {
            let at = backoff.next(Micros(5), &mut dice).0;
            assert!((5 + wait / 2..=5 + wait).contains(&at), "{at} is not within {wait}");
        }
        backoff.reset();
        assert!(backoff.next(Micros(0), &mut dice).0 <= 100);
    }
}
