//! Bytes ↔ values, without I/O. Nothing here trusts a length or a count that it reads.
#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

pub mod admission;
pub mod batch;
pub mod builder;
pub mod contents;
pub mod error_code;
pub mod fetch;
pub mod frame;
pub mod internal;
mod lz4;
mod pack;
pub mod produce;
pub mod reader;
pub mod records;
pub mod refill;
pub(crate) mod sink;
mod snappy;
pub mod stored;
pub mod timestamps;
pub mod topic;
pub mod transaction_record;
mod unfold;
pub mod unpack;
pub mod varint;
