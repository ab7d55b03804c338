//! Static members that come back: they have lost their id, but not their place.

use std::sync::Arc;

use bytes::Bytes;

use super::Ticket;
use super::classic::{Classic, Phase};
use super::desk::{Desk, told_for};
use super::flight::Then;
use super::messages::{Answer, Join, Joined};
use crate::wire::error_code::ErrorCode;

/// A static member that has got another id, while that is on its way into the log; enough to take it back.
#[derive(Debug)]
pub(super) struct Swap {
    ticket: Ticket,
    instance_id: String,
    old_id: Arc<str>,
    new_id: Arc<str>,
    old_protocols: Vec<(String, Bytes)>,
    old_timeouts_ms: (i32, i32),
    old_leader: Option<Arc<str>>,
    may_skip_assignment: bool,
}

impl Classic {
    /// A static member comes without its id: it gets a new one, and whoever still uses the old one is fenced. In a
    /// stable group whose assignor stays the same nothing else happens.
    ///
    /// Source: apache/kafka `GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin`.
    pub fn replace_static(&mut self, desk: &mut Desk, ticket: Ticket, join: Join, old_id: &Arc<str>, new_id: Arc<str>) {
        let old_leader = self.leader.clone();
        self.fence(desk, old_id);
        self.rename(desk, old_id, &new_id);
        let Some(member) = self.members.get(&new_id) else { return };
        let old_protocols = member.protocols.clone();
        let old_timeouts_ms = (member.rebalance_timeout_ms, member.session_timeout_ms);
        let timeouts_ms = (join.rebalance_timeout_ms, join.session_timeout_ms);
        self.update(desk, &new_id, join.protocols, timeouts_ms, Some(ticket));
        match self.phase {
            Phase::Stable if self.choose_protocol() == self.protocol => {
                let record = self.record(|member| member.assignment.clone());
                let swap = Swap {
                    ticket,
                    instance_id: join.instance_id.unwrap_or_default(),
                    old_id: Arc::clone(old_id),
                    new_id,
                    old_protocols,
                    old_timeouts_ms,
                    old_leader,
                    may_skip_assignment: join.may_skip_assignment,
                };
                desk.append(vec![record], Then::Swapped(Arc::clone(&self.name), swap));
            }
            // The leader may have been told the old id, and would assign to nobody.
            Phase::Stable | Phase::Completing | Phase::Empty => {
                self.prepare(desk);
            }
            Phase::Preparing => {
                self.complete_if_all_came(desk);
            }
        }
    }

    /// Whoever waits with the old id has been replaced.
    fn fence(&mut self, desk: &mut Desk, old_id: &str) {
        if let Some(ticket) = self.take_joining(old_id) {
            desk.refuse_join(ticket, ErrorCode::FencedInstanceId, old_id);
        }
        if let Some(ticket) = self.members.get_mut(old_id).and_then(|member| member.syncing.take()) {
            desk.refuse_sync(ticket, ErrorCode::FencedInstanceId);
        }
    }

    /// A member goes on under another id, with its session time-out from now.
    fn rename(&mut self, desk: &mut Desk, old_id: &str, new_id: &Arc<str>) {
        let was_leader = self.is_leader(old_id);
        let Some(mut member) = self.take_out(old_id) else { return };
        desk.deadlines.clear(&mut member.session);
        member.id = Arc::clone(new_id);
        member.is_new = false;
        self.insert(member);
        if was_leader {
            self.leader = Some(Arc::clone(new_id));
        }
        self.heard_of(desk, new_id);
    }

    /// The new id is in the log, or is not known to be. If the member waits for a round by now, that answers it.
    pub fn swapped(&mut self, desk: &mut Desk, swap: Swap, result: Result<(), ErrorCode>) {
        let waits = self.members.get(&swap.new_id).is_some_and(|member| member.joining == Some(swap.ticket));
        match result {
            Ok(()) if waits && self.phase == Phase::Stable => {
                self.take_joining(&swap.new_id);
                desk.answer(swap.ticket, Answer::Joined(self.swap_answer(&swap)));
                // Its session may have ended while it waited, which is not held against it.
                self.heard_of(desk, &swap.new_id);
            }
            Err(error) if waits => self.swap_back(desk, swap, told_for(error)),
            _ => {}
        }
    }

    /// A leader that understands it is told to leave the assignment as it is; an older one is told that somebody else
    /// leads, so that it does not assign.
    fn swap_answer(&self, swap: &Swap) -> Joined {
        if swap.may_skip_assignment {
            let skip_assignment = self.is_leader(&swap.new_id);
            return Joined { skip_assignment, ..self.joined(&swap.new_id) };
        }
        let leader = swap.old_leader.as_deref().unwrap_or_default().to_owned();
        Joined { leader, ..self.joined_alone(&swap.new_id) }
    }

    fn swap_back(&mut self, desk: &mut Desk, swap: Swap, error: ErrorCode) {
        self.take_joining(&swap.new_id);
        let leader = swap.old_leader.as_deref().unwrap_or_default().to_owned();
        let answer = Joined { error, leader, ..self.joined_alone("") };
        desk.answer(swap.ticket, Answer::Joined(answer));
        if self.statics.get(&swap.instance_id) == Some(&swap.new_id) {
            self.update(desk, &swap.new_id, swap.old_protocols, swap.old_timeouts_ms, None);
            self.rename(desk, &swap.new_id, &swap.old_id);
        }
    }
}
