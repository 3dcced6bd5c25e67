//! Who reads which segment of a topic, for one ordered subscription: the group on the topic's home node.
//!
//! It only spreads work: order is kept by each segment's dispatcher, whatever a group says. Pure: joins, ends, layouts and
//! drained facts in, assignments out. Knows no buckets' owners, no cursors and no connections.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::assign::Strategy;
use crate::frontier::{Node, frontier};
use crate::spread::spread;
use crate::{Generation, SegmentId, SessionId};

/// The most sessions of one group.
pub const SESSIONS_MAX: usize = 4_096;

/// Orders the assignments of a subscription over all homes it ever had; the lower one is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Raised by the write that moves the home.
    pub term: u64,
    /// Raised durably each time the home's store opens.
    pub start: u64,
    /// Raised with every change of the group.
    pub sequence: u64,
}

/// What one session is to read, instead of all it read before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Whose it is.
    pub session: SessionId,
    /// Which of its assignments counts.
    pub version: Version,
    /// The segments, by (range, id); empty: it is idle.
    pub segments: Vec<SegmentId>,
}

/// What the operator hears of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sessions, idle ones included.
    pub sessions: u32,
    /// Those that read nothing.
    pub idle: u32,
    /// How many sessions read each segment that is not drained, by (range, id): 0 behind an undrained parent.
    pub owners: Vec<(SegmentId, u32)>,
    /// How many sessions could read: the sum of N over the active segments.
    pub max_useful: u64,
}

/// A session was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Too many.
    #[error("`{found}` sessions, the most is {max}")]
    TooMany {
        /// How many there are.
        found: usize,
        /// [`SESSIONS_MAX`].
        max: usize,
    },
}

#[derive(Clone, Debug)]
struct Session {
    name: String,
    /// What it was told to read, or showed when it joined.
    segments: Vec<SegmentId>,
    /// It has been told.
    is_told: bool,
}

/// The group of one (topic, ordered subscription).
#[derive(Clone, Debug)]
pub struct Group {
    strategy: Strategy,
    generation: Generation,
    version: Version,
    sessions: BTreeMap<SessionId, Session>,
    nodes: Vec<Node>,
    drained: BTreeSet<SegmentId>,
}

impl Group {
    /// A group without sessions on a home of this term and start; `generation` is the subscription's.
    #[must_use]
    pub fn new(strategy: Strategy, generation: Generation, term: u64, start: u64) -> Self {
        Self {
            strategy,
            generation,
            version: Version { term, start, sequence: 0 },
            sessions: BTreeMap::new(),
            nodes: Vec::new(),
            drained: BTreeSet::new(),
        }
    }

    /// Takes a session in, or again: `shown` is what it reads now, so a moved home changes nobody's work.
    ///
    /// Returns who must be told: the session itself, always, and those whose work changed.
    ///
    /// # Errors
    /// More sessions than [`SESSIONS_MAX`]; nothing changed.
    pub fn join(&mut self, session: SessionId, name: &str, shown: &[SegmentId]) -> Result<Vec<Assignment>, JoinError> {
        if self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(&session) {
            return Err(JoinError::TooMany { found: self.sessions.len(), max: SESSIONS_MAX });
        }
        let segments = match self.sessions.remove(&session) {
            Some(known) => known.segments,
            None => shown.to_vec(),
        };
        self.sessions.insert(session, Session { name: name.into(), segments, is_told: false });
        Ok(self.reassign())
    }

