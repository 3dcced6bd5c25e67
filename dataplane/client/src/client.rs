//! The way in: options, first contact, and what a client opens.

use std::sync::Arc;
use std::time::Duration;

use braid_engine::watch::Contact;
use braid_link::{BindError, Endpoint, Identity};

use crate::pool::Pool;
use crate::producer::Producer;
use crate::{Consumer, Limits, Membership, consumer, producer};

/// A topic's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    pub namespace: String,
    pub name: String,
}

impl Topic {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// How to reach the data plane, and who this client is.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses of any nodes ("host:port"), tried in order; a name may resolve to several.
    pub servers: Vec<String>,
    /// The data plane's name: part of the server names that certificates must have.
    pub data_plane: String,
    pub identity: Identity,
    /// How long opening a producer or consumer may wait for its topic: it may just be being created.
    pub wait: Duration,
    /// Of producers.
    pub limits: Limits,
    /// Of consumers: bytes that each segment may send ahead.
    pub credit_bytes: usize,
    /// Of consumers: how long a close waits for the application's acks.
    pub leave_deadline: Duration,
}

impl Options {
    /// Data plane `default`, 30 s for a topic to appear, 1 MiB of credit per segment, 30 s to leave.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, identity: Identity) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            data_plane: "default".into(),
            identity,
            wait: Duration::from_secs(30),
            limits: Limits::default(),
            credit_bytes: 1 << 20,
            leave_deadline: Duration::from_secs(30),
        }
    }
}

/// Why a producer or consumer did not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("no node told a layout of topic `{namespace}/{topic}` within {waited_ms} ms, last: {reason}")]
    NoLayout { namespace: String, topic: String, waited_ms: u64, reason: String },
}

/// A client of one data plane. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    options: Arc<Options>,
    pool: Arc<Pool>,
}

impl Client {
    /// A client; nothing is dialled before a producer or consumer is opened. Must run within a tokio runtime.
    pub fn connect(options: Options) -> Result<Self, BindError> {
        let endpoint = Endpoint::client(options.identity.clone())?;
        let pool = Arc::new(Pool::new(endpoint, options.data_plane.clone()));
        Ok(Self { options: Arc::new(options), pool })
    }

    /// Shows another certificate from the next connection on.
    pub fn reload(&self, identity: Identity) -> Result<(), BindError> {
        self.pool.endpoint().reload(identity)
    }

    /// A producer of `topic`, once a node told its layout. Cancel-safe.
    pub async fn producer(&self, topic: &Topic) -> Result<Producer, OpenError> {
        let config = braid_engine::producer::Config {
            contact: self.contact(topic, self.options.identity.peer().name()),
            producer: rand::random(),
            limits: self.options.limits.clone(),
            seed: rand::random(),
        };
        producer::open(config, self.pool.clone(), self.options.wait).await
    }

    /// A member of the ordered group of `membership` on `topic`, once a node told the topic's layout. Cancel-safe.
    pub async fn consumer(&self, topic: &Topic, membership: &Membership) -> Result<Consumer, OpenError> {
        let config = braid_engine::consumer::Config {
            contact: self.contact(topic, &membership.member),
            subscription: membership.subscription.clone(),
            member: membership.member.clone(),
            session: rand::random(),
            credit_bytes: self.options.credit_bytes,
            leave_deadline_us: self.options.leave_deadline.as_micros() as u64,
            seed: rand::random(),
        };
        consumer::open(config, self.pool.clone(), self.options.wait).await
    }

    /// Closes every connection; waits, at most `deadline`, until the nodes know.
    pub async fn close(self, deadline: Duration) {
        self.pool.endpoint().close(deadline).await;
    }

    fn contact(&self, topic: &Topic, name: &str) -> Contact {
        Contact {
            namespace: topic.namespace.clone(),
            topic: topic.name.clone(),
            bootstrap: self.options.servers.clone(),
            name: name.to_owned(),
        }
    }
}

/// The error of an opening that took `waited` in vain.
pub(crate) fn no_layout(contact: &Contact, waited: Duration, trouble: Option<&str>) -> OpenError {
    OpenError::NoLayout {
        namespace: contact.namespace.clone(),
        topic: contact.topic.clone(),
        waited_ms: waited.as_millis() as u64,
        reason: trouble.unwrap_or("no answer yet").to_owned(),
    }
}
