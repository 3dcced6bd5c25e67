//! The one write that ends an operation: the layout after it.

use alloc::vec::Vec;

use super::{Kind, Operation, Seal};
use crate::layout::{Layout, Parts, State, Violation, rules};
use crate::{Epoch, Micros, SegmentId};

/// Why an operation cannot be committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name every field")]
pub enum CommitError {
    #[error("no operation is stored")]
    NoOperation,
    #[error("steps were confirmed under op `{confirmed}`, the operation is `{stored}`")]
    OtherOperation { confirmed: u64, stored: u64 },
    #[error("step `{number}` of operation `{op}` is not confirmed")]
    StepMissing { op: u64, number: usize },
    #[error("segment `{segment}` has no confirmed seal")]
    SealMissing { segment: SegmentId },
    #[error("segment `{segment}` was sealed with successors {recorded:?}, the plan has {planned:?}")]
    OtherSuccessors { segment: SegmentId, planned: Vec<SegmentId>, recorded: Vec<SegmentId> },
    #[error("operation `{op}` leads to epoch `{planned}`, the layout is at `{found}`")]
    OtherEpoch { op: u64, planned: Epoch, found: Epoch },
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// The layout after `operation`; `None` after a Delete. `seals` are what the stores of the parents answered; the children
/// get their stores from them. `now` is when the parents count as sealed.
pub fn commit(
    layout: Option<&Layout>,
    operation: &Operation,
    seals: &[Seal],
    now: Micros,
) -> Result<Option<Layout>, CommitError> {
    if operation.kind == Kind::Delete {
        return Ok(None);
    }
    if !operation.kind.is_structural() {
        return Ok(layout.cloned());
    }
    let before = match layout {
        Some(layout) => layout.parts().clone(),
        None => Parts { epoch: Epoch(0), next_segment_id: SegmentId(0), segments: Vec::new() },
    };
    if before.epoch.next() != operation.epoch {
        return Err(CommitError::OtherEpoch { op: operation.op, planned: operation.epoch, found: before.epoch });
    }
    let mut after = before.clone();
    after.epoch = operation.epoch;
    for child in &operation.children {
        after.next_segment_id = after.next_segment_id.max(child.id.next());
    }
    let mut children = operation.children.clone();
    for parent in &operation.parents {
        let seal =
            seals.iter().find(|seal| seal.segment == *parent).ok_or(CommitError::SealMissing { segment: *parent })?;
        let planned: Vec<SegmentId> =
            children.iter().filter(|child| child.parents.contains(parent)).map(|child| child.id).collect();
        let recorded: Vec<SegmentId> = seal.successors.iter().map(|successor| successor.id).collect();
        if planned != recorded {
            return Err(CommitError::OtherSuccessors { segment: *parent, planned, recorded });
        }
        for successor in &seal.successors {
            if let Some(child) = children.iter_mut().find(|child| child.id == successor.id) {
                child.store = successor.store.clone();
            }
        }
        if let Some(segment) = after.segments.iter_mut().find(|segment| segment.id == *parent) {
            segment.state = State::Sealed { epoch: operation.epoch, at: now };
            segment.children = planned;
        }
    }
    after.segments.extend(children);
    rules::check_step(&before, &after)?;
    Ok(Some(Layout::new(after)?))
}
