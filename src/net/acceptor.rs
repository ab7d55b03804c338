//! The acceptor: one plain thread that waits for connections and gives each to the shard with the fewest.
//!
//! A flood costs it a system call or two per connection and nobody else anything: what is too much is closed at once, also
//! when descriptors run out, for which one is kept in reserve.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;

use crate::ids::ShardId;
use crate::runtime::accepted::{Accepted, Counts};
use crate::runtime::{clock, net};

/// How long accepting pauses when the kernel has nothing left to give.
const PAUSE: Duration = Duration::from_millis(50);
/// Least time between two lines about the same trouble.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The running acceptor.
pub struct Acceptor {
    listener: Arc<TcpListener>,
    counts: Arc<Counts>,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Acceptor {
    /// Starts to accept: at most `connections_max` at a time over `shards` shards, each given to `hand_over`, which may
    /// wait for room in a lane.
    ///
    /// # Errors
    /// When the thread or the descriptor in reserve cannot be had.
    pub fn start(
        listener: TcpListener,
        shards: usize,
        connections_max: usize,
        hand_over: impl FnMut(ShardId, Accepted) + Send + 'static,
    ) -> io::Result<Self> {
        let listener = Arc::new(listener);
        let counts = Counts::new(connections_max, shards);
        let stopping = Arc::new(AtomicBool::new(false));
        let task = Task {
            listener: Arc::clone(&listener),
            counts: Arc::clone(&counts),
            stopping: Arc::clone(&stopping),
            reserve: Some(reserve()?),
            last_line: None,
            hand_over,
        };
        let thread = thread::Builder::new().name("acceptor".to_string()).spawn(move || task.run())?;
        Ok(Self { listener, counts, stopping, thread })
    }

    /// Connections that are open or on their way.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.counts.all()
    }

    /// Stops listening; returns when no more connection will be handed over.
    pub fn stop(self) {
        self.stopping.store(true, Ordering::Relaxed);
        net::stop_listening(&self.listener);
        // A thread that panicked has stopped too.
        let _stopped = self.thread.join();
    }
}

fn reserve() -> io::Result<File> {
    File::open("/dev/null")
}

struct Task<H> {
    listener: Arc<TcpListener>,
    counts: Arc<Counts>,
    stopping: Arc<AtomicBool>,
    reserve: Option<File>,
    last_line: Option<Duration>,
    hand_over: H,
}

impl<H: FnMut(ShardId, Accepted)> Task<H> {
    fn run(mut self) {
        while !self.stopping.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((socket, peer)) => self.take(socket, peer),
                Err(error) => self.failed(&error),
            }
        }
    }

    fn take(&mut self, socket: TcpStream, peer: SocketAddr) {
        let Some(permit) = self.counts.permit() else {
            net::refuse(&socket);
            let max = self.counts.max();
            self.line(&format!("refused a connection of {peer}: {max} are open, as many as max.connections and the limit of open files allow"));
            return;
        };
        if net::prepare(&socket).is_ok() {
            (self.hand_over)(permit.shard(), Accepted { socket: socket.into(), peer, permit });
        }
    }

    fn failed(&mut self, error: &io::Error) {
        match error.raw_os_error().map(Errno::from_raw) {
            _ if self.stopping.load(Ordering::Relaxed) => {}
            Some(Errno::EMFILE | Errno::ENFILE) => self.turn_away(error),
            Some(Errno::ECONNABORTED | Errno::EINTR) => {}
            _ => self.pause(error),
        }
    }

    /// Closes one waiting connection with the descriptor in reserve, instead of leaving it to wait and trying again.
    fn turn_away(&mut self, error: &io::Error) {
        self.line(&format!("refused a connection ({error}): raise the limit of open files, or lower max.connections"));
        self.reserve = None;
        let turned_away = self.listener.accept().map(|(socket, _)| net::refuse(&socket));
        self.reserve = reserve().ok();
        if turned_away.is_err() || self.reserve.is_none() {
            thread::sleep(PAUSE);
        }
    }

    fn pause(&mut self, error: &io::Error) {
        self.line(&format!("cannot accept connections for the moment: {error}"));
        thread::sleep(PAUSE);
    }

    fn line(&mut self, text: &str) {
        let now = clock::monotonic();
        if self.last_line.is_none_or(|last| now - last >= LINE_EVERY) {
            self.last_line = Some(now);
            tracing::warn!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Descriptors cannot be used up here without hurting other tests; the kernel's answer is played instead.
    #[test]
    fn a_connection_for_which_no_descriptor_is_left_is_closed_at_once() {
        let listener = Arc::new(net::listen("127.0.0.1:0".parse().unwrap()).unwrap());
        let counts = Counts::new(1, 1);
        let mut task = Task {
            listener: Arc::clone(&listener),
            counts,
            stopping: Arc::default(),
            reserve: Some(reserve().unwrap()),
            last_line: None,
            hand_over: |_, _| panic!("nothing was accepted"),
        };
        let mut waiting = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        task.failed(&Errno::EMFILE.into());
        assert_eq!(waiting.read(&mut [0; 1]).unwrap(), 0);
        assert!(task.reserve.is_some());
    }
}
