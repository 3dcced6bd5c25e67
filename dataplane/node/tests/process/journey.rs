//! From a topic's creation to its messages' acks, frame by frame, through a kill and a restart.

use braid_link::Alpn;
use braid_wire::Frame;
use braid_wire::proto::{
    self, Code, CreateSegments, Fence, Node, PublishedEntry, Segment, TopicRef, WatchTopic, request, response,
};

use crate::authority::Authority;
use crate::program::{Folder, Program};
use crate::talk::{Contact, hello};
use crate::topic::{
    STORE, ack, answer, attach, delivery, entry, layout, make, open_producer, publish, segment, subscription, topic,
    values,
};

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_kill() {
    let (authority, folder) = (Authority::new(), Folder::new("journey"));
    let node = Program::start(&authority, &folder, STORE).await;
    let told = layout(&node.listen);

    // The operator makes the topic.
    let operator = Contact::new(authority.identity("braid://operator/op"), Alpn::Control, &node.listen).await;
    let mut control = operator.open(hello("op")).await;
    let Frame::HelloOk(ok) = control.hear().await else { panic!("a hello is due") };
    assert_eq!((ok.store.as_str(), ok.start_counter, ok.highest_term), (STORE, 1, 0));
    make(&mut control, &told).await;

    // A client finds it, publishes and consumes.
    let client = Contact::new(authority.identity("braid://client/shop"), Alpn::Client, &node.listen).await;
    let mut session = client.open(hello("shop")).await;
    session.hear().await;
    session.say(WatchTopic { topic: Some(TopicRef { incarnation: 0, ..topic() }) }).await;
    assert_eq!(session.hear().await, told.clone().into());
    let (mut producer, opened) = open_producer(&client, 0).await;
    assert_eq!((opened.last_sequence, opened.window), (0, vec![]));
    let first = entry("customer-7", &["ordered", "paid", "sent"], 1);
    let stored = PublishedEntry { first_sequence: 1, count: 3, base_offset: 0 };
    assert_eq!(publish(&mut producer, &first).await, stored);
    assert_eq!(publish(&mut producer, &first).await, stored, "a resend gets its first offsets back");

    let mut consumer = attach(&client, 0, 1).await;
    let got = delivery(&mut consumer).await;
    assert_eq!(values(&got), ["ordered", "paid", "sent"]);
    assert_eq!((got.entry.header.base_offset, got.entry.verify()), (0, Ok(())));
    ack(&mut consumer, 1, &got, 0, 2).await;

    // A process that dies between two system calls.
    node.kill().await;
    let node = Program::start(&authority, &folder, STORE).await;
    let operator = Contact::new(authority.identity("braid://operator/op"), Alpn::Control, &node.listen).await;
    let mut control = operator.open(hello("op")).await;
    let Frame::HelloOk(ok) = control.hear().await else { panic!("a hello is due") };
    assert_eq!((ok.start_counter, ok.highest_term), (2, 1));
    let stale = answer(&mut control, 3, (0, 9), request::Command::Tell(told.clone())).await;
    let response::Result::Refused(refused) = stale else { panic!("{stale:?}") };
    assert_eq!((refused.code(), refused.have_fence), (Code::StaleFence, Some(Fence { term: 1, op: 1 })));

    let client = Contact::new(authority.identity("braid://client/shop"), Alpn::Client, &node.listen).await;
    let mut session = client.open(hello("shop")).await;
    session.hear().await;
    session.say(WatchTopic { topic: Some(topic()) }).await;
    assert_eq!(session.hear().await, told.into());
    let (mut producer, opened) = open_producer(&client, 0).await;
    assert_eq!((opened.last_sequence, opened.window), (3, vec![stored]));
    let second = entry("customer-7", &["returned"], 4);
    let stored = PublishedEntry { first_sequence: 4, count: 1, base_offset: 3 };
    assert_eq!(publish(&mut producer, &second).await, stored);

    // Only the one message that was not acked comes again, and what was published since.
    let mut consumer = attach(&client, 0, 2).await;
    let again = delivery(&mut consumer).await;
    assert_eq!((again.acked.clone(), values(&again).len()), (vec![(0, 2)], 3));
    let new = delivery(&mut consumer).await;
    assert_eq!(
        (new.acked.clone(), values(&new), new.entry.header.base_offset),
        (vec![], vec!["returned".to_owned()], 3)
    );
    ack(&mut consumer, 1, &again, 2, 4).await;
    let (_, figures) = node.ask("/metrics").await;
    assert!(figures.contains("braid_node_segments_active 1\n"), "{figures}");
    assert_eq!(node.leave().await.code(), Some(0));
}

