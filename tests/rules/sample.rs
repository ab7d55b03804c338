//! Small valid batches for the tests of files, and the captured ones.

use std::path::PathBuf;

use corelane::ids::Offset;
use corelane::log::index::TimestampOffset;
use corelane::log::scan::{BatchFacts, HEADER_BYTES};
use corelane::wire::builder::BatchBuilder;

/// A batch with one uncompressed record for each of `timestamps`, values of `value_bytes` bytes.
#[derive(Clone, Debug)]
pub struct Sample {
    pub base: i64,
    pub timestamps: Vec<i64>,
    pub value_bytes: usize,
}

impl Sample {
    pub fn bytes(&self) -> Vec<u8> {
        let value =
            |delta: usize| (0..self.value_bytes).map(move |at| (self.base as usize * 31 + delta * 7 + at) as u8);
        let mut batch = BatchBuilder::new().place(Offset(self.base), 3);
        for (delta, timestamp) in self.timestamps.iter().enumerate() {
            batch = batch.value(*timestamp, &value(delta).collect::<Vec<u8>>());
        }
        batch.build().to_vec()
    }

    pub fn end(&self) -> i64 {
        self.base + self.timestamps.len() as i64
    }

    pub fn facts(&self, position: u64) -> BatchFacts {
        BatchFacts::read(&self.bytes()[..HEADER_BYTES], position).unwrap()
    }

    /// The first record with at least `timestamp` at or behind `from`.
    pub fn first_at_least(&self, timestamp: i64, from: i64) -> Option<TimestampOffset> {
        let records = self.timestamps.iter().enumerate().map(|(delta, time)| (self.base + delta as i64, *time));
        let mut fitting = records.filter(|(offset, time)| *offset >= from && *time >= timestamp);
        fitting.next().map(|(offset, timestamp)| TimestampOffset { timestamp, offset: Offset(offset) })
    }
}

/// Batches one after another from offset `base`: for each the timestamps and the size of its values.
pub fn samples(base: i64, shapes: &[(Vec<i64>, usize)]) -> Vec<Sample> {
    let mut next = base;
    let mut all = Vec::new();
    for (timestamps, value_bytes) in shapes {
        let sample = Sample { base: next, timestamps: timestamps.clone(), value_bytes: *value_bytes };
        next = sample.end();
        all.push(sample);
    }
    all
}

/// `count` batches of one to three records.
pub fn plain_samples(base: i64, count: usize) -> Vec<Sample> {
    let shapes: Vec<_> = (0..count).map(|at| (vec![1000 + at as i64; 1 + at % 3], 20 + at * 13 % 90)).collect();
    samples(base, &shapes)
}

pub fn concat(samples: &[Sample]) -> Vec<u8> {
    samples.iter().flat_map(Sample::bytes).collect()
}

/// A captured file.
pub fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(fixture_path(name)).unwrap()
}

pub fn fixture_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}
