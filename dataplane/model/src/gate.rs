//! What keeps a segment from an ordered subscription: the parents that are not drained for it yet.
//!
//! Facts carry the cursor's generation: one of an older generation changes nothing, one of a newer is kept until the
//! cursor gets there.

use alloc::collections::BTreeMap;

use crate::{Generation, SegmentId};

/// The gate of one (segment, subscription): open once every parent in its list is drained in its generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    generation: Generation,
    /// Per parent the generations in which it is known to be drained: ours, and the newest beyond.
    parents: BTreeMap<SegmentId, Facts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Facts {
    drained: bool,
    newer: Option<Generation>,
}

impl Gate {
    /// A gate with nothing known; open at once if `parents` is empty.
    #[must_use]
    pub fn new(generation: Generation, parents: impl IntoIterator<Item = SegmentId>) -> Self {
        Self { generation, parents: parents.into_iter().map(|parent| (parent, Facts::default())).collect() }
    }

    /// Notes that `parent` is drained in `generation`. True if that opened the gate.
    ///
    /// A segment that is not in the list is no parent and changes nothing: unknown never counts as drained.
    pub fn drained(&mut self, parent: SegmentId, generation: Generation) -> bool {
        let was_open = self.is_open();
        let current = self.generation;
        if let Some(facts) = self.parents.get_mut(&parent) {
            facts.drained |= generation == current;
            facts.newer = facts.newer.max((generation > current).then_some(generation));
        }
        !was_open && self.is_open()
    }

    /// Drops `parent` from the list: it was pruned, which its drain allowed. True if that opened the gate.
    pub fn forget(&mut self, parent: SegmentId) -> bool {
        let was_open = self.is_open();
        self.parents.remove(&parent);
        !was_open && self.is_open()
    }

    /// Whether nothing is waited for.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.parents.values().all(|facts| facts.drained)
    }

    /// The generation whose facts count.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The parents that are waited for, in order.
    pub fn waiting_for(&self) -> impl Iterator<Item = SegmentId> {
        self.parents.iter().filter(|(_, facts)| !facts.drained).map(|(&parent, _)| parent)
    }

    /// The gate at a later generation: closed again but for the facts that name exactly that generation.
    #[must_use]
    pub fn at(&self, generation: Generation) -> Self {
        let parents = self.parents.iter().map(|(&parent, facts)| {
            let newer = facts.newer.filter(|&newer| newer > generation);
            (parent, Facts { drained: facts.newer == Some(generation), newer })
        });
        Self { generation, parents: parents.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SegmentId = SegmentId(1);
    const B: SegmentId = SegmentId(2);

    #[test]
    fn a_gate_opens_when_its_last_parent_is_drained() {
        let mut gate = Gate::new(Generation(5), [A, B]);
        assert!(!gate.drained(A, Generation(5)));
        assert!(!gate.drained(A, Generation(5)));
        assert_eq!(gate.waiting_for().collect::<alloc::vec::Vec<_>>(), [B]);
        assert!(gate.drained(B, Generation(5)));
        assert!(!gate.drained(B, Generation(5)), "it opens once");
        assert!(Gate::new(Generation(5), []).is_open());
    }

    #[test]
    fn a_fact_of_another_generation_or_of_a_stranger_opens_nothing() {
        let mut gate = Gate::new(Generation(5), [A]);
        for (parent, generation) in [(A, 4), (A, 6), (B, 5)] {
            assert!(!gate.drained(parent, Generation(generation)), "{parent} {generation}");
        }
        assert!(!gate.is_open());
    }

    #[test]
    fn a_newer_fact_waits_for_its_generation() {
        let mut gate = Gate::new(Generation(5), [A]);
        gate.drained(A, Generation(5));
        gate.drained(A, Generation(7));
        assert!(gate.is_open());
        assert!(!gate.at(Generation(6)).is_open());
        assert!(gate.at(Generation(7)).is_open());
        assert!(gate.at(Generation(6)).at(Generation(7)).is_open());
        assert!(!gate.at(Generation(8)).is_open());
    }

    #[test]
    fn a_pruned_parent_is_waited_for_no_more() {
        let mut gate = Gate::new(Generation(5), [A, B]);
        gate.drained(A, Generation(5));
        assert!(gate.forget(B));
    }
}
