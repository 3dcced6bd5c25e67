//! The topic's home: one group per ordered subscription. It spreads sessions over segments and never touches order.

use std::collections::{BTreeMap, BTreeSet};
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

/// A home that others had before, or that was away, first hears what its members hold; only then it assigns.
const GATHER_US: u64 = 1_500_000;

/// One group whose home this node is.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) group: Group,
    pub(super) clock: Debounce,
    pub(super) reported_at: Micros,
    /// Until then nobody is told anything: members that are coming back show what they hold, and go on with it.
    gathers_until: Option<Micros>,
    /// Those who came so far, with their name and what they hold.
    gathered: BTreeMap<SessionId, (String, Vec<SegmentId>)>,
    members: BTreeMap<SessionId, Member>,
}

/// A session that joined. Streams keep no order among each other: a join on one that its client gave up may come after the
/// one that counts, so a session has several, is told on all, and ends with the last.
#[derive(Debug)]
struct Member {
    name: String,
    channels: BTreeSet<ChannelId>,
}

impl Home {
    /// Takes everyone in who was waited for.
    fn take_gathered(&mut self) -> Vec<Assignment> {
        let gathered = std::mem::take(&mut self.gathered);
        let came = gathered.iter().map(|(session, (name, held))| (*session, name.as_str(), held.as_slice()));
        if gathered.is_empty() { Vec::new() } else { self.group.join_all(came) }
    }

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

    /// A layout is durable: the groups that are here follow it; those that are here no more end. `is_back`: so were they in
    /// a former life of the store.
    pub(super) fn refresh_homes(&mut self, incarnation: Incarnation, is_back: bool) {
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
            for channel in home.members.into_values().flat_map(|member| member.channels) {
                self.say(channel, refused.clone());
            }
        }
        if is_home {
            for spec in &layout.subscriptions {
                self.refresh_home(incarnation, &layout, spec, is_back);
            }
        }
    }

    fn refresh_home(
        &mut self,
        incarnation: Incarnation,
        layout: &proto::TopicLayout,
        spec: &proto::SubscriptionSpec,
        is_back: bool,
    ) {
        let (now, start) = (self.now, self.state.start);
        let name: Name = spec.name.as_str().into();
        let of = (incarnation, Arc::clone(&name));
        let generation = Generation(spec.generation);
        let held = self.homes.get(&of).map(|home| (home.group.generation(), home.group.version().term));
        if held != Some((generation, layout.home_term)) {
            let strategy = match spec.assignment() {
                proto::Assignment::Sticky => Strategy::Sticky,
                proto::Assignment::Contiguous => Strategy::Contiguous,
            };
            let group = Group::new(strategy, generation, layout.home_term, start);
            let home = match self.homes.remove(&of) {
                // Those who are here stay, with what they read: they are assigned below, all at once.
                Some(mut before) => {
                    for (session, member) in &before.members {
                        let held = before.group.segments(*session).unwrap_or_default().to_vec();
                        before.gathered.entry(*session).or_insert_with(|| (member.name.clone(), held));
                    }
                    Home { group, ..before }
                }
                None => Home {
                    group,
                    clock: Debounce::new(now),
                    reported_at: now,
                    gathers_until: (is_back || layout.home_term > 1).then(|| Micros(now.0 + GATHER_US)),
                    gathered: BTreeMap::new(),
                    members: BTreeMap::new(),
                },
            };
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
        let mut news = home.group.layout(nodes);
        for (segment, generation) in drained {
            news.extend(home.group.drained(segment, generation));
        }
        if home.gathers_until.is_none() {
            news.extend(home.take_gathered());
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
        let news = if home.gathers_until.is_some() {
            home.gathered.insert(session, (join.member.clone(), held));
            Vec::new()
        } else {
            home.group.join(session, &join.member, &held).map_err(|e| {
                let braid_model::group::JoinError::TooMany { found, max } = e;
                Refused::mismatch(Code::LimitExceeded, e.to_string(), max as u64, found as u64 + 1)
            })?
        };
        let fresh = || Member { name: join.member.clone(), channels: BTreeSet::new() };
        home.members.entry(session).or_insert_with(fresh).channels.insert(channel);
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
        // It says so itself: whatever other stream it has does not count any more.
        let home = self.homes.get_mut(&(incarnation, Arc::clone(&left.subscription)));
        if let Some(member) = home.and_then(|home| home.members.get_mut(&left.session)) {
            member.channels = BTreeSet::from([channel]);
        }
        self.end_session(channel, &left);
    }

    /// A stream of the session ended, and with its last one the session.
    pub(super) fn end_session(&mut self, channel: ChannelId, joined: &Joined) {
        let now = self.now;
        let Some(home) = self.homes.get_mut(&(joined.incarnation, Arc::clone(&joined.subscription))) else { return };
        let Some(member) = home.members.get_mut(&joined.session) else { return };
        if member.channels.remove(&channel) && member.channels.is_empty() {
            home.members.remove(&joined.session);
            home.gathered.remove(&joined.session);
            home.clock.changed(now);
            let news = home.group.end(joined.session);
            self.tell(joined.incarnation, &joined.subscription, news);
        }
    }

    pub(super) fn next_gathered(&self) -> Option<Micros> {
        self.homes.values().filter_map(|home| home.gathers_until).min()
    }

    /// Homes that have heard enough tell every member what to read.
    pub(super) fn gathered(&mut self) {
        let now = self.now;
        let done = |home: &Home| home.gathers_until.is_some_and(|until| until <= now);
        let names = self.homes.iter().filter(|(_, home)| done(home)).map(|(of, _)| of.clone());
        for (incarnation, name) in names.collect::<Vec<_>>() {
            let Some(home) = self.homes.get_mut(&(incarnation, Arc::clone(&name))) else { continue };
            home.gathers_until = None;
            let news = home.take_gathered();
            self.tell(incarnation, &name, news);
        }
    }

    fn tell(&mut self, incarnation: Incarnation, name: &Name, news: Vec<Assignment>) {
        let topic = self.state.topics.layout(incarnation).and_then(|layout| layout.topic.clone());
        // Of several for one session only the last counts.
        let news: BTreeMap<SessionId, Assignment> = news.into_iter().map(|news| (news.session, news)).collect();
        for Assignment { session, version, segments } in news.into_values() {
            let Some(home) = self.homes.get(&(incarnation, Arc::clone(name))) else { return };
            let Some(member) = home.members.get(&session) else { continue };
            let assignment = proto::SessionAssignment {
                topic: topic.clone(),
                subscription: name.to_string(),
                session: session.0,
                home_term: version.term,
                home_start: version.start,
                sequence: version.sequence,
                segments: segments.into_iter().map(|segment| segment.0).collect(),
            };
            for channel in member.channels.clone() {
                self.say(channel, assignment.clone());
            }
        }
    }
}

fn node_of(segment: &proto::Segment) -> Option<frontier::Node> {
    let (range, buckets) = shape(segment).ok()?;
    let parents = segment.parents.iter().copied().map(SegmentId).collect();
    Some(frontier::Node { id: SegmentId(segment.id), range, buckets, sealed: segment.sealed, parents })
}
