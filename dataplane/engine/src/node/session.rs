//! Channels by role: who may say what, and what ends with a channel. Session streams are answered here.

use std::collections::BTreeMap;

use braid_log::{SegmentKey, Store};
use braid_model::handoff::Attach;
use braid_model::{BucketIndex, Incarnation, Offset, Round, SessionId};
use braid_wire::proto::{self, Code, Refused};
use braid_wire::{Frame, VERSION};

use super::Node;
use super::records::{NAME_BYTES_MAX, Name};
use super::topics::{name_of, unknown_topic};
use crate::{ChannelId, Peer};

/// The most topics that one session stream watches.
const WATCHES_MAX: usize = 1_024;

/// An open channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) peer: Peer,
    pub(super) role: Role,
}

/// What a channel is for; its first frame says so.
#[derive(Debug)]
pub(super) enum Role {
    New,
    Session(Vec<Joined>),
    Producer(Producer),
    Consumer(Consumer),
    Control,
    /// A node that tells facts.
    PeerIn,
    /// A node that facts are told to.
    PeerOut(String),
    /// Nothing more is taken.
    Over,
}

/// One consumer that joined a group on a session stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) incarnation: Incarnation,
    pub(super) subscription: Name,
    pub(super) session: SessionId,
}

/// Who writes on a producer stream, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Producer {
    pub(super) key: SegmentKey,
    pub(super) producer: u64,
    pub(super) epoch: u32,
}

/// Who reads on a consumer stream, and where.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) key: SegmentKey,
    pub(super) subscription: Name,
    pub(super) attach: Attach,
}

/// A consumer stream.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) reader: Reader,
    /// Give-backs that came before the detach they belong to.
    pub(super) returned: BTreeMap<BucketIndex, (Round, Offset)>,
}

impl<S: Store> Node<S> {
    pub(super) fn opened(&mut self, channel: ChannelId, peer: Peer) {
        let (open, max) = (self.channels.len() as u64 + 1, u64::from(self.config.bounds.streams));
        self.channels.insert(channel, Channel { peer, role: Role::New });
        if open > max {
            let message = format!("`streams` would be {open}, the bound is {max}");
            self.refuse(channel, Refused::mismatch(Code::LimitExceeded, message, max, open));
        }
    }

    pub(super) fn closed(&mut self, channel: ChannelId) {
        self.release(channel);
        self.channels.remove(&channel);
    }

    pub(super) fn frame(&mut self, channel: ChannelId, frame: Frame) {
        let Some(Channel { peer, role }) = self.channels.get(&channel) else { return };
        let is_client = matches!(peer, Peer::Client { .. });
        match (role, frame) {
            (Role::Over, _) => {}
            (Role::New, Frame::Hello(hello)) => self.hello(channel, &hello),
            (Role::New, Frame::OpenProducer(open)) if is_client => self.open_producer(channel, &open),
            (Role::New, Frame::Attach(attach)) if is_client => self.attach(channel, &attach),
            (Role::Session(_), Frame::WatchTopic(watch)) => self.watch_topic(channel, &watch),
            (Role::Session(_), Frame::Join(join)) => self.join(channel, &join),
            (Role::Session(_), Frame::LeaveGroup(leave)) => self.leave_group(channel, &leave),
            (Role::Producer(producer), Frame::Publish(entry)) => {
                let producer = *producer;
                self.publish(channel, producer, entry);
            }
            (Role::Consumer(_), Frame::Ack(ack)) => self.ack(channel, &ack),
            (Role::Consumer(_), Frame::Credit(credit)) => self.credit(channel, credit.bytes),
            (Role::Consumer(_), Frame::GiveBack(back)) => self.give_back(channel, &back),
            (Role::Consumer(_), Frame::Detach(_)) => self.detach(channel),
            (Role::Control, Frame::Request(request)) => self.request(channel, request),
            (Role::PeerIn, Frame::DrainedFact(fact)) => self.told_fact(channel, &fact),
            (Role::PeerOut(_), Frame::HelloOk(_)) => self.peer_ready(channel),
            (Role::PeerOut(_), Frame::FactNoted(noted)) => self.fact_noted(channel, noted.fact),
            (Role::PeerOut(_), Frame::Refused(_)) => self.end(channel),
            (role, frame) => {
                let code = match (role, &frame) {
                    (Role::New | Role::Session(_), Frame::Request(_) | Frame::DrainedFact(_)) => Code::Unauthorized,
                    _ => Code::UnsupportedKind,
                };
                let (name, kind) = (frame.name(), u64::from(frame.kind()));
                self.refuse(channel, Refused::mismatch(code, format!("frame `{name}` does not belong here"), 0, kind));
            }
        }
    }

