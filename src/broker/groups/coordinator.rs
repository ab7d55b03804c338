//! One coordinator: the groups of a partition, who waits for an answer, and what is on its way to the log.
//!
//! ```text
//! Loading ──read──► Serving ──an append failed──► Doubtful ──log and memory agree──► Serving
//!    │                 │                             └─────────they may differ─────► Loading
//!    └──unreadable──► Failed                  any ──topic deleted, stop──► Closed
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::broker::partition::Partition;
use crate::broker::shard::LocalFuture;
use crate::ids::{IdMap, Offset};
use crate::runtime::disk::Disk;
use crate::runtime::signal::Sender;
use crate::state::groups::messages::{Answer, Command};
use crate::state::groups::{AppendId, GroupSettings, Groups, Ticket};
use crate::wire::error_code::ErrorCode;

/// Where a coordinator is in its life; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Loading,
    Serving,
    Doubtful,
    Failed,
    Closed,
}

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

/// A log is worth writing anew when it has grown by so many times what is kept.
const REWRITE_FACTOR: u64 = 4;

/// A batch that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::broker) struct Appended {
    /// Offset of its first record.
    pub(in crate::broker) base: Offset,
    /// The offset behind its last.
    pub(in crate::broker) end: Offset,
    /// Its size.
    pub(in crate::broker) bytes: u64,
}

/// A batch on its way to the log; ready when it is durable.
pub(in crate::broker) type OnItsWay = LocalFuture<Result<Appended, ErrorCode>>;

/// An append of the groups on its way to the log.
pub(super) struct Pending {
    pub(super) id: AppendId,
    pub(super) batch: OnItsWay,
}

/// What somebody waits for: an answer, or the code with which it is refused.
pub(super) type Outcome = Result<Answer, ErrorCode>;

struct Waiting {
    asked: Asked,
    sender: Sender<Outcome>,
}

/// See the module.
pub struct Coordinator<D: Disk> {
    pub(super) partition: Rc<Partition<D>>,
    pub(super) settings: GroupSettings,
    pub(super) groups: RefCell<Groups>,
    phase: Cell<Phase>,
    waiting: RefCell<IdMap<Ticket, Waiting>>,
    tickets: Cell<u64>,
    /// Those who wait for the disk, by when they are told not to; answered ones are still in it.
    impatient: RefCell<VecDeque<(u64, Ticket)>>,
    appends: RefCell<VecDeque<Pending>>,
    pub(super) is_settling: Cell<bool>,
    /// The end of what the groups know of the log.
    applied_end: Cell<Offset>,
    /// The log has records that the groups do not know.
    has_missed: Cell<bool>,
    /// Bytes that the log has grown by since all that is kept was written anew, and how many are enough.
    grown_bytes: Cell<u64>,
    grown_bytes_max: Cell<u64>,
}

impl<D: Disk> Coordinator<D> {
    pub(super) fn new(partition: Rc<Partition<D>>, settings: GroupSettings, grown_bytes_max: u64) -> Self {
        Self {
            partition,
            groups: RefCell::new(Groups::new(settings.clone())),
            settings,
            phase: Cell::new(Phase::Loading),
            waiting: RefCell::default(),
            tickets: Cell::default(),
            impatient: RefCell::default(),
            appends: RefCell::default(),
            is_settling: Cell::default(),
            applied_end: Cell::default(),
            has_missed: Cell::default(),
            grown_bytes: Cell::default(),
            grown_bytes_max: Cell::new(grown_bytes_max),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Goes on to `phase`, unless this is the end.
    pub(super) fn enter(&self, phase: Phase) {
        if self.phase.get() != Phase::Closed {
            self.phase.set(phase);
        }
    }

    pub(super) fn close(&self) {
        self.phase.set(Phase::Closed);
    }

    /// What clients are told while it does not serve: they ask again (14), or look for the coordinator again (16).
    pub(super) fn serves(&self) -> Result<(), ErrorCode> {
        match self.phase.get() {
            Phase::Serving => Ok(()),
            Phase::Loading | Phase::Doubtful => Err(ErrorCode::CoordinatorLoadInProgress),
            Phase::Failed | Phase::Closed => Err(ErrorCode::NotCoordinator),
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
        let groups = if self.serves().is_ok() { self.groups.borrow().next_deadline_ms() } else { None };
        [impatient, groups].into_iter().flatten().min()
    }

    pub(super) fn queue(&self, pending: Pending) {
        self.appends.borrow_mut().push_back(pending);
    }

    pub(super) fn next_append(&self) -> Option<Pending> {
        self.appends.borrow_mut().pop_front()
    }

    /// Everything below `end` is known to the groups, and they serve.
    pub(super) fn loaded(&self, groups: Groups, end: Offset, bytes: u64) {
        *self.groups.borrow_mut() = groups;
        self.grown_bytes.set(bytes);
        self.applied_end.set(end);
        self.has_missed.set(false);
        self.enter(Phase::Serving);
    }

    /// A batch is durable and about to be applied.
    pub(super) fn note_appended(&self, appended: Appended) {
        let Appended { base, end, bytes } = appended;
        self.grown_bytes.set(self.grown_bytes.get().saturating_add(bytes));
        if base != self.applied_end.replace(end) {
            self.has_missed.set(true);
            self.doubt();
        }
    }

    /// An append failed: whether its records are in the log is seen when everything behind it has settled.
    pub(super) fn doubt(&self) {
        if self.phase.get() == Phase::Serving {
            self.phase.set(Phase::Doubtful);
        }
    }

    /// True when so much was appended that it is worth writing anew what is kept.
    pub(super) fn has_grown(&self) -> bool {
        self.grown_bytes.get() > self.grown_bytes_max.get()
    }

    /// All that is kept was written anew, which took `bytes`; the next time comes at a multiple of it.
    pub(super) fn note_rewritten(&self, bytes: u64, least: u64) {
        self.grown_bytes.set(0);
        self.grown_bytes_max.set(least.max(bytes.saturating_mul(REWRITE_FACTOR)));
    }

    /// True when the log holds nothing that the groups do not know.
    pub(super) fn agrees_with_log(&self) -> bool {
        !self.has_missed.get() && self.partition.log.borrow().end() == self.applied_end.get()
    }
}
