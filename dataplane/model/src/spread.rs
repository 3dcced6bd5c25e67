//! Which session reads which segment: the counts by round robin, then who, sticky or contiguous. Pure functions.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use crate::assign::{Strategy, quotas, take_one};

/// How many sessions read each segment, given their N in the order of (range, id).
///
/// With no more sessions than segments one each (0 without sessions): a session reads several whole ones. Else owners
/// grow by one per round while there is room, up to N. The sum is the number of sessions that are not idle.
#[must_use]
pub fn owner_counts(buckets: &[u32], sessions: usize) -> Vec<u32> {
    let mut owners = vec![u32::from(sessions > 0); buckets.len()];
    let mut surplus = sessions.saturating_sub(buckets.len());
    while surplus > 0 {
        let before = surplus;
        for (owned, n) in owners.iter_mut().zip(buckets) {
            if *owned < *n && surplus > 0 {
                *owned += 1;
                surplus -= 1;
            }
        }
        if surplus == before {
            break;
        }
    }
    owners
}

/// The segments each session reads, as indexes into `buckets` (the N of each, in the order of (range, id)); ascending.
///
/// `held` is who reads what now; sessions that are gone or not listed do not matter. Every session is in the answer, an
/// idle one with nothing. The order of `sessions` does not matter.
#[must_use]
pub fn spread<M: Ord + Copy>(
    strategy: Strategy,
    buckets: &[u32],
    sessions: &[M],
    held: &BTreeMap<M, BTreeSet<usize>>,
) -> BTreeMap<M, Vec<usize>> {
    let mut shares: BTreeMap<M, Vec<usize>> = sessions.iter().map(|&session| (session, Vec::new())).collect();
    let members: Vec<M> = shares.keys().copied().collect();
    if members.is_empty() {
        return shares;
    }
    let counts = owner_counts(buckets, members.len());
    let mut holders = vec![Vec::new(); buckets.len()];
    for &member in &members {
        for &segment in held.get(&member).into_iter().flatten().filter(|&&segment| segment < buckets.len()) {
            holders[segment].push(member);
        }
    }
    let whole = members.len() <= buckets.len();
    let mut room: BTreeMap<M, usize> = match strategy {
        Strategy::Sticky if whole => {
            quotas(buckets.len(), &members, holders.iter().filter_map(|all| all.first().copied()))
        }
        _ => members.iter().map(|&member| (member, 1)).collect(),
    };
    match strategy {
        Strategy::Contiguous if whole => {
            for segment in 0..buckets.len() {
                share(&mut shares, members[segment % members.len()], segment);
            }
        }
        Strategy::Contiguous => {
            let mut order = members.iter();
            for (segment, &count) in counts.iter().enumerate() {
                order.by_ref().take(count as usize).for_each(|&member| share(&mut shares, member, segment));
            }
        }
        Strategy::Sticky => {
            let mut open = Vec::new();
            for (segment, &count) in counts.iter().enumerate() {
                let mut left = count as usize;
                for &holder in &holders[segment] {
                    if left > 0 && take_one(&mut room, holder) {
                        share(&mut shares, holder, segment);
                        left -= 1;
                    }
                }
                open.extend(core::iter::repeat_n(segment, left));
            }
            let mut takers = room.iter().flat_map(|(&member, &left)| core::iter::repeat_n(member, left));
            for segment in open {
                if let Some(taker) = takers.next() {
                    share(&mut shares, taker, segment);
                }
            }
        }
    }
    shares.values_mut().for_each(|segments| segments.sort_unstable());
    shares
}

fn share<M: Ord>(shares: &mut BTreeMap<M, Vec<usize>>, member: M, segment: usize) {
    if let Some(segments) = shares.get_mut(&member) {
        segments.push(segment);
    }
}
