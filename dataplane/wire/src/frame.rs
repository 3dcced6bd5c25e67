//! A frame: u32 LE length of what follows, u16 LE kind, body. One kind per message, for ever.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message as _;

use crate::{Delivery, Entry, FRAME_BYTES_MAX, proto};

/// Why bytes are not a frame. The stream they came on cannot be read further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The announced length is out of bounds.
    #[error("frame length is {length} bytes, it must be 2..={max}")]
    Length { length: usize, max: usize },
    /// A kind that this version does not know.
    #[error("frame kind `{kind}` is unknown")]
    Kind { kind: u16 },
    /// The body is not what its kind says.
    #[error("body of frame kind `{kind}`: {reason}")]
    Body { kind: u16, reason: String },
}

macro_rules! frames {
    ($($kind:literal $name:ident)*) => {
        /// Everything that can be said on a stream.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Frame {
            /// Kind 1: a producer's entry.
            Publish(Entry),
            /// Kind 2: an entry on its way to a consumer.
            Delivery(Delivery),
            $($name(proto::$name),)*
        }

        impl Frame {
            /// The frame's number on the wire.
            #[must_use]
            pub const fn kind(&self) -> u16 {
                match self {
                    Self::Publish(_) => 1,
                    Self::Delivery(_) => 2,
                    $(Self::$name(_) => $kind,)*
                }
            }

            /// The frame's name, for logs.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    Self::Publish(_) => "Publish",
                    Self::Delivery(_) => "Delivery",
                    $(Self::$name(_) => stringify!($name),)*
                }
            }

            fn decode_body(kind: u16, body: Bytes) -> Result<Self, FrameError> {
                let malformed = |reason: String| FrameError::Body { kind, reason };
                match kind {
                    1 => Entry::decode(body).map(Self::Publish).map_err(|e| malformed(e.to_string())),
                    2 => Delivery::decode(body).map(Self::Delivery).map_err(|e| malformed(e.to_string())),
                    $($kind => proto::$name::decode(body).map(Self::$name).map_err(|e| malformed(e.to_string())),)*
                    _ => Err(FrameError::Kind { kind }),
                }
            }

            fn body_len(&self) -> usize {
                match self {
                    Self::Publish(entry) => entry.encoded_len(),
                    Self::Delivery(delivery) => delivery.encoded_len(),
                    $(Self::$name(m) => m.encoded_len(),)*
                }
            }

            /// The frame's bytes in order: a head, and for entries the payload as it came, uncopied.
            #[must_use]
            pub fn encode(&self) -> (Bytes, Option<Bytes>) {
                let mut head = BytesMut::with_capacity(6 + match self {
                    Self::Publish(_) | Self::Delivery(_) => 128,
                    _ => self.body_len(),
                });
                head.put_u32_le((2 + self.body_len()) as u32);
                head.put_u16_le(self.kind());
                match self {
                    Self::Publish(entry) => {
                        entry.header.encode(&mut head);
                        (head.freeze(), Some(entry.payload.clone()))
                    }
                    Self::Delivery(delivery) => {
                        delivery.encode_head(&mut head);
                        (head.freeze(), Some(delivery.entry.payload.clone()))
                    }
                    $(Self::$name(m) => {
                        m.encode(&mut head).expect("a BytesMut grows");
                        (head.freeze(), None)
                    })*
                }
            }
        }

        $(impl From<proto::$name> for Frame {
            fn from(m: proto::$name) -> Self {
                Self::$name(m)
            }
        })*
    };
}

frames! {
    // every stream
    10 Hello
    11 HelloOk
    12 Refused
    // session stream
    20 WatchTopic
    21 TopicLayout
    22 Join
    23 LeaveGroup
    24 SessionAssignment
    // producer stream
    30 OpenProducer
    31 ProducerOpened
    32 Published
    33 SegmentSealed
    // consumer stream
    40 Attach
    41 Attached
    42 BucketGranted
    43 Ack
    44 AckConfirmed
    45 Credit
    46 GiveBack
    47 BucketWithdrawn
    48 BucketRevoked
    49 Detach
    50 Detached
    51 SegmentDrained
    // control stream
    60 Request
    61 Response
    62 Report
    // peer stream
    70 DrainedFact
    71 FactNoted
}

impl Frame {
    /// How many bytes the frame takes on a stream, its length field included.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        6 + self.body_len()
    }

    /// Takes one frame off the front of `buffer`; `None` if it is not complete yet (the buffer is left as it is).
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Some(length) = buffer.first_chunk::<4>().map(|b| u32::from_le_bytes(*b) as usize) else {
            return Ok(None);
        };
        if !(2..=FRAME_BYTES_MAX).contains(&length) {
            return Err(FrameError::Length { length, max: FRAME_BYTES_MAX });
        }
        if buffer.len() < 4 + length {
            return Ok(None);
        }
        buffer.advance(4);
        let mut body = buffer.split_to(length).freeze();
        let kind = body.get_u16_le();
        Self::decode_body(kind, body).map(Some)
    }
}
