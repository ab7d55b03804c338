//! Everything that may cross a lane. A message owns its bytes and holds nothing of the core it comes from.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::active_producers::ActiveProducer;
use super::catalog::{Catalog, Command, ItemResult};
use super::recovery::{Progress, RecoveryPlan};
use crate::ids::{Offset, ProducerEpoch, ProducerId, ShardId, TopicId, TopicPartition};
use crate::runtime::accepted::Accepted;
use crate::state::enlisting::Entry;
use crate::state::groups::messages as groups;
use crate::state::transactions::messages as transactions;
use crate::wire::admission::Refused;
use crate::wire::batch::{BatchHeader, Batches};
use crate::wire::error_code::ErrorCode;
use crate::wire::stored::RecordData;

/// What arrives in the lane of a shard.
pub enum Message {
    /// A client's connection, to be served by this shard from now on.
    Connection(Accepted),
    /// Work for the owner of a partition (or of the catalog); answered by a [`Message::Answer`].
    Ask {
        /// Who asks.
        from: ShardId,
        /// The asker's slot for the answer.
        slot: u32,
        /// What is asked.
        ask: Ask,
    },
    /// The answer to an earlier [`Message::Ask`] of this shard.
    Answer {
        /// The slot it was asked with.
        slot: u32,
        /// The answer.
        answer: Answer,
    },
    /// A signal came (to shard 0 alone).
    Stop,
    /// Everything is done: the shard's loop ends.
    Leave,
    /// A client closes a fetch session of the shard (it came back on another core).
    EndFetchSession(i32),
    /// The asker does not wait any more.
    Unwatch {
        /// Who asked.
        from: ShardId,
        /// The number it gave to its watch.
        watch: u64,
    },
}

/// Which partition: the topic's id, so that a topic made again under the same name is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey {
    /// Topic id.
    pub topic: TopicId,
    /// Partition index.
    pub partition: i32,
}

/// Work that a shard does for another (or for itself).
pub enum Ask {
    /// Append batches; answered by [`Answer::Produced`] in the same order.
    Produce(Vec<ProduceItem>, AckLevel),
    /// Read what is there now; answered by [`Answer::Read`] in the same order.
    Read(Vec<ReadItem>, ReadLimits),
    /// Wait until one of the partitions has more than it had; answered by [`Answer::Woken`].
    Watch(Vec<WatchItem>, Watch),
    /// Look up offsets; answered by [`Answer::Offsets`] in the same order.
    Offsets(Vec<OffsetQuery>),
    /// Where leader epochs end; answered by [`Answer::EpochEnds`] in the same order.
    EpochEnds(Vec<EpochQuery>),
    /// Move log starts, waiting as long for them to be durable; answered by [`Answer::Deleted`] in the same order.
    DeleteRecords(Vec<Deletion>, Duration),
    /// Who writes to partitions; answered by [`Answer::Producers`] in the same order.
    Producers(Vec<PartitionKey>),
    /// Sizes of all partitions of the shard; answered by [`Answer::Sizes`].
    Sizes,
    /// What Kafka's checkpoints say of all partitions of the shard; answered by [`Answer::Marks`].
    Marks,
    /// Change the catalog (shard 0 only); answered by [`Answer::Changed`].
    Change(Box<Command>),
    /// A new catalog is durable; answered by [`Answer::Done`] once it is visible on the shard.
    Publish(Arc<Catalog>),
    /// Consumer groups of one partition of `__consumer_offsets`; answered by [`Answer::Group`].
    Group {
        /// Which partition.
        partition: i32,
        /// What is asked.
        command: Box<groups::Command>,
    },
    /// Transactional ids of one partition of `__transaction_state`; answered by [`Answer::Transaction`].
    Transaction {
        /// Which partition.
        partition: i32,
        /// What is asked.
        command: Box<transactions::Command>,
    },
    /// Write markers that end transactions; answered by [`Answer::Marked`] in the same order, once they are durable.
    Markers(Vec<Marker>),
    /// Bring back the partitions of this shard; answered by [`Answer::Recovered`].
    Recover(Arc<RecoveryPlan>),
    /// Everything is back and on disk: begin this generation's checkpoints and log; answered by [`Answer::Recovered`].
    Settle(Arc<RecoveryPlan>),
    /// Begin to serve; answered by [`Answer::Done`].
    Serve,
    /// Take no new work and finish what was taken; answered by [`Answer::Done`].
    Drain,
    /// Flush everything and write the last checkpoint; answered by [`Answer::Closed`].
    Close,
}

