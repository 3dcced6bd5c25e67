//! The control connection to one node: hello, requests with their answers, reports. One task, which redials with backoff.

use std::collections::BTreeMap;
use std::time::Duration;

use braid_link::{
    Alpn, ConnectError, Connection, Endpoint, IDLE_TIMEOUT, Loss, Receiver, RecvError, SendError, Sender,
};
use braid_wire::proto::{self, response::Result as Answer};
use braid_wire::{Frame, VERSION};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

/// Questions that may wait for the link's task. While it is full, askers wait, each at most as long as its own deadline.
pub(super) const QUEUE: usize = 256;
/// How long a node may take to say hello.
const HELLO: Duration = Duration::from_secs(3);
const BACKOFF_LEAST: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(5);

/// A request, and who waits for its answer.
pub(super) struct Question {
    pub(super) request: proto::Request,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// Where a node is and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) store: String,
    pub(super) server_name: String,
    pub(super) addresses: Vec<String>,
}

/// What a link tells its fleet.
pub(super) trait Ear {
    /// The node answered the hello; questions can be put from now on.
    fn connected(&self, hello: &proto::HelloOk, questions: mpsc::Sender<Question>);
    /// It cannot be asked any more, and has been silent for so long already.
    fn disconnected(&self, silent: Duration);
    fn reported(&self, report: &proto::Report);
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("not connected")]
    Connect(#[from] ConnectError),
    #[error("no stream")]
    Open(#[from] Loss),
    #[error("not sent")]
    Send(#[from] SendError),
    #[error("not received")]
    Receive(#[from] RecvError),
    #[error("no hello within {} s", HELLO.as_secs())]
    NoHello,
    #[error("the node refused the hello with `{code}`: {message}")]
    Refused { code: &'static str, message: String },
    #[error("frame `{name}` came, which has no place here")]
    Unexpected { name: &'static str },
    #[error("store `{found}` answered, `{wanted}` was called")]
    OtherStore { found: String, wanted: String },
}

impl LinkError {
    /// How long nothing had come before the end was noticed.
    fn silence(&self) -> Duration {
        match self {
            Self::Open(Loss::Silent)
            | Self::Send(SendError::Lost(Loss::Silent))
            | Self::Receive(RecvError::Lost(Loss::Silent)) => IDLE_TIMEOUT,
            _ => Duration::ZERO,
        }
    }
}

/// Holds the link for ever. Dropping it closes the connection.
pub(super) async fn hold(endpoint: Endpoint, operator: String, address: Address, ear: impl Ear) {
    let mut backoff = BACKOFF_LEAST;
    loop {
        let begun = Instant::now();
        let ended = once(&endpoint, &operator, &address, &ear).await;
        ear.disconnected(ended.as_ref().err().map_or(Duration::ZERO, LinkError::silence));
        match ended {
            Ok(()) => info!(store = address.store, "link ended by the node"),
            Err(LinkError::Connect(error)) => debug!(store = address.store, %error, "node not reached"),
            Err(error) => warn!(store = address.store, error = &error as &dyn std::error::Error, "link lost"),
        }
        if begun.elapsed() > BACKOFF_MOST {
            backoff = BACKOFF_LEAST;
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MOST);
    }
}

async fn once(endpoint: &Endpoint, operator: &str, address: &Address, ear: &impl Ear) -> Result<(), LinkError> {
    let connection = endpoint.connect(Alpn::Control, &address.addresses, &address.server_name).await?;
    let (mut sender, mut receiver) = connection.open().await?.split();
    sender.send(&Frame::Hello(proto::Hello { version: VERSION, name: operator.to_owned() })).await?;
    let hello = match timeout(HELLO, receiver.next()).await.map_err(|_| LinkError::NoHello)?? {
        Some(Frame::HelloOk(hello)) => hello,
        Some(Frame::Refused(refused)) => {
            return Err(LinkError::Refused { code: refused.code().as_str_name(), message: refused.message });
        }
        Some(other) => return Err(LinkError::Unexpected { name: other.name() }),
        None => return Ok(()),
    };
    if hello.store != address.store {
        return Err(LinkError::OtherStore { found: hello.store, wanted: address.store.clone() });
    }
    let (questions, asked) = mpsc::channel(QUEUE);
    info!(store = address.store, start_counter = hello.start_counter, "link up");
    ear.connected(&hello, questions);
    talk(&connection, &mut sender, &mut receiver, asked, ear).await
}

async fn talk(
    connection: &Connection,
    sender: &mut Sender,
    receiver: &mut Receiver,
    mut asked: mpsc::Receiver<Question>,
    ear: &impl Ear,
) -> Result<(), LinkError> {
    let mut waiting: BTreeMap<u64, oneshot::Sender<Answer>> = BTreeMap::new();
    let mut last_id = 0;
    loop {
        tokio::select! {
            biased;
            loss = connection.closed() => return Err(loss.into()),
            frame = receiver.next() => match frame? {
                Some(Frame::Response(proto::Response { id, result })) => {
                    // Whoever gave up waiting hears nothing of it; the command may be repeated.
                    if let (Some(asker), Some(answer)) = (waiting.remove(&id), result) {
                        let _ = asker.send(answer);
                    }
                }
                Some(Frame::Report(report)) => ear.reported(&report),
                Some(Frame::Refused(refused)) => {
                    return Err(LinkError::Refused { code: refused.code().as_str_name(), message: refused.message });
                }
                Some(other) => return Err(LinkError::Unexpected { name: other.name() }),
                None => return Ok(()),
            },
            question = asked.recv() => {
                let Some(Question { mut request, answer }) = question else { return Ok(()) };
                waiting.retain(|_, asker| !asker.is_closed());
                last_id += 1;
                request.id = last_id;
                waiting.insert(last_id, answer);
                sender.send(&Frame::Request(request)).await?;
            }
        }
    }
}
