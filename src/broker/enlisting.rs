//! Batches that may begin their producer's transaction in a partition wait here until its coordinator has said yes.
//!
//! Batches of the same producer and partition wait behind the first, in the order in which they came; everything else goes
//! on. A coordinator is asked at once for all partitions of a request that are here (docs/adr/0015-transactions.md).

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::messages::{PartitionKey, ProduceItem};
use super::partition::Partition;
use super::produce::{NOT_ENLISTED, Waiting, not_enlisted};
use super::shard::Shard;
use crate::ids::ProducerId;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::runtime::signal::{Receiver, Sender, once};
use crate::state::enlisting::{Entry, Guard, Protocol, Question};
use crate::state::producers::Enlisted;
use crate::state::transactions::messages::Speaker;
use crate::wire::error_code::ErrorCode;

/// Which producer's batches wait for which partition.
pub(super) type Parking = (PartitionKey, ProducerId);

struct Parked<D: Disk> {
    item: ProduceItem,
    question: Question,
    sender: Sender<Waiting<D>>,
}

/// See the module. An entry is there as long as its first batch is asked for.
pub(super) struct ParkedBatches<D: Disk>(RefCell<BTreeMap<Parking, VecDeque<Parked<D>>>>);

impl<D: Disk> Default for ParkedBatches<D> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<D: Disk> Partition<D> {
    /// What is known of a batch that may begin a transaction here.
    pub(super) fn enlisted(&self, id: ProducerId, entry: &Entry) -> Enlisted {
        match entry {
            Entry::Ask(_) => NOT_ENLISTED,
            Entry::Unasked => Enlisted { holds: true, ..NOT_ENLISTED },
            Entry::Asked { guard, protocol } => {
                let lowest = self.enlistments.borrow().lowest(id, *guard);
                Enlisted { holds: lowest.is_some(), lowest, adds: *protocol == Protocol::Adds }
            }
        }
    }

    fn is_open_for(&self, speaker: &Speaker) -> bool {
        self.producers.borrow().is_open(speaker.producer_id, speaker.epoch)
    }

    fn begin_enlisting(&self, question: &Question) -> Guard {
        let Speaker { producer_id, epoch, .. } = question.speaker;
        self.enlistments.borrow_mut().begin(producer_id, epoch, question.base_sequence)
    }
}

impl<D: Disk> Shard<D> {
    /// Asks the coordinator whether a batch of somebody on this shard may begin its producer's transaction in a partition
    /// that is here; the batch is staged with what this gives.
    ///
    /// # Errors
    /// What the coordinator has answered; 3 for a partition that is not here.
    pub(super) async fn enter(self: &Rc<Self>, key: PartitionKey, question: &Question) -> Result<Entry, ErrorCode> {
        let partition = self.find_partition(key)?;
        let protocol = question.protocol;
        if partition.is_open_for(&question.speaker) {
            return Ok(Entry::Asked { guard: partition.begin_enlisting(question), protocol });
        }
        match self.ask_coordinator_of(question, &[partition]).await {
            (ErrorCode::None, guards) => {
                let guard = guards.first().copied().ok_or(ErrorCode::UnknownServerError)?;
                Ok(Entry::Asked { guard, protocol })
            }
            (error, _) => Err(error),
        }
    }

    /// Whether a batch must wait; where it is the first of its kind, the coordinator is to be asked.
    pub(super) fn must_wait(&self, item: &ProduceItem, to_ask: &mut Vec<Parking>) -> bool {
        let Some(Entry::Ask(question)) = &item.entry else { return false };
        let parking = (item.key, question.speaker.producer_id);
        if self.parked.0.borrow().contains_key(&parking) {
            return true;
        }
        let is_new = self.partition(item.key).is_some_and(|partition| !partition.is_open_for(&question.speaker));
        if is_new {
            to_ask.push(parking);
        }
        is_new
    }

    /// Has a batch wait that must.
    pub(super) fn park(&self, item: ProduceItem) -> Receiver<Waiting<D>> {
        let (sender, receiver) = once();
        if let Some(Entry::Ask(question)) = &item.entry {
            let question = Question::clone(question);
            let parking = (item.key, question.speaker.producer_id);
            let parked = Parked { item, question, sender };
            self.parked.0.borrow_mut().entry(parking).or_default().push_back(parked);
        }
        receiver
    }

    /// Asks for those that were parked as the first of their kind: the batches of one request.
    pub(super) fn ask_for_parked(self: &Rc<Self>, to_ask: Vec<Parking>) {
        if to_ask.is_empty() {
            return;
        }
        let (shard, work) = (Rc::clone(self), self.begin_work());
        host::spawn(Queue::Requests, async move {
            shard.enlist_parked(to_ask).await;
            drop(work);
        });
    }

