//! Frames out of a byte stream: `length: i32, body`, the body opening with `api key: i16, api version: i16`.
//!
//! Nothing is allocated because a peer announced it: the buffer grows as bytes arrive.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};

use super::FrameHead;
use super::connections::Watch;
use crate::runtime::host;

/// Length prefix, in bytes.
const PREFIX_BYTES: usize = 4;
/// Prefix, api key and api version, in bytes.
const HEAD_BYTES: usize = 8;
/// Smallest body: api key, api version, correlation id, in bytes.
const BODY_BYTES_MIN: usize = 8;
/// Room that a connection's buffer starts with, in bytes.
const BUFFER_BYTES: usize = 16 * 1024;
/// Bounds of what one read asks for between frames, in bytes.
const STEP_BYTES_MIN: usize = 4 * 1024;
const STEP_BYTES_MAX: usize = 64 * 1024;
/// What one read asks for within a large frame, in bytes.
const LARGE_STEP_BYTES: usize = 256 * 1024;
/// What is read ahead while earlier requests are unanswered, in bytes.
const AHEAD_BYTES: usize = 64 * 1024;
/// Reads after which other tasks run.
const READS_IN_A_ROW: u32 = 8;

/// Why there is no further frame.
#[derive(Debug)]
pub(super) enum NoFrame {
    /// The peer has left.
    Gone,
    /// The broker stops.
    Stopped,
    /// What came is no frame that is taken; the line for the log.
    Refused(String),
}

impl From<io::Error> for NoFrame {
    fn from(_broken: io::Error) -> Self {
        Self::Gone
    }
}

/// Reads the frames of one connection.
pub(super) struct Frames {
    watch: Rc<Watch>,
    bytes_max: usize,
    buffer: BytesMut,
    step: usize,
    reads: u32,
}

impl Frames {
    pub(super) fn new(watch: Rc<Watch>, bytes_max: usize) -> Self {
        Self { watch, bytes_max, buffer: BytesMut::with_capacity(BUFFER_BYTES), step: STEP_BYTES_MIN, reads: 0 }
    }

    /// Waits for the head of the next frame; checks its length. The head stays in front of the body.
    pub(super) async fn head(&mut self) -> Result<FrameHead, NoFrame> {
        self.fill(PREFIX_BYTES).await?;
        let bytes = check_length((&self.buffer[..]).get_i32(), self.bytes_max).map_err(NoFrame::Refused)?;
        self.fill(HEAD_BYTES).await?;
        let mut head = &self.buffer[PREFIX_BYTES..];
        Ok(FrameHead { bytes, api_key: head.get_i16(), api_version: head.get_i16() })
    }

    /// Waits for the rest of the frame that `head` opened.
    pub(super) async fn body(&mut self, head: FrameHead) -> Result<Bytes, NoFrame> {
        let whole = PREFIX_BYTES + head.bytes;
        self.watch.in_frame.set(true);
        let filled = self.fill(whole).await;
        self.watch.in_frame.set(false);
        filled?;
        let mut frame = self.buffer.split_to(whole).freeze();
        frame.advance(PREFIX_BYTES);
        if whole > STEP_BYTES_MAX {
            // The rest of a large buffer must not be kept alive by the small frames that follow.
            let rest = std::mem::replace(&mut self.buffer, BytesMut::with_capacity(BUFFER_BYTES));
            self.buffer.extend_from_slice(&rest);
        }
        Ok(frame)
    }

    /// Waits until `free` says so; meanwhile reads a little ahead, to notice a peer that leaves.
    pub(super) async fn wait_until(&mut self, free: impl Fn() -> bool) -> Result<(), NoFrame> {
        poll_fn(|context| self.poll_until(context, &free)).await
    }

    fn poll_until(&mut self, context: &mut Context<'_>, free: &impl Fn() -> bool) -> Poll<Result<(), NoFrame>> {
        loop {
            if free() {
                return Poll::Ready(Ok(()));
            }
            if self.buffer.len() >= AHEAD_BYTES {
                return self.watch.poll_stopped(context).map(Err);
            }
            match self.poll_more(context, self.step) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Reads until the buffer holds `wanted` bytes.
    async fn fill(&mut self, wanted: usize) -> Result<(), NoFrame> {
        while self.buffer.len() < wanted {
            let missing = wanted - self.buffer.len();
            let step = if missing > self.step { missing.min(LARGE_STEP_BYTES) } else { self.step };
            poll_fn(|context| self.poll_more(context, step)).await?;
            self.reads += 1;
            if self.reads.is_multiple_of(READS_IN_A_ROW) {
                host::yield_now().await;
            }
        }
        Ok(())
    }

    fn poll_more(&mut self, context: &mut Context<'_>, step: usize) -> Poll<Result<(), NoFrame>> {
        if let Poll::Ready(stopped) = self.watch.poll_stopped(context) {
            return Poll::Ready(Err(stopped));
        }
        let Poll::Ready(read) = self.watch.stream.poll_read(context, &mut self.buffer, step) else {
            return Poll::Pending;
        };
        let read = read?;
        self.watch.progressed();
        if read == 0 {
            return Poll::Ready(Err(NoFrame::Gone));
        }
        self.adapt(read);
        Poll::Ready(Ok(()))
    }

    /// Asks for more next time after a full read, for less after a small one.
    fn adapt(&mut self, read: usize) {
        if read >= self.step {
            self.step = (self.step * 2).min(STEP_BYTES_MAX);
        } else if read < self.step / 4 {
            self.step = (self.step / 2).max(STEP_BYTES_MIN);
        }
    }
}

fn check_length(length: i32, bytes_max: usize) -> Result<usize, String> {
    match usize::try_from(length) {
        Ok(bytes) if bytes > bytes_max => {
            Err(format!("announced a request of {bytes} bytes; the limit is {bytes_max} (socket.request.max.bytes)"))
        }
        Ok(bytes) if bytes < BODY_BYTES_MIN => Err(format!("sent a request of {bytes} bytes, too short for a header")),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(format!("announced a request of {length} bytes: this is not the Kafka protocol")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked_before_anything_is_read() {
        assert_eq!(check_length(8, 100), Ok(8));
        assert_eq!(check_length(100, 100), Ok(100));
        assert!(check_length(101, 100).unwrap_err().contains("socket.request.max.bytes"));
        assert!(check_length(-1, 100).unwrap_err().contains("not the Kafka protocol"));
        assert!(check_length(7, 100).unwrap_err().contains("too short"));
        assert!(check_length(i32::from_be_bytes(*b"GET "), 104_857_600).is_err());
    }
}
