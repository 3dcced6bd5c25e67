//! A member of an ordered group: joins at the topic's home, reads the segments it is told to, hands out messages, takes acks.
//!
//! Order is the nodes' doing; a member must only drop what is not its own any more (older rounds, revoked buckets, lost channels),
//! give back what it has not handed out, and ack on the channel that delivered.
//!
//! It knows no sockets, clocks or threads, and nothing of other members.

mod answers;
mod attachment;
mod home;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_model::{Micros, SegmentId};
use braid_wire::proto::{self, Code};

use crate::ChannelId;
use crate::backoff::Dice;
use crate::remote::{Effect, Event, Outbox, Remote, Target};
use crate::view::View;
use crate::watch::{Watch, describe};
use attachment::{Attachment, Link};
use home::{Heard, Home};

pub use words::{Config, ConsumeError, DeliveryId, Notice, Received};

/// Without a home for so long, a session attaches to every segment it knows.
const HOMELESS_US: u64 = 10_000_000;
/// A homeless session that found no free bucket tries again after at most this.
const NO_FREE_BUCKET_US: u64 = 10_000_000;
/// How long acks may wait for company.
const ACK_LINGER_US: u64 = 2_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Running,
    Leaving { deadline: Micros },
    Over,
}

/// A member of an ordered group.
#[derive(Debug)]
pub struct Consumer {
    config: Config,
    phase: Phase,
    watch: Watch,
    home: Home,
    out: Outbox,
    dice: Dice,
    attachments: BTreeMap<SegmentId, Attachment>,
    /// Told by the home; or, without one, every segment known.
    wanted: BTreeSet<SegmentId>,
    drained: BTreeSet<SegmentId>,
    /// Rises with every attach to any segment.
    attaches: u64,
    /// Whose turn it is: one per queued entry. Stale ones name a round that is over.
    ready: VecDeque<(SegmentId, u64, u32, u64)>,
    notices: VecDeque<Notice>,
    trouble: Option<String>,
}

