//! Rounds of a classic group: who joins, how long the others wait, when the next generation begins.
//!
//! Source: apache/kafka `GroupMetadataManager.classicGroupJoin` and what it calls.

use std::sync::Arc;

use bytes::Bytes;

use super::Ticket;
use super::classic::{Classic, Delay, Phase};
use super::deadlines::What;
use super::desk::Desk;
use super::flight::Then;
use super::member::Member;
use super::messages::{Answer, Join, Synced};
use crate::wire::error_code::ErrorCode;

/// A new member whose first round takes longer is given up: it does not know its id, so it cannot show that it lives.
///
/// Source: apache/kafka `GroupCoordinatorConfig.CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS`.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i32 = 5 * 60 * 1000;

/// What can be on its way into the log after a step: whether the group became empty by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing was appended.
    Quiet,
    /// The empty generation was appended, as the last append.
    Emptied,
}

impl Classic {
    /// Somebody joins, or joins again.
    pub fn join(&mut self, desk: &mut Desk, ticket: Ticket, join: Join) {
        if !self.accepts(desk, &join.member_id) {
            self.remove(desk, &join.member_id);
            desk.refuse_join(ticket, ErrorCode::GroupMaxSizeReached, "");
        } else if !self.supports(&join.protocol_type, &join.protocols) {
            desk.refuse_join(ticket, ErrorCode::InconsistentGroupProtocol, &join.member_id);
        } else if join.member_id.is_empty() {
            self.join_without_id(desk, ticket, join);
        } else if self.pending.contains_key(join.member_id.as_str()) {
            self.join_pending(desk, ticket, join);
        } else {
            self.join_again(desk, ticket, join);
        }
    }

    /// Whether the group has room for it. While a round is prepared those count who wait in it: the last ones to come
    /// are turned away when the limit was lowered.
    fn accepts(&self, desk: &Desk, member_id: &str) -> bool {
        let members_max = usize::try_from(desk.settings.members_max).unwrap_or(0);
        let member = self.members.get(member_id);
        match self.phase {
            Phase::Empty => true,
            Phase::Preparing => member.is_some_and(|member| member.joining.is_some()) || self.joining() < members_max,
            Phase::Completing | Phase::Stable => member.is_some() || self.members.len() < members_max,
        }
    }

    fn join_without_id(&mut self, desk: &mut Desk, ticket: Ticket, join: Join) {
        let id = new_member_id(join.instance_id.as_deref().unwrap_or(&join.client_id), desk.at.random, ticket);
        match join.instance_id.as_ref().and_then(|instance_id| self.statics.get(instance_id)).cloned() {
            Some(old_id) => self.replace_static(desk, ticket, join, &old_id, id),
            None if join.instance_id.is_none() && join.wants_member_id_first => {
                desk.refuse_join(ticket, ErrorCode::MemberIdRequired, &id);
                let mut session = None;
                desk.due_in(&mut session, join.session_timeout_ms, &self.name, || What::Session(Arc::clone(&id)));
                self.pending.insert(id, session);
            }
            None => {
                self.add(desk, ticket, id, join);
            }
        }
    }

    /// Who was given an id comes with it. Only members without a static name are given one, so a name is a mistake;
    /// Kafka fails over it.
    fn join_pending(&mut self, desk: &mut Desk, ticket: Ticket, join: Join) {
        if join.instance_id.is_some() {
            return desk.refuse_join(ticket, ErrorCode::UnknownServerError, &join.member_id);
        }
        self.add(desk, ticket, Arc::from(join.member_id.as_str()), join);
    }

    fn add(&mut self, desk: &mut Desk, ticket: Ticket, id: Arc<str>, join: Join) {
        self.remove_pending(desk, &id);
        if self.phase == Phase::Preparing && self.from_empty {
            self.new_member_added = true;
        }
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        self.insert(Member::joining(Arc::clone(&id), join, ticket));
        self.wait_for_member(desk, &id, NEW_MEMBER_JOIN_TIMEOUT_MS);
        self.prepare_or_complete(desk);
    }

    fn join_again(&mut self, desk: &mut Desk, ticket: Ticket, join: Join) {
        if let Err(error) = self.check_member(&join.member_id, join.instance_id.as_deref()) {
            return desk.refuse_join(ticket, error, &join.member_id);
        }
        let id = join.member_id.as_str();
        let same = self.members.get(id).is_some_and(|member| member.protocols == join.protocols);
        let stays = match self.phase {
            Phase::Empty | Phase::Preparing => false,
            Phase::Completing => same,
            // A leader that joins again wants to assign anew.
            Phase::Stable => same && !self.is_leader(id),
        };
        if stays {
            return desk.answer(ticket, Answer::Joined(self.joined(id)));
        }
        let timeouts_ms = (join.rebalance_timeout_ms, join.session_timeout_ms);
        self.update(desk, id, join.protocols, timeouts_ms, Some(ticket));
        self.prepare_or_complete(desk);
    }

    /// Begins a round, or looks whether the one that is being prepared is complete.
    pub fn prepare_or_complete(&mut self, desk: &mut Desk) -> Step {
        if self.phase == Phase::Preparing { self.complete_if_all_came(desk) } else { self.prepare(desk) }
    }

    /// The round is complete if all have joined; the first round of a group waits for its time in any case.
    pub fn complete_if_all_came(&mut self, desk: &mut Desk) -> Step {
        if self.phase == Phase::Preparing && !self.from_empty && self.all_joined() {
            return self.complete(desk);
        }
        Step::Quiet
    }

