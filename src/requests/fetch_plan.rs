//! What a Fetch wants, out of the request or out of its session, and which of it goes into the answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

use crate::broker::catalog::Catalog;
use crate::broker::fetch::failed;
use crate::broker::messages::{Fetched, PartitionKey};
use crate::broker::shard::Shard;
use crate::ids::TopicId;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host;
use crate::state::fetch_sessions::{Answered, Asked, Begun, FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, NewSession};
use crate::wire::error_code::ErrorCode;
use crate::wire::fetch::{FetchPartition, FetchRequest};
use crate::wire::topic::TopicRef;

/// One partition that is wanted, and what was found of it.
pub(super) struct Wanted {
    /// Which topic of [`Plan::topics`].
    pub(super) topic: usize,
    pub(super) key: Result<PartitionKey, ErrorCode>,
    pub(super) asked: FetchPartition,
    pub(super) found: Fetched,
}

impl Wanted {
    fn new(topic: usize, key: Result<PartitionKey, ErrorCode>, asked: FetchPartition) -> Self {
        Self { topic, key, asked, found: failed(key.err().unwrap_or(ErrorCode::None)) }
    }

    /// Not known here: neither hastens the answer nor holds it up.
    pub(super) fn is_unknown(&self) -> bool {
        self.rank() > 0
    }

    /// As Kafka answers: what is known, then topics that are not, then partitions that are not.
    fn rank(&self) -> u8 {
        match self.key {
            Err(ErrorCode::UnknownTopicId) => 1,
            Err(ErrorCode::UnknownTopicOrPartition) => 2,
            _ => 0,
        }
    }
}

/// All that a Fetch wants, in the order in which it is read and answered.
pub(super) struct Plan {
    /// As the client names them; neighbours differ.
    pub(super) topics: Vec<TopicRef>,
    pub(super) wanted: Vec<Wanted>,
    session: Begun,
}

/// Lists what a request wants, all of it or what its session adds.
///
/// # Errors
/// Those of the session: 70, 71, 106.
pub(super) fn plan<D: Disk>(shard: &Rc<Shard<D>>, fetch: &FetchRequest, by_id: bool) -> Result<Plan, ErrorCode> {
    let session = begin_session(shard, fetch, by_id)?;
    let catalog = shard.catalog();
    let is_follower = fetch.replica_id >= 0;
    let mut plan = match session {
        Begun::Without | Begun::New => list_request(&catalog, fetch, is_follower, session),
        Begun::Next { id, .. } => {
            let asked = shard.fetch_sessions().borrow_mut().asked(id, |topic| name_of(&catalog, topic));
            list_session(&catalog, asked, is_follower, session)
        }
    };
    if plan.wanted.iter().any(Wanted::is_unknown) {
        plan.wanted.sort_by_key(Wanted::rank); // keeps the order of the others
    }
    Ok(plan)
}

fn begin_session<D: Disk>(shard: &Rc<Shard<D>>, fetch: &FetchRequest, by_id: bool) -> Result<Begun, ErrorCode> {
    let is_full = matches!(fetch.session_epoch, INITIAL_EPOCH | FINAL_EPOCH);
    if is_full && fetch.session_id != NO_SESSION {
        shard.end_fetch_session(fetch.session_id); // perhaps of another core
    }
    if fetch.session_epoch == FINAL_EPOCH {
        return Ok(Begun::Without);
    }
    shard.fetch_sessions().borrow_mut().begin(fetch, by_id, clock::now_ms())
}

fn name_of(catalog: &Catalog, topic: TopicId) -> Option<Arc<str>> {
    catalog.topic_by_id(topic).map(|topic| Arc::clone(&topic.name))
}

fn list_request(catalog: &Catalog, fetch: &FetchRequest, is_follower: bool, session: Begun) -> Plan {
    let partitions = fetch.topics.iter().map(|topic| topic.partitions.len()).sum();
    let mut plan =
        Plan { topics: Vec::with_capacity(fetch.topics.len()), wanted: Vec::with_capacity(partitions), session };
    for topic in &fetch.topics {
        let known = find(catalog, &topic.topic);
        let at = plan.topics.len();
        plan.topics.push(topic.topic.clone());
        let wanted =
            topic.partitions.iter().map(|asked| Wanted::new(at, key_of(known, asked.index, is_follower), *asked));
        plan.wanted.extend(wanted);
    }
    merge_repeated(&mut plan.wanted);
    plan
}