#[tokio::test]
async fn a_segment_waits_for_its_parent_on_another_node() {
    let authority = Authority::new();
    let folders = [Folder::new("parent"), Folder::new("child")];
    let stores = ["node-0", "node-1"];
    let nodes = [
        Program::start(&authority, &folders[0], stores[0]).await,
        Program::start(&authority, &folders[1], stores[1]).await,
    ];
    // The first address of each is one where nobody is.
    let address = |i: usize| vec!["127.0.0.1:1".to_owned(), nodes[i].listen.clone()];
    let all: Vec<Node> = (0..2).map(|i| Node { store: stores[i].into(), addresses: address(i) }).collect();
    let parent = segment(0, stores[0]);
    let child = Segment { parents: vec![0], created_epoch: 2, ..segment(1, stores[1]) };

    let (operator, client) = ("braid://operator/op", "braid://client/shop");
    let mut controls = Vec::new();
    let mut contacts = Vec::new();
    for node in &nodes {
        let contact = Contact::new(authority.identity(operator), Alpn::Control, &node.listen).await;
        let mut control = contact.open(hello("op")).await;
        control.hear().await;
        controls.push(control);
        contacts.push(contact);
        contacts.push(Contact::new(authority.identity(client), Alpn::Client, &node.listen).await);
    }
    for (control, header) in controls.iter_mut().zip([&parent, &child]) {
        let create =
            CreateSegments { segments: vec![header.clone()], subscriptions: vec![subscription()], nodes: all.clone() };
        let done = answer(control, 1, (1, 1), request::Command::Create(create)).await;
        assert_eq!(done, response::Result::Done(proto::Done {}));
    }

    // One message in the parent, which is then sealed; the producer is sent on and writes to the child.
    let (mut producer, _) = open_producer(&contacts[1], 0).await;
    publish(&mut producer, &entry("customer-7", &["ordered"], 1)).await;
    let seal = proto::Seal { segment: 0, epoch: 2, successors: vec![child.clone()], nodes: all.clone() };
    let sealed = answer(&mut controls[0], 2, (1, 1), request::Command::Seal(seal)).await;
    let expected = proto::Sealed { segment: 0, end_offset: 1, successors: vec![child.clone()] };
    assert_eq!(sealed, response::Result::Sealed(expected));
    let Frame::SegmentSealed(sealed) = producer.hear().await else { panic!("the producer is told of the seal") };
    assert_eq!((sealed.last_sequence, sealed.successors, sealed.nodes), (1, vec![child], all));
    let (mut producer, _) = open_producer(&contacts[3], 1).await;
    publish(&mut producer, &entry("customer-7", &["paid"], 1)).await;

    // The child gives nothing before the parent is drained; then the parent's node tells the child's.
    let mut second = attach(&contacts[3], 1, 1).await;
    let mut first = attach(&contacts[1], 0, 1).await;
    let got = delivery(&mut first).await;
    assert_eq!(values(&got), ["ordered"]);
    let early = tokio::time::timeout(std::time::Duration::from_millis(500), delivery(&mut second)).await;
    assert!(early.is_err(), "{early:?}");
    ack(&mut first, 1, &got, 0, 1).await;
    assert_eq!(values(&delivery(&mut second).await), ["paid"]);
    for node in nodes {
        assert_eq!(node.leave().await.code(), Some(0));
    }
}
