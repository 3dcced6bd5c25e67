//! A UDP socket that connections go out from and come in at.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_wire::proto::Code;
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::connection::NotAdmitted;
use crate::loss::number;
use crate::{Connection, Identity, Loss, settings};

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// `braid/1`: clients.
    Client,
    /// `braid-ctl/1`: operators and nodes.
    Control,
}

/// How long one address may take to answer.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long a peer that knocked may take to show its certificate.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// Addresses tried per name.
const RESOLVED_MAX: usize = 8;
/// Handshakes at a time; above half of them, a peer must first prove its address. The rest waits in QUIC, `INCOMING_MAX` at most.
const HANDSHAKES_MAX: usize = 128;
const INCOMING_MAX: usize = 1024;
/// Connections that are ready and not accepted yet. While it is full, no more handshakes begin.
const READY_MAX: usize = 64;

/// A socket with an identity. Cheap to clone; all clones share both.
#[derive(Clone, Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    quic: quinn::Endpoint,
    identity: Mutex<Identity>,
    transport: Arc<quinn::TransportConfig>,
    /// Of a server.
    ready: Option<tokio::sync::Mutex<mpsc::Receiver<Connection>>>,
    /// The one task of a server, which ends with the endpoint.
    _doorkeeper: JoinSet<()>,
}

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("UDP `{listen}` cannot be bound")]
    Socket { listen: SocketAddr, source: io::Error },
    #[error("the identity does not do for TLS 1.3")]
    Tls(#[from] rustls::Error),
    #[error("QUIC needs AES-128-GCM")]
    Cipher(#[from] NoInitialCipherSuite),
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no address of `{server_name}` is known")]
    NoAddress { server_name: String },
    #[error("none of the addresses of `{server_name}` answered: {}", list(.attempts))]
    Unreachable { server_name: String, attempts: Vec<Attempt> },
    #[error("the identity does not do")]
    Identity(#[from] BindError),
}

/// One address that was tried in vain.
#[derive(Debug, thiserror::Error)]
#[error("`{address}`: {error}")]
pub struct Attempt {
    pub address: String,
    pub error: AttemptError,
}

/// Why an address did not do.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    #[error("name has no address: {reason}")]
    Resolve { reason: String },
    #[error("no answer within {} ms", ATTEMPT.as_millis())]
    Timeout,
    #[error("cannot be dialed: {0}")]
    Dial(quinn::ConnectError),
    #[error("{0}")]
    Handshake(Loss),
    #[error("{0}")]
    Peer(String),
}

impl Endpoint {
    /// An endpoint that only dials, from a port of the system's choice. Must run within a tokio runtime.
    pub fn client(identity: Identity) -> Result<Self, BindError> {
        let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        // A host without IPv6 has no such socket.
        let socket = settings::socket(any6)
            .or_else(|_| settings::socket(any4))
            .map_err(|source| BindError::Socket { listen: any4, source })?;
        let quic = endpoint(socket, None, any4)?;
        Ok(Self::new(quic, identity, None, JoinSet::new()))
    }

    /// An endpoint that takes connections of both ALPNs, and dials. Must run within a tokio runtime.
    pub fn server(listen: SocketAddr, identity: Identity) -> Result<Self, BindError> {
        let config = server_config(&identity, settings::transport())?;
        let socket = settings::socket(listen).map_err(|source| BindError::Socket { listen, source })?;
        let quic = endpoint(socket, Some(config), listen)?;
        let (sender, receiver) = mpsc::channel(READY_MAX);
        let mut doorkeeper = JoinSet::new();
        doorkeeper.spawn(keep_door(quic.clone(), sender));
        Ok(Self::new(quic, identity, Some(receiver), doorkeeper))
    }

    fn new(
        quic: quinn::Endpoint,
        identity: Identity,
        ready: Option<mpsc::Receiver<Connection>>,
        doorkeeper: JoinSet<()>,
    ) -> Self {
        let shared = Shared {
            quic,
            identity: Mutex::new(identity),
            transport: settings::transport(),
            ready: ready.map(tokio::sync::Mutex::new),
            _doorkeeper: doorkeeper,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Uses another identity for every handshake from now on. Connections that stand are not touched.
    pub fn reload(&self, identity: Identity) -> Result<(), BindError> {
        if self.shared.ready.is_some() {
            let config = server_config(&identity, self.shared.transport.clone())?;
            self.shared.quic.set_server_config(Some(config));
        }
        *self.shared.identity.lock().unwrap_or_else(PoisonError::into_inner) = identity;
        Ok(())
    }

    /// Connects to the node whose certificate has the DNS SAN `server_name`, at the first of `addresses` ("host:port") that answers.
    ///
    /// Each address gets 2 s, and a name that resolves to several gets as much for each, 8 at most. The peer may still refuse this
    /// side's certificate after this returned: the connection is then lost with a code or a TLS alert. Cancel-safe: nothing is left behind.
    pub async fn connect(
        &self,
        alpn: Alpn,
        addresses: &[impl AsRef<str>],
        server_name: &str,
    ) -> Result<Connection, ConnectError> {
        let config = self.client_config(alpn)?;
        let mut attempts = Vec::new();
        for address in addresses.iter().map(AsRef::as_ref) {
            let resolved = match tokio::time::timeout(ATTEMPT, tokio::net::lookup_host(address)).await {
                Ok(Ok(resolved)) => resolved.take(RESOLVED_MAX).collect::<Vec<_>>(),
                Ok(Err(error)) => {
                    let error = AttemptError::Resolve { reason: error.to_string() };
                    attempts.push(Attempt { address: address.to_owned(), error });
                    continue;
                }
                Err(_elapsed) => {
                    attempts.push(Attempt { address: address.to_owned(), error: AttemptError::Timeout });
                    continue;
                }
            };
            for socket_address in resolved {
                match self.attempt(config.clone(), socket_address, server_name).await {
                    Ok(connection) => return Ok(connection),
                    Err(error) => attempts.push(Attempt { address: socket_address.to_string(), error }),
                }
            }
        }
        let server_name = server_name.to_owned();
        Err(if attempts.is_empty() {
            ConnectError::NoAddress { server_name }
        } else {
            ConnectError::Unreachable { server_name, attempts }
        })
    }

    async fn attempt(
        &self,
        config: quinn::ClientConfig,
        address: SocketAddr,
        server_name: &str,
    ) -> Result<Connection, AttemptError> {
        let connecting = self.shared.quic.connect_with(config, address, server_name).map_err(AttemptError::Dial)?;
        match tokio::time::timeout(ATTEMPT, connecting).await {
            Ok(Ok(quic)) => Connection::reached(quic).map_err(|error| AttemptError::Peer(error.to_string())),
            Ok(Err(error)) => Err(AttemptError::Handshake(error.into())),
            Err(_elapsed) => Err(AttemptError::Timeout),
        }
    }

    fn client_config(&self, alpn: Alpn) -> Result<quinn::ClientConfig, BindError> {
        let tls = {
            let identity = self.shared.identity.lock().unwrap_or_else(PoisonError::into_inner);
            identity.client_tls(alpn.as_bytes())?
        };
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        config.transport_config(self.shared.transport.clone());
        Ok(config)
    }

    /// The next connection of an admitted peer; `None` once the endpoint is closed, or if it is a client's. Cancel-safe.
    ///
    /// Handshakes go on in the background, several at a time: a slow peer holds up nobody. Peers that are refused are logged.
    pub async fn accept(&self) -> Option<Connection> {
        self.shared.ready.as_ref()?.lock().await.recv().await
    }

    /// The address bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.quic.local_addr()
    }

    /// Takes no new connections from now on; those that stand go on.
    pub fn refuse_new(&self) {
        self.shared.quic.set_server_config(None);
    }

    /// Closes every connection with `ShuttingDown` and waits, at most `deadline`, until the peers know.
    pub async fn close(&self, deadline: Duration) {
        self.shared.quic.close(number(Code::ShuttingDown), b"the endpoint is closing");
        // A peer that does not answer finds out by itself.
        let _ = tokio::time::timeout(deadline, self.shared.quic.wait_idle()).await;
    }
}

impl Alpn {
    const ALL: [Self; 2] = [Self::Client, Self::Control];

    /// As TLS carries it.
    #[must_use]
    pub const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::Client => braid_wire::ALPN_CLIENT,
            Self::Control => braid_wire::ALPN_CONTROL,
        }
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|alpn| alpn.as_bytes() == bytes)
    }
}

