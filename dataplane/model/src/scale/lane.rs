//! The three lanes, and which file speaks for each.

use super::survey::Survey;
use super::verdict::{Lane, Proposal, Verdict};
use super::{consumers, load, merge};

impl Lane {
    /// What this lane wants, given what the lanes before it held for.
    pub(super) fn propose(self, survey: &Survey<'_>, so_far: &Verdict) -> Proposal {
        match self {
            // Whatever holds all lanes is asked before any of them.
            Self::All => Proposal::Nothing,
            Self::Consumers => consumers::propose(survey),
            Self::Load => load::propose(survey),
            Self::Merge => merge::propose(survey, so_far.is_growing()),
        }
    }
}
