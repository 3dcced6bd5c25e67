//! Who leads: a Lease, taken and renewed with resourceVersion preconditions, judged expired by this process's own
//! monotonic clock since the record last changed. `leaseTransitions` is the term in the fence of every command.
//!
//! It decides nothing about topics. A leader that cannot renew in time stops being one before another can begin:
//! [`Elector::run`] returns, and the process ends.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// Why leading ended or could not be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    /// Another holder, or no answer from the API server until the renew deadline: this process must end.
    #[error("the lease `{name}` is lost: {reason}")]
    Lost { name: String, reason: String },
    /// The API server refused.
    #[error("lease `{name}`")]
    Api { name: String, source: Box<kube::Error> },
}

/// Names and times of an election.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) name: String,
    /// Pod name and something random: a restarted container is another candidate.
    pub(crate) identity: String,
    /// How long a silent holder keeps the lease; it renews every 2/15 of it and gives up at 2/3.
    pub(crate) duration: Duration,
}

impl Settings {
    fn retry(&self) -> Duration {
        self.duration * 2 / 15
    }

    fn renew_deadline(&self) -> Duration {
        self.duration * 2 / 3
    }
}

/// A candidate, later perhaps the leader.
pub(crate) struct Elector {
    api: Api<Lease>,
    settings: Settings,
    term: watch::Sender<Option<u64>>,
}

/// The record as last seen, and since when it has not changed.
struct Observed {
    version: Option<String>,
    since: Instant,
}

impl Elector {
    /// A candidate, and its term while it leads.
    pub(crate) fn new(api: Api<Lease>, settings: Settings) -> (Self, watch::Receiver<Option<u64>>) {
        let (term, receiver) = watch::channel(None);
        (Self { api, settings, term }, receiver)
    }

    /// Stands for election, leads, renews; returns `Ok` after `stop` with the lease given back, or why it was lost.
    /// Not cancel-safe: drop it only when the process ends.
    pub(crate) async fn run(&self, stop: CancellationToken) -> Result<(), LeaseError> {
        let Some(lease) = self.stand(&stop).await else { return Ok(()) };
        let led = self.lead(lease, &stop).await;
        self.term.send_replace(None);
        led
    }

    /// Waits until this candidate holds the lease; `None` if stopped before.
    async fn stand(&self, stop: &CancellationToken) -> Option<Lease> {
        let mut observed = Observed { version: None, since: Instant::now() };
        loop {
            match timeout(self.settings.renew_deadline(), self.try_acquire(&mut observed)).await {
                Ok(Ok(Some(lease))) => return Some(lease),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => warn!(error = &error as &dyn std::error::Error, "lease not readable"),
                Err(_) => warn!("lease not answered in time"),
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = sleep(self.settings.retry()) => {}
            }
        }
    }

    async fn try_acquire(&self, observed: &mut Observed) -> Result<Option<Lease>, kube::Error> {
        let Some(current) = self.api.get_opt(&self.settings.name).await? else {
            return taken(self.api.create(&PostParams::default(), &self.mine(None)).await);
        };
        if observed.version != current.metadata.resource_version {
            *observed = Observed { version: current.metadata.resource_version.clone(), since: Instant::now() };
        }
        let spec = current.spec.clone().unwrap_or_default();
        let free = spec.holder_identity.as_deref().unwrap_or_default().is_empty();
        let lasts = spec
            .lease_duration_seconds
            .and_then(|s| u64::try_from(s).ok())
            .map_or(self.settings.duration, Duration::from_secs);
        if !free && observed.since.elapsed() < lasts {
            debug!(holder = spec.holder_identity, "another leads");
            return Ok(None);
        }
        taken(self.replace(&self.mine(Some(&current))).await)
    }

