//! A CA and a certificate for each node, an operator and a client, as PEM files in a folder.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType, string::Ia5String};

pub(super) fn write(folder: &Path, stores: &[String]) {
    let key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = ca.self_signed(&key).unwrap();
    std::fs::write(folder.join("ca.crt"), certificate.pem()).unwrap();
    let issuer = Issuer::new(ca, key);
    for store in stores {
        let names = vec![format!("{store}.default.nodes.braid"), "default.nodes.braid".into()];
        leaf(folder, store, names, &format!("braid://node/{store}"), &issuer);
    }
    leaf(folder, "operator", Vec::new(), "braid://operator/test", &issuer);
    leaf(folder, "client", Vec::new(), "braid://client/test", &issuer);
}

fn leaf(folder: &Path, file: &str, names: Vec<String>, uri: &str, issuer: &Issuer<'_, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names).unwrap();
    params.subject_alt_names.push(SanType::URI(Ia5String::try_from(uri).unwrap()));
    let certificate = params.signed_by(&key, issuer).unwrap();
    std::fs::write(folder.join(format!("{file}.crt")), certificate.pem()).unwrap();
    std::fs::write(folder.join(format!("{file}.key")), key.serialize_pem()).unwrap();
}
