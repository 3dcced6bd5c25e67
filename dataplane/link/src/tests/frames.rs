//! Frames that arrive whole, in order, or not at all.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_wire::proto::{Hello, HelloOk, Published, PublishedEntry, Refused};
use braid_wire::{Entry, FRAME_BYTES_MAX, Frame, Header};
use bytes::Bytes;
use quinn::crypto::rustls::QuicClientConfig;

use super::{Authority, SERVER_NAME, connect, pair, server, soon};
use crate::{Alpn, Code, Connection, IDLE_TIMEOUT, Loss, RecvError, SendError};

fn hello(name: &str) -> Frame {
    Hello { version: 1, name: name.into() }.into()
}

fn publish(first_seq: u64, payload: Bytes) -> Frame {
    let mut header = Header {
        codec: 0,
        flags: 0,
        crc32c: 0,
        payload_len: payload.len() as u32,
        base_offset: 0,
        append_time: 0,
        count: 1,
        producer_epoch: 1,
        route: (7, 7),
        bucket: (9, 9),
        producer_id: 3,
        first_seq,
    };
    header.crc32c = header.checksum(&payload);
    Frame::Publish(Entry { header, payload })
}

/// One question and one answer on a new channel.
pub(crate) async fn greet(near: &Connection, far: &Connection) {
    let (mut asks, mut hears) = near.open().await.unwrap().split();
    asks.send(&hello("shop")).await.unwrap();
    let (mut answers, mut listens) = soon(far.accept()).await.unwrap().split();
    assert_eq!(soon(listens.next()).await, Ok(Some(hello("shop"))));
    let answer = Frame::from(HelloOk { version: 1, store: "node-0".into(), ..HelloOk::default() });
    answers.send(&answer).await.unwrap();
    assert_eq!(soon(hears.next()).await, Ok(Some(answer)));
    asks.finish().await.unwrap();
    answers.finish().await.unwrap();
    assert_eq!(soon(listens.next()).await, Ok(None));
    assert_eq!(soon(hears.next()).await, Ok(None));
    soon(asks.acknowledged()).await.unwrap();
}

#[tokio::test]
async fn frames_of_every_size_come_whole_and_in_order() {
    let authority = Authority::new();
    let (_endpoint, near, far) = pair(&authority).await;
    let sizes = [0, 1, 1023, 1024, 1025, 5_000, 300_000, FRAME_BYTES_MAX - 66];
    let entry = |base_offset| PublishedEntry { first_sequence: 1, count: 1, base_offset };
    let mut frames = vec![hello("shop")];
    for (n, size) in sizes.into_iter().enumerate() {
        frames.push(publish(n as u64 + 1, Bytes::from(vec![n as u8; size])));
        frames.extend((0..50).map(|i| Frame::from(Published { entries: vec![entry(i)] })));
    }
    let (mut sender, _hears) = near.open().await.unwrap().split();
    let sent = frames.clone();
    let write = async {
        sender.send_many(&sent).await.unwrap();
        sender.finish().await.unwrap();
    };
    let read = async {
        let (_answers, mut receiver) = far.accept().await.unwrap().split();
        for frame in &frames {
            assert_eq!(receiver.next().await.as_ref(), Ok(&Some(frame.clone())));
        }
        assert_eq!(receiver.next().await, Ok(None));
    };
    soon(async { tokio::join!(write, read) }).await;
}

#[tokio::test]
async fn a_reader_or_writer_that_is_cancelled_loses_nothing() {
    let authority = Authority::new();
    let (_endpoint, near, far) = pair(&authority).await;
    let (mut sender, _hears) = near.open().await.unwrap().split();
    // More than every window, so that writes block and are cut short in the middle of a frame.
    let frames: Vec<_> = (1..=40).map(|seq| publish(seq, Bytes::from(vec![seq as u8; 500_000]))).collect();
    let write = async {
        for frame in &frames {
            if tokio::time::timeout(Duration::from_millis(2), sender.send(frame)).await.is_ok() {
                tokio::task::yield_now().await;
            }
        }
        sender.finish().await.unwrap();
    };
    let read = async {
        let (_answers, mut receiver) = far.accept().await.unwrap().split();
        let mut got = Vec::new();
        loop {
            let Ok(next) = tokio::time::timeout(Duration::from_micros(300), receiver.next()).await else { continue };
            match next.unwrap() {
                Some(frame) => got.push(frame),
                None => return got,
            }
        }
    };
    let ((), got) = soon(async { tokio::join!(write, read) }).await;
    assert!(got == frames, "{} of {} frames came, in some order", got.len(), frames.len());
}

#[tokio::test]
async fn a_frame_over_the_bound_is_not_sent() {
    let authority = Authority::new();
    let (_endpoint, near, far) = pair(&authority).await;
    let (mut sender, _hears) = near.open().await.unwrap().split();
    let long = publish(1, Bytes::from(vec![0; FRAME_BYTES_MAX - 65]));
    let expected = SendError::TooLong { name: "Publish", bytes: FRAME_BYTES_MAX + 1 };
    assert_eq!(sender.send_many([&hello("a"), &long, &hello("b")]).await, Err(expected));
    sender.send(&hello("c")).await.unwrap();
    sender.finish().await.unwrap();
    let (_answers, mut receiver) = soon(far.accept()).await.unwrap().split();
    for expected in [Some(hello("a")), Some(hello("c")), None] {
        assert_eq!(soon(receiver.next()).await, Ok(expected));
    }
}