    /// What ends with a channel: its place among watchers, sessions, writers, readers or peers. It takes nothing more.
    pub(super) fn release(&mut self, channel: ChannelId) {
        let Some(found) = self.channels.get_mut(&channel) else { return };
        match std::mem::replace(&mut found.role, Role::Over) {
            Role::Session(joined) => {
                self.state.topics.unwatch(channel);
                for joined in joined {
                    self.end_session(channel, &joined);
                }
            }
            Role::Producer(Producer { key, .. }) => {
                if let Some(segment) = self.state.segments.get_mut(&key) {
                    segment.writers.remove(&channel);
                }
            }
            Role::Consumer(consumer) => self.reader_gone(channel, &consumer.reader),
            Role::PeerOut(store) => self.peer_lost(&store, channel),
            Role::New | Role::Control | Role::PeerIn | Role::Over => {}
        }
    }

    fn hello(&mut self, channel: ChannelId, hello: &proto::Hello) {
        if hello.version != VERSION {
            let message = format!("`version` is {}, this node speaks {VERSION}", hello.version);
            let refused = Refused::mismatch(Code::Malformed, message, u64::from(VERSION), u64::from(hello.version));
            return self.refuse(channel, refused);
        }
        let Some(found) = self.channels.get_mut(&channel) else { return };
        found.role = match found.peer {
            Peer::Client { .. } => Role::Session(Vec::new()),
            Peer::Operator { .. } => Role::Control,
            Peer::Node { .. } => Role::PeerIn,
        };
        let is_operator = matches!(found.peer, Peer::Operator { .. });
        let ok = self.hello_ok();
        self.say_durably(channel, ok);
        if is_operator {
            self.report_everything(channel);
        }
    }

    fn watch_topic(&mut self, channel: ChannelId, watch: &proto::WatchTopic) {
        let topic = watch.topic.clone().unwrap_or_default();
        if self.state.topics.watched_by(channel) >= WATCHES_MAX {
            let message = format!("a session stream watches {WATCHES_MAX} topics at most");
            let max = WATCHES_MAX as u64;
            return self.say(channel, Refused::mismatch(Code::LimitExceeded, message, max, max + 1));
        }
        let layout =
            self.state.topics.resolve(&topic).map(|incarnation| self.state.topics.layout(incarnation).cloned());
        match layout {
            Ok(Some(layout)) => {
                let name = layout.topic.as_ref().map(name_of).unwrap_or_default();
                self.state.topics.watch(name, channel);
                self.say_durably(channel, layout);
            }
            Ok(None) => self.say(channel, unknown_topic(&topic)),
            Err(refused) => self.say(channel, refused),
        }
    }
}

/// A name of a subscription or member, or the bound it breaks.
pub(super) fn check_name(field: &str, name: &str) -> Result<(), Refused> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(());
    }
    let (have, sent) = (NAME_BYTES_MAX as u64, name.len() as u64);
    let message = format!("`{field}` has {sent} bytes, it must have 1..={have}");
    Err(Refused::mismatch(Code::Malformed, message, have, sent))
}
