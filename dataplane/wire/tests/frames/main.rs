//! What a frame promises: it comes back as it was sent, a part of one waits, and no bytes at all make a decoder panic.

mod any;
mod golden;
mod hostile;

use braid_wire::Frame;
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use any::{KINDS, Values, frame};

/// The frame's bytes, one after the other.
fn bytes(frame: &Frame) -> BytesMut {
    let (head, payload) = frame.encode();
    let mut bytes = BytesMut::from(&head[..]);
    bytes.extend_from_slice(&payload.unwrap_or_default());
    bytes
}

/// Any frame: its kind, and the numbers it is made from.
fn any_frame() -> impl Strategy<Value = Frame> {
    (prop::sample::select(KINDS), prop::collection::vec(any::<u64>(), 1..40))
        .prop_map(|(kind, numbers)| frame(kind, &mut Values::new(numbers)))
}

proptest! {
    #[test]
    fn a_frame_comes_back_as_it_was_sent(frame in any_frame(), next in any_frame()) {
        let mut buffer = bytes(&frame);
        prop_assert_eq!(buffer.len(), frame.wire_len());
        let rest = bytes(&next);
        buffer.extend_from_slice(&rest);
        prop_assert_eq!(Frame::decode(&mut buffer), Ok(Some(frame)));
        prop_assert_eq!(&buffer, &rest);
        prop_assert_eq!(Frame::decode(&mut buffer), Ok(Some(next)));
        prop_assert_eq!(Frame::decode(&mut buffer), Ok(None));
    }

    #[test]
    fn a_part_of_a_frame_waits_for_the_rest(frame in any_frame()) {
        let whole = bytes(&frame);
        for end in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..end]);
            prop_assert_eq!(Frame::decode(&mut part), Ok(None), "{} of {} bytes", end, whole.len());
            prop_assert_eq!(&part[..], &whole[..end]);
        }
    }

    #[test]
    fn a_body_that_is_cut_short_is_taken_as_what_it_says_or_refused(frame in any_frame()) {
        let whole = bytes(&frame);
        for end in 6..whole.len() {
            let mut cut = BytesMut::from(&whole[..end]);
            cut[..4].copy_from_slice(&(end as u32 - 4).to_le_bytes());
            // A protobuf body may still be one; an entry never is, since its header says how long it is.
            match Frame::decode(&mut cut) {
                Ok(Some(taken)) => prop_assert!(taken.kind() > 2, "{:?}", taken),
                Ok(None) => prop_assert!(false, "{} bytes wait for more", end),
                Err(_) => {}
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_refused_or_makes_another_frame(frame in any_frame(), bit in 0..8u8) {
        let whole = bytes(&frame);
        for at in 0..whole.len() {
            let mut flipped = BytesMut::from(&whole[..]);
            flipped[at] ^= 1 << bit;
            if let Ok(Some(taken)) = Frame::decode(&mut flipped) {
                prop_assert_eq!(Frame::decode(&mut bytes(&taken)), Ok(Some(taken)));
            }
        }
    }

    #[test]
    fn a_flipped_bit_of_an_entry_never_passes_its_checksum(
        numbers in prop::collection::vec(any::<u64>(), 1..40), at in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let Frame::Publish(mut entry) = frame(1, &mut Values::new(numbers)) else { unreachable!("kind 1 is Publish") };
        entry.header.crc32c = entry.header.checksum(&entry.payload);
        prop_assert_eq!(entry.verify(), Ok(()));
        let mut flipped = bytes(&Frame::Publish(entry));
        let at = at.index(flipped.len());
        flipped[at] ^= 1 << bit;
        // Base offset and append time are the node's to write.
        let outside = (22..38).contains(&at);
        if let Ok(Some(Frame::Publish(taken))) = Frame::decode(&mut flipped) {
            prop_assert_eq!(taken.verify().is_ok(), outside, "byte {}", at);
        }
    }
}

#[test]
fn the_payload_of_an_entry_is_not_copied() {
    let payload = Bytes::from(vec![7; 100_000]);
    let Frame::Publish(mut entry) = frame(1, &mut Values::new(vec![1])) else { unreachable!("kind 1 is Publish") };
    entry.payload = payload.clone();
    let (_, sent) = Frame::Publish(entry).encode();
    assert_eq!(sent.map(|sent| sent.as_ptr()), Some(payload.as_ptr()));
}