/// What a receiver says to raw bytes, twice.
async fn raw(bytes: &[u8]) -> RecvError {
    let authority = Authority::new();
    let (endpoint, [address]) = server(&authority);
    let tls = authority.client("shop").client_tls(braid_wire::ALPN_CLIENT).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let quic = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let near = quic.connect_with(config, address.parse().unwrap(), SERVER_NAME).unwrap().await.unwrap();
    let (mut send, _recv) = near.open_bi().await.unwrap();
    send.write_all(bytes).await.unwrap();
    send.finish().unwrap();
    let far = soon(endpoint.accept()).await.unwrap();
    let (_answers, mut receiver) = soon(far.accept()).await.unwrap().split();
    let error = soon(receiver.next()).await.unwrap_err();
    assert_eq!(soon(receiver.next()).await, Err(error.clone()));
    error
}

#[tokio::test]
async fn bytes_that_are_no_frame_are_refused_with_a_stable_code() {
    let check = async |bytes: &[u8], expected: Option<Refused>| {
        assert_eq!(raw(bytes).await.refused(), expected, "{bytes:?}");
    };
    let refused = |code: Code, message: &str, have, sent| Some(Refused::mismatch(code, message, have, sent));
    // An unknown kind, an announced length over the bound (nothing follows: it is refused before it comes), one below, a body that is none.
    check(&[2, 0, 0, 0, 0xFF, 0xFF], refused(Code::UnsupportedKind, "frame kind `65535` is unknown", 0, 65535)).await;
    let over = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
    let message = "frame length is 8388609 bytes, it must be 2..=8388608";
    check(&over, refused(Code::LimitExceeded, message, 8_388_608, 8_388_609)).await;
    let message = "frame length is 1 bytes, it must be 2..=8388608";
    check(&[1, 0, 0, 0, 10], refused(Code::LimitExceeded, message, 8_388_608, 1)).await;
    let message = "body of frame kind `1`: entry has 1 bytes, it needs 64";
    check(&[3, 0, 0, 0, 1, 0, 7], refused(Code::Malformed, message, 0, 0)).await;
    // Half a frame is nobody's to answer.
    check(&[9, 0, 0, 0, 10], None).await;
}

#[tokio::test]
async fn an_unfinished_stream_ends_in_a_reset_not_in_an_end() {
    let authority = Authority::new();
    let (_endpoint, near, far) = pair(&authority).await;
    let (mut sender, _hears) = near.open().await.unwrap().split();
    sender.send(&hello("shop")).await.unwrap();
    let (_answers, mut receiver) = soon(far.accept()).await.unwrap().split();
    assert_eq!(soon(receiver.next()).await, Ok(Some(hello("shop"))));
    drop(sender);
    assert_eq!(soon(receiver.next()).await, Err(RecvError::Reset { code: Code::Unspecified }));
}

#[tokio::test]
async fn a_writer_hears_why_its_reader_stopped() {
    let authority = Authority::new();
    let (_endpoint, near, far) = pair(&authority).await;
    let (mut sender, _hears) = near.open().await.unwrap().split();
    sender.send(&hello("shop")).await.unwrap();
    let (_answers, mut receiver) = soon(far.accept()).await.unwrap().split();
    receiver.stop(Code::Busy);
    let stopped = soon(async {
        loop {
            if let Err(error) = sender.send(&hello("more")).await {
                return error;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(stopped.await, SendError::Stopped { code: Code::Busy });
}

#[tokio::test]
async fn a_close_carries_its_code_and_reason() {
    let authority = Authority::new();
    let (_endpoint, near, far) = pair(&authority).await;
    far.close(Code::LimitExceeded, "too many sessions");
    let loss = soon(near.closed()).await;
    assert_eq!(loss, Loss::ByPeer { code: Code::LimitExceeded, reason: "too many sessions".into() });
    assert_eq!(soon(near.open()).await.unwrap_err(), loss);
    assert_eq!(soon(far.closed()).await, Loss::Here);
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_missed_at_the_idle_timeout() {
    let authority = Authority::new();
    let (endpoint, addresses) = server(&authority);
    // A process that is killed: its runtime stops, so nobody says goodbye.
    let process = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let identity = authority.client("shop");
    let dialing = process.spawn(async move { connect(identity, Alpn::Client, &addresses).await });
    let near = dialing.await.unwrap().unwrap();
    let far = soon(endpoint.accept()).await.unwrap();

    // As long as it lives, silence of its programs is no reason: QUIC keeps the connection alive.
    let quiet = tokio::time::timeout(IDLE_TIMEOUT + Duration::from_millis(500), far.closed()).await;
    assert!(quiet.is_err(), "{quiet:?}");

    process.shutdown_background();
    let killed = Instant::now();
    assert_eq!(soon(far.closed()).await, Loss::Silent);
    let (least, most) = (IDLE_TIMEOUT - Duration::from_millis(1100), IDLE_TIMEOUT + Duration::from_secs(2));
    assert!((least..most).contains(&killed.elapsed()), "{:?}", killed.elapsed());
    drop(near);
}
