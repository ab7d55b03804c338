//! One shard: the partitions of one core, its commit log, and the loop that empties its lane.
//!
//! [`Shard::serve`] does the part of an [`Ask`] that must keep the order before it returns; what waits comes as a
//! future. Work of this shard for itself takes the same way without the lane.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;

use super::catalog::settings::OFFSETS_TOPIC;
use super::catalog::{Catalog, Command, ItemResult, Outcome};
use super::catalog_host::CatalogHost;
use super::checkpointer::Checkpointer;
use super::cleaner_floor::RestsUntil;
use super::enlisting::ParkedBatches;
use super::groups::GroupHost;
use super::messages::{AckLevel, Answer, Ask, Message, PartitionKey, ProduceItem};
use super::partition::Partition;
use super::placement;
use super::producer_ids::{self, ProducerIds};
use super::producer_limits::ProducerLimits;
use super::recovery::Progress;
use super::removal::Removal;
use super::transactions::TransactionHost;
use super::waiters::{Waiters, Watcher};
use crate::config::Config;
use crate::ids::{IdMap, LogId, Offset, ProducerId, ShardId, TopicPartition};
use crate::log::commit_log::CommitLog;
use crate::log::layout::Layout;
use crate::runtime::accepted::Accepted;
use crate::runtime::budget::Budget;
use crate::runtime::disk::{Disk, Space};
use crate::runtime::host::{self, Queue};
use crate::runtime::lane::{LaneReceiver, LaneSenders, Outbox};
use crate::runtime::replies::Replies;
use crate::runtime::signal::{Bell, Receiver, Sender, once};
use crate::state::fetch_sessions::{self, FetchSessions, SessionLimits};
use crate::wire::error_code::ErrorCode;
use crate::wire::unpack::Unpacker;

/// Memory of the fetch sessions of all shards: 300,000 partitions.
const FETCH_SESSION_BYTES: usize = 64 << 20;
/// Messages taken from the lane before other tasks run.
const LANE_BATCH: usize = 256;

/// A future of this shard.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Ends the connections of a shard.
pub type DrainHook = Box<dyn Fn() -> LocalFuture<()>>;

/// What [`Shard::serve`] came to.
pub enum Served {
    /// The answer.
    Now(Answer),
    /// The answer will come.
    Later(LocalFuture<Answer>),
}

/// A batch that is on its way to the disk.
pub(super) struct Undurable<D: Disk> {
    pub(super) group: u64,
    pub(super) partition: Rc<Partition<D>>,
    pub(super) end: Offset,
}

/// A produce request that waits for room: its batches, what it waits for, and where the answer goes.
pub(super) type Stalled = (Vec<ProduceItem>, AckLevel, Sender<Answer>);

/// A batch of the tail cache, in the order in which they leave it.
pub(super) struct InTail<D: Disk> {
    pub(super) partition: Rc<Partition<D>>,
    pub(super) base: Offset,
    pub(super) bytes: usize,
}

/// What a shard is made of.
pub struct ShardParts<D: Disk> {
    /// Its number.
    pub id: ShardId,
    /// Its way to the disk.
    pub disk: D,
    /// The settings.
    pub config: Arc<Config>,
    /// The host and port that clients are told.
    pub advertised: (String, i32),
    /// The data folder.
    pub layout: Layout,
    /// The lanes of all shards.
    pub lanes: LaneSenders<Message>,
    /// Grows while a stop gets on.
    pub progress: Arc<AtomicU64>,
}