/// Shakes hands with whoever comes, until the endpoint is closed.
async fn keep_door(quic: quinn::Endpoint, ready: mpsc::Sender<Connection>) {
    let mut handshakes = JoinSet::new();
    loop {
        let incoming = tokio::select! {
            biased;
            _ = handshakes.join_next(), if !handshakes.is_empty() => continue,
            incoming = quic.accept(), if handshakes.len() < HANDSHAKES_MAX => incoming,
        };
        let Some(incoming) = incoming else { return };
        if handshakes.len() >= HANDSHAKES_MAX / 2 && incoming.may_retry() && !incoming.remote_address_validated() {
            // An error gives back what `may_retry` rules out.
            let _ = incoming.retry();
            continue;
        }
        let ready = ready.clone();
        handshakes.spawn(async move {
            let remote = incoming.remote_address();
            // Reserved first: while the owner does not accept, nobody is let in.
            let Ok(slot) = ready.reserve().await else { return };
            match tokio::time::timeout(HANDSHAKE, shake(incoming)).await {
                Ok(Ok(connection)) => slot.send(connection),
                Ok(Err(reason)) => tracing::warn!(%remote, %reason, "peer refused"),
                Err(_elapsed) => tracing::warn!(%remote, "handshake timed out"),
            }
        });
    }
}

#[derive(Debug, thiserror::Error)]
enum ShakeError {
    #[error("{0}")]
    Quic(Loss),
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
}

async fn shake(incoming: quinn::Incoming) -> Result<Connection, ShakeError> {
    let quic = incoming.await.map_err(|error| ShakeError::Quic(error.into()))?;
    Ok(Connection::admit(quic)?)
}

fn endpoint(
    socket: std::net::UdpSocket,
    server: Option<quinn::ServerConfig>,
    listen: SocketAddr,
) -> Result<quinn::Endpoint, BindError> {
    quinn::Endpoint::new(settings::endpoint(), server, socket, Arc::new(quinn::TokioRuntime))
        .map_err(|source| BindError::Socket { listen, source })
}

fn server_config(
    identity: &Identity,
    transport: Arc<quinn::TransportConfig>,
) -> Result<quinn::ServerConfig, BindError> {
    let tls = identity.server_tls(Alpn::ALL.map(|alpn| alpn.as_bytes().to_vec()).into())?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport).max_incoming(INCOMING_MAX);
    Ok(config)
}

fn list(attempts: &[Attempt]) -> String {
    attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
