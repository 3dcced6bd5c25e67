//! Newtypes for every id, number and time that travels between crates.

use core::fmt;

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The number after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<u64> for $name {
            fn from(n: u64) -> Self {
                Self(n)
            }
        }
    )*};
}

number! {
    /// A segment of one topic incarnation; strictly increasing, never reused.
    SegmentId
    /// A version of a topic's layout; 1 when created, one more at each structural change.
    Epoch
    /// The number of a message within its segment, from 0.
    Offset
    /// The op that made a subscription's cursors: facts and acks of an older one change nothing.
    Generation
    /// One run of a bucket's deliveries to one attach; a nack, revoke or loss starts the next.
    Round
    /// Rises with each attach of one session to one segment; a higher one replaces a lower one.
    AttachNo
    /// One consumer incarnation, chosen at random by the client.
    SessionId
    /// One life of a topic name, chosen at random when the topic is created; part of every segment's key.
    Incarnation
    /// Wall time in microseconds since 1970.
    Micros
}

impl Micros {
    /// Microseconds from `earlier` to `self`; 0 if the clock went backwards.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Orders commands of leaders: a node refuses a command whose term *or* op is lower than one it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The leader's term, from its Lease.
    pub term: u64,
    /// The topic's counter, raised by every stored plan and replan.
    pub op: u64,
}

impl Fence {
    /// Whether a holder of `self` must refuse `sent`: either part is lower.
    #[must_use]
    pub const fn refuses(self, sent: Self) -> bool {
        sent.term < self.term || sent.op < self.op
    }

    /// The highest of both parts.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { term: self.term.max(other.term), op: self.op.max(other.op) }
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.term, self.op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_refuses_a_command_with_either_part_lower() {
        let held = Fence { term: 3, op: 7 };
        let rows = [((3, 7), false), ((4, 7), false), ((3, 8), false), ((2, 9), true), ((9, 6), true), ((2, 6), true)];
        for ((term, op), refused) in rows {
            assert_eq!(held.refuses(Fence { term, op }), refused, "({term}, {op})");
        }
    }

    #[test]
    fn time_never_runs_backwards() {
        assert_eq!(Micros(5).since(Micros(3)), 2);
        assert_eq!(Micros(3).since(Micros(5)), 0);
    }
}