    /// Begins a round: who waits for an assignment is told to join again.
    pub fn prepare(&mut self, desk: &mut Desk) -> Step {
        if self.phase == Phase::Completing {
            self.forget_assignments(desk, ErrorCode::RebalanceInProgress);
        }
        self.all_owe_sync(false);
        desk.deadlines.clear(&mut self.sync);
        self.enter(desk, Phase::Preparing);
        self.delay = None;
        if self.from_empty {
            let ms = desk.settings.initial_rebalance_delay_ms;
            self.wait_for_more(desk, ms, (self.rebalance_timeout_ms() - ms).max(0));
            Step::Quiet
        } else if self.all_joined() {
            self.complete(desk)
        } else {
            let ms = self.rebalance_timeout_ms();
            desk.due_in(&mut self.round, ms, &self.name, || What::Round);
            Step::Quiet
        }
    }

    fn wait_for_more(&mut self, desk: &mut Desk, ms: i32, remaining_ms: i32) {
        self.delay = Some(Delay { ms, remaining_ms });
        desk.due_in(&mut self.round, ms, &self.name, || What::Round);
    }

    /// The time of the round is up; the first round goes on while new members come and time remains.
    pub fn round_is_due(&mut self, desk: &mut Desk) {
        self.round = None;
        match self.delay.take() {
            Some(Delay { ms, remaining_ms }) if self.new_member_added && remaining_ms != 0 => {
                self.new_member_added = false;
                let next_ms = desk.settings.initial_rebalance_delay_ms.min(remaining_ms);
                self.wait_for_more(desk, next_ms, (remaining_ms - ms).max(0));
            }
            _ => {
                self.complete(desk);
            }
        }
    }

    /// Ends the round with those who came. Static members may stay away for their session time-out.
    pub fn complete(&mut self, desk: &mut Desk) -> Step {
        desk.deadlines.clear(&mut self.round);
        self.delay = None;
        for id in self.ids(|member| member.joining.is_none() && member.instance_id.is_none()) {
            self.remove(desk, &id);
        }
        if self.members.is_empty() {
            return self.become_empty(desk);
        }
        if !self.elect_leader_who_joined() {
            let ms = self.rebalance_timeout_ms().max(1);
            desk.due_in(&mut self.round, ms, &self.name, || What::Round);
            return Step::Quiet;
        }
        self.begin_generation(desk);
        Step::Quiet
    }

    fn become_empty(&mut self, desk: &mut Desk) -> Step {
        self.next_generation(desk, None, Phase::Empty);
        let record = self.record(|_| Bytes::new());
        desk.append(vec![record], Then::Nothing);
        Step::Emptied
    }

    fn next_generation(&mut self, desk: &Desk, protocol: Option<String>, phase: Phase) {
        self.generation = self.generation.wrapping_add(1);
        self.protocol = protocol;
        self.subscribed = self.find_subscribed();
        self.new_member_added = false;
        self.enter(desk, phase);
    }

    fn begin_generation(&mut self, desk: &mut Desk) {
        self.next_generation(desk, self.choose_protocol(), Phase::Completing);
        for id in self.ids(|_| true) {
            self.answer_joining(desk, &id);
            self.heard_of(desk, &id);
            if let Some(member) = self.members.get_mut(&id) {
                member.is_new = false;
            }
        }
        self.all_owe_sync(true);
        let ms = self.rebalance_timeout_ms();
        desk.due_in(&mut self.sync, ms, &self.name, || What::Sync);
    }

    /// Whether there is a leader among those who joined: the old one, or one of the others.
    fn elect_leader_who_joined(&mut self) -> bool {
        let has_joined = |member: &&Member| member.joining.is_some();
        let leader = self.leader.as_ref().and_then(|leader| self.members.get(leader)).filter(has_joined);
        match leader.or_else(|| self.members.values().find(has_joined)) {
            Some(member) => {
                self.leader = Some(Arc::clone(&member.id));
                true
            }
            None => false,
        }
    }

    /// Nobody has an assignment any more; who waits for one is told why.
    pub fn forget_assignments(&mut self, desk: &mut Desk, error: ErrorCode) {
        for id in self.ids(|_| true) {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = Bytes::new();
            }
            self.answer_syncing(desk, &id, error);
        }
    }

    /// Answers the sync that a member waits for, which also counts as a sign of life.
    pub fn answer_syncing(&mut self, desk: &mut Desk, member_id: &str, error: ErrorCode) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        let Some(ticket) = member.syncing.take() else { return };
        let assignment = member.assignment.clone();
        let synced = if error.is_none() { self.synced(assignment) } else { Synced::refused(error) };
        desk.answer(ticket, Answer::Synced(synced));
        self.heard_of(desk, member_id);
    }

    /// Ids of the members that fit.
    pub fn ids(&self, fits: impl Fn(&Member) -> bool) -> Vec<Arc<str>> {
        self.members.values().filter(|member| fits(member)).map(|member| Arc::clone(&member.id)).collect()
    }
}

/// An id for a new member: its name and a random UUID. The ticket tells apart those who came with the same bits.
fn new_member_id(name: &str, random: u128, ticket: Ticket) -> Arc<str> {
    let bits = random ^ u128::from(ticket.0);
    let uuid = uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid();
    Arc::from(format!("{name}-{uuid}"))
}
