//! Transactional producers: over both partitions of a topic that is never deleted and offsets of a group, by both protocols;
//! some fall silent, some go on as zombies.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use corelane::broker::messages::{AckLevel, Answer, Ask, CheckedBatch, PartitionKey, ProduceItem};
use corelane::broker::shard::LocalFuture;
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence, TopicId, TopicPartition};
use corelane::runtime::clock;
use corelane::state::enlisting::{Entry, Protocol as Enlists, Question};
use corelane::state::groups::messages as groups;
use corelane::state::transactions::messages::{self as transactions, Command, Outcome, Protocol, Speaker};
use corelane::wire::batch::BatchHeader;
use corelane::wire::builder::BatchBuilder;
use corelane::wire::error_code::ErrorCode;

use crate::cluster::{in_time, produced};
use crate::groups::ANCHOR;
use crate::ledger::{Fate, LEDGER, PARTITIONS, Paid, STAMP};
use crate::support::dice::Dice;
use crate::world::Client;

/// Tries of one call before the payer begins anew.
const TRIES: usize = 4;
/// How long a coordinator may load or complete a transaction, in tries of 1 ms.
const PATIENCE: usize = 30_000;

/// Asks the coordinator of a payer.
async fn ask(client: &Client, command: Command, dice: &mut Dice) -> transactions::Answer {
    client.world.borrow_mut().operate();
    let shard = client.cluster.shard(dice.below(8)).clone();
    if shard.find_transaction_coordinator().await.is_err() {
        return command.refused(ErrorCode::CoordinatorNotAvailable);
    }
    in_time("a transaction's coordinator", shard.ask_transaction(command)).await
}

/// Codes with which a call is made again.
fn passes(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::ConcurrentTransactions
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::KafkaStorageError
            | ErrorCode::UnknownServerError
    )
}

fn init_of(payer: &str) -> Command {
    Command::Init { transactional_id: payer.to_owned(), timeout_ms: 60_000, given: None }
}

fn name_of(at: usize) -> String {
    format!("payer-{at}")
}

/// The group whose offsets a payer commits.
fn group_of(at: usize) -> String {
    format!("payers-{at}")
}

/// Takes the id over: whatever is open there is aborted when this is through. False when the disk does not let it.
pub async fn take_over(client: &Client, at: usize, tries: usize, dice: &mut Dice) -> bool {
    // The one before may be fenced even if this does not come to its end.
    client.world.borrow_mut().ledger.payers[at].identity = None;
    for _ in 0..tries {
        let transactions::Answer::Producer(answer) = ask(client, init_of(&name_of(at)), dice).await else { panic!() };
        match answer {
            Ok((id, epoch)) => {
                let world = &mut *client.world.borrow_mut();
                world.ledger.payers[at].begin_again(id.0, epoch.0);
                world.ledger.payers[at].is_classic = dice.below(3) == 0;
                world.one("payers that took their id over");
                return true;
            }
            Err(error) if passes(error) => clock::sleep(Duration::from_millis(1)).await,
            Err(other) => panic!("{}: {other:?}", name_of(at)),
        }
    }
    false
}

/// The same after a start, when nothing fails.
pub async fn settle(client: &Client, at: usize, dice: &mut Dice) {
    assert!(take_over(client, at, PATIENCE, dice).await, "{} cannot be taken over", name_of(at));
}

/// Pays until this life ends.
pub async fn pay(client: Client, at: usize, mut dice: Dice) {
    let (Some(ledger), Some(anchor)) = (client.cluster.topic(LEDGER), client.cluster.topic(ANCHOR)) else { return };
    while client.goes_on() {
        let identity = client.world.borrow().ledger.payers[at].identity;
        if let Some(identity) = identity {
            let mut payer = Payment { client: &client, at, identity, ledger: ledger.id, anchor: anchor.id };
            payer.pay(&mut dice).await;
        } else {
            take_over(&client, at, 10, &mut dice).await;
        }
        clock::sleep(Duration::from_micros(dice.below(60_000) as u64)).await;
    }
}

struct Payment<'a> {
    client: &'a Client,
    at: usize,
    identity: (i64, i16),
    ledger: TopicId,
    anchor: TopicId,
}

