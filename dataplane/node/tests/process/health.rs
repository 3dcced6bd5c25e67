//! How a node says how it is, and how it starts and ends.

use braid_link::{Alpn, Code, Loss};
use braid_wire::Frame;
use braid_wire::proto::{HelloOk, Limits, Refused};

use crate::authority::Authority;
use crate::program::{Folder, Program};
use crate::soon;
use crate::talk::{Contact, hello};

#[tokio::test]
async fn a_node_is_ready_without_an_operator_and_shows_figures() {
    let (authority, folder) = (Authority::new(), Folder::new("health"));
    let mut node = Program::start(&authority, &folder, "node-0").await;
    assert_eq!(node.ask("/livez").await, (200, "ok\n".into()));
    // The start counter must be durable first.
    soon(async {
        while node.ask("/readyz").await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    let contact = Contact::new(authority.identity("braid://client/shop"), Alpn::Client, &node.listen).await;
    let mut session = contact.open(hello("shop")).await;
    let limits = Limits { frame_bytes: 8 << 20, sessions: 1024, streams: 4096, in_flight_bytes: 64 << 20 };
    let expected =
        HelloOk { version: 1, store: "node-0".into(), start_counter: 1, highest_term: 0, limits: Some(limits) };
    assert_eq!(session.hear().await, expected.into());
    let (status, figures) = node.ask("/metrics").await;
    assert_eq!(status, 200);
    for line in ["braid_node_ready 1", "braid_node_connections 1", "# TYPE braid_node_messages_in_total counter"] {
        assert!(figures.lines().any(|found| found == line), "{line} in {figures}");
    }
    node.until("connected").await;
    contact.close().await;
    node.until("disconnected").await;
    assert_eq!(node.leave().await.code(), Some(0));
}

#[tokio::test]
async fn a_node_that_leaves_says_so() {
    let (authority, folder) = (Authority::new(), Folder::new("leave"));
    let node = Program::start(&authority, &folder, "node-0").await;
    let contact = Contact::new(authority.identity("braid://client/shop"), Alpn::Client, &node.listen).await;
    let mut session = contact.open(hello("shop")).await;
    session.hear().await;
    let hears = async {
        assert_eq!(session.end().await, Ok(()));
        soon(contact.connection.closed()).await
    };
    let (status, loss) = tokio::join!(node.leave(), hears);
    assert!(matches!(loss, Loss::ByPeer { code: Code::ShuttingDown, .. }), "{loss:?}");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn two_processes_never_open_one_folder() {
    let (authority, folder) = (Authority::new(), Folder::new("lock"));
    let first = Program::start(&authority, &folder, "node-0").await;
    let mut second = Program::spawn(&folder, "node-0");
    assert!(second.until("ends").await.contains("is locked"));
    assert_eq!(second.end().await.code(), Some(74));
    first.kill().await;
    let third = Program::start(&authority, &folder, "node-0").await;
    assert_eq!(third.leave().await.code(), Some(0));
}

#[tokio::test]
async fn a_node_waits_for_its_certificate_and_leaves_if_asked_meanwhile() {
    let (authority, folder) = (Authority::new(), Folder::new("certificate"));
    let mut node = Program::spawn(&folder, "node-0");
    assert!(node.until("waits for its certificate").await.contains("ca.crt"));
    // Files of another node do not do.
    authority.write_node(folder.path(), "node-1");
    assert!(node.until("waits for its certificate").await.contains("braid://node/node-1"));
    authority.write_node(folder.path(), "node-0");
    node.until("serves").await;
    assert_eq!(node.leave().await.code(), Some(0));

    let empty = Folder::new("no-certificate");
    let mut node = Program::spawn(&empty, "node-0");
    node.until("waits for its certificate").await;
    assert_eq!(node.leave().await.code(), Some(0));
}

#[tokio::test]
async fn what_is_no_frame_is_answered_before_the_channel_ends() {
    let (authority, folder) = (Authority::new(), Folder::new("refuse"));
    let node = Program::start(&authority, &folder, "node-0").await;
    let contact = Contact::new(authority.identity("braid://client/shop"), Alpn::Client, &node.listen).await;
    // A frame that has no place at the start of a channel.
    let mut session = contact.open(braid_wire::proto::AckConfirmed { ack: 1 }).await;
    let Frame::Refused(Refused { code, .. }) = session.hear().await else { panic!("a refusal is due") };
    assert_eq!(code, i32::from(Code::UnsupportedKind));
    assert_eq!(session.end().await, Ok(()));
    assert_eq!(contact.connection.loss(), None, "the connection goes on");
    node.kill().await;
}
