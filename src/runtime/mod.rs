//! Executors, lanes, files, sockets and time. The only folder that names glommio and crossbeam_channel.

pub mod accepted;
pub mod aligned;
pub mod budget;
pub mod clock;
pub mod disk;
pub mod executors;
pub mod host;
pub mod lane;
pub mod net;
pub mod open_files;
mod pace;
pub mod read_only_disk;
pub mod real_disk;
pub mod replies;
pub mod signal;
pub mod startup;
