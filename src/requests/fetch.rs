//! Fetch (1), versions 4 to 18: read batches, from all cores, waiting for new ones if that was asked for.
//!
//! 5 tells the log start · 7 has sessions · 9 the leader epoch · 12 is flexible, tells of diverging epochs · 13 names topics
//! by id · 15 moves the replica id · 16 to 18 concern replicas.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::fetch_plan::{self, Plan, Wanted};
use super::{Begun, Outcome, Request};
use crate::broker::messages::{Answer, Ask, Fetched, ReadItem, ReadLimits, Records, Watch, WatchItem};
use crate::broker::shard::Shard;
use crate::ids::{Offset, ProducerId, ShardId};
use crate::runtime::budget::Units;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::signal::first_of;
use crate::wire::error_code::ErrorCode;
use crate::wire::fetch::{AbortedTxn, FetchRequest, FetchResponse, FetchedPartition, FetchedTopic, NodeEndpoint};
use crate::wire::reader::WireError;

/// What a fetch may read when the memory for answers is used up, in bytes: little, so that many may, and enough to get on.
const BYTES_LEAST: usize = 64 << 10;

/// Isolation level of clients that read what is committed.
const READ_COMMITTED: i8 = 1;

/// First version that names topics by id.
const TOPIC_IDS_FROM: i16 = 13;

/// First version whose answer names the leader beside an error.
const LEADER_FROM: i16 = 16;

/// What a fetch may take, and how long it may wait for it.
struct Limits {
    bytes_min: usize,
    bytes_max: usize,
    deadline: Duration,
    /// Only what is committed is wanted.
    is_committed: bool,
}

/// Begins a Fetch. What it returns waits as long as the request says for as much as it says, and may be dropped meanwhile.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn begin<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Begun, WireError> {
    let mut fetch = FetchRequest::read(body, request.version)?;
    fetch.topics.retain(|topic| !topic.partitions.is_empty());
    let bytes_max = usize::try_from(fetch.max_bytes).unwrap_or(0).min(shard.catalog().config().fetch_max_bytes);
    let limits = Limits {
        bytes_min: usize::try_from(fetch.min_bytes).unwrap_or(0).min(bytes_max),
        bytes_max,
        deadline: clock::monotonic() + Duration::from_millis(u64::try_from(fetch.max_wait_ms).unwrap_or(0)),
        is_committed: fetch.isolation_level == READ_COMMITTED,
    };
    let (version, correlation_id) = (request.version, request.correlation_id);
    let mut plan = match fetch_plan::plan(shard, &fetch, version >= TOPIC_IDS_FROM) {
        Ok(plan) => plan,
        Err(error) => {
            let response = without_topics(error, 0);
            return Ok(Begun::Now(Outcome::Answer(response.encode(version, correlation_id).freeze())));
        }
    };
    let shard = Rc::clone(shard);
    // Not awaited here: the connection reads on meanwhile, and so notices a client that leaves.
    Ok(Begun::Later(Box::pin(async move {
        let memory = find(&shard, &mut plan.wanted, &limits).await;
        let response = respond(&shard, &fetch, plan, version);
        Outcome::Charged(response.encode(version, correlation_id).freeze(), memory)
    })))
}

/// An answer that only says what is wrong with the session.
fn without_topics(error: ErrorCode, session_id: i32) -> FetchResponse {
    FetchResponse { throttle_ms: 0, error, session_id, topics: Vec::new(), leader: None }
}

/// Reads until there is enough, or time is up; gives the memory that is taken for what was read. It waits with nothing in
/// hand, and never for memory: where that is short it reads less.
async fn find<D: Disk>(shard: &Rc<Shard<D>>, wanted: &mut [Wanted], limits: &Limits) -> Units {
    loop {
        let mut memory = shard.answers().take_some(limits.bytes_max.min(bytes_wanted(wanted)));
        let bytes_max = limits.bytes_max.min(memory.held().max(BYTES_LEAST));
        let bytes = read(shard, wanted, bytes_max, limits.is_committed).await;
        memory.shrink_to(bytes);
        let time = limits.deadline.saturating_sub(clock::monotonic());
        if is_enough(wanted, limits.bytes_min) || shard.is_stopping() || time.is_zero() {
            return memory;
        }
        if bytes > 0 {
            wanted.iter_mut().for_each(|one| {
                one.found.records = Records::default();
                one.found.aborted = Vec::new();
            });
        }
        drop(memory);
        wait(shard, wanted, time, limits.is_committed).await;
    }
}

