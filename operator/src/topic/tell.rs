//! Telling: one status write by resourceVersion, none if nothing changed; and the fingerprint of a layout told to nodes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::Ordering;

use braid_crds::ScalableTopic;
use braid_wire::{Frame, proto};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use tracing::{debug, info};

use crate::context::{Context, Error};
use crate::events;
use crate::metrics::Metrics;
use crate::topic::memory::Memory;
use crate::topic::observe::Seen;
use crate::topic::plan::{Act, Plan};

/// What tells one layout from another within this process; the sequence does not count.
pub(crate) fn digest(layout: &proto::TopicLayout) -> u64 {
    let (bytes, _) = Frame::TopicLayout(proto::TopicLayout { sequence: 0, ..layout.clone() }).encode();
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Writes the plan's status, if it differs. Afterwards memory holds the topic as it is at the API server, or nothing if
/// somebody else wrote first: then the next lap looks again. Cancel-safe: a write that was sent may still happen.
pub(crate) async fn tell(
    topic: &ScalableTopic,
    plan: &Plan,
    seen: &Seen,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<(), Error> {
    let Some(status) = &plan.status else { return Ok(()) };
    if **status == seen.status {
        return Ok(());
    }
    let uid = topic.uid().unwrap_or_default();
    let api: Api<ScalableTopic> = Api::namespaced(ctx.client.clone(), &seen.name.namespace);
    let next = ScalableTopic { status: Some((**status).clone()), ..topic.clone() };
    match api.replace_status(&seen.name.name, &PostParams::default(), &next).await {
        Ok(written) => memory.newest = Some(written),
        Err(kube::Error::Api(refusal)) if refusal.code == 409 => {
            debug!("somebody wrote first");
            memory.newest = None;
            return Ok(());
        }
        Err(error) => {
            memory.newest = None;
            return Err(error.into());
        }
    }
    Metrics::count(&ctx.metrics.status_writes);
    if let Act::Store { ledger, begins } = &plan.act {
        stored(seen, ledger, *begins, &uid, ctx);
    } else {
        ctx.fault.acted(&uid);
    }
    for note in &plan.notes {
        if note.reason.ends_with("Decided") {
            ctx.metrics.decisions.fetch_add(1, Ordering::Relaxed);
        }
        info!(reason = note.reason, note = note.text, "told");
        events::tell(&ctx.recorder, topic, note).await;
    }
    Ok(())
}

fn stored(
    seen: &Seen,
    ledger: &braid_model::operation::Ledger,
    begins: Option<&'static str>,
    uid: &str,
    ctx: &Context,
) {
    let segments = ledger.operation.iter().flat_map(|operation| &operation.children);
    let active = ledger.layout.iter().flat_map(|layout| layout.active());
    ctx.fleet.expect(&seen.name, ledger.incarnation, segments.chain(active));
    match begins {
        Some(operation) => {
            info!(operation, op = ledger.op, "operation planned");
            ctx.fault.planned(uid, operation);
        }
        None => {
            info!(op = ledger.op, "ledger stored");
            ctx.fault.acted(uid);
        }
    }
}
