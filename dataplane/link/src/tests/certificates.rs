//! Who may speak what, and certificates that change while connections stand.

use super::{Authority, SERVER_NAME, connect, pair, server, soon};
use crate::{Alpn, Code, ConnectError, Endpoint, Identity, IdentityError, Loss, Peer, PeerError};

#[tokio::test]
async fn each_side_learns_the_other_by_its_certificate() {
    let authority = Authority::new();
    let (endpoint, addresses) = server(&authority);
    let check = async |identity: Identity, alpn, expected: &str| {
        let near = connect(identity, alpn, &addresses).await.unwrap();
        let far = soon(endpoint.accept()).await.unwrap();
        assert_eq!((near.peer().to_string().as_str(), near.alpn()), ("braid://node/node-0", alpn));
        assert_eq!((far.peer().to_string().as_str(), far.alpn()), (expected, alpn));
    };
    check(authority.client("shop"), Alpn::Client, "braid://client/shop").await;
    check(authority.operator("op-1"), Alpn::Client, "braid://operator/op-1").await;
    check(authority.operator("op-1"), Alpn::Control, "braid://operator/op-1").await;
    check(authority.node("node-1"), Alpn::Control, "braid://node/node-1").await;
}

#[tokio::test]
async fn a_client_is_refused_on_the_control_protocol_with_a_code() {
    let authority = Authority::new();
    let (_endpoint, addresses) = server(&authority);
    let near = connect(authority.client("shop"), Alpn::Control, &addresses).await.unwrap();
    let reason = "`braid://client/shop` may not speak `braid-ctl/1`: it is neither a node nor an operator".into();
    assert_eq!(soon(near.closed()).await, Loss::ByPeer { code: Code::Unauthorized, reason });
    assert!(soon(near.accept()).await.is_none());
}

#[tokio::test]
async fn a_certificate_that_names_nobody_is_refused_here_and_there() {
    let authority = Authority::new();
    let (cert, key) = authority.issue(&["default.nodes.braid".into()], &[]);
    let nameless = Identity::from_pem(authority.ca().as_bytes(), cert.as_bytes(), key.as_bytes());
    assert!(matches!(nameless, Err(IdentityError::Peer(PeerError::Nameless))), "{nameless:?}");
    let two = ["braid://node/a".into(), "braid://operator/b".into()];
    let (cert, key) = authority.issue(&[], &two);
    let two = Identity::from_pem(authority.ca().as_bytes(), cert.as_bytes(), key.as_bytes());
    assert!(matches!(two, Err(IdentityError::Peer(PeerError::Ambiguous { found: 2 }))), "{two:?}");
}

#[tokio::test]
async fn a_client_of_another_ca_is_refused_by_tls() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (_endpoint, addresses) = server(&ours);
    let stranger = theirs.identity(&[], &["braid://client/shop".into()], &ours.ca());
    let near = connect(stranger, Alpn::Client, &addresses).await.unwrap();
    let loss = soon(near.closed()).await;
    let why = "invalid peer certificate";
    assert!(matches!(&loss, Loss::Transport { reason } if reason.contains(why)), "{loss:?}");
}

#[tokio::test]
async fn a_server_of_another_ca_or_name_is_not_connected_to() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (_endpoint, addresses) = server(&theirs);
    let error = connect(ours.client("shop"), Alpn::Client, &addresses).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Unreachable { attempts, .. } if attempts.len() == 1), "{error}");

    let (_endpoint, addresses) = server(&ours);
    let client = Endpoint::client(ours.client("shop")).unwrap();
    assert!(client.connect(Alpn::Client, &addresses, "node-1.default.nodes.braid").await.is_err());
    assert!(client.connect(Alpn::Client, &addresses, "default.nodes.braid").await.is_ok());
}

#[tokio::test]
async fn addresses_are_tried_in_order_until_one_answers() {
    let authority = Authority::new();
    let (_endpoint, [address]) = server(&authority);
    let client = Endpoint::client(authority.client("shop")).unwrap();
    let addresses = ["not an address", "name.invalid:4433", address.as_str()];
    let near = client.connect(Alpn::Client, &addresses, SERVER_NAME).await.unwrap();
    assert_eq!(near.remote_addr().to_string(), address);

    let error = client.connect(Alpn::Client, &addresses[..2], SERVER_NAME).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Unreachable { attempts, .. } if attempts.len() == 2), "{error}");
    let error = client.connect(Alpn::Client, &[] as &[&str], SERVER_NAME).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoAddress { .. }), "{error}");
}

#[tokio::test]
async fn a_new_certificate_serves_new_connections_and_old_ones_go_on() {
    let (old, new) = (Authority::new(), Authority::new());
    let (endpoint, addresses) = server(&old);
    let client = Endpoint::client(old.client("shop")).unwrap();
    let before = client.connect(Alpn::Client, &addresses, SERVER_NAME).await.unwrap();
    let before_far = soon(endpoint.accept()).await.unwrap();

    // First both sides trust both, then the leaf changes, on either side; the URI shows which leaf is in use.
    let both = format!("{}{}", old.ca(), new.ca());
    let dns = [SERVER_NAME.to_owned()];
    endpoint.reload(new.identity(&dns, &["braid://node/renewed".into()], &both)).unwrap();
    client.reload(new.identity(&[], &["braid://client/renewed".into()], &both)).unwrap();

    let after = client.connect(Alpn::Client, &addresses, SERVER_NAME).await.unwrap();
    let after_far = soon(endpoint.accept()).await.unwrap();
    assert_eq!(after.peer(), &Peer::Node { store: "renewed".into() });
    assert_eq!(after_far.peer(), &Peer::Client { name: "renewed".into() });

    for (near, far) in [(&before, &before_far), (&after, &after_far)] {
        assert_eq!((near.loss(), far.loss()), (None, None));
        super::frames::greet(near, far).await;
    }

    // One that still trusts only the old CA is not served by the new leaf.
    assert!(connect(old.client("late"), Alpn::Client, &addresses).await.is_err());
}

#[tokio::test]
async fn a_closed_endpoint_tells_its_peers_and_accepts_no_more() {
    let authority = Authority::new();
    let (endpoint, near, _far) = pair(&authority).await;
    soon(endpoint.close(std::time::Duration::from_secs(5))).await;
    let loss = soon(near.closed()).await;
    assert!(matches!(loss, Loss::ByPeer { code: Code::ShuttingDown, .. }), "{loss:?}");
    assert!(soon(endpoint.accept()).await.is_none());
}

#[test]
fn an_identity_shows_no_key() {
    let shown = format!("{:?}", Authority::new().client("shop"));
    assert_eq!(shown, r#"Identity { peer: Client { name: "shop" }, roots: 1, .. }"#);
}
