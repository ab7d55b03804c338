//! A classic group: its members and the round they are in. Kept in the log is only what a whole round has decided
//! ([`Classic::stored`]); everything else is gone after a restart, as in Kafka.
//!
//! ```text
//!          join                    all joined, or time is up          leader's assignments are in the log
//! Empty ─────────────▶ Preparing ─────────────────────▶ Completing ──────────────────────▶ Stable
//!   ▲                   ▲     │ nobody is left             │ join, leave, time-out            │ join, leave,
//!   └───────────────────│─────┘                            │                                  │ time-out
//!                       └──────────────────────────────────┴──────────────────────────────────┘
//! ```
//! Source: apache/kafka `ClassicGroup`, `GroupMetadataManager`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::deadlines::{Key, What};
use super::desk::Desk;
use super::member::Member;
use super::messages::{Answer, Joined};
use super::protocols::Known;
use super::{Ticket, subscription};
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::{GroupMetadata, GroupRecord};

/// The protocol type of consumers: only what they say to assignors is understood here.
pub(super) const CONSUMER: &str = "consumer";

/// Where a group is between two assignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nobody is in it.
    Empty,
    /// Members are to join, or to join again.
    Preparing,
    /// All have joined; the leader is to bring the assignments.
    Completing,
    /// All have their assignment.
    Stable,
}

impl Phase {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Preparing => "PreparingRebalance",
            Self::Completing => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// How long the first round of a group still waits for more members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    pub ms: i32,
    pub remaining_ms: i32,
}

/// A classic group.
#[derive(Debug)]
pub(super) struct Classic {
    pub name: Arc<str>,
    /// The newest record of the group in the log.
    pub stored: Option<GroupMetadata>,
    pub phase: Phase,
    /// Since when it is in this phase, by the wall clock; none if an old record does not tell.
    pub since_ms: Option<i64>,
    pub generation: i32,
    pub protocol_type: Option<String>,
    pub protocol: Option<String>,
    pub leader: Option<Arc<str>>,
    pub members: BTreeMap<Arc<str>, Member>,
    /// Static names and whose they are.
    pub statics: HashMap<String, Arc<str>>,
    /// Ids that were given out and have not joined yet.
    pub pending: HashMap<Arc<str>, Option<Key>>,
    /// Topics that the members read, as of the newest generation; none if that is not known.
    pub subscribed: Option<BTreeSet<String>>,
    /// The round that is being prepared is the first after nobody was in the group.
    pub from_empty: bool,
    /// Somebody new came while the first round waited.
    pub new_member_added: bool,
    /// The first round waits for more.
    pub delay: Option<Delay>,
    /// The leader's assignments of this generation are under way into the log.
    pub assigning: bool,
    pub round: Option<Key>,
    pub sync: Option<Key>,
    known: Known,
    joining: usize,
    owing: usize,
}

impl Classic {
    /// An empty group.
    pub fn new(name: Arc<str>, wall_ms: i64) -> Self {
        Self {
            name,
            stored: None,
            phase: Phase::Empty,
            since_ms: Some(wall_ms),
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            statics: HashMap::new(),
            pending: HashMap::new(),
            subscribed: None,
            from_empty: false,
            new_member_added: false,
            delay: None,
            assigning: false,
            round: None,
            sync: None,
            known: Known::default(),
            joining: 0,
            owing: 0,
        }
    }

    /// Takes up what is stored, after the log was read: members have their session time-out to be heard of.
    pub fn restore(&mut self, desk: &mut Desk) {
        let Some(stored) = self.stored.clone() else { return };
        self.phase = if stored.members.is_empty() { Phase::Empty } else { Phase::Stable };
        self.since_ms = (stored.state_since_ms != -1).then_some(stored.state_since_ms);
        self.generation = stored.generation;
        self.protocol_type = Some(stored.protocol_type).filter(|name| !name.is_empty());
        self.leader = stored.leader.as_deref().map(Arc::from);
        let protocol = stored.protocol.clone().unwrap_or_default();
        self.protocol = stored.protocol;
        for member in &stored.members {
            self.insert(Member::stored(member, &protocol));
            self.heard_of(desk, &member.member_id);
        }
        self.subscribed = self.find_subscribed();
        if self.members.len() > usize::try_from(desk.settings.members_max).unwrap_or(0) {
            self.prepare(desk);
        }
    }

