//! Channels that this node opens to others, one per connection, when the engine asks.

use std::sync::Arc;

use braid_engine::{ChannelId, ConnectionId};
use braid_link::{Alpn, Channel, Code, Connection, Peer};

use crate::connections::{Counted, Shared};
use crate::engine::Input;
use crate::live::{Gone, live};
use crate::outbox::Outbox;
use crate::status::Status;

/// A node to reach. How often to try again, and when, is the engine's to say.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) store: String,
    pub(crate) addresses: Vec<String>,
}

/// Why a dial came to nothing.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error(transparent)]
    Connect(#[from] braid_link::ConnectError),
    #[error("the certificate names `{found}`, not store `{store}`")]
    Other { store: String, found: Peer },
    #[error(transparent)]
    Lost(#[from] braid_link::Loss),
}

/// Dials, tells the engine the outcome, and serves the channel to its end.
pub(crate) async fn run(dial: Dial, shared: Arc<Shared>) {
    let store = dial.store.clone();
    let dialed = tokio::select! {
        biased;
        () = shared.stop.cancelled() => return,
        dialed = open(&dial, &shared) => dialed,
    };
    let (connection, opened) = match dialed {
        Ok(dialed) => dialed,
        Err(error) => {
            Status::count(&shared.status.dials_failed);
            tracing::info!(store, %error, "node not reached");
            // If the engine is gone, there is nobody to tell.
            let _ = shared.inlet.put(Input::Dialed { store, channel: None }).await;
            return;
        }
    };
    let _counted = Counted::new(&shared.status);
    let (channel, id) = (ChannelId(shared.number()), ConnectionId(shared.number()));
    tracing::info!(store, remote = %connection.remote_addr(), connection = id.0, "node reached");
    let outbox = Arc::new(Outbox::new(Some(connection.clone()), shared.total.clone()));
    let dialed = Input::Dialed { store, channel: Some((channel, id, outbox.clone())) };
    if let Err(Gone) = shared.inlet.put(dialed).await {
        return;
    }
    live(channel, opened, &outbox, &shared.inlet, &shared.stop).await;
    connection.close(Code::Unspecified, "its one channel ended");
}

async fn open(dial: &Dial, shared: &Shared) -> Result<(Connection, Channel), DialError> {
    let store = &dial.store;
    let server_name = format!("{store}.{}.nodes.braid", shared.data_plane);
    let connection = shared.endpoint.connect(Alpn::Control, &dial.addresses, &server_name).await?;
    if !matches!(connection.peer(), Peer::Node { store: found } if found == store) {
        return Err(DialError::Other { store: store.clone(), found: connection.peer().clone() });
    }
    let opened = connection.open().await?;
    Ok((connection, opened))
}
