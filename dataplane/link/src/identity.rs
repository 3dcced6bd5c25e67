//! Certificates: whom this side trusts, and who it is.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig, version::TLS13};

use crate::{Peer, PeerError};

/// A CA that is trusted, and a certificate of it with its key. Cheap to clone.
#[derive(Clone)]
pub struct Identity {
    roots: Arc<RootCertStore>,
    own: Arc<CertifiedKey>,
    peer: Peer,
    provider: Arc<CryptoProvider>,
}

/// Why PEM texts are not an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("file `{}` cannot be read", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{what} is not PEM")]
    Pem { what: &'static str, source: pem::Error },
    #[error("{what} holds no certificate")]
    Empty { what: &'static str },
    #[error("{what} is not usable")]
    Tls { what: &'static str, source: rustls::Error },
    #[error(transparent)]
    Peer(#[from] PeerError),
}

impl Identity {
    /// Reads three PEM texts: the CA's certificates, this side's chain (leaf first) and its private key.
    ///
    /// Fails unless key and leaf belong together and the leaf names a [`Peer`]. Dates are left to the handshake.
    pub fn from_pem(ca: &[u8], cert: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let provider = Arc::new(provider());
        let mut roots = RootCertStore::empty();
        for root in certificates("ca", ca)? {
            roots.add(root).map_err(|source| IdentityError::Tls { what: "ca", source })?;
        }
        let chain = certificates("cert", cert)?;
        let peer = Peer::of_certificate(&chain[0])?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| IdentityError::Pem { what: "key", source })?;
        let own = CertifiedKey::from_der(chain, key, &provider)
            .map_err(|source| IdentityError::Tls { what: "key", source })?;
        Ok(Self { roots: Arc::new(roots), own: Arc::new(own), peer, provider })
    }

    /// The same from three files. Blocks on the disk, for moments.
    pub fn load(ca: &Path, cert: &Path, key: &Path) -> Result<Self, IdentityError> {
        let read =
            |path: &Path| std::fs::read(path).map_err(|source| IdentityError::Read { path: path.to_owned(), source });
        Self::from_pem(&read(ca)?, &read(cert)?, &read(key)?)
    }

    /// Whom the certificate names.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Demands a certificate of the CA from every client. No tickets: each connection shows its certificate anew.
    pub(crate) fn server_tls(&self, alpns: Vec<Vec<u8>>) -> Result<ServerConfig, rustls::Error> {
        let clients = WebPkiClientVerifier::builder_with_provider(self.roots.clone(), self.provider.clone())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut tls = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(self.own.clone())));
        tls.alpn_protocols = alpns;
        tls.send_tls13_tickets = 0;
        Ok(tls)
    }

    pub(crate) fn client_tls(&self, alpn: &[u8]) -> Result<ClientConfig, rustls::Error> {
        let mut tls = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(self.roots.clone())
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(self.own.clone())));
        tls.alpn_protocols = vec![alpn.to_vec()];
        tls.resumption = rustls::client::Resumption::disabled();
        Ok(tls)
    }
}

/// Never the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("peer", &self.peer).field("roots", &self.roots.len()).finish_non_exhaustive()
    }
}

/// AES-128-GCM first: the cheapest per byte; the others stay on offer.
fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

fn certificates(what: &'static str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|source| IdentityError::Pem { what, source })?;
    if found.is_empty() { Err(IdentityError::Empty { what }) } else { Ok(found) }
}
