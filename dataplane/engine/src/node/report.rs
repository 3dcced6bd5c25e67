//! What the operator hears: loads as the sampler finds them due, cursors, and groups once they are still.

use std::collections::BTreeMap;

use braid_log::Store;
use braid_model::scale::{Policy, REPORT_INTERVAL_US, Rates, Sampler};
use braid_model::{Incarnation, Micros};
use braid_wire::proto;

use super::Node;
use super::segment::Segment;
use super::session::Role;
use crate::ChannelId;

const SECOND_US: u64 = 1_000_000;

/// When the last second of measuring ended, and the next does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    last: Micros,
    /// Something is news: it is reported without waiting for the second to end.
    pub(super) is_urgent: bool,
}

impl Clock {
    pub(super) const fn new(now: Micros) -> Self {
        Self { last: now, is_urgent: false }
    }

    const fn next(self) -> Micros {
        Micros(self.last.0 + SECOND_US)
    }
}

/// Reports that are being put together, by topic.
type Drafts = BTreeMap<Incarnation, (Vec<proto::SegmentReport>, Vec<proto::GroupReport>)>;

impl<S: Store> Node<S> {
    pub(super) fn next_report(&self) -> Option<Micros> {
        let second = (!self.state.segments.is_empty() || !self.homes.is_empty()).then(|| self.clock.next());
        let urgent = self.clock.is_urgent.then_some(self.now);
        self.homes.values().filter_map(|home| home.clock.due()).chain(second).chain(urgent).min()
    }

    /// A topic's policy or its segments changed.
    pub(super) fn retune(&mut self, incarnation: Incarnation) {
        let policy = self.state.topics.layout(incarnation).and_then(|layout| layout.load_policy.as_ref());
        let policy = policy.map_or_else(Policy::default, policy_of);
        for (_, segment) in self.state.of_mut(incarnation) {
            match &mut segment.load.sampler {
                Some(sampler) => sampler.retune(&policy),
                none => *none = Some(Sampler::new(&policy)),
            }
        }
    }

    /// Ends a second of measuring if it is over, and reports what is due.
    pub(super) fn report_due(&mut self) {
        let now = self.now;
        let elapsed = now.since(self.clock.last);
        let is_over = elapsed >= SECOND_US;
        let mut drafts = Drafts::new();
        if !is_over
            && !std::mem::take(&mut self.clock.is_urgent)
            && self.homes.values().all(|home| home.clock.due().is_none_or(|due| due > now))
        {
            return;
        }
        if is_over {
            self.clock.last = now;
        }
        for segment in self.state.segments.values_mut() {
            if is_over {
                measure(segment, elapsed, now);
            }
            if std::mem::take(&mut segment.load.is_news) | (is_over && is_due(segment, now)) {
                segment.load.reported_at = now;
                drafts.entry(segment.key.incarnation).or_default().0.push(segment_report(segment, now));
            }
        }
        for ((incarnation, name), home) in &mut self.homes {
            let is_due = home.clock.take(now) || now.since(home.reported_at) >= REPORT_INTERVAL_US;
            if is_due && home.clock.speaks(now) {
                home.reported_at = now;
                drafts.entry(*incarnation).or_default().1.push(home.report(name));
            }
        }
        let operators: Vec<ChannelId> = { self.channels.iter() }
            .filter(|(_, channel)| matches!(channel.role, Role::Control))
            .map(|(channel, _)| *channel)
            .collect();
        self.send_reports(&operators, drafts);
    }

    /// Everything there is, for an operator that just connected.
    pub(super) fn report_everything(&mut self, channel: ChannelId) {
        let now = self.now;
        let mut drafts = Drafts::new();
        for segment in self.state.segments.values() {
            drafts.entry(segment.key.incarnation).or_default().0.push(segment_report(segment, now));
        }
        for ((incarnation, name), home) in &self.homes {
            let groups = &mut drafts.entry(*incarnation).or_default().1;
            if home.clock.speaks(now) {
                groups.push(home.report(name));
            }
        }
        self.send_reports(&[channel], drafts);
    }

    fn send_reports(&mut self, operators: &[ChannelId], drafts: Drafts) {
        for (incarnation, (segments, groups)) in drafts {
            let here = || self.state.of(incarnation).next().map(|segment| segment.topic.clone());
            let told = self.state.topics.layout(incarnation).and_then(|layout| layout.topic.clone());
            let report = proto::Report { topic: told.or_else(here), segments, groups };
            for channel in operators {
                // Ends and cursors that are reported must be durable.
                self.say_durably(*channel, report.clone());
            }
        }
    }
}

/// One more second of rates; a sealed segment's sample no longer matters.
fn measure(segment: &mut Segment, elapsed_us: u64, now: Micros) {
    let counts = std::mem::take(&mut segment.load.counts);
    if let Some(sampler) = segment.load.sampler.as_mut().filter(|_| segment.seal.is_none()) {
        let rate = |count: u64| (u128::from(count) * u128::from(SECOND_US) / u128::from(elapsed_us.max(1))) as u64;
        sampler.push(Rates(counts.map(rate)), now);
    }
}

fn is_due(segment: &mut Segment, now: Micros) -> bool {
    let is_late = now.since(segment.load.reported_at) >= REPORT_INTERVAL_US;
    match &mut segment.load.sampler {
        Some(sampler) if segment.seal.is_none() => sampler.report_due(now).is_some() || is_late,
        // What is drained for everybody has nothing more to say.
        _ => is_late && !segment.subscriptions.values().all(|found| found.shown_drained),
    }
}

fn segment_report(segment: &Segment, now: Micros) -> proto::SegmentReport {
    let sampler = segment.load.sampler.as_ref().filter(|_| segment.seal.is_none());
    let sample = sampler.and_then(Sampler::sample);
    proto::SegmentReport {
        segment: segment.key.segment.0,
        sealed: segment.is_sealed(),
        end_offset: segment.end.0,
        rates: sample.map(|sample| sample.rates.0.to_vec()).unwrap_or_default(),
        cold_for_us: sample.and_then(|sample| sample.cold_since).map(|since| now.since(since)),
        cursors: segment.subscriptions.values().map(|found| found.report(segment.end)).collect(),
    }
}

fn policy_of(told: &proto::LoadPolicy) -> Policy {
    let default = Policy::default();
    let rates = |told: &[u64], or: Rates| <[u64; 4]>::try_from(told).map_or(or, Rates);
    Policy {
        split: rates(&told.split_thresholds, default.split),
        merge: rates(&told.merge_thresholds, default.merge),
        load_window_seconds: if told.window_seconds == 0 {
            default.load_window_seconds
        } else {
            u64::from(told.window_seconds)
        },
        ..default
    }
}
