//! The topic's home: one group per ordered subscription. It spreads sessions over segments and never touches order.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_log::{SegmentKey, Store};
use braid_model::assign::Strategy;
use braid_model::debounce::Debounce;
use braid_model::frontier;
use braid_model::group::{Assignment, Group};
use braid_model::{Generation, Incarnation, Micros, SegmentId, SessionId};
use braid_wire::proto::{self, Code, Refused};

use super::Node;
use super::records::Name;
use super::segment::shape;
use super::session::{Joined, Role, check_name};
use super::topics::unknown_topic;
use crate::ChannelId;

/// One group whose home this node is.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) group: Group,
    pub(super) clock: Debounce,
    pub(super) reported_at: Micros,
    /// The channel and name of each session.
    members: BTreeMap<SessionId, (ChannelId, String)>,
}

impl Home {
    pub(super) fn report(&self, name: &Name) -> proto::GroupReport {
        let report = self.group.report();
        let mut owners: Vec<_> = { report.owners.iter() }
            .map(|(segment, sessions)| proto::SegmentOwners { segment: segment.0, sessions: *sessions })
            .collect();
        owners.sort_by_key(|owners| owners.segment);
        proto::GroupReport {
            subscription: name.to_string(),
            generation: self.group.generation().0,
            home_term: self.group.version().term,
            sessions: report.sessions,
            idle: report.idle,
            owners,
        }
    }
}

impl<S: Store> Node<S> {
    pub(super) fn sessions(&self) -> usize {
        self.homes.values().map(|home| home.members.len()).sum()
    }

    /// A layout is durable: the groups that are here follow it; those that are here no more end.
    pub(super) fn refresh_homes(&mut self, incarnation: Incarnation) {
        let Some(layout) = self.state.topics.layout(incarnation).cloned() else { return };
        let is_home = layout.home_store == self.config.store && !layout.deleted;
        let is_kept = |name: &Name| is_home && layout.subscriptions.iter().any(|spec| *spec.name == **name);
        let over: Vec<Name> = { self.homes.keys() }
            .filter(|(of, name)| *of == incarnation && !is_kept(name))
            .map(|(_, name)| Arc::clone(name))
            .collect();
        for name in over {
            let Some(home) = self.homes.remove(&(incarnation, Arc::clone(&name))) else { continue };
            let refused = if is_home {
                Refused::new(Code::UnknownSubscription, format!("subscription `{name}` was removed"))
            } else {
                Refused::new(Code::NotHome, layout.home_store.clone())
            };
            for (channel, _) in home.members.into_values() {
                self.say(channel, refused.clone());
            }
        }
        if is_home {
            for spec in &layout.subscriptions {
                self.refresh_home(incarnation, &layout, spec);
            }
        }
    }

    fn refresh_home(&mut self, incarnation: Incarnation, layout: &proto::TopicLayout, spec: &proto::SubscriptionSpec) {
        let (now, start) = (self.now, self.state.start);
        let name: Name = spec.name.as_str().into();
        let of = (incarnation, Arc::clone(&name));
        let generation = Generation(spec.generation);
        let held = self.homes.get(&of).map(|home| (home.group.generation(), home.group.version().term));
        let mut news = Vec::new();
        if held != Some((generation, layout.home_term)) {
            let strategy = match spec.assignment() {
                proto::Assignment::Sticky => Strategy::Sticky,
                proto::Assignment::Contiguous => Strategy::Contiguous,
            };
            let before = self.homes.remove(&of);
            // Sessions that are here already need not be waited for: only a home without a past is silent at first.
            let clock = before.as_ref().map_or_else(|| Debounce::new(now), |before| before.clock);
            let mut home = Home {
                group: Group::new(strategy, generation, layout.home_term, start),
                clock,
                reported_at: now,
                members: BTreeMap::new(),
            };
            for (session, (channel, member)) in before.into_iter().flat_map(|before| before.members) {
                // It held no more sessions than fit.
                news.extend(home.group.join(session, &member, &[]).unwrap_or_default());
                home.members.insert(session, (channel, member));
            }
            self.homes.insert(of.clone(), home);
        }
        let nodes = layout.segments.iter().filter_map(node_of).collect();
        let drained: Vec<(SegmentId, Generation)> = { layout.segments.iter() }
            .filter_map(|segment| {
                let id = SegmentId(segment.id);
                Some((id, self.state.drained(SegmentKey { incarnation, segment: id }, &name)?))
            })
            .collect();
        let Some(home) = self.homes.get_mut(&of) else { return };
        news.extend(home.group.layout(nodes));
        for (segment, generation) in drained {
            news.extend(home.group.drained(segment, generation));
        }
        home.clock.changed(now);
        self.tell(incarnation, &name, news);
    }

    pub(super) fn drop_homes(&mut self, incarnation: Incarnation) {
        self.homes.retain(|(of, _), _| *of != incarnation);
    }