/// A marker: the control batch that ends a producer's transaction in one partition.
///
/// Source: KIP-98, KIP-890; apache/kafka `EndTransactionMarker.java`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Where to.
    pub key: PartitionKey,
    /// Whose transaction.
    pub producer_id: ProducerId,
    /// Epoch of the marker: one above that of the data in the newer protocol.
    pub epoch: ProducerEpoch,
    /// Generation of the coordinator.
    pub coordinator_epoch: i32,
    /// How it ends.
    pub outcome: transactions::Outcome,
    /// Whether the transaction follows KIP-890, where a marker always has a new epoch.
    pub bumps_epoch: bool,
}

/// How far a partition is, as Kafka's checkpoints say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMarks {
    /// Which partition.
    pub name: TopicPartition,
    /// Everything below is flushed.
    pub recovery_point: Offset,
    /// First offset that is not readable yet.
    pub high_watermark: Offset,
    /// Smallest offset that a client may read, where that lies within the first segment.
    pub log_start: Option<Offset>,
    /// Up to where it is compacted, if it is.
    pub cleaned_to: Option<Offset>,
}

/// Answers to [`Ask`].
pub enum Answer {
    /// One result for each batch.
    Produced(Vec<Produced>),
    /// One result for each partition that was to be read.
    Read(Vec<Fetched>),
    /// A watched partition has more, or time is up.
    Woken,
    /// One result for each query.
    Offsets(Vec<FoundOffset>),
    /// One result for each query: the epoch found and its end.
    EpochEnds(Vec<EpochEnd>),
    /// One result for each partition whose log start was to be moved.
    Deleted(Vec<Deleted>),
    /// The producers of each partition.
    Producers(Vec<Result<Vec<ActiveProducer>, ErrorCode>>),
    /// Bytes on disk of each partition.
    Sizes(Vec<(TopicPartition, u64)>),
    /// Of each partition.
    Marks(Vec<LogMarks>),
    /// One result for each item of the command.
    Changed(Result<Vec<ItemResult>, ErrorCode>),
    /// The answer of a coordinator.
    Group(Box<groups::Answer>),
    /// The answer of a transactional id's coordinator.
    Transaction(Box<transactions::Answer>),
    /// One result for each marker: none, 3, 47, 52, or 56 where it is not known to be durable.
    Marked(Vec<ErrorCode>),
    /// Done.
    Done,
    /// Recovery of the shard ended: a sentence in case of an error that must stop the start.
    Recovered(Result<Progress, String>),
    /// The shard is on disk; of each partition.
    Closed(Result<Vec<LogMarks>, String>),
}

/// What a produce request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckLevel {
    /// Nothing: no answer is sent.
    None,
    /// The bytes are in the kernel.
    Written,
    /// As durable as the topic promises.
    Durable,
}

/// A batch that may be appended as far as its bytes say, with its final timestamps.
#[derive(Clone, Debug)]
pub struct CheckedBatch {
    /// Its header as it will be stored, apart from its place.
    pub header: BatchHeader,
    /// All of it.
    pub bytes: Bytes,
    /// The broker's time in the records; -1 if they keep their own.
    pub log_append_time_ms: i64,
}

/// One batch on its way to its owner, with the verdict of the connection's core.
pub struct ProduceItem {
    /// Where to.
    pub key: PartitionKey,
    /// The checks that need no owner: the batch with what was read of it, or the first failure.
    pub checked: Result<CheckedBatch, Refused>,
    /// How it comes into its producer's transaction; `None` for a batch without one.
    pub entry: Option<Entry>,
}

/// What became of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produced {
    /// `None` for success.
    pub error: ErrorCode,
    /// Base offset, of the original append for a retry; -1 with an error.
    pub base_offset: Offset,
    /// -1, or the time that Kafka answers (LogAppendTime, and retries).
    pub log_append_time_ms: i64,
    /// Present log start, -1 where Kafka leaves it out.
    pub log_start_offset: Offset,
    /// What was wrong with single records, and with the whole.
    pub detail: Option<Box<Refused>>,
}

