//! Where a new segment goes. Pure: it knows stores by name and weight, never pods or addresses.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::SegmentId;

/// The name of a store: where a segment's data lies, whichever pod has it open.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreName(pub String);

impl StoreName {
    /// The trailing number of the name (`braid-node-12` has 12); the highest number if it has none or a longer one.
    #[must_use]
    pub fn ordinal(&self) -> u64 {
        let digits = self.0.len() - self.0.bytes().rev().take_while(u8::is_ascii_digit).count();
        self.0[digits..].parse().unwrap_or(u64::MAX)
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&str> for StoreName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

/// A store as the placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub store: StoreName,
    /// Whether a node has it open and the operator has a link to that node. Others get no new segment.
    pub connected: bool,
    /// The weights of all active segments on it, of every topic, added up.
    pub load: u64,
}

/// The stores that a topic can use, and what its segments weigh. The unit of weight is the caller's; an idle segment
/// weighs 1, and so does one that `weights` does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// The stores, in any order, each once.
    pub stores: Vec<Host>,
    /// What active segments of this topic weigh.
    pub weights: BTreeMap<SegmentId, u64>,
}

impl Hosts {
    /// Whether that store is known and connected.
    #[must_use]
    pub fn is_connected(&self, store: &StoreName) -> bool {
        self.stores.iter().any(|host| host.connected && host.store == *store)
    }

    /// What a segment weighs, at least 1.
    #[must_use]
    pub fn weight(&self, id: SegmentId) -> u64 {
        self.weights.get(&id).copied().unwrap_or(1).max(1)
    }
}

/// A segment that looks for a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// What it will weigh.
    pub weight: u64,
    /// The store of its (first) parent, which wins a tie.
    pub parent_store: Option<StoreName>,
    /// Children of one split have the same number and go to different stores while there are enough.
    pub apart: Option<SegmentId>,
}

/// The store of each guest, in order: the connected one with the least load, a guest's own weight counted once it is
/// placed; ties go to the parent's store, then the lowest ordinal, then the name. `None` if no store is connected.
#[must_use]
pub fn place(hosts: &[Host], guests: &[Guest]) -> Option<Vec<StoreName>> {
    let mut loads: Vec<(&StoreName, u64)> =
        hosts.iter().filter(|host| host.connected).map(|host| (&host.store, host.load)).collect();
    let mut placed: Vec<StoreName> = Vec::with_capacity(guests.len());
    for guest in guests {
        let siblings = |store: &StoreName| {
            let sits = |(other, name): (&Guest, &StoreName)| other.apart == guest.apart && name == store;
            guest.apart.map_or(0, |_| guests.iter().zip(&placed).filter(|pair| sits(*pair)).count())
        };
        let (store, load) = loads.iter_mut().min_by_key(|(store, load)| {
            (siblings(store), *load, guest.parent_store.as_ref() != Some(*store), store.ordinal(), *store)
        })?;
        *load = load.saturating_add(guest.weight);
        placed.push((*store).clone());
    }
    Some(placed)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn hosts(loads: &[(&str, u64)]) -> Vec<Host> {
        loads.iter().map(|(name, load)| Host { store: (*name).into(), connected: true, load: *load }).collect()
    }

    fn guest(weight: u64, parent_store: Option<&str>, apart: Option<u64>) -> Guest {
        Guest { weight, parent_store: parent_store.map(Into::into), apart: apart.map(SegmentId) }
    }

    #[track_caller]
    fn check(loads: &[(&str, u64)], guests: &[Guest], expected: &[&str]) {
        let placed = place(&hosts(loads), guests).unwrap();
        assert_eq!(placed.iter().map(|store| store.0.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_segment_goes_to_the_least_load_then_its_parents_store_then_the_lowest_ordinal() {
        check(&[("n-0", 5), ("n-1", 4), ("n-2", 6)], &[guest(1, Some("n-0"), None)], &["n-1"]);
        check(&[("n-0", 5), ("n-1", 5), ("n-2", 5)], &[guest(1, Some("n-2"), None)], &["n-2"]);
        check(&[("n-10", 5), ("n-9", 5), ("n-11", 5)], &[guest(1, None, None)], &["n-9"]);
        check(&[("b", 5), ("a", 5)], &[guest(1, None, None)], &["a"]);
    }

    #[test]
    fn a_placed_segment_weighs_on_its_store() {
        let guests = [guest(3, None, None), guest(1, None, None), guest(1, None, None), guest(9, None, None)];
        check(&[("n-0", 0), ("n-1", 1)], &guests, &["n-0", "n-1", "n-1", "n-0"]);
    }

    #[test]
    fn children_of_one_split_go_apart_while_there_are_stores() {
        let two = [guest(1, Some("n-0"), Some(7)), guest(1, Some("n-0"), Some(7))];
        check(&[("n-0", 0), ("n-1", 900)], &two, &["n-0", "n-1"]);
        let four = vec![guest(1, None, Some(7)); 4];
        check(&[("n-0", 0), ("n-1", 900), ("n-2", 1)], &four, &["n-0", "n-2", "n-1", "n-0"]);
    }

    #[test]
    fn a_store_that_is_not_connected_gets_nothing() {
        let mut hosts = hosts(&[("n-0", 0), ("n-1", 9)]);
        hosts[0].connected = false;
        assert_eq!(place(&hosts, &[guest(1, Some("n-0"), None)]), Some(vec!["n-1".into()]));
        hosts[1].connected = false;
        assert_eq!(place(&hosts, &[guest(1, None, None)]), None);
    }

    #[test]
    fn an_ordinal_is_the_trailing_number() {
        for (name, ordinal) in [("braid-node-12", 12), ("0", 0), ("n", u64::MAX), ("", u64::MAX), ("n-1x", u64::MAX)] {
            assert_eq!(StoreName::from(name).ordinal(), ordinal, "`{name}`");
        }
    }
}