impl Payment<'_> {
    fn speaker(&self) -> Speaker {
        let (id, epoch) = self.identity;
        Speaker { transactional_id: name_of(self.at), producer_id: ProducerId(id), epoch: ProducerEpoch(epoch) }
    }

    /// One transaction, from its first batch to its end or to where the payer gives up.
    async fn pay(&mut self, dice: &mut Dice) {
        let (number, is_classic) = {
            let payer = &mut self.client.world.borrow_mut().ledger.payers[self.at];
            (payer.begin(), payer.is_classic)
        };
        let protocol = if is_classic { Protocol::Classic } else { Protocol::Bumping };
        let mut is_well = true;
        for _ in 0..1 + dice.below(3) {
            is_well = is_well && self.write_some(number, protocol, dice).await;
        }
        if is_well && dice.below(2) == 0 {
            is_well = self.commit_offset(number, protocol, dice).await;
        }
        let is_zombie = dice.below(12) == 0;
        if is_zombie || dice.below(12) == 0 || !is_well && dice.below(2) == 0 {
            // Silent from here on; another one takes the id.
            let before = self.speaker();
            if take_over(self.client, self.at, 10, dice).await && is_zombie {
                self.be_a_zombie(before, protocol, dice).await;
            }
            return;
        }
        let outcome = if is_well && dice.below(4) > 0 { Outcome::Commit } else { Outcome::Abort };
        self.end(number, outcome, protocol, dice).await;
    }

    /// Some batches, one behind the other without waiting; false when one of them was refused.
    async fn write_some(&mut self, number: usize, protocol: Protocol, dice: &mut Dice) -> bool {
        let count = 1 + dice.below(3);
        let partitions: Vec<_> = (0..count).map(|_| dice.below(PARTITIONS as usize) as i32).collect();
        if protocol == Protocol::Classic && !self.add(&partitions, dice).await {
            return false;
        }
        let shard = dice.below(8);
        let sent: Vec<_> =
            partitions.iter().map(|partition| self.send(number, *partition, protocol, shard, dice)).collect();
        let mut is_well = true;
        for (batch, answer) in sent {
            let result = produced(in_time("a batch of a transaction", answer).await);
            match result.error {
                ErrorCode::None => {
                    self.client.world.borrow_mut().ledger.told(self.at, number, batch, result.base_offset.0)
                }
                error if passes(error) => is_well = false,
                // One before it was refused, or the payer was taken over.
                ErrorCode::OutOfOrderSequenceNumber if !is_well => {}
                other => panic!("{}: {other:?} for batch {batch} of transaction {number}", name_of(self.at)),
            }
        }
        is_well
    }

    async fn add(&self, partitions: &[i32], dice: &mut Dice) -> bool {
        let name = |partition: &i32| TopicPartition { topic: LEDGER.into(), partition: *partition };
        let mut partitions: Vec<_> = partitions.iter().map(name).collect();
        partitions.sort();
        partitions.dedup();
        self.try_done(Command::Add { speaker: self.speaker(), partitions }, dice).await
    }

    async fn try_done(&self, command: Command, dice: &mut Dice) -> bool {
        for _ in 0..TRIES {
            let transactions::Answer::Done(error) = ask(self.client, command.clone(), dice).await else { panic!() };
            match error {
                ErrorCode::None => return true,
                error if passes(error) => clock::sleep(Duration::from_millis(1 + dice.below(10) as u64)).await,
                other => panic!("{}: {other:?} for {command:?}", name_of(self.at)),
            }
        }
        false
    }

    fn send(
        &self,
        number: usize,
        partition: i32,
        protocol: Protocol,
        shard: usize,
        dice: &mut Dice,
    ) -> (usize, LocalFuture<Answer>) {
        let key = PartitionKey { topic: self.ledger, partition };
        let (batch, bytes, sequence) = {
            let world = &mut *self.client.world.borrow_mut();
            world.operate();
            world.next_stamp += 1;
            let (stamp, records) = (world.next_stamp, 1 + dice.below(2) as i32);
            let payer = &mut world.ledger.payers[self.at];
            let sequence = payer.next_sequence(partition, records);
            let (id, epoch) = self.identity;
            let mut builder =
                BatchBuilder::new().producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence)).transactional();
            for _ in 0..records {
                builder = builder.value(STAMP + stamp, &vec![b'$'; 1 + dice.below(400)]);
            }
            (payer.write(number, Paid { partition, stamp, offset: None }), builder.build().freeze(), sequence)
        };
        let enlists = if protocol == Protocol::Classic { Enlists::Abortable } else { Enlists::Adds };
        let question = Question { speaker: self.speaker(), base_sequence: Sequence(sequence), protocol: enlists };
        let item = ProduceItem { key, checked: Ok(checked(bytes)), entry: Some(Entry::Ask(Box::new(question))) };
        let level = [AckLevel::Durable, AckLevel::Written][usize::from(dice.below(8) == 0)];
        let shard = self.client.cluster.shard(shard);
        (batch, shard.ask(shard.owner(key), Ask::Produce(vec![item], level)))
    }

    /// An offset that counts if the transaction is committed.
    async fn commit_offset(&self, number: usize, protocol: Protocol, dice: &mut Dice) -> bool {
        let group = group_of(self.at);
        let shard = self.client.cluster.shard(dice.below(8)).clone();
        let Ok(partition) = shard.group_partition(&group).await else { return false };
        if protocol == Protocol::Classic {
            let partitions = vec![TopicPartition { topic: "__consumer_offsets".into(), partition }];
            if !self.try_done(Command::Add { speaker: self.speaker(), partitions }, dice).await {
                return false;
            }
        }
        let offset = self.client.world.borrow_mut().ledger.payers[self.at].offset_of(number);
        let offsets = vec![groups::OffsetToCommit {
            topic: ANCHOR.to_owned(),
            topic_id: self.anchor,
            partition: 0,
            offset: Offset(offset),
            leader_epoch: -1,
            metadata: String::new(),
        }];
        let who =
            groups::Membership { group: group.clone(), generation: -1, member_id: String::new(), instance_id: None };
        let enlists = if protocol == Protocol::Classic { Enlists::Abortable } else { Enlists::Adds };
        let transaction = Some(groups::Transaction { speaker: self.speaker(), protocol: enlists, entry: None });
        let commit = groups::Commit { who, retention_ms: None, offsets, transaction };
        for _ in 0..TRIES {
            self.client.world.borrow_mut().operate();
            let (shard, group, commit) = (shard.clone(), group.clone(), commit.clone());
            let asked = async move { shard.ask_group(&group, groups::Command::Commit(commit)).await };
            let groups::Answer::Committed(codes) = in_time("an offset in a transaction", asked).await else { panic!() };
            match codes[0] {
                ErrorCode::None => return true,
                error if passes(error) => clock::sleep(Duration::from_millis(1 + dice.below(10) as u64)).await,
                other => panic!("{}: {other:?} for an offset", name_of(self.at)),
            }
        }
        false
    }

    async fn end(&mut self, number: usize, outcome: Outcome, protocol: Protocol, dice: &mut Dice) {
        if outcome == Outcome::Commit {
            self.client.world.borrow_mut().ledger.payers[self.at].settle(number, Fate::Unknown);
        }
        let command = Command::End { speaker: self.speaker(), outcome, protocol };
        for _ in 0..TRIES {
            let transactions::Answer::Producer(answer) = ask(self.client, command.clone(), dice).await else {
                panic!()
            };
            match answer {
                Ok((id, epoch)) => {
                    let world = &mut *self.client.world.borrow_mut();
                    let payer = &mut world.ledger.payers[self.at];
                    payer.settle(number, if outcome == Outcome::Commit { Fate::Committed } else { Fate::Aborted });
                    payer.go_on_as(id.0, epoch.0);
                    world.one(if outcome == Outcome::Commit {
                        "transactions committed"
                    } else {
                        "transactions aborted"
                    });
                    return;
                }
                // Nothing of it has come to a coordinator.
                Err(ErrorCode::InvalidTxnState) if outcome == Outcome::Abort => break,
                Err(error) if passes(error) => clock::sleep(Duration::from_millis(1 + dice.below(20) as u64)).await,
                Err(other) => panic!("{}: {other:?} at the end of transaction {number}", name_of(self.at)),
            }
        }
        self.client.world.borrow_mut().ledger.payers[self.at].identity = None;
    }

    /// The one before goes on, and must be refused everything.
    async fn be_a_zombie(&self, before: Speaker, protocol: Protocol, dice: &mut Dice) {
        let command = Command::End { speaker: before, outcome: Outcome::Commit, protocol };
        let transactions::Answer::Producer(answer) = ask(self.client, command, dice).await else { panic!() };
        assert!(answer.is_err(), "{}: a zombie has committed", name_of(self.at));
        self.client.world.borrow_mut().one("zombies that were refused");
    }
}

