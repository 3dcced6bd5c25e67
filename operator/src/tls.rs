//! Certificates: an authority of Braid's own, one key pair per data-plane pod, one for clients, one in memory for this operator.
//!
//! Secrets are read by name, written only when something is missing or due, and by resourceVersion. Keys never reach a log.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use tracing::info;

pub(crate) const CA_SECRET: &str = "braid-ca";
pub(crate) const NODE_SECRET: &str = "braid-node-tls";
pub(crate) const CLIENT_SECRET: &str = "braid-client-tls";
/// When the key pairs of a Secret are due for renewal, RFC 3339.
const RENEW_AFTER: &str = "braid.stream/renew-after";

const CA_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 90;
/// Renewed after two thirds of their life, so that a month of silence of the operator breaks nothing.
const RENEW_DAYS: i64 = 60;

/// Why certificates could not be made or stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("secret `{name}`")]
    Api { name: &'static str, source: Box<kube::Error> },
    #[error("secret `{name}` has no usable field `{field}`")]
    Field { name: &'static str, field: String },
    #[error("certificate for `{subject}`")]
    Make { subject: String, source: Box<rcgen::Error> },
    #[error("another operator is writing secret `{name}`")]
    Raced { name: &'static str },
}

/// The authority, as this operator holds it in memory.
pub(crate) struct Authority {
    pub(crate) ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, PEM.
pub(crate) struct Pair {
    pub(crate) cert_pem: String,
    pub(crate) key_pem: String,
}

/// Who a certificate is for.
pub(crate) enum Subject<'a> {
    Node { store: &'a str, data_plane: &'a str },
    Client { name: &'a str },
    Operator { name: &'a str },
}

impl Authority {
    /// Reads the authority, or makes it if there is none. Two operators that race end with the same one.
    pub(crate) async fn ensure(secrets: &Api<Secret>, now: Timestamp) -> Result<Self, TlsError> {
        if let Some(secret) = read(secrets, CA_SECRET).await? {
            return Self::load(&secret);
        }
        let key = KeyPair::generate().map_err(|e| make("braid authority", e))?;
        let cert = ca_params(now).self_signed(&key).map_err(|e| make("braid authority", e))?;
        let data = BTreeMap::from([("ca.crt".to_owned(), cert.pem()), ("ca.key".to_owned(), key.serialize_pem())]);
        match create(secrets, CA_SECRET, data, BTreeMap::new()).await {
            Ok(secret) => {
                info!(secret = CA_SECRET, "authority made");
                Self::load(&secret)
            }
            Err(TlsError::Raced { .. }) => {
                let secret = read(secrets, CA_SECRET).await?.ok_or(TlsError::Raced { name: CA_SECRET })?;
                Self::load(&secret)
            }
            Err(error) => Err(error),
        }
    }

    fn load(secret: &Secret) -> Result<Self, TlsError> {
        let ca_pem = field(secret, CA_SECRET, "ca.crt")?;
        let unusable = |_| TlsError::Field { name: CA_SECRET, field: "ca.key".to_owned() };
        let key = KeyPair::from_pem(&field(secret, CA_SECRET, "ca.key")?).map_err(unusable)?;
        // The issuer needs the authority's name and key only: both are the same in each of its certificates.
        Ok(Self { ca_pem, issuer: Issuer::new(ca_params(Timestamp::UNIX_EPOCH), key) })
    }

    /// A key pair for `subject`, valid from an hour before `now` (clocks differ) for 90 days.
    pub(crate) fn issue(&self, subject: &Subject<'_>, now: Timestamp) -> Result<Pair, TlsError> {
        let name = subject.name();
        let failed = |e| make(&name, e);
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(subject.dns_names()).map_err(failed)?;
        params.subject_alt_names.push(SanType::URI(subject.uri().as_str().try_into().map_err(failed)?));
        params.distinguished_name = named(&name);
        params.not_before = date(now - SignedDuration::from_hours(1));
        params.not_after = date(now + SignedDuration::from_hours(24 * LEAF_DAYS));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let cert = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Pair { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }

    /// Makes the Secret of the data plane hold a key pair for each of `pods`, and the one of clients. Writes nothing if all is there.
    pub(crate) async fn ensure_secrets(
        &self,
        secrets: &Api<Secret>,
        data_plane: &str,
        pods: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<(), TlsError> {
        let nodes = pods.iter().map(|store| (store.clone(), Subject::Node { store, data_plane })).collect::<Vec<_>>();
        self.ensure_pairs(secrets, NODE_SECRET, &nodes, now).await?;
        self.ensure_pairs(secrets, CLIENT_SECRET, &[("tls".to_owned(), Subject::Client { name: "client" })], now).await
    }

    async fn ensure_pairs(
        &self,
        secrets: &Api<Secret>,
        name: &'static str,
        wanted: &[(String, Subject<'_>)],
        now: Timestamp,
    ) -> Result<(), TlsError> {
        let current = read(secrets, name).await?;
        let due = current.as_ref().is_none_or(|s| renewal_is_due(s, now));
        let ca_moved = current.as_ref().is_some_and(|s| field(s, name, "ca.crt").ok().as_ref() != Some(&self.ca_pem));
        let fresh = due || ca_moved;
        let has = |stem: &str| {
            let data = current.as_ref().and_then(|s| s.data.as_ref());
            [".crt", ".key"].iter().all(|end| data.is_some_and(|d| d.contains_key(&format!("{stem}{end}"))))
        };
        let missing: Vec<_> = wanted.iter().filter(|(stem, _)| fresh || !has(stem)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut data = BTreeMap::from([("ca.crt".to_owned(), self.ca_pem.clone())]);
        for (stem, subject) in &missing {
            let pair = self.issue(subject, now)?;
            data.insert(format!("{stem}.crt"), pair.cert_pem);
            data.insert(format!("{stem}.key"), pair.key_pem);
        }
        // All pairs of one Secret are renewed with the oldest, so a pair that is added later keeps the date.
        let renew_after = (now + SignedDuration::from_hours(24 * RENEW_DAYS)).to_string();
        let issued = missing.len();
        match current {
            None => create(secrets, name, data, BTreeMap::from([(RENEW_AFTER.to_owned(), renew_after)])).await?,
            Some(mut secret) => {
                if fresh {
                    secret.metadata.annotations.get_or_insert_default().insert(RENEW_AFTER.to_owned(), renew_after);
                }
                secret.data.get_or_insert_default().extend(bytes(data));
                replace(secrets, name, &secret).await?
            }
        };
        info!(secret = name, issued, "certificates issued");
        Ok(())
    }
}

impl Subject<'_> {
    fn name(&self) -> String {
        match self {
            Self::Node { store, .. } => (*store).to_owned(),
            Self::Client { name } | Self::Operator { name } => (*name).to_owned(),
        }
    }

    fn uri(&self) -> String {
        match self {
            Self::Node { store, .. } => format!("braid://node/{store}"),
            Self::Client { name } => format!("braid://client/{name}"),
            Self::Operator { name } => format!("braid://operator/{name}"),
        }
    }

    fn dns_names(&self) -> Vec<String> {
        match self {
            Self::Node { store, data_plane } => {
                vec![format!("{store}.{data_plane}.nodes.braid"), format!("{data_plane}.nodes.braid")]
            }
            Self::Client { .. } | Self::Operator { .. } => Vec::new(),
        }
    }
}

fn ca_params(now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("braid authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date(now - SignedDuration::from_hours(1));
    params.not_after = date(now + SignedDuration::from_hours(24 * CA_DAYS));
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn date(at: Timestamp) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(at.as_second()).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

fn renewal_is_due(secret: &Secret, now: Timestamp) -> bool {
    let said = secret
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(RENEW_AFTER))
        .and_then(|at| at.parse::<Timestamp>().ok());
    said.is_none_or(|at| at <= now)
}

async fn read(secrets: &Api<Secret>, name: &'static str) -> Result<Option<Secret>, TlsError> {
    secrets.get_opt(name).await.map_err(|e| api(name, e))
}

async fn create(
    secrets: &Api<Secret>,
    name: &'static str,
    data: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
) -> Result<Secret, TlsError> {
    let labels = BTreeMap::from([("app.kubernetes.io/part-of".to_owned(), "braid".to_owned())]);
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    };
    let secret =
        Secret { metadata, data: Some(bytes(data).collect()), type_: Some("Opaque".to_owned()), ..Secret::default() };
    secrets.create(&PostParams::default(), &secret).await.map_err(|e| api(name, e))
}

async fn replace(secrets: &Api<Secret>, name: &'static str, secret: &Secret) -> Result<Secret, TlsError> {
    secrets.replace(name, &PostParams::default(), secret).await.map_err(|e| api(name, e))
}

fn bytes(data: BTreeMap<String, String>) -> impl Iterator<Item = (String, ByteString)> {
    data.into_iter().map(|(field, text)| (field, ByteString(text.into_bytes())))
}

fn field(secret: &Secret, name: &'static str, field: &str) -> Result<String, TlsError> {
    let bytes = secret.data.as_ref().and_then(|d| d.get(field));
    bytes
        .and_then(|b| String::from_utf8(b.0.clone()).ok())
        .ok_or_else(|| TlsError::Field { name, field: field.to_owned() })
}

fn api(name: &'static str, error: kube::Error) -> TlsError {
    match error {
        kube::Error::Api(status) if status.code == 409 => TlsError::Raced { name },
        error => TlsError::Api { name, source: Box::new(error) },
    }
}

fn make(subject: &str, error: rcgen::Error) -> TlsError {
    TlsError::Make { subject: subject.to_owned(), source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use braid_link::{Identity, Peer};

    use super::*;

    fn secret(data: BTreeMap<String, String>) -> Secret {
        Secret { data: Some(bytes(data).collect()), ..Secret::default() }
    }

    fn authority(now: Timestamp) -> Authority {
        let key = KeyPair::generate().unwrap();
        let cert = ca_params(now).self_signed(&key).unwrap();
        let fields = [("ca.crt".to_owned(), cert.pem()), ("ca.key".to_owned(), key.serialize_pem())];
        Authority::load(&secret(BTreeMap::from(fields))).unwrap()
    }

    #[test]
    fn a_certificate_names_its_holder_as_the_link_reads_it() {
        let now = Timestamp::now();
        let authority = authority(now);
        let rows = [
            (
                Subject::Node { store: "braid-node-1", data_plane: "default" },
                Peer::Node { store: "braid-node-1".into() },
            ),
            (Subject::Operator { name: "op_1" }, Peer::Operator { name: "op_1".into() }),
            (Subject::Client { name: "client" }, Peer::Client { name: "client".into() }),
        ];
        for (subject, expected) in rows {
            let Pair { cert_pem, key_pem } = authority.issue(&subject, now).unwrap();
            let ca = authority.ca_pem.as_bytes();
            let identity = Identity::from_pem(ca, cert_pem.as_bytes(), key_pem.as_bytes()).unwrap();
            assert_eq!(*identity.peer(), expected);
        }
        let node = Subject::Node { store: "braid-node-1", data_plane: "default" };
        assert_eq!(node.dns_names(), ["braid-node-1.default.nodes.braid", "default.nodes.braid"]);
    }

    #[test]
    fn a_secret_is_renewed_when_it_says_so_or_says_nothing() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let check = |said: Option<&str>, due: bool| {
            let mut secret = secret(BTreeMap::new());
            let said = said.map(|at| (RENEW_AFTER.to_owned(), at.to_owned()));
            secret.metadata.annotations = Some(said.into_iter().collect());
            assert_eq!(renewal_is_due(&secret, now), due);
        };
        check(None, true);
        check(Some("nonsense"), true);
        check(Some("2026-11-30T23:59:59Z"), true);
        check(Some("2026-12-01T00:00:00Z"), true);
        check(Some("2026-12-01T00:00:01Z"), false);
    }
}
