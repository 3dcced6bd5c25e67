//! Promises of the link, kept on loopback.

mod authority;
mod certificates;
mod frames;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::{Alpn, ConnectError, Connection, Endpoint, Identity};
use authority::Authority;

const SERVER_NAME: &str = "node-0.default.nodes.braid";

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A server of `node-0` and its address.
fn server(authority: &Authority) -> (Endpoint, [String; 1]) {
    let endpoint = Endpoint::server(loopback(), authority.node("node-0")).unwrap();
    let address = endpoint.local_addr().unwrap().to_string();
    (endpoint, [address])
}

async fn connect(identity: Identity, alpn: Alpn, addresses: &[String]) -> Result<Connection, ConnectError> {
    Endpoint::client(identity).unwrap().connect(alpn, addresses, SERVER_NAME).await
}

/// Both ends of a connection of a client, and the server's endpoint, which keeps them alive.
async fn pair(authority: &Authority) -> (Endpoint, Connection, Connection) {
    let (endpoint, addresses) = server(authority);
    let near = connect(authority.client("shop"), Alpn::Client, &addresses).await.unwrap();
    let far = soon(endpoint.accept()).await.unwrap();
    (endpoint, near, far)
}

/// What comes within 10 s: a test that would hang fails instead.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("10 s are enough on loopback")
}