fn checked(bytes: Bytes) -> CheckedBatch {
    CheckedBatch { header: BatchHeader::read(&bytes).unwrap(), bytes, log_append_time_ms: -1 }
}

/// The offset that a payer's group has; its coordinator serves.
pub async fn kept_offset(client: &Client, at: usize, dice: &mut Dice) -> i64 {
    let topic = groups::TopicWanted { topic: ANCHOR.to_owned(), topic_id: TopicId::ZERO, partitions: vec![0] };
    let group = group_of(at);
    let wanted =
        groups::OffsetsWanted { group: group.clone(), member: None, topics: Some(vec![topic]), require_stable: true };
    for _ in 0..PATIENCE {
        let (shard, name) = (client.cluster.shard(dice.below(8)).clone(), group.clone());
        let command = groups::Command::Offsets(wanted.clone());
        let asked = async move { shard.ask_group(&name, command).await };
        let groups::Answer::Offsets(kept) = in_time("a coordinator", asked).await else { panic!() };
        match kept.error {
            ErrorCode::None => {
                let found = &kept.topics[0].1[0];
                assert!(found.error.is_none(), "{group}: {:?} although no transaction is open", found.error);
                return found.offset.0;
            }
            error if passes(error) => clock::sleep(Duration::from_millis(1)).await,
            other => panic!("{group}: {other:?}"),
        }
    }
    panic!("{group} loads for ever")
}

/// What stands where, by partition: (first offset, stamp) of each batch that a reader of what is committed sees.
pub type Visible = BTreeMap<i32, Vec<(i64, i64)>>;