/// See the module.
pub struct Shard<D: Disk> {
    pub(super) id: ShardId,
    pub(super) disk: D,
    pub(super) layout: Layout,
    pub(super) partitions: RefCell<IdMap<PartitionKey, Rc<Partition<D>>>>,
    pub(super) waiters: Waiters,
    pub(super) commit_log: OnceCell<CommitLog<D>>,
    pub(super) undurable: RefCell<VecDeque<Undurable<D>>>,
    pub(super) unwritten: RefCell<Vec<Rc<Partition<D>>>>,
    /// Partitions whose writes found no room, each once.
    pub(super) stuck: RefCell<Vec<Rc<Partition<D>>>>,
    pub(super) arena: RefCell<BytesMut>,
    pub(super) tail_order: RefCell<VecDeque<InTail<D>>>,
    pub(super) tail_bytes: Cell<usize>,
    pub(super) tick: Cell<u64>,
    pub(super) disk_is_full: Cell<bool>,
    pub(super) cleaning_rests_until: RestsUntil,
    pub(super) watches: RefCell<IdMap<(ShardId, u64), Rc<Watcher>>>,
    pub(super) producer_ids: ProducerIds,
    pub(super) producer_limits: ProducerLimits,
    fetch_sessions: RefCell<FetchSessions>,
    pub(super) groups: GroupHost<D>,
    pub(super) transactions: TransactionHost<D>,
    /// Batches that wait for the coordinators of their producers.
    pub(super) parked: ParkedBatches<D>,
    answers: Rc<Budget>,
    unpacker: RefCell<Unpacker>,
    watch_number: Cell<u64>,
    pub(super) checkpointer: OnceCell<Checkpointer>,
    /// Produce requests that wait for room in the commit log, in order.
    pub(super) stalled: RefCell<VecDeque<Stalled>>,
    pub(super) stalled_bytes: Cell<usize>,
    /// A failed partition needs all of the commit log: when that is full, new batches are refused.
    pub(super) log_is_pinned: Cell<bool>,
    /// Partitions that were deleted since the last checkpoint.
    pub(super) removed: RefCell<Vec<LogId>>,
    /// Commit log files of earlier generations, until recovery has ended.
    pub(super) old_files: RefCell<Vec<PathBuf>>,
    pub(super) removal: Removal,
    generation: Cell<u64>,
    is_serving: Cell<bool>,
    /// The last checkpoint is being written.
    pub(super) is_closing: Cell<bool>,
    catalog: RefCell<Arc<Catalog>>,
    catalog_host: OnceCell<CatalogHost<D>>,
    config: Arc<Config>,
    advertised: (String, i32),
    outbox: Rc<Outbox<Message>>,
    replies: Replies<Answer>,
    is_stopping: Cell<bool>,
    stop_bell: Bell,
    drain_hook: RefCell<Option<DrainHook>>,
    progress: Arc<AtomicU64>,
    working: Cell<usize>,
    idle: Bell,
}

impl<D: Disk> Shard<D> {
    /// A shard without partitions; [`super::recovery`] brings them.
    #[must_use]
    pub fn new(parts: ShardParts<D>) -> Rc<Self> {
        let sessions = FetchSessions::new(session_limits(&parts));
        Rc::new(Self {
            id: parts.id,
            disk: parts.disk,
            layout: parts.layout,
            partitions: RefCell::default(),
            waiters: Waiters::default(),
            commit_log: OnceCell::new(),
            undurable: RefCell::default(),
            unwritten: RefCell::default(),
            stuck: RefCell::default(),
            arena: RefCell::default(),
            tail_order: RefCell::default(),
            tail_bytes: Cell::default(),
            tick: Cell::default(),
            disk_is_full: Cell::default(),
            cleaning_rests_until: RestsUntil::default(),
            watches: RefCell::default(),
            producer_ids: ProducerIds::default(),
            producer_limits: ProducerLimits::default(),
            fetch_sessions: RefCell::new(sessions),
            groups: GroupHost::default(),
            transactions: TransactionHost::default(),
            parked: ParkedBatches::default(),
            answers: Budget::new(parts.config.memory_budget_bytes),
            unpacker: RefCell::default(),
            watch_number: Cell::default(),
            checkpointer: OnceCell::new(),
            stalled: RefCell::default(),
            stalled_bytes: Cell::default(),
            log_is_pinned: Cell::default(),
            removed: RefCell::default(),
            old_files: RefCell::default(),
            removal: Removal::default(),
            generation: Cell::default(),
            is_serving: Cell::default(),
            is_closing: Cell::default(),
            catalog: RefCell::new(Arc::new(Catalog::new(Arc::clone(&parts.config)))),
            catalog_host: OnceCell::new(),
            config: parts.config,
            advertised: parts.advertised,
            outbox: Outbox::new(parts.lanes),
            replies: Replies::default(),
            is_stopping: Cell::default(),
            stop_bell: Bell::default(),
            drain_hook: RefCell::default(),
            progress: parts.progress,
            working: Cell::default(),
            idle: Bell::default(),
        })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> u32 {
        u32::try_from(self.outbox.shards()).unwrap_or(1)
    }

    /// All shards.
    pub fn all_shards(&self) -> impl Iterator<Item = ShardId> + use<D> {
        (0..self.shards()).map(ShardId)
    }

    /// The shared facts as they are now.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    pub(super) fn set_catalog(&self, catalog: Arc<Catalog>) {
        *self.catalog.borrow_mut() = catalog;
    }

