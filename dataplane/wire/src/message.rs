//! The messages in an entry's payload, as producers write and consumers read them; nodes never look inside.
//!
//! Per message, little-endian: key length u32 (0xffff_ffff: no key), key, value length u32, value, headers length u32, headers
//! (protobuf `Headers`).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message as _;

use crate::proto;

const NO_KEY: u32 = u32::MAX;

/// What an application sends and receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Decides segment and bucket; messages of one key stay in order. `None`: any segment, no order.
    pub key: Option<Bytes>,
    /// The application's bytes.
    pub value: Bytes,
    /// Names and values, in the order they were set.
    pub headers: Vec<(String, Bytes)>,
}

/// Why a payload is not a run of messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("message {index}: {part} needs {need} bytes, {have} are left")]
    Short { index: u32, part: &'static str, need: usize, have: usize },
    #[error("message {index}: headers: {reason}")]
    Headers { index: u32, reason: String },
    #[error("{left} bytes follow the last of {count} messages")]
    Trailing { left: usize, count: u32 },
}

impl Message {
    /// A message with a key.
    pub fn keyed(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: Some(key.into()), value: value.into(), headers: Vec::new() }
    }

    /// Bytes that the message takes in a payload.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let headers = if self.headers.is_empty() { 0 } else { self.wire_headers().encoded_len() };
        12 + self.key.as_ref().map_or(0, Bytes::len) + self.value.len() + headers
    }

    /// Appends the message to a payload.
    pub fn encode(&self, payload: &mut BytesMut) {
        match &self.key {
            Some(key) => {
                payload.put_u32_le(key.len() as u32);
                payload.put_slice(key);
            }
            None => payload.put_u32_le(NO_KEY),
        }
        payload.put_u32_le(self.value.len() as u32);
        payload.put_slice(&self.value);
        if self.headers.is_empty() {
            payload.put_u32_le(0);
        } else {
            let headers = self.wire_headers();
            payload.put_u32_le(headers.encoded_len() as u32);
            headers.encode(payload).expect("a BytesMut grows");
        }
    }

    /// The `count` messages of a payload, sharing its memory. Never panics.
    pub fn decode_all(mut payload: Bytes, count: u32) -> Result<Vec<Self>, MessageError> {
        // A message takes at least 12 bytes, so a count out of the air allocates nothing.
        let mut messages = Vec::with_capacity((count as usize).min(payload.len() / 12));
        for index in 0..count {
            let key = match length(&mut payload, index, "key length")? {
                NO_KEY => None,
                n => Some(take(&mut payload, index, "key", n)?),
            };
            let n = length(&mut payload, index, "value length")?;
            let value = take(&mut payload, index, "value", n)?;
            let n = length(&mut payload, index, "headers length")?;
            let headers = take(&mut payload, index, "headers", n)?;
            let headers = proto::Headers::decode(headers)
                .map_err(|e| MessageError::Headers { index, reason: e.to_string() })?
                .fields
                .into_iter()
                .map(|field| (field.name, field.value))
                .collect();
            messages.push(Self { key, value, headers });
        }
        if payload.is_empty() { Ok(messages) } else { Err(MessageError::Trailing { left: payload.len(), count }) }
    }

    fn wire_headers(&self) -> proto::Headers {
        let field = |(name, value): &(String, Bytes)| proto::HeaderField { name: name.clone(), value: value.clone() };
        proto::Headers { fields: self.headers.iter().map(field).collect() }
    }
}

fn length(payload: &mut Bytes, index: u32, part: &'static str) -> Result<u32, MessageError> {
    payload.try_get_u32_le().map_err(|e| MessageError::Short { index, part, need: 4, have: e.available })
}

fn take(payload: &mut Bytes, index: u32, part: &'static str, n: u32) -> Result<Bytes, MessageError> {
    let (need, have) = (n as usize, payload.len());
    if have < need { Err(MessageError::Short { index, part, need, have }) } else { Ok(payload.split_to(need)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let headers = vec![("trace".into(), Bytes::from_static(b"7")), ("trace".into(), Bytes::new())];
        vec![
            Message { key: Some("k".into()), value: "v".into(), headers },
            Message { key: None, value: Bytes::new(), headers: Vec::new() },
            Message { key: Some(Bytes::new()), value: "w".into(), headers: Vec::new() },
        ]
    }

    #[test]
    fn messages_come_back_as_they_were_written() {
        let mut payload = BytesMut::new();
        messages().iter().for_each(|message| message.encode(&mut payload));
        assert_eq!(payload.len(), messages().iter().map(Message::encoded_len).sum::<usize>());
        assert_eq!(Message::decode_all(payload.freeze(), 3), Ok(messages()));
    }

    #[test]
    fn a_cut_payload_is_refused_at_every_length() {
        let mut payload = BytesMut::new();
        messages().iter().for_each(|message| message.encode(&mut payload));
        let payload = payload.freeze();
        for end in 0..payload.len() {
            assert!(Message::decode_all(payload.slice(..end), 3).is_err(), "{end} bytes");
        }
        assert_eq!(Message::decode_all(payload, 2), Err(MessageError::Trailing { left: 13, count: 2 }));
    }
}
