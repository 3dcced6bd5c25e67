//! Frames to and from a node, by hand.

use braid_link::{Alpn, Connection, Endpoint, Identity, Receiver, RecvError, Sender};
use braid_wire::Frame;
use braid_wire::proto::Hello;

use crate::soon;

/// A connection to a node, and the endpoint it goes out from.
pub(crate) struct Contact {
    endpoint: Endpoint,
    pub(crate) connection: Connection,
}

impl Contact {
    pub(crate) async fn new(identity: Identity, alpn: Alpn, listen: &str) -> Self {
        let endpoint = Endpoint::client(identity).unwrap();
        let connection = soon(endpoint.connect(alpn, &[listen], "default.nodes.braid")).await.unwrap();
        Self { endpoint, connection }
    }

    /// A new channel whose first word is `frame`.
    pub(crate) async fn open(&self, frame: impl Into<Frame>) -> Talk {
        let (sender, receiver) = soon(self.connection.open()).await.unwrap().split();
        let mut talk = Talk { sender, receiver };
        talk.say(frame).await;
        talk
    }

    pub(crate) async fn close(self) {
        self.endpoint.close(std::time::Duration::from_secs(2)).await;
    }
}

/// One channel.
pub(crate) struct Talk {
    sender: Sender,
    receiver: Receiver,
}

impl Talk {
    pub(crate) async fn say(&mut self, frame: impl Into<Frame>) {
        soon(self.sender.send(&frame.into())).await.unwrap();
    }

    pub(crate) async fn hear(&mut self) -> Frame {
        soon(self.receiver.next()).await.unwrap().expect("the node has more to say")
    }

    /// The next frame that `pick` wants; others are passed over.
    pub(crate) async fn until<T>(&mut self, mut pick: impl FnMut(Frame) -> Option<T>) -> T {
        loop {
            if let Some(found) = pick(self.hear().await) {
                return found;
            }
        }
    }

    /// What ends the channel, if it is not another frame.
    pub(crate) async fn end(&mut self) -> Result<(), RecvError> {
        soon(self.receiver.next()).await.map(|frame| assert_eq!(frame, None))
    }
}

pub(crate) fn hello(name: &str) -> Hello {
    Hello { version: braid_wire::VERSION, name: name.into() }
}
