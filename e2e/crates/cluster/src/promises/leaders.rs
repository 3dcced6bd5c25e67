//! Promise 9: leaders and their terms.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use braid_link::{Alpn, Endpoint, Identity};
use braid_wire::proto::{self, request::Command, response::Result as Answered};
use braid_wire::{Frame, VERSION};
use serde_json::json;

use crate::cluster::Cluster;
use crate::operators::secret;
use crate::topic::Topic;
use crate::wait::{Answer, until};

pub(super) fn proof(cluster: &Cluster) -> Result<()> {
    let space = cluster.namespace("leaders")?;
    let topic = Topic::create(cluster, &space, "orders", &json!({"autoscale": {"mode": "Off"}}))?;
    let (leader, old_term) = lease(cluster)?;
    let started = Instant::now();
    cluster.kill_pod(&cluster.system, &pod_of(cluster, &leader)?, "/braid-operator")?;
    let (heir, term) = until("another leader", Duration::from_secs(20), || {
        let (holder, term) = lease(cluster)?;
        if !holder.is_empty() && holder != leader {
            Ok(Answer::There((holder, term)))
        } else {
            Ok(Answer::NotYet(holder))
        }
    })?;
    ensure!(started.elapsed() < Duration::from_secs(20), "it took {:?}", started.elapsed());
    ensure!(pod_of(cluster, &heir)? != pod_of(cluster, &leader)?, "`{leader}` was killed and leads again as `{heir}`");
    ensure!(term > old_term, "the term was {old_term}, the new leader's is {term}");

    // The new leader acts, so its term is on the disks; then one of the old term knocks.
    let outcome = topic.change("by-the-heir", &json!({"rebucket": {"segments": [0], "buckets": 8}}))?;
    ensure!(matches!(outcome, crate::topic::Outcome::Complete(_)), "{outcome:?}");
    let seen = topic.see()?;
    let segment = seen.active().first().cloned().context("an active segment")?;
    let op = seen.status()["op"].as_u64().context("status.op")?;
    let incarnation = u64::from_str_radix(seen.status()["incarnation"].as_str().context("status.incarnation")?, 16)?;
    let command = proto::Request {
        id: 1,
        fence: Some(proto::Fence { term: old_term, op: op + 1 }),
        topic: Some(proto::TopicRef { namespace: space.clone(), name: "orders".to_owned(), incarnation }),
        command: Some(Command::Seal(proto::Seal { segment: segment.id, epoch: 3, ..Default::default() })),
    };
    let pod = cluster.json(&["pod", &segment.store, "-n", &cluster.system])?;
    let address = format!("{}:4433", pod["status"]["podIP"].as_str().context("podIP")?);
    let answer = tokio::runtime::Runtime::new()?.block_on(send(cluster, &segment.store, address, command))?;
    let Some(Answered::Refused(refused)) = answer.result else { anyhow::bail!("an old term was answered {answer:?}") };
    ensure!(refused.code() == proto::Code::StaleFence, "{refused:?}");
    ensure!(
        refused.have_fence.is_some_and(|have| have.term == term),
        "the refusal names the term held, {term}: {refused:?}"
    );
    ensure!(topic.see()?.active() == seen.active(), "the layout stays");
    cluster.remove(&space)
}

/// Holder and term.
fn lease(cluster: &Cluster) -> Result<(String, u64)> {
    let lease = cluster.json(&["lease", "braid-operator", "-n", &cluster.system])?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    Ok((holder, lease["spec"]["leaseTransitions"].as_u64().unwrap_or_default()))
}

/// The pod whose name the holder's identity begins with.
fn pod_of(cluster: &Cluster, holder: &str) -> Result<String> {
    let pods = cluster.json(&["pods", "-n", &cluster.system, "-l", "app.kubernetes.io/name=braid-operator"])?;
    let names = pods["items"].as_array().context("items")?.iter().filter_map(|p| p["metadata"]["name"].as_str());
    names
        .into_iter()
        .find(|name| holder.starts_with(name))
        .map(str::to_owned)
        .with_context(|| format!("no pod holds the lease as `{holder}`"))
}

/// Sends one command with an operator's identity, made with the operator's own authority.
async fn send(cluster: &Cluster, store: &str, address: String, command: proto::Request) -> Result<proto::Response> {
    let (ca, ca_key) = (secret(cluster, "braid-ca", "ca.crt")?, secret(cluster, "braid-ca", "ca.key")?);
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    params.subject_alt_names.push(rcgen::SanType::URI("braid://operator/old-leader".try_into()?));
    let key = rcgen::KeyPair::generate()?;
    let issuer = rcgen::Issuer::from_ca_cert_pem(&ca, rcgen::KeyPair::from_pem(&ca_key)?)?;
    let cert = params.signed_by(&key, &issuer)?;
    let identity = Identity::from_pem(ca.as_bytes(), cert.pem().as_bytes(), key.serialize_pem().as_bytes())?;
    let endpoint = Endpoint::client(identity)?;
    let connection = endpoint.connect(Alpn::Control, &[address], &format!("{store}.default.nodes.braid")).await?;
    let (mut sender, mut receiver) = connection.open().await?.split();
    sender.send(&Frame::Hello(proto::Hello { version: VERSION, name: "old-leader".to_owned() })).await?;
    sender.send(&Frame::Request(command)).await?;
    loop {
        match receiver.next().await? {
            Some(Frame::Response(response)) => return Ok(response),
            Some(_) => {}
            None => anyhow::bail!("the node ended the stream"),
        }
    }
}