/// One partition to read from.
#[derive(Clone, Copy, Debug)]
pub struct ReadItem {
    /// Which.
    pub key: PartitionKey,
    /// First offset wanted.
    pub offset: Offset,
    /// At most so many bytes, but always one whole batch when it is the first of the response.
    pub bytes_max: usize,
    /// Leader epoch the client believes in, -1 for none.
    pub leader_epoch: i32,
    /// Leader epoch of the last record that the client has, -1 for none.
    pub last_epoch: i32,
    /// Only what is committed is wanted.
    pub is_committed: bool,
}

/// Limits of one read over the partitions of one shard.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Bytes over all partitions.
    pub bytes_max: usize,
    /// The first batch found is returned whole, also when it is larger than the limits.
    pub first_whole: bool,
}

/// What was read of one partition.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Error or none.
    pub error: ErrorCode,
    /// High watermark, -1 with an error.
    pub high_watermark: Offset,
    /// First offset that readers of what is committed must not see, -1 with an error.
    pub last_stable_offset: Offset,
    /// Log start, -1 with an error.
    pub log_start_offset: Offset,
    /// Epoch and end offset behind which the client's log is not ours.
    pub diverging: Option<(i32, Offset)>,
    /// Whole batches, in order.
    pub records: Records,
    /// Transactions among them that a reader of what is committed must leave out: producer and first offset.
    pub aborted: Vec<(ProducerId, Offset)>,
}

/// Record batches on their way to a client: stored batches of the tail cache, or a stretch of a file.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Pieces, to be written one after another.
    pub parts: Vec<RecordData>,
    /// Their length in bytes.
    pub bytes: usize,
    /// The limits kept out more that may be read.
    pub is_cut: bool,
}

impl Records {
    /// The offset behind the last batch; `None` without one.
    #[must_use]
    pub fn end(&self) -> Option<Offset> {
        let header = |part: &RecordData| match part {
            RecordData::Batch(batch) => BatchHeader::read_head(&batch.header()).ok(),
            RecordData::Whole(bytes) => Batches::new(bytes).filter_map(Result::ok).last().map(|batch| batch.header),
        };
        self.parts.last().and_then(header).map(|last| last.next_offset())
    }
}

/// How a fetch waits.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// Who waits.
    pub from: ShardId,
    /// The asker's number for it, to take it back with [`Message::Unwatch`].
    pub number: u64,
    /// How long at most.
    pub wait: Duration,
}

/// A partition that a waiting fetch looks at.
#[derive(Clone, Copy, Debug)]
pub struct WatchItem {
    /// Which.
    pub key: PartitionKey,
    /// The end that the fetch has seen: the high watermark, or the last stable offset.
    pub seen: Offset,
    /// Only what is committed is wanted.
    pub is_committed: bool,
}

/// An OffsetForLeaderEpoch query for one partition.
#[derive(Clone, Copy, Debug)]
pub struct EpochQuery {
    /// Which.
    pub key: PartitionKey,
    /// The epoch whose end is asked for.
    pub epoch: i32,
    /// Leader epoch the client believes in, -1 for none.
    pub leader_epoch: i32,
}

/// The epoch that was found and its end; `None` for one that is not known.
pub type EpochEnd = Result<Option<(i32, Offset)>, ErrorCode>;

/// A ListOffsets query for one partition.
#[derive(Clone, Copy, Debug)]
pub struct OffsetQuery {
    /// Which.
    pub key: PartitionKey,
    /// A time in ms, or -1 latest, -2 earliest, -3 the largest timestamp.
    pub timestamp: i64,
    /// Leader epoch the client believes in, -1 for none.
    pub leader_epoch: i32,
    /// Only what is committed is looked at.
    pub is_committed: bool,
}

/// The answer to an [`OffsetQuery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// Error or none.
    pub error: ErrorCode,
    /// Offset, -1 for none.
    pub offset: Offset,
    /// The found record's timestamp, -1 for none.
    pub timestamp: i64,
    /// Leader epoch of the offset, -1 for none.
    pub leader_epoch: i32,
}

/// A partition whose records below an offset are to go.
#[derive(Clone, Copy, Debug)]
pub struct Deletion {
    /// Which.
    pub key: PartitionKey,
    /// The new log start; -1 is the high watermark.
    pub before: Offset,
}

/// The answer to a [`Deletion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Error or none.
    pub error: ErrorCode,
    /// The log start as it is now; -1 where Kafka leaves it out.
    pub low_watermark: Offset,
}
