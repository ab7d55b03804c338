//! What the broker answers, compared with what Apache Kafka 4.4.0 answered to the same requests. Tests whose names begin
//! with `eos` carry the numbers of the project's list of exactly-once statements, the others those of its field cases.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "no simulator turns the hands here")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

#[path = "../broker/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests beside these use the rest")]
mod harness;

mod bad_batches;
mod delete_records;
mod duplicates;
mod eos_offsets;
mod epochs;
mod fetch;
mod forgotten;
mod group_offsets;
mod groups;
mod ids;
mod members;
mod offsets;
mod offsets_topic;
mod produce;
mod sequences;
mod sessions;
mod transaction_ends;
mod transactional_ids;
mod transactions;
mod wire;
mod world;
