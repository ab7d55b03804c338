//! TCP: the listener that the acceptor thread waits on, and the stream that a shard reads and writes.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_io::{AsyncRead, AsyncWrite};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// Connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 1024;
/// Silence after which the kernel asks whether the peer still lives.
const KEEPALIVE: Duration = Duration::from_secs(120);

/// Listens on `address`; port 0 takes a free one.
///
/// Without `SO_REUSEPORT`, which glommio's own listener sets: a second broker would start silently on the same port.
///
/// # Errors
/// `AddrInUse` when the port is taken.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Makes whoever waits in `accept` return with an error, for good.
pub fn stop_listening(listener: &TcpListener) {
    // The only failure is that it was stopped before.
    let _stopped = nix::sys::socket::shutdown(listener.as_raw_fd(), nix::sys::socket::Shutdown::Both);
}

/// Small answers leave at once; a peer that vanished without a word is noticed.
///
/// # Errors
/// When the peer is gone already.
pub fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket2::SockRef::from(socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))
}

/// A connection of this shard. One task may read while another writes.
pub struct Stream {
    inner: RefCell<glommio::net::TcpStream>,
}

impl Stream {
    /// Takes over a connected socket.
    #[must_use]
    pub fn adopt(socket: OwnedFd) -> Self {
        let socket = Socket::from(TcpStream::from(socket));
        Self { inner: RefCell::new(socket.into()) }
    }

    /// Reads up to `up_to` bytes behind the content of `into`; 0 when the peer has closed.
    pub fn poll_read(&self, context: &mut Context<'_>, into: &mut BytesMut, up_to: usize) -> Poll<io::Result<usize>> {
        let filled = into.len();
        into.resize(filled + up_to, 0);
        let read = Pin::new(&mut *self.inner.borrow_mut()).poll_read(context, &mut into[filled..]);
        let kept = if let Poll::Ready(Ok(read)) = read { read } else { 0 };
        into.truncate(filled + kept);
        read
    }

    /// Writes some of `bytes`; returns how many.
    pub fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.inner.borrow_mut()).poll_write(context, bytes)
    }

    /// Reads up to `up_to` bytes behind the content of `into`; 0 when the peer has closed.
    pub async fn read(&self, into: &mut BytesMut, up_to: usize) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, into, up_to)).await
    }

    /// Writes all of `bytes`; calls `progress` after each part.
    pub async fn write_all(&self, mut bytes: impl Buf, progress: impl Fn()) -> io::Result<()> {
        while bytes.has_remaining() {
            let written = poll_fn(|context| self.poll_write(context, bytes.chunk())).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes.advance(written);
            progress();
        }
        Ok(())
    }

    /// Ends both directions: waiting reads and writes return.
    pub fn shut_down(&self) {
        let socket = self.inner.borrow().as_raw_fd();
        // Fails only when the peer has ended it already.
        let _ended = nix::sys::socket::shutdown(socket, nix::sys::socket::Shutdown::Both);
    }
}

/// Ends a connection that no shard has taken.
pub fn refuse(socket: &TcpStream) {
    // The peer may be gone already.
    let _ended = socket.shutdown(Shutdown::Both);
}