/// The most that may be read of all that is wanted.
fn bytes_wanted(wanted: &[Wanted]) -> usize {
    let bytes = wanted.iter().map(|one| usize::try_from(one.asked.max_bytes).unwrap_or(0));
    bytes.fold(0, usize::saturating_add)
}

/// Reads what is there now; returns how many bytes. The owners are asked one after another, so that the limit holds over
/// all of them and the first batch goes out whole, once.
async fn read<D: Disk>(shard: &Rc<Shard<D>>, wanted: &mut [Wanted], bytes_max: usize, is_committed: bool) -> usize {
    let (mut left, mut bytes) = (bytes_max, 0);
    let mut first_whole = true;
    let mut at = 0;
    while at < wanted.len() {
        let Some((owner, until)) = run_of_one_owner(shard, wanted, at) else { break };
        let items = wanted[at..until].iter().filter_map(|one| {
            let key = one.key.ok()?;
            Some(ReadItem {
                key,
                offset: one.asked.fetch_offset,
                bytes_max: usize::try_from(one.asked.max_bytes).unwrap_or(0),
                leader_epoch: one.asked.current_leader_epoch.max(-1),
                last_epoch: one.asked.last_fetched_epoch,
                is_committed,
            })
        });
        let ask = Ask::Read(items.collect(), ReadLimits { bytes_max: left, first_whole });
        let Answer::Read(found) = shard.ask(owner, ask).await else { break };
        let mut found = found.into_iter();
        for one in wanted[at..until].iter_mut().filter(|one| one.key.is_ok()) {
            let Some(next) = found.next() else { break };
            left = left.saturating_sub(next.records.bytes);
            bytes += next.records.bytes;
            first_whole &= next.records.bytes == 0;
            one.found = next;
        }
        at = until;
    }
    bytes
}

/// The owner of the next known partition from `at` on, and the end of the stretch that asks nobody else.
fn run_of_one_owner<D: Disk>(shard: &Rc<Shard<D>>, wanted: &[Wanted], at: usize) -> Option<(ShardId, usize)> {
    let owner_of = |one: &Wanted| one.key.ok().map(|key| shard.owner(key));
    let owner = wanted[at..].iter().find_map(owner_of)?;
    let length = wanted[at..].iter().take_while(|one| owner_of(one).is_none_or(|other| other == owner)).count();
    Some((owner, at + length))
}

/// Whether the answer need not wait. Partitions that are not known do not hasten it, those that cannot be read do.
///
/// Source: apache/kafka `ReplicaManager.fetchMessages`, `DelayedFetch.tryComplete`.
fn is_enough(wanted: &[Wanted], bytes_min: usize) -> bool {
    let known = || wanted.iter().filter(|one| !one.is_unknown());
    let bytes: usize = known().map(|one| worth(&one.found, one.asked.max_bytes)).sum();
    let hastens = |one: &Wanted| one.found.error != ErrorCode::None || one.found.diverging.is_some();
    bytes >= bytes_min || known().next().is_none() || known().any(hastens)
}

/// Bytes that count towards the fewest that are wanted: where limits kept more out, all that the partition may give, since
/// waiting would not make it more.
fn worth(found: &Fetched, bytes_max: i32) -> usize {
    let bytes = found.records.bytes;
    if found.records.is_cut { bytes.max(usize::try_from(bytes_max).unwrap_or(0)) } else { bytes }
}

