//! The rules of the pure parts and of the files, against simple models and at every cut.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod checkpoint;
mod index;
mod kafka_files;
mod kafka_folder;
mod plain_disk;
mod sample;
mod scan;
mod seal;
mod segment;
