//! Transactions: one coordinator for each partition of `__transaction_state`, on the core that owns it.
//!
//! Decide → append → apply: [`Transactions`](crate::state::transactions::Transactions) decides, what it wants to have in the
//! log goes the way of every produced batch, and once that is durable it applies it, answers, and has markers sent. A
//! restart is a replay.
//!
//! Source: docs/adr/0015-transactions.md.

pub mod append;
pub mod coordinator;
pub mod endings;
pub mod load;
pub mod timer;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use self::coordinator::Coordinator;
use super::catalog::settings::TRANSACTIONS_TOPIC;
use super::catalog::{Catalog, Topic};
use super::groups::partition_of;
use super::messages::{Answer, Ask, PartitionKey};
use super::shard::{LocalFuture, Served, Shard};
use crate::ids::{IdMap, TopicId, TopicPartition};
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::runtime::signal::{Bell, once};
use crate::state::transactions::messages::{self as transactions, Enlisting, Speaker};
use crate::state::transactions::{Effects, Moment, PATIENCE_MS, Ticket};
use crate::wire::error_code::ErrorCode;

/// The coordinators of one shard.
pub struct TransactionHost<D: Disk> {
    coordinators: RefCell<IdMap<PartitionKey, Rc<Coordinator<D>>>>,
    /// The shard stops: the timer ends.
    stops: Bell,
}

impl<D: Disk> Default for TransactionHost<D> {
    fn default() -> Self {
        Self { coordinators: RefCell::default(), stops: Bell::default() }
    }
}

impl<D: Disk> TransactionHost<D> {
    fn all(&self) -> Vec<Rc<Coordinator<D>>> {
        self.coordinators.borrow().values().cloned().collect()
    }

    fn at(&self, key: PartitionKey) -> Option<Rc<Coordinator<D>>> {
        self.coordinators.borrow().get(&key).cloned()
    }
}

