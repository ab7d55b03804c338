//! Consumer groups: one coordinator for each partition of `__consumer_offsets`, on the core that owns it.
//!
//! Decide → append → apply: [`Groups`](crate::state::groups::Groups) decides, what it wants to have in the log goes the
//! way of every produced batch, and once that is durable it applies it and answers. A restart is a replay.

pub mod append;
pub mod coordinator;
pub mod load;
mod markers;
pub mod timer;
mod transactions;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use self::coordinator::{Asked, Coordinator};
use super::catalog::settings::OFFSETS_TOPIC;
use super::catalog::{Catalog, Topic};
use super::messages::{Answer, Ask, PartitionKey};
use super::shard::{Served, Shard};
use crate::ids::{IdMap, TopicId};
use crate::runtime::disk::Disk;
use crate::runtime::signal::{Bell, once};
use crate::runtime::{clock, host};
use crate::state::groups::messages as groups;
use crate::state::groups::{Effects, GroupSettings, Moment};
use crate::wire::error_code::ErrorCode;

/// The coordinators of one shard, and what wakes them.
pub struct GroupHost<D: Disk> {
    coordinators: RefCell<IdMap<PartitionKey, Rc<Coordinator<D>>>>,
    /// A deadline has come nearer than the timer sleeps.
    nearer: Bell,
    /// Until when the timer sleeps; zero while it is awake.
    asleep_until: Cell<Duration>,
}

impl<D: Disk> Default for GroupHost<D> {
    fn default() -> Self {
        Self { coordinators: RefCell::default(), nearer: Bell::default(), asleep_until: Cell::default() }
    }
}

impl<D: Disk> GroupHost<D> {
    fn all(&self) -> Vec<Rc<Coordinator<D>>> {
        self.coordinators.borrow().values().cloned().collect()
    }

    fn at(&self, key: PartitionKey) -> Option<Rc<Coordinator<D>>> {
        self.coordinators.borrow().get(&key).cloned()
    }
}

impl<D: Disk> Shard<D> {
    /// The partition of `__consumer_offsets` that a group belongs to; makes the topic when it is not there yet.
    ///
    /// # Errors
    /// 15 while the topic cannot be made.
    pub async fn group_partition(self: &Rc<Self>, group: &str) -> Result<i32, ErrorCode> {
        Ok(partition_of(group, self.own_topic(OFFSETS_TOPIC).await?.partition_count()))
    }

    /// Asks the coordinator of a group, wherever it is.
    pub async fn ask_group(self: &Rc<Self>, group: &str, command: groups::Command) -> groups::Answer {
        let partition = match self.group_partition(group).await {
            Ok(partition) => partition,
            Err(error) => return command.refused(error),
        };
        match self.ask_coordinator(partition, command).await {
            Answer::Group(answer) => *answer,
            _ => unreachable!("a coordinator answers as one"),
        }
    }

    /// The groups of all coordinators; an error while one of them is loading.
    pub async fn list_groups(self: &Rc<Self>) -> (ErrorCode, Vec<groups::ListedGroup>) {
        let count = self.catalog().topic(OFFSETS_TOPIC).map_or(0, |topic| topic.partition_count());
        let asked: Vec<_> =
            (0..count).map(|partition| self.ask_coordinator(partition, groups::Command::List)).collect();
        let (mut error, mut listed) = (ErrorCode::None, Vec::new());
        for answer in asked {
            if let Answer::Group(answer) = answer.await
                && let groups::Answer::Listed(one, some) = *answer
            {
                error = if error.is_none() { one } else { error };
                listed.extend(some);
            }
        }
        (error, listed)
    }

    fn ask_coordinator(self: &Rc<Self>, partition: i32, command: groups::Command) -> super::shard::LocalFuture<Answer> {
        let topic = self.catalog().topic(OFFSETS_TOPIC).map_or(TopicId::ZERO, |topic| topic.id);
        let owner = self.owner(PartitionKey { topic, partition });
        self.ask(owner, Ask::Group { partition, command: Box::new(command) })
    }

    /// Asks one of this shard's coordinators.
    pub(super) fn serve_group(self: &Rc<Self>, partition: i32, command: groups::Command) -> Served {
        match command {
            groups::Command::Commit(commit) if commit.transaction.is_some() => {
                self.serve_transaction_commit(partition, commit)
            }
            command => self.serve_group_command(partition, command),
        }
    }

    fn serve_group_command(self: &Rc<Self>, partition: i32, command: groups::Command) -> Served {
        let coordinator = match self.coordinator_of(partition) {
            Ok(coordinator) => coordinator,
            Err(error) => return Served::Now(Answer::Group(Box::new(told_early(&command, error)))),
        };
        let asked = Asked::of(&command);
        let refused = command.refused(ErrorCode::NotCoordinator);
        let ticket = coordinator.next_ticket();
        let mut effects = coordinator.groups.borrow_mut().handle(moment_of(&command), ticket, command);
        let own = effects.answers.iter().position(|(of, _)| *of == ticket);
        let served = match own.map(|at| effects.answers.swap_remove(at).1) {
            Some(answer) => Served::Now(Answer::Group(Box::new(answer))),
            None => {
                let (sender, receiver) = once();
                coordinator.wait(
                    ticket,
                    asked,
                    sender,
                    clock::uptime_ms().saturating_add(self.config().groups.commit_timeout_ms),
                );
                Served::Later(Box::pin(async move {
                    let answer = match receiver.await {
                        Some(Ok(answer)) => answer,
                        Some(Err(error)) => refused.turned(error),
                        None => refused,
                    };
                    Answer::Group(Box::new(answer))
                }))
            }
        };
        self.carry_out(&coordinator, effects);
        served
    }

