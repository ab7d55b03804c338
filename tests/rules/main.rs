//! Properties of what decides and of what is on disk, each against a simple model.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod catalog;
mod requests;
