//! A CA for tests, and identities of it.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};

use crate::Identity;

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub(crate) fn ca(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn node(&self, store: &str) -> Identity {
        let names = [format!("{store}.default.nodes.braid"), "default.nodes.braid".into()];
        self.identity(&names, &[format!("braid://node/{store}")], &self.ca())
    }

    pub(crate) fn client(&self, name: &str) -> Identity {
        self.identity(&[], &[format!("braid://client/{name}")], &self.ca())
    }

    pub(crate) fn operator(&self, name: &str) -> Identity {
        self.identity(&[], &[format!("braid://operator/{name}")], &self.ca())
    }

    /// An identity of this CA that trusts `ca`.
    pub(crate) fn identity(&self, dns: &[String], uris: &[String], ca: &str) -> Identity {
        let (cert, key) = self.issue(dns, uris);
        Identity::from_pem(ca.as_bytes(), cert.as_bytes(), key.as_bytes()).unwrap()
    }

    /// Certificate and key as PEM.
    pub(crate) fn issue(&self, dns: &[String], uris: &[String]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(dns.to_vec()).unwrap();
        for uri in uris {
            params.subject_alt_names.push(SanType::URI(uri.as_str().try_into().unwrap()));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        (cert.pem(), key.serialize_pem())
    }
}
