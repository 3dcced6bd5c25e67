//! How the command line reaches a data plane: flags and environment, the files of a pod, or a kubeconfig.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use braid_client::{Client, Identity, Options};
use tokio::task::JoinSet;

use crate::{kubeconfig, span};

/// Where a pod finds its certificate.
const MOUNTED: &str = "/etc/braid/tls";
/// How often a renewed certificate is looked for.
const LOOK: Duration = Duration::from_secs(60);
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
    /// A client as the flags say, completed from the pod's files or the cluster. Files are read again while `tasks` lives, for
    /// certificates are renewed.
    pub(crate) async fn client(&self, tasks: &mut JoinSet<()>) -> anyhow::Result<Client> {
        let files = self.files();
        let client = Client::connect(self.options(files.as_ref()).await?)?;
        if let Some(files) = files {
            tasks.spawn(renew(client.clone(), files));
        }
        Ok(client)
    }

    fn files(&self) -> Option<Files> {
        match (&self.ca, &self.cert, &self.key) {
            (Some(ca), Some(cert), Some(key)) => Some(Files { ca: ca.clone(), cert: cert.clone(), key: key.clone() }),
            _ => Files::mounted(Path::new(MOUNTED)),
        }
    }

    async fn options(&self, files: Option<&Files>) -> anyhow::Result<Options> {
        let none = self.server.is_empty();
        let (identity, servers) = match files {
            Some(files) => (files.load()?, if none { vec![SERVICE.to_owned()] } else { self.server.clone() }),
            None => {
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
}

/// The three files of an identity.
struct Files {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl Files {
    fn mounted(folder: &Path) -> Option<Self> {
        let [ca, cert, key] = ["ca.crt", "tls.crt", "tls.key"].map(|name| folder.join(name));
        (ca.exists() && cert.exists() && key.exists()).then_some(Self { ca, cert, key })
    }

    fn load(&self) -> anyhow::Result<Identity> {
        Identity::load(&self.ca, &self.cert, &self.key).with_context(|| format!("`{}`", self.cert.display()))
    }

    /// When the certificate was written last.
    fn written(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.cert).and_then(|file| file.modified()).ok()
    }
}

/// Shows a new certificate from the next connection on, once there is one.
async fn renew(client: Client, files: Files) {
    let mut written = files.written();
    let mut look = tokio::time::interval(LOOK);
    loop {
        look.tick().await;
        let found = files.written();
        if found == written {
            continue;
        }
        // Until key and certificate belong together, the old ones stay, and the next look tries again.
        match files.load().and_then(|identity| Ok(client.reload(identity)?)) {
            Ok(()) => written = found,
            Err(error) => tracing::warn!(error = format!("{error:#}"), "certificate not renewed"),
        }
    }
}
