//! An accepted connection on its way to its shard, and the counts that limit how many there are.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ids::ShardId;

/// A connection on its way to its shard.
pub struct Accepted {
    /// The connected socket.
    pub socket: OwnedFd,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Its place in the counts; to be dropped when the connection has ended.
    pub permit: Permit,
}

/// How many connections there are, in all and on each shard.
pub struct Counts {
    max: usize,
    all: AtomicUsize,
    of_shard: Vec<AtomicUsize>,
}

/// One counted connection.
pub struct Permit {
    counts: Arc<Counts>,
    shard: ShardId,
}

impl Permit {
    /// The shard that the connection is for.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.counts.of_shard[self.shard.index()].fetch_sub(1, Ordering::Relaxed);
        self.counts.all.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    /// Counts for `shards` shards, at most `max` connections in all.
    #[must_use]
    pub fn new(max: usize, shards: usize) -> Arc<Self> {
        let of_shard = (0..shards).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self { max, all: AtomicUsize::new(0), of_shard })
    }

    /// The most that there may be.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// Connections that are open or on their way.
    #[must_use]
    pub fn all(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    /// A place on the shard with the fewest connections; none when there are `max` already.
    pub fn permit(self: &Arc<Self>) -> Option<Permit> {
        if self.all.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.all.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let fewest = (0_u32..).zip(&self.of_shard).min_by_key(|(_, count)| count.load(Ordering::Relaxed));
        let shard = ShardId(fewest.map_or(0, |(shard, _)| shard));
        self.of_shard[shard.index()].fetch_add(1, Ordering::Relaxed);
        Some(Permit { counts: Arc::clone(self), shard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_where_the_fewest_are_and_never_beyond_the_limit() {
        let counts = Counts::new(7, 3);
        let mut permits: Vec<Permit> = (0..7).map(|_| counts.permit().unwrap()).collect();
        let shards: Vec<u32> = permits.iter().map(|permit| permit.shard.0).collect();
        assert_eq!(shards, [0, 1, 2, 0, 1, 2, 0]);
        assert!(counts.permit().is_none());
        permits.remove(2);
        assert_eq!(counts.permit().map(|permit| permit.shard), Some(ShardId(2)));
        drop(permits);
        assert_eq!(counts.all(), 0);
    }
}
