//! Frames on their way out of one channel: bounded, and never waited for by the engine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use braid_link::{Code, Connection};
use braid_wire::Frame;
use tokio::sync::Notify;

/// Of one channel. A consumer bounds its deliveries by credit, a producer its answers by what it has in flight.
const FRAMES_MAX: usize = 16_384;
const BYTES_MAX: usize = 32 << 20;
/// Of all channels.
const TOTAL_BYTES_MAX: usize = 512 << 20;

/// Bytes in all outboxes of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Total(Arc<AtomicUsize>);

/// A peer that does not read what it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Overflow {
    #[error("{frames} frames wait to be read, the bound is {FRAMES_MAX}")]
    Frames { frames: usize },
    #[error("{bytes} bytes wait to be read on one stream, the bound is {BYTES_MAX}")]
    Bytes { bytes: usize },
    #[error("{bytes} bytes wait to be read on all streams, the bound is {TOTAL_BYTES_MAX}")]
    Total { bytes: usize },
}

/// One writer takes from it, the engine puts in.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    filled: Notify,
    total: Total,
    /// What is closed if the peer does not read. `None` in tests of the queue alone.
    connection: Option<Connection>,
}

#[derive(Debug, Default)]
struct Queue {
    frames: Vec<Frame>,
    /// Of `frames`, and of those taken and not written yet.
    bytes: usize,
    is_closed: bool,
}

impl Outbox {
    pub(crate) fn new(connection: Option<Connection>, total: Total) -> Self {
        Self { queue: Mutex::default(), filled: Notify::new(), total, connection }
    }

    /// Adds a frame; once closed, it is dropped. When a bound is reached, the whole connection is closed: its peer does not read.
    pub(crate) fn push(&self, frame: Frame) -> Result<(), Overflow> {
        let length = frame.wire_len();
        let mut queue = self.lock();
        if queue.is_closed {
            return Ok(());
        }
        let (frames, bytes) = (queue.frames.len() + 1, queue.bytes + length);
        let total = self.total.0.load(Ordering::Relaxed) + length;
        let overflow = if frames > FRAMES_MAX {
            Overflow::Frames { frames }
        } else if bytes > BYTES_MAX {
            Overflow::Bytes { bytes }
        } else if total > TOTAL_BYTES_MAX {
            Overflow::Total { bytes: total }
        } else {
            queue.bytes = bytes;
            queue.frames.push(frame);
            drop(queue);
            self.total.0.fetch_add(length, Ordering::Relaxed);
            self.filled.notify_one();
            return Ok(());
        };
        queue.is_closed = true;
        drop(queue);
        if let Some(connection) = &self.connection {
            connection.close(Code::LimitExceeded, &overflow.to_string());
        }
        self.filled.notify_one();
        Err(overflow)
    }

    /// What is in it is the last.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_one();
    }

    /// All that waits, and whether it is the last; waits until there is something. For one writer. Cancel-safe.
    pub(crate) async fn take(&self) -> (Vec<Frame>, bool) {
        loop {
            {
                let mut queue = self.lock();
                if queue.is_closed || !queue.frames.is_empty() {
                    return (std::mem::take(&mut queue.frames), queue.is_closed);
                }
            }
            self.filled.notified().await;
        }
    }

    /// These are out: there is room for others.
    pub(crate) fn written(&self, frames: &[Frame]) {
        let bytes = frames.iter().map(Frame::wire_len).sum();
        self.lock().bytes -= bytes;
        self.total.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Nothing under the lock can panic half way, so a poisoned one is as good as new.
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.total.0.fetch_sub(self.lock().bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use braid_wire::proto::{AckConfirmed, Hello};

    use super::*;

    fn ack(ack: u64) -> Frame {
        AckConfirmed { ack }.into()
    }

    #[tokio::test]
    async fn frames_leave_in_order_and_the_last_are_marked() {
        let total = Total::default();
        let outbox = Outbox::new(None, total.clone());
        outbox.push(ack(1)).unwrap();
        outbox.push(ack(2)).unwrap();
        let (frames, last) = outbox.take().await;
        assert_eq!((&frames[..], last), (&[ack(1), ack(2)][..], false));
        assert_eq!(total.0.load(Ordering::Relaxed), 16, "bytes count until they are written");
        outbox.written(&frames);
        outbox.push(ack(3)).unwrap();
        outbox.close();
        outbox.push(ack(4)).unwrap();
        assert_eq!(outbox.take().await, (vec![ack(3)], true));
        drop(outbox);
        assert_eq!(total.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_peer_that_does_not_read_is_cut_off_at_a_bound() {
        let outbox = Outbox::new(None, Total::default());
        for n in 0..FRAMES_MAX as u64 {
            outbox.push(ack(n)).unwrap();
        }
        assert_eq!(outbox.push(ack(0)), Err(Overflow::Frames { frames: FRAMES_MAX + 1 }));
        assert_eq!(outbox.push(ack(0)), Ok(()), "and is not told twice");

        let total = Total::default();
        let large = || Frame::from(Hello { version: 1, name: "x".repeat(7 << 20) });
        let outbox = Outbox::new(None, total.clone());
        for _ in 0..4 {
            outbox.push(large()).unwrap();
        }
        let length = large().wire_len();
        assert_eq!(outbox.push(large()), Err(Overflow::Bytes { bytes: 5 * length }));

        let others: Vec<_> = (0..20).map(|_| Outbox::new(None, total.clone())).collect();
        let pushed = others.iter().cycle().take(20 * 4).map(|outbox| outbox.push(large()));
        let room = TOTAL_BYTES_MAX / length - 4;
        let overflow = Overflow::Total { bytes: (room + 5) * length };
        assert_eq!(pushed.enumerate().find(|(_, pushed)| pushed.is_err()), Some((room, Err(overflow))));
    }
}
