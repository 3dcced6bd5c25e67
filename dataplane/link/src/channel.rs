//! Frames on one bidirectional stream.

use std::collections::VecDeque;

use braid_wire::proto::{Code, Refused};
use braid_wire::{FRAME_BYTES_MAX, Frame, FrameError};
use bytes::{Bytes, BytesMut};
use quinn::{ReadError, RecvStream, SendStream, WriteError};

use crate::Loss;
use crate::loss::{code, number};

/// Payloads up to this size are copied into the batch that is being written: cheaper than a chunk of their own.
const COPIED_MAX: usize = 1024;
/// A batch is written once it holds this much.
const BATCH_BYTES: usize = 256 << 10;
/// What the reader asks of the stream at a time.
const READ_BYTES: usize = 256 << 10;

/// A bidirectional stream that carries frames.
#[derive(Debug)]
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
}

/// The writing half.
///
/// Dropped before [`Sender::finish`], it resets the stream: the reader sees an error rather than an end.
#[derive(Debug)]
pub struct Sender {
    stream: SendStream,
    /// Encoded and not yet taken by the stream: whole frames, but for the first, of which a part may be gone already.
    pending: VecDeque<Bytes>,
    finished: bool,
}

/// The reading half. Dropped before the end, it tells the writer to stop.
#[derive(Debug)]
pub struct Receiver {
    stream: RecvStream,
    buffer: BytesMut,
    /// Once the bytes made no sense, nothing after them does.
    broken: Option<FrameError>,
}

