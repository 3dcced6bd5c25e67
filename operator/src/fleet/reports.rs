//! What nodes said of topics: loads, cursors and groups, folded from their reports. Pure; time is an argument.

use std::collections::BTreeMap;

use braid_model::placement::StoreName;
use braid_model::scale::{Policy, Rates, Sample};
use braid_model::{Generation, Incarnation, Micros, SegmentId, SubscriptionName};
use braid_wire::proto;

use crate::name::Name;

/// One life of a topic name.
pub(crate) type Life = (Name, Incarnation);

/// What is known of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentSeen {
    pub(crate) store: StoreName,
    pub(crate) sealed: bool,
    /// The last measured load, from before it was sealed.
    pub(crate) sample: Option<Sample>,
    pub(crate) cursors: BTreeMap<SubscriptionName, CursorSeen>,
}

/// What is known of a segment's cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CursorSeen {
    pub(crate) generation: Generation,
    pub(crate) backlog: u64,
    pub(crate) drained: bool,
}

/// What a home says of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupSeen {
    pub(crate) store: StoreName,
    pub(crate) generation: Generation,
    pub(crate) home_term: u64,
    pub(crate) sessions: u32,
    pub(crate) idle: u32,
    /// Sessions per segment, ascending by segment.
    pub(crate) owners: Vec<(SegmentId, u32)>,
    pub(crate) at: Micros,
}

/// All that nodes said of one life of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicSeen {
    pub(crate) segments: BTreeMap<SegmentId, SegmentSeen>,
    pub(crate) groups: BTreeMap<SubscriptionName, GroupSeen>,
}

impl SegmentSeen {
    /// What it weighs for placement: 1, and 1 more for each hundredth of the default split threshold of its busiest metric.
    pub(crate) fn weight(&self) -> u64 {
        let thresholds = Policy::default().split;
        let hundredths = |rates: Rates| {
            let each = rates.0.iter().zip(&thresholds.0);
            each.map(|(rate, threshold)| u128::from(*rate) * 100 / u128::from((*threshold).max(1))).max().unwrap_or(0)
        };
        let busy = self.sample.map_or(0, |sample| hundredths(sample.rates));
        u64::try_from(busy).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// The reports of every topic, and the weight of what lies on each store.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    topics: BTreeMap<Life, TopicSeen>,
    loads: BTreeMap<StoreName, u64>,
}

impl Reports {
    /// Takes what `store` reports; whether a topic's lap could decide otherwise now: anything but times and backlogs changed.
    pub(crate) fn fold(&mut self, store: &StoreName, report: &proto::Report, now: Micros) -> bool {
        let Some(topic) = &report.topic else { return false };
        let name = Name { namespace: topic.namespace.clone(), name: topic.name.clone() };
        let life = (name, Incarnation(topic.incarnation));
        let mut changed = false;
        for segment in &report.segments {
            changed |= self.fold_segment(&life, store, segment, now);
        }
        let seen = self.topics.entry(life).or_default();
        for group in &report.groups {
            let after = GroupSeen {
                store: store.clone(),
                generation: Generation(group.generation),
                home_term: group.home_term,
                sessions: group.sessions,
                idle: group.idle,
                owners: group.owners.iter().map(|owners| (SegmentId(owners.segment), owners.sessions)).collect(),
                at: now,
            };
            let name = SubscriptionName(group.subscription.clone());
            let before = seen.groups.insert(name, after.clone());
            // A home that is heard again after a silence can end a hold.
            const SILENCE_US: u64 = 10_000_000;
            changed |= before
                .is_none_or(|before| now.since(before.at) > SILENCE_US || GroupSeen { at: now, ..before } != after);
        }
        changed
    }

