//! What the node of a segment says on its channel, and what follows for the segment's messages.

use braid_model::{Micros, SegmentId};
use braid_wire::proto::Code;
use braid_wire::{Frame, proto};

use super::lane::Link;
use super::{Producer, SendError};
use crate::ChannelId;
use crate::remote::Event;
use crate::view::{Segment, tiles};
use crate::watch::describe;

impl Producer {
    pub(super) fn lane_event(&mut self, now: Micros, id: SegmentId, event: Event) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        match event {
            Event::Opened { channel } => {
                lane.link = Link::Asked { channel };
                let epoch = lane.epoch();
                let open = proto::OpenProducer {
                    topic: Some(self.watch.topic()),
                    segment: id.0,
                    producer: self.config.producer,
                    epoch,
                    layout_epoch: self.watch.view().map_or(0, |view| view.epoch),
                };
                self.out.send(channel, open);
            }
            Event::Closed { reason, .. } => self.retry(now, id, reason, false),
            Event::Frame { frame: Frame::ProducerOpened(opened), channel } => self.opened(now, id, channel, &opened),
            Event::Frame { frame: Frame::Published(published), .. } => {
                lane.trouble = None;
                lane.backoff.reset();
                let durable = lane.settle(&published.entries);
                let settled = lane.sealed_since.is_some() && !lane.is_unsettled();
                self.durable(id, durable);
                if settled {
                    self.retire(now, id);
                } else {
                    self.pump(now, id);
                }
            }
            Event::Frame { frame: Frame::SegmentSealed(sealed), .. } => self.sealed(now, id, &sealed),
            Event::Frame { frame: Frame::Refused(refused), .. } => self.refused(now, id, &refused),
            Event::Frame { frame, .. } => self.retry(now, id, format!("unexpected frame `{}`", frame.name()), true),
        }
    }

    fn opened(&mut self, now: Micros, id: SegmentId, channel: ChannelId, opened: &proto::ProducerOpened) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        if opened.last_sequence >= lane.next_sequence() {
            // Another one writes under this id: a higher epoch fences it.
            lane.renumber();
            self.retry(now, id, format!("sequence {} is not of this producer", opened.last_sequence), true);
            return;
        }
        lane.link = Link::Open { channel };
        let durable = lane.settle_up_to(opened.last_sequence, &opened.window);
        if !durable.is_empty() || !lane.is_unsettled() {
            lane.trouble = None;
            lane.backoff.reset();
        }
        self.durable(id, durable);
        self.pump(now, id);
    }

    /// The segment's last word: settles all that is on its way.
    fn sealed(&mut self, now: Micros, id: SegmentId, sealed: &proto::SegmentSealed) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        let successors: Result<Vec<_>, _> = sealed.successors.iter().map(Segment::try_from).collect();
        let successors = successors.and_then(|segments| tiles(lane.segment.range, segments.iter()).map(|()| segments));
        let successors = match successors {
            Ok(successors) => successors,
            Err(error) => {
                self.retry(now, id, format!("seal answer: {error}"), true);
                return;
            }
        };
        let durable = lane.settle_up_to(sealed.last_sequence, &sealed.window);
        self.durable(id, durable);
        self.known.seal(id, successors);
        self.known.learn_nodes(sealed.nodes.iter().map(|node| (node.store.clone(), node.addresses.clone())));
        self.retire(now, id);
    }

    fn refused(&mut self, now: Micros, id: SegmentId, refused: &proto::Refused) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        let reason = describe(refused);
        match refused.code() {
            // These pass: the channel is opened again, and the answer tells from where on to resend.
            Code::NoSpace
            | Code::Busy
            | Code::UnknownTopic
            | Code::UnknownSegment
            | Code::StaleLayout
            | Code::SequenceGap
            | Code::StoreFailed
            | Code::LimitExceeded
            | Code::ShuttingDown => self.retry(now, id, reason, true),
            Code::UnknownProducer => {
                lane.renumber();
                self.retry(now, id, reason, true);
            }
            _ => {
                let store = lane.segment.store.clone();
                self.fail_lane(id, SendError::Refused { segment: id, store, reason });
            }
        }
    }

    /// The channel is of no use any more: another one is opened after a while, if there is something to say.
    pub(super) fn retry(&mut self, now: Micros, id: SegmentId, reason: String, close: bool) {
        let lane = self.lanes.get_mut(&id).expect("the caller found it");
        if let Some(channel) = lane.link.channel().filter(|_| close) {
            self.out.close(channel);
        }
        lane.rewind();
        if lane.is_empty() {
            lane.link = Link::Idle;
            return;
        }
        let since = lane.trouble.take().map_or(now, |(since, _)| since);
        lane.trouble = Some((since, reason));
        lane.link = Link::Waiting { until: lane.backoff.next(now, &mut self.dice) };
    }
}
