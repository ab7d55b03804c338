//! Markers on their way to the owners of partitions, until every partition of a transaction has one.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use super::coordinator::{Coordinator, Marked};
use crate::broker::messages::{Answer, Ask, Marker, PartitionKey};
use crate::broker::own_log::Phase;
use crate::broker::shard::Shard;
use crate::ids::{ShardId, TopicPartition};
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::state::transactions::Ending;
use crate::wire::error_code::ErrorCode;

/// Between two attempts; each pause is twice as long as the one before.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl<D: Disk> Shard<D> {
    /// Sends the markers of a transaction that ends, and what could not be written again and again.
    pub(super) fn begin_ending(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, ending: Ending) {
        let (shard, coordinator) = (Rc::clone(self), Rc::clone(coordinator));
        host::spawn(Queue::Requests, async move { shard.bring_to_end(&coordinator, Rc::new(ending)).await });
    }

    async fn bring_to_end(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, ending: Rc<Ending>) {
        let life = coordinator.life();
        let is_over = || coordinator.life() != life || coordinator.log.phase() == Phase::Closed;
        let mut pause = PAUSE_MIN;
        if ending.is_repeated {
            clock::sleep(PAUSE_MAX).await;
        }
        let mut left = ending.partitions.clone();
        // Also before anything is sent: a later life may have let the next transaction of that epoch begin.
        while !is_over() {
            let done = self.send_markers(&ending, &left).await;
            if is_over() {
                return;
            }
            left.retain(|partition| !done.contains(partition));
            self.take_marked(coordinator, (Rc::clone(&ending), done.into_iter().collect()));
            if left.is_empty() {
                return;
            }
            clock::sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// One attempt; tells which partitions need no marker any more.
    async fn send_markers(self: &Rc<Self>, ending: &Ending, left: &[TopicPartition]) -> HashSet<TopicPartition> {
        let catalog = self.catalog();
        let mut done = HashSet::with_capacity(left.len());
        let mut by_owner: BTreeMap<ShardId, (Vec<&TopicPartition>, Vec<Marker>)> = BTreeMap::new();
        for partition in left {
            let topic = catalog.topic(&partition.topic).filter(|topic| topic.log_id(partition.partition).is_some());
            let Some(topic) = topic else {
                // Deleted, and its open transaction with it.
                done.insert(partition.clone());
                continue;
            };
            let key = PartitionKey { topic: topic.id, partition: partition.partition };
            let (places, markers) = by_owner.entry(self.owner(key)).or_default();
            places.push(partition);
            markers.push(self.marker(ending, key));
        }
        let ask = |(owner, (places, markers))| (places, self.ask(owner, Ask::Markers(markers)));
        for (places, answer) in by_owner.into_iter().map(ask).collect::<Vec<_>>() {
            let Answer::Marked(codes) = answer.await else { continue };
            let results = places.into_iter().zip(codes);
            done.extend(
                results.filter(|(partition, code)| is_done(ending, partition, *code)).map(|(one, _)| one.clone()),
            );
        }
        done
    }

    fn marker(&self, ending: &Ending, key: PartitionKey) -> Marker {
        Marker {
            key,
            producer_id: ending.producer_id,
            epoch: ending.epoch,
            coordinator_epoch: self.leader_epoch(),
            outcome: ending.outcome,
            bumps_epoch: ending.bumps_epoch,
        }
    }

    /// What was marked counts when something new may be appended; until then it is kept.
    fn take_marked(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, marked: Marked) {
        if coordinator.log.serves().is_err() {
            return coordinator.hold(marked);
        }
        let (ending, partitions) = marked;
        let effects = coordinator.transactions.borrow_mut().marked(super::moment(), &ending, &partitions);
        self.carry_out_transactions(coordinator, effects);
    }

    pub(super) fn take_held_markers(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>) {
        for marked in coordinator.take_held() {
            self.take_marked(coordinator, marked);
        }
    }
}

/// Whether a partition needs no marker any more.
///
/// Source: apache/kafka `TransactionMarkerRequestCompletionHandler`.
fn is_done(ending: &Ending, partition: &TopicPartition, code: ErrorCode) -> bool {
    match code {
        ErrorCode::None | ErrorCode::UnsupportedVersion | ErrorCode::UnsupportedForMessageFormat => true,
        // A marker with a higher epoch came from outside (a tool that aborts hanging transactions): what was open there is
        // ended. Kafka gives up on all of the transaction here, and the transactional id hangs for ever.
        ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced => {
            let (id, producer) = (&ending.transactional_id, ending.producer_id.0);
            tracing::warn!("{partition}: producer {producer} of {id} was ended from outside: {code}");
            true
        }
        _ => false,
    }
}
