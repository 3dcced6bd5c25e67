//! A producer: sends wait for room, receipts for durability.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use braid_engine::producer::{Config, Notice, Ticket};
use braid_engine::remote::Remote;
use braid_model::{Offset, SegmentId};
use braid_wire::Message;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::no_layout;
use crate::driver::{Driven, Shared};
use crate::pool::Pool;
use crate::{OpenError, SendError, clock};

/// Where a message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub segment: SegmentId,
    /// `None` if the node knows that the message is durable, not any more where.
    pub offset: Option<Offset>,
}

type Outcome = Result<Position, SendError>;

/// A message on its way: resolves once it is durable, or failed. Dropping it changes nothing for the message.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Outcome>);

impl Future for Receipt {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(outcome.unwrap_or(Err(SendError::Closed)))
    }
}

#[derive(Debug)]
struct State {
    machine: braid_engine::producer::Producer,
    receipts: HashMap<Ticket, oneshot::Sender<Outcome>>,
}

impl Driven for State {
    fn machine(&mut self) -> &mut impl Remote {
        &mut self.machine
    }

    fn settle(&mut self) {
        while let Some(notice) = self.machine.poll_notice() {
            match notice {
                Notice::Durable { tickets, segment, base } => {
                    for (i, ticket) in (0..).zip(tickets.iter()) {
                        let offset = base.map(|base| Offset(base.0 + i));
                        self.answer(*ticket, Ok(Position { segment, offset }));
                    }
                }
                Notice::Failed { tickets, error } => {
                    tickets.iter().for_each(|ticket| self.answer(*ticket, Err(error.clone())));
                }
            }
        }
    }
}

impl State {
    fn answer(&mut self, ticket: Ticket, outcome: Outcome) {
        if let Some(receipt) = self.receipts.remove(&ticket) {
            // Who dropped the receipt does not want to know.
            let _ = receipt.send(outcome);
        }
    }
}

/// A producer of one topic. Messages of one key stay in the order of their sends, through every split, merge and rebucket.
///
/// Dropped without [`Producer::close`], it may lose what was not acknowledged yet.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared<State>>,
    tasks: JoinSet<()>,
    stop: DropGuard,
}

pub(crate) async fn open(config: Config, pool: Arc<Pool>, wait: Duration) -> Result<Producer, OpenError> {
    let contact = config.contact.clone();
    let machine = braid_engine::producer::Producer::new(config);
    let shared = Shared::new(State { machine, receipts: HashMap::new() });
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    tasks.spawn(shared.clone().drive(pool, stop.clone()));
    let told = shared.until(|state| state.machine.view().map(drop));
    if tokio::time::timeout(wait, told).await.is_err() {
        return Err(shared.act(|state| no_layout(&contact, wait, state.machine.trouble())));
    }
    Ok(Producer { shared, tasks, stop: stop.drop_guard() })
}

impl Producer {
    /// Takes the message over, once there is room for it: the bytes of unacknowledged messages are bounded.
    ///
    /// Sends from one task keep their order. Cancel-safe: a cancelled send has sent nothing.
    pub async fn send(&self, message: Message) -> Result<Receipt, SendError> {
        let mut message = Some(message);
        self.shared
            .until(|state| {
                if !state.machine.has_room() {
                    return None;
                }
                let message = message.take().expect("there is one answer");
                Some(state.machine.push(clock::now(), message).map(|ticket| {
                    let (sender, receiver) = oneshot::channel();
                    state.receipts.insert(ticket, sender);
                    Receipt(receiver)
                }))
            })
            .await
    }

    /// How many messages are neither durable nor failed.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.shared.act(|state| state.machine.unsettled())
    }

    /// Sends what is gathered at once, and waits until every message is durable or failed. Cancel-safe.
    pub async fn flush(&self) {
        self.shared.act(|state| state.machine.flush(clock::now()));
        self.shared.until(|state| (state.machine.unsettled() == 0).then_some(())).await;
    }

    /// Flushes and ends. Not cancel-safe: cancelled, it may lose what was not acknowledged yet.
    pub async fn close(mut self) {
        self.flush().await;
        drop(self.stop);
        while self.tasks.join_next().await.is_some() {}
    }
}
