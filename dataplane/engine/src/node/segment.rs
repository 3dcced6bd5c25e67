//! Who may write this log: one segment, `Active` until it is sealed, once, for ever.
//!
//! It checks and counts; the ledger remembers.

use std::collections::{BTreeMap, BTreeSet};

use braid_log::SegmentKey;
use braid_model::scale::Sampler;
use braid_model::{BucketIndex, Buckets, HashRange, Micros, Offset};
use braid_wire::proto::{self, Code, Refused};
use braid_wire::{Entry, Header};

use super::producers::{Producers, Turn};
use super::records::Name;
use super::subscription::Subscription;
use crate::ChannelId;

/// A segment on this store.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) key: SegmentKey,
    /// The topic, by namespace, name and incarnation.
    pub(super) topic: proto::TopicRef,
    /// As it was created: active, without children.
    pub(super) header: proto::Segment,
    pub(super) range: HashRange,
    pub(super) buckets: Buckets,
    /// A layout that contained it was told.
    pub(super) committed: bool,
    pub(super) seal: Option<Seal>,
    /// The offset of the next message.
    pub(super) end: Offset,
    /// Everything before is durable.
    pub(super) durable_end: Offset,
    pub(super) producers: Producers,
    pub(super) subscriptions: BTreeMap<Name, Subscription>,
    /// The channels of producers.
    pub(super) writers: BTreeSet<ChannelId>,
    pub(super) load: Load,
}

/// How a segment ended.
#[derive(Clone, Debug)]
pub(super) struct Seal {
    pub(super) epoch: u64,
    pub(super) at: Micros,
    pub(super) successors: Vec<proto::Segment>,
    pub(super) nodes: Vec<proto::Node>,
    pub(super) durable: bool,
}

/// What goes in and out, and what the operator was told of it.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Messages in, bytes in, messages out, bytes out, since the last second began.
    pub(super) counts: [u64; 4],
    pub(super) sampler: Option<Sampler>,
    pub(super) reported_at: Micros,
    /// Something happened that the operator must hear at once.
    pub(super) is_news: bool,
}

/// What becomes of an entry.
#[derive(Debug, PartialEq)]
pub(super) enum Publish {
    Append,
    /// It is in the segment already, there.
    Again(proto::PublishedEntry),
}

impl Segment {
    /// A new segment, or the field of its header that is out of bounds.
    pub(super) fn new(key: SegmentKey, topic: proto::TopicRef, header: &proto::Segment) -> Result<Self, Refused> {
        let (range, buckets) = shape(header)?;
        Ok(Self {
            key,
            topic,
            header: as_created(header),
            range,
            buckets,
            committed: false,
            seal: None,
            end: Offset(0),
            durable_end: Offset(0),
            producers: Producers::default(),
            subscriptions: BTreeMap::new(),
            writers: BTreeSet::new(),
            load: Load { is_news: true, ..Load::default() },
        })
    }

    /// The refusal of a create whose header differs, whatever the difference.
    pub(super) fn check_same(&self, header: &proto::Segment) -> Result<(), Refused> {
        let sent = as_created(header);
        if self.header == sent {
            return Ok(());
        }
        let message = format!("segment `{}` exists as {:?}, the create says {sent:?}", self.key, self.header);
        Err(Refused::new(Code::SegmentExists, message))
    }

    /// Whether an entry may be appended, was appended, or breaks a rule. The seal is looked at by the caller.
    pub(super) fn check(&self, entry: &Entry) -> Result<Publish, Refused> {
        let header = &entry.header;
        self.bucket_of(header)?;
        entry.verify().map_err(|e| match e {
            braid_wire::entry::EntryError::Checksum { computed, said } => {
                Refused::mismatch(Code::Checksum, e.to_string(), u64::from(computed), u64::from(said))
            }
            _ => Refused::new(Code::Malformed, e.to_string()),
        })?;
        match self.producers.turn(entry)? {
            Turn::Next => Ok(Publish::Append),
            Turn::Again(entry) => Ok(Publish::Again(entry)),
        }
    }

    /// The bucket of an entry whose hashes fit this segment and one bucket of it.
    pub(super) fn bucket_of(&self, header: &Header) -> Result<BucketIndex, Refused> {
        let (route, bucket) = (header.route, header.bucket);
        if !self.range.contains(route.0) || !self.range.contains(route.1) {
            let message = format!("route hashes {}..={} leave the range {}", route.0, route.1, self.range);
            return Err(Refused::new(Code::RangeSpan, message));
        }
        self.buckets.holding(bucket.0, bucket.1).ok_or_else(|| {
            let message = format!("bucket hashes {}..={} cross a border of {}", bucket.0, bucket.1, self.buckets);
            Refused::new(Code::BucketSpan, message)
        })
    }

    /// The entry is in the log. `header` has its offset.
    pub(super) fn appended(&mut self, header: &Header) {
        self.end = Offset(header.end_offset());
        self.producers.appended(header);
    }

    pub(super) const fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// The end, if the seal is durable.
    pub(super) fn sealed_end(&self) -> Option<Offset> {
        self.seal.as_ref().filter(|seal| seal.durable).map(|_| self.end)
    }

    /// A producer's last word of a sealed segment.
    pub(super) fn sealed_answer(&self, seal: &Seal, producer: u64, epoch: u32) -> proto::SegmentSealed {
        let (last_sequence, window) = self.producers.position(producer, epoch);
        proto::SegmentSealed {
            segment: self.key.segment.0,
            last_sequence,
            window,
            successors: seal.successors.clone(),
            nodes: seal.nodes.clone(),
        }
    }

    /// Its DAG node as this store knows it.
    pub(super) fn described(&self) -> proto::Segment {
        let mut header = self.header.clone();
        if let Some(seal) = &self.seal {
            header.sealed = true;
            header.sealed_epoch = seal.epoch;
            header.sealed_at_us = seal.at.0;
            header.children = seal.successors.iter().map(|successor| successor.id).collect();
        }
        header
    }
}

/// The range and N of a header, or the field that is out of bounds.
pub(super) fn shape(header: &proto::Segment) -> Result<(HashRange, Buckets), Refused> {
    let hash = |field: &str, value: u32| {
        u16::try_from(value).map_err(|_| {
            let message = format!("segment `{}`: `{field}` is {value}, it must be 0..=65535", header.id);
            Refused::mismatch(Code::Malformed, message, 65_535, u64::from(value))
        })
    };
    let (start, end) = (hash("start", header.start)?, hash("end", header.end)?);
    let range = HashRange::new(start, end).ok_or_else(|| {
        let message = format!("segment `{}`: `start` {start} is above `end` {end}", header.id);
        Refused::mismatch(Code::Malformed, message, u64::from(end), u64::from(start))
    })?;
    let buckets = Buckets::new(header.buckets).ok_or_else(|| {
        let message = format!("segment `{}`: `buckets` is {}, it must be 1..=65536", header.id, header.buckets);
        Refused::mismatch(Code::Malformed, message, 65_536, u64::from(header.buckets))
    })?;
    Ok((range, buckets))
}

/// A header without what only a seal adds.
fn as_created(header: &proto::Segment) -> proto::Segment {
    proto::Segment { sealed: false, children: Vec::new(), sealed_epoch: 0, sealed_at_us: 0, ..header.clone() }
}