impl<D: Disk> Shard<D> {
    /// Makes the topic of transactional ids when it is not there yet; a client looks for its coordinator.
    ///
    /// # Errors
    /// 53 where transactions are switched off, 15 while the topic cannot be made.
    pub async fn find_transaction_coordinator(self: &Rc<Self>) -> Result<(), ErrorCode> {
        if !self.config().transactions.enable {
            return Err(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        self.own_topic(TRANSACTIONS_TOPIC).await.map(|_| ())
    }

    /// Asks the coordinator of a transactional id, wherever it is; 16 before anybody has looked for one, as in Kafka.
    pub fn ask_transaction(self: &Rc<Self>, command: transactions::Command) -> LocalFuture<transactions::Answer> {
        let refused = |error| -> LocalFuture<_> { Box::pin(std::future::ready(command.refused(error))) };
        if !self.config().transactions.enable {
            return refused(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        let Some(topic) = self.catalog().topic(TRANSACTIONS_TOPIC).cloned() else {
            return refused(ErrorCode::NotCoordinator);
        };
        let partition = partition_of(command.transactional_id().unwrap_or_default(), topic.partition_count());
        self.ask_transaction_coordinator(&topic, partition, command)
    }

    /// The transactional ids of all coordinators; an error while one of them is loading.
    pub async fn list_transactions(self: &Rc<Self>) -> Result<Vec<transactions::Listed>, ErrorCode> {
        let Some(topic) = self.catalog().topic(TRANSACTIONS_TOPIC).cloned() else { return Ok(Vec::new()) };
        let ask = |partition| self.ask_transaction_coordinator(&topic, partition, transactions::Command::List);
        let asked: Vec<_> = (0..topic.partition_count()).map(ask).collect();
        let mut all = Ok(Vec::new());
        for answer in asked {
            if let transactions::Answer::Listed(listed) = answer.await {
                all = all.and_then(|mut all: Vec<_>| listed.map(|listed| all.extend(listed)).map(|()| all));
            }
        }
        all
    }

    fn ask_transaction_coordinator(
        self: &Rc<Self>,
        topic: &Topic,
        partition: i32,
        command: transactions::Command,
    ) -> LocalFuture<transactions::Answer> {
        let owner = self.owner(PartitionKey { topic: topic.id, partition });
        let answer = self.ask(owner, Ask::Transaction { partition, command: Box::new(command) });
        Box::pin(async move {
            match answer.await {
                Answer::Transaction(answer) => *answer,
                _ => unreachable!("a coordinator answers as one"),
            }
        })
    }

    /// Asks the coordinator of a transactional id whether partitions are, or may come, into its transaction; durable there
    /// when this says none.
    pub(super) fn enlist(
        self: &Rc<Self>,
        speaker: Speaker,
        partitions: Vec<TopicPartition>,
        enlisting: Enlisting,
    ) -> LocalFuture<ErrorCode> {
        let answer = self.ask_transaction(transactions::Command::Enlist { speaker, partitions, enlisting });
        Box::pin(async move {
            match answer.await {
                transactions::Answer::Enlisted(error) => error,
                _ => ErrorCode::UnknownServerError,
            }
        })
    }

    /// Asks one of this shard's coordinators.
    pub(super) fn serve_transaction(self: &Rc<Self>, partition: i32, command: transactions::Command) -> Served {
        let coordinator = match self.transaction_coordinator(partition) {
            Ok(coordinator) => coordinator,
            Err(error) => return Served::Now(Answer::Transaction(Box::new(command.refused(error)))),
        };
        let refused = command.refused(ErrorCode::NotCoordinator);
        let ticket = coordinator.next_ticket();
        let mut effects = coordinator.transactions.borrow_mut().handle(moment(), ticket, command, None);
        let own = effects.answers.iter().position(|(of, _)| *of == ticket);
        let served = match own.map(|at| effects.answers.swap_remove(at).1) {
            Some(answer) => Served::Now(Answer::Transaction(Box::new(answer))),
            None => {
                let (sender, receiver) = once();
                coordinator.wait(ticket, sender);
                Served::Later(Box::pin(async move {
                    let answer = match receiver.await {
                        Some(Ok(answer)) => answer,
                        Some(Err(error)) => refused.turned(error),
                        None => refused,
                    };
                    Answer::Transaction(Box::new(answer))
                }))
            }
        };
        self.carry_out_transactions(&coordinator, effects);
        served
    }

    /// The coordinator of a partition that is here and serves.
    fn transaction_coordinator(&self, partition: i32) -> Result<Rc<Coordinator<D>>, ErrorCode> {
        let topic = self.catalog().topic(TRANSACTIONS_TOPIC).map(|topic| topic.id).ok_or(ErrorCode::NotCoordinator)?;
        let coordinator = self.transactions.at(PartitionKey { topic, partition }).ok_or(ErrorCode::NotCoordinator)?;
        coordinator.log.serves()?;
        Ok(coordinator)
    }

    /// Appends what is to be appended, hands the answers out, sends markers.
    fn carry_out_transactions(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, effects: Effects) {
        for append in effects.appends {
            self.append_transaction(coordinator, &append);
        }
        for (ticket, answer) in effects.answers {
            coordinator.answer(ticket, Ok(answer));
        }
        for ending in effects.endings {
            self.begin_ending(coordinator, ending);
        }
        let (shard, coordinator) = (Rc::clone(self), Rc::clone(coordinator));
        if let Some((ticket, command)) = effects.wants_id {
            host::spawn(Queue::Requests, async move { shard.ask_with_new_id(&coordinator, ticket, command).await });
        } else if let Some((ticket, name)) = effects.waits {
            host::spawn(Queue::Requests, async move {
                clock::sleep(Duration::from_millis(PATIENCE_MS)).await;
                let effects = coordinator.transactions.borrow_mut().give_up(&name, ticket);
                shard.carry_out_transactions(&coordinator, effects);
            });
        }
    }

    /// Asks once more, with a producer id that nobody has; if it is not needed any more, nobody will have it.
    async fn ask_with_new_id(
        self: &Rc<Self>,
        coordinator: &Rc<Coordinator<D>>,
        ticket: Ticket,
        command: transactions::Command,
    ) {
        let fresh = self.new_producer_id().await;
        match fresh.and_then(|id| coordinator.log.serves().map(|()| id)) {
            Ok(id) => {
                let effects = coordinator.transactions.borrow_mut().handle(moment(), ticket, command, Some(id));
                self.carry_out_transactions(coordinator, effects);
            }
            Err(error) => coordinator.answer(ticket, Err(error)),
        }
    }

    /// The topic appears or goes.
    pub(super) fn transactions_follow(self: &Rc<Self>, before: &Catalog, now: &Catalog) {
        let (old, new) = (before.topic(TRANSACTIONS_TOPIC), now.topic(TRANSACTIONS_TOPIC));
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.id != old.id)) {
            self.end_transaction_coordinators(old.id);
        }
        if let Some(new) = new {
            self.begin_transaction_coordinators(new);
        }
    }

    /// A coordinator for each partition of the topic that is here and has none yet.
    pub(super) fn begin_transaction_coordinators(self: &Rc<Self>, topic: &Topic) {
        let mut to_load = Vec::new();
        for partition in 0..topic.partition_count() {
            let key = PartitionKey { topic: topic.id, partition };
            let Some(log) = self.partition(key).filter(|_| self.transactions.at(key).is_none()) else { continue };
            let coordinator = Rc::new(Coordinator::new(log, self.transaction_settings()));
            self.transactions.coordinators.borrow_mut().insert(key, Rc::clone(&coordinator));
            to_load.push(coordinator);
        }
        self.load_transactions(to_load);
    }

    fn end_transaction_coordinators(&self, topic: TopicId) {
        for coordinator in self.transactions.all() {
            if coordinator.log.partition.key.topic == topic {
                self.transactions.coordinators.borrow_mut().remove(&coordinator.log.partition.key);
                coordinator.log.close();
                coordinator.refuse_all();
            }
        }
    }

    /// The shard stops: nothing new is taken, what is on its way to the disk is still answered.
    pub(super) fn stop_transactions(&self) {
        for coordinator in self.transactions.all() {
            coordinator.log.close();
        }
        self.transactions.stops.ring();
    }

    /// Begins to serve: the coordinators of what is there, and their timer.
    pub(super) fn start_transactions(self: &Rc<Self>) {
        let topic: Option<Arc<Topic>> = self.catalog().topic(TRANSACTIONS_TOPIC).cloned();
        if let Some(topic) = topic {
            self.begin_transaction_coordinators(&topic);
        }
        host::spawn(Queue::Requests, Rc::clone(self).run_transaction_timer());
    }
}

fn moment() -> Moment {
    Moment { wall_ms: clock::now_ms(), uptime_ms: clock::uptime_ms() }
}
