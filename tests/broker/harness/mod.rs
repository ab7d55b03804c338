//! What every test here starts from: a folder, a broker in a child process, a client that speaks the bare protocol.

pub mod batches;
pub mod broker;
pub mod client;
pub mod folder;
pub mod random;
pub mod rdkafka_clients;

pub use broker::{Broker, Start};
pub use client::Client;
pub use folder::Folder;
pub use random::Random;
