//! What goes into a dispatcher and what comes out: values only.

use alloc::vec::Vec;

use super::Lane;
use crate::assign::Strategy;
use crate::cursor::CursorError;
use crate::handoff::Attach;
use crate::offsets::OffsetRange;
use crate::{BucketIndex, Buckets, Generation, Offset, Round};

/// How a subscription hands buckets over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Who gets which bucket.
    pub strategy: Strategy,
    /// After how many microseconds a live owner that does not ack is revoked; `None`: never.
    pub handoff_deadline: Option<u64>,
}

/// Rises with every change of a bucket's owner, over all lives of the segment: an application fences its sink with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerNo(pub u64);

/// What earlier lives of a dispatcher may have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// None of them used an owner number above: the start counter of the store in the high 32 bits needs no record.
    pub owner_floor: OwnerNo,
    /// None of them sent a message from here on: the segment's end when the store opened.
    pub sent_below: Offset,
}

/// What the engine does next, besides deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// `attach` owns the bucket from now on. Messages below `redelivered_below` may have been sent before, to anyone.
    Granted { attach: Attach, bucket: BucketIndex, round: Round, owner: OwnerNo, redelivered_below: Offset },
    /// The bucket moves away: no more of it comes to `attach`, which acks what it shows to its application and gives back the rest.
    Withdrawn { attach: Attach, bucket: BucketIndex, round: Round },
    /// Nothing of a withdrawn bucket is in flight to `attach` any more.
    Released { attach: Attach, bucket: BucketIndex, round: Round },
    /// The deadline passed: `attach` must drop what it holds of this round; its acks for it are refused.
    Revoked { attach: Attach, bucket: BucketIndex, round: Round },
    /// `attach`, which is leaving, holds nothing more: it may go.
    Empty { attach: Attach },
    /// `attach` is gone: close its stream.
    Ended { attach: Attach, why: End },
    /// Sealed, every message acked, every parent drained: record it in this generation, sync, tell the children. Said once.
    Drained { generation: Generation },
}

/// Why an attach ended without being asked by its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its session attached again with a higher number.
    Replaced,
    /// It did not finish its leave in time.
    LeaveDeadline,
}

/// Why an attach was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The session knows another N.
    #[error("the session knows `{stated}` buckets, the segment has {found}: a stale layout")]
    StaleLayout {
        /// What it stated.
        stated: Buckets,
        /// What the segment has.
        found: Buckets,
    },
    /// The session is here with this number or a higher one.
    #[error("attach `{}` of session `{}` is not above {}, which is attached", .sent.no, .sent.session, .have.no)]
    StaleAttach {
        /// The refused one.
        sent: Attach,
        /// The one that stays.
        have: Attach,
    },
    /// Too many.
    #[error("`{found}` attaches, the most is {max}")]
    TooMany {
        /// How many there are.
        found: usize,
        /// [`super::ATTACHES_MAX`].
        max: usize,
    },
}

/// An ack as it arrives: of messages of one bucket, in one round of one attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Who acks.
    pub attach: Attach,
    /// Which bucket the messages belong to.
    pub bucket: BucketIndex,
    /// The round they were delivered in.
    pub round: Round,
    /// The cursor generation they were delivered in.
    pub generation: Generation,
    /// Which messages.
    pub range: OffsetRange,
}

/// Why an ack was refused; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    /// The bucket is not this attach's in this round: it was lost, revoked or never its own.
    #[error("bucket `{bucket}` is not held in round `{round}` by this attach")]
    NotHeld {
        /// The bucket.
        bucket: BucketIndex,
        /// The round the ack named.
        round: Round,
    },
    /// The cursor was made anew since.
    #[error("the cursor is at generation `{found}`, the ack at {sent}")]
    OtherGeneration {
        /// The cursor's.
        found: Generation,
        /// The ack's.
        sent: Generation,
    },
    /// The cursor is full; ack older messages first.
    #[error(transparent)]
    Cursor(#[from] CursorError),
}

/// Where to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// To be handed back with each entry.
    pub lane: Lane,
    /// The offset that the first entry contains or follows.
    pub from: Offset,
    /// Entries from here on are of no use to this read.
    pub until: Offset,
}

/// What the dispatcher must know of an entry: its header says it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The one bucket of its messages.
    pub bucket: BucketIndex,
    /// Its messages.
    pub range: OffsetRange,
    /// What it costs of the receiver's credit.
    pub bytes: u64,
}

/// What becomes of an entry that was offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Send it: it is in flight now.
    Send(Delivery),
    /// Not now, or not again; offer the next one.
    Skip,
    /// This read has nothing more to give: ask `next_read`. The entry was not taken.
    Stop,
}

/// Where an entry goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// To whom.
    pub attach: Attach,
    /// In which round of its bucket.
    pub round: Round,
    /// The bucket's owner number.
    pub owner: OwnerNo,
    /// Some of it may have been sent before.
    pub redelivered: bool,
    /// What of it is acked already, in order: not to be shown to the application again.
    pub acked: Vec<OffsetRange>,
}
