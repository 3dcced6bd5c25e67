//! One hash call, two rings: Murmur3 x86 32-bit, seed 0, raw. Source: scalable topics, "Hashing".

/// Where a key lies on the routing ring and on the bucket ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(pub u32);

impl KeyHash {
    /// The hash of a key's bytes.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(murmur3(key))
    }

    /// The high 16 bits: which segment.
    #[must_use]
    pub const fn route(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The low 16 bits: which bucket of the segment.
    #[must_use]
    pub const fn bucket(self) -> u16 {
        self.0 as u16
    }
}

const C1: u32 = 0xcc9e_2d51;
const C2: u32 = 0x1b87_3593;

fn murmur3(bytes: &[u8]) -> u32 {
    let (blocks, tail) = bytes.as_chunks::<4>();
    let hash = blocks.iter().fold(0u32, |hash, block| {
        (hash ^ scramble(u32::from_le_bytes(*block))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    let last = tail.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    let mut hash = hash ^ scramble(last) ^ bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

fn scramble(word: u32) -> u32 {
    word.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2)
}
