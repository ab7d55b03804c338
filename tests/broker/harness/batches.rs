//! Batches to send, and batches that came back.

use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::log::scan::BatchFacts;
use corelane::wire::builder::BatchBuilder;

/// An idempotent producer that writes to one partition.
pub struct Writer {
    pub id: i64,
    pub next_sequence: i32,
}

impl Writer {
    pub fn new(id: i64) -> Self {
        Self { id, next_sequence: 0 }
    }

    /// The next batch: `records` records whose values begin with `what`.
    pub fn batch(&mut self, records: i32, what: &str, value_bytes: usize) -> Vec<u8> {
        let batch = batch_of(self.id, self.next_sequence, records, what, value_bytes);
        self.next_sequence += records;
        batch
    }
}

/// A batch of a producer (-1: of nobody).
pub fn batch_of(id: i64, sequence: i32, records: i32, what: &str, value_bytes: usize) -> Vec<u8> {
    let (epoch, sequence) = if id < 0 { (-1, -1) } else { (0, sequence) };
    let mut batch = BatchBuilder::new().place(Offset(0), -1);
    batch = batch.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    for record in 0..records {
        let mut value = format!("{what}:{sequence}:{record}:").into_bytes();
        value.resize(value.len().max(value_bytes), b'.');
        batch = batch.value(1_700_000_000_000 + i64::from(sequence + record), &value);
    }
    batch.build().to_vec()
}

/// A batch of an answer.
pub struct Stored<'a> {
    pub facts: BatchFacts,
    pub bytes: &'a [u8],
}

impl Stored<'_> {
    pub fn end(&self) -> i64 {
        self.facts.last_offset.0 + 1
    }

    /// What the client has sent: everything behind the base offset and the leader epoch.
    pub fn content(&self) -> &[u8] {
        &self.bytes[16..]
    }
}

/// The whole batches of an answer; a fetch may end within one.
pub fn whole(mut bytes: &[u8]) -> Vec<Stored<'_>> {
    let mut all = Vec::new();
    while let Some(length) = bytes.get(8..12) {
        let length = 12 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let Some((batch, rest)) = bytes.split_at_checked(length) else { break };
        all.push(Stored { facts: BatchFacts::read(batch, 0).unwrap(), bytes: batch });
        bytes = rest;
    }
    all
}
