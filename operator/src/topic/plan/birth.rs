//! How a topic comes to be: created, or taken over from what stores hold of its name. Pure.

use braid_model::operation::{Ledger, Request, adopt};
use braid_model::placement::StoreName;
use braid_model::{Incarnation, Micros};

use crate::events::Note;
use crate::speech;
use crate::topic::observe::Seen;
use crate::topic::plan::{Act, Plan, given, hosts};
use crate::topic::status::Doing;

/// A store of the data plane that is not connected may hold data of a new topic's name; it is waited for this long.
const INVENTORY_MS: u64 = 15_000;

/// A topic without a ledger: adopt what stores hold of its name, or create it.
pub(super) fn begin(seen: &Seen, now: Micros) -> Plan {
    let waiting = |message: String| Plan::rest(seen, None, &Doing::Waiting { message }, now);
    let connected = || seen.stores.iter().filter_map(|store| Some((&store.store, store.link?)));
    if connected().next().is_none() {
        return waiting(format!("no store of data plane `{}` is connected", seen.spec.data_plane_ref.name));
    }
    let asked = |store: &StoreName, link: u64| seen.inventories.get(store).is_some_and(|(on, _)| *on == link);
    let unasked: Vec<_> =
        connected().filter(|(store, link)| !asked(store, *link)).map(|(store, link)| (store.clone(), link)).collect();
    if !unasked.is_empty() {
        return Plan::silently(Act::Inspect { stores: unasked });
    }
    let silent = seen.stores.iter().find(|store| store.link.is_none());
    if let Some(silent) = silent
        && seen.watched_ms < INVENTORY_MS
    {
        let message = format!("store `{}` is not connected and may hold data of this topic", silent.store);
        let plan = waiting(message);
        return Plan { recheck_ms: INVENTORY_MS - seen.watched_ms, ..plan };
    }
    if seen.inventories.values().any(|(_, inventory)| !inventory.segments.is_empty()) {
        return take_over(seen, now);
    }
    let request = Request::Create {
        segments: u32::try_from(seen.spec.initial_segments).unwrap_or(0),
        budget: u32::try_from(seen.spec.entry_bucket_budget).unwrap_or(0),
    };
    let hosts = hosts(seen);
    match Ledger::new(seen.fresh).begin(&request, None, &given(seen, &hosts, now)) {
        Ok(ledger) => Plan::store(seen, ledger, Some("create"), &Doing::Operation, now),
        Err(refusal) => waiting(refusal.to_string()),
    }
}

/// Retained data: the newest life of the name that stores hold is taken over.
fn take_over(seen: &Seen, now: Micros) -> Plan {
    let stuck = |message: String| Plan::rest(seen, None, &Doing::Stalled { reason: "AdoptionFailed", message }, now);
    let stored = || seen.inventories.values().flat_map(|(_, inventory)| &inventory.segments);
    let made_at = |life: u64| {
        let of = stored().filter(move |stored| stored.incarnation == life);
        of.filter_map(|stored| stored.segment.as_ref().map(|segment| segment.created_at_us)).max()
    };
    let Some(life) = stored().map(|stored| stored.incarnation).max_by_key(|life| (made_at(*life), *life)) else {
        return stuck("no segment is stored".to_owned());
    };
    let holdings = stored().filter(|stored| stored.incarnation == life).map(speech::holding_from_wire);
    let holdings = match holdings.collect::<Result<Vec<_>, _>>() {
        Ok(holdings) => holdings,
        Err(nonsense) => return stuck(nonsense.to_string()),
    };
    let fences = seen.inventories.values().filter_map(|(_, inventory)| inventory.fence.as_ref());
    let highest_op = fences.map(|fence| fence.op).max().unwrap_or(0);
    let incarnation = Incarnation(life);
    let adopted = match adopt(incarnation, highest_op, &holdings) {
        Ok(adopted) => adopted,
        Err(violation) => return stuck(format!("what the stores hold makes no layout: {violation}")),
    };
    let fence = adopted.ledger.fence(seen.term);
    if let Some(step) = adopted.seals.into_iter().next() {
        return Plan::silently(Act::SealAdopted { step, incarnation, fence });
    }
    let count = adopted.ledger.layout.as_ref().map_or(0, |layout| layout.segments().len());
    let mut plan = Plan::store(seen, adopted.ledger, None, &Doing::Operation, now).noting(Note::normal(
        "Adopted",
        format!("{count} retained segments of incarnation {life:016x} are taken over, `initialSegments` is ignored"),
    ));
    if !adopted.orphans.is_empty() {
        let text = format!("segments {:?} belong to no commit and are not served", adopted.orphans);
        plan = plan.noting(Note::warning("Orphans", text));
    }
    plan
}
