//! What must hold whatever happens.

use std::collections::BTreeMap;

use braid_engine::consumer::{DeliveryId, Received};
use braid_model::{Offset, SegmentId};

#[derive(Default)]
struct Key {
    /// How many of its messages were delivered; they came as 0, 1, 2, ...
    next: u64,
    /// Member, segment, offset.
    working: Vec<(String, SegmentId, Offset)>,
}

pub(super) struct Promises {
    seed: u64,
    keys: BTreeMap<String, Key>,
    seen: BTreeMap<(SegmentId, Offset), u64>,
}

impl Promises {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, keys: BTreeMap::new(), seen: BTreeMap::new() }
    }

    /// How many different messages were delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.seen.len() as u64
    }

    pub(super) fn delivered_to(&mut self, member: &str, received: &Received) {
        let name = String::from_utf8(received.message.key.as_ref().unwrap().to_vec()).unwrap();
        let number: u64 = std::str::from_utf8(&received.message.value).unwrap().parse().unwrap();
        let (segment, offset) = (received.id.segment, received.id.offset);
        let key = self.keys.entry(name.clone()).or_default();
        let place = format!("seed {}, key {name}, number {number}, {member}, {:?}", self.seed, received.id);
        if self.seen.insert((segment, offset), number).is_none() {
            assert_eq!(number, key.next, "{place}: out of order, lost or doubled");
            key.next += 1;
        } else {
            assert!(received.redelivered, "{place}: delivered again without a mark");
        }
        if received.redelivered {
            key.working.retain(|(other, at, from)| other == member || *at != segment || *from < offset);
        }
        let other = key.working.iter().find(|(other, ..)| other != member);
        assert_eq!(other, None, "{place}: another member is not done");
        key.working.push((member.to_owned(), segment, offset));
    }

    pub(super) fn done(&mut self, member: &str, key: &str, id: &DeliveryId) {
        let working = &mut self.keys.get_mut(key).unwrap().working;
        working.retain(|(who, segment, offset)| who != member || (*segment, *offset) != (id.segment, id.offset));
    }

    pub(super) fn finish(&self, total: u64) {
        let delivered: u64 = self.keys.values().map(|key| key.next).sum();
        assert_eq!(delivered, total, "seed {}", self.seed);
    }
}
