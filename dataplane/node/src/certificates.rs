//! The node's certificate files: awaited at the start, watched for as long as the node runs.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use braid_link::{BindError, Endpoint, Identity, IdentityError, Peer};
use tokio_util::sync::CancellationToken;

use crate::Args;
use crate::status::Status;

/// How often the files are looked at. A Secret's volume swaps a link, which says nothing that one could wait for.
const LOOK: Duration = Duration::from_secs(10);
/// How often they are looked for at the start: the operator may just be writing them.
const LOOK_FIRST: Duration = Duration::from_secs(1);

/// Why the files do not do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("file `{path}` cannot be read: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("{}", chain(.0))]
    Identity(#[from] IdentityError),
    #[error("the certificate names `{found}`, this node is `braid://node/{store}`")]
    Other { found: Peer, store: String },
    #[error(transparent)]
    Reload(#[from] BindError),
}

fn chain(error: &IdentityError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Texts of the three files, as of one moment.
struct Texts([Vec<u8>; 3]);

impl Texts {
    fn read(args: &Args) -> Result<Self, CertificateError> {
        let read = |path: &std::path::PathBuf| {
            std::fs::read(path).map_err(|source| CertificateError::Read { path: path.display().to_string(), source })
        };
        Ok(Self([read(&args.ca)?, read(&args.cert)?, read(&args.key)?]))
    }

    /// Tells one version from the next; keeps no key in memory for it.
    fn version(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn identity(&self, store: &str) -> Result<Identity, CertificateError> {
        let [ca, cert, key] = &self.0;
        let identity = Identity::from_pem(ca, cert, key)?;
        match identity.peer() {
            Peer::Node { store: found } if found == store => Ok(identity),
            found => Err(CertificateError::Other { found: found.clone(), store: store.to_owned() }),
        }
    }
}

/// The identity in the files, and which version of them it is.
fn load(args: &Args) -> Result<(Identity, u64), CertificateError> {
    let texts = Texts::read(args)?;
    Ok((texts.identity(&args.store)?, texts.version()))
}

/// The first identity that the files hold; `None` if stopped before. Logs why it waits, once per reason.
pub(crate) async fn first(args: &Args, stop: &CancellationToken) -> Option<(Identity, u64)> {
    let mut told = String::new();
    let mut look = tokio::time::interval(LOOK_FIRST);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            _ = look.tick() => {}
        }
        match load(args) {
            Ok(found) => return Some(found),
            Err(error) => {
                let reason = error.to_string();
                if reason != told {
                    tracing::warn!(reason, "waits for its certificate");
                    told = reason;
                }
            }
        }
    }
}

/// Uses every new version of the files for new connections, until stopped. Files that do not do change nothing: perhaps they are
/// half written, and they are looked at again.
pub(crate) async fn watch(
    args: Args,
    endpoint: Endpoint,
    mut version: u64,
    status: Arc<Status>,
    stop: CancellationToken,
) {
    let mut look = tokio::time::interval(LOOK);
    let mut told = 0;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = look.tick() => {}
        }
        let texts = match Texts::read(&args) {
            Ok(texts) if texts.version() == version => continue,
            Ok(texts) => texts,
            Err(reason) => {
                tracing::warn!(%reason, "certificate not reloaded");
                continue;
            }
        };
        let new = texts.version();
        match texts.identity(&args.store).and_then(|identity| Ok(endpoint.reload(identity)?)) {
            Ok(()) => {
                version = new;
                Status::count(&status.reloads);
                tracing::info!("certificate reloaded");
            }
            Err(reason) if told != new => {
                told = new;
                tracing::warn!(%reason, "certificate not reloaded");
            }
            Err(_) => {}
        }
    }
}
