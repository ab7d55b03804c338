//! What the outside is told of classic groups.

use super::classic::{Classic, Phase};
use super::messages::{Described, ListedGroup};
use crate::wire::error_code::ErrorCode;

/// Kafka's name of the state of a group that does not exist.
const DEAD: &str = "Dead";

impl Classic {
    /// The group as DescribeGroups gives it.
    pub fn described(&self) -> Described {
        let protocol = self.protocol.as_deref().filter(|_| self.phase == Phase::Stable);
        Described {
            error: ErrorCode::None,
            error_message: None,
            state: self.phase.name().to_owned(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: protocol.unwrap_or_default().to_owned(),
            members: self.members.values().map(|member| member.described(protocol)).collect(),
        }
    }

    /// The group as ListGroups gives it.
    pub fn listed(&self) -> ListedGroup {
        ListedGroup {
            group: self.name.to_string(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            state: self.phase.name().to_owned(),
            kind: "classic".to_owned(),
        }
    }
}

/// What is told of a group that does not exist; versions before 6 have no error there.
pub(super) fn described_dead(group: &str) -> Described {
    Described {
        error_message: Some(format!("Group {group} not found.")),
        state: DEAD.to_owned(),
        ..Described::refused(ErrorCode::GroupIdNotFound)
    }
}