    pub fn enter(&mut self, desk: &Desk, phase: Phase) {
        self.from_empty = self.phase == Phase::Empty;
        self.phase = phase;
        self.since_ms = Some(desk.at.wall_ms);
        self.assigning = false;
    }

    pub fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    pub fn is_consumers(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    /// Whether everybody who is waited for has joined.
    pub fn all_joined(&self) -> bool {
        self.joining == self.members.len() && self.pending.is_empty()
    }

    /// Notes who owes a sync: everybody after a round, nobody while one is prepared.
    pub fn all_owe_sync(&mut self, owe: bool) {
        self.members.values_mut().for_each(|member| member.owes_sync = owe);
        self.owing = if owe { self.members.len() } else { 0 };
    }

    /// A member has asked for its assignment. Once all have, nobody is waited for.
    pub fn has_synced(&mut self, desk: &mut Desk, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            self.owing -= usize::from(std::mem::take(&mut member.owes_sync));
        }
        if self.owing == 0 {
            desk.deadlines.clear(&mut self.sync);
        }
    }

    /// How many wait in the round.
    pub fn joining(&self) -> usize {
        self.joining
    }

    /// The longest that any member wants to be waited for.
    pub fn rebalance_timeout_ms(&self) -> i32 {
        self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0).max(0)
    }

    /// Whether somebody of that type who knows these assignors can be with the others.
    pub fn supports(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.phase == Phase::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|(name, _)| self.known.is_known_to(name, self.members.len()))
    }

    /// The assignor of the next generation.
    pub fn choose_protocol(&self) -> Option<String> {
        self.known.choose(self.members.values().map(|member| member.protocols.as_slice()))
    }

    /// Topics that the members read; none for other types than consumers, and where it cannot be known.
    ///
    /// Source: apache/kafka `ClassicGroup.computeSubscribedTopics`.
    pub fn find_subscribed(&self) -> Option<BTreeSet<String>> {
        if !self.is_consumers() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol.as_deref()?;
        let mut all = BTreeSet::new();
        for member in self.members.values() {
            all.append(&mut subscription::topics(&member.metadata(protocol))?);
        }
        Some(all)
    }

    /// Whether somebody reads the topic; where that is not known, consumers read all.
    pub fn is_subscribed(&self, topic: &str) -> bool {
        self.subscribed.as_ref().map_or(self.is_consumers(), |topics| topics.contains(topic))
    }

    /// Whether an id, with its static name, is that of a member.
    ///
    /// # Errors
    /// 25 for nobody's, 82 for a static name that has another id by now.
    pub fn check_member(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.statics.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(id) if **id != *member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    /// Takes a member in.
    pub fn insert(&mut self, member: Member) {
        if let Some(instance_id) = &member.instance_id {
            self.statics.insert(instance_id.clone(), Arc::clone(&member.id));
        }
        self.leader.get_or_insert_with(|| Arc::clone(&member.id));
        self.known.add(&member.protocols);
        self.joining += usize::from(member.joining.is_some());
        self.owing += usize::from(member.owes_sync);
        self.members.insert(Arc::clone(&member.id), member);
    }

    /// Takes a member out, with whatever it waits for.
    pub fn take_out(&mut self, member_id: &str) -> Option<Member> {
        let member = self.members.remove(member_id)?;
        self.known.remove(&member.protocols);
        self.joining -= usize::from(member.joining.is_some());
        self.owing -= usize::from(member.owes_sync);
        if let Some(instance_id) = &member.instance_id {
            self.statics.remove(instance_id);
        }
        Some(member)
    }

    /// A member, or an id that was given out, is no more; what it waited for is answered with "unknown".
    pub fn remove(&mut self, desk: &mut Desk, member_id: &str) {
        if let Some(mut member) = self.take_out(member_id) {
            desk.deadlines.clear(&mut member.session);
            if let Some(ticket) = member.joining {
                desk.refuse_join(ticket, ErrorCode::UnknownMemberId, "");
            }
            if let Some(ticket) = member.syncing {
                desk.refuse_sync(ticket, ErrorCode::UnknownMemberId);
            }
        }
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.remove_pending(desk, member_id);
    }

    /// An id that was given out has joined, or is forgotten.
    pub fn remove_pending(&mut self, desk: &mut Desk, member_id: &str) {
        if let Some(mut session) = self.pending.remove(member_id) {
            desk.deadlines.clear(&mut session);
        }
    }

    /// A member has joined again, perhaps with other things to say. A join that it still waited for is told to come
    /// again: Kafka leaves it without an answer, which nobody can tell, since its connection is gone.
    pub fn update(
        &mut self,
        desk: &mut Desk,
        member_id: &str,
        protocols: Vec<(String, Bytes)>,
        timeouts_ms: (i32, i32),
        ticket: Option<Ticket>,
    ) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        self.known.remove(&member.protocols);
        self.known.add(&protocols);
        member.protocols = protocols;
        (member.rebalance_timeout_ms, member.session_timeout_ms) = timeouts_ms;
        self.joining -= usize::from(member.joining.is_some());
        self.joining += usize::from(ticket.is_some());
        if let Some(older) = std::mem::replace(&mut member.joining, ticket)
            && ticket.is_some()
        {
            desk.refuse_join(older, ErrorCode::RebalanceInProgress, member_id);
        }
    }

    /// The join that a member waits for, which is to be answered.
    pub fn take_joining(&mut self, member_id: &str) -> Option<Ticket> {
        let ticket = self.members.get_mut(member_id)?.joining.take()?;
        self.joining -= 1;
        Some(ticket)
    }

    /// A member gave a sign of life.
    pub fn heard_of(&mut self, desk: &mut Desk, member_id: &str) {
        if let Some(member) = self.members.get(member_id) {
            let ms = member.session_timeout_ms;
            self.wait_for_member(desk, member_id, ms);
        }
    }

    /// A member is given up unless it is heard of within that time.
    pub fn wait_for_member(&mut self, desk: &mut Desk, member_id: &str, ms: i32) {
        if let Some(member) = self.members.get_mut(member_id) {
            let id = &member.id;
            desk.due_in(&mut member.session, ms, &self.name, || What::Session(Arc::clone(id)));
        }
    }

    /// What a member is told of the generation it is in; the leader is told who the others are.
    pub fn joined(&self, member_id: &str) -> Joined {
        let members = match &self.protocol {
            Some(protocol) if self.is_leader(member_id) => {
                self.members.values().map(|member| member.for_leader(protocol)).collect()
            }
            _ => Vec::new(),
        };
        Joined { members, ..self.joined_alone(member_id) }
    }

    /// The same without the others.
    pub fn joined_alone(&self, member_id: &str) -> Joined {
        Joined {
            error: ErrorCode::None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.as_deref().unwrap_or_default().to_owned(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }

    /// The record of the group as it is, with what each member is given.
    pub fn record(&self, assignment: impl Fn(&Member) -> Bytes) -> GroupRecord {
        let protocol = self.protocol.clone().unwrap_or_default();
        let members = self.members.values().map(|member| member.to_store(&protocol, assignment(member))).collect();
        let value = GroupMetadata {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.as_deref().map(str::to_owned),
            state_since_ms: self.since_ms.unwrap_or(-1),
            members,
        };
        GroupRecord::Group { group: self.name.to_string(), value: Some(value) }
    }

    /// The first record of a group that has decided nothing yet.
    pub fn founding_record(&self) -> GroupRecord {
        let value = GroupMetadata {
            protocol_type: String::new(),
            generation: 0,
            protocol: None,
            leader: None,
            state_since_ms: self.since_ms.unwrap_or(-1),
            members: Vec::new(),
        };
        GroupRecord::Group { group: self.name.to_string(), value: Some(value) }
    }

    /// The group is given up: all deadlines are taken back, whoever waits is told.
    pub fn dissolve(&mut self, desk: &mut Desk, error: ErrorCode) {
        while let Some((id, _)) = self.members.first_key_value() {
            let id = Arc::clone(id);
            let Some(member) = self.take_out(&id) else { break };
            if let Some(ticket) = member.joining {
                desk.refuse_join(ticket, error, &id);
            }
            if let Some(ticket) = member.syncing {
                desk.refuse_sync(ticket, error);
            }
            desk.deadlines.clear(&mut { member.session });
        }
        for (_, mut session) in self.pending.drain() {
            desk.deadlines.clear(&mut session);
        }
        desk.deadlines.clear(&mut self.round);
        desk.deadlines.clear(&mut self.sync);
    }

    /// Answers the joins that wait with what each is told.
    pub fn answer_joining(&mut self, desk: &mut Desk, member_id: &str) {
        if let Some(ticket) = self.take_joining(member_id) {
            desk.answer(ticket, Answer::Joined(self.joined(member_id)));
        }
    }
}
