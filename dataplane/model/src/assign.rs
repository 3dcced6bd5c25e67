//! Who owns which bucket of a segment. Pure functions of the members and, for the sticky way, of the assignment before.
//!
//! Knows no deliveries: how a bucket gets from one owner to the next is `handoff`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How buckets are spread over members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Fewest moves.
    #[default]
    Sticky,
    /// Slices in the order of members.
    Contiguous,
}

/// The owner of each of `n` buckets, by `strategy`; `None` everywhere if there are no members, else nowhere.
///
/// `previous` is the last assignment, empty if there was none. The order of `members` does not matter; no two may be equal.
#[must_use]
pub fn assign<M: Ord + Copy>(strategy: Strategy, n: usize, members: &[M], previous: &[Option<M>]) -> Vec<Option<M>> {
    match strategy {
        Strategy::Sticky => sticky(n, members, previous),
        Strategy::Contiguous => contiguous(n, members),
    }
}

/// Member `j` of `k`, in order, owns `floor(j * n / k)..floor((j + 1) * n / k)`. Source: PIP-486, "Ownership".
#[must_use]
pub fn contiguous<M: Ord + Copy>(n: usize, members: &[M]) -> Vec<Option<M>> {
    let members = sorted(members);
    let k = members.len();
    let slices = members.iter().enumerate().flat_map(|(j, &member)| {
        let (start, end) = (j * n / k, (j + 1) * n / k);
        core::iter::repeat_n(Some(member), end - start)
    });
    let mut owners: Vec<_> = slices.collect();
    owners.resize(n, None);
    owners
}

/// As even as can be (counts differ by at most one) with the fewest moves from `previous`.
///
/// A member that joins `k` others takes at most `ceil(n / (k + 1))` buckets, and nobody else gains; when members leave,
/// only their buckets move. With more members than buckets the surplus is idle, and a holder keeps what it holds.
#[must_use]
pub fn sticky<M: Ord + Copy>(n: usize, members: &[M], previous: &[Option<M>]) -> Vec<Option<M>> {
    let mut quotas = quotas(n, members, previous.iter().take(n).copied().flatten());
    let mut owners: Vec<Option<M>> = (0..n)
        .map(|bucket| {
            let holder = previous.get(bucket).copied().flatten()?;
            take_one(&mut quotas, holder).then_some(holder)
        })
        .collect();
    let mut open = quotas.iter().flat_map(|(&member, &room)| core::iter::repeat_n(member, room));
    for owner in owners.iter_mut().filter(|owner| owner.is_none()) {
        *owner = open.next();
    }
    owners
}

/// How many of `n` parts each member owns: `floor(n / k)`, and one more for those that hold the most now.
pub(crate) fn quotas<M: Ord + Copy>(n: usize, members: &[M], held: impl Iterator<Item = M>) -> BTreeMap<M, usize> {
    let mut holdings: BTreeMap<M, usize> = members.iter().map(|&member| (member, 0)).collect();
    for holder in held {
        if let Some(count) = holdings.get_mut(&holder) {
            *count += 1;
        }
    }
    let k = holdings.len().max(1);
    let mut ranked: Vec<(M, usize)> = holdings.into_iter().collect();
    ranked.sort_by_key(|&(member, count)| (core::cmp::Reverse(count), member));
    ranked.into_iter().enumerate().map(|(rank, (member, _))| (member, n / k + usize::from(rank < n % k))).collect()
}

/// Takes one from the room of `member`; false if it has none or is no member.
pub(crate) fn take_one<M: Ord>(room: &mut BTreeMap<M, usize>, member: M) -> bool {
    match room.get_mut(&member) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    }
}

fn sorted<M: Ord + Copy>(members: &[M]) -> Vec<M> {
    let mut members = members.to_vec();
    members.sort_unstable();
    members
}
