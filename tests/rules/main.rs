//! What wire and state must fulfil whatever comes in.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

mod batch;
mod codec;
mod frames;
mod fuzz;
mod producers;
mod records;
