//! A member of an ordered group.

use std::sync::Arc;
use std::time::Duration;

use braid_engine::consumer::{Config, ConsumeError, DeliveryId, Notice, Received};
use braid_engine::remote::Remote;
use braid_model::SegmentId;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::no_layout;
use crate::driver::{Driven, Shared};
use crate::pool::Pool;
use crate::{OpenError, clock};

/// Which group, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub subscription: String,
    /// The member's name. A second session of the same name is another member.
    pub member: String,
}

#[derive(Debug)]
struct State {
    machine: braid_engine::consumer::Consumer,
    end: Option<Result<(), ConsumeError>>,
}

impl Driven for State {
    fn machine(&mut self) -> &mut impl Remote {
        &mut self.machine
    }

    fn settle(&mut self) {
        while let Some(notice) = self.machine.poll_notice() {
            match notice {
                Notice::Revoked { segment, bucket } => tracing::warn!(%segment, bucket, "bucket revoked"),
                Notice::Lost { segment } => {
                    tracing::warn!(%segment, reason = self.machine.trouble(), "segment lost, attaching again");
                }
                Notice::Failed(error) => self.end = Some(Err(error)),
                Notice::Left => self.end = Some(Ok(())),
            }
        }
    }
}

/// A member of an ordered group: each key in order, to one member at a time.
///
/// Dropped without [`Consumer::close`], it counts as crashed: what it has not acked goes to others, as redelivered.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared<State>>,
    tasks: JoinSet<()>,
    stop: DropGuard,
}

pub(crate) async fn open(config: Config, pool: Arc<Pool>, wait: Duration) -> Result<Consumer, OpenError> {
    let contact = config.contact.clone();
    let shared = Shared::new(State { machine: braid_engine::consumer::Consumer::new(config), end: None });
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    tasks.spawn(shared.clone().drive(pool, stop.clone()));
    let told = shared.until(|state| (state.machine.view().is_some() || state.end.is_some()).then_some(()));
    if tokio::time::timeout(wait, told).await.is_err() {
        return Err(shared.act(|state| no_layout(&contact, wait, state.machine.trouble())));
    }
    Ok(Consumer { shared, tasks, stop: stop.drop_guard() })
}

impl Consumer {
    /// The next message, to be acked with its id; `None` after a close. Cancel-safe: a message is either returned or still here.
    pub async fn next(&self) -> Result<Option<Received>, ConsumeError> {
        self.shared
            .until(|state| match (state.machine.take(), &state.end) {
                (Some(received), _) => Some(Ok(Some(received))),
                (None, Some(Ok(()))) => Some(Ok(None)),
                (None, Some(Err(error))) => Some(Err(error.clone())),
                (None, None) => None,
            })
            .await
    }

    /// Acks a message: it will not come again once the ack is durable, which [`Consumer::acked`] waits for.
    ///
    /// `false` if it does not count, since the message's bucket is another member's by now, or its node was lost: it comes again.
    pub fn ack(&self, id: &DeliveryId) -> bool {
        self.shared.act(|state| state.machine.ack(clock::now(), id))
    }

    /// Waits until every ack is durable, or its segment's node is lost. Cancel-safe.
    pub async fn acked(&self) {
        self.shared.until(|state| (state.end.is_some() || !state.machine.has_unconfirmed_acks()).then_some(())).await;
    }

    /// The segments that it reads now.
    #[must_use]
    pub fn attached(&self) -> Vec<SegmentId> {
        self.shared.act(|state| state.machine.attached().collect())
    }

    /// What went wrong last and was not healed since.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.shared.act(|state| state.machine.trouble().map(str::to_owned))
    }

    /// Begins to leave: nothing more is handed out, what was is to be acked. [`Consumer::next`] returns `None` when it is over.
    pub fn leave(&self) {
        self.shared.act(|state| state.machine.leave(clock::now()));
    }

    /// Leaves, waits until every node let go (acks of messages handed out count until then, up to the leave deadline), and ends.
    ///
    /// Not cancel-safe: cancelled, it counts as crashed.
    pub async fn close(mut self) -> Result<(), ConsumeError> {
        self.leave();
        let end = self.shared.until(|state| state.end.clone()).await;
        drop(self.stop);
        while self.tasks.join_next().await.is_some() {}
        end
    }
}
