//! Carrying out the one step of a plan, and noting what was answered.

use std::collections::BTreeSet;
use std::time::Duration;

use braid_crds::{ConditionStatus, FINALIZER, LayoutChange, ScalableTopic, set_condition};
use braid_model::operation::{Confirmed, Seal, Step};
use braid_model::placement::StoreName;
use braid_model::{Fence, Incarnation};
use braid_wire::proto::{self, request::Command, response::Result as Answer};
use futures::future::join_all;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::clock;
use crate::context::{Context, Error};
use crate::events::{self, Note};
use crate::layoutchange;
use crate::metrics::Metrics;
use crate::speech;
use crate::topic::memory::{Memory, Trouble};
use crate::topic::observe::{Asked, Seen, has_ended};
use crate::topic::plan::{Act, Ended, Told};
use crate::topic::tell::digest;
use crate::topic::told::{nodes, services, topic_ref};

/// A node that did not take a layout is told again after this long.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// Carries out the step. Cancel-safe: every command may be repeated.
pub(crate) async fn act(
    topic: &ScalableTopic,
    act: &Act,
    seen: &Seen,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<(), Error> {
    match act {
        // Telling the status is all there is to do.
        Act::Rest | Act::Store { .. } => Ok(()),
        Act::Command { number, step, fence } => command(*number, step, *fence, topic, seen, memory, ctx).await,
        Act::Pay { op, step, fence } => {
            ask(step.store(), Some(*fence), incarnation(seen), speak(step, seen), topic, seen, memory, ctx).await?;
            memory.paid = Some((step.store().clone(), *op));
            Ok(())
        }
        Act::SealAdopted { step, incarnation, fence } => {
            ask(step.store(), Some(*fence), *incarnation, speak(step, seen), topic, seen, memory, ctx).await?;
            // What the stores hold is another now.
            memory.inventories.clear();
            Ok(())
        }
        Act::Inspect { stores } => inspect(stores, topic, seen, memory, ctx).await,
        Act::Tell { stores, layout, fence } => tell_nodes(stores, layout, *fence, topic, seen, memory, ctx).await,
        Act::Settle { change, ended } => {
            if settle(topic, change, ended, ctx).await? {
                // Those that are deleted need no remembering.
                let changes = ctx.cache.changes_of(&seen.name);
                let there: BTreeSet<String> = changes.iter().filter_map(|change| change.uid()).collect();
                memory.ended.retain(|uid| there.contains(uid));
                memory.ended.insert(change.uid.clone());
            }
            Ok(())
        }
        Act::Finalizer { wanted } => finalizer(topic, *wanted, memory, ctx).await,
    }
}

fn incarnation(seen: &Seen) -> Incarnation {
    let ledger = seen.ledger.as_ref().ok().and_then(|ledger| ledger.as_ref());
    ledger.map_or(Incarnation(0), |ledger| ledger.incarnation)
}

fn speak(step: &Step, seen: &Seen) -> Command {
    let services = services(seen);
    speech::command(step, |name| services.get(name).copied().unwrap_or_default(), &nodes(seen))
}

/// A step of the stored operation.
async fn command(
    number: usize,
    step: &Step,
    fence: Fence,
    topic: &ScalableTopic,
    seen: &Seen,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<(), Error> {
    let answer = ask(step.store(), Some(fence), incarnation(seen), speak(step, seen), topic, seen, memory, ctx).await?;
    if memory.confirmed.fence != fence {
        memory.confirmed = Confirmed::under(fence);
    }
    match (answer, step) {
        (Answer::Sealed(sealed), Step::Seal { segment, .. }) => {
            let successors = sealed.successors.iter().map(speech::segment_from_wire).collect::<Result<_, _>>()?;
            info!(%segment, end_offset = sealed.end_offset, "sealed");
            memory.confirmed.sealed(number, Seal { segment: *segment, successors });
        }
        (Answer::Done(_), Step::Seal { segment, .. }) => return Err(Error::NoSeal { segment: *segment }),
        (_, step) => {
            debug!(number, store = %step.store(), "step done");
            memory.confirmed.done(number);
        }
    }
    Ok(())
}

/// Sends a command and waits for the answer. A refusal for a stale fence raises term and op before the next lap.
#[allow(clippy::too_many_arguments, reason = "one command, whole")]
async fn ask(
    store: &StoreName,
    fence: Option<Fence>,
    incarnation: Incarnation,
    command: Command,
    topic: &ScalableTopic,
    seen: &Seen,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Answer, Error> {
    let request = proto::Request {
        id: 0,
        fence: fence.map(Into::into),
        topic: Some(topic_ref(&seen.name, incarnation)),
        command: Some(command),
    };
    Metrics::count(&ctx.metrics.commands);
    let answer = ctx.fleet.ask(store, request).await;
    let refused = match answer {
        Ok(Answer::Refused(refused)) => refused,
        Ok(answer) => {
            memory.trouble = None;
            ctx.fault.acted(&topic.uid().unwrap_or_default());
            return Ok(answer);
        }
        Err(error) => {
            Metrics::count(&ctx.metrics.commands_failed);
            return Err(error.into());
        }
    };
    Metrics::count(&ctx.metrics.commands_failed);
    let (code, message) = (refused.code().as_str_name(), refused.message.clone());
    if let (proto::Code::StaleFence, Some(have), Some(sent)) = (refused.code(), refused.have_fence, fence) {
        warn!(%store, have_term = have.term, have_op = have.op, %sent, "stale fence");
        if have.term > sent.term {
            ctx.elector.raise_above(have.term).await?;
        }
        if have.op > sent.op {
            memory.seen_op = Some(have.op);
        }
        // An adoption that was planned from older inventories looks again.
        memory.inventories.clear();
        return Err(Error::StaleFence { store: store.clone() });
    }
    memory.trouble =
        Some(Trouble { reason: "CommandRefused", message: format!("store `{store}` refused with {code}: {message}") });
    Err(Error::Refused { store: store.clone(), code, message })
}

async fn inspect(
    stores: &[(StoreName, u64)],
    topic: &ScalableTopic,
    seen: &Seen,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<(), Error> {
    for (store, link) in stores {
        let command = Command::Inspect(proto::Inspect {});
        let answer = ask(store, None, Incarnation(0), command, topic, seen, memory, ctx).await?;
        let Answer::Inventory(inventory) = answer else { return Err(Error::NoInventory { store: store.clone() }) };
        memory.inventories.insert(store.clone(), (*link, inventory));
    }
    Ok(())
}

/// Tells all at once: a node that is slow holds up nobody, and is told again later.
async fn tell_nodes(
    stores: &[(StoreName, u64)],
    layout: &proto::TopicLayout,
    fence: Fence,
    topic: &ScalableTopic,
    seen: &Seen,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<(), Error> {
    let digest = digest(layout);
    let layout = proto::TopicLayout { sequence: ctx.next_sequence(), ..layout.clone() };
    let asked = stores.iter().map(|(store, link)| {
        let request = proto::Request {
            id: 0,
            fence: Some(fence.into()),
            topic: layout.topic.clone(),
            command: Some(Command::Tell(layout.clone())),
        };
        Metrics::count(&ctx.metrics.commands);
        async move { (store, *link, ctx.fleet.ask(store, request).await) }
    });
    let mut stale = None;
    for (store, link, answer) in join_all(asked).await {
        match answer {
            Ok(Answer::Refused(refused)) => {
                let code = refused.code().as_str_name();
                warn!(%store, code, message = refused.message, "layout refused");
                if refused.code() != proto::Code::StaleFence {
                    let message = format!("store `{store}` refused the layout with {code}: {}", refused.message);
                    memory.trouble = Some(Trouble { reason: "LayoutRefused", message });
                }
                memory.tell_after.insert(store.clone(), Instant::now() + TELL_AGAIN);
                stale = stale.or(refused.have_fence);
            }
            Ok(_) => {
                memory.told.insert(store.clone(), Told { link, digest });
                memory.tell_after.remove(store);
                ctx.fault.acted(&topic.uid().unwrap_or_default());
            }
            Err(error) => {
                debug!(%store, %error, "layout not taken");
                memory.tell_after.insert(store.clone(), Instant::now() + TELL_AGAIN);
            }
        }
    }
    if let Some(have) = stale {
        if have.term > fence.term {
            ctx.elector.raise_above(have.term).await?;
        }
        if have.op > fence.op {
            memory.seen_op = Some(have.op);
        }
    }
    debug!(stores = stores.len(), epoch = layout.epoch, name = %seen.name, "layout told");
    Ok(())
}

/// Writes how a layout change ended, unless that is written already; whether it is written now.
async fn settle(topic: &ScalableTopic, change: &Asked, ended: &Ended, ctx: &Context) -> Result<bool, Error> {
    let api: Api<LayoutChange> = Api::namespaced(ctx.client.clone(), &change.name.namespace);
    let Some(mut object) = api.get_opt(&change.name.name).await? else { return Ok(true) };
    if has_ended(&object) || object.uid().as_deref() != Some(&change.uid) {
        return Ok(true);
    }
    let generation = object.metadata.generation;
    let text = layoutchange::text(&object.spec);
    let status = object.status.get_or_insert_default();
    status.observed_generation = generation;
    status.change = Some(text);
    let now = clock::now();
    let mut set = |type_: &str, holds: bool, reason: &str, message: String| {
        set_condition(&mut status.conditions, type_, ConditionStatus::from(holds), reason, message, generation, now);
    };
    let note = match ended {
        Ended::Complete { op, epoch } => {
            let message = format!("committed by operation {op}, epoch {epoch}");
            set("Complete", true, "Committed", message.clone());
            set("Failed", false, "Committed", message.clone());
            (status.op, status.epoch) = (i64::try_from(*op).ok(), i64::try_from(*epoch).ok());
            Note::normal("Complete", message)
        }
        Ended::Failed { reason, message } => {
            set("Complete", false, reason, message.clone());
            set("Failed", true, reason, message.clone());
            Note::warning(reason, message.clone())
        }
    };
    match api.replace_status(&change.name.name, &PostParams::default(), &object).await {
        Ok(_) => {}
        // Its own controller wrote that it waits: the next lap reads it again.
        Err(kube::Error::Api(refusal)) if refusal.code == 409 => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    ctx.fault.acted(&topic.uid().unwrap_or_default());
    info!(change = %change.name, reason = note.reason, "layout change ended");
    events::tell(&ctx.recorder, &object, &note).await;
    Ok(true)
}

async fn finalizer(topic: &ScalableTopic, wanted: bool, memory: &mut Memory, ctx: &Context) -> Result<(), Error> {
    let mut finalizers: Vec<String> = topic.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if wanted {
        finalizers.push(FINALIZER.to_owned());
    }
    let metadata = json!({"resourceVersion": topic.resource_version(), "finalizers": finalizers});
    let api: Api<ScalableTopic> = Api::namespaced(ctx.client.clone(), &topic.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({"metadata": metadata}));
    match api.patch(&topic.name_any(), &PatchParams::default(), &patch).await {
        Ok(written) => memory.newest = Some(written),
        Err(kube::Error::Api(refusal)) if refusal.code == 409 || refusal.code == 404 => memory.newest = None,
        Err(error) => return Err(error.into()),
    }
    ctx.fault.acted(&topic.uid().unwrap_or_default());
    Ok(())
}
