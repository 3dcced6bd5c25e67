//! A decoder under bytes that nobody wrote for it.

use std::hash::{BuildHasher as _, RandomState};

use braid_wire::Frame;
use braid_wire::message::Message;
use bytes::{Bytes, BytesMut};
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

use super::any::{KINDS, Values, frame};
use super::bytes;

const INPUTS: usize = 100_000;

/// From `BRAID_SEED`, or a new one each time; printed if the test fails.
fn seed() -> u64 {
    let given = std::env::var("BRAID_SEED").ok().map(|seed| seed.parse().expect("BRAID_SEED is a number"));
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("BRAID_SEED={seed}");
    seed
}

/// Decodes to the end, as a receiver would, and looks into every payload.
fn swallow(mut buffer: BytesMut) {
    while let Ok(Some(frame)) = Frame::decode(&mut buffer) {
        let entry = match &frame {
            Frame::Publish(entry) => entry,
            Frame::Delivery(delivery) => &delivery.entry,
            _ => continue,
        };
        let _ = entry.verify();
        let _ = (entry.header.last_seq(), entry.header.end_offset());
        let _ = Message::decode_all(entry.payload.clone(), entry.header.count);
    }
}

fn mutate(bytes: &mut BytesMut, rng: &mut StdRng) {
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..5) {
            0 => bytes[at] = rng.random(),
            1 => bytes[at] ^= 1 << rng.random_range(0..8),
            2 => bytes[at] = *[0, 1, 0x7F, 0x80, 0xFF].get(rng.random_range(0..5)).unwrap_or(&0),
            3 => bytes.truncate(at.max(1)),
            _ => {
                let from = rng.random_range(0..bytes.len());
                let copy = bytes[from..].to_vec();
                bytes.extend_from_slice(&copy);
            }
        }
        // As a rule the length is right, or few inputs would get past it.
        if bytes.len() >= 6 && rng.random_range(0..10) > 0 {
            let length = bytes.len() as u32 - 4;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
        }
    }
}

#[test]
fn no_bytes_make_the_decoder_panic() {
    let mut rng = StdRng::seed_from_u64(seed());
    for n in 0..INPUTS {
        let buffer = if n % 4 == 0 {
            let mut noise = vec![0; rng.random_range(0..300)];
            rng.fill_bytes(&mut noise);
            BytesMut::from(&noise[..])
        } else {
            let kind = KINDS[rng.random_range(0..KINDS.len())];
            let numbers = (0..rng.random_range(1..20)).map(|_| rng.random()).collect();
            let mut mutated = bytes(&frame(kind, &mut Values::new(numbers)));
            mutate(&mut mutated, &mut rng);
            mutated
        };
        swallow(buffer);
    }
}

#[test]
fn no_bytes_make_the_message_decoder_panic() {
    let mut rng = StdRng::seed_from_u64(seed());
    for _ in 0..INPUTS {
        let mut noise = vec![0; rng.random_range(0..60)];
        rng.fill_bytes(&mut noise);
        // Small lengths in the right places get deeper than noise.
        for at in (0..noise.len()).step_by(4).filter(|_| rng.random_range(0..3) > 0).collect::<Vec<_>>() {
            let end = noise.len().min(at + 4);
            noise[at..end].fill(0);
            noise[at] = rng.random_range(0..10);
        }
        let _ = Message::decode_all(Bytes::from(noise), rng.random_range(0..5));
    }
}