    /// The coordinator of a partition that is here and serves.
    fn coordinator_of(&self, partition: i32) -> Result<Rc<Coordinator<D>>, ErrorCode> {
        let topic = self.catalog().topic(OFFSETS_TOPIC).map(|topic| topic.id).ok_or(ErrorCode::NotCoordinator)?;
        let coordinator = self.groups.at(PartitionKey { topic, partition }).ok_or(ErrorCode::NotCoordinator)?;
        coordinator.log.serves()?;
        Ok(coordinator)
    }

    /// Appends what is to be appended and hands the answers out.
    fn carry_out(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, effects: Effects) {
        for append in effects.appends {
            self.append_group_records(coordinator, &append);
        }
        for (ticket, answer) in effects.answers {
            coordinator.answer(ticket, answer);
        }
        self.look_at_deadline(coordinator);
    }

    /// The topic appears, goes, or a topic that offsets are kept for is no more.
    pub(super) fn coordinators_follow(self: &Rc<Self>, before: &Catalog, now: &Catalog) {
        if let Some(topic) = now.topic(OFFSETS_TOPIC) {
            self.begin_coordinators(topic);
        }
        let is_gone = |topic: &&Arc<Topic>| now.topic_by_id(topic.id).is_none();
        for gone in before.topics().filter(is_gone) {
            if &*gone.name == OFFSETS_TOPIC {
                self.end_coordinators(gone.id);
            } else {
                self.groups.all().iter().for_each(|coordinator| self.forget_topic(coordinator, &gone.name, gone.id));
            }
        }
    }

    /// A coordinator for each partition of the topic that is here and has none yet.
    pub(super) fn begin_coordinators(self: &Rc<Self>, topic: &Topic) {
        let mut to_load = Vec::new();
        for partition in 0..topic.partition_count() {
            let key = PartitionKey { topic: topic.id, partition };
            let Some(log) = self.partition(key).filter(|_| self.groups.at(key).is_none()) else { continue };
            let coordinator = Rc::new(Coordinator::new(log, settings_of(self.config())));
            self.groups.coordinators.borrow_mut().insert(key, Rc::clone(&coordinator));
            to_load.push(coordinator);
        }
        self.load_coordinators(to_load);
    }

    fn end_coordinators(&self, topic: TopicId) {
        for coordinator in self.groups.all() {
            if coordinator.log.partition.key.topic == topic {
                self.groups.coordinators.borrow_mut().remove(&coordinator.log.partition.key);
                coordinator.log.close();
                coordinator.refuse_all();
            }
        }
    }

    /// One that is loading sees by itself, at its end, that the topic is no more.
    fn forget_topic(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, topic: &str, topic_id: TopicId) {
        if coordinator.log.serves().is_err() {
            return;
        }
        let command = groups::Command::TopicDeleted { topic: topic.to_owned(), topic_id };
        let ticket = coordinator.next_ticket();
        let effects = coordinator.groups.borrow_mut().handle(moment(), ticket, command);
        self.carry_out(coordinator, effects);
    }

    /// The shard stops: nobody waits for others any more, what is on its way to the disk is still answered.
    pub(super) fn stop_coordinators(&self) {
        for coordinator in self.groups.all() {
            coordinator.log.close();
            coordinator.refuse_those_who_wait_for_others();
        }
        self.groups.nearer.ring();
    }
}

/// The partition of a group.
///
/// Source: apache/kafka `GroupCoordinatorService.partitionFor`: Java's hash of a text, over its UTF-16 units.
#[must_use]
pub fn partition_of(group: &str, partitions: i32) -> i32 {
    let hash = group.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    hash.checked_abs().unwrap_or(0) % partitions.max(1)
}

/// The answer of a coordinator that does not serve. A member that lives is not told that its coordinator is loading: it has
/// the whole session time-out from the end of that.
///
/// Source: apache/kafka `GroupCoordinatorService.heartbeat`.
fn told_early(command: &groups::Command, error: ErrorCode) -> groups::Answer {
    match (command, error) {
        (groups::Command::Heartbeat(_), ErrorCode::CoordinatorLoadInProgress) => command.refused(ErrorCode::None),
        _ => command.refused(error),
    }
}

/// Now, with chance for the names of new members.
fn moment_of(command: &groups::Command) -> Moment {
    match command {
        groups::Command::Join(_) => {
            let random = u128::from(host::random()) << 64 | u128::from(host::random());
            Moment { random, ..moment() }
        }
        _ => moment(),
    }
}

/// Now, for everything that names nobody.
fn moment() -> Moment {
    Moment { wall_ms: clock::now_ms(), uptime_ms: clock::uptime_ms(), random: 0 }
}

fn settings_of(config: &crate::config::Config) -> GroupSettings {
    let of = &config.groups;
    GroupSettings {
        session_timeout_ms_min: of.session_timeout_ms_min,
        session_timeout_ms_max: of.session_timeout_ms_max,
        initial_rebalance_delay_ms: of.initial_rebalance_delay_ms,
        members_max: of.members_max,
        offset_metadata_bytes_max: of.offset_metadata_bytes_max,
        offsets_retention_ms: of.retention_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_where_kafka_looks_for_them() {
        assert_eq!((partition_of("g", 50), partition_of("simple", 50)), (3, 26), "as Apache Kafka 4.4.0 placed them");
        assert_eq!(partition_of("", 50), 0);
        // The hash of this one is the smallest number, whose absolute value there is not.
        assert_eq!(partition_of("polygenelubricants", 50), 0);
        // Two units of UTF-16, not one character and not four bytes.
        assert_eq!(partition_of("\u{1F600}", 1000), (0xD83D * 31 + 0xDE00) % 1000);
    }
}
