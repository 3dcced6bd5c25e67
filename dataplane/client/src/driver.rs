//! Runs a machine: events in, effects out, ticks when they are due.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_engine::remote::{Effect, Event, Remote};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::channels::Channels;
use crate::clock;
use crate::pool::Pool;

/// Events taken at a time.
const BATCH: usize = 256;

/// A machine and what its application waits for.
pub(crate) trait Driven: Send + 'static {
    fn machine(&mut self) -> &mut impl Remote;
    /// Passes on what the machine learned. Called after every change, before the application is woken.
    fn settle(&mut self);
}

/// Shared by the application's calls and the task that drives the machine. The lock is held for moments, never across a wait.
#[derive(Debug)]
pub(crate) struct Shared<D> {
    state: Mutex<D>,
    /// The application did something: there may be effects.
    touched: Notify,
    /// The machine changed: who waits looks again.
    changed: Notify,
}

impl<D: Driven> Shared<D> {
    pub(crate) fn new(state: D) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), touched: Notify::new(), changed: Notify::new() })
    }

    /// Acts on the machine for the application; effects are carried out soon.
    pub(crate) fn act<T>(&self, act: impl FnOnce(&mut D) -> T) -> T {
        let mut state = self.lock();
        let outcome = act(&mut state);
        state.settle();
        drop(state);
        self.touched.notify_one();
        self.changed.notify_waiters();
        outcome
    }

    /// Acts whenever the machine changed, until `act` has an answer. Cancel-safe: nothing happens after the answer.
    pub(crate) async fn until<T>(&self, mut act: impl FnMut(&mut D) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before looking, so that no change goes unseen.
            changed.as_mut().enable();
            let answer = act(&mut self.lock());
            self.touched.notify_one();
            if let Some(answer) = answer {
                return answer;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, D> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives the machine until `stop`, then lets what was sent go out.
    pub(crate) async fn drive(self: Arc<Self>, pool: Arc<Pool>, stop: CancellationToken) {
        let (mut channels, mut events) = Channels::new(pool);
        let mut inbox = Vec::with_capacity(BATCH);
        loop {
            let (effects, deadline) = self.turn(&mut inbox);
            effects.into_iter().for_each(|effect| channels.apply(effect));
            let timer = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(clock::instant(deadline)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = events.recv_many(&mut inbox, BATCH) => {}
                () = self.touched.notified() => {}
                () = timer => {}
                () = channels.reap() => {}
            }
        }
        // Readers must not wait for a machine that is gone.
        drop(events);
        channels.finish().await;
    }

    /// Hands events to the machine and takes its effects.
    fn turn(&self, inbox: &mut Vec<Event>) -> (Vec<Effect>, Option<braid_model::Micros>) {
        let mut state = self.lock();
        let now = clock::now();
        let had_events = !inbox.is_empty();
        let machine = state.machine();
        inbox.drain(..).for_each(|event| machine.handle(now, event));
        let due = machine.deadline().is_some_and(|deadline| deadline <= now);
        if due {
            machine.tick(now);
        }
        let effects = std::iter::from_fn(|| machine.poll_effect()).collect();
        let deadline = machine.deadline();
        state.settle();
        drop(state);
        if had_events || due {
            self.changed.notify_waiters();
        }
        (effects, deadline)
    }
}