impl Consumer {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            watch: Watch::new(config.contact.clone()),
            dice: Dice::new(config.seed),
            config,
            phase: Phase::Running,
            home: Home::new(),
            out: Outbox::default(),
            attachments: BTreeMap::new(),
            wanted: BTreeSet::new(),
            drained: BTreeSet::new(),
            attaches: 0,
            ready: VecDeque::new(),
            notices: VecDeque::new(),
            trouble: None,
        }
    }

    /// The newest layout, `None` until a node told one.
    #[must_use]
    pub const fn view(&self) -> Option<&View> {
        self.watch.view()
    }

    /// The last thing that went wrong and was not healed since.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.watch.trouble().or(self.home.trouble.as_deref()).or(self.trouble.as_deref())
    }

    /// The segments it is attached to now.
    pub fn attached(&self) -> impl Iterator<Item = SegmentId> {
        self.attachments.values().filter(|a| a.link.acks_to().is_some()).map(|a| a.segment)
    }

    /// Whether acks are on their way that may be lost.
    #[must_use]
    pub fn has_unconfirmed_acks(&self) -> bool {
        self.attachments.values().any(Attachment::has_unconfirmed_acks)
    }

    /// The next message, from now on the application's to ack; `None` while there is none.
    pub fn take(&mut self) -> Option<Received> {
        while let Some(&(segment, attach, bucket, round)) = self.ready.front() {
            let attachment = self.attachments.get_mut(&segment).filter(|a| a.number == attach);
            let Some((taken, is_last)) = attachment.and_then(|a| a.take(bucket, round, &mut self.out)) else {
                self.ready.pop_front();
                continue;
            };
            if is_last {
                self.ready.pop_front();
            }
            return Some(Received {
                id: DeliveryId { segment, attach, bucket, round: taken.round, offset: taken.offset },
                message: taken.message,
                owner_number: taken.owner_number,
                append_time: taken.append_time,
                redelivered: taken.redelivered,
            });
        }
        None
    }

    /// Whether the ack counts. It does not if the bucket is not this member's any more, in that round: the message comes again, to whom
    /// it belongs then.
    pub fn ack(&mut self, now: Micros, id: &DeliveryId) -> bool {
        let attachment = self.attachments.get_mut(&id.segment).filter(|a| a.number == id.attach);
        attachment.is_some_and(|a| a.ack(now, id.bucket, id.round, id.offset, &mut self.out))
    }

    /// Leaves: gives back what the application has not taken, and waits for its acks of the rest until the deadline. Ends with
    /// [`Notice::Left`].
    pub fn leave(&mut self, now: Micros) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Leaving { deadline: Micros(now.0 + self.config.leave_deadline_us) };
        if let Some(channel) = self.home.joined() {
            let leave = proto::LeaveGroup {
                topic: Some(self.watch.topic()),
                subscription: self.config.subscription.clone(),
                session: self.config.session,
            };
            self.out.send(channel, leave);
        }
        self.want(now, BTreeSet::new());
        self.finish_leave(now);
    }

    /// What happened, in order.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn finish_leave(&mut self, now: Micros) {
        let Phase::Leaving { deadline } = self.phase else { return };
        if self.attachments.values().all(|a| a.link.channel().is_none()) || deadline <= now {
            self.end(Notice::Left);
        }
    }

    fn end(&mut self, notice: Notice) {
        self.phase = Phase::Over;
        for attachment in std::mem::take(&mut self.attachments).into_values() {
            if let Some(channel) = attachment.link.channel() {
                self.out.close(channel);
            }
        }
        self.home.close(&mut self.out);
        self.watch.close(&mut self.out);
        self.ready.clear();
        self.notices.push_back(notice);
    }

    fn fail(&mut self, refused: &proto::Refused) {
        let (subscription, member) = (self.config.subscription.clone(), self.config.member.clone());
        let error = ConsumeError::Refused { subscription, member, reason: describe(refused) };
        self.end(Notice::Failed(error));
    }

    fn learn_layout(&mut self, now: Micros) {
        let Some(view) = self.watch.view() else { return };
        if view.deleted {
            let topic = view.topic.name.clone();
            self.end(Notice::Failed(ConsumeError::Deleted { topic }));
            return;
        }
        if self.phase == Phase::Running {
            self.home.learn(now, view, &mut self.out);
            self.home.tick(now, Some(view), &mut self.out);
            self.attach_wanted(now);
        }
    }

    /// The segments that this session should read from now on.
    fn want(&mut self, now: Micros, segments: BTreeSet<SegmentId>) {
        self.wanted = segments;
        for (id, attachment) in &mut self.attachments {
            attachment.wanted = self.wanted.contains(id);
            if attachment.wanted {
                continue;
            }
            match attachment.link {
                Link::Attached { .. } => attachment.detach(&mut self.out),
                Link::Opening { channel } => {
                    self.out.close(channel);
                    attachment.link = Link::Idle;
                }
                Link::Waiting { .. } => attachment.link = Link::Idle,
                // One that is asked for is left once it is answered: closed now, it would count as a crash.
                Link::Idle | Link::Asked { .. } | Link::Leaving { .. } => {}
            }
        }
        self.attach_wanted(now);
    }

    /// Dials every wanted segment that is known, not drained, and not dialled yet.
    fn attach_wanted(&mut self, now: Micros) {
        let Some(view) = self.watch.view() else { return };
        for id in &self.wanted {
            let Some(segment) = view.segments.get(id) else { continue };
            if self.drained.contains(id) {
                continue;
            }
            let credit = self.config.credit_bytes;
            let attachment = self.attachments.entry(*id).or_insert_with(|| Attachment::new(*id, credit));
            attachment.wanted = true;
            let due = match attachment.link {
                Link::Idle => true,
                Link::Waiting { until } => until <= now,
                _ => false,
            };
            if due {
                let addresses = view.nodes.get(&segment.store).cloned().unwrap_or_default();
                let target = Target { store: Some(segment.store.clone()), addresses };
                attachment.reset();
                attachment.link = Link::Opening { channel: self.out.open(target) };
            }
        }
    }

    fn home_event(&mut self, now: Micros, event: Event) {
        match self.home.handle(now, event, &self.config.contact.name, &mut self.dice, &mut self.out) {
            Heard::Nothing => {}
            Heard::Open(channel) => {
                let held = self.attached().map(|id| id.0).collect();
                let join = proto::Join {
                    topic: Some(self.watch.topic()),
                    subscription: self.config.subscription.clone(),
                    member: self.config.member.clone(),
                    session: self.config.session,
                    held,
                };
                self.out.send(channel, join);
            }
            Heard::Assigned(segments) if self.phase == Phase::Running => {
                self.want(now, segments.into_iter().map(SegmentId).collect());
            }
            Heard::Assigned(_) => {}
            Heard::Refused(refused) => {
                if is_final(refused.code()) {
                    self.fail(&refused);
                }
            }
        }
    }

    fn attachment_of(&self, channel: ChannelId) -> Option<SegmentId> {
        self.attachments.values().find(|a| a.link.channel() == Some(channel)).map(|a| a.segment)
    }

    fn is_homeless(&self, now: Micros) -> bool {
        self.home.lost_since.is_some_and(|since| now.since(since) >= HOMELESS_US)
    }

    /// Without a home, every segment will do: gates and buckets keep order.
    fn want_all(&mut self, now: Micros) {
        let Some(view) = self.watch.view() else { return };
        let all: BTreeSet<_> = view.segments.keys().copied().filter(|id| !self.drained.contains(id)).collect();
        if all != self.wanted {
            self.want(now, all);
        }
    }
}

