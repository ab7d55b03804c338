//! One connection: requests are read and begun in order, their answers are written in the same order.
//!
//! Both halves live in one task. The reading half stops when too much is unanswered or memory is short, the writing half
//! waits for the answer that is due; whatever the peer does ends this connection and nothing else.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use super::connections::{Charge, Connections, Watch};
use super::frames::{Frames, NoFrame};
use super::queue::{Queue, Ready};
use super::{Begun, ConnectionInfo, Outcome, Service};
use crate::runtime::accepted::Accepted;
use crate::runtime::host;
use crate::runtime::net::Stream;

/// Turns of both halves after which other tasks run.
const TURNS_IN_A_ROW: u32 = 16;

/// Serves one connection until it ends.
pub async fn serve<S: Service>(accepted: Accepted, service: Rc<S>, connections: Rc<Connections>) {
    let Accepted { socket, peer, permit } = accepted;
    let (number, watch) = connections.enter(Stream::adopt(socket));
    let info = ConnectionInfo { number, peer, shard: connections.shard() };
    let _entry = Entry { connections: Rc::clone(&connections), number };
    let connection = Connection {
        info,
        service,
        connections,
        watch,
        queue: Queue::default(),
        wrote: Cell::new(false),
        reading: Cell::new(true),
    };
    if let Some(line) = connection.run().await {
        tracing::warn!("closing the connection of {peer}: {line}");
    }
    drop(permit);
}

/// The connection's place in the shard's list, also when its task is dropped.
struct Entry {
    connections: Rc<Connections>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.leave(self.number);
    }
}

struct Connection<S> {
    info: ConnectionInfo,
    service: Rc<S>,
    connections: Rc<Connections>,
    watch: Rc<Watch>,
    queue: Queue,
    /// The writing half has written since the reading half last looked.
    wrote: Cell<bool>,
    /// Requests are still being read.
    reading: Cell<bool>,
}

impl<S: Service> Connection<S> {
    /// Runs both halves; returns the line for the log, if the end deserves one.
    async fn run(&self) -> Option<String> {
        let mut reader = pin!(self.read_requests());
        let mut writer = pin!(self.write_answers());
        let mut last_words = None;
        poll_fn(|context| {
            for _ in 0..TURNS_IN_A_ROW {
                if self.reading.get()
                    && let Poll::Ready(end) = reader.as_mut().poll(context)
                {
                    self.reading.set(false);
                    match end {
                        NoFrame::Gone => return Poll::Ready(None),
                        NoFrame::Stopped => {}
                        NoFrame::Refused(line) => last_words = Some(line),
                    }
                }
                if let Poll::Ready(end) = self.poll_writer(writer.as_mut(), context) {
                    return Poll::Ready(end.or_else(|| last_words.take()));
                }
                if !(self.reading.get() && self.wrote.take()) {
                    return Poll::Pending;
                }
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Goes on writing; ends when reading has ended and nothing is left to answer.
    fn poll_writer(
        &self,
        writer: Pin<&mut impl Future<Output = Option<String>>>,
        context: &mut Context<'_>,
    ) -> Poll<Option<String>> {
        let end = writer.poll(context);
        if end.is_pending() && !self.reading.get() && self.watch.unanswered.get() == 0 {
            return Poll::Ready(None);
        }
        end
    }

    async fn read_requests(&self) -> NoFrame {
        let mut frames = Frames::new(Rc::clone(&self.watch), self.connections.limits().frame_bytes_max);
        let mut begun: u32 = 0;
        loop {
            if let Err(end) = self.read_request(&mut frames).await {
                return end;
            }
            begun = begun.wrapping_add(1);
            if begun.is_multiple_of(TURNS_IN_A_ROW) {
                host::yield_now().await;
            }
        }
    }

    /// Takes in and begins one request.
    async fn read_request(&self, frames: &mut Frames) -> Result<(), NoFrame> {
        let head = frames.head().await?;
        let terms = self.service.admit(head).map_err(NoFrame::Refused)?;
        let unanswered_max = if terms.may_overlap { self.connections.limits().unanswered_max } else { 1 };
        frames.wait_until(|| self.watch.unanswered.get() < unanswered_max).await?;
        let charge = self.watch.while_broker_works(Charge::take(self.connections.budget(), terms.cost)).await;
        let frame = frames.body(head).await?;
        let begun = self.watch.while_broker_works(self.service.begin(&self.info, frame, &charge)).await;
        if let Begun::Now(Outcome::Close(line)) = begun {
            return Err(NoFrame::Refused(line));
        }
        self.watch.unanswered.set(self.watch.unanswered.get() + 1);
        self.queue.push(begun, charge);
        Ok(())
    }

    /// Writes answers as they become ready; ends when the peer is gone (`None`) or an answer says so.
    async fn write_answers(&self) -> Option<String> {
        loop {
            let mut ready = poll_fn(|context| self.queue.poll_ready(context)).await;
            if self.write(&mut ready).await.is_err() {
                return None;
            }
            if ready.close.is_some() {
                return ready.close;
            }
            self.watch.unanswered.set(self.watch.unanswered.get() - ready.requests);
            self.wrote.set(true);
        }
    }

    async fn write(&self, ready: &mut Ready) -> io::Result<()> {
        self.watch.progressed();
        self.watch.writing.set(true);
        for piece in ready.pieces() {
            self.watch.stream.write_all(piece, || self.watch.progressed()).await?;
        }
        self.watch.writing.set(false);
        Ok(())
    }
}

#[cfg(test)]
#[path = "connection/tests.rs"]
mod tests;
