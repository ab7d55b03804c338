//! The acceptor and the connections: frames in, answers out, in order.
//!
//! What a request means is the business of the [`Service`]; here are limits, order, memory, time and the socket.

pub mod acceptor;
pub mod connection;
pub mod connections;
mod frames;
mod queue;

use std::net::SocketAddr;

use bytes::Bytes;

use crate::ids::ShardId;
pub use crate::requests::{Begun, Outcome};
pub use connections::{Charge, Connections, Limits};

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Counted from 0 on this shard.
    pub number: u64,
    /// Address of the client.
    pub peer: SocketAddr,
    /// The shard that serves the connection.
    pub shard: ShardId,
}

/// What the first eight bytes of a frame tell, before any more of it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Length of the frame without its prefix, in bytes.
    pub bytes: usize,
    /// Which request.
    pub api_key: i16,
    /// In which version.
    pub api_version: i16,
}

/// On what terms a frame is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// True when the request may begin while earlier ones of its connection are unanswered (Produce); any other waits until
    /// everything before it is answered.
    pub may_overlap: bool,
    /// Memory that the frame and its handling will take, in bytes; charged to the shard's budget before the frame is read.
    pub cost: usize,
}

/// What answers the requests of all connections of one shard.
#[expect(async_fn_in_trait, reason = "nothing here moves between threads")]
pub trait Service: 'static {
    /// Decides by its first bytes whether a frame is taken in at all.
    ///
    /// # Errors
    /// The line for the log; the connection closes. Frames above `socket.request.max.bytes` are refused before this.
    fn admit(&self, head: FrameHead) -> Result<Terms, String>;

    /// Begins a request; returns as soon as its place in the order is fixed.
    ///
    /// `frame` is without its length prefix. `charge` is the memory taken for the request until its answer is written; a
    /// request that waits long gives it back meanwhile ([`Charge::park`]). Both futures, this one and [`Begun::Later`], are
    /// dropped where they stand when the peer leaves.
    async fn begin(&self, connection: &ConnectionInfo, frame: Bytes, charge: &Charge) -> Begun;
}
