//! One connection per node, shared by everything a client does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use braid_engine::remote::Target;
use braid_link::{Alpn, Channel, Connection, Endpoint, Peer};

/// Who dials a node that was found dead so recently gets the same answer.
const DEAD_FOR: Duration = Duration::from_millis(300);

#[derive(Debug, Default)]
struct Slot {
    connection: Option<Connection>,
    dead: Option<(Instant, String)>,
}

type Slots = HashMap<Option<String>, Arc<tokio::sync::Mutex<Slot>>>;

#[derive(Debug)]
pub(crate) struct Pool {
    endpoint: Endpoint,
    data_plane: String,
    /// By store; `None` is the first contact.
    slots: Mutex<Slots>,
}

impl Pool {
    pub(crate) fn new(endpoint: Endpoint, data_plane: String) -> Self {
        Self { endpoint, data_plane, slots: Mutex::default() }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A channel to the node, or why there is none, for people. Cancel-safe.
    pub(crate) async fn open(&self, target: &Target) -> Result<Channel, String> {
        let slot = self.slot(target.store.clone());
        let connection = {
            // Held while dialling, so that a node is dialled once however many wait for it.
            let mut slot = slot.lock().await;
            match slot.connection.clone().filter(|connection| connection.loss().is_none()) {
                Some(connection) => connection,
                None => self.dial(target, &mut slot).await?,
            }
        };
        connection.open().await.map_err(|loss| loss.to_string())
    }

    async fn dial(&self, target: &Target, slot: &mut Slot) -> Result<Connection, String> {
        if let Some((at, reason)) = &slot.dead
            && at.elapsed() < DEAD_FOR
        {
            return Err(reason.clone());
        }
        let name = match &target.store {
            Some(store) => format!("{store}.{}.nodes.braid", self.data_plane),
            None => format!("{}.nodes.braid", self.data_plane),
        };
        match self.endpoint.connect(Alpn::Client, &target.addresses, &name).await {
            Ok(connection) => {
                tracing::debug!(peer = %connection.peer(), address = %connection.remote_addr(), "connected");
                *slot = Slot { connection: Some(connection.clone()), dead: None };
                if let (None, Peer::Node { store }) = (&target.store, connection.peer())
                    && let Ok(mut own) = self.slot(Some(store.clone())).try_lock()
                    && own.connection.is_none()
                {
                    own.connection = Some(connection.clone());
                }
                Ok(connection)
            }
            Err(error) => {
                let reason = error.to_string();
                *slot = Slot { connection: None, dead: Some((Instant::now(), reason.clone())) };
                Err(reason)
            }
        }
    }

    fn slot(&self, store: Option<String>) -> Arc<tokio::sync::Mutex<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).entry(store).or_default().clone()
    }
}
