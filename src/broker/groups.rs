//! Coordinators of consumer groups: one for each partition of `__consumer_offsets`, on the core that owns it.

use std::rc::Rc;

use super::messages::{Answer, Ask};
use super::shard::{Served, Shard};
use crate::runtime::disk::Disk;
use crate::state::groups::messages as groups;
use crate::wire::error_code::ErrorCode;

impl<D: Disk> Shard<D> {
    /// The partition of `__consumer_offsets` that a group belongs to; makes the topic when it is not there yet.
    ///
    /// # Errors
    /// 15 while the topic cannot be made.
    pub async fn group_partition(self: &Rc<Self>, group: &str) -> Result<i32, ErrorCode> {
        let _later = group;
        Err(ErrorCode::CoordinatorNotAvailable)
    }

    /// Asks the coordinator of a group, wherever it is.
    pub async fn ask_group(self: &Rc<Self>, group: &str, command: groups::Command) -> groups::Answer {
        let partition = match self.group_partition(group).await {
            Ok(partition) => partition,
            Err(error) => return command.refused(error),
        };
        let _later = Ask::Group { partition, command: Box::new(command.clone()) };
        command.refused(ErrorCode::CoordinatorNotAvailable)
    }

    /// The groups of all coordinators; an error while one of them is loading.
    pub async fn list_groups(self: &Rc<Self>) -> (ErrorCode, Vec<groups::ListedGroup>) {
        (ErrorCode::None, Vec::new())
    }

    pub(super) fn serve_group(self: &Rc<Self>, partition: i32, command: groups::Command) -> Served {
        let _later = partition;
        Served::Now(Answer::Group(Box::new(command.refused(ErrorCode::NotCoordinator))))
    }
}
