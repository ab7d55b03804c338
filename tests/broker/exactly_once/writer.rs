//! A producer that commits, aborts, falls silent, or goes on as a zombie.

use std::sync::{Arc, Mutex};

use rdkafka::producer::Producer;

use super::super::harness::Random;
use super::check::{Fate, Told, Transaction};
use super::settle::{Settled, TxnProducer, send, settle, take_over};
use super::{CALL, PARTITIONS};

/// At most so many records in a transaction.
const RECORDS: u64 = 20;

/// See the module.
pub struct Writer {
    number: usize,
    bootstrap: String,
    producer: TxnProducer,
    random: Random,
    told: Arc<Mutex<Told>>,
    next: u64,
}

impl Writer {
    pub fn new(number: usize, bootstrap: &str, seed: u64, told: &Arc<Mutex<Told>>) -> Self {
        let producer = take_over(bootstrap, &id_of(number));
        let (bootstrap, random) = (bootstrap.to_owned(), Random::from_seed(seed));
        Self { number, bootstrap, producer, random, told: Arc::clone(told), next: 0 }
    }

    pub fn one_transaction(&mut self) {
        let number = self.next;
        self.next += 1;
        let count = 1 + self.random.below(RECORDS);
        let at_once = self.random.below(5) == 0;
        let partitions: Vec<_> =
            (0..count).map(|_| if at_once { 0 } else { self.random.below(PARTITIONS as u64) as i32 }).collect();
        let begun = settle("begin_transaction", || self.producer.begin_transaction());
        let is_sent = begun == Settled::Done
            && partitions.iter().enumerate().all(|(index, partition)| {
                send(&self.producer, "in", *partition, &format!("{} {number} {index} {count}", self.number))
            });
        let fate = match self.random.below(20) {
            _ if !is_sent => self.again(Fate::Aborted),
            0 => self.again(Fate::Aborted),
            1 => self.as_a_zombie(),
            2..=6 => self.abort(Fate::Aborted),
            _ => self.commit(),
        };
        let transaction = Transaction { fate, partitions };
        self.told.lock().unwrap().note(self.number, number, transaction);
    }

    fn commit(&mut self) -> Fate {
        match settle("commit_transaction", || self.producer.commit_transaction(CALL)) {
            Settled::Done => Fate::Committed,
            Settled::WantsAbort => self.abort(Fate::Aborted),
            Settled::Fatal => self.again(Fate::Unknown),
        }
    }

    fn abort(&mut self, well: Fate) -> Fate {
        match settle("abort_transaction", || self.producer.abort_transaction(CALL)) {
            Settled::Done => well,
            Settled::WantsAbort | Settled::Fatal => self.again(well),
        }
    }

    /// The client is gone without a word, and comes again.
    fn again(&mut self, fate: Fate) -> Fate {
        self.producer = take_over(&self.bootstrap, &id_of(self.number));
        self.told.lock().unwrap().taken_over += 1;
        fate
    }

    /// Another instance takes the id; the first one must not be able to commit any more.
    fn as_a_zombie(&mut self) -> Fate {
        let new = take_over(&self.bootstrap, &id_of(self.number));
        let zombie = std::mem::replace(&mut self.producer, new);
        let committed = settle("a zombie's commit_transaction", || zombie.commit_transaction(CALL));
        assert_ne!(committed, Settled::Done, "a zombie has committed");
        self.told.lock().unwrap().zombies += 1;
        Fate::Aborted
    }
}

fn id_of(number: usize) -> String {
    format!("writer-{number}")
}
