//! A loop that reads, writes what it has read, and commits both with its offsets in one transaction.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

use super::super::harness::Random;
use super::check::Told;
use super::settle::{Settled, TxnProducer, send, settle, take_over};
use super::{CALL, COPIERS, PARTITIONS, patience};

/// Group of all copiers; they share the partitions by hand.
pub const GROUP: &str = "copiers";
const RECORDS: u64 = 40;

/// See the module.
pub struct Copier {
    number: i32,
    bootstrap: String,
    producer: TxnProducer,
    consumer: BaseConsumer,
    random: Random,
    told: Arc<Mutex<Told>>,
}

impl Copier {
    pub fn new(number: i32, bootstrap: &str, seed: u64, told: &Arc<Mutex<Told>>) -> Self {
        let consumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("group.id", GROUP)
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_committed")
            .set("auto.offset.reset", "error")
            .set("fetch.wait.max.ms", "10")
            .set("reconnect.backoff.ms", "5")
            .set("reconnect.backoff.max.ms", "20")
            .create()
            .unwrap();
        let copier = Self {
            number,
            bootstrap: bootstrap.to_owned(),
            producer: take_over(bootstrap, &format!("copier-{number}")),
            consumer,
            random: Random::from_seed(seed),
            told: Arc::clone(told),
        };
        copier.rewind();
        copier
    }

    /// Goes on where the group's offsets are.
    fn rewind(&self) {
        let mut own = TopicPartitionList::new();
        (0..PARTITIONS).filter(|at| at % COPIERS == self.number).for_each(|at| {
            own.add_partition("in", at);
        });
        let begun = Instant::now();
        let committed = loop {
            match self.consumer.committed_offsets(own.clone(), Duration::from_secs(5)) {
                Ok(committed) if committed.elements().iter().all(|one| one.error().is_ok()) => break committed,
                found => assert!(begun.elapsed() < patience(), "the group's offsets cannot be read: {found:?}"),
            }
        };
        let mut places = TopicPartitionList::new();
        for one in committed.elements() {
            let from = match one.offset() {
                Offset::Offset(offset) => Offset::Offset(offset),
                _ => Offset::Beginning,
            };
            places.add_partition_offset("in", one.partition(), from).unwrap();
        }
        self.consumer.assign(&places).unwrap();
    }

    pub fn one_transaction(&mut self) {
        let wanted = 1 + self.random.below(RECORDS);
        let (mut read, mut places) = (Vec::new(), TopicPartitionList::new());
        while (read.len() as u64) < wanted {
            match self.consumer.poll(Duration::from_millis(20)) {
                Some(Ok(message)) => {
                    let value = String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
                    read.push((message.partition(), message.offset(), value));
                }
                // The broker is down.
                Some(Err(KafkaError::MessageConsumption(code))) if code.is_passing() => {}
                Some(Err(error)) => panic!("copier {}: {error}", self.number),
                None => break,
            }
        }
        if read.is_empty() {
            return;
        }
        let begun = settle("begin_transaction", || self.producer.begin_transaction());
        let is_sent = begun == Settled::Done
            && read.iter().all(|(partition, _, value)| send(&self.producer, "copied", *partition, value));
        for (partition, offset, _) in &read {
            places.add_partition("in", *partition);
            places.set_partition_offset("in", *partition, Offset::Offset(offset + 1)).unwrap();
        }
        let outcome = match self.random.below(20) {
            _ if !is_sent => Settled::Fatal,
            0 => Settled::Fatal,
            1..=3 => Settled::WantsAbort,
            _ => self.commit(&places),
        };
        if outcome == Settled::Done {
            self.told.lock().unwrap().copied += 1;
            return;
        }
        let aborted = match outcome {
            Settled::WantsAbort => settle("abort_transaction", || self.producer.abort_transaction(CALL)),
            _ => Settled::Fatal,
        };
        if aborted != Settled::Done {
            self.producer = take_over(&self.bootstrap, &format!("copier-{}", self.number));
        }
        self.told.lock().unwrap().rewound += 1;
        self.rewind();
    }

    fn commit(&self, places: &TopicPartitionList) -> Settled {
        let group = self.consumer.group_metadata().unwrap();
        let sent =
            settle("send_offsets_to_transaction", || self.producer.send_offsets_to_transaction(places, &group, CALL));
        match sent {
            Settled::Done => settle("commit_transaction", || self.producer.commit_transaction(CALL)),
            other => other,
        }
    }
}

trait Passing {
    fn is_passing(&self) -> bool;
}

impl Passing for rdkafka::error::RDKafkaErrorCode {
    fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::BrokerTransportFailure
                | Self::AllBrokersDown
                | Self::OperationTimedOut
                | Self::CoordinatorLoadInProgress
        )
    }
}
