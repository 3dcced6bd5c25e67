//! How the command line reaches a data plane: flags and environment, the files of a pod, or a kubeconfig.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use braid_client::{Client, Identity, Options};

use crate::{kubeconfig, span};

/// Where a pod finds its certificate.
const MOUNTED: &str = "/etc/braid/tls";
/// First contact within a cluster.
const SERVICE: &str = "braid-nodes.braid-system:4433";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Addresses of any nodes, host:port, separated by commas [default: braid-nodes.braid-system:4433 in a pod, else the
    /// pods that the kubeconfig shows]
    #[arg(long, env = "BRAID_SERVER", value_delimiter = ',', value_name = "ADDRESS")]
    server: Vec<String>,
    /// Certificates of the CA, PEM [default: /etc/braid/tls/ca.crt if it exists, else Secret braid-client-tls]
    #[arg(long, env = "BRAID_CA", value_name = "FILE", requires_all = ["cert", "key"])]
    ca: Option<PathBuf>,
    /// The client's certificate, PEM [default: /etc/braid/tls/tls.crt if it exists]
    #[arg(long, env = "BRAID_CERT", value_name = "FILE", requires_all = ["ca", "key"])]
    cert: Option<PathBuf>,
    /// The client's private key, PEM [default: /etc/braid/tls/tls.key if it exists]
    #[arg(long, env = "BRAID_KEY", value_name = "FILE", requires_all = ["ca", "cert"])]
    key: Option<PathBuf>,
    /// The data plane's name
    #[arg(long, default_value = "default", value_name = "NAME")]
    data_plane: String,
    /// How long to wait for the topic to appear
    #[arg(long, default_value = "30s", value_parser = span::parse, value_name = "SPAN")]
    wait: Duration,
}

impl Connection {
    /// What the flags say, completed from the pod's files or the cluster.
    pub(crate) async fn options(&self) -> anyhow::Result<Options> {
        let files = match (&self.ca, &self.cert, &self.key) {
            (Some(ca), Some(cert), Some(key)) => Some((ca.clone(), cert.clone(), key.clone())),
            _ => mounted(Path::new(MOUNTED)),
        };
        let (identity, servers) = match (files, self.server.is_empty()) {
            (Some((ca, cert, key)), none) => {
                let identity = Identity::load(&ca, &cert, &key).with_context(|| format!("`{}`", cert.display()))?;
                (identity, if none { vec![SERVICE.to_owned()] } else { self.server.clone() })
            }
            (None, none) => {
                let cluster = kubeconfig::read().await.context(
                    "neither --ca, --cert and --key nor files in /etc/braid/tls; and through the kubeconfig",
                )?;
                (cluster.identity, if none { cluster.servers } else { self.server.clone() })
            }
        };
        let mut options = Options::new(servers, identity);
        options.data_plane.clone_from(&self.data_plane);
        options.wait = self.wait;
        Ok(options)
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::connect(self.options().await?)?)
    }
}

fn mounted(folder: &Path) -> Option<(PathBuf, PathBuf, PathBuf)> {
    let [ca, cert, key] = ["ca.crt", "tls.crt", "tls.key"].map(|name| folder.join(name));
    (ca.exists() && cert.exists() && key.exists()).then_some((ca, cert, key))
}
