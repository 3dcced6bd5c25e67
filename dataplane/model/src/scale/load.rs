//! Lane B: a segment over a split threshold.

use core::cmp::Reverse;

use super::metric::Rates;
use super::reason::{Hold, Reason};
use super::snapshot::Segment;
use super::survey::Survey;
use super::verdict::{Change, Proposal};

pub(super) fn propose(survey: &Survey<'_>) -> Proposal {
    if !survey.any_over {
        return Proposal::Nothing;
    }
    if survey.is_full() {
        return Proposal::Hold(Hold::AtMaxSegments);
    }
    if survey.in_split_cooldown() {
        return Proposal::Hold(Hold::SplitCooldown);
    }
    let split = &survey.policy.split;
    let over = || {
        let known = survey.seen.segments.iter().filter_map(|segment| Some((segment, &survey.known(segment)?.rates)));
        known.filter(|(segment, rates)| rates.any_over(split) && segment.range.size() >= 2)
    };
    let free = over().filter(|(segment, _)| !survey.is_blocked(segment));
    match free.max_by_key(|(segment, rates)| (rates.score(split), Reverse(segment.id))) {
        Some((segment, rates)) => Proposal::Change(Change::Split {
            segment: segment.id,
            into: children(survey, segment, rates),
            reason: Reason::from(rates.hottest(split)),
        }),
        None if over().next().is_none() => Proposal::Hold(Hold::TooNarrow),
        None => Proposal::Hold(Hold::UndrainedGenerations),
    }
}

/// Into how many a segment that is over a threshold splits: so many that none is over it, as far as is allowed. A power
/// of two, at least 2; the topic must not be full.
pub(super) fn children(survey: &Survey<'_>, segment: &Segment, rates: &Rates) -> u32 {
    let metric = rates.hottest(&survey.policy.split);
    let wanted = rates.of(metric).div_ceil(survey.policy.split.of(metric).max(1));
    let room = u64::from(survey.policy.max_segments).saturating_sub(survey.segments) + 1;
    let most = u64::from(survey.policy.max_split_factor).min(room).min(u64::from(segment.range.size())).max(2);
    // The next power of two of what is wanted, unless `most` is less: then the last power of two under that.
    let wanted = wanted.clamp(2, most).next_power_of_two();
    let into = if wanted > most { wanted / 2 } else { wanted };
    into as u32
}
