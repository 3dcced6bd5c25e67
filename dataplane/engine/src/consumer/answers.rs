//! What the node of a segment says on its channel, and what follows for the attachment.

use braid_model::{Micros, SegmentId};
use braid_wire::proto::Code;
use braid_wire::{Frame, proto};

use super::attachment::Link;
use super::{Consumer, NO_FREE_BUCKET_US, Notice, is_final};
use crate::ChannelId;
use crate::remote::Event;
use crate::watch::describe;

impl Consumer {
    pub(super) fn attachment_event(&mut self, now: Micros, id: SegmentId, event: Event) {
        let attachment = self.attachments.get_mut(&id).expect("the caller found it");
        let out = &mut self.out;
        match event {
            Event::Opened { channel } => self.attach(id, channel),
            Event::Closed { reason, .. } => self.lost(now, id, reason),
            Event::Frame { channel, frame } => match frame {
                Frame::Attached(_) => {
                    attachment.link = Link::Attached { channel };
                    attachment.backoff.reset();
                    self.trouble = None;
                    if !attachment.wanted {
                        attachment.detach(out);
                    }
                }
                Frame::BucketGranted(granted) => attachment.granted(&granted, out),
                Frame::Delivery(delivery) => {
                    let turn = (id, attachment.number, delivery.bucket, delivery.round);
                    match attachment.delivered(delivery, out) {
                        Ok(true) => self.ready.push_back(turn),
                        Ok(false) => {}
                        Err(reason) => {
                            out.close(channel);
                            self.lost(now, id, reason);
                        }
                    }
                }
                Frame::AckConfirmed(confirmed) => attachment.confirmed(confirmed.ack),
                Frame::BucketWithdrawn(withdrawn) => attachment.withdrawn(withdrawn.bucket, withdrawn.round, out),
                Frame::BucketRevoked(revoked) => {
                    if attachment.revoked(revoked.bucket, revoked.round, out) {
                        self.notices.push_back(Notice::Revoked { segment: id, bucket: revoked.bucket });
                    }
                }
                Frame::SegmentDrained(_) => {
                    self.drained.insert(id);
                    attachment.detach(out);
                }
                Frame::Detached(_) => {
                    out.close(channel);
                    self.detached(now, id);
                }
                Frame::Refused(refused) => self.refused(now, id, channel, &refused),
                frame => {
                    out.close(channel);
                    self.lost(now, id, format!("unexpected frame `{}`", frame.name()));
                }
            },
        }
    }

    fn attach(&mut self, id: SegmentId, channel: ChannelId) {
        let attachment = self.attachments.get_mut(&id).expect("the caller found it");
        let Some((view, segment)) = self.watch.view().and_then(|view| Some((view, view.segments.get(&id)?))) else {
            // The layout lost the segment while it was dialled.
            self.out.close(channel);
            attachment.link = Link::Idle;
            return;
        };
        self.attaches += 1;
        attachment.number = self.attaches;
        attachment.link = Link::Asked { channel };
        let attach = proto::Attach {
            topic: Some(self.watch.topic()),
            segment: id.0,
            subscription: self.config.subscription.clone(),
            member: self.config.member.clone(),
            session: self.config.session,
            attach: attachment.number,
            buckets: segment.buckets.count(),
            layout_epoch: view.epoch,
            credit_bytes: self.config.credit_bytes as u64,
        };
        self.out.send(channel, attach);
    }

    /// The node let go of this attach: all it handed out is acked or given back.
    fn detached(&mut self, now: Micros, id: SegmentId) {
        let attachment = self.attachments.get_mut(&id).expect("the caller found it");
        attachment.reset();
        attachment.link = Link::Idle;
        self.attach_wanted(now);
        self.finish_leave(now);
    }

    /// The channel is gone. What was buffered is dropped; the node hands it out again, to whom it likes.
    fn lost(&mut self, now: Micros, id: SegmentId, reason: String) {
        let attachment = self.attachments.get_mut(&id).expect("the caller found it");
        if attachment.link.acks_to().is_some() {
            self.notices.push_back(Notice::Lost { segment: id });
        }
        attachment.reset();
        let again = attachment.wanted && !self.drained.contains(&id);
        let until = attachment.backoff.next(now, &mut self.dice);
        attachment.link = if again { Link::Waiting { until } } else { Link::Idle };
        self.trouble = Some(reason);
        self.finish_leave(now);
    }

    fn refused(&mut self, now: Micros, id: SegmentId, channel: ChannelId, refused: &proto::Refused) {
        self.out.close(channel);
        if is_final(refused.code()) {
            return self.fail(refused);
        }
        if refused.code() == Code::StaleAttach {
            self.attaches = self.attaches.max(refused.have);
        }
        self.lost(now, id, describe(refused));
        if refused.code() == Code::NoFreeBucket && self.is_homeless(now) {
            let attachment = self.attachments.get_mut(&id).expect("the caller found it");
            let until = Micros(now.0 + NO_FREE_BUCKET_US - self.dice.below(NO_FREE_BUCKET_US / 2));
            attachment.link = Link::Waiting { until };
        }
    }
}