fn list_session(catalog: &Catalog, asked: Vec<Asked>, is_follower: bool, session: Begun) -> Plan {
    let mut plan = Plan { topics: Vec::new(), wanted: Vec::with_capacity(asked.len()), session };
    let mut known = Err(ErrorCode::UnknownTopicId);
    for Asked { topic, name, partition } in asked {
        if plan.topics.last() != Some(&topic) {
            known = find(catalog, &topic);
            plan.topics.push(topic);
        }
        let gone = || gone_since(catalog, name.as_deref(), partition.index);
        let key = match known {
            Err(ErrorCode::UnknownTopicId) => Err(gone()),
            known => key_of(known, partition.index, is_follower),
        };
        plan.wanted.push(Wanted::new(plan.topics.len() - 1, key, partition));
    }
    plan
}

type Known<'a> = Result<&'a crate::broker::catalog::Topic, ErrorCode>;

fn find<'a>(catalog: &'a Catalog, topic: &TopicRef) -> Known<'a> {
    match topic {
        TopicRef::Name(name) => catalog.topic(name).map(AsRef::as_ref).ok_or(ErrorCode::UnknownTopicOrPartition),
        TopicRef::Id(id) => catalog.topic_by_id(*id).map(AsRef::as_ref).ok_or(ErrorCode::UnknownTopicId),
    }
}

fn key_of(known: Known<'_>, partition: i32, is_follower: bool) -> Result<PartitionKey, ErrorCode> {
    let known = known?;
    known.log_id(partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if is_follower {
        return Err(ErrorCode::NotLeaderOrFollower); // no broker follows this one
    }
    Ok(PartitionKey { topic: known.id, partition })
}

/// A topic that a session knew by its id is not there any more: it was deleted, and perhaps made again under its name.
fn gone_since(catalog: &Catalog, name: Option<&str>, partition: i32) -> ErrorCode {
    let Some(name) = name else { return ErrorCode::UnknownTopicId };
    let is_there_again = catalog.topic(name).is_some_and(|topic| topic.log_id(partition).is_some());
    if is_there_again { ErrorCode::InconsistentTopicId } else { ErrorCode::UnknownTopicOrPartition }
}

/// A partition that is named more than once stands where it was named first, and is asked for as it was named last.
fn merge_repeated(wanted: &mut Vec<Wanted>) {
    let keys = || wanted.iter().filter_map(|one| one.key.ok());
    if keys().is_sorted_by(|one, next| one < next) {
        return; // the usual case costs nothing more
    }
    let mut sorted: Vec<_> = keys().collect();
    sorted.sort_unstable();
    if sorted.is_sorted_by(|one, next| one < next) {
        return;
    }
    let mut last = HashMap::with_capacity(sorted.len());
    for one in wanted.iter() {
        if let Ok(key) = one.key {
            last.insert(key, one.asked);
        }
    }
    wanted.retain_mut(|one| {
        let Ok(key) = one.key else { return true };
        match last.entry(key) {
            Entry::Occupied(asked) => {
                one.asked = asked.remove();
                true
            }
            Entry::Vacant(_) => false,
        }
    });
}

impl Plan {
    /// Takes what was found into the session, and leaves out what a client has already; gives the session's id.
    ///
    /// # Errors
    /// 71 when another request has used the session meanwhile, with the session's id.
    pub(super) fn finish<D: Disk>(
        &mut self,
        shard: &Rc<Shard<D>>,
        fetch: &FetchRequest,
        by_id: bool,
    ) -> Result<i32, (ErrorCode, i32)> {
        let answered = self.wanted.iter().map(|one| Answered {
            topic: &self.topics[one.topic],
            partition: one.asked,
            error: one.found.error,
            high_watermark: one.found.high_watermark,
            log_start: one.found.log_start_offset,
            has_records: one.found.records.bytes > 0,
            diverges: one.found.diverging.is_some(),
        });
        let mut sessions = shard.fetch_sessions().borrow_mut();
        match self.session {
            Begun::Without => Ok(NO_SESSION),
            Begun::New => {
                let is_privileged = fetch.replica_id >= 0;
                let new = NewSession { is_privileged, by_id, now_ms: clock::now_ms(), random: host::random() };
                let catalog = shard.catalog();
                Ok(sessions.create(new, answered, |topic| name_of(&catalog, topic)))
            }
            Begun::Next { id, epoch } => {
                let goes_out = sessions.answer(id, epoch, answered).map_err(|error| (error, id))?;
                let mut goes_out = goes_out.into_iter();
                self.wanted.retain(|_| goes_out.next().unwrap_or(true));
                Ok(id)
            }
        }
    }
}
