//! When a bucket may move: the ownership of one bucket as a table of transitions.
//!
//! Knows offsets, attaches and rounds. It must never know time (a deadline is the event `Expired`), bytes or cursors.

use crate::offsets::{OffsetRange, OffsetSet};
use crate::{AttachNo, Offset, Round, SessionId};

/// One consumer of one segment. A higher number of the same session replaces a lower one; events of a lower one change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attach {
    /// The consumer incarnation.
    pub session: SessionId,
    /// Rises with each attach of the session to the segment.
    pub no: AttachNo,
}

/// Who may receive a bucket's entries. Between two owners `in_flight` passes through empty, or the first is lost or revoked.
///
/// `in_flight` is the set of offsets sent in this round and not acked. Rounds rise and are never used twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Nobody; `last` is the last round that was used.
    Vacant { last: Round },
    /// `by` receives.
    Held { by: Attach, round: Round, in_flight: OffsetSet },
    /// Nobody receives until `in_flight`, never empty here, is; then `to` does.
    Draining { from: Attach, round: Round, in_flight: OffsetSet, to: Option<Attach> },
}

/// What can happen to a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `assign` chose this owner.
    Assign(Option<Attach>),
    /// These messages, of one entry, go to the owner.
    Sent(OffsetRange),
    /// The cursor learned these acks from this attach in this round.
    Acked(Attach, Round, OffsetRange),
    /// The attach, which is losing the bucket, hands back everything it holds of it from this offset on.
    GaveBack(Attach, Round, Offset),
    /// The attach is gone or was replaced.
    Lost(Attach),
    /// The deadline of the handoff has passed.
    Expired,
}

/// What the caller does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The bucket flows (again) to its owner, from where sending stopped.
    Resume,
    /// Sending starts again at this offset, the first unacked, or before it if it was there already.
    Rewind(Offset),
    /// Nothing.
    Wait,
}

impl Ownership {
    /// A bucket nobody ever owned.
    pub const NEW: Self = Self::Vacant { last: Round(0) };

    /// Every transition, one per row; what no row names changes nothing. Only `Sent` lets `in_flight` grow.
    ///
    /// A give-back of a live owner that keeps its bucket (a nack) has no row yet: it starts a round.
    #[must_use]
    pub fn step(self, event: Event) -> (Self, Effect) {
        use Effect::{Resume, Rewind, Wait};
        use Event::{Acked, Assign, Expired, GaveBack, Lost, Sent};
        use Ownership::{Draining, Held, Vacant};
        match (self, event) {
            (Vacant { last }, Assign(to)) => Self::settle(last, to, if to.is_some() { Resume } else { Wait }),
            (Held { by, round, in_flight }, Assign(to)) if to == Some(by) => (Held { by, round, in_flight }, Wait),
            (Held { by, round, in_flight }, Assign(to)) => Self::drain(by, round, in_flight, to),
            // Back to `from` too waits until it is empty: it was told that the bucket goes, and a give-back may be under way,
            // which entries sent now in the same round would overtake.
            (Draining { from, round, in_flight, .. }, Assign(to)) => (Draining { from, round, in_flight, to }, Wait),
            (Held { by, round, mut in_flight }, Sent(range)) => {
                in_flight.insert(range);
                (Held { by, round, in_flight }, Wait)
            }
            (Held { by, round, mut in_flight }, Acked(who, run, range)) if (by, round) == (who, run) => {
                in_flight.remove(range);
                (Held { by, round, in_flight }, Wait)
            }
            (Draining { from, round, mut in_flight, to }, Acked(who, run, range)) if (from, round) == (who, run) => {
                in_flight.remove(range);
                Self::drain(from, round, in_flight, to)
            }
            (Draining { from, round, mut in_flight, to }, GaveBack(who, run, at)) if (from, round) == (who, run) => {
                let rest = OffsetRange::of(at, u64::MAX);
                let Some(back) = in_flight.within(rest).first().map(|range| range.from()) else {
                    return (Draining { from, round, in_flight, to }, Wait);
                };
                in_flight.remove(rest);
                (Self::drain(from, round, in_flight, to).0, Rewind(back))
            }
            (Held { by, round, in_flight }, Lost(who)) if by == who => {
                (Vacant { last: round }, in_flight.first().map_or(Wait, Rewind))
            }
            (Draining { from, round, in_flight, to }, Lost(who)) if from == who => {
                Self::settle(round, to, in_flight.first().map_or(Resume, Rewind))
            }
            (Draining { from, round, in_flight, to }, Lost(who)) if to == Some(who) => {
                (Draining { from, round, in_flight, to: None }, Wait)
            }
            (Draining { round, in_flight, to, .. }, Expired) => {
                Self::settle(round, to, in_flight.first().map_or(Resume, Rewind))
            }
            (same, Sent(_) | Acked(..) | GaveBack(..) | Lost(_) | Expired) => (same, Wait),
        }
    }

