//! Keeps the certificates as they should be: whenever the data plane's pods change, and every hour.

use std::collections::BTreeSet;
use std::time::Duration;

use braid_link::{Endpoint, Identity};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::tls::{Authority, Subject, TlsError};
use crate::watches::PodNames;

/// The one data plane that there is until the DataPlane kind exists.
const DATA_PLANE: &str = "default";
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
const RETRY: Duration = Duration::from_secs(2);
/// The operator's own certificate lives in memory; a fresh one is made this often.
const OWN_DAYS: i64 = 30;

/// An identity of this operator, signed now.
pub(crate) fn identity(authority: &Authority, operator: &str) -> anyhow::Result<Identity> {
    let pair = authority.issue(&Subject::Operator { name: operator }, Timestamp::now())?;
    Ok(Identity::from_pem(authority.ca_pem.as_bytes(), pair.cert_pem.as_bytes(), pair.key_pem.as_bytes())?)
}

/// Runs for ever.
pub(crate) async fn keep(
    authority: Authority,
    secrets: Api<Secret>,
    endpoint: Endpoint,
    operator: String,
    mut pods: watch::Receiver<PodNames>,
) {
    let mut own_due = Timestamp::now() + SignedDuration::from_hours(24 * OWN_DAYS);
    loop {
        let now = Timestamp::now();
        let names: BTreeSet<String> = pods.borrow_and_update().values().flatten().cloned().collect();
        if let Err(error) = authority.ensure_secrets(&secrets, DATA_PLANE, &names, now).await {
            match error {
                TlsError::Raced { name } => info!(secret = name, "somebody wrote first"),
                error => warn!(error = &error as &dyn std::error::Error, "certificates not stored"),
            }
            sleep(RETRY).await;
            continue;
        }
        if now >= own_due {
            match identity(&authority, &operator).map(|identity| endpoint.reload(identity)) {
                Ok(Ok(())) => own_due = now + SignedDuration::from_hours(24 * OWN_DAYS),
                Ok(Err(error)) => warn!(%error, "own certificate not renewed"),
                Err(error) => warn!(%error, "own certificate not renewed"),
            }
        }
        // Whether the pods changed or the hour is over: look again.
        let _ = timeout(LOOK_AGAIN, pods.changed()).await;
    }
}
