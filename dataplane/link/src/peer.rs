//! Who a certificate says it belongs to.

use std::fmt;

use rustls::pki_types::CertificateDer;

/// The owner of a certificate, from its URI SAN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// `braid://client/<name>`
    Client { name: String },
    /// `braid://operator/<name>`
    Operator { name: String },
    /// `braid://node/<store>`
    Node { store: String },
}

/// Why a certificate names nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error("certificate cannot be parsed: {reason}")]
    Certificate { reason: String },
    #[error("certificate has no URI SAN `braid://..`")]
    Nameless,
    #[error("certificate has {found} URI SANs `braid://..`, it must have 1")]
    Ambiguous { found: usize },
    #[error(
        "URI SAN `{uri}` must be `braid://client/<name>`, `braid://operator/<name>` or `braid://node/<store>`, a name of 1..={NAME_BYTES_MAX} bytes"
    )]
    Malformed { uri: String },
}

const SCHEME: &str = "braid://";
const NAME_BYTES_MAX: usize = 253;

impl Peer {
    /// The owner named by the one URI SAN of Braid's scheme; URIs of other schemes are passed over.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<Self, PeerError> {
        let parsed = webpki::EndEntityCert::try_from(certificate)
            .map_err(|error| PeerError::Certificate { reason: error.to_string() })?;
        let mut uris = parsed.valid_uri_names().filter(|uri| uri.starts_with(SCHEME));
        let uri = uris.next().ok_or(PeerError::Nameless)?;
        match uris.count() {
            0 => Self::parse(uri),
            more => Err(PeerError::Ambiguous { found: more + 1 }),
        }
    }

    /// Reads `braid://<kind>/<name>`.
    pub fn parse(uri: &str) -> Result<Self, PeerError> {
        let malformed = || PeerError::Malformed { uri: uri.chars().take(NAME_BYTES_MAX).collect() };
        let (kind, name) = uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')).ok_or_else(malformed)?;
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || name.contains('/') || name.chars().any(char::is_control) {
            return Err(malformed());
        }
        let name = name.to_owned();
        match kind {
            "client" => Ok(Self::Client { name }),
            "operator" => Ok(Self::Operator { name }),
            "node" => Ok(Self::Node { store: name }),
            _ => Err(malformed()),
        }
    }

    /// The name alone.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Client { name } | Self::Operator { name } => name,
            Self::Node { store } => store,
        }
    }
}

/// As the URI SAN.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Client { .. } => "client",
            Self::Operator { .. } => "operator",
            Self::Node { .. } => "node",
        };
        write!(f, "{SCHEME}{kind}/{}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_one_peer_or_none() {
        let check = |uri: &str, expected: Option<Peer>| assert_eq!(Peer::parse(uri).ok(), expected, "{uri}");
        check("braid://node/braid-node-0", Some(Peer::Node { store: "braid-node-0".into() }));
        check("braid://operator/a", Some(Peer::Operator { name: "a".into() }));
        check("braid://client/shop.orders", Some(Peer::Client { name: "shop.orders".into() }));
        for bad in
            ["", "braid://", "braid://node", "braid://node/", "braid://node/a/b", "braid://king/a", "https://node/a"]
        {
            check(bad, None);
        }
        check(&format!("braid://client/{}", "x".repeat(254)), None);
        check("braid://client/a\nb", None);
    }

    #[test]
    fn a_peer_prints_as_the_uri_it_was_read_from() {
        for uri in ["braid://node/s", "braid://operator/o", "braid://client/c"] {
            assert_eq!(Peer::parse(uri).unwrap().to_string(), uri);
        }
    }
}
