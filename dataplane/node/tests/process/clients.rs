//! The real client against the real node.

use std::collections::BTreeMap;

use braid_client::{Client, Membership, Message, Options, Topic};
use braid_link::{Alpn, Code, Loss};

use crate::authority::Authority;
use crate::program::{Folder, Program};
use crate::soon;
use crate::talk::{Contact, hello};
use crate::topic::{STORE, attach_with, entry, layout, make, open_producer, publish};

const KEYS: usize = 20;
const PER_KEY: usize = 100;

#[tokio::test]
async fn clients_go_on_after_their_node_was_killed_and_every_key_stays_in_order() {
    let (authority, folder) = (Authority::new(), Folder::new("clients"));
    let mut node = Program::start(&authority, &folder, STORE).await;
    let (at, by) = (&folder, &authority);
    let operator = Contact::new(authority.identity("braid://operator/op"), Alpn::Control, &node.listen).await;
    let mut control = operator.open(hello("op")).await;
    control.hear().await;
    make(&mut control, &layout(&node.listen)).await;

    let client = Client::connect(Options::new([&node.listen], authority.identity("braid://client/shop"))).unwrap();
    let topic = Topic::new("shop", "orders");
    let membership = Membership { subscription: "billing".into(), member: "member-1".into() };
    let consumer = soon(client.consumer(&topic, &membership)).await.unwrap();
    let producer = soon(client.producer(&topic)).await.unwrap();

    let sends = async move {
        let mut receipts = Vec::new();
        for n in 0..PER_KEY {
            for key in 0..KEYS {
                receipts.push(producer.send(Message::keyed(format!("key-{key}"), n.to_string())).await.unwrap());
            }
            if n == PER_KEY / 2 {
                let listen = node.listen.clone();
                node.kill().await;
                node = Program::start_at(by, at, STORE, &listen).await;
            }
        }
        for receipt in receipts {
            receipt.await.unwrap();
        }
        (producer, node)
    };
    let receives = async {
        let mut seen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        while seen.values().map(Vec::len).sum::<usize>() < KEYS * PER_KEY {
            let received = consumer.next().await.unwrap().unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let key = text(&received.message.key.clone().unwrap());
            let n: usize = text(&received.message.value).parse().unwrap();
            consumer.ack(&received.id);
            // What came again says nothing about order; what is new must be the next of its key.
            let of_key = seen.entry(key).or_default();
            if n >= of_key.len() {
                assert_eq!(n, of_key.len());
                of_key.push(n);
            }
        }
        seen
    };
    let ((producer, node), seen) = soon(async { tokio::join!(sends, receives) }).await;
    assert_eq!(seen.len(), KEYS);
    soon(consumer.acked()).await;
    soon(consumer.close()).await.unwrap();
    soon(producer.close()).await;
    assert_eq!(node.leave().await.code(), Some(0));
}

#[tokio::test]
async fn a_consumer_that_takes_credit_but_does_not_read_is_cut_off_with_a_code() {
    let (authority, folder) = (Authority::new(), Folder::new("overflow"));
    let node = Program::start(&authority, &folder, STORE).await;
    let operator = Contact::new(authority.identity("braid://operator/op"), Alpn::Control, &node.listen).await;
    let mut control = operator.open(hello("op")).await;
    control.hear().await;
    make(&mut control, &layout(&node.listen)).await;
    let identity = || authority.identity("braid://client/shop");
    let reader = Contact::new(identity(), Alpn::Client, &node.listen).await;
    let _unread = attach_with(&reader, 0, 1, 1 << 30).await;
    let writer = Contact::new(identity(), Alpn::Client, &node.listen).await;
    let (mut producer, _) = open_producer(&writer, 0).await;
    let value = "x".repeat(4 << 20);
    for first_seq in 1..=15 {
        publish(&mut producer, &entry("customer-7", &[&value], first_seq)).await;
    }
    let loss = soon(reader.connection.closed()).await;
    assert!(matches!(loss, Loss::ByPeer { code: Code::LimitExceeded, .. }), "{loss:?}");
    assert_eq!((control.hear().await.name(), writer.connection.loss()), ("Report", None), "others are served");
    node.kill().await;
}