    /// The broker's settings as they were at the start; dynamic ones are in [`Catalog::config`].
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The host and port that clients are told.
    #[must_use]
    pub fn advertised(&self) -> (String, i32) {
        self.advertised.clone()
    }

    /// The store's generation as it goes on the wire.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        i32::try_from(self.generation.get()).unwrap_or(i32::MAX)
    }

    /// One more with each start of the data folder.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    pub(super) fn begin_generation(&self, generation: u64) {
        self.generation.set(generation);
    }

    /// Makes this shard the writer of the catalog.
    pub fn host_catalog(&self, host: CatalogHost<D>) {
        // Set once: shard 0 opens the data folder once.
        let _first = self.catalog_host.set(host);
    }

    /// The folder that Kafka's tools see as the log dir.
    #[must_use]
    pub fn log_dir(&self) -> String {
        self.layout.kafka().display().to_string()
    }

    /// Room on the disk; zeros when it does not say.
    #[must_use]
    pub fn disk_space(&self) -> Space {
        self.disk.space(self.layout.root()).unwrap_or(Space { total_bytes: 0, free_bytes: 0 })
    }

    /// Bytes on disk of each partition of every shard.
    pub async fn log_sizes(self: &Rc<Self>) -> Vec<(TopicPartition, u64)> {
        let asked: Vec<_> = self.all_shards().map(|shard| self.ask(shard, Ask::Sizes)).collect();
        let mut sizes = Vec::new();
        for answer in asked {
            if let Answer::Sizes(some) = answer.await {
                sizes.extend(some);
            }
        }
        sizes
    }

    /// The owner of a partition.
    #[must_use]
    pub fn owner(&self, key: PartitionKey) -> ShardId {
        placement::owner(key, self.shards())
    }

    pub(super) fn owns(&self, key: PartitionKey) -> bool {
        self.owner(key) == self.id
    }

    pub(super) fn partition(&self, key: PartitionKey) -> Option<Rc<Partition<D>>> {
        self.partitions.borrow().get(&key).cloned()
    }

    pub(super) fn all_partitions(&self) -> Vec<Rc<Partition<D>>> {
        self.partitions.borrow().values().cloned().collect()
    }

    pub(super) fn log(&self) -> &CommitLog<D> {
        match self.commit_log.get() {
            Some(log) => log,
            None => panic!("{} is asked before it has recovered", self.id),
        }
    }

    pub(super) fn catalog_host(&self) -> Option<&CatalogHost<D>> {
        self.catalog_host.get()
    }

    /// True once recovery has ended: what it began with may be given up from then on.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.is_serving.get()
    }

    /// True once the process stops: waiting ends early.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// What compressed batches are walked with on this core.
    #[must_use]
    pub fn unpacker(&self) -> &RefCell<Unpacker> {
        &self.unpacker
    }

    /// What clients on this core have asked for and go on with.
    #[must_use]
    pub fn fetch_sessions(&self) -> &RefCell<FetchSessions> {
        &self.fetch_sessions
    }

    /// Memory for what was read and is not written to its client yet. Not that of requests: clients that do not read must
    /// not keep others from being heard.
    #[must_use]
    pub fn answers(&self) -> &Rc<Budget> {
        &self.answers
    }

    /// Ends a session of this or another core: the client begins anew.
    pub fn end_fetch_session(&self, id: i32) {
        match fetch_sessions::shard_of(id, self.shards()) {
            Some(own) if own == self.id.0 => {
                self.fetch_sessions.borrow_mut().end(id);
            }
            Some(other) => self.outbox.send(ShardId(other), Message::EndFetchSession(id)),
            None => {}
        }
    }

    /// A number for a watch of this shard.
    pub fn next_watch(&self) -> u64 {
        self.watch_number.set(self.watch_number.get() + 1);
        self.watch_number.get()
    }

    /// Fetches that wait here for new records.
    #[must_use]
    pub fn waiting_fetches(&self) -> usize {
        self.watches.borrow().len()
    }

    /// Tells an owner that a watch is not waited for any more.
    pub fn take_back(self: &Rc<Self>, owner: ShardId, watch: u64) {
        if owner == self.id {
            self.unwatch(self.id, watch);
        } else {
            self.outbox.send(owner, Message::Unwatch { from: self.id, watch });
        }
    }

    /// A producer id that was never given out, and never will be again.
    ///
    /// # Errors
    /// 14 while no block of ids is ready, 56 when none can be made durable.
    pub async fn new_producer_id(self: &Rc<Self>) -> Result<ProducerId, ErrorCode> {
        loop {
            let taken = self.producer_ids.take();
            match (taken.id, taken.ask) {
                (Some(id), true) => {
                    drop(self.start_getting_producer_ids());
                    return Ok(id);
                }
                (Some(id), false) => return Ok(id),
                (None, true) => match self.start_getting_producer_ids().await {
                    Some(got) => got?,
                    None => return Err(ErrorCode::CoordinatorLoadInProgress),
                },
                (None, false) => return Err(ErrorCode::CoordinatorLoadInProgress),
            }
        }
    }

    /// In a task of its own: a client that leaves meanwhile must not leave the question open.
    fn start_getting_producer_ids(self: &Rc<Self>) -> Receiver<Result<(), ErrorCode>> {
        let (sender, receiver) = once();
        let shard = Rc::clone(self);
        host::spawn(Queue::Requests, async move { sender.send(shard.get_producer_ids().await) });
        receiver
    }

    async fn get_producer_ids(self: &Rc<Self>) -> Result<(), ErrorCode> {
        let count = u32::try_from(producer_ids::BLOCK_IDS).unwrap_or(u32::MAX);
        let results = self.change_catalog(Command::AllocateProducerIds { count }).await;
        let granted = results.and_then(|results| match results.first() {
            Some(ItemResult { outcome: Outcome::ProducerIds(first), .. }) => Ok(first.0),
            Some(refused) => Err(refused.error),
            None => Err(ErrorCode::UnknownServerError),
        });
        match granted {
            Ok(first) => self.producer_ids.granted(first),
            Err(_) => self.producer_ids.refused(),
        }
        granted.map(|_| ())
    }

    /// Waits while a lane is so full that its messages are kept here: connections read nothing meanwhile.
    pub async fn lanes_have_room(&self) {
        self.outbox.clear().await;
    }

    /// Has `target` do something. The order in which this is called is the order in which it is done there.
    pub fn ask(self: &Rc<Self>, target: ShardId, ask: Ask) -> LocalFuture<Answer> {
        if target == self.id {
            return match self.serve(ask) {
                Served::Now(answer) => Box::pin(std::future::ready(answer)),
                Served::Later(answer) => answer,
            };
        }
        let (slot, reply) = self.replies.open();
        self.outbox.send(target, Message::Ask { from: self.id, slot, ask });
        Box::pin(reply)
    }

    /// Changes shared facts; durable, and visible on every shard, when this returns.
    ///
    /// # Errors
    /// 56 when the catalog cannot be written.
    pub async fn change_catalog(self: &Rc<Self>, command: Command) -> Result<Vec<ItemResult>, ErrorCode> {
        match self.ask(ShardId(0), Ask::Change(Box::new(command))).await {
            Answer::Changed(results) => results,
            _ => Err(ErrorCode::UnknownServerError),
        }
    }

    /// Empties the lane until every sender is gone.
    pub async fn receive(self: Rc<Self>, mut lane: LaneReceiver<Message>, on_connection: impl Fn(Accepted)) {
        let mut batch = Vec::with_capacity(LANE_BATCH);
        while lane.next_batch(LANE_BATCH, &mut batch).await {
            for message in batch.drain(..) {
                match message {
                    Message::Connection(accepted) => on_connection(accepted),
                    Message::Ask { from, slot, ask } => self.serve_for(from, slot, ask),
                    Message::Answer { slot, answer } => self.replies.complete(slot, answer),
                    Message::EndFetchSession(id) => self.end_fetch_session(id),
                    Message::Unwatch { from, watch } => self.unwatch(from, watch),
                    Message::Stop => self.stop_bell.ring(),
                    Message::Leave => return,
                }
            }
            self.outbox.retry();
        }
    }

    fn serve_for(self: &Rc<Self>, from: ShardId, slot: u32, ask: Ask) {
        match self.serve(ask) {
            Served::Now(answer) => self.outbox.push(from, Message::Answer { slot, answer }),
            Served::Later(answer) => {
                let outbox = Rc::clone(&self.outbox);
                host::spawn(Queue::Requests, async move {
                    let answer = answer.await;
                    outbox.send(from, Message::Answer { slot, answer });
                });
            }
        }
    }

    /// Does what can be done at once, and with it fixes the order.
    pub fn serve(self: &Rc<Self>, ask: Ask) -> Served {
        let shard = Rc::clone(self);
        match ask {
            Ask::Produce(items, level) => self.produce(items, level),
            Ask::Read(items, limits) => self.read(items, limits),
            Ask::Watch(items, watch) => self.watch(&items, watch),
            Ask::Offsets(queries) => {
                Served::Later(Box::pin(async move { Answer::Offsets(shard.find_offsets(queries).await) }))
            }
            Ask::Group { partition, command } => self.serve_group(partition, *command),
            Ask::Transaction { partition, command } => self.serve_transaction(partition, *command),
            Ask::Markers(markers) => self.write_markers(markers),
            Ask::EpochEnds(queries) => Served::Now(Answer::EpochEnds(self.epoch_ends(&queries))),
            Ask::DeleteRecords(items, patience) => self.move_log_starts(&items, patience),
            Ask::Producers(keys) => Served::Now(Answer::Producers(self.active_producers(&keys))),
            Ask::Sizes => Served::Now(Answer::Sizes(self.sizes())),
            Ask::Marks => Served::Now(Answer::Marks(self.own_marks())),
            Ask::Change(command) => to_its_end(async move { Answer::Changed(shard.change(*command).await) }),
            Ask::Publish(catalog) => to_its_end(async move {
                shard.publish(catalog).await;
                Answer::Done
            }),
            Ask::Recover(plan) => to_its_end(async move { Answer::Recovered(shard.recover(&plan).await) }),
            Ask::Settle(plan) => {
                to_its_end(async move { Answer::Recovered(shard.settle(&plan).await.map(|()| Progress::Done)) })
            }
            Ask::Serve => to_its_end(async move {
                shard.start_tasks();
                shard.adopt_old_files().await;
                Answer::Done
            }),
            Ask::Drain => to_its_end(async move {
                shard.drain().await;
                Answer::Done
            }),
            Ask::Close => to_its_end(async move { Answer::Closed(shard.close().await) }),
        }
    }

    /// The tasks that run as long as the shard: waiting fetches, commits, checkpoints, a look at the disk.
    fn start_tasks(self: &Rc<Self>) {
        self.is_serving.set(true);
        self.disk.set_unshared(false);
        let shard = Rc::clone(self);
        host::spawn(Queue::Requests, async move { shard.waiters.run().await });
        let (before, after, end) = (Rc::clone(self), Rc::clone(self), Rc::clone(self));
        let log = self.log().clone();
        host::spawn(Queue::Requests, async move {
            log.run(move || before.write_segments(), move |group| after.note_durable(group)).await;
            end.note_failed();
        });
        if let Some(topic) = self.catalog().topic(OFFSETS_TOPIC) {
            self.begin_coordinators(topic);
        }
        host::spawn(Queue::Requests, Rc::clone(self).run_group_timer());
        self.start_transactions();
        host::spawn(Queue::Background, Rc::clone(self).keep_checkpoints());
        host::spawn(Queue::Background, Rc::clone(self).keep_an_eye());
        host::spawn(Queue::Background, Rc::clone(self).keep_compacting());
        host::spawn(Queue::Background, Rc::clone(self).keep_retention());
        if self.id == ShardId(0) {
            host::spawn(Queue::Background, Rc::clone(self).keep_kafka_checkpoints());
        }
        // What a crash left between a moved log start and the removal of the files below it.
        self.all_partitions().iter().for_each(|partition| self.remove_below_start(partition));
        self.remove_leftovers();
    }

    /// What is done when the shard takes nothing new any more: its connections end.
    pub fn on_drain(&self, hook: DrainHook) {
        *self.drain_hook.borrow_mut() = Some(hook);
    }

    /// Ready when the process was told to stop (shard 0).
    pub async fn stop_asked(&self) {
        self.stop_bell.rung().await;
    }

    /// Sends a message to every shard.
    pub fn send_to_all(&self, message: impl Fn() -> Message) {
        for shard in self.all_shards() {
            self.outbox.send(shard, message());
        }
    }

    /// The stop gets on.
    pub(super) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that must be finished before the shard may stop.
    pub fn begin_work(self: &Rc<Self>) -> Work<D> {
        self.working.set(self.working.get() + 1);
        Work { shard: Rc::clone(self) }
    }

    /// Takes nothing new, lets nobody wait any more, and waits for what was begun.
    async fn drain(&self) {
        self.is_stopping.set(true);
        self.waiters.wake_all();
        self.stop_coordinators();
        self.stop_transactions();
        let hook = self.drain_hook.borrow_mut().take();
        if let Some(hook) = hook {
            hook().await;
        }
        while self.working.get() > 0 {
            self.idle.rung().await;
        }
    }
}

fn session_limits<D: Disk>(parts: &ShardParts<D>) -> SessionLimits {
    let shards = u32::try_from(parts.lanes.shards()).unwrap_or(1);
    SessionLimits::of_shard(parts.id.0, shards, parts.config.fetch_session_slots, FETCH_SESSION_BYTES)
}

/// Runs `task` whether or not anybody waits for its answer: what it has begun must not be left half done.
fn to_its_end(task: impl Future<Output = Answer> + 'static) -> Served {
    let (sender, receiver) = once();
    host::spawn(Queue::Requests, async move { sender.send(task.await) });
    Served::Later(Box::pin(async move {
        match receiver.await {
            Some(answer) => answer,
            None => unreachable!("the task runs to its end"),
        }
    }))
}

/// A request that is under way.
pub struct Work<D: Disk> {
    shard: Rc<Shard<D>>,
}

impl<D: Disk> Drop for Work<D> {
    fn drop(&mut self) {
        self.shard.working.set(self.shard.working.get() - 1);
        if self.shard.working.get() == 0 {
            self.shard.idle.ring();
        }
    }
}