    /// A durable fact that concerns a segment of this home's topic.
    pub(super) fn home_drained(&mut self, key: SegmentKey, name: &Name, generation: Generation) {
        let now = self.now;
        if let Some(home) = self.homes.get_mut(&(key.incarnation, Arc::clone(name))) {
            let news = home.group.drained(key.segment, generation);
            home.clock.changed(now);
            self.tell(key.incarnation, name, news);
        }
    }

    pub(super) fn join(&mut self, channel: ChannelId, join: &proto::Join) {
        if let Err(refused) = self.try_join(channel, join) {
            self.say(channel, refused);
        }
    }

    fn try_join(&mut self, channel: ChannelId, join: &proto::Join) -> Result<(), Refused> {
        check_name("subscription", &join.subscription)?;
        check_name("member", &join.member)?;
        let topic = join.topic.clone().unwrap_or_default();
        let incarnation = self.state.topics.resolve(&topic)?;
        let layout = self.state.topics.layout(incarnation).ok_or_else(|| unknown_topic(&topic))?;
        if layout.home_store != self.config.store {
            return Err(Refused::new(Code::NotHome, layout.home_store.clone()));
        }
        let (name, session): (Name, _) = (join.subscription.as_str().into(), SessionId(join.session));
        let (sessions, max) = (self.sessions() as u64, u64::from(self.config.bounds.sessions));
        let now = self.now;
        let Some(home) = self.homes.get_mut(&(incarnation, Arc::clone(&name))) else {
            return Err(Refused::new(Code::UnknownSubscription, format!("subscription `{name}` is not known here")));
        };
        if sessions >= max && !home.members.contains_key(&session) {
            let message = format!("`sessions` would be {}, the bound is {max}", sessions + 1);
            return Err(Refused::mismatch(Code::LimitExceeded, message, max, sessions + 1));
        }
        let held: Vec<SegmentId> = join.held.iter().copied().map(SegmentId).collect();
        let news = home.group.join(session, &join.member, &held).map_err(|e| {
            let braid_model::group::JoinError::TooMany { found, max } = e;
            Refused::mismatch(Code::LimitExceeded, e.to_string(), max as u64, found as u64 + 1)
        })?;
        home.members.insert(session, (channel, join.member.clone()));
        home.clock.changed(now);
        if let Some(Role::Session(joined)) = self.channels.get_mut(&channel).map(|found| &mut found.role) {
            let this = Joined { incarnation, subscription: Arc::clone(&name), session };
            if !joined.contains(&this) {
                joined.push(this);
            }
        }
        self.tell(incarnation, &name, news);
        Ok(())
    }

    pub(super) fn leave_group(&mut self, channel: ChannelId, leave: &proto::LeaveGroup) {
        let topic = leave.topic.clone().unwrap_or_default();
        let Ok(incarnation) = self.state.topics.resolve(&topic) else { return };
        let left =
            Joined { incarnation, subscription: leave.subscription.as_str().into(), session: SessionId(leave.session) };
        if let Some(Role::Session(joined)) = self.channels.get_mut(&channel).map(|found| &mut found.role) {
            joined.retain(|joined| *joined != left);
        }
        self.end_session(channel, &left);
    }

    /// The session left or its stream ended. One that joined again on another stream stays.
    pub(super) fn end_session(&mut self, channel: ChannelId, joined: &Joined) {
        let now = self.now;
        let Some(home) = self.homes.get_mut(&(joined.incarnation, Arc::clone(&joined.subscription))) else { return };
        if home.members.get(&joined.session).is_some_and(|(at, _)| *at == channel) {
            home.members.remove(&joined.session);
            home.clock.changed(now);
            let news = home.group.end(joined.session);
            self.tell(joined.incarnation, &joined.subscription, news);
        }
    }

    fn tell(&mut self, incarnation: Incarnation, name: &Name, news: Vec<Assignment>) {
        let topic = self.state.topics.layout(incarnation).and_then(|layout| layout.topic.clone());
        for Assignment { session, version, segments } in news {
            let Some(home) = self.homes.get(&(incarnation, Arc::clone(name))) else { return };
            let Some((channel, _)) = home.members.get(&session) else { continue };
            let assignment = proto::SessionAssignment {
                topic: topic.clone(),
                subscription: name.to_string(),
                session: session.0,
                home_term: version.term,
                home_start: version.start,
                sequence: version.sequence,
                segments: segments.into_iter().map(|segment| segment.0).collect(),
            };
            self.say(*channel, assignment);
        }
    }
}

fn node_of(segment: &proto::Segment) -> Option<frontier::Node> {
    let (range, buckets) = shape(segment).ok()?;
    let parents = segment.parents.iter().copied().map(SegmentId).collect();
    Some(frontier::Node { id: SegmentId(segment.id), range, buckets, sealed: segment.sealed, parents })
}