    fn fold_segment(&mut self, life: &Life, store: &StoreName, report: &proto::SegmentReport, now: Micros) -> bool {
        let segments = &mut self.topics.entry(life.clone()).or_default().segments;
        let before = segments.get(&SegmentId(report.segment)).cloned();
        let was = before.clone().unwrap_or_default();
        let measured = <[u64; 4]>::try_from(report.rates.as_slice()).ok().map(|rates| Sample {
            rates: Rates(rates),
            sampled_at: now,
            cold_since: report.cold_for_us.map(|us| Micros(now.0.saturating_sub(us))),
            estimated: false,
        });
        // The same cold spell, told a few milliseconds off, stays the same: what shows in a status must not flicker.
        const SAME_SPELL_US: u64 = 1_000_000;
        let measured = measured.map(|sample| {
            let before = was.sample.and_then(|before| before.cold_since);
            let same = before.zip(sample.cold_since).filter(|(a, b)| a.0.abs_diff(b.0) < SAME_SPELL_US);
            Sample { cold_since: same.map(|(before, _)| before).or(sample.cold_since), ..sample }
        });
        // What comes after the seal is not the load that the successors take over.
        let sample = if report.sealed { was.sample } else { measured.or(was.sample) };
        let cursor = |cursor: &proto::CursorReport| {
            let seen = CursorSeen {
                generation: Generation(cursor.generation),
                backlog: cursor.backlog_messages,
                drained: cursor.drained,
            };
            (SubscriptionName(cursor.subscription.clone()), seen)
        };
        let mut cursors = was.cursors.clone();
        cursors.extend(report.cursors.iter().map(cursor));
        let after = SegmentSeen { store: store.clone(), sealed: report.sealed, sample, cursors };
        let drained = |seen: &SegmentSeen| {
            seen.cursors
                .iter()
                .map(|(name, cursor)| (name.clone(), cursor.generation, cursor.drained))
                .collect::<Vec<_>>()
        };
        let load = |seen: &SegmentSeen| seen.sample.map(|sample| (sample.rates, sample.cold_since.is_some()));
        let silent = was.sample.is_none_or(|sample| now.since(sample.sampled_at) > 10_000_000);
        let changed = before.is_none()
            || was.sealed != after.sealed
            || load(&was) != load(&after)
            || drained(&was) != drained(&after)
            || (silent && !report.sealed && measured.is_some());
        self.put(life, SegmentId(report.segment), after);
        changed
    }

