//! Bytes ↔ values, without I/O. Nothing here trusts a length or a count that it reads.
#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

pub mod batch;
pub mod builder;
pub mod error_code;
pub mod fetch;
pub mod frame;
pub mod produce;
pub mod reader;
pub(crate) mod sink;
pub mod stored;
pub mod topic;
mod unpack;
pub mod varint;