/// Waits until an owner has more than was seen, or time is up.
async fn wait<D: Disk>(shard: &Rc<Shard<D>>, wanted: &[Wanted], time: Duration, is_committed: bool) {
    let number = shard.next_watch();
    let watch = Watch { from: shard.id(), number, wait: time };
    let mut by_owner: Vec<(ShardId, Vec<WatchItem>)> = Vec::new();
    for one in wanted {
        let Ok(key) = one.key else { continue };
        let found = &one.found;
        let seen = if is_committed { found.last_stable_offset } else { found.high_watermark };
        let item = WatchItem { key, seen, is_committed };
        let owner = shard.owner(key);
        match by_owner.iter_mut().find(|(to, _)| *to == owner) {
            Some((_, items)) => items.push(item),
            None => by_owner.push((owner, vec![item])),
        }
    }
    let owners = by_owner.iter().map(|(owner, _)| *owner).collect();
    let mut watching = Watching { shard, owners, number };
    let watches = by_owner.into_iter().map(|(owner, items)| shard.ask(owner, Ask::Watch(items, watch))).collect();
    first_of(watches).await;
    if watching.owners.len() == 1 {
        watching.owners.clear(); // its only owner has answered
    }
}

/// Watches that are taken back when nobody waits for them any more, also because the client has left.
struct Watching<'a, D: Disk> {
    shard: &'a Rc<Shard<D>>,
    owners: Vec<ShardId>,
    number: u64,
}

impl<D: Disk> Drop for Watching<'_, D> {
    fn drop(&mut self) {
        for owner in self.owners.drain(..) {
            self.shard.take_back(owner, self.number);
        }
    }
}

fn respond<D: Disk>(shard: &Rc<Shard<D>>, fetch: &FetchRequest, mut plan: Plan, version: i16) -> FetchResponse {
    let session_id = match plan.finish(shard, fetch, version >= TOPIC_IDS_FROM) {
        Ok(session_id) => session_id,
        Err((error, session_id)) => return without_topics(error, session_id),
    };
    let is_committed = fetch.isolation_level == READ_COMMITTED;
    let mut names_leader = false;
    let mut topics: Vec<FetchedTopic> = Vec::with_capacity(plan.topics.len());
    for one in plan.wanted {
        let topic = &plan.topics[one.topic];
        let mut partition = partition_of(one, is_committed);
        if version >= LEADER_FROM && is_wrong_leader(partition.error) {
            partition.current_leader = Some((shard.catalog().node_id(), shard.leader_epoch()));
        }
        // As Kafka: followers are not told where.
        names_leader |= partition.current_leader.is_some() && fetch.replica_id < 0;
        match topics.last_mut().filter(|last| last.topic == *topic) {
            Some(last) => last.partitions.push(partition),
            None => topics.push(FetchedTopic { topic: topic.clone(), partitions: vec![partition] }),
        }
    }
    let leader = names_leader.then(|| {
        let (host, port) = shard.advertised();
        NodeEndpoint { id: shard.catalog().node_id(), host, port }
    });
    FetchResponse { throttle_ms: 0, error: ErrorCode::None, session_id, topics, leader }
}

/// Errors beside which Kafka names the leader that the client should ask.
fn is_wrong_leader(error: ErrorCode) -> bool {
    matches!(error, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch)
}

/// The list of what to leave out is there for read_committed, and (as in Kafka, an empty one) for what is not known; otherwise
/// it is null.
fn partition_of(one: Wanted, is_committed: bool) -> FetchedPartition {
    let lists_aborted = match one.found.error {
        ErrorCode::None => is_committed,
        error => matches!(error, ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId),
    };
    FetchedPartition {
        aborted: lists_aborted.then(|| one.found.aborted.into_iter().map(aborted).collect()),
        high_watermark: one.found.high_watermark,
        last_stable_offset: one.found.last_stable_offset,
        log_start_offset: one.found.log_start_offset,
        diverging_epoch: one.found.diverging,
        records: one.found.records.parts,
        ..FetchedPartition::failed(one.asked.index, one.found.error)
    }
}

fn aborted((producer_id, first_offset): (ProducerId, Offset)) -> AbortedTxn {
    AbortedTxn { producer_id, first_offset }
}