/// Why frames cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("frame `{name}` has {bytes} bytes, it may have {FRAME_BYTES_MAX}")]
    TooLong { name: &'static str, bytes: usize },
    /// The peer reads no more of this stream.
    #[error("the peer stopped reading with `{}`", .code.as_str_name())]
    Stopped { code: Code },
    #[error("the stream is finished")]
    Finished,
    #[error("the connection is over")]
    Lost(#[source] Loss),
}

/// Why no frame came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// The peer broke the protocol: tell it [`RecvError::refused`], then end the stream.
    #[error("the peer sent what is not a frame")]
    Frame(#[source] FrameError),
    #[error("the stream ended within a frame, after {have} bytes of it")]
    Truncated { have: usize },
    #[error("the peer reset the stream with `{}`", .code.as_str_name())]
    Reset { code: Code },
    #[error("the connection is over")]
    Lost(#[source] Loss),
}

impl Channel {
    pub(crate) fn new((send, recv): (SendStream, RecvStream)) -> Self {
        Self {
            sender: Sender { stream: send, pending: VecDeque::new(), finished: false },
            receiver: Receiver { stream: recv, buffer: BytesMut::new(), broken: None },
        }
    }

    /// The two halves, for two tasks.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

impl Sender {
    /// Sends one frame: returns once QUIC has taken all of it.
    ///
    /// Cancel-safe in this sense: a frame that was begun stays queued here and goes out whole before the next one.
    pub async fn send(&mut self, frame: &Frame) -> Result<(), SendError> {
        self.send_many(std::iter::once(frame)).await
    }

    /// Sends frames in order. Small ones share a buffer, the payloads of large entries go as they are.
    ///
    /// A frame over the bound is an error and ends the run: those before it are sent. If cancelled, those taken from the
    /// iterator are queued as with [`Sender::send`], the rest is lost.
    pub async fn send_many<F: std::borrow::Borrow<Frame>>(
        &mut self,
        frames: impl IntoIterator<Item = F>,
    ) -> Result<(), SendError> {
        let mut batch = BytesMut::new();
        let mut queued = 0;
        let mut outcome = Ok(());
        for frame in frames {
            let frame = frame.borrow();
            let bytes = frame.wire_len() - 4;
            if bytes > FRAME_BYTES_MAX {
                outcome = Err(SendError::TooLong { name: frame.name(), bytes });
                break;
            }
            let (head, payload) = frame.encode();
            queued += head.len() + payload.as_ref().map_or(0, Bytes::len);
            batch.extend_from_slice(&head);
            match payload {
                Some(payload) if payload.len() > COPIED_MAX => {
                    self.pending.extend([batch.split().freeze(), payload]);
                }
                Some(payload) => batch.extend_from_slice(&payload),
                None => {}
            }
            if queued >= BATCH_BYTES {
                self.pending.push_back(batch.split().freeze());
                self.flush().await?;
                queued = 0;
            }
        }
        self.pending.push_back(batch.freeze());
        self.flush().await?;
        outcome
    }

    /// Ends the stream after what was sent. The peer's reader gets all of it, then the end, if the connection lives that long.
    pub async fn finish(&mut self) -> Result<(), SendError> {
        self.flush().await?;
        self.finished = true;
        self.stream.finish().map_err(|_closed| SendError::Finished)
    }

    /// Waits until the peer's QUIC has acknowledged everything of a finished stream. Cancel-safe.
    pub async fn acknowledged(&mut self) -> Result<(), SendError> {
        match self.stream.stopped().await {
            Ok(None) => Ok(()),
            Ok(Some(number)) => Err(SendError::Stopped { code: code(number) }),
            Err(quinn::StoppedError::ConnectionLost(error)) => Err(SendError::Lost(error.into())),
            Err(quinn::StoppedError::ZeroRttRejected) => Err(SendError::Finished),
        }
    }

    /// Gives the stream up: what is not sent yet never will be.
    pub fn reset(&mut self, code: Code) {
        // An error says that the stream has ended already, which is all that is wanted.
        let _ = self.stream.reset(number(code));
        self.finished = true;
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        if self.finished {
            return Err(SendError::Finished);
        }
        self.pending.retain(|chunk| !chunk.is_empty());
        while !self.pending.is_empty() {
            // Between the write and the drain lies no await: what QUIC has taken is never written twice.
            let written =
                self.stream.write_chunks(self.pending.make_contiguous()).await.map_err(|error| match error {
                    WriteError::Stopped(number) => SendError::Stopped { code: code(number) },
                    WriteError::ConnectionLost(error) => SendError::Lost(error.into()),
                    WriteError::ClosedStream | WriteError::ZeroRttRejected => SendError::Finished,
                })?;
            self.pending.drain(..written.chunks);
        }
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.finished {
            // quinn would finish the stream, and half a conversation would look like a whole one.
            let _ = self.stream.reset(number(Code::Unspecified));
        }
    }
}

impl Receiver {
    /// The next frame; `None` at the stream's end. Cancel-safe: bytes read stay in the buffer.
    ///
    /// A frame's announced length is checked before its body is awaited, and memory grows with the bytes that came, not with
    /// those announced. After [`RecvError::Frame`] every call repeats it.
    pub async fn next(&mut self) -> Result<Option<Frame>, RecvError> {
        loop {
            if let Some(error) = &self.broken {
                return Err(RecvError::Frame(error.clone()));
            }
            match Frame::decode(&mut self.buffer) {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(error) => {
                    self.stop(RecvError::Frame(error.clone()).code());
                    self.broken = Some(error);
                    continue;
                }
            }
            match self.stream.read_chunk(READ_BYTES, true).await {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk.bytes),
                Ok(None) if self.buffer.is_empty() => return Ok(None),
                Ok(None) => return Err(RecvError::Truncated { have: self.buffer.len() }),
                Err(ReadError::Reset(number)) => return Err(RecvError::Reset { code: code(number) }),
                Err(ReadError::ConnectionLost(error)) => return Err(RecvError::Lost(error.into())),
                Err(ReadError::ClosedStream) => return Ok(None),
                Err(ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected) => {
                    return Err(RecvError::Reset { code: Code::Unspecified });
                }
            }
        }
    }

    /// Reads no more: the peer's next send fails with the code.
    pub fn stop(&mut self, code: Code) {
        // An error says that the stream has ended already, which is all that is wanted.
        let _ = self.stream.stop(number(code));
    }
}

impl RecvError {
    /// The stable code of a breach of protocol; `Unspecified` of everything else.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Frame(FrameError::Kind { .. }) => Code::UnsupportedKind,
            Self::Frame(FrameError::Length { .. }) => Code::LimitExceeded,
            Self::Frame(FrameError::Body { .. }) | Self::Truncated { .. } => Code::Malformed,
            Self::Reset { .. } | Self::Lost(_) => Code::Unspecified,
        }
    }

    /// What to tell the peer, if it is to blame.
    #[must_use]
    pub fn refused(&self) -> Option<Refused> {
        let Self::Frame(error) = self else { return None };
        let (have, sent) = match error {
            FrameError::Length { length, max } => (*max as u64, *length as u64),
            FrameError::Kind { kind } => (0, u64::from(*kind)),
            FrameError::Body { .. } => (0, 0),
        };
        Some(Refused::mismatch(self.code(), error.to_string(), have, sent))
    }
}