    /// Segments that were planned or committed weigh on their stores before a node has reported them.
    pub(crate) fn expect<'a>(&mut self, life: &Life, segments: impl Iterator<Item = (SegmentId, &'a StoreName)>) {
        for (id, store) in segments {
            if !self.topics.get(life).is_some_and(|seen| seen.segments.contains_key(&id)) {
                self.put(life, id, SegmentSeen { store: store.clone(), ..SegmentSeen::default() });
            }
        }
    }

    fn put(&mut self, life: &Life, id: SegmentId, segment: SegmentSeen) {
        let heavy = |segment: &SegmentSeen| if segment.sealed { 0 } else { segment.weight() };
        *self.loads.entry(segment.store.clone()).or_default() += heavy(&segment);
        if let Some(before) = self.topics.entry(life.clone()).or_default().segments.insert(id, segment) {
            self.lighten(&before.store, heavy(&before));
        }
    }

    fn lighten(&mut self, store: &StoreName, weight: u64) {
        if let Some(load) = self.loads.get_mut(store) {
            *load = load.saturating_sub(weight);
        }
    }

    /// Drops what is known of topics of that name but of this life.
    pub(crate) fn forget(&mut self, name: &Name, but: Option<Incarnation>) {
        let gone: Vec<Life> =
            self.topics.keys().filter(|(other, life)| other == name && Some(*life) != but).cloned().collect();
        for life in gone {
            for segment in self.topics.remove(&life).unwrap_or_default().segments.into_values() {
                if !segment.sealed {
                    self.lighten(&segment.store, segment.weight());
                }
            }
        }
    }

    pub(crate) fn topic(&self, life: &Life) -> TopicSeen {
        self.topics.get(life).cloned().unwrap_or_default()
    }

    /// The weights of all active segments on a store, added up.
    pub(crate) fn load(&self, store: &StoreName) -> u64 {
        self.loads.get(store).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life() -> Life {
        (Name { namespace: "n".into(), name: "t".into() }, Incarnation(7))
    }

    fn report(segments: Vec<proto::SegmentReport>, groups: Vec<proto::GroupReport>) -> proto::Report {
        let topic = proto::TopicRef { namespace: "n".into(), name: "t".into(), incarnation: 7 };
        proto::Report { topic: Some(topic), segments, groups }
    }

    fn segment(id: u64, rates: &[u64], sealed: bool) -> proto::SegmentReport {
        proto::SegmentReport { segment: id, rates: rates.to_vec(), sealed, ..proto::SegmentReport::default() }
    }

    #[test]
    fn only_what_a_lap_could_decide_on_wakes_it() {
        let mut reports = Reports::default();
        let store = StoreName::from("n-0");
        let cursor = |drained, backlog| proto::CursorReport {
            subscription: "s".into(),
            generation: 1,
            backlog_messages: backlog,
            drained,
        };
        let with = |cursors| proto::SegmentReport { cursors, ..segment(0, &[5, 0, 0, 0], false) };
        let rows = [
            (report(vec![segment(0, &[], false)], vec![]), true),
            (report(vec![segment(0, &[], false)], vec![]), false),
            (report(vec![segment(0, &[5, 0, 0, 0], false)], vec![]), true),
            (report(vec![segment(0, &[5, 0, 0, 0], false)], vec![]), false),
            (report(vec![with(vec![cursor(false, 3)])], vec![]), true),
            (report(vec![with(vec![cursor(false, 9)])], vec![]), false),
            (report(vec![with(vec![cursor(true, 0)])], vec![]), true),
            (
                report(
                    vec![],
                    vec![proto::GroupReport { subscription: "s".into(), sessions: 2, ..Default::default() }],
                ),
                true,
            ),
            (
                report(
                    vec![],
                    vec![proto::GroupReport { subscription: "s".into(), sessions: 2, ..Default::default() }],
                ),
                false,
            ),
            (
                report(
                    vec![],
                    vec![proto::GroupReport { subscription: "s".into(), sessions: 3, ..Default::default() }],
                ),
                true,
            ),
            (proto::Report::default(), false),
        ];
        for (i, (report, wakes)) in rows.iter().enumerate() {
            assert_eq!(reports.fold(&store, report, Micros(i as u64)), *wakes, "row {i}");
        }
    }

    #[test]
    fn the_load_of_a_sealed_segment_is_that_before_its_seal() {
        let mut reports = Reports::default();
        let store = StoreName::from("n-0");
        reports.fold(&store, &report(vec![segment(0, &[30_000, 0, 0, 0], false)], vec![]), Micros(1));
        assert_eq!(reports.load(&store), 301);
        reports.fold(&store, &report(vec![segment(0, &[0, 0, 0, 0], true)], vec![]), Micros(2));
        let seen = reports.topic(&life()).segments[&SegmentId(0)].clone();
        assert_eq!(
            seen.sample.map(|sample| (sample.rates, sample.sampled_at)),
            Some((Rates([30_000, 0, 0, 0]), Micros(1)))
        );
        assert_eq!(reports.load(&store), 0);
    }

    #[test]
    fn what_is_expected_weighs_until_it_is_reported_or_forgotten() {
        let mut reports = Reports::default();
        let (a, b) = (StoreName::from("n-0"), StoreName::from("n-1"));
        reports.expect(&life(), [(SegmentId(0), &a), (SegmentId(1), &b)].into_iter());
        reports.expect(&life(), [(SegmentId(0), &a)].into_iter());
        assert_eq!((reports.load(&a), reports.load(&b)), (1, 1));
        reports.fold(&a, &report(vec![segment(0, &[100, 0, 0, 0], false)], vec![]), Micros(1));
        assert_eq!(reports.load(&a), 2);
        reports.forget(&life().0, Some(Incarnation(7)));
        assert_eq!(reports.load(&a), 2);
        reports.forget(&life().0, None);
        assert_eq!((reports.load(&a), reports.load(&b)), (0, 0));
    }
}
