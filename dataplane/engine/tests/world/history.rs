//! What was pushed and what was handed out, and what must never be seen.

use std::collections::BTreeMap;

use braid_engine::consumer::Received;

#[derive(Default)]
pub(crate) struct History {
    /// Per key how many messages were pushed; they are numbered from 1.
    pushed: BTreeMap<String, u64>,
    /// Per key the highest number that was handed out.
    seen: BTreeMap<String, u64>,
    /// The last number of a key within one round of a bucket of one attach.
    rounds: BTreeMap<(u64, u64, u64, u32, u64, String), u64>,
    /// Per segment and bucket the highest owner number that reached an application's sink.
    owners: BTreeMap<(u64, u32), u64>,
    pub(crate) redeliveries: u64,
}

impl History {
    pub(crate) fn push(&mut self, key: &str) -> u64 {
        let pushed = self.pushed.entry(key.to_owned()).or_default();
        *pushed += 1;
        *pushed
    }

    /// A message reached an application of `session`.
    pub(crate) fn take(&mut self, session: u64, received: &Received) {
        let key = String::from_utf8(received.message.key.as_ref().expect("keyed").to_vec()).unwrap();
        let number: u64 = std::str::from_utf8(&received.message.value).unwrap().parse().unwrap();
        let id = received.id;
        let owner = self.owners.entry((id.segment.0, id.bucket)).or_default();
        if received.owner_number < *owner {
            // Revoked, and not yet told so: its sink refuses it.
            return;
        }
        *owner = received.owner_number;
        let seen = self.seen.entry(key.clone()).or_default();
        if number > *seen {
            assert_eq!(number, *seen + 1, "key `{key}`: a first delivery overtook another: {received:?}");
            *seen = number;
        } else {
            assert!(received.redelivered, "key `{key}`: {number} came again and is not marked: {received:?}");
            self.redeliveries += 1;
        }
        let round = (session, id.segment.0, id.attach, id.bucket, id.round, key.clone());
        if let Some(last) = self.rounds.insert(round, number) {
            assert!(last < number, "key `{key}`: {number} after {last} in one round: {received:?}");
        }
    }

    /// How many messages were pushed.
    pub(crate) fn messages(&self) -> u64 {
        self.pushed.values().sum()
    }

    /// What was pushed and never handed out.
    pub(crate) fn missing(&self) -> Vec<(String, u64, u64)> {
        let seen = |key: &String| self.seen.get(key).copied().unwrap_or(0);
        let missing = self.pushed.iter().map(|(key, pushed)| (key.clone(), *pushed, seen(key)));
        missing.filter(|(_, pushed, seen)| pushed != seen).collect()
    }
}