    /// The attach that holds unacked entries or may get some, and its round.
    #[must_use]
    pub fn holder(&self) -> Option<(Attach, Round)> {
        match self {
            Self::Vacant { .. } => None,
            Self::Held { by, round, .. } => Some((*by, *round)),
            Self::Draining { from, round, .. } => Some((*from, *round)),
        }
    }

    /// The attach that entries may be sent to now, and its round.
    #[must_use]
    pub fn receiver(&self) -> Option<(Attach, Round)> {
        match self {
            Self::Held { by, round, .. } => Some((*by, *round)),
            Self::Vacant { .. } | Self::Draining { .. } => None,
        }
    }

    /// Whether the bucket is withheld from its next owner.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        matches!(self, Self::Draining { .. })
    }

    /// What is sent and not acked; `None` for a vacant bucket.
    #[must_use]
    pub fn in_flight(&self) -> Option<&OffsetSet> {
        match self {
            Self::Vacant { .. } => None,
            Self::Held { in_flight, .. } | Self::Draining { in_flight, .. } => Some(in_flight),
        }
    }

    fn drain(from: Attach, round: Round, in_flight: OffsetSet, to: Option<Attach>) -> (Self, Effect) {
        if in_flight.is_empty() {
            Self::settle(round, to, Effect::Resume)
        } else {
            (Self::Draining { from, round, in_flight, to }, Effect::Wait)
        }
    }

    fn settle(last: Round, to: Option<Attach>, effect: Effect) -> (Self, Effect) {
        let settled = match to {
            Some(by) => Self::Held { by, round: last.next(), in_flight: OffsetSet::default() },
            None => Self::Vacant { last },
        };
        (settled, effect)
    }
}

#[cfg(test)]
mod tests {
    use super::Effect::{Resume, Rewind, Wait};
    use super::Event::{Acked, Assign, Expired, GaveBack, Lost, Sent};
    use super::*;

    const A: Attach = Attach { session: SessionId(1), no: AttachNo(1) };
    const B: Attach = Attach { session: SessionId(2), no: AttachNo(1) };
    const C: Attach = Attach { session: SessionId(3), no: AttachNo(1) };

    fn range(from: u64, to: u64) -> OffsetRange {
        OffsetRange::new(Offset(from), Offset(to)).unwrap()
    }

    fn vacant(last: u64) -> Ownership {
        Ownership::Vacant { last: Round(last) }
    }

    fn held(by: Attach, round: u64, in_flight: &[(u64, u64)]) -> Ownership {
        let in_flight = in_flight.iter().map(|&(from, to)| range(from, to)).collect();
        Ownership::Held { by, round: Round(round), in_flight }
    }

    fn draining(from: Attach, round: u64, in_flight: &[(u64, u64)], to: Option<Attach>) -> Ownership {
        let in_flight = in_flight.iter().map(|&(from, to)| range(from, to)).collect();
        Ownership::Draining { from, round: Round(round), in_flight, to }
    }

    fn check(before: Ownership, event: Event, after: Ownership, effect: Effect) {
        assert_eq!(before.clone().step(event), (after, effect), "{before:?} at {event:?}");
    }

    #[test]
    fn a_bucket_moves_only_when_drained() {
        check(vacant(3), Assign(None), vacant(3), Wait);
        check(vacant(3), Assign(Some(A)), held(A, 4, &[]), Resume);
        check(held(A, 4, &[(1, 2)]), Assign(Some(A)), held(A, 4, &[(1, 2)]), Wait);
        check(held(A, 4, &[]), Assign(Some(B)), held(B, 5, &[]), Resume);
        check(held(A, 4, &[]), Assign(None), vacant(4), Resume);
        check(held(A, 4, &[(1, 2)]), Assign(Some(B)), draining(A, 4, &[(1, 2)], Some(B)), Wait);
        check(held(A, 4, &[(1, 2)]), Assign(None), draining(A, 4, &[(1, 2)], None), Wait);
        check(draining(A, 4, &[(1, 2)], Some(B)), Assign(Some(C)), draining(A, 4, &[(1, 2)], Some(C)), Wait);
        check(draining(A, 4, &[(1, 2)], Some(B)), Assign(None), draining(A, 4, &[(1, 2)], None), Wait);
    }

    #[test]
    fn a_bucket_that_goes_back_to_its_owner_drains_first_and_starts_a_round() {
        check(draining(A, 4, &[(1, 2)], Some(B)), Assign(Some(A)), draining(A, 4, &[(1, 2)], Some(A)), Wait);
        check(draining(A, 4, &[(1, 2)], Some(A)), Acked(A, Round(4), range(1, 2)), held(A, 5, &[]), Resume);
    }

