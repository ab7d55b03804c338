//! So much at once that files of the commit log are used again, and that segments are behind the commit log.

use std::time::Duration;

use corelane::broker::messages::PartitionKey;
use corelane::runtime::clock;

use crate::support::dice::Dice;
use crate::world::{Client, Named};
use crate::{admin, producers};

/// A topic for large batches.
const WIDE: &str = "wide";
/// Bytes of a batch, below `message.max.bytes`.
pub const BATCH_BYTES: usize = 28_000;
/// Batches that fill two files of the commit log, and some.
const BATCHES: usize = 130;
/// Batches under way at once.
const IN_FLIGHT: usize = 5;

pub fn named(dice: &mut Dice) -> Named {
    let drawn = admin::named(WIDE.to_owned(), dice);
    Named { partitions: 1, is_weak: false, retains: false, segment_bytes: 300_000, ..drawn }
}

/// Writes large batches, as fast as they are taken.
pub async fn write(client: Client, mut dice: Dice) {
    clock::sleep(Duration::from_millis(dice.below(100) as u64)).await;
    let topic = client.world.borrow().names.iter().find(|named| named.name == WIDE).and_then(|named| named.id);
    let Some(topic) = topic else { return };
    let key = PartitionKey { topic, partition: 0 };
    let Some(at) = producers::begin(&client, key, &mut dice).await else { return };
    let mut sent = 0;
    while sent < BATCHES && client.goes_on() {
        let first = client.world.borrow().sessions[at].sent.len();
        for _ in 0..IN_FLIGHT {
            client.world.borrow_mut().make(at, &mut dice);
        }
        let level = client.world.borrow().sessions[at].level;
        if producers::send(&client, at, first, level, dice.below(8)).await != producers::Round::Done {
            return;
        }
        sent += IN_FLIGHT;
    }
    client.world.borrow_mut().one("bursts written whole");
}
