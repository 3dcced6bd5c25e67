//! The session's stream to its group's home node: join, and which segments to read.

use braid_model::Micros;
use braid_wire::{Frame, VERSION, proto};

use crate::ChannelId;
use crate::backoff::{Backoff, Dice};
use crate::remote::{Event, Outbox, Target};
use crate::view::View;
use crate::watch::describe;

#[derive(Debug)]
enum State {
    /// No layout names a home yet.
    Unknown,
    Waiting {
        until: Micros,
    },
    Opening {
        channel: ChannelId,
    },
    Joining {
        channel: ChannelId,
    },
    /// An assignment came on this very stream.
    Joined {
        channel: ChannelId,
    },
}

/// What an event of the home's stream means for the session.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    Nothing,
    /// The stream is open: a join must be sent on it.
    Open(ChannelId),
    Assigned(Vec<u64>),
    /// Refused for good.
    Refused(proto::Refused),
}

#[derive(Debug)]
pub(super) struct Home {
    state: State,
    /// Store and term of the home that `state` is about.
    place: Option<(String, u64)>,
    backoff: Backoff,
    newest: Option<(u64, u64, u64)>,
    pub(super) trouble: Option<String>,
    /// Since when no home coordinates this session.
    pub(super) lost_since: Option<Micros>,
}

impl Home {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Unknown,
            place: None,
            backoff: Backoff::new(50_000, 2_000_000),
            newest: None,
            trouble: None,
            lost_since: None,
        }
    }

    /// A newer layout came: another home, or another term of the same one, is joined anew.
    pub(super) fn learn(&mut self, now: Micros, view: &View, out: &mut Outbox) {
        self.lost_since.get_or_insert(now);
        if matches!(self.state, State::Joined { .. }) && self.place.as_ref() == Some(&view.home) {
            self.lost_since = None;
        }
        if self.place.as_ref() == Some(&view.home) || view.home.0.is_empty() {
            return;
        }
        if let Some(channel) = self.channel() {
            out.close(channel);
        }
        self.place = Some(view.home.clone());
        self.backoff.reset();
        self.lost_since.get_or_insert(now);
        self.state = State::Waiting { until: now };
    }

    pub(super) const fn channel(&self) -> Option<ChannelId> {
        match self.state {
            State::Opening { channel } | State::Joining { channel } | State::Joined { channel } => Some(channel),
            State::Unknown | State::Waiting { .. } => None,
        }
    }

    /// The channel on which a leave counts.
    pub(super) const fn joined(&self) -> Option<ChannelId> {
        match self.state {
            State::Joining { channel } | State::Joined { channel } => Some(channel),
            _ => None,
        }
    }

    pub(super) const fn deadline(&self) -> Option<Micros> {
        match self.state {
            State::Waiting { until } => Some(until),
            _ => None,
        }
    }

    pub(super) fn tick(&mut self, now: Micros, view: Option<&View>, out: &mut Outbox) {
        if matches!(self.state, State::Waiting { until } if until <= now)
            && let Some((store, _)) = &self.place
        {
            let addresses = view.and_then(|view| view.nodes.get(store)).cloned().unwrap_or_default();
            self.state = State::Opening { channel: out.open(Target { store: Some(store.clone()), addresses }) };
        }
    }

    pub(super) fn close(&mut self, out: &mut Outbox) {
        if let Some(channel) = self.channel() {
            out.close(channel);
        }
        self.state = State::Unknown;
    }

    /// For events of its own channel.
    pub(super) fn handle(&mut self, now: Micros, event: Event, name: &str, dice: &mut Dice, out: &mut Outbox) -> Heard {
        match event {
            Event::Opened { channel } => {
                self.state = State::Joining { channel };
                out.send(channel, proto::Hello { version: VERSION, name: name.to_owned() });
                Heard::Open(channel)
            }
            Event::Closed { reason, .. } => {
                self.fail(now, reason, dice);
                Heard::Nothing
            }
            Event::Frame { channel, frame: Frame::SessionAssignment(assignment) } => {
                self.state = State::Joined { channel };
                self.backoff.reset();
                (self.trouble, self.lost_since) = (None, None);
                let number = (assignment.home_term, assignment.home_start, assignment.sequence);
                // The same one again, on a new stream, is as good as new.
                if self.newest.is_some_and(|newest| number < newest) {
                    return Heard::Nothing;
                }
                self.newest = Some(number);
                Heard::Assigned(assignment.segments)
            }
            Event::Frame { channel, frame: Frame::Refused(refused) } => {
                out.close(channel);
                self.fail(now, describe(&refused), dice);
                Heard::Refused(refused)
            }
            Event::Frame { .. } => Heard::Nothing,
        }
    }

    fn fail(&mut self, now: Micros, reason: String, dice: &mut Dice) {
        self.trouble = Some(reason);
        self.lost_since.get_or_insert(now);
        self.state = State::Waiting { until: self.backoff.next(now, dice) };
    }
}