    #[test]
    fn only_sending_to_a_holder_puts_in_flight() {
        check(held(A, 4, &[(1, 2)]), Sent(range(5, 7)), held(A, 4, &[(1, 2), (5, 7)]), Wait);
        check(vacant(4), Sent(range(5, 7)), vacant(4), Wait);
        check(draining(A, 4, &[(1, 2)], None), Sent(range(5, 7)), draining(A, 4, &[(1, 2)], None), Wait);
    }

    #[test]
    fn the_last_ack_lets_the_bucket_go() {
        let ack = |from, to| Acked(A, Round(4), range(from, to));
        check(held(A, 4, &[(1, 4)]), ack(1, 2), held(A, 4, &[(2, 4)]), Wait);
        check(held(A, 4, &[(1, 4)]), ack(0, 9), held(A, 4, &[]), Wait);
        check(draining(A, 4, &[(1, 4)], Some(B)), ack(2, 3), draining(A, 4, &[(1, 2), (3, 4)], Some(B)), Wait);
        check(draining(A, 4, &[(1, 4)], Some(B)), ack(1, 4), held(B, 5, &[]), Resume);
        check(draining(A, 4, &[(1, 4)], None), ack(1, 4), vacant(4), Resume);
    }

    #[test]
    fn acks_of_another_attach_or_round_change_nothing() {
        let later = Attach { no: AttachNo(2), ..A };
        for (who, round) in [(B, 4), (A, 3), (A, 5), (later, 4)] {
            let ack = Acked(who, Round(round), range(1, 4));
            check(held(A, 4, &[(1, 4)]), ack, held(A, 4, &[(1, 4)]), Wait);
            check(draining(A, 4, &[(1, 4)], Some(B)), ack, draining(A, 4, &[(1, 4)], Some(B)), Wait);
            let back = GaveBack(who, Round(round), Offset(1));
            check(draining(A, 4, &[(1, 4)], Some(B)), back, draining(A, 4, &[(1, 4)], Some(B)), Wait);
        }
        check(vacant(4), Acked(A, Round(4), range(1, 4)), vacant(4), Wait);
    }

    #[test]
    fn what_is_given_back_is_sent_again_by_the_next_owner() {
        let back = |at| GaveBack(A, Round(4), Offset(at));
        check(
            draining(A, 4, &[(1, 2), (5, 6)], Some(B)),
            back(3),
            draining(A, 4, &[(1, 2)], Some(B)),
            Rewind(Offset(5)),
        );
        check(draining(A, 4, &[(1, 2), (5, 6)], Some(B)), back(0), held(B, 5, &[]), Rewind(Offset(1)));
        check(draining(A, 4, &[(1, 2)], None), back(1), vacant(4), Rewind(Offset(1)));
        check(draining(A, 4, &[(1, 2)], Some(B)), back(2), draining(A, 4, &[(1, 2)], Some(B)), Wait);
        check(held(A, 4, &[(1, 2)]), back(0), held(A, 4, &[(1, 2)]), Wait);
        check(vacant(4), back(0), vacant(4), Wait);
    }

    #[test]
    fn a_lost_owner_frees_its_bucket_at_once() {
        check(held(A, 4, &[(3, 4), (7, 9)]), Lost(A), vacant(4), Rewind(Offset(3)));
        check(held(A, 4, &[]), Lost(A), vacant(4), Wait);
        check(draining(A, 4, &[(3, 4)], Some(B)), Lost(A), held(B, 5, &[]), Rewind(Offset(3)));
        check(draining(A, 4, &[(3, 4)], None), Lost(A), vacant(4), Rewind(Offset(3)));
        check(draining(A, 4, &[(3, 4)], Some(B)), Lost(B), draining(A, 4, &[(3, 4)], None), Wait);
        check(draining(A, 4, &[(3, 4)], Some(B)), Lost(C), draining(A, 4, &[(3, 4)], Some(B)), Wait);
        check(held(A, 4, &[(3, 4)]), Lost(B), held(A, 4, &[(3, 4)]), Wait);
        check(vacant(4), Lost(A), vacant(4), Wait);
    }

    #[test]
    fn a_deadline_revokes_only_a_bucket_that_drains() {
        check(draining(A, 4, &[(3, 4)], Some(B)), Expired, held(B, 5, &[]), Rewind(Offset(3)));
        check(draining(A, 4, &[(3, 4)], None), Expired, vacant(4), Rewind(Offset(3)));
        check(held(A, 4, &[(3, 4)]), Expired, held(A, 4, &[(3, 4)]), Wait);
        check(vacant(4), Expired, vacant(4), Wait);
    }
}
