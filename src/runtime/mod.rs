//! Executors, lanes, files, sockets and time. The only folder that names glommio and crossbeam_channel.

pub mod aligned;
pub mod clock;
pub mod disk;
pub mod executors;
pub mod host;
pub mod signal;
