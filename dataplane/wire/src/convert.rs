//! Between protobuf messages and the model's words.

use braid_model::{Fence, SegmentId};

use crate::proto;

impl From<Fence> for proto::Fence {
    fn from(fence: Fence) -> Self {
        Self { term: fence.term, op: fence.op }
    }
}

impl From<proto::Fence> for Fence {
    fn from(fence: proto::Fence) -> Self {
        Self { term: fence.term, op: fence.op }
    }
}

impl proto::Refused {
    /// A refusal without numbers.
    pub fn new(code: proto::Code, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), ..Self::default() }
    }

    /// A refusal that names what is held and what was sent.
    pub fn mismatch(code: proto::Code, message: impl Into<String>, have: u64, sent: u64) -> Self {
        Self { code: code.into(), message: message.into(), have, sent, ..Self::default() }
    }

    /// A segment that this node does not hold.
    #[must_use]
    pub fn unknown_segment(segment: SegmentId) -> Self {
        Self::new(proto::Code::UnknownSegment, format!("segment `{segment}` is not on this store"))
    }
}
