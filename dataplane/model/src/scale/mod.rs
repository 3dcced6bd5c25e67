//! When a topic should change its shape: one pure question, answered always and with reasons.
//!
//! It knows segments, their load, and how many sessions want to consume. It must never know a clock (`now` is an
//! argument), where a segment lives, or how a change is carried out. The order of the lanes is the policy; each lane is
//! one file.

mod clock;
mod consumers;
mod estimate;
mod lane;
mod layer;
mod load;
mod merge;
mod metric;
mod policy;
mod reason;
mod sampler;
mod snapshot;
mod survey;
mod verdict;
mod veto;

pub use clock::next_eligible;
pub use estimate::estimate;
pub use layer::PolicyLayer;
pub use metric::{Metric, Rates};
pub use policy::{InvalidPolicy, Mode, Policy, SEGMENTS_MAX};
pub use reason::{Hold, Reason};
pub use sampler::{LOAD_WINDOW_SECONDS_MAX, REPORT_INTERVAL_US, Sampler};
pub use snapshot::{LastChanges, Sample, Segment, Snapshot};
pub use verdict::{Change, Lane, Verdict};

use crate::Micros;
use clock::US_PER_SECOND;
use survey::Survey;
use verdict::Proposal;

/// The next structural change of one topic, at most one, and why each lane that held did so.
///
/// Total: it answers for every snapshot and every policy, also for one that [`Policy::validate`] refuses (a threshold of 0
/// then counts as 1). The order of `seen.segments` changes nothing.
#[must_use]
pub fn decide(seen: &Snapshot, policy: &Policy, now: Micros) -> Verdict {
    if let Some(hold) = frozen(seen, policy) {
        return Verdict::hold_all(hold);
    }
    let survey = Survey::of(seen, policy, now);
    let mut verdict = Verdict::default();
    for lane in [Lane::Consumers, Lane::Load, Lane::Merge] {
        match lane.propose(&survey, &verdict) {
            Proposal::Change(change) => return verdict.with(change),
            Proposal::Hold(hold) => verdict.holds.push((lane, hold)),
            Proposal::Nothing => {}
        }
    }
    verdict
}

/// Why no lane may even look, if so.
fn frozen(seen: &Snapshot, policy: &Policy) -> Option<Hold> {
    let stale_us = u128::from(policy.sample_stale_seconds) * US_PER_SECOND;
    let home_known = seen.home_silent_us.is_some_and(|silent| u128::from(silent) <= stale_us);
    if policy.mode == Mode::Off {
        Some(Hold::Off)
    } else if seen.busy {
        Some(Hold::Busy)
    } else if !home_known {
        Some(Hold::SessionsUnknown)
    } else {
        None
    }
}
