//! A coordinator's start: everything in its partition, oldest first, before anybody is answered.
//!
//! Until then clients are told to come again (14), so that nobody is given an offset that was overtaken since. The log
//! is read from its start; compaction keeps what is to be read short, and may go on meanwhile.

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use bytes::Bytes;

use super::coordinator::Coordinator;
use crate::broker::catalog::Topic;
use crate::broker::own_log::Phase;
use crate::broker::shard::Shard;
use crate::ids::{Offset, ProducerId, TopicId};
use crate::runtime::disk::Disk;
use crate::state::groups::Groups;
use crate::state::transactions::messages::Outcome;
use crate::wire::batch::BatchRef;
use crate::wire::contents::Contents;
use crate::wire::internal::{GroupRecord, RecordError};
use crate::wire::refill::{ControlKind, control_kind};

/// What a replay came to.
struct Replay {
    groups: Groups,
    records: usize,
    /// Topics that offsets were kept for at some time, by name and id.
    topics: BTreeSet<(String, TopicId)>,
    last_topic: Option<(String, TopicId)>,
    /// Kinds of records that were passed over.
    unknown: HashSet<i16>,
}

impl<D: Disk> Shard<D> {
    /// Loads one after the other, those of empty partitions at once.
    pub(super) fn load_coordinators(self: &Rc<Self>, coordinators: Vec<Rc<Coordinator<D>>>) {
        let (empty, others): (Vec<_>, Vec<_>) =
            coordinators.into_iter().partition(|coordinator| coordinator.log.is_empty());
        for coordinator in empty {
            let replay = Replay::new(Groups::new(coordinator.settings.clone()));
            self.take_replay(&coordinator, replay, coordinator.log.partition.high_watermark());
        }
        self.load_in_turn("groups", others, async |shard, coordinator| shard.load_coordinator(coordinator).await);
    }

    /// Reads a partition and lets its groups serve; tells how many records there were.
    pub(super) async fn load_coordinator(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>) -> usize {
        match self.replay_partition(coordinator).await {
            Ok((replay, end)) => {
                let records = replay.records;
                replay.tell(&coordinator.log.partition.name.to_string());
                self.take_replay(coordinator, replay, end);
                records
            }
            Err(why) => {
                coordinator.log.enter(Phase::Failed);
                tracing::error!(
                    "{}: the groups in it are not served until the next start: {why}",
                    coordinator.log.partition.name
                );
                0
            }
        }
    }

    fn take_replay(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, mut replay: Replay, end: Offset) {
        replay.groups.loaded(super::moment());
        coordinator.loaded(replay.groups, end);
        // What was deleted while nobody was there to forget it.
        let catalog = self.catalog();
        for (topic, id) in &replay.topics {
            let is_there = |known: &Topic| *id == TopicId::ZERO || known.id == *id;
            if !catalog.topic(topic).is_some_and(|known| is_there(known)) {
                self.forget_topic(coordinator, topic, *id);
            }
        }
        self.look_at_deadline(coordinator);
    }

    /// What a replay came to, and the offset behind the last batch.
    async fn replay_partition(self: &Rc<Self>, coordinator: &Coordinator<D>) -> Result<(Replay, Offset), String> {
        let mut replay = Replay::new(Groups::new(coordinator.settings.clone()));
        let bytes_max = self.config().groups.load_bytes;
        let take = |bytes: &Bytes, batch: &BatchRef<'_>| self.replay_batch(bytes, batch, &mut replay);
        let end = self.each_own_batch(&coordinator.log, bytes_max, take).await?;
        Ok((replay, end))
    }

    fn replay_batch(&self, bytes: &Bytes, batch: &BatchRef<'_>, replay: &mut Replay) -> Result<(), String> {
        let header = &batch.header;
        if header.attributes.is_control() {
            replay.take_marker(header.producer_id, control_kind(batch.bytes, header));
            return Ok(());
        }
        let producer = header.attributes.is_transactional().then_some(header.producer_id);
        let bytes_max = self.config().unpacked_batch_max_bytes as u64;
        let whole = bytes.slice_ref(batch.bytes);
        let contents = Contents::of(&whole, header, bytes_max, &mut self.unpacker().borrow_mut());
        for (record, index) in contents.map_err(|error| error.to_string())?.zip(0..) {
            let record = GroupRecord::decode(record.map_err(|error| error.to_string())?);
            // Where compaction has left gaps this is not quite its offset, but the order is the same.
            replay.take(header.base_offset.plus(index), producer, record)?;
        }
        Ok(())
    }
}

impl Replay {
    fn new(groups: Groups) -> Self {
        let (topics, unknown) = (BTreeSet::new(), HashSet::new());
        Self { groups, records: 0, topics, last_topic: None, unknown }
    }

    fn take(
        &mut self,
        at: Offset,
        producer: Option<ProducerId>,
        record: Result<GroupRecord, RecordError>,
    ) -> Result<(), String> {
        self.records += 1;
        let record = match record {
            Ok(record) => record,
            Err(RecordError::UnknownKey(kind)) => {
                self.unknown.insert(kind);
                return Ok(());
            }
            // To pass over it would be to give out what it has overtaken.
            Err(error) => return Err(error.to_string()),
        };
        if let GroupRecord::Offset { topic, value: Some(kept), .. } = &record {
            self.note_topic(topic, kept.topic_id);
        }
        self.groups.replay(at, producer, record);
        Ok(())
    }

    /// Other control records than markers say nothing about groups.
    fn take_marker(&mut self, producer: ProducerId, kind: ControlKind) {
        match kind {
            ControlKind::Commit => self.groups.replay_marker(producer, Outcome::Commit),
            ControlKind::Abort => self.groups.replay_marker(producer, Outcome::Abort),
            ControlKind::Other | ControlKind::Empty => {}
        }
    }

    /// Neighbours are mostly of one topic: only another one is looked up.
    fn note_topic(&mut self, topic: &str, id: TopicId) {
        if self.last_topic.as_ref().is_some_and(|(name, last)| name == topic && *last == id) {
            return;
        }
        let topic = (topic.to_owned(), id);
        if !self.topics.contains(&topic) {
            self.topics.insert(topic.clone());
        }
        self.last_topic = Some(topic);
    }

    fn tell(&self, partition: &str) {
        if !self.unknown.is_empty() {
            let mut kinds: Vec<_> = self.unknown.iter().collect();
            kinds.sort_unstable();
            tracing::warn!(
                "{partition}: passed over records of kinds that are not known here (key versions {kinds:?})"
            );
        }
    }
}
