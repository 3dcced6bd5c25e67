//! A connection whose peer is known.

use std::net::SocketAddr;

use braid_wire::proto::Code;
use quinn::crypto::rustls::HandshakeData;
use rustls::pki_types::CertificateDer;

use crate::loss::number;
use crate::{Alpn, Channel, Loss, Peer};

/// A connection: two sides whose certificates are of one CA. Cheap to clone; closed when its last clone and channel are dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    quic: quinn::Connection,
    peer: Peer,
    alpn: Alpn,
}

/// Why a peer may not stay.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAdmitted {
    #[error("neither `braid/1` nor `braid-ctl/1` was agreed on")]
    Alpn,
    #[error("the peer shows no certificate")]
    Anonymous,
    #[error(transparent)]
    Nameless(#[from] crate::PeerError),
    #[error("`{peer}` may not speak `braid-ctl/1`: it is neither a node nor an operator")]
    Control { peer: Peer },
    #[error("`{peer}` is not a node")]
    NotANode { peer: Peer },
}

impl Connection {
    /// A connection that a peer opened, if its certificate allows what it wants to speak; else it is closed with `Unauthorized`.
    pub(crate) fn admit(quic: quinn::Connection) -> Result<Self, NotAdmitted> {
        Self::checked(quic, |peer, alpn| match (peer, alpn) {
            (Peer::Client { .. }, Alpn::Control) => Err(NotAdmitted::Control { peer: peer.clone() }),
            _ => Ok(()),
        })
    }

    /// A connection that this side opened: its peer must be a node.
    pub(crate) fn reached(quic: quinn::Connection) -> Result<Self, NotAdmitted> {
        Self::checked(quic, |peer, _| match peer {
            Peer::Node { .. } => Ok(()),
            _ => Err(NotAdmitted::NotANode { peer: peer.clone() }),
        })
    }

    fn checked(
        quic: quinn::Connection,
        allowed: impl Fn(&Peer, Alpn) -> Result<(), NotAdmitted>,
    ) -> Result<Self, NotAdmitted> {
        let known = (|| {
            let alpn = alpn(&quic).ok_or(NotAdmitted::Alpn)?;
            let peer = peer(&quic)?;
            allowed(&peer, alpn)?;
            Ok((peer, alpn))
        })();
        match known {
            Ok((peer, alpn)) => Ok(Self { quic, peer, alpn }),
            Err(error) => {
                let error: NotAdmitted = error;
                quic.close(number(Code::Unauthorized), error.to_string().as_bytes());
                Err(error)
            }
        }
    }

    /// Whom the peer's certificate names.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    #[must_use]
    pub fn alpn(&self) -> Alpn {
        self.alpn
    }

    /// Where the peer is now: it changes if the peer moves to another network.
    #[must_use]
    pub fn remote_addr(&self) -> SocketAddr {
        let address = self.quic.remote_address();
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    /// Opens a channel. The peer hears of it with the first frame. Waits while [`crate::STREAMS_MAX`] are open. Cancel-safe.
    pub async fn open(&self) -> Result<Channel, Loss> {
        Ok(Channel::new(self.quic.open_bi().await?))
    }

    /// The next channel that the peer opens; `None` once the connection is over. Cancel-safe.
    pub async fn accept(&self) -> Option<Channel> {
        self.quic.accept_bi().await.ok().map(Channel::new)
    }

    /// Ends the connection and all its channels at once; what is not acknowledged may be lost. The peer is told code and reason.
    pub fn close(&self, code: Code, reason: &str) {
        self.quic.close(number(code), reason.as_bytes());
    }

    /// Waits for the end. Cancel-safe.
    pub async fn closed(&self) -> Loss {
        self.quic.closed().await.into()
    }

    /// The end, if it came already.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.quic.close_reason().map(Loss::from)
    }
}

fn alpn(quic: &quinn::Connection) -> Option<Alpn> {
    let data = quic.handshake_data()?.downcast::<HandshakeData>().ok()?;
    Alpn::from_bytes(data.protocol.as_deref()?)
}

fn peer(quic: &quinn::Connection) -> Result<Peer, NotAdmitted> {
    let chain = quic
        .peer_identity()
        .and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok())
        .ok_or(NotAdmitted::Anonymous)?;
    Ok(Peer::of_certificate(chain.first().ok_or(NotAdmitted::Anonymous)?)?)
}
