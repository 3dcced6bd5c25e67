//! Bytes that are for ever: the layout of an entry's header, of a delivery, and the numbers of the kinds.

use braid_wire::{Delivery, Entry, Frame, Header};
use bytes::{Bytes, BytesMut};

use super::any::{KINDS, Values, frame};
use super::bytes;

fn header() -> Header {
    let mut header = Header {
        codec: 0,
        flags: 0,
        crc32c: 0,
        payload_len: 5,
        base_offset: 0x1122_3344_5566_7788,
        append_time: 0x0102_0304_0506_0708,
        count: 3,
        producer_epoch: 2,
        route: (0x0A0B, 0x0C0D),
        bucket: (0x0E0F, 0x1011),
        producer_id: 0xA1A2_A3A4_A5A6_A7A8,
        first_seq: 0x00B1_B2B3_B4B5_B6B7,
    };
    header.crc32c = header.checksum(b"hello");
    header
}

#[rustfmt::skip]
const HEADER: [u8; 64] = [
    b'B', b'R', b'D', b'E',                             //  0 magic
    1, 0, 0, 0,                                         //  4 version, codec, flags
    0, 0, 0, 0,                                         //  8 crc32c, filled in by the test
    5, 0, 0, 0,                                         // 12 payload_len
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,     // 16 base_offset
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,     // 24 append_time
    3, 0, 0, 0,                                         // 32 count
    2, 0, 0, 0,                                         // 36 producer_epoch
    0x0B, 0x0A, 0x0D, 0x0C,                             // 40 route min, max
    0x0F, 0x0E, 0x11, 0x10,                             // 44 bucket min, max
    0xA8, 0xA7, 0xA6, 0xA5, 0xA4, 0xA3, 0xA2, 0xA1,     // 48 producer_id
    0xB7, 0xB6, 0xB5, 0xB4, 0xB3, 0xB2, 0xB1, 0x00,     // 56 first_seq
];

/// CRC32C of the covered bytes, bit by bit, from its polynomial alone.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 })
    })
}

#[test]
fn an_entry_header_has_these_64_bytes() {
    let covered = [&HEADER[..8], &HEADER[12..16], &HEADER[32..], b"hello"].concat();
    let crc = crc32c(covered.into_iter());
    let mut expected = HEADER;
    expected[8..12].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(crc32c(b"123456789".iter().copied()), 0xE306_9283, "the check value of CRC32C");
    assert_eq!(header().crc32c, crc);
    assert_eq!(header().bytes(), expected);
    assert_eq!(Header::decode(&expected), Ok(header()));
}

#[test]
fn the_node_may_set_offset_and_time_without_a_new_checksum() {
    let stamped = Header { base_offset: 7, append_time: 9, ..header() };
    assert_eq!(Entry { header: stamped, payload: Bytes::from_static(b"hello") }.verify(), Ok(()));
    assert_ne!(Header { first_seq: 1, ..header() }.checksum(b"hello"), header().crc32c);
}

#[test]
fn frames_of_entries_have_these_bytes() {
    let entry = Entry { header: header(), payload: Bytes::from_static(b"hello") };
    let publish = [&[71, 0, 0, 0, 1, 0][..], &header().bytes(), b"hello"].concat();
    assert_eq!(bytes(&Frame::Publish(entry.clone())), publish);

    let delivery = Delivery { bucket: 3, round: 0x0102, acked: vec![(0, 1), (2, 1)], entry };
    #[rustfmt::skip]
    let head = [
        103, 0, 0, 0, 2, 0,
        3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0,
        0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0,
    ];
    assert_eq!(bytes(&Frame::Delivery(delivery)), [&head[..], &header().bytes(), b"hello"].concat());
}

#[test]
fn a_field_of_a_later_version_is_skipped() {
    // Hello { version: 1, name: "a" } and a field 15 that this version does not know.
    let mut buffer = BytesMut::from(&[10, 0, 0, 0, 10, 0, 8, 1, 18, 1, b'a', 0x7A, 1, b'x'][..]);
    let hello = braid_wire::proto::Hello { version: 1, name: "a".into() };
    assert_eq!(Frame::decode(&mut buffer), Ok(Some(hello.into())));
}

#[test]
fn kinds_keep_their_numbers() {
    let names: Vec<_> = KINDS
        .iter()
        .map(|&kind| {
            let frame = frame(kind, &mut Values::new(vec![1]));
            assert_eq!(frame.kind(), kind);
            format!("{kind} {}", frame.name())
        })
        .collect();
    let expected = "1 Publish, 2 Delivery, 10 Hello, 11 HelloOk, 12 Refused, 20 WatchTopic, 21 TopicLayout, 22 Join, \
        23 LeaveGroup, 24 SessionAssignment, 30 OpenProducer, 31 ProducerOpened, 32 Published, 33 SegmentSealed, \
        40 Attach, 41 Attached, 42 BucketGranted, 43 Ack, 44 AckConfirmed, 45 Credit, 46 GiveBack, 47 BucketWithdrawn, \
        48 BucketRevoked, 49 Detach, 50 Detached, 51 SegmentDrained, 60 Request, 61 Response, 62 Report, \
        70 DrainedFact, 71 FactNoted";
    assert_eq!(names.join(", "), expected);
    // A kind that is added must be added here and to `any`, or the properties do not cover it.
    for kind in (0..=u16::MAX).filter(|kind| !KINDS.contains(kind)) {
        let [low, high] = kind.to_le_bytes();
        let decoded = Frame::decode(&mut BytesMut::from(&[2, 0, 0, 0, low, high][..]));
        assert_eq!(decoded, Err(braid_wire::FrameError::Kind { kind }));
    }
}
