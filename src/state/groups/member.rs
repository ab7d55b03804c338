//! One member of a classic group.

use std::sync::Arc;

use bytes::Bytes;

use super::Ticket;
use super::deadlines::Key;
use super::messages::{DescribedMember, Join, JoinedMember};
use crate::wire::internal::GroupMember;

/// A member: what it said when it joined, what it was given, and what it waits for.
#[derive(Debug)]
pub(super) struct Member {
    pub id: Arc<str>,
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// Assignors by preference, with what the member says to each.
    pub protocols: Vec<(String, Bytes)>,
    /// Empty for none.
    pub assignment: Bytes,
    /// The join that waits for the round to be complete.
    pub joining: Option<Ticket>,
    /// The sync that waits for the leader's assignments.
    pub syncing: Option<Ticket>,
    /// It knows its id only when its first round is complete.
    pub is_new: bool,
    /// It has not asked for its assignment in this generation.
    pub owes_sync: bool,
    /// When it is given up.
    pub session: Option<Key>,
}

impl Member {
    /// One that joins for the first time.
    pub fn joining(id: Arc<str>, join: Join, ticket: Ticket) -> Self {
        Self {
            id,
            instance_id: join.instance_id,
            client_id: join.client_id,
            client_host: join.client_host,
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            session_timeout_ms: join.session_timeout_ms,
            protocols: join.protocols,
            assignment: Bytes::new(),
            joining: Some(ticket),
            syncing: None,
            is_new: true,
            owes_sync: false,
            session: None,
        }
    }

    /// One that was a member when the log was written; of its assignors only the chosen one is known.
    pub fn stored(member: &GroupMember, protocol: &str) -> Self {
        let rebalance_timeout_ms = match member.rebalance_timeout_ms {
            -1 => member.session_timeout_ms,
            ms => ms,
        };
        Self {
            id: Arc::from(member.member_id.as_str()),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            protocols: vec![(protocol.to_owned(), member.subscription.clone())],
            assignment: member.assignment.clone(),
            joining: None,
            syncing: None,
            is_new: false,
            owes_sync: false,
            session: None,
        }
    }

    /// As it is kept, with the assignment given.
    pub fn to_store(&self, protocol: &str, assignment: Bytes) -> GroupMember {
        GroupMember {
            member_id: self.id.to_string(),
            instance_id: self.instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            session_timeout_ms: self.session_timeout_ms,
            subscription: self.metadata(protocol),
            assignment,
        }
    }

    /// What it says to an assignor.
    pub fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }

    /// A member that waits for others lives; a new one does not know its id yet, so its wait has an end.
    pub fn waits_for_others(&self) -> bool {
        !self.is_new && (self.joining.is_some() || self.syncing.is_some())
    }

    /// As the leader sees it.
    pub fn for_leader(&self, protocol: &str) -> JoinedMember {
        JoinedMember {
            member_id: self.id.to_string(),
            instance_id: self.instance_id.clone(),
            metadata: self.metadata(protocol),
        }
    }

    /// As the outside sees it; what it says to the assignor only where one is chosen.
    pub fn described(&self, protocol: Option<&str>) -> DescribedMember {
        DescribedMember {
            member_id: self.id.to_string(),
            instance_id: self.instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            metadata: protocol.map(|protocol| self.metadata(protocol)).unwrap_or_default(),
            assignment: self.assignment.clone(),
        }
    }
}
