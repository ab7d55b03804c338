//! Readers: up to the high watermark, from anywhere; what one has read stays what it is.

use std::time::Duration;

use bytes::Bytes;
use corelane::broker::messages::PartitionKey;
use corelane::log::scan::BatchFacts;
use corelane::runtime::clock;
use corelane::wire::error_code::ErrorCode;

use crate::cluster::bytes_of;
use crate::support::dice::Dice;
use crate::world::{Client, Mark, Promise, Seen, World};

/// A stored batch as far as the broker does not change it.
pub fn content(batch: &[u8]) -> &[u8] {
    &batch[16..]
}

pub fn mark_of(facts: &BatchFacts) -> Mark {
    (facts.producer_id, facts.producer_epoch, facts.base_sequence, facts.base_timestamp)
}

/// Cuts what was read into batches.
pub fn batches(mut bytes: Bytes) -> Vec<(BatchFacts, Bytes)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let facts = BatchFacts::read(&bytes, 0).expect("a batch");
        assert!(facts.bytes as usize <= bytes.len(), "a batch is cut short");
        let batch = bytes.split_to(facts.bytes as usize);
        found.push((facts, batch));
    }
    found
}

impl World {
    /// Somebody has read a batch: it must be one that was sent there, and the same as ever.
    pub fn note_read(&mut self, key: PartitionKey, facts: &BatchFacts, batch: &[u8], promise: Promise) {
        let base = facts.base_offset.0;
        let known = self.batches.get(&mark_of(facts)).copied();
        let (session, at) = known.unwrap_or_else(|| panic!("a batch that nobody sent: {key:?} {facts:?}"));
        let session = &mut self.sessions[session];
        assert_eq!(session.key, key, "a batch of another partition: {facts:?}");
        let sent = &mut session.sent[at];
        assert!(content(batch) == content(&sent.bytes), "not what was sent: {key:?} {facts:?}");
        assert!(sent.offset.is_none_or(|offset| offset == base), "{facts:?} was at {:?} before", sent.offset);
        (sent.offset, sent.promise) = (Some(base), sent.promise.max(promise));
        let seen = Seen { next: facts.next_offset().0, crc: facts.crc, promise };
        let Some(log) = self.logs.get_mut(&key) else { return };
        let before = log.seen.entry(base).or_insert(seen);
        assert_eq!((before.next, before.crc), (seen.next, seen.crc), "what was read has changed: {key:?} {base}");
        before.promise = before.promise.max(promise);
    }
}

/// Reads here and there until this life ends.
pub async fn read(client: Client, mut dice: Dice) {
    while client.goes_on() {
        if let Some(key) = client.some_log(&mut dice) {
            read_a_while(&client, key, &mut dice).await;
        }
        clock::sleep(Duration::from_micros(dice.below(80_000) as u64)).await;
    }
}

async fn read_a_while(client: &Client, key: PartitionKey, dice: &mut Dice) {
    let Some((start, end)) = client.world.borrow_mut().log(key).map(|log| (log.start, log.end)) else { return };
    let mut offset = start + dice.below((end - start + 1) as usize) as i64;
    for _ in 0..1 + dice.below(6) {
        let bytes_max = [1, 1_000, 20_000][dice.below(3)];
        let fetched = client.cluster.read(dice.below(8), key, offset, bytes_max).await;
        let world = &mut *client.world.borrow_mut();
        world.operate();
        if fetched.error == ErrorCode::UnknownTopicOrPartition {
            assert!(world.may_be_gone(key.topic), "a topic is not known that is there");
            return;
        }
        let may_be_gone = world.may_be_gone(key.topic);
        let Some(log) = world.log(key) else { return };
        match fetched.error {
            ErrorCode::None => {}
            ErrorCode::OffsetOutOfRange => {
                assert!(
                    offset < log.start_max.max(log.start),
                    "offset {offset} is out of range, from {start} to {end}"
                );
                return;
            }
            ErrorCode::KafkaStorageError if may_be_gone => return,
            ErrorCode::KafkaStorageError => return client.note_refused("a read"),
            other => panic!("{other:?}"),
        }
        log.note_end(fetched.high_watermark.0);
        let promise = log.promise();
        let high_watermark = fetched.high_watermark.0;
        let found = batches(bytes_of(&fetched));
        assert!(!found.is_empty() || offset >= high_watermark, "nothing at {offset}, readable to {high_watermark}");
        for (facts, batch) in &found {
            assert!(facts.next_offset().0 <= high_watermark, "{facts:?} is above {high_watermark}");
            world.note_read(key, facts, batch, promise);
            offset = facts.next_offset().0;
        }
    }
}