    /// Renews until stopped or lost.
    async fn lead(&self, mut lease: Lease, stop: &CancellationToken) -> Result<(), LeaseError> {
        self.publish(&lease);
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.release(lease).await,
                () = sleep(self.settings.retry()) => {}
            }
            let left = self.settings.renew_deadline().saturating_sub(renewed.elapsed());
            match timeout(left, self.renew(&lease)).await {
                Ok(Ok(fresh)) => {
                    lease = fresh;
                    renewed = Instant::now();
                    self.publish(&lease);
                }
                Ok(Err(error @ LeaseError::Lost { .. })) => return Err(error),
                Ok(Err(error)) => warn!(error = &error as &dyn std::error::Error, "lease not renewed"),
                Err(_) => {}
            }
            if renewed.elapsed() >= self.settings.renew_deadline() {
                return Err(self.lost(format!("not renewed for {:?}", renewed.elapsed())));
            }
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease, LeaseError> {
        let mut next = lease.clone();
        next.spec.get_or_insert_default().renew_time = Some(MicroTime(Timestamp::now()));
        match self.replace(&next).await {
            Ok(fresh) => Ok(fresh),
            // Someone wrote it: ourselves (a raised term), or a successor.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let current = self.api.get(&self.settings.name).await.map_err(|e| self.refused(e))?;
                if self.holds(&current) { Ok(current) } else { Err(self.lost("another holds it".to_owned())) }
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    async fn release(&self, mut lease: Lease) -> Result<(), LeaseError> {
        self.term.send_replace(None);
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        self.replace(&lease).await.map_err(|e| self.refused(e))?;
        info!("lease released");
        Ok(())
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        self.api.replace(&self.settings.name, &PostParams::default(), lease).await
    }

    /// The record that makes this candidate the holder, with the next term.
    fn mine(&self, current: Option<&Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let transitions = current.and_then(|l| l.spec.as_ref()).and_then(|s| s.lease_transitions).unwrap_or_default();
        let metadata = current.map_or_else(
            || ObjectMeta { name: Some(self.settings.name.clone()), ..ObjectMeta::default() },
            |l| l.metadata.clone(),
        );
        let spec = LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(self.settings.duration.as_secs()).ok(),
            lease_transitions: Some(transitions + 1),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        };
        Lease { metadata, spec: Some(spec) }
    }

    fn holds(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().and_then(|s| s.holder_identity.as_ref()) == Some(&self.settings.identity)
    }

    fn publish(&self, lease: &Lease) {
        let term = lease.spec.as_ref().and_then(|s| s.lease_transitions).and_then(|t| u64::try_from(t).ok());
        self.term.send_if_modified(|held| {
            let changed = *held != term;
            if changed {
                info!(term, "leading");
                *held = term;
            }
            changed
        });
    }

    /// Raises the term above `seen`, which a node reported: a reinstalled cluster must not be locked out of its own disks.
    /// Returns the new term, also if it was high enough already. Cancel-safe.
    pub(crate) async fn raise_above(&self, seen: u64) -> Result<u64, LeaseError> {
        for _ in 0..RAISE_ATTEMPTS_MAX {
            let mut current = self.api.get(&self.settings.name).await.map_err(|e| self.refused(e))?;
            if !self.holds(&current) {
                return Err(self.lost("another holds it".to_owned()));
            }
            let spec = current.spec.get_or_insert_default();
            let term = spec.lease_transitions.and_then(|t| u64::try_from(t).ok()).unwrap_or_default();
            if term > seen {
                self.publish(&current);
                return Ok(term);
            }
            let Ok(raised) = i32::try_from(seen + 1) else {
                return Err(self.lost(format!("a node has seen term {seen}, the highest possible is {}", i32::MAX)));
            };
            spec.lease_transitions = Some(raised);
            match self.replace(&current).await {
                Ok(fresh) => {
                    self.publish(&fresh);
                    return Ok(seen + 1);
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(self.refused(error)),
            }
        }
        Err(self.lost(format!("the term could not be raised in {RAISE_ATTEMPTS_MAX} attempts")))
    }

    fn lost(&self, reason: String) -> LeaseError {
        LeaseError::Lost { name: self.settings.name.clone(), reason }
    }

    fn refused(&self, source: kube::Error) -> LeaseError {
        LeaseError::Api { name: self.settings.name.clone(), source: Box::new(source) }
    }
}

/// Conflicts come from our own renewals only, every few seconds.
const RAISE_ATTEMPTS_MAX: u32 = 5;

/// Someone else was faster: not ours, and no error.
fn taken(written: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
    match written {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}
