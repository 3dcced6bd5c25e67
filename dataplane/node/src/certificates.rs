//! The node's certificate files: awaited at the start, watched for as long as the node runs.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use braid_link::{BindError, Endpoint, Identity, IdentityError, Peer};
use tokio_util::sync::CancellationToken;

use crate::Args;
use crate::status::Status;

/// How often the files are looked at while the node runs. A Secret's volume swaps a link, which says nothing that one could wait for.
pub(crate) const LOOK: Duration = Duration::from_secs(10);
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

/// Looks at the files `every` so often and uses every new version of them for new connections, until stopped. Files that do not do change nothing: perhaps they are
/// half written, and they are looked at again.
pub(crate) async fn watch(
    args: Args,
    endpoint: Endpoint,
    mut version: u64,
    status: Arc<Status>,
    stop: CancellationToken,
    every: Duration,
) {
    let mut look = tokio::time::interval(every);
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use rcgen::{CertificateParams, KeyPair, SanType};
    use tokio::task::JoinSet;

    use super::*;

    /// A certificate of its own making for `store`, in the three files.
    fn write(folder: &Path, store: &str) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![format!("{store}.default.nodes.braid")]).unwrap();
        params.subject_alt_names.push(SanType::URI(format!("braid://node/{store}").try_into().unwrap()));
        let cert = params.self_signed(&key).unwrap().pem();
        for (name, text) in [("ca", &cert), ("cert", &cert), ("key", &key.serialize_pem())] {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }

    const EVERY: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn files_that_changed_are_used_if_they_do() {
        let folder = std::env::temp_dir().join(format!("braid-certificates-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let args = Args {
            store: "node-0".into(),
            data_plane: "default".into(),
            listen: ([127, 0, 0, 1], 0).into(),
            http: ([127, 0, 0, 1], 0).into(),
            data: folder.clone(),
            ca: folder.join("ca"),
            cert: folder.join("cert"),
            key: folder.join("key"),
        };
        let (status, stop) = (Arc::new(Status::default()), CancellationToken::new());
        write(&folder, "node-0");
        let (identity, version) = first(&args, &stop).await.unwrap();
        let endpoint = Endpoint::server(args.listen, identity).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(watch(args.clone(), endpoint, version, status.clone(), stop.clone(), EVERY));
        let check = async |expected: u64| {
            let reloads = || status.reloads.load(Ordering::Relaxed);
            let reached = async {
                while reloads() < expected {
                    tokio::time::sleep(EVERY).await;
                }
                tokio::time::sleep(10 * EVERY).await;
            };
            tokio::time::timeout(Duration::from_secs(20), reached).await.unwrap();
            assert_eq!(reloads(), expected);
        };
        check(0).await;
        write(&folder, "node-0");
        check(1).await;
        // Half written, of another node, gone: nothing changes until they do again.
        std::fs::write(&args.key, "-----BEGIN").unwrap();
        check(1).await;
        write(&folder, "node-1");
        check(1).await;
        std::fs::remove_file(&args.cert).unwrap();
        check(1).await;
        write(&folder, "node-0");
        check(2).await;
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
