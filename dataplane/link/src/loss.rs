//! Why a connection is over.

use braid_wire::proto::Code;
use quinn::ConnectionError;

use crate::settings::IDLE_TIMEOUT;

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The other side closed it. A code that this build does not know reads as `Unspecified`; `Unspecified` itself is a plain goodbye.
    #[error("closed by the peer with `{}`: {reason}", .code.as_str_name())]
    ByPeer { code: Code, reason: String },
    /// This side closed it.
    #[error("closed here")]
    Here,
    /// Nothing came for the idle timeout: the peer, its host or the network is gone.
    #[error("nothing came from the peer for {} ms", IDLE_TIMEOUT.as_millis())]
    Silent,
    /// The peer has no memory of the connection: it restarted.
    #[error("the peer does not know the connection any more")]
    Forgotten,
    /// QUIC or TLS ended it, on either side: among others, a certificate that is not of the CA.
    #[error("ended by QUIC or TLS: {reason}")]
    Transport { reason: String },
}

impl From<ConnectionError> for Loss {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => Self::ByPeer {
                code: code(close.error_code),
                reason: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            ConnectionError::LocallyClosed => Self::Here,
            ConnectionError::TimedOut => Self::Silent,
            ConnectionError::Reset => Self::Forgotten,
            ConnectionError::VersionMismatch
            | ConnectionError::TransportError(_)
            | ConnectionError::ConnectionClosed(_)
            | ConnectionError::CidsExhausted => Self::Transport { reason: error.to_string() },
        }
    }
}

/// The code that a peer closed a connection or reset a stream with.
pub(crate) fn code(number: quinn::VarInt) -> Code {
    i32::try_from(number.into_inner()).ok().and_then(|number| Code::try_from(number).ok()).unwrap_or_default()
}

/// A code as QUIC carries it.
pub(crate) fn number(code: Code) -> quinn::VarInt {
    quinn::VarInt::from_u32(code as u32)
}