/// Whether asking again cannot help.
const fn is_final(code: Code) -> bool {
    matches!(code, Code::Unauthorized | Code::Malformed | Code::UnsupportedKind)
}

impl Remote for Consumer {
    fn handle(&mut self, now: Micros, event: Event) {
        let (Event::Opened { channel } | Event::Frame { channel, .. } | Event::Closed { channel, .. }) = &event;
        if self.phase == Phase::Over {
            return;
        }
        if self.watch.owns(*channel) {
            if self.watch.handle(now, event, &mut self.dice, &mut self.out) {
                self.learn_layout(now);
            }
        } else if self.home.channel() == Some(*channel) {
            self.home_event(now, event);
        } else if let Some(id) = self.attachment_of(*channel) {
            self.attachment_event(now, id, event);
        }
    }

    fn tick(&mut self, now: Micros) {
        if self.phase == Phase::Over {
            return;
        }
        self.watch.tick(now, &mut self.out);
        for attachment in self.attachments.values_mut() {
            if attachment.ack_deadline(ACK_LINGER_US).is_some_and(|due| due <= now) {
                attachment.send_acks(&mut self.out);
            }
        }
        if self.phase == Phase::Running {
            self.home.tick(now, self.watch.view(), &mut self.out);
            if self.is_homeless(now) {
                self.want_all(now);
            }
            self.attach_wanted(now);
        }
        self.finish_leave(now);
    }

    fn deadline(&self) -> Option<Micros> {
        let attachments = self.attachments.values().flat_map(|a| {
            let waiting = match a.link {
                Link::Waiting { until } if a.wanted => Some(until),
                _ => None,
            };
            [waiting, a.ack_deadline(ACK_LINGER_US)]
        });
        let phase = match self.phase {
            Phase::Running => {
                let homeless = self.home.lost_since.map(|since| Micros(since.0 + HOMELESS_US));
                let homeless = homeless.filter(|_| self.view_has_more());
                [self.home.deadline(), homeless]
            }
            Phase::Leaving { deadline } => [Some(deadline), None],
            Phase::Over => return None,
        };
        attachments.flatten().chain(phase.into_iter().flatten()).chain(self.watch.deadline()).min()
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.out.pop()
    }
}

impl Consumer {
    /// Whether the layout lists a segment that is neither wanted nor drained.
    fn view_has_more(&self) -> bool {
        let mut ids = self.watch.view().into_iter().flat_map(|view| view.segments.keys());
        ids.any(|id| !self.wanted.contains(id) && !self.drained.contains(id))
    }
}
