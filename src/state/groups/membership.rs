//! What members of a classic group do between joining and leaving: ask for assignments, show that they live, leave.

use std::collections::HashMap;

use bytes::Bytes;

use super::Ticket;
use super::classic::{Classic, Phase};
use super::desk::{Desk, told_for};
use super::flight::Then;
use super::messages::{Answer, Leave, Left, Membership, Sync, Synced};
use super::round::Step;
use crate::wire::error_code::ErrorCode;

impl Classic {
    /// A member asks for its assignment; the leader brings those of all.
    pub fn sync(&mut self, desk: &mut Desk, ticket: Ticket, sync: Sync) {
        if let Err(error) = self.check_sync(&sync) {
            return desk.refuse_sync(ticket, error);
        }
        match self.phase {
            Phase::Empty => desk.refuse_sync(ticket, ErrorCode::UnknownMemberId),
            Phase::Preparing => desk.refuse_sync(ticket, ErrorCode::RebalanceInProgress),
            Phase::Completing => {
                self.wait_for_assignment(desk, ticket, &sync.who.member_id);
                if self.is_leader(&sync.who.member_id) && !self.assigning {
                    self.assign(desk, sync.assignments);
                }
            }
            Phase::Stable => {
                self.has_synced(desk, &sync.who.member_id);
                let member = self.members.get(sync.who.member_id.as_str());
                let assignment = member.map(|member| member.assignment.clone()).unwrap_or_default();
                desk.answer(ticket, Answer::Synced(self.synced(assignment)));
            }
        }
    }

    fn check_sync(&self, sync: &Sync) -> Result<(), ErrorCode> {
        self.check_in_generation(&sync.who)?;
        let differs =
            |asked: &Option<String>, ours: &Option<String>| asked.is_some() && ours.is_some() && asked != ours;
        if differs(&sync.protocol_type, &self.protocol_type) || differs(&sync.protocol, &self.protocol) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// A member, in the generation that is.
    ///
    /// # Errors
    /// 25, 82 or 22.
    pub fn check_in_generation(&self, who: &Membership) -> Result<(), ErrorCode> {
        self.check_member(&who.member_id, who.instance_id.as_deref())?;
        if who.generation == self.generation { Ok(()) } else { Err(ErrorCode::IllegalGeneration) }
    }

    fn wait_for_assignment(&mut self, desk: &mut Desk, ticket: Ticket, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id)
            && let Some(older) = member.syncing.replace(ticket)
        {
            desk.refuse_sync(older, ErrorCode::RebalanceInProgress);
        }
        self.has_synced(desk, member_id);
    }

    /// The leader's assignments go into the log; a member that it forgot gets an empty one.
    fn assign(&mut self, desk: &mut Desk, assignments: Vec<(String, Bytes)>) {
        let assignments: HashMap<String, Bytes> = assignments.into_iter().collect();
        let record = self.record(|member| assignments.get(&*member.id).cloned().unwrap_or_default());
        self.assigning = true;
        desk.append(vec![record], Then::Assigned(self.name.clone(), self.generation));
    }

    /// The assignments of a generation are in the log, or are not known to be. If the group went on meanwhile they
    /// mean nothing any more.
    pub fn assigned(&mut self, desk: &mut Desk, generation: i32, result: Result<(), ErrorCode>) {
        if self.phase != Phase::Completing || self.generation != generation {
            return;
        }
        if let Err(error) = result {
            self.forget_assignments(desk, told_for(error));
            self.prepare_or_complete(desk);
            return;
        }
        let stored = self.stored.as_ref().map(|stored| stored.members.as_slice()).unwrap_or_default();
        let mut given: HashMap<String, Bytes> =
            stored.iter().map(|member| (member.member_id.clone(), member.assignment.clone())).collect();
        for id in self.ids(|_| true) {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = given.remove(&*id).unwrap_or_default();
            }
            self.answer_syncing(desk, &id, ErrorCode::None);
        }
        self.enter(desk, Phase::Stable);
    }

    /// What a member is told when it has asked.
    pub fn synced(&self, assignment: Bytes) -> Synced {
        Synced {
            error: ErrorCode::None,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment,
        }
    }

    /// Who has not asked for its assignment for the time of a round is gone.
    pub fn sync_is_due(&mut self, desk: &mut Desk) {
        self.sync = None;
        let late = self.ids(|member| member.owes_sync);
        if late.is_empty() || !matches!(self.phase, Phase::Completing | Phase::Stable) {
            return;
        }
        late.iter().for_each(|id| self.remove(desk, id));
        self.prepare(desk);
    }

    /// A member lives.
    pub fn heartbeat(&mut self, desk: &mut Desk, who: &Membership) -> ErrorCode {
        if let Err(error) = self.check_in_generation(who) {
            return error;
        }
        self.heard_of(desk, &who.member_id);
        if self.phase == Phase::Preparing { ErrorCode::RebalanceInProgress } else { ErrorCode::None }
    }

    /// A member was not heard of for its time. One that waits for others lives, and gets a new deadline with its
    /// answer.
    pub fn session_is_due(&mut self, desk: &mut Desk, member_id: &str) {
        if self.pending.contains_key(member_id) {
            self.remove_pending(desk, member_id);
        } else if let Some(member) = self.members.get_mut(member_id) {
            member.session = None;
            if member.waits_for_others() {
                return;
            }
            self.remove(desk, member_id);
            if matches!(self.phase, Phase::Stable | Phase::Completing) {
                self.prepare(desk);
                return;
            }
        }
        if self.phase == Phase::Preparing && self.all_joined() {
            self.complete(desk);
        }
    }

    /// Members leave; answered when it is in the log that nobody is left, otherwise at once.
    pub fn leave(&mut self, desk: &mut Desk, ticket: Ticket, leave: Leave) {
        let mut members = Vec::with_capacity(leave.members.len());
        for (member_id, instance_id) in leave.members {
            let error = self.leave_one(desk, &member_id, instance_id.as_deref()).err().unwrap_or(ErrorCode::None);
            members.push((member_id, instance_id, error));
        }
        let anybody = members.iter().any(|(_, _, error)| error.is_none());
        let step = match self.phase {
            Phase::Stable | Phase::Completing if anybody => self.prepare(desk),
            Phase::Preparing if anybody => self.complete_if_all_came(desk),
            _ => Step::Quiet,
        };
        let answer = Answer::Left(Left { error: ErrorCode::None, members });
        match step {
            Step::Quiet => desk.answer(ticket, answer),
            Step::Emptied => desk.flight.reply_with_last(ticket, answer),
        }
    }

    /// One member leaves; a static one may be named by its static name alone.
    fn leave_one(&mut self, desk: &mut Desk, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if member_id.is_empty() {
            let id = instance_id.and_then(|instance_id| self.statics.get(instance_id)).cloned();
            let id = id.ok_or(ErrorCode::UnknownMemberId)?;
            self.remove(desk, &id);
        } else if self.pending.contains_key(member_id) {
            self.remove_pending(desk, member_id);
        } else {
            self.check_member(member_id, instance_id)?;
            self.remove(desk, member_id);
        }
        Ok(())
    }
}
