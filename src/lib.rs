//! corelane: a log broker for one Linux host that speaks the Kafka protocol. One pinned core, one shard, nothing shared.
//!
//! # Code map (lowest layer first; a module uses only what stands above it in this list)
//! - [`ids`]: names and numbers.
//! - [`config`]: what was typed → what was decided.
//! - [`wire`]: bytes ↔ values, no I/O.
//! - [`state`]: decisions: no I/O, clock, async, threads or randomness.
//! - [`runtime`]: executors, lanes, files, sockets, time.
//! - [`log`]: the files of one partition, the shard's commit log, recovery.
//! - [`broker`]: shards, partitions, catalog, routing.
//! - [`requests`]: one file per API key: decode → ask the broker → encode.
//! - [`net`]: acceptor and connections.
//! - [`mod@bench`]: the load generator behind `corelane bench`.
//! - [`offline`]: the commands on a stopped broker's files: verify, dump, import, repair.
//! - [`server`]: start order, shutdown order.

pub mod bench;
pub mod broker;
pub mod config;
pub mod ids;
pub mod log;
pub mod net;
pub mod offline;
pub mod requests;
pub mod runtime;
pub mod server;
pub mod state;
pub mod wire;
