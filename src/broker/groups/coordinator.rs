//! One coordinator: the groups of a partition, who waits for an answer, and what is on its way to the log.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::broker::own_log::{OnItsWay, OwnLog};
use crate::broker::partition::Partition;
use crate::ids::{IdMap, Offset};
use crate::runtime::disk::Disk;
use crate::runtime::signal::Sender;
use crate::state::groups::messages::{Answer, Command};
use crate::state::groups::{AppendId, GroupSettings, Groups, Ticket};
use crate::wire::error_code::ErrorCode;

/// What an answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// For other members: a round, or a leader.
    Others,
    /// For the disk alone.
    Disk,
}

impl Asked {
    pub(super) fn of(command: &Command) -> Self {
        match command {
            Command::Join(_) | Command::Sync(_) => Self::Others,
            _ => Self::Disk,
        }
    }
}

/// An append of the groups on its way to the log.
pub(super) struct Pending {
    pub(super) id: AppendId,
    pub(super) batch: OnItsWay,
    /// Who wants to know when the groups know of it.
    pub(super) applied: Option<Sender<ErrorCode>>,
}

/// What somebody waits for: an answer, or the code with which it is refused.
pub(super) type Outcome = Result<Answer, ErrorCode>;

struct Waiting {
    asked: Asked,
    sender: Sender<Outcome>,
}

/// See the module.
pub struct Coordinator<D: Disk> {
    pub(super) log: OwnLog<D>,
    pub(super) settings: GroupSettings,
    pub(super) groups: RefCell<Groups>,
    waiting: RefCell<IdMap<Ticket, Waiting>>,
    tickets: Cell<u64>,
    /// Those who wait for the disk, by when they are told not to; answered ones are still in it.
    impatient: RefCell<VecDeque<(u64, Ticket)>>,
    appends: RefCell<VecDeque<Pending>>,
    pub(super) is_settling: Cell<bool>,
}

impl<D: Disk> Coordinator<D> {
    pub(super) fn new(partition: Rc<Partition<D>>, settings: GroupSettings) -> Self {
        Self {
            log: OwnLog::new(partition),
            groups: RefCell::new(Groups::new(settings.clone())),
            settings,
            waiting: RefCell::default(),
            tickets: Cell::default(),
            impatient: RefCell::default(),
            appends: RefCell::default(),
            is_settling: Cell::default(),
        }
    }

    pub(super) fn next_ticket(&self) -> Ticket {
        self.tickets.set(self.tickets.get() + 1);
        Ticket(self.tickets.get())
    }

    pub(super) fn wait(&self, ticket: Ticket, asked: Asked, sender: Sender<Outcome>, deadline_ms: u64) {
        self.waiting.borrow_mut().insert(ticket, Waiting { asked, sender });
        if asked == Asked::Disk {
            self.impatient.borrow_mut().push_back((deadline_ms, ticket));
        }
    }

    /// For some nobody waits: a topic's deletion, and those who were refused meanwhile.
    pub(super) fn answer(&self, ticket: Ticket, answer: Answer) {
        self.settle(ticket, Ok(answer));
    }

    fn settle(&self, ticket: Ticket, outcome: Outcome) {
        let waiting = self.waiting.borrow_mut().remove(&ticket);
        if let Some(waiting) = waiting {
            waiting.sender.send(outcome);
        }
    }

    /// Whoever waits looks for the coordinator again.
    pub(super) fn refuse_all(&self) {
        for waiting in std::mem::take(&mut *self.waiting.borrow_mut()).into_values() {
            waiting.sender.send(Err(ErrorCode::NotCoordinator));
        }
    }

    /// Those whose answer may take minutes, because other members have to come first.
    pub(super) fn refuse_those_who_wait_for_others(&self) {
        let for_others = |waiting: &Waiting| waiting.asked == Asked::Others;
        let tickets: Vec<Ticket> = self
            .waiting
            .borrow()
            .iter()
            .filter(|(_, waiting)| for_others(waiting))
            .map(|(ticket, _)| *ticket)
            .collect();
        tickets.into_iter().for_each(|ticket| self.settle(ticket, Err(ErrorCode::NotCoordinator)));
    }

    /// Tells those who have waited for the disk for too long.
    ///
    /// Source: apache/kafka `GroupCoordinatorService`: a write that takes longer than `offsets.commit.timeout.ms`.
    pub(super) fn refuse_impatient(&self, now_ms: u64) {
        loop {
            let due = self.impatient.borrow_mut().pop_front_if(|(deadline_ms, _)| *deadline_ms <= now_ms);
            let Some((_, ticket)) = due else { return };
            self.settle(ticket, Err(ErrorCode::CoordinatorNotAvailable));
        }
    }

    /// When [`Self::refuse_impatient`] or the groups themselves have something to do.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        let impatient = self.impatient.borrow().front().map(|(deadline_ms, _)| *deadline_ms);
        let groups = if self.log.serves().is_ok() { self.groups.borrow().next_deadline_ms() } else { None };
        [impatient, groups].into_iter().flatten().min()
    }

    pub(super) fn queue(&self, pending: Pending) {
        self.appends.borrow_mut().push_back(pending);
    }

    pub(super) fn next_append(&self) -> Option<Pending> {
        self.appends.borrow_mut().pop_front()
    }

    /// Everything below `end` is known to the groups, and they serve.
    pub(super) fn loaded(&self, groups: Groups, end: Offset) {
        *self.groups.borrow_mut() = groups;
        self.log.loaded(end);
    }
}
