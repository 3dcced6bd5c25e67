//! Keeps one session stream open to any node of the data plane and hears of every layout of one topic.

use braid_model::Micros;
use braid_wire::{Frame, VERSION, proto};

use crate::ChannelId;
use crate::backoff::{Backoff, Dice};
use crate::remote::{Event, Outbox, Target};
use crate::view::View;

/// Which topic, and whom to ask first.
#[derive(Clone, Debug)]
pub struct Contact {
    pub namespace: String,
    pub topic: String,
    /// Addresses of any nodes.
    pub bootstrap: Vec<String>,
    /// The client's name, for the node's log.
    pub name: String,
}

#[derive(Debug)]
enum State {
    Waiting { until: Micros },
    Opening { channel: ChannelId },
    Open { channel: ChannelId },
    Over,
}

/// The watch of one topic.
#[derive(Debug)]
pub struct Watch {
    contact: Contact,
    state: State,
    backoff: Backoff,
    attempts: usize,
    view: Option<View>,
    trouble: Option<String>,
}

impl Watch {
    pub(crate) const fn new(contact: Contact) -> Self {
        Self {
            contact,
            state: State::Waiting { until: Micros(0) },
            backoff: Backoff::new(50_000, 2_000_000),
            attempts: 0,
            view: None,
            trouble: None,
        }
    }

    /// The newest layout heard of.
    pub(crate) const fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Why there is no news: the last failure, until a layout comes.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The topic as nodes should be asked for it: with its incarnation once it is known.
    pub(crate) fn topic(&self) -> proto::TopicRef {
        let incarnation = self.view.as_ref().map_or(0, |view| view.topic.incarnation);
        proto::TopicRef { namespace: self.contact.namespace.clone(), name: self.contact.topic.clone(), incarnation }
    }

    pub(crate) const fn deadline(&self) -> Option<Micros> {
        match self.state {
            State::Waiting { until } => Some(until),
            State::Opening { .. } | State::Open { .. } | State::Over => None,
        }
    }

    pub(crate) fn tick(&mut self, now: Micros, out: &mut Outbox) {
        if matches!(self.state, State::Waiting { until } if until <= now) {
            let target = self.target();
            self.state = State::Opening { channel: out.open(target) };
        }
    }

    pub(crate) fn owns(&self, channel: ChannelId) -> bool {
        matches!(self.state, State::Opening { channel: own } | State::Open { channel: own } if own == channel)
    }

    /// Watches no longer.
    pub(crate) fn close(&mut self, out: &mut Outbox) {
        if let State::Opening { channel } | State::Open { channel } = self.state {
            out.close(channel);
        }
        self.state = State::Over;
    }

    /// Whether a newer layout came. Only for events of its own channel.
    pub(crate) fn handle(&mut self, now: Micros, event: Event, dice: &mut Dice, out: &mut Outbox) -> bool {
        match event {
            Event::Opened { channel } => {
                self.state = State::Open { channel };
                out.send(channel, proto::Hello { version: VERSION, name: self.contact.name.clone() });
                // Without incarnation: the newest life of the name is wanted.
                let topic = proto::TopicRef { incarnation: 0, ..self.topic() };
                out.send(channel, proto::WatchTopic { topic: Some(topic) });
                false
            }
            Event::Closed { reason, .. } => {
                self.fail(now, reason, dice);
                false
            }
            Event::Frame { frame: Frame::TopicLayout(layout), .. } => self.hear(&layout),
            Event::Frame { channel, frame: Frame::Refused(refused) } => {
                out.close(channel);
                self.fail(now, describe(&refused), dice);
                false
            }
            Event::Frame { .. } => false,
        }
    }

    fn hear(&mut self, layout: &proto::TopicLayout) -> bool {
        let view = match View::try_from(layout) {
            Ok(view) => view,
            Err(error) => {
                tracing::warn!(topic = %self.contact.topic, %error, "layout ignored");
                return false;
            }
        };
        self.backoff.reset();
        self.trouble = None;
        let newer = self.view.as_ref().is_none_or(|held| view.version > held.version);
        if newer {
            self.view = Some(view);
        }
        newer
    }

    fn fail(&mut self, now: Micros, reason: String, dice: &mut Dice) {
        self.trouble = Some(reason);
        self.state = State::Waiting { until: self.backoff.next(now, dice) };
    }

    /// The nodes of the layout in turn, and every so often whoever answers at the first addresses.
    fn target(&mut self) -> Target {
        let nodes = self.view.iter().flat_map(|view| &view.nodes).collect::<Vec<_>>();
        let turn = self.attempts % (nodes.len() + 1);
        self.attempts += 1;
        match nodes.get(turn) {
            Some((store, addresses)) => Target { store: Some((*store).clone()), addresses: (*addresses).clone() },
            None => Target { store: None, addresses: self.contact.bootstrap.clone() },
        }
    }
}

/// A refusal as a user reads it.
pub(crate) fn describe(refused: &proto::Refused) -> String {
    let code = refused.code().as_str_name().trim_start_matches("CODE_");
    if refused.message.is_empty() { code.to_owned() } else { format!("{code}: {}", refused.message) }
}