    async fn enlist_parked(self: &Rc<Self>, mut to_ask: Vec<Parking>) {
        // Partitions that went meanwhile are told so when their batches are staged.
        to_ask.retain(|(key, id)| self.partition(*key).is_some() || !self.let_all_go((*key, *id)));
        let Some(question) = to_ask.first().and_then(|parking| self.first_question(*parking)) else { return };
        let partitions: Vec<_> = to_ask.iter().filter_map(|(key, _)| self.partition(*key)).collect();
        let (code, guards) = self.ask_coordinator_of(&question, &partitions).await;
        // A no may concern only some of the partitions that were to be in the transaction.
        let is_for_all = code.is_none() || question.protocol == Protocol::Adds || partitions.len() == 1;
        for ((parking, guard), partition) in to_ask.into_iter().zip(guards).zip(partitions) {
            if is_for_all {
                self.settle_parked(parking, code, guard).await;
            } else {
                let (code, guards) = self.ask_coordinator_of(&question, &[partition]).await;
                self.settle_parked(parking, code, guards.first().copied().unwrap_or(guard)).await;
            }
        }
    }

    /// Asks the coordinator, which lets an addition wait while the transaction before is being ended; the marker of that
    /// cancels guards that were begun ahead of it, and then it is asked again.
    async fn ask_coordinator_of(
        self: &Rc<Self>,
        question: &Question,
        partitions: &[Rc<Partition<D>>],
    ) -> (ErrorCode, Vec<Guard>) {
        let enlisting = question.protocol.enlisting();
        loop {
            let guards: Vec<_> = partitions.iter().map(|partition| partition.begin_enlisting(question)).collect();
            let names = partitions.iter().map(|partition| partition.name.clone()).collect();
            let code = self.enlist(question.speaker.clone(), names, enlisting).await;
            let holds = |(partition, guard): (&Rc<Partition<D>>, &Guard)| {
                partition.enlistments.borrow().lowest(question.speaker.producer_id, *guard).is_some()
            };
            if !code.is_none() || partitions.iter().zip(&guards).all(holds) || self.is_stopping() {
                return (code, guards);
            }
        }
    }

    fn first_question(&self, parking: Parking) -> Option<Question> {
        let parked = self.parked.0.borrow();
        parked.get(&parking)?.front().map(|first| first.question.clone())
    }

    /// The first batch has its answer; those behind it are staged as long as they belong to what is open, and otherwise the
    /// coordinator is asked for them too.
    async fn settle_parked(self: &Rc<Self>, parking: Parking, code: ErrorCode, guard: Guard) {
        let mut verdict = Some((code, guard));
        while let Some(mut next) = self.next_parked(parking) {
            let is_open =
                || self.partition(parking.0).is_none_or(|partition| partition.is_open_for(&next.question.speaker));
            let protocol = next.question.protocol;
            match verdict.take() {
                Some((ErrorCode::None, guard)) => next.item.entry = Some(Entry::Asked { guard, protocol }),
                Some((error, _)) => {
                    next.sender.send(not_enlisted(protocol.told(error)));
                    continue;
                }
                None if is_open() => {}
                None => {
                    self.put_back(parking, next);
                    return self.ask_for_parked(vec![parking]);
                }
            }
            self.wait_for_room_for(&next.item).await;
            next.sender.send(self.stage_item(next.item));
        }
    }

    async fn wait_for_room_for(&self, item: &ProduceItem) {
        let bytes = item.checked.as_ref().map_or(0, |batch| batch.bytes.len());
        if bytes <= self.log().record_bytes_max() && !self.log_is_pinned.get() {
            // A log that has failed has no room ever again; staging says so.
            let _has_room = self.log().wait_for_room(bytes).await;
        }
    }

    /// `None` at the end: from then on nobody waits.
    fn next_parked(&self, parking: Parking) -> Option<Parked<D>> {
        let mut parked = self.parked.0.borrow_mut();
        let next = parked.get_mut(&parking)?.pop_front();
        if next.is_none() {
            parked.remove(&parking);
        }
        next
    }

    fn put_back(&self, parking: Parking, first: Parked<D>) {
        self.parked.0.borrow_mut().entry(parking).or_default().push_front(first);
    }

    /// Their partition is not here any more: staging tells them; true when that is done.
    fn let_all_go(self: &Rc<Self>, parking: Parking) -> bool {
        while let Some(next) = self.next_parked(parking) {
            next.sender.send(self.stage_item(next.item));
        }
        true
    }
}