    /// Takes in sessions that come back together, each with its name and what it reads now, before it assigns anything: so the
    /// first does not get what the others hold. Those beyond [`SESSIONS_MAX`] are left out. Returns who must be told.
    pub fn join_all<'a>(
        &mut self,
        sessions: impl IntoIterator<Item = (SessionId, &'a str, &'a [SegmentId])>,
    ) -> Vec<Assignment> {
        for (session, name, shown) in sessions {
            if self.sessions.len() < SESSIONS_MAX {
                let session_of = |segments: Vec<SegmentId>| Session { name: name.into(), segments, is_told: false };
                self.sessions.entry(session).or_insert_with(|| session_of(shown.to_vec()));
            }
        }
        self.reassign()
    }

    /// The session left, was reset or timed out. Returns who must be told.
    pub fn end(&mut self, session: SessionId) -> Vec<Assignment> {
        match self.sessions.remove(&session) {
            Some(_) => self.reassign(),
            None => Vec::new(),
        }
    }

    /// The topic has this layout now. Returns who must be told.
    pub fn layout(&mut self, nodes: Vec<Node>) -> Vec<Assignment> {
        let known: BTreeSet<SegmentId> = nodes.iter().map(|node| node.id).collect();
        self.drained.retain(|segment| known.contains(segment));
        self.nodes = nodes;
        self.reassign()
    }

    /// A segment is drained for this subscription; a fact of another generation changes nothing. Returns who must be told.
    pub fn drained(&mut self, segment: SegmentId, generation: Generation) -> Vec<Assignment> {
        if generation != self.generation || !self.nodes.iter().any(|node| node.id == segment) {
            return Vec::new();
        }
        if self.drained.insert(segment) { self.reassign() } else { Vec::new() }
    }

    /// What the operator is to know.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut owners: Vec<&Node> =
            self.nodes.iter().filter(|node| !(node.sealed && self.drained.contains(&node.id))).collect();
        owners.sort_by_key(|node| (node.range.start(), node.range.end(), node.id));
        let mut readers: BTreeMap<SegmentId, u32> = BTreeMap::new();
        for segment in self.sessions.values().flat_map(|session| &session.segments) {
            *readers.entry(*segment).or_default() += 1;
        }
        let active = self.nodes.iter().filter(|node| !node.sealed);
        Report {
            sessions: self.sessions.len() as u32,
            idle: self.sessions.values().filter(|session| session.segments.is_empty()).count() as u32,
            owners: owners.iter().map(|node| (node.id, readers.get(&node.id).copied().unwrap_or(0))).collect(),
            max_useful: active.map(|node| u64::from(node.buckets.count())).sum(),
        }
    }

    /// The generation whose facts count.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The last version that was told.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// What a session reads; `None` if it is not here.
    #[must_use]
    pub fn segments(&self, session: SessionId) -> Option<&[SegmentId]> {
        self.sessions.get(&session).map(|session| session.segments.as_slice())
    }

    fn reassign(&mut self) -> Vec<Assignment> {
        let open: Vec<&Node> = {
            let open = frontier(&self.nodes, |segment| self.drained.contains(&segment));
            open.into_iter().map(|i| &self.nodes[i]).collect()
        };
        let place: BTreeMap<SegmentId, usize> = open.iter().enumerate().map(|(i, node)| (node.id, i)).collect();
        let buckets: Vec<u32> = open.iter().map(|node| node.buckets.count()).collect();
        let mut members: Vec<(&str, SessionId)> = Vec::with_capacity(self.sessions.len());
        let mut held = BTreeMap::new();
        for (&id, session) in &self.sessions {
            let member = (session.name.as_str(), id);
            members.push(member);
            held.insert(member, session.segments.iter().filter_map(|segment| place.get(segment).copied()).collect());
        }
        let shares: Vec<(SessionId, Vec<SegmentId>)> = spread(self.strategy, &buckets, &members, &held)
            .into_iter()
            .map(|((_, id), share)| (id, share.into_iter().map(|i| open[i].id).collect()))
            .collect();
        let version = Version { sequence: self.version.sequence + 1, ..self.version };
        let mut news = Vec::new();
        for (id, segments) in shares {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if session.is_told && session.segments == segments {
                continue;
            }
            session.is_told = true;
            session.segments.clone_from(&segments);
            news.push(Assignment { session: id, version, segments });
        }
        if !news.is_empty() {
            self.version = version;
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::{Buckets, HashRange};

    const NOW: Generation = Generation(9);

    fn node(id: u64, n: u32, sealed: bool, parents: &[u64]) -> Node {
        let parents = parents.iter().map(|&id| SegmentId(id)).collect();
        Node { id: SegmentId(id), range: HashRange::FULL, buckets: Buckets::new(n).unwrap(), sealed, parents }
    }

    fn group(sessions: u64) -> Group {
        let mut group = Group::new(Strategy::Sticky, NOW, 3, 7);
        group.layout(vec![node(0, 4, false, &[])]);
        for id in 0..sessions {
            group.join(SessionId(id), "consumer", &[]).unwrap();
        }
        group
    }

    fn owners(group: &Group) -> Vec<(u64, u32)> {
        group.report().owners.into_iter().map(|(id, owners)| (id.0, owners)).collect()
    }

    #[test]
    fn five_consumers_at_a_rollover_read_the_parent_by_four_and_then_the_successor_by_five() {
        let mut group = group(5);
        assert_eq!((owners(&group), group.report().idle, group.report().max_useful), (vec![(0, 4)], 1, 4));
        let news = group.layout(vec![node(0, 4, true, &[]), node(1, 8, false, &[0])]);
        assert_eq!(news, [], "nobody moves while the parent has backlog");
        assert_eq!((owners(&group), group.report().idle, group.report().max_useful), (vec![(0, 4), (1, 0)], 1, 8));
        assert_eq!(group.drained(SegmentId(0), Generation(8)), [], "an older generation");
        assert_eq!(group.drained(SegmentId(0), NOW).len(), 5);
        assert_eq!((owners(&group), group.report().idle), (vec![(1, 5)], 0));
        assert_eq!(group.drained(SegmentId(0), NOW), [], "it retires once");
    }

    #[test]
    fn an_empty_middle_generation_waits_for_its_parent() {
        let mut group = group(1);
        group.layout(vec![node(0, 4, true, &[]), node(1, 4, true, &[0]), node(2, 4, false, &[1])]);
        assert_eq!(group.drained(SegmentId(1), NOW), []);
        assert_eq!(owners(&group), [(0, 1), (2, 0)]);
        group.drained(SegmentId(0), NOW);
        assert_eq!(owners(&group), [(2, 1)]);
    }

    #[test]
    fn every_assignment_of_a_home_is_above_the_one_before() {
        let mut group = Group::new(Strategy::Sticky, NOW, 3, 7);
        group.layout(vec![node(0, 1, false, &[]), node(1, 1, false, &[])]);
        let first = group.join(SessionId(1), "a", &[]).unwrap();
        let second = group.join(SessionId(2), "b", &[]).unwrap();
        let version = |sequence| Version { term: 3, start: 7, sequence };
        let told = |session, sequence, segments: &[u64]| Assignment {
            session: SessionId(session),
            version: version(sequence),
            segments: segments.iter().map(|&id| SegmentId(id)).collect(),
        };
        assert_eq!(first, [told(1, 1, &[0, 1])]);
        assert_eq!(second, [told(1, 2, &[0]), told(2, 2, &[1])]);
        assert_eq!(group.end(SessionId(1)), [told(2, 3, &[0, 1])]);
        assert_eq!(group.end(SessionId(1)), [], "an ended session changes nothing");
        assert!(
            Version { term: 3, start: 8, sequence: 0 } > version(9)
                && Version { term: 4, start: 0, sequence: 0 } > version(9)
        );
    }

    #[test]
    fn a_moved_home_changes_nobodys_work() {
        let mut old = group(3);
        let segments = vec![node(0, 4, false, &[]), node(1, 4, false, &[])];
        old.layout(segments.clone());
        old.end(SessionId(0));
        old.join(SessionId(7), "consumer", &[]).unwrap();
        let held: Vec<_> = [1, 2, 7].map(|id| (SessionId(id), old.segments(SessionId(id)).unwrap().to_vec())).into();
        let mut new = Group::new(Strategy::Sticky, NOW, 4, 1);
        new.layout(segments);
        for (session, segments) in held.iter().rev() {
            new.join(*session, "consumer", segments).unwrap();
        }
        for (session, segments) in held {
            assert_eq!(new.segments(session), Some(segments.as_slice()), "{session}");
        }
    }
}
