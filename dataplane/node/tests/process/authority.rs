//! A CA for tests, and what it signs.

use std::path::Path;

use braid_link::Identity;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// Writes `ca.crt`, `node.crt` and `node.key` of the node `store`.
    pub(crate) fn write_node(&self, folder: &Path, store: &str) {
        let names = vec![format!("{store}.default.nodes.braid"), "default.nodes.braid".to_owned()];
        let (cert, key) = self.issue(names, &format!("braid://node/{store}"));
        for (name, text) in [("ca.crt", self.issuer.pem()), ("node.crt", cert), ("node.key", key)] {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }

    pub(crate) fn identity(&self, uri: &str) -> Identity {
        let (cert, key) = self.issue(Vec::new(), uri);
        Identity::from_pem(self.issuer.pem().as_bytes(), cert.as_bytes(), key.as_bytes()).unwrap()
    }

    fn issue(&self, dns: Vec<String>, uri: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(dns).unwrap();
        params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}
