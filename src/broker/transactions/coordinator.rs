//! One coordinator: the transactional ids of a partition, who waits for an answer, and what is on its way to the log.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::broker::own_log::{OnItsWay, OwnLog};
use crate::broker::partition::Partition;
use crate::ids::{IdMap, Offset, TopicPartition};
use crate::runtime::disk::Disk;
use crate::runtime::signal::Sender;
use crate::state::transactions::messages::Answer;
use crate::state::transactions::{AppendId, Ending, Ticket, TransactionSettings, Transactions};
use crate::wire::error_code::ErrorCode;

/// A record on its way to the log.
pub(super) struct Pending {
    pub(super) id: AppendId,
    pub(super) batch: OnItsWay,
}

/// What somebody waits for: an answer, or the code with which it is refused.
pub(super) type Outcome = Result<Answer, ErrorCode>;

/// Partitions that have got their marker.
pub(super) type Marked = (Rc<Ending>, Vec<TopicPartition>);

/// See the module.
pub struct Coordinator<D: Disk> {
    pub(super) log: OwnLog<D>,
    pub(super) transactions: RefCell<Transactions>,
    waiting: RefCell<IdMap<Ticket, Sender<Outcome>>>,
    tickets: Cell<u64>,
    appends: RefCell<VecDeque<Pending>>,
    pub(super) is_settling: Cell<bool>,
    /// How often it was loaded: what was begun before the last time is none of its business.
    life: Cell<u64>,
    /// Markers that were written while nothing new could be appended.
    held: RefCell<Vec<Marked>>,
}

impl<D: Disk> Coordinator<D> {
    pub(super) fn new(partition: Rc<Partition<D>>, settings: TransactionSettings) -> Self {
        Self {
            log: OwnLog::new(partition),
            transactions: RefCell::new(Transactions::new(settings)),
            waiting: RefCell::default(),
            tickets: Cell::default(),
            appends: RefCell::default(),
            is_settling: Cell::default(),
            life: Cell::default(),
            held: RefCell::default(),
        }
    }

    pub(super) fn life(&self) -> u64 {
        self.life.get()
    }

    pub(super) fn next_ticket(&self) -> Ticket {
        self.tickets.set(self.tickets.get() + 1);
        Ticket(self.tickets.get())
    }

    pub(super) fn wait(&self, ticket: Ticket, sender: Sender<Outcome>) {
        self.waiting.borrow_mut().insert(ticket, sender);
    }

    /// For some nobody waits: time-outs, and those who were refused meanwhile.
    pub(super) fn answer(&self, ticket: Ticket, outcome: Outcome) {
        let waiting = self.waiting.borrow_mut().remove(&ticket);
        if let Some(sender) = waiting {
            sender.send(outcome);
        }
    }

    /// Whoever waits looks for the coordinator again.
    pub(super) fn refuse_all(&self) {
        for sender in std::mem::take(&mut *self.waiting.borrow_mut()).into_values() {
            sender.send(Err(ErrorCode::NotCoordinator));
        }
    }

    pub(super) fn queue(&self, pending: Pending) {
        self.appends.borrow_mut().push_back(pending);
    }

    pub(super) fn next_append(&self) -> Option<Pending> {
        self.appends.borrow_mut().pop_front()
    }

    /// Keeps what was marked until something new may be appended.
    pub(super) fn hold(&self, marked: Marked) {
        self.held.borrow_mut().push(marked);
    }

    pub(super) fn take_held(&self) -> Vec<Marked> {
        self.held.take()
    }

    /// Everything below `end` is known, and it serves.
    pub(super) fn loaded(&self, transactions: Transactions, end: Offset) {
        *self.transactions.borrow_mut() = transactions;
        self.life.set(self.life.get() + 1);
        self.held.borrow_mut().clear();
        self.log.loaded(end);
    }
}
