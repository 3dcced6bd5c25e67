//! The way to a data plane through the user's kubeconfig: a Secret for the certificate, pods for the addresses.

use anyhow::{Context as _, bail};
use braid_client::Identity;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams};

/// Where Braid itself lives.
const NAMESPACE: &str = "braid-system";
const SECRET: &str = "braid-client-tls";
const PODS: &str = "app.kubernetes.io/name=braid-node";
const PORT: u16 = 4433;

/// Who this client is, and where nodes are.
pub(crate) struct Cluster {
    pub(crate) identity: Identity,
    pub(crate) servers: Vec<String>,
}

pub(crate) async fn read() -> anyhow::Result<Cluster> {
    let client = kube::Client::try_default().await.context("kubeconfig")?;
    let secret = Api::<Secret>::namespaced(client.clone(), NAMESPACE).get(SECRET).await;
    let data = secret.with_context(|| format!("secret `{NAMESPACE}/{SECRET}`"))?.data.unwrap_or_default();
    let field = |name: &str| {
        let bytes = data.get(name).map(|bytes| bytes.0.as_slice());
        bytes.with_context(|| format!("secret `{NAMESPACE}/{SECRET}` has no `{name}`"))
    };
    let identity = Identity::from_pem(field("ca.crt")?, field("tls.crt")?, field("tls.key")?)?;
    let pods = Api::<Pod>::namespaced(client, NAMESPACE).list(&ListParams::default().labels(PODS)).await?;
    let address = |pod: Pod| {
        pod.status?.pod_ip.map(|ip| if ip.contains(':') { format!("[{ip}]:{PORT}") } else { format!("{ip}:{PORT}") })
    };
    let servers: Vec<_> = pods.items.into_iter().filter_map(address).collect();
    if servers.is_empty() {
        bail!("no pod `{PODS}` in namespace `{NAMESPACE}` has an address");
    }
    Ok(Cluster { identity, servers })
}
