//! Any bytes: decoded to the end as a receiver would, and what was understood comes back the same.
#![no_main]

use braid_wire::message::Message;
use braid_wire::Frame;
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    while let Ok(Some(frame)) = Frame::decode(&mut buffer) {
        let (head, payload) = frame.encode();
        let mut again = BytesMut::from(&head[..]);
        again.extend_from_slice(&payload.unwrap_or_default());
        assert_eq!(Frame::decode(&mut again), Ok(Some(frame.clone())));
        let entry = match &frame {
            Frame::Publish(entry) => entry,
            Frame::Delivery(delivery) => &delivery.entry,
            _ => continue,
        };
        let _ = entry.verify();
        let _ = (entry.header.last_seq(), entry.header.end_offset());
        let _ = Message::decode_all(entry.payload.clone(), entry.header.count);
    }
});
