//! Laps over one topic until it is at rest.

use std::sync::Arc;
use std::time::Duration;

use braid_crds::ScalableTopic;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::controller::Action;
use tracing::{instrument, warn};

use crate::cache::{Guarded, is_decoded};
use crate::clock;
use crate::context::{Context, Error};
use crate::metrics::Metrics;
use crate::topic::act::act;
use crate::topic::memory::Memory;
use crate::topic::observe::observe;
use crate::topic::plan::{Act, plan, refused};
use crate::topic::tell::tell;

/// Laps in a row; then others have their turn.
const LAPS_MAX: u32 = 256;

/// Looks at the topic until nothing is to be done. Safe to cancel at any await and to run twice.
pub(crate) async fn reconcile(topic: Arc<Guarded<ScalableTopic>>, ctx: Arc<Context>) -> Result<Action, Error> {
    let Some(cached) = topic.0.as_ref().ok().filter(|_| is_decoded(&topic, &ctx.metrics)) else {
        return Ok(Action::await_change());
    };
    let uid = cached.uid().unwrap_or_default();
    let mut memory = ctx.memories.take(&uid);
    let ended = laps(cached, &mut memory, &ctx).await;
    ctx.memories.put(&uid, memory);
    if ended.is_ok() {
        ctx.memories.succeeded(&uid);
    }
    ended
}

#[instrument(name = "topic", skip_all, fields(topic = %cached.name_any(), namespace = cached.namespace()), err(level = "warn"))]
async fn laps(cached: &ScalableTopic, memory: &mut Memory, ctx: &Context) -> Result<Action, Error> {
    for _ in 0..LAPS_MAX {
        Metrics::count(&ctx.metrics.laps);
        let _lap = ctx.metrics.health.lap();
        let term = ctx.term.borrow().ok_or(Error::NotLeading)?;
        let Some(topic) = current(cached, memory, ctx).await? else { return Ok(Action::await_change()) };
        let seen = observe(&topic, memory, term, ctx); // only reads
        let plan = plan(&seen, clock::now()); // pure: no client, no await
        if let Err(error) = act(&topic, &plan.act, &seen, memory, ctx).await {
            return Err(complain(error, &topic, memory, term, ctx).await);
        } // one step, idempotent, fenced by (term, op)
        tell(&topic, &plan, &seen, memory, ctx).await?; // one status write, by resourceVersion
        if plan.act == Act::Rest && memory.newest.is_some() {
            ctx.fault.rested(&topic.uid().unwrap_or_default());
            return Ok(Action::requeue(Duration::from_millis(plan.recheck_ms)));
        }
    }
    Ok(Action::requeue(Duration::ZERO))
}

/// A refusal that a person must look at is shown before the lap is repeated.
async fn complain(error: Error, topic: &ScalableTopic, memory: &mut Memory, term: u64, ctx: &Context) -> Error {
    if memory.trouble.is_some() {
        let seen = observe(topic, memory, term, ctx);
        if let Err(unheard) = tell(topic, &refused(&seen, clock::now()), &seen, memory, ctx).await {
            warn!(error = &unheard as &dyn std::error::Error, "refusal not told");
        }
    }
    error
}

/// The topic as it is now: from the cache, unless this process knows better or has never asked the API server.
async fn current(cached: &ScalableTopic, memory: &mut Memory, ctx: &Context) -> Result<Option<ScalableTopic>, Error> {
    if let Some(newer) = memory.newer(cached) {
        return Ok(Some(newer));
    }
    let api: Api<ScalableTopic> = Api::namespaced(ctx.client.clone(), &cached.namespace().unwrap_or_default());
    let found = api.get_opt(&cached.name_any()).await?.filter(|found| found.uid() == cached.uid());
    if let Some(ledger) =
        found.as_ref().and_then(|found| found.status.as_ref()).and_then(|status| status.ledger().ok().flatten())
    {
        // Its segments weigh on their stores, reported or not.
        let active = ledger.layout.iter().flat_map(|layout| layout.active());
        ctx.fleet.expect(&crate::name::Name::of(cached), ledger.incarnation, active);
    }
    memory.newest = found.clone();
    Ok(found)
}

/// When to look again after a lap that failed.
pub(crate) fn after_failure(topic: Arc<Guarded<ScalableTopic>>, error: &Error, ctx: Arc<Context>) -> Action {
    Metrics::count(&ctx.metrics.lap_errors);
    let wait = ctx.backoff(&topic.uid().unwrap_or_default());
    warn!(topic = topic.name_any(), wait_ms = wait.as_millis(), %error, "lap repeated");
    Action::requeue(wait)
}
